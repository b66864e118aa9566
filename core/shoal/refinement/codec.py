"""Bytes of a refinement: versioned and checksummed (`mixture.container`), without the rows of the window."""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from shoal.errors import SnapshotDamagedError, SnapshotVersionError
from shoal.mixture import (
    MOST_POINTS,
    READ_ERRORS,
    pack_arrays,
    require,
    state_from_arrays,
    state_to_arrays,
    unpack_arrays,
)
from shoal.refinement.job import Refinement

VERSION = 1
"""Format number, raised with every change that older readers would misread."""

_WORDS: dict[str, type] = {"worthwhile": bool, "reason": str, "changed": bool, "report": dict}


def to_bytes(refinement: Refinement) -> bytes:
    """The bytes of a refinement. Equal refinements give equal bytes."""
    state, arrays = state_to_arrays(refinement.refined)
    shared = refinement.shared.tocoo()
    words = {name: getattr(refinement, name) for name in _WORDS}
    own = {
        "refinement.live_ids": refinement.live_ids,
        "refinement.shared_old": shared.row.astype(np.int64),
        "refinement.shared_new": shared.col.astype(np.int64),
        "refinement.shared_mass": shared.data,
    }
    return pack_arrays({"refinement": VERSION, "words": words, "refined": state}, own | arrays)


def from_bytes(blob: bytes) -> Refinement:
    """Inverse of `to_bytes`.

    Raises SnapshotDamagedError for bytes that are not an intact refinement, SnapshotVersionError for those of a newer
    shoal. The content is checked as data from an unknown sender.
    """
    header, arrays = unpack_arrays(blob)
    version = header.pop("refinement", None)
    if type(version) is int and version > VERSION:
        raise SnapshotVersionError(f"refinement has format {version}, this shoal reads up to {VERSION}; upgrade shoal")
    try:
        require(version == VERSION, "it is not a refinement")
        return _read(header, arrays)
    except READ_ERRORS as error:
        raise SnapshotDamagedError(
            f"bytes are intact but hold no refinement ({error}); send bytes that shoal wrote"
        ) from error


def _read(header: dict[str, Any], arrays: dict[str, Any]) -> Refinement:
    words, state = header.pop("words"), header.pop("refined")
    require(not header and set(words) == set(_WORDS), "other entries")
    for name, kind in _WORDS.items():
        require(type(words[name]) is kind, f"{name} is {words[name]!r}")
    live_ids, old, new, mass = (
        arrays.pop(f"refinement.{name}") for name in ("live_ids", "shared_old", "shared_new", "shared_mass")
    )
    refined, _ = state_from_arrays(state, arrays)
    n, t = live_ids.size, refined.n_components
    require(refined.frozen and refined.past is not None and refined.monitor is not None, "no refined state")
    require(np.array_equal(refined.ids, np.arange(t)), "ids are not provisional")
    require(live_ids.ndim == 1 and live_ids.dtype == np.int64 and np.unique(live_ids).size == n, "ids of another kind")
    require(n == 0 or (live_ids.min() >= 0 and live_ids.max() < MOST_POINTS), "ids are out of range")
    require(old.dtype == new.dtype == np.int64 and mass.dtype == np.float64, "shared mass of another kind")
    require(old.shape == new.shape == mass.shape and mass.ndim == 1, "shared mass of uneven length")
    inside = (old >= 0) & (old < n) & (new >= 0) & (new < t) & np.isfinite(mass) & (mass >= 0)
    require(bool(inside.all()), "shared mass is out of range")
    shared = csr_matrix((mass, (old, new)), shape=(n, t))
    return Refinement(refined.points_seen, refined=refined, live_ids=live_ids, shared=shared, **words)
