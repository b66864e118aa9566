"""Snapshots for readers: a mixture at one offset, immutable, in the units of the user's data.

The predictive density of a point (Lin 2013, eq. 12; ERRATA 5.19) is a mixture of the posterior predictives of all
components and of the prior predictive, which stands for a new component and has weight alpha / (alpha + sum w). It
integrates to one.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from shoal.errors import NoPointsError, SettingError, UnknownComponentError
from shoal.families import AnyFamily, take
from shoal.families.feature_contrast import feature_values
from shoal.families.holes import as_table
from shoal.mixture.distinguishing_features import MOST_TELLING, Moments, TellingFeature, telling_features
from shoal.mixture.lineage import Lineage, Retired, recall
from shoal.mixture.predictor import Predictor, rows_for_readers, with_empty
from shoal.mixture.settings import StreamSettings
from shoal.mixture.state import MixtureState, Status, live_rows
from shoal.points.arrays import Array, IntArray, read_only
from shoal.points.rows import Points, standardised, standardising_changes
from shoal.process import predictive_weights


class Prediction(NamedTuple):
    """Predictions for N points."""

    component: IntArray  # (N,) id of the best existing component, never that of a new one
    log_density: Array  # (N,) log predictive density in nats, in the units of the points
    novelty: Array  # (N,) posterior probability that the point belongs to no existing component
    resp: Array
    """(N, K) posterior probabilities of the existing components; with novelty a row sums to one. Values below 9e-17 / K
    of the largest may be 0."""


class Component(NamedTuple):
    """One live component, in the units of the user's data."""

    id: int
    row: int
    weight: float
    mass: float
    mean: Array  # (D,) of the posterior predictive, NaN where it does not exist
    variance: Array  # (D,) infinite where it is
    born_at: int
    last_seen_at: int


