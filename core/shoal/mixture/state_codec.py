"""Bytes of a mixture's state, exact to the bit. See `container` for the layout.

Only rows in use are written, so the bytes do not depend on the capacity of the arrays. Bytes that are read are checked
as data from an unknown sender, because a client may have sent them.

A snapshot of format 1, from before refinements, is accepted too: its statistics become the past, and the window starts
at its end. The same is done where statistics have the form that an earlier version gave them.

Some names in the format are older than those in the code: `course` is the schedule of refinements, `marks` are the
statistics at offsets, and `past` is the lineage.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.errors import InputError, SnapshotDamagedError
from shoal.families import FAMILIES, AnyFamily
from shoal.families.capabilities import earlier_stats_fields, stats_from_earlier
from shoal.families.predictive_cache import cache_type, refresh
from shoal.mixture.archive import Archive
from shoal.mixture.clock import Clock
from shoal.mixture.container import FORMAT_VERSION, pack_arrays, unpack_arrays, version_of
from shoal.mixture.lineage import Lineage
from shoal.mixture.round import PartitionState, Round
from shoal.mixture.settings import StreamSettings
from shoal.mixture.state import MOST_KEPT, MixtureState, ScaleWatch, live_rows, with_new_window
from shoal.mixture.stats_at_offset import NEW_SCHEDULE, MisfitMonitor, RefinementSchedule, StatsAtOffset
from shoal.mixture.validity import check_state, require
from shoal.points.arrays import Array
from shoal.points.domains import Domain
from shoal.points.rows import Points, SparseRows
from shoal.points.weighted_rows import LearntPoints, WeightedRows, checked_weights

_NUMBERS: dict[str, type] = {
    "frozen": bool,
    "next_id": int,
    "points_seen": int,
    "decayed_count": float,
    "pruned_mass": float,
    "at_capacity": bool,
    "births_refused": int,
    "next_check": int,
    "next_decay": int,
    "next_refit": int,
}
READ_ERRORS = (InputError, KeyError, ValueError, TypeError, AttributeError, IndexError)
"""Exceptions that an invalid header or invalid arrays may raise."""

_PARTS = (".indptr", ".indices", ".values")
_WEIGHTS = ".weights"
_EARLIER = ("past", "mid")
_OFFSET_NUMBERS: dict[str, type] = {"offset": int, "pruned_mass": float, "decayed_count": float}
_ROWS = ("ids", "born_at", "last_seen_at")
_LINEAGE = Lineage._fields[:-1]
_ARCHIVED = Archive._fields[:-1]
_PARTITION_ROWS = ("born_at", "last_seen_at")
_PARTITION_NUMBERS: dict[str, type] = {
    "n_components": int,
    "decayed_count": float,
    "pruned_mass": float,
    "births_refused": int,
    "at_capacity": bool,
    "alarm": int,
}
_CLOCK: dict[str, type] = {"now": float, "dropped": int, "done": int, "late": int}
_Arrays = dict[str, npt.NDArray[Any]]


def to_bytes(state: MixtureState, window: LearntPoints | None = None) -> bytes:
    """Bytes of the state, and of the kept rows (n, D) if any. Equal states give equal bytes at any capacity."""
    return pack_arrays(*state_to_arrays(state, window))


def state_to_arrays(state: MixtureState, window: LearntPoints | None = None) -> tuple[dict[str, Any], _Arrays]:
    """Header and arrays of `to_bytes`, to be packed together with other content."""
    n, settings = state.n_components, state.settings
    header: dict[str, Any] = {name: kind(getattr(state, name)) for name, kind in _NUMBERS.items()}
    header |= settings_to_header(settings)
    arrays: _Arrays = {"location": state.location, "scale": state.scale, "jitter": state.jitter}
    if state.prior is not None:
        arrays |= prior_to_arrays(state.prior)
        arrays |= _named("stats", live_rows(state.stats, n)) | _named("work", live_rows(state.cache, n))
    arrays |= {name: getattr(state, name)[:n] for name in _ROWS}
    arrays["pairs"] = state.pairs[:n, :n]
    arrays |= named_rows("buffer", state.buffer[:0] if state.frozen else state.buffer[: state.points_seen])
    arrays |= {f"past.{name}": getattr(state.lineage, name) for name in _LINEAGE}
    if state.lineage.stats is not None:
        arrays |= _named("past.stats", state.lineage.stats)
    header["course"] = state.schedule._asdict()
    header["marks"] = {}
    for name in _EARLIER:
        kept = getattr(state, name)
        if kept is not None:
            header["marks"][name] = {field: kind(getattr(kept, field)) for field, kind in _OFFSET_NUMBERS.items()}
            arrays |= _named(f"mark.{name}", live_rows(kept.stats, n)) | {f"mark.{name}.pairs": kept.pairs[:n, :n]}
    if state.monitor is not None:
        arrays |= _named("monitor", live_rows(state.monitor, n))
    if state.clock is not None:
        header["clock"], own = clock_to_arrays(state.clock)
        arrays |= own
    if state.watch is not None:
        watch = state.watch
        header["watch"] = {"next_look": watch.next_look, "refusals": watch.refusals, "rows": len(watch.rows)}
        n_kept = watch.n_kept(state.points_seen)
        arrays |= {"watch.rows": watch.rows[:n_kept], "watch.weights": watch.weights[:n_kept]}
        arrays["watch.within"] = watch.within
    if state.archive is not None:
        arrays |= {f"archive.{name}": getattr(state.archive, name) for name in _ARCHIVED}
        arrays |= _named("archive.stats", state.archive.stats)
    if state.round is not None:
        within = state.round
        header["round"] = {"begins_at": within.begins_at, "ends_at": within.ends_at, "next_id": within.next_id}
        header["round"]["parts"] = []
        for i, partition in enumerate((within.base, *within.partitions)):
            numbers, own = partition_to_arrays(f"round.{i}", partition)
            header["round"]["parts"].append(numbers)
            arrays |= own
    if window is not None:
        arrays |= named_rows("window", window)
    return header, arrays


def from_bytes(blob: bytes, *, is_valid: bool = False) -> tuple[MixtureState, LearntPoints | None]:
    """Inverse of `to_bytes`: the state, with as many rows as are in use, and the window or None.

    is_valid: these bytes are known to hold a valid state, as this process has written or checked them. Their digest is
    checked in any case.

    Raises SnapshotDamagedError for bytes that are not an intact snapshot or hold no valid state, SnapshotVersionError
    for a newer format.
    """
    header, arrays = unpack_arrays(blob)
    old = version_of(blob) < FORMAT_VERSION
    try:
        if old:
            header |= {"course": NEW_SCHEDULE._asdict(), "marks": {}}
        state, window = _read(header, arrays) if is_valid else state_from_arrays(header, arrays)
    except READ_ERRORS as error:
        raise SnapshotDamagedError(
            f"snapshot is intact but holds no valid state ({error}); it was not written by shoal"
        ) from error
    return with_new_window(state) if old else state, window


def state_from_arrays(header: dict[str, Any], arrays: _Arrays) -> tuple[MixtureState, LearntPoints | None]:
    """Inverse of `state_to_arrays`, checked as data from an unknown sender. It empties both arguments. Raises one of
    `READ_ERRORS`."""
    state, window = _read(header, arrays)
    check_state(state, window)
    return state, window


def _named(prefix: str, rows: Any) -> _Arrays:
    return {f"{prefix}.{name}": field for name, field in zip(rows._fields, rows, strict=True)}


def partition_to_arrays(prefix: str, partition: PartitionState) -> tuple[dict[str, Any], _Arrays]:
    """Numbers, for a header, and arrays of one mixture of a round, under names that start with `prefix`."""
    n = partition.n_components
    arrays = _named(f"{prefix}.stats", live_rows(partition.stats, n))
    for name in ("cache", "monitor"):
        rows = getattr(partition, name)
        arrays |= {} if rows is None else _named(f"{prefix}.{name}", live_rows(rows, n))
    arrays |= {f"{prefix}.{name}": getattr(partition, name)[:n] for name in _PARTITION_ROWS}
    numbers = {name: kind(getattr(partition, name)) for name, kind in _PARTITION_NUMBERS.items()}
    return numbers, arrays | {f"{prefix}.pairs": partition.pairs[:n, :n]}


def partition_from_arrays(
    prefix: str, numbers: dict[str, Any], prior: AnyFamily, arrays: _Arrays, *, cached: bool, monitored: bool
) -> PartitionState:
    """Inverse of `partition_to_arrays`, whose arrays are removed from `arrays`. Raises one of `READ_ERRORS`.

    cached, monitored: whether it has a predictive cache, and a monitor.
    """
    require(set(numbers) == set(_PARTITION_NUMBERS), "a partition has other entries")
    own: dict[str, Any] = {name: _number(name, numbers[name], kind) for name, kind in _PARTITION_NUMBERS.items()}
    return PartitionState(
        stats=_typed(f"{prefix}.stats", type(prior.empty_stats(0)), arrays),
        cache=_typed(f"{prefix}.cache", cache_type(prior), arrays) if cached else None,
        monitor=_typed(f"{prefix}.monitor", MisfitMonitor, arrays) if monitored else None,
        pairs=arrays.pop(f"{prefix}.pairs"),
        born_at=arrays.pop(f"{prefix}.born_at"),
        last_seen_at=arrays.pop(f"{prefix}.last_seen_at"),
        **own,
    )


def _round(header: dict[str, Any] | None, prior: AnyFamily | None, arrays: _Arrays, monitored: bool) -> Round | None:
    if header is None:
        return None
    require(prior is not None, "a round without a prior")
    assert prior is not None
    offsets = {name: _number(name, header.pop(name), int) for name in ("begins_at", "ends_at", "next_id")}
    numbers = header.pop("parts")
    require(not header and 1 < len(numbers) <= 65, "a round has other entries")
    partitions = []
    for i, own in enumerate(numbers):
        works = i == len(numbers) - 1
        partitions.append(partition_from_arrays(f"round.{i}", own, prior, arrays, cached=works, monitored=monitored))
    return Round(base=partitions[0], partitions=tuple(partitions[1:]), **offsets)


def _read(header: dict[str, Any], arrays: _Arrays) -> tuple[MixtureState, LearntPoints | None]:
    fields: dict[str, Any] = {name: _number(name, header.pop(name), kind) for name, kind in _NUMBERS.items()}
    stored = {name: header.pop(name) for name in ("settings", "explicit_prior")}
    fields["schedule"] = _schedule(header.pop("course"))
    marks = header.pop("marks")
    of_clock = header.pop("clock", None)
    fields["clock"] = None if of_clock is None else clock_from_arrays(of_clock, arrays)
    fields["watch"] = _watch(header.pop("watch", None), arrays)
    of_round = header.pop("round", None)
    require(not header, f"unknown header entries {sorted(header)}")
    settings, prior = settings_and_prior(stored, arrays)
    fields |= {name: arrays.pop(name) for name in ("location", "scale", "jitter", *_ROWS, "pairs")}
    fields["buffer"] = taken_rows("buffer", arrays, settings.domain, settings.n_features)
    fields |= {"settings": settings, "prior": prior, "n_components": len(fields["ids"]), "stats": None, "cache": None}
    past_stats, earlier = None, prior is not None and _is_earlier(prior, arrays)
    if prior is not None and earlier:
        fields |= _earlier(prior, settings, fields, arrays)
        past_stats = _earlier_stats("past.stats", prior, arrays) if "past.stats.mass" in arrays else None
    elif prior is not None:
        kind = type(prior.empty_stats(0))
        fields |= {"stats": _typed("stats", kind, arrays), "cache": _typed("work", cache_type(prior), arrays)}
        past_stats = _typed("past.stats", kind, arrays) if "past.stats.mass" in arrays else None
        fields |= {name: _stats_at_offset(name, numbers, kind, arrays) for name, numbers in marks.items()}
        fields["archive"] = _archive(kind, arrays)
        fields["monitor"] = _typed("monitor", MisfitMonitor, arrays) if marks else None
    fields["round"] = _round(of_round, prior, arrays, bool(marks))
    fields["lineage"] = Lineage(**{name: arrays.pop(f"past.{name}") for name in _LINEAGE}, stats=past_stats)
    has_window = any(name.split(".")[0] == "window" for name in arrays)
    window = taken_rows("window", arrays, settings.domain, settings.n_features) if has_window else None
    require(not arrays, f"unknown arrays {sorted(arrays)}")
    state = MixtureState(**fields)
    return with_new_window(state) if earlier else state, window


def _is_earlier(prior: AnyFamily, arrays: _Arrays) -> bool:
    """Whether statistics have the fields that an earlier version gave them."""
    earlier = set(earlier_stats_fields(prior)) - set(type(prior.empty_stats(0))._fields)
    return bool(earlier) and all(f"stats.{name}" in arrays for name in earlier)


def _earlier(prior: AnyFamily, settings: StreamSettings, fields: dict[str, Any], arrays: _Arrays) -> dict[str, Any]:
    """Statistics of an earlier form as those of today, and what follows from them."""
    stats = _earlier_stats("stats", prior, arrays)
    for name in [name for name in arrays if name.startswith("work.")]:
        del arrays[name]
    n = len(fields["ids"])
    pairs = fields["pairs"] if fields["pairs"].size or settings.pair_rule == "none" else np.zeros((n, n))
    return {"stats": stats, "cache": refresh(prior, stats, n), "pairs": pairs, "archive": None, "monitor": None}


def _earlier_stats(prefix: str, prior: AnyFamily, arrays: _Arrays) -> Any:
    fields = [arrays.pop(f"{prefix}.{name}") for name in earlier_stats_fields(prior)]
    require(len({len(field) for field in fields}) == 1 and fields[1].ndim == 2, f"{prefix} has other shapes")
    require(fields[1].shape[1] == prior.n_features, f"{prefix} has {fields[1].shape[1]} features")
    return stats_from_earlier(prior, *fields)


def _schedule(numbers: dict[str, Any]) -> RefinementSchedule:
    require(set(numbers) == set(RefinementSchedule._fields), "the course of refinements has other entries")
    return RefinementSchedule(**{name: _number(name, value, int) for name, value in numbers.items()})


def _stats_at_offset(name: str, numbers: dict[str, Any], kind: Any, arrays: _Arrays) -> StatsAtOffset:
    require(name in _EARLIER and set(numbers) == set(_OFFSET_NUMBERS), f"mark {name!r} has other entries")
    own = {field: _number(field, numbers[field], number) for field, number in _OFFSET_NUMBERS.items()}
    return StatsAtOffset(stats=_typed(f"mark.{name}", kind, arrays), pairs=arrays.pop(f"mark.{name}.pairs"), **own)


def clock_to_arrays(clock: Clock) -> tuple[dict[str, Any], _Arrays]:
    """Numbers, for a header, and arrays of a clock."""
    return {name: getattr(clock, name) for name in _CLOCK}, {"clock.at": clock.at, "clock.steps": clock.steps}


def clock_from_arrays(numbers: dict[str, Any], arrays: _Arrays) -> Clock:
    """Inverse of `clock_to_arrays`, whose arrays are removed from `arrays`. Raises one of `READ_ERRORS`."""
    own = {name: _number(name, numbers[name], kind) for name, kind in _CLOCK.items()}
    return Clock(at=arrays.pop("clock.at"), steps=arrays.pop("clock.steps"), **own)


def _watch(numbers: dict[str, Any] | None, arrays: _Arrays) -> ScaleWatch | None:
    if numbers is None:
        return None
    own = {name: _number(name, numbers[name], int) for name in ("next_look", "refusals", "rows")}
    kept, weights, within = (arrays.pop(f"watch.{name}") for name in ("rows", "weights", "within"))
    n_rows = own.pop("rows")
    require(kept.ndim == 2 and len(kept) <= n_rows <= MOST_KEPT, f"{len(kept)} rows of {n_rows} are kept")
    rows = np.zeros((n_rows, kept.shape[1]))
    rows[: len(kept)] = kept
    require(weights.shape == (len(kept),), "kept rows and weights differ in length")
    return ScaleWatch(rows, np.append(weights, np.ones(n_rows - len(kept))), within, **own)


def _archive(kind: Any, arrays: _Arrays) -> Archive | None:
    if "archive.ids" not in arrays:
        return None
    own = {name: arrays.pop(f"archive.{name}") for name in _ARCHIVED}
    return Archive(**own, stats=_typed("archive.stats", kind, arrays))


def settings_to_header(settings: StreamSettings) -> dict[str, Any]:
    """Entries of a header for settings. An explicit prior is left to the arrays of `prior_to_arrays`."""
    stored = settings if settings.learns_prior else replace(settings, prior="auto")
    return {"settings": stored.to_dict(), "explicit_prior": not settings.learns_prior}


def prior_to_arrays(prior: AnyFamily) -> _Arrays:
    """Arrays of the hyperparameters of a prior."""
    return {f"prior.{name}": value for name, value in prior.to_arrays().items()}


def settings_and_prior(header: dict[str, Any], arrays: _Arrays) -> tuple[StreamSettings, AnyFamily | None]:
    """Settings, and the prior if there is one, from what the two functions above gave. Removes the hyperparameters from
    `arrays`. Raises one of `READ_ERRORS`."""
    settings = StreamSettings.from_dict(header["settings"])
    explicit = _number("explicit_prior", header["explicit_prior"], bool)
    names = [name for name in arrays if name.startswith("prior.")]
    if not names:
        require(not explicit, "explicit prior is missing")
        return settings, None
    prior = FAMILIES[settings.family].from_arrays({name.removeprefix("prior."): arrays.pop(name) for name in names})
    require(prior.n_features == settings.n_features, f"prior has {prior.n_features} features")
    return replace(settings, prior=prior) if explicit else settings, prior


def _typed(prefix: str, kind: Any, arrays: _Arrays) -> Any:
    return kind(*(arrays.pop(f"{prefix}.{name}") for name in kind._fields))


def _number(name: str, value: Any, kind: type) -> Any:
    require(type(value) is kind, f"{name} is {value!r}")
    return value


def named_rows(name: str, x: LearntPoints) -> dict[str, npt.NDArray[Any]]:
    """Arrays of rows x (n, D), under names that start with `name`."""
    if isinstance(x, WeightedRows):
        return {**named_rows(name, x.points), name + _WEIGHTS: x.weights}
    if not isinstance(x, SparseRows):
        return {name: x}
    parts = (x.indptr.astype(np.int64), x.indices.astype(np.int64), np.asarray(x.data))
    return {name + part: array for part, array in zip(_PARTS, parts, strict=True)}


def taken_rows(name: str, arrays: dict[str, npt.NDArray[Any]], domain: Domain, n_features: int) -> LearntPoints:
    """Inverse of `named_rows`: the rows, removed from `arrays`.

    Raises KeyError where they are missing, ValueError where they are not rows in canonical form, and InputError for
    weights out of range.
    """
    weights = arrays.pop(name + _WEIGHTS, None)
    rows = _taken_points(name, arrays, domain, n_features)
    return rows if weights is None else WeightedRows(rows, checked_weights(weights, len(rows)))


def _taken_points(name: str, arrays: dict[str, npt.NDArray[Any]], domain: Domain, n_features: int) -> Points:
    if not domain.sparse:
        table: Array = arrays.pop(name)
        return table
    indptr, indices, values = (arrays.pop(name + part) for part in _PARTS)
    require(indptr.dtype == indices.dtype == np.int64 and values.dtype == np.float64, f"{name} has other dtypes")
    require(indptr.ndim == indices.ndim == values.ndim == 1 and indptr.size > 0, f"{name} has other shapes")
    require(bool(indptr[0] == 0 and indptr[-1] == indices.size == values.size), f"{name} has rows that do not fit")
    require(bool((np.diff(indptr) >= 0).all()), f"{name} has rows that run backwards")
    require(bool(((indices >= 0) & (indices < n_features)).all()), f"{name} has a column out of range")
    ascends = np.diff(indices) > 0
    starts = indptr[1:-1]
    ascends[starts[(starts > 0) & (starts < indices.size)] - 1] = True  # no order across rows
    require(bool(ascends.all()), f"{name} has columns out of order")
    require(bool(np.all(values)), f"{name} stores zeros")
    return SparseRows((values, indices.astype(np.int32), indptr), shape=(indptr.size - 1, n_features))
