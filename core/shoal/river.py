"""Clusterer for river, with the extra `river`: rows are dictionaries, and may lack features."""

from collections.abc import Hashable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Literal, Self

import numpy as np

from shoal.errors import InputError, SettingError
from shoal.estimators import StreamingDPMixture
from shoal.families import DEFAULT_FAMILY, FAMILIES, family_exists
from shoal.families.holes import takes_holes
from shoal.mixture import AUTO_FAMILY
from shoal.points.arrays import Array, BoolArray, IntArray

try:
    from river import base
except ImportError as error:
    raise ImportError("shoal.river needs river; run pip install 'shoal[river]'") from error

NO_COMPONENT = -1
"""Prediction of a clusterer that has learnt nothing."""


class DPMixtureClusterer(base.Clusterer):
    """A `shoal.StreamingDPMixture` that learns dictionaries, as river's clusterers do.

    The features are those of the first `warmup_points` rows. While these rows come, a new feature has the mixture
    learnt again from its first row. Features that appear only later are ignored (`ignored_features`).

    Component ids are stable. They are not positions, and need not be consecutive.

    Parameters
    ----------
    family
        Distribution of a component, as for `StreamingDPMixture`.
    concentration
        Concentration of the Dirichlet process, > 0: the mass of a new component.
    half_life
        Points after which a point counts half. None forgets nothing.
    refinement
        "auto" refines on the last `window` rows from time to time. None does not.
    window
        Most rows kept for refinement.
    warmup_points
        Rows from which features and prior are taken.
    max_components
        Limit of the mixture.
    absent
        What a feature that a row lacks means: "zero", or "missing", which scores the row by its other features. None:
        "zero" for families of counts, and "missing" for the others. A family that takes no missing values, such as
        "student", refuses rows that lack a feature.
    seed
        Seed of the random numbers of refinements. None: 0.
    """

    def __init__(
        self,
        family: str = DEFAULT_FAMILY,
        *,
        concentration: float = 1.0,
        half_life: float | None = None,
        refinement: Literal["auto"] | None = "auto",
        window: int = 100_000,
        warmup_points: int = 1_000,
        max_components: int = 4_096,
        absent: Literal["zero", "missing"] | None = None,
        seed: int | None = None,
    ) -> None:
        if absent not in ("zero", "missing", None):
            raise SettingError(f'absent is {absent!r}; give "zero", "missing" or None')
        self.family = family
        self.concentration = concentration
        self.half_life = half_life
        self.refinement = refinement
        self.window = window
        self.warmup_points = warmup_points
        self.max_components = max_components
        self.absent = absent
        self.seed = seed
        self.ignored_features: set[Hashable] = set()
        """Features that appeared after the warm-up. They are not learnt."""
        self._columns: dict[Hashable, int] = {}
        self._first: list[Mapping[Hashable, Any]] = []  # the rows of the warm-up, until it ends
        self._model = self._new()
        self._n = 0

    def __copy__(self) -> Self:
        """A clusterer that goes on from the same state by itself."""
        return deepcopy(self)

    @property
    def mixture(self) -> StreamingDPMixture:
        """The estimator behind, for everything that river has no word for."""
        return self._model

    @property
    def features(self) -> tuple[Hashable, ...]:
        """Names of the features, in the order of the mixture's columns."""
        return tuple(self._columns)

    def learn_one(self, x: Mapping[Hashable, Any]) -> None:
        """Learn one row. A row without a value of any feature says nothing, and is passed over. Raises InputError for a
        value that is not a number, and for a row that lacks a feature where the family takes no missing values.
        """
        self._learn([x])

    def learn_many(self, X: Any) -> None:
        """Learn the rows of a data frame, in order."""
        self._learn(_rows(X))

    def predict_one(self, x: Mapping[Hashable, Any]) -> int:
        """Id of the best component of a row, which is the heaviest one where the row has no value. -1 before anything
        is learnt.
        """
        return int(self._predicted([x])[0])

    def predict_many(self, X: Any) -> IntArray:
        """Ids (N,) of the best components of the rows of a data frame."""
        return self._predicted(_rows(X))

    def novelty_one(self, x: Mapping[Hashable, Any]) -> float:
        """Posterior probability that a row belongs to no existing component. 1 before anything is learnt."""
        if self._n == 0:
            return 1.0
        row = self._table([x])
        return float(self._model.novelty(row)[0]) if _has_value(row)[0] else 1.0 - float(self._model.weights_.sum())

    def score_one(self, x: Mapping[Hashable, Any]) -> float:
        """Log predictive density of a row in nats; 0 for a row without a value. NaN before anything is learnt."""
        if self._n == 0:
            return float("nan")
        row = self._table([x])
        return float(self._model.score_samples(row)[0]) if _has_value(row)[0] else 0.0

    def _predicted(self, rows: list[Mapping[Hashable, Any]]) -> IntArray:
        if self._n == 0 or not rows:
            return np.full(len(rows), NO_COMPONENT, dtype=np.int64)
        table = self._table(rows)
        known = _has_value(table)
        if known.all():
            return self._model.predict(table)
        heaviest = self._model.component_ids_[self._model.weights_.argmax()]
        found = np.full(len(rows), heaviest, dtype=np.int64)
        if known.any():
            found[known] = self._model.predict(table[known])
        return found

    def _learn(self, rows: list[Mapping[Hashable, Any]]) -> None:
        while rows:
            if self._n >= self.warmup_points:
                self._first = []
                table = self._table(rows)
                if (known := _has_value(table)).any():
                    self._model.partial_fit(table[known])
                self.ignored_features.update(name for row in rows for name in row if name not in self._columns)
                self._n += len(rows)
                return
            part, rows = rows[: self.warmup_points - self._n], rows[self.warmup_points - self._n :]
            self._learn_first(part)

    def _learn_first(self, rows: list[Mapping[Hashable, Any]]) -> None:
        """Learn rows of the warm-up, whose new features become columns."""
        if np.isnan(self._fill) or not self._columns:
            rows = [row for row in rows if any(value is not None and value == value for value in row.values())]
        if not rows:
            return
        names = {name for row in rows for name in row}.union(self._columns)
        columns = {name: i for i, name in enumerate(sorted(names, key=lambda name: (str(type(name)), str(name))))}
        first = [*self._first, *map(dict, rows)]
        if columns == self._columns:
            self._model.partial_fit(self._table(rows))
        else:
            model = self._new()
            model.partial_fit(self._table(first, columns))
            self._columns, self._model = columns, model
        self._first = first
        self._n = len(first)

    def _new(self) -> StreamingDPMixture:
        return StreamingDPMixture(
            self.family,
            concentration=self.concentration,
            half_life=self.half_life,
            refinement=self.refinement,
            window=self.window,
            warmup_points=self.warmup_points,
            max_components=self.max_components,
            random_state=self.seed,
            missing="marginal" if np.isnan(self._fill) and self._takes_missing else "refuse",
        )

    @property
    def _takes_missing(self) -> bool:
        """Whether the family takes points with missing values."""
        return takes_holes(FAMILIES[self.family]) if family_exists(self.family) else self.family != AUTO_FAMILY

    @property
    def _fill(self) -> float:
        """The value of a feature that a row lacks."""
        counts = family_exists(self.family) and FAMILIES[self.family].domain.sparse
        return 0.0 if self.absent == "zero" or (self.absent is None and counts) else float("nan")

    def _table(self, rows: list[Mapping[Hashable, Any]], columns: Mapping[Hashable, int] | None = None) -> Array:
        """Rows (N, D) as `_table` gives them. Raises InputError for a row that may not lack a feature."""
        columns = self._columns if columns is None else columns
        table = _table(rows, columns, self._fill)
        if not self._takes_missing and (lacks := np.isnan(table) & _has_value(table)[:, None]).any():
            name = list(columns)[int(lacks.any(axis=0).argmax())]
            raise InputError(
                f"a row has no feature {name!r}, and family {self.family!r} takes no missing values; give rows all "
                'features, or choose absent="zero" or another family'
            )
        return table


def _has_value(table: Array) -> BoolArray:
    """(N,) whether rows have a value of any feature."""
    return np.asarray(~np.isnan(table).all(axis=1), np.bool_)


def _rows(X: Any) -> list[Mapping[Hashable, Any]]:
    """The rows of a data frame of pandas or Polars as dictionaries."""
    found: list[Mapping[Hashable, Any]] = X.to_dicts() if hasattr(X, "to_dicts") else X.to_dict(orient="records")
    return found


def _table(rows: Iterable[Mapping[Hashable, Any]], columns: Mapping[Hashable, int], fill: float) -> Array:
    """Rows (N, D) of the known columns; `fill` where a row has no value. Raises InputError for what is no number."""
    rows = list(rows)
    table = np.full((len(rows), len(columns)), fill)
    for i, row in enumerate(rows):
        for name, value in row.items():
            column = columns.get(name)
            if column is None or value is None:
                continue
            try:
                table[i, column] = value
            except (TypeError, ValueError):
                raise InputError(
                    f"feature {name!r} is {value!r}; give a number, for example by river's OneHotEncoder"
                ) from None
    return table