@dataclass(frozen=True, eq=False)
class MixtureSnapshot:
    """An immutable view of a mixture; every array is read-only. Made by `snapshot_of`.

    Values beyond the statistics (predictive factors, moments) are computed on first use and kept. Two threads may both
    compute them; the results are equal but for last digits.
    """

    settings: StreamSettings
    status: Status
    points_seen: int
    decayed_count: float
    pruned_mass: float
    births_refused: int
    ids: IntArray
    """(K,) ascending; rows are in this order. See `largest_first`."""
    masses: Array
    born_at: IntArray
    last_seen_at: IntArray
    weights: Array
    """(K,) w_k / (alpha + sum w)."""
    new_weight: float
    """alpha / (alpha + sum w)."""
    location: Array
    scale: Array
    prior: AnyFamily | None
    stats: Any
    """Statistics of standardised points, K rows; None before the first fit of a warm-up."""
    lineage: Lineage
    live: tuple[Any, Any] | None = field(default=None, repr=False)
    """Statistics (`stats` are their first K rows) and predictive cache of the components and of an empty one, if the
    learner passed them on. They serve predictions and are no part of the snapshot's content. A snapshot copied from
    another with new statistics has none."""

    @property
    def n_components(self) -> int:
        """K."""
        return int(self.ids.size)

    @property
    def largest_first(self) -> IntArray:
        """(K,) rows by descending mass, equals by ascending id."""
        return np.lexsort((self.ids, -self.masses))

    @property
    def means(self) -> Array:
        """(K, D) means of the posterior predictives; NaN where one does not exist."""
        return self._moments[0]

    @property
    def variances(self) -> Array:
        """(K, D) variances of the posterior predictives; infinite where they are."""
        return self._moments[1]

    def telling(self, rows: IntArray | None = None, n: int = MOST_TELLING) -> list[list[TellingFeature]]:
        """The features that tell most of the components in the chosen rows (default: all), at most `n` each."""
        if self.prior is None:
            return []
        moments = Moments(self.stats, self.masses, self.means, self.variances)
        chosen = np.arange(self.n_components) if rows is None else np.asarray(rows)
        settings = self.settings
        return telling_features(self.prior, moments, settings.feature_names, chosen, n, settings.level_names)

    def level_shares(self, rows: IntArray, n: int = MOST_TELLING) -> list[dict[str | int, dict[str, float]]]:
        """The shares of the most frequent levels of the components in the chosen rows, at most `n` for each feature
        whose levels have names."""
        named, names = self.settings.level_names or {}, self.settings.feature_names
        found: list[dict[str | int, dict[str, float]]] = [{} for _ in rows]
        if self.prior is None or not named:
            return found
        values = feature_values(self.prior, take(self.stats, rows), self.means[rows])
        assert values.level is not None, "levels with names are of categories"
        for column, texts in named.items():
            places = np.flatnonzero((values.feature == column) & (values.level < len(texts)))
            for own, share in zip(found, values.value[:, places], strict=True):
                largest = np.argsort(-share, kind="stable")[:n]
                own[column if names is None else names[column]] = {
                    texts[values.level[places[r]]]: float(share[r]) for r in largest
                }
        return found

    @property
    def has_places(self) -> bool:
        """Whether points are places in space, of which a plane shows two coordinates."""
        return self.settings.domain.name == "real"

    def covariances(self, rows: IntArray | None = None) -> Array:
        """(M, D, D) covariances of the posterior predictives of the chosen rows (default: all); not cached."""
        if self.prior is None:
            return np.zeros((0, self.location.size, self.location.size))
        stats = self.stats if rows is None else take(self.stats, rows)
        covariance = self.prior.predictive_covariance(self.prior.posterior(stats))
        return covariance * (self.scale[:, None] * self.scale[None, :])

    def row_of(self, component: int) -> int:
        """Row of a live id. Raises UnknownComponentError."""
        rows = np.flatnonzero(self.ids == component)
        if rows.size == 0:
            raise UnknownComponentError(f"component {component} is not live; `past` has retired ids")
        return int(rows[0])

    def component(self, component: int) -> Component:
        """A live component by its id. Raises UnknownComponentError."""
        row = self.row_of(component)
        return Component(
            component,
            row,
            float(self.weights[row]),
            float(self.masses[row]),
            self.means[row],
            self.variances[row],
            int(self.born_at[row]),
            int(self.last_seen_at[row]),
        )

    def past(self, component: int) -> tuple[Retired, "MixtureSnapshot | None"]:
        """A retired component with its live successors, and a snapshot of its final state alone (row 0).

        The second is None when the final statistics were dropped. Raises UnknownComponentError.
        """
        record = recall(self.lineage, component)
        return record, None if record.stats is None or self.prior is None else _final_state(self, record)

    def prepare(self) -> "MixtureSnapshot":
        """Compute the values of first use now, so that readers do not wait."""
        if self.n_components:
            self._predictor.prepare()
            _ = self._moments
        return self

    def predict(self, points: Any, *, with_resp: bool = True) -> Prediction:
        """Predictions for points (N, D), in bounded memory beside the result.

        Without `with_resp` the responsibilities are (N, 0), which takes a fraction of the time with many components.
        Under the Gaussian families a kernel computes each point independently of the others, to the bit. Under the
        other families, and where the kernel was not compiled at first use, NumPy does, with other last digits.

        Where the stream takes missing values (`missing="marginal"`), NaN is one: the point is predicted by its others.

        Raises ShapeError, NotNumericError, NotFiniteError, OutsideDomainError (see `Domain.points`), and NoPointsError
        while there are no components.
        """
        x = self._checked(points)
        found = self._predictor.predict(x, with_resp=with_resp, placed=self._standardised)
        log_density = found.log_density - (self._log_volumes(x) if self.settings.takes_holes else self._log_volume)
        return Prediction(self.ids[found.row], log_density, found.novelty, found.resp)

    def log_density(self, points: Any) -> Array:
        """(N,) log predictive densities alone, in nats. Raises as `predict`."""
        return self.predict(points, with_resp=False).log_density

    def _checked(self, points: Any) -> Points:
        x = self.settings.domain.points(points, self.settings.n_features, holes=self.settings.takes_holes)
        if self.n_components == 0:
            raise NoPointsError("there are no components yet; send points first")
        return x

    def _standardised(self, x: Points) -> Points:
        z: Points = standardised(x, self.location, self.scale, changes=self._standardises)
        return z

    @cached_property
    def _standardises(self) -> bool:
        return standardising_changes(self.location, self.scale)

    @cached_property
    def _predictor(self) -> Predictor:
        assert self.prior is not None, "components exist before there is a prior"
        with np.errstate(divide="ignore"):  # a component whose mass has underflowed has weight 0
            log_weights = np.log(np.append(self.weights, self.new_weight))
        stats, cache = self.live or (with_empty(self.prior, self.stats), None)
        return Predictor(self.prior, stats, log_weights, cache, holes=self.settings.takes_holes)

    @cached_property
    def _moments(self) -> tuple[Array, Array]:
        if self.prior is None:
            none = read_only(np.zeros((0, self.location.size)))
            return none, none
        params = self.prior.posterior(self.stats)
        means = self.prior.predictive_mean(params) * self.scale + self.location
        return read_only(means), read_only(self.prior.predictive_variance(params) * self.scale**2)

    @cached_property
    def _log_volume(self) -> float:
        """log |d raw / d standardised|."""
        return float(np.log(self.scale).sum())

    def _log_volumes(self, x: Points) -> Array | float:
        """The same (N,) for the observed features of each point; one number where nothing is missing."""
        if (self.scale == 1.0).all():  # also sparse points, of which no table is to be made
            return self._log_volume
        missing = np.isnan(as_table(x))
        return np.asarray(~missing @ np.log(self.scale)) if missing.any() else self._log_volume


