"""A mixture's state as bytes, to the bit, and back. See `container` for the layout.

Only rows in use are written: the bytes depend on the state, not on how much memory it happens to hold. What is read
back is checked as if a stranger had sent it, since over the wire a stranger may.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.arrays import Array
from shoal.errors import InputError, SnapshotDamagedError
from shoal.families import FAMILIES, AnyFamily
from shoal.families.working import empty_work, work_type
from shoal.mixture.container import pack, unpack
from shoal.mixture.lineage import Lineage
from shoal.mixture.settings import StreamSettings
from shoal.mixture.state import MixtureState, live_rows

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
_ROWS = ("ids", "born_at", "last_seen_at")
_PAST = Lineage._fields[:-1]
_Arrays = dict[str, npt.NDArray[Any]]


def to_bytes(state: MixtureState, window: Array | None = None) -> bytes:
    """The state, and the kept rows (n, D) if any. Equal states give equal bytes, whatever their capacity."""
    n, settings = state.n_components, state.settings
    header: dict[str, Any] = {name: kind(getattr(state, name)) for name, kind in _NUMBERS.items()}
    header["settings"] = replace(settings, prior="auto").to_dict()
    header["explicit_prior"] = settings.prior != "auto"
    arrays: _Arrays = {"location": state.location, "scale": state.scale, "jitter": state.jitter}
    if state.prior is not None:
        arrays |= {f"prior.{name}": value for name, value in state.prior.to_arrays().items()}
        arrays |= _named("stats", live_rows(state.stats, n)) | _named("work", live_rows(state.work, n))
    arrays |= {name: getattr(state, name)[:n] for name in _ROWS}
    arrays["pairs"] = state.pairs[:n, :n]
    arrays["buffer"] = state.buffer[:0] if state.frozen else state.buffer[: state.points_seen]
    arrays |= {f"past.{name}": getattr(state.lineage, name) for name in _PAST}
    if state.lineage.stats is not None:
        arrays |= _named("past.stats", state.lineage.stats)
    if window is not None:
        arrays["window"] = window
    return pack(header, arrays)


def from_bytes(blob: bytes) -> tuple[MixtureState, Array | None]:
    """Inverse of `to_bytes`: the state, with as many rows as are in use, and the window or None.

    Raises SnapshotDamagedError for bytes that are no intact snapshot or hold what no state can, SnapshotVersionError
    for a newer one.
    """
    header, arrays = unpack(blob)
    try:
        state, window = _read(header, arrays)
        _check(state, window)
    except (InputError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise SnapshotDamagedError(
            f"snapshot is intact but holds no valid state ({error}); it was not written by shoal"
        ) from error
    return state, window


def _named(prefix: str, rows: Any) -> _Arrays:
    return {f"{prefix}.{name}": field for name, field in zip(rows._fields, rows, strict=True)}


def _read(header: dict[str, Any], arrays: _Arrays) -> tuple[MixtureState, Array | None]:
    fields: dict[str, Any] = {name: _number(name, header.pop(name), kind) for name, kind in _NUMBERS.items()}
    settings = StreamSettings.from_dict(header.pop("settings"))
    explicit = _number("explicit_prior", header.pop("explicit_prior"), bool)
    _need(not header, f"unknown header entries {sorted(header)}")
    prior = _prior(settings, arrays)
    if explicit:
        _need(prior is not None, "explicit prior is missing")
        settings = replace(settings, prior=prior or "auto")
    fields |= {name: arrays.pop(name) for name in ("location", "scale", "jitter", *_ROWS, "pairs", "buffer")}
    fields |= {"settings": settings, "prior": prior, "n_components": len(fields["ids"]), "stats": None, "work": None}
    past_stats = None
    if prior is not None:
        kind = type(prior.empty_stats(0))
        fields |= {"stats": _typed("stats", kind, arrays), "work": _typed("work", work_type(prior), arrays)}
        past_stats = _typed("past.stats", kind, arrays) if "past.stats.mass" in arrays else None
    fields["lineage"] = Lineage(**{name: arrays.pop(f"past.{name}") for name in _PAST}, stats=past_stats)
    window = arrays.pop("window", None)
    _need(not arrays, f"unknown arrays {sorted(arrays)}")
    return MixtureState(**fields), window


def _prior(settings: StreamSettings, arrays: _Arrays) -> AnyFamily | None:
    """The family in force, its hyperparameters taken out of `arrays`; None where there are none."""
    names = [name for name in arrays if name.startswith("prior.")]
    if not names:
        return None
    prior = FAMILIES[settings.family].from_arrays({name.removeprefix("prior."): arrays.pop(name) for name in names})
    _need(prior.n_features == settings.n_features, f"prior has {prior.n_features} features")
    return prior


def _typed(prefix: str, kind: Any, arrays: _Arrays) -> Any:
    return kind(*(arrays.pop(f"{prefix}.{name}") for name in kind._fields))


def _number(name: str, value: Any, kind: type) -> Any:
    _need(type(value) is kind, f"{name} is {value!r}")
    return value


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)


def _check(state: MixtureState, window: Array | None) -> None:
    """Raise ValueError unless shapes, dtypes and ranges are those of a state that `assimilate` can go on from."""
    n, d = state.n_components, state.settings.n_features
    _need(0 <= state.points_seen < 1 << 53 and state.births_refused >= 0, "counts are negative or too large")
    _need(n == 0 or state.prior is not None, "components without a prior")
    _need(not state.frozen or state.prior is not None, "a frozen stream without a prior")
    pair_rows = 0 if state.settings.pair_rule == "none" else n
    shapes: list[tuple[str, npt.NDArray[Any], tuple[int, ...]]] = [
        ("location", state.location, (d,)),
        ("scale", state.scale, (d,)),
        ("jitter", state.jitter, (d,)),
        ("pairs", state.pairs, (pair_rows, pair_rows)),
        ("buffer", state.buffer, (0 if state.frozen else state.points_seen, d)),
    ]
    shapes += [("window", window, (len(window), d))] if window is not None else []
    shapes += _row_shapes(state, n)
    for name, array, shape in shapes:
        _need(array.shape == shape and array.dtype == np.float64, f"{name} has shape {array.shape}, not {shape}")
        _need(bool(np.isfinite(array).all()), f"{name} holds a number that is not finite")
    _need(bool((state.scale > 0).all()), "scale is not positive")
    _need(bool((state.jitter >= 0).all()), "jitter is negative")
    masses = state.stats[0] if state.stats is not None else np.zeros(0)
    amounts = np.append(masses, [state.decayed_count, state.pruned_mass])
    _need(bool((amounts >= 0).all() and np.isfinite(amounts).all()), "masses are negative or not finite")
    _check_ids(state, n)
    _check_scores(state)


def _row_shapes(state: MixtureState, n: int) -> Iterable[tuple[str, npt.NDArray[Any], tuple[int, ...]]]:
    """Name, array and due shape of every float component-first array."""
    if state.prior is None:
        _need(state.lineage.stats is None, "a past without a prior")
        return
    empty = state.prior.empty_stats(1)
    groups = [("stats", state.stats, empty, n), ("work", state.work, empty_work(state.prior, 1), n)]
    if state.lineage.stats is not None:
        held = len(state.lineage.stats[0])
        _need(0 < held <= len(state.lineage.ids), "more final statistics than retired components")
        groups.append(("past.stats", state.lineage.stats, empty, held))
    for name, rows, template, count in groups:
        for field, like in zip(rows, template, strict=True):
            yield name, field, (count, *like.shape[1:])


def _check_scores(state: MixtureState) -> None:
    """Statistics may be finite and yet those of no points (a scatter that is not positive): they then score nothing."""
    for stats in (state.stats, state.lineage.stats):
        if stats is not None and state.prior is not None:
            with np.errstate(all="ignore"):
                density = state.prior.log_predictive(state.prior.posterior(stats), np.zeros((1, state.location.size)))
            _need(bool(np.isfinite(density).all() and (stats[0] >= 0).all()), "statistics are those of no points")


def _check_ids(state: MixtureState, n: int) -> None:
    past = state.lineage
    retired = past.ids.size
    due = [(n,)] * 3 + [(retired,)] * 4 + [(retired + 1,), (past.successors.size,)]
    held = [state.ids, state.born_at, state.last_seen_at, *past[:-1]]
    for array, shape in zip(held, due, strict=True):
        _need(array.shape == shape and array.dtype == np.int64, f"ids or offsets have shape {array.shape}, not {shape}")
    _need(0 <= state.next_id < 1 << 53, "next id is out of range")
    every = np.concatenate([state.ids, past.ids, past.successors])
    _need(bool(((every >= 0) & (every < state.next_id)).all()), "an id was never given out")
    _need(np.unique(np.concatenate([state.ids, past.ids])).size == n + retired, "an id is used twice")
    links = past.links
    _need(int(links[0]) == 0 and int(links[-1]) == past.successors.size, "links do not fit the successors")
    _need(bool((np.diff(links) >= 0).all()), "links run backwards")
