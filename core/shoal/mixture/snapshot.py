"""A mixture's state as bytes, to the bit, and back. See `container` for the layout.

Only rows in use are written: the bytes depend on the state, not on how much memory it happens to hold. What is read
back is checked as if a stranger had sent it, since over the wire a stranger may.
"""

from dataclasses import replace
from typing import Any

import numpy.typing as npt

from shoal.arrays import Array
from shoal.errors import InputError, SnapshotDamagedError
from shoal.families import FAMILIES, AnyFamily
from shoal.families.working import work_type
from shoal.mixture.container import pack, unpack
from shoal.mixture.lineage import Lineage
from shoal.mixture.settings import StreamSettings
from shoal.mixture.state import MixtureState, live_rows
from shoal.mixture.validity import check_state
from shoal.mixture.work_check import need

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
        check_state(state, window)
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
    need(not header, f"unknown header entries {sorted(header)}")
    prior = _prior(settings, arrays)
    if explicit:
        need(prior is not None, "explicit prior is missing")
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
    need(not arrays, f"unknown arrays {sorted(arrays)}")
    return MixtureState(**fields), window


def _prior(settings: StreamSettings, arrays: _Arrays) -> AnyFamily | None:
    """The family in force, its hyperparameters taken out of `arrays`; None where there are none."""
    names = [name for name in arrays if name.startswith("prior.")]
    if not names:
        return None
    prior = FAMILIES[settings.family].from_arrays({name.removeprefix("prior."): arrays.pop(name) for name in names})
    need(prior.n_features == settings.n_features, f"prior has {prior.n_features} features")
    return prior


def _typed(prefix: str, kind: Any, arrays: _Arrays) -> Any:
    return kind(*(arrays.pop(f"{prefix}.{name}") for name in kind._fields))


def _number(name: str, value: Any, kind: type) -> Any:
    need(type(value) is kind, f"{name} is {value!r}")
    return value
