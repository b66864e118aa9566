"""Settings of a stream: checked once, frozen, with one canonical JSON form."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from shoal.errors import OutsideDomainError, SettingError, did_you_mean
from shoal.families import DEFAULT_FAMILY, FAMILIES, AnyFamily, check_columns, family_exists, is_conjugate, known_family
from shoal.families.auto import provisional_family
from shoal.families.capabilities import blocks_of
from shoal.families.covariance_prior import can_learn_covariance
from shoal.families.holes import check_takes_holes
from shoal.mixture.clock import STEPS
from shoal.mixture.setting_values import (
    check_choice,
    checked_duration,
    checked_embedder,
    checked_feature_names,
    checked_half_life,
    checked_integer,
    checked_level_names,
    checked_number,
    column_of,
    prior_from_json,
    seconds,
)
from shoal.points.domains import LEVELS, REAL, Domain
from shoal.points.levels import LevelNames, budget_bytes

Method: TypeAlias = Literal["default", "sva", "sva-pm"]
CheckSchedule: TypeAlias = Literal["doubling", "paper"]
PairRule: TypeAlias = Literal["entropy", "overlap", "none"]

FIXED = ("family", "family_requested", "n_features", "prior", "method", "warmup_points", "missing")
"""Settings that cannot change: the state of a stream is not valid under another value."""

AUTO_FAMILY: Literal["auto"] = "auto"
"""As `family`: the family is chosen from the rows of the warm-up."""

HALF_LIVES_KEPT = 2.5
"""Most half-lives in a window."""

WINDOW_STEPS = 64
"""Steps of the clock in a window, where no half-life sets them."""

SPARSE_ROW_ELEMENTS = 1_024
"""Most elements of a sparse row, as the budget of the window assumes."""

_FLOORS: dict[str, float] = {"default": 1e-3, "sva": 1e-12, "sva-pm": 1e-12}
_PAIR_RULES: dict[str, PairRule] = {"default": "entropy", "sva": "none", "sva-pm": "overlap"}
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class StreamSettings:
    """Settings of a stream. Raises SettingError, naming the setting, the value and the range, when one is out of it.

    Two settings are equal when every field is; an explicit prior compares by family and hyperparameters.
    """

    n_features: int
    """D, the number of features of a point, >= 1."""

    feature_names: tuple[str, ...] | None = None
    """Names of the features, in the order of the columns: D distinct texts of 1 to 200 characters. None: no names."""

    level_names: Mapping[int, tuple[str, ...]] | None = None
    """Names of the levels of categories, by column or by name of a feature: the name of level l at place l. At most
    1,000 a column, of 1 to 200 characters, distinct. More may be added while a stream lives. None: no level has one."""

    embedder: str | None = None
    """Name and version of what made vectors of texts, 1 to 200 characters; shown and compared only. None: not known."""

    family: str = DEFAULT_FAMILY
    """Name of the component family, a key of `shoal.families.FAMILIES`; or a mapping from columns (`"0-3,7"`, counted
    from 0) or names of features to families, kept as its canonical text: each family has a block of columns."""

    family_requested: Literal["auto"] | None = None
    """`auto` where `family="auto"` was asked for. Then `family` is that of provisional fits until the warm-up ends, and
    the chosen one from there on."""

    family_reason: str | None = None
    """Why the automatic family was chosen, in words; None while it is not."""

    prior: Literal["auto", "hierarchical"] | AnyFamily = "auto"
    """`auto`: estimated from the first `warmup_points` rows, with standardisation where the family's domain is located.
    `hierarchical`: the same, and refinements learn the whole prior of the covariances of components, scale and degrees
    of freedom. Otherwise the prior itself, on raw data."""

    concentration: float = 1.0
    """alpha of the Dirichlet process, > 0."""

    method: Method = "default"
    """`default`: merges by the bound; `sva`: Lin (2013), algorithm 1 alone; `sva-pm`: with its prune and merge. A
    family that is not conjugate has no such bound, so `default` does not merge its components."""

    birth_threshold: float = 0.5
    """A point whose responsibility under a new component exceeds this founds one; in (0, 1). ERRATA 5.8, 5.9."""

    responsibility_floor: float | None = None
    """Responsibilities below this are dropped and the rest renormalised; in [0, 0.1]. None: the method's own."""

    prune_threshold: float = 1e-3
    """`sva-pm` alone: components of less relative mass are pruned at checks; in [0, 1)."""

    merge_threshold: float = 1e-2
    """`sva-pm` alone: pairs at less distance d(k, l) are merged at checks; in [0, 1)."""

    check_schedule: CheckSchedule = "doubling"
    """Offsets of the checks: `doubling` to 4,096, then every 4,096; `paper`: the next after i + iK points."""

    half_life: float | str | None = None
    """Points, >= 1, after which a point's weight has halved, or a time as text such as "90s", "30m", "1h" or "7d", of a
    second or more; None: nothing is forgotten."""

    lateness: str | None = None
    """Where the half-life is a time: the most by which a record may be older than the newest one, as text such as
    "10m". A service refuses older ones. None: each is accepted, with the weight that its age deserves. The library
    accepts each."""

    warmup_points: int = 1_000
    """Rows from which the auto prior, location and scale are estimated, in 1..1,000,000."""

    window: int = 100_000
    """Most rows kept for refinements; 0 keeps none."""

    window_age: str | None = None
    """Most age of a row that is kept for refinements, by the times of the rows, as text such as "6h". None: any age;
    with a half-life that is a time, 2.5 half-lives."""

    window_bytes: int = 256 * _MIB
    """Most bytes of the kept rows, each counted as `window_row_bytes`."""

    refinement: Literal["auto"] | None = "auto"
    """`auto`: scheduled refinements (needs method `default` and a window); None: only on request."""

    seed: int = 0
    """Seed of the random numbers of refinements, in 0..2^53."""

    max_components: int = 4_096
    """Most components, in 1..1,000,000; at the limit births are refused, with an event."""

    max_state_bytes: int = 1_024 * _MIB
    """Most bytes of the mixture's arrays, >= 4,096. It limits the number of components as `max_components` does."""

    max_archived: int = 256
    """Most retired components that may return under their old ids, the newest ones, >= 0; only with a half-life."""

    partitions: int = 1
    """Parts of each stretch of the stream, in 1..64, that are learnt side by side and then summed (`mixture.round`);
    above 1 it needs method `default` and a conjugate family."""

    max_records: int = 10_000_000
    """Most records that a service keeps by their keys, the newest ones; 0 keeps none. The library keeps no records."""

    record_bytes: int = 4_096 * _MIB
    """Most bytes of these records in the store."""

    missing: Literal["refuse", "marginal"] = "refuse"
    """What a missing value (NaN) of a point means. `refuse`: an error. `marginal`: the point is scored by its other
    features and learnt by its expected statistics (`families.holes`); the family must declare that it can."""

    record_ttl_s: float | None = None
    """Seconds that a record is kept after it came, > 0; None: as long as there is room."""

    novelty_threshold: float = 0.5
    """A service counts a point as novel if its novelty before it was learnt exceeds this; in (0, 1)."""

    novelty_rate: float = 0.01
    """A service raises an event when so large a share of the last 1,000 points was novel; in (0, 1]."""

    def __post_init__(self) -> None:
        for name, low, high in _INTEGERS:
            self._set(name, checked_integer(name, getattr(self, name), low, high))
        for name, words, allowed in _NUMBERS:
            self._set(name, checked_number(name, getattr(self, name), words, allowed))
        for name, words, allowed in _NUMBERS_OR_NONE:
            if getattr(self, name) is not None:
                self._set(name, checked_number(name, getattr(self, name), words, allowed))
        if self.half_life is not None:
            self._set("half_life", checked_half_life(self.half_life))
        if self.window_age is not None:
            self._set("window_age", checked_duration("window_age", self.window_age))
        if self.lateness is not None:
            self._set("lateness", checked_duration("lateness", self.lateness))
            if self.half_life_s is None:
                raise SettingError(
                    f'lateness is {self.lateness!r}, but half_life is no time; give one such as "1h", or no lateness'
                )
        if self.feature_names is not None:
            self._set("feature_names", checked_feature_names(self.feature_names, self.n_features))
        if self.embedder is not None:
            self._set("embedder", checked_embedder(self.embedder))
        self._check_requested()
        self._set("family", known_family(self.family, self.feature_names))
        if not family_exists(self.family):
            check_choice("family", self.family, tuple(FAMILIES))
        check_columns(self.family, self.n_features)
        if self.level_names is not None:
            self._set("level_names", self._level_names_by_column(self.level_names))
        check_choice("missing", self.missing, ("refuse", "marginal"))
        if self.takes_holes:
            check_takes_holes(FAMILIES[self.family])
        check_choice("method", self.method, get_args(Method))
        check_choice("check_schedule", self.check_schedule, get_args(CheckSchedule))
        if self.refinement is not None:
            check_choice("refinement", self.refinement, ("auto",))
        self._check_partitions()
        self._check_prior()

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _level_names_by_column(self, given: Any) -> LevelNames | None:
        """Names of levels by column, in the order of the columns."""
        if not isinstance(given, Mapping):
            raise SettingError(f"level_names is {given!r:.80}; give an object of columns and lists of texts")
        found = {}
        for key, names in given.items():
            column = column_of(key, self.feature_names)
            if column not in self.category_columns:
                raise SettingError(
                    f"level_names names levels of column {key!r:.80}, which is none of a family of categories"
                )
            found[column] = checked_level_names(key, names)
        return {column: found[column] for column in sorted(found)} or None

    def _check_requested(self) -> None:
        if self.family == AUTO_FAMILY:
            self._set("family", provisional_family(self.n_features))
            self._set("family_requested", AUTO_FAMILY)
            self._set("family_reason", None)
        if self.family_requested is not None:
            check_choice("family_requested", self.family_requested, (AUTO_FAMILY,))
            if not isinstance(self.prior, str) or self.prior != "auto":
                raise SettingError("prior is not 'auto', but family is 'auto'; name the family of the prior")
            if self.missing == "marginal":
                raise SettingError(
                    "missing is 'marginal', but family is 'auto'; name a family that takes missing values, such as "
                    "family='gaussian', when the stream is created"
                )
        elif self.family_reason is not None:
            raise SettingError("family_reason is set, but family_requested is not; leave both out")

    def _check_partitions(self) -> None:
        if self.partitions == 1:
            return
        if self.method != "default":
            raise SettingError(
                f"partitions is {self.partitions}, but method is {self.method!r}; only method 'default' joins the "
                "components of partitions"
            )
        if not self.conjugate:
            raise SettingError(
                f"partitions is {self.partitions}, but family {self.family!r} is not conjugate: its statistics do not "
                "add; give partitions=1"
            )

    def _check_prior(self) -> None:
        if isinstance(self.prior, str):
            check_choice("prior", self.prior, ("auto", "hierarchical"))
            if self.prior == "hierarchical" and not can_learn_covariance(FAMILIES[self.family]):
                able = ", ".join(name for name, kind in FAMILIES.items() if can_learn_covariance(kind))
                raise SettingError(f"prior is 'hierarchical', which family {self.family!r} has not; it is for {able}")
            return
        if not isinstance(self.prior, FAMILIES[self.family]) and not isinstance(self.prior, tuple(FAMILIES.values())):
            raise SettingError(
                f"prior is a {type(self.prior).__name__}; give 'auto', 'hierarchical' or one of shoal.families"
            )
        if self.prior.name != self.family:
            raise SettingError(
                f"prior is of family {self.prior.name!r}, but family is {self.family!r}; make them equal"
            )
        if self.prior.n_features != self.n_features:
            raise SettingError(
                f"prior has {self.prior.n_features} features, but n_features is {self.n_features}; make them equal"
            )

    @property
    def learns_prior(self) -> bool:
        """Whether the prior is learned from the points, not given."""
        return isinstance(self.prior, str)

    @property
    def domain(self) -> Domain:
        """The domain of the points: of real numbers while the family is to be chosen."""
        return REAL if self.undecided else FAMILIES[self.family].domain

    @cached_property
    def category_columns(self) -> tuple[int, ...]:
        """The columns that hold level numbers of categories, or texts that stand for them."""
        kind = FAMILIES[self.family]
        return category_columns_of(kind, self.n_features)

    @property
    def level_names_budget_bytes(self) -> int:
        """Most bytes of the names of levels that points bring: a 32nd of the state's, at most 16 MiB, the same for each
        column. 0 without categories. Texts beyond it have no number of their own."""
        return budget_bytes(self.max_state_bytes) if self.category_columns else 0

    @property
    def undecided(self) -> bool:
        """Whether the family is to be chosen at the end of the warm-up."""
        return self.family_requested is not None and self.family_reason is None

    def with_family(self, family: str, reason: str | None) -> "StreamSettings":
        """The settings with an automatic family that is chosen for a reason; without one, with a family that is
        given."""
        requested: Literal["auto"] | None = None if reason is None else AUTO_FAMILY
        return replace(self, family=family, family_requested=requested, family_reason=reason)

    def chosen_as(self, live: "StreamSettings") -> "StreamSettings":
        """These settings with the automatic family of a live stream, if it has one and they ask for one."""
        if self.family_requested is None or live.family_requested is None:
            return self
        return replace(self, family=live.family, family_reason=live.family_reason)

    def check_chosen_domain(self, x: Any) -> None:
        """Raise OutsideDomainError for points outside the domain of a family that was chosen automatically."""
        if self.family_requested is None or self.undecided:
            return
        try:
            self.domain.check(x)
        except OutsideDomainError as error:
            raise OutsideDomainError(
                f"{error}. Family {self.family!r} was chosen automatically, as in the first rows {self.family_reason}; "
                "make another stream with the family of your choice",
                row=error.row,
            ) from error

    @cached_property
    def conjugate(self) -> bool:
        """Whether the family is conjugate; otherwise there is no bound for merges, and no refinement."""
        return is_conjugate(FAMILIES[self.family])

    @property
    def takes_holes(self) -> bool:
        """Whether points may have missing values."""
        return self.missing == "marginal"

    def check_takes_weights(self) -> None:
        """Raise SettingError unless points may have weights other than one: the family must be conjugate."""
        if not self.conjugate:
            raise SettingError(
                f"family {self.family!r} is not conjugate and learns each point by one step of a gradient, without "
                "weights; send points without weights, or as often as they count"
            )

    @property
    def floor(self) -> float:
        """The responsibility floor in force."""
        return _FLOORS[self.method] if self.responsibility_floor is None else self.responsibility_floor

    @cached_property
    def pair_rule(self) -> PairRule:
        """The running pair sum of the method: `entropy` E, `overlap` M or `none`."""
        if self.method == "default" and not self.conjugate:
            return "none"
        return _PAIR_RULES[self.method]

    @cached_property
    def window_rows(self) -> int:
        """Most rows of a refinement: `window`, within the limits of `window_bytes` and of the half-life; even.

        It is 0 where no window is kept: by request, with every method but `default`, whose pair sums refinement needs,
        and for a family that is not conjugate. With a half-life, rows older than 2.5 half-lives have too little weight.
        """
        if self.method != "default" or not self.conjugate:
            return 0
        rows = min(self.window, self.window_bytes // self.window_row_bytes)
        if self.half_life_points is not None:
            rows = min(rows, max(math.ceil(HALF_LIVES_KEPT * self.half_life_points), self.warmup_points))
        return rows - rows % 2

    @property
    def half_life_points(self) -> float | None:
        """The half-life in points; None without one, and where it is a time."""
        return None if isinstance(self.half_life, str) else self.half_life

    @property
    def half_life_s(self) -> float | None:
        """The half-life in seconds; None without one, and where it is a number of points."""
        return seconds(self.half_life) if isinstance(self.half_life, str) else None

    @property
    def lateness_s(self) -> float | None:
        """The most by which a record may be late, in seconds; None: any time."""
        return None if self.lateness is None else seconds(self.lateness)

    @property
    def clock_step_s(self) -> float | None:
        """Seconds of a step of the clock: a 32nd of a half-life that is a time, else a 64th of `window_age`; None:
        there is no clock."""
        if self.half_life_s is not None:
            return self.half_life_s / STEPS
        return None if self.window_age_s is None else self.window_age_s / WINDOW_STEPS

    @property
    def window_age_s(self) -> float | None:
        """The most age of a row in the window, in seconds; None where it is not set."""
        return None if self.window_age is None else seconds(self.window_age)

    @cached_property
    def window_steps(self) -> int | None:
        """The most age of a row in the window, in steps of the clock, >= 2; None: any age.

        With a half-life that is a time it is 2.5 half-lives at most, as `window_rows` with one in points.
        """
        step_s = self.clock_step_s
        if step_s is None:
            return None
        most = math.inf if self.half_life_s is None else HALF_LIVES_KEPT * STEPS
        asked = math.inf if self.window_age_s is None else self.window_age_s / step_s
        return max(2, round(min(most, asked)))

    @property
    def window_row_bytes(self) -> int:
        """Bytes counted for a kept row: eight a feature.

        For sparse rows it is at most eight, and sixteen for each of `SPARSE_ROW_ELEMENTS` elements. The length of the
        window must follow from the settings alone, so this is an assumption: longer rows need more.
        """
        dense = 8 * self.n_features
        return min(dense, 8 + 16 * SPARSE_ROW_ELEMENTS) if self.domain.sparse else dense

    @property
    def window_step(self) -> int:
        """Points between two moves of the window's start: half of `window_rows`."""
        return self.window_rows // 2

    def with_changes(self, **changes: Any) -> "StreamSettings":
        """A copy with some settings changed. Raises SettingError for an unknown name or a change of one in `FIXED`."""
        _known_names(changes)
        for name in FIXED:
            if name in changes and changes[name] != getattr(self, name):
                raise SettingError(
                    f"{name} cannot change on a live stream (it is {_words(getattr(self, name))}); make another stream"
                )
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values by setting name; an explicit prior as a mapping of its hyperparameters."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.feature_names is not None:
            values["feature_names"] = list(self.feature_names)
        if self.level_names is not None:
            values["level_names"] = {str(column): list(names) for column, names in self.level_names.items()}
        if not isinstance(self.prior, str):
            values["prior"] = {name: np.asarray(value).tolist() for name, value in self.prior.to_arrays().items()}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "StreamSettings":
        """Inverse of `to_dict`; missing settings get their defaults. Raises SettingError."""
        _known_names(values)
        given = dict(values)
        if "n_features" not in given:
            raise SettingError("n_features is missing; give the number of features of a point")
        if isinstance(given.get("prior"), Mapping):
            family = known_family(given.get("family", DEFAULT_FAMILY), given.get("feature_names"))
            given["prior"] = prior_from_json(family, given["prior"])
        return cls(**given)

    def to_json(self) -> str:
        """Canonical: sorted names, no spaces, shortest floats that read back equal; equal settings give equal text."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> "StreamSettings":
        """Inverse of `to_json`. Raises SettingError on anything else."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SettingError(f"settings are not JSON: {error}; give an object of settings by name") from error
        if not isinstance(values, dict):
            raise SettingError(f"settings are a JSON {type(values).__name__}; give an object of settings by name")
        return cls.from_dict(values)


_INTEGERS = (
    ("n_features", 1, 1 << 24),
    ("warmup_points", 1, 1_000_000),
    ("window", 0, 1 << 53),
    ("window_bytes", 0, 1 << 53),
    ("seed", 0, 1 << 53),
    ("max_components", 1, 1_000_000),
    ("max_state_bytes", 4_096, 1 << 53),
    ("max_archived", 0, 1_000_000),
    ("partitions", 1, 64),
    ("max_records", 0, 1 << 53),
    ("record_bytes", 0, 1 << 53),
)
"""Whole numbers: name, least and largest value."""

_NUMBERS: tuple[tuple[str, str, Callable[[float], bool]], ...] = (
    ("concentration", "greater than 0", lambda v: v > 0),
    ("birth_threshold", "in (0, 1)", lambda v: 0 < v < 1),
    ("novelty_threshold", "in (0, 1)", lambda v: 0 < v < 1),
    ("novelty_rate", "in (0, 1]", lambda v: 0 < v <= 1),
    ("prune_threshold", "in [0, 1)", lambda v: 0 <= v < 1),
    ("merge_threshold", "in [0, 1)", lambda v: 0 <= v < 1),
)
"""Real numbers: name, the range in words and as a condition."""

_NUMBERS_OR_NONE: tuple[tuple[str, str, Callable[[float], bool]], ...] = (
    ("responsibility_floor", "in [0, 0.1]", lambda v: 0 <= v <= 0.1),
    ("record_ttl_s", "greater than 0", lambda v: v > 0),
)
"""The same; None is allowed, too."""


def category_columns_of(kind: type[AnyFamily], n_features: int) -> tuple[int, ...]:
    """The columns of a family, or of blocks of a product, whose domain is level numbers."""
    if kind.domain is LEVELS:
        return tuple(range(n_features))
    return tuple(int(column) for block in blocks_of(kind) if block.kind.domain is LEVELS for column in block.columns)


def _words(value: Any) -> str:
    return repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"


def _known_names(values: Mapping[str, Any]) -> None:
    known = {field.name for field in fields(StreamSettings)}
    unknown = sorted(set(values) - known)
    if unknown:
        advice = did_you_mean(unknown[0], known)
        raise SettingError(
            f"no such setting: {', '.join(map(repr, unknown))}; {advice}there are {', '.join(sorted(known))}"
        )