def snapshot_of(state: MixtureState) -> MixtureSnapshot:
    """A read-only copy of the parts of `state` for readers; the state may be consumed afterwards.

    Its predictive cache must match its statistics: refresh it first after `moves` or prunes.
    """
    n = state.n_components
    rows = _by_id(state.ids[:n])
    for array in state.lineage.arrays():  # shared, not copied: the past is never written in place
        read_only(array)
    stats, live = live_rows(state.stats, n), None
    if stats is not None and state.prior is not None:
        stats = take(stats, rows)
        live = rows_for_readers(state.prior, stats, take(live_rows(state.cache, n), rows))
        copies = (field.copy() for field in stats) if live is None else (field[:n] for field in live[0])
        stats = type(stats)(*map(read_only, copies))
    masses = stats[0] if stats is not None else read_only(np.zeros(0))
    weights, new_weight = predictive_weights(masses, state.settings.concentration)
    return MixtureSnapshot(
        settings=state.settings,
        status=state.status,
        points_seen=state.points_seen,
        decayed_count=state.decayed_count,
        pruned_mass=state.pruned_mass,
        births_refused=state.births_refused,
        ids=read_only(state.ids[:n][rows].copy()),
        masses=masses,
        born_at=read_only(state.born_at[:n][rows].copy()),
        last_seen_at=read_only(state.last_seen_at[:n][rows].copy()),
        weights=read_only(weights),
        new_weight=new_weight,
        location=read_only(state.location.copy()),
        scale=read_only(state.scale.copy()),
        prior=state.prior,
        stats=stats,
        lineage=state.lineage,
        live=live,
    )


def _by_id(ids: IntArray) -> Any:
    """Rows (K,) by ascending id; a slice where they already ascend, to avoid a copy. Joins and refinements leave rows
    in any order."""
    return slice(None) if np.all(ids[1:] > ids[:-1]) else np.argsort(ids)


def _final_state(snapshot: MixtureSnapshot, record: Retired) -> MixtureSnapshot:
    one = {"ids": record.id, "born_at": record.born_at, "last_seen_at": record.last_seen_at}
    rows = {name: read_only(np.array([value], dtype=np.int64)) for name, value in one.items()}
    values = {field: getattr(snapshot, field) for field in MixtureSnapshot.__dataclass_fields__}
    values |= rows | {"stats": record.stats, "masses": record.stats[0], "weights": read_only(np.zeros(1)), "live": None}
    return MixtureSnapshot(**values)


_BLOCK_ELEMENTS = 1 << 21


def draw_points(snapshot: MixtureSnapshot, n: int, rng: np.random.Generator) -> tuple[Array, IntArray]:
    """n points (n, D) of existing components in the units of the data, and the id of the component of each.

    A point is drawn from the posterior predictive: it has a parameter of its own, drawn from the posterior of its
    component. Raises NoPointsError where there are no components, SettingError for a family that cannot draw.
    """
    prior: Any = snapshot.prior
    if prior is None or snapshot.n_components == 0:
        raise NoPointsError("there are no components yet; learn points first")
    if not hasattr(prior, "sample_parameters"):
        raise SettingError(f"points of family {snapshot.settings.family!r} cannot be drawn; use another family")
    rows = rng.choice(snapshot.n_components, size=n, p=snapshot.weights / snapshot.weights.sum())
    d = snapshot.location.size
    drawn = np.empty((n, d))
    step = max(1, _BLOCK_ELEMENTS // d**2)
    params = prior.posterior(snapshot.stats)
    for start in range(0, n, step):
        block = slice(start, start + step)
        parameters = prior.sample_parameters(take(params, rows[block]), rng)
        drawn[block] = prior.sample_points(parameters, 1, rng)[:, 0]
    return drawn * snapshot.scale + snapshot.location, snapshot.ids[rows]
