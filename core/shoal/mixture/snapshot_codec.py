"""Bytes of a snapshot for remote readers, in two parts; smaller than those of a state, as learning cannot continue.

The components change with every point, the lineage only when one retires. So the lineage is a separate part, and a
sender can omit it while it is the same object. Layout and checksum are those of `container`.
"""

from dataclasses import replace
from typing import Any

import numpy.typing as npt

from shoal.errors import InputError, SnapshotDamagedError
from shoal.families import FAMILIES, AnyFamily
from shoal.mixture.container import pack_arrays, unpack_arrays
from shoal.mixture.lineage import Lineage
from shoal.mixture.settings import StreamSettings
from shoal.mixture.snapshot import MixtureSnapshot
from shoal.points.arrays import read_only
from shoal.process import predictive_weights

_PLAIN: dict[str, type] = {
    "status": str,
    "points_seen": int,
    "decayed_count": float,
    "pruned_mass": float,
    "births_refused": int,
}
_ARRAYS = ("ids", "born_at", "last_seen_at", "location", "scale")
_RECORDS = Lineage._fields[:-1]
_Arrays = dict[str, npt.NDArray[Any]]


def view_to_bytes(snapshot: MixtureSnapshot) -> bytes:
    """Bytes of a snapshot without its lineage. Equal snapshots give equal bytes."""
    settings = snapshot.settings
    header: dict[str, Any] = {name: kind(getattr(snapshot, name)) for name, kind in _PLAIN.items()}
    header["settings"] = (settings if settings.learns_prior else replace(settings, prior="auto")).to_dict()
    header["explicit_prior"] = not settings.learns_prior
    arrays: _Arrays = {name: getattr(snapshot, name) for name in _ARRAYS}
    if snapshot.prior is not None:
        arrays |= {f"prior.{name}": value for name, value in snapshot.prior.to_arrays().items()}
        arrays |= _named(snapshot.stats)
    return pack_arrays(header, arrays)


def past_to_bytes(lineage: Lineage) -> bytes:
    """Bytes of the lineage of a snapshot."""
    arrays: _Arrays = {name: getattr(lineage, name) for name in _RECORDS}
    if lineage.stats is not None:
        arrays |= _named(lineage.stats)
    return pack_arrays({}, arrays)


def view_from_bytes(blob: bytes, past: bytes | Lineage) -> MixtureSnapshot:
    """Inverse of the two functions above; `past` may be a lineage that was read before.

    Raises SnapshotDamagedError and SnapshotVersionError. It is for bytes of the same service: values are not checked.
    """
    try:
        header, arrays = unpack_arrays(blob)
        settings = StreamSettings.from_dict(header.pop("settings"))
        prior = _prior(settings, arrays)
        if header.pop("explicit_prior"):
            settings = replace(settings, prior=prior or "auto")
        rows: dict[str, Any] = {name: read_only(arrays.pop(name)) for name in _ARRAYS}
        stats = None if prior is None else _typed(type(prior.empty_stats(0)), arrays)
        lineage = past if isinstance(past, Lineage) else past_from_bytes(past, prior)
        masses = read_only(stats[0]) if stats is not None else read_only(rows["location"][:0].copy())
        weights, new_weight = predictive_weights(masses, settings.concentration)
        plain: dict[str, Any] = {name: kind(header[name]) for name, kind in _PLAIN.items()}
        return MixtureSnapshot(
            settings=settings,
            masses=masses,
            weights=read_only(weights),
            new_weight=new_weight,
            prior=prior,
            stats=stats,
            lineage=lineage,
            **rows,
            **plain,
        )
    except (InputError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise SnapshotDamagedError(
            f"these bytes are intact but hold no snapshot ({error}); send bytes that shoal wrote"
        ) from error


def past_from_bytes(blob: bytes, prior: AnyFamily | None) -> Lineage:
    """Inverse of `past_to_bytes`; the prior determines the type of the statistics. Raises as `view_from_bytes`."""
    _, arrays = unpack_arrays(blob)
    records = {name: read_only(arrays.pop(name)) for name in _RECORDS}
    stats = _typed(type(prior.empty_stats(0)), arrays) if arrays and prior is not None else None
    return Lineage(**records, stats=stats)


def _named(rows: Any) -> _Arrays:
    return {f"stats.{name}": field for name, field in zip(rows._fields, rows, strict=True)}


def _typed(kind: Any, arrays: _Arrays) -> Any:
    return kind(*(read_only(arrays.pop(f"stats.{name}")) for name in kind._fields))


def _prior(settings: StreamSettings, arrays: _Arrays) -> AnyFamily | None:
    found = {name.removeprefix("prior."): arrays.pop(name) for name in tuple(arrays) if name.startswith("prior.")}
    return FAMILIES[settings.family].from_arrays(found) if found else None
