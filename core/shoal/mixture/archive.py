"""Archive of components that forgetting retired, as data. `returns` says how one gets its id back."""

from typing import Any, NamedTuple

import numpy as np

from shoal.families import concatenated, take
from shoal.mixture.settings import StreamSettings
from shoal.points.arrays import IntArray

_LARGEST_BUDGET = 16 << 20


class Archive(NamedTuple):
    """A retired components, in order of retirement."""

    ids: IntArray
    """(A,)"""
    born_at: IntArray
    """(A,)"""
    retired_at: IntArray
    """(A,) points seen."""
    stats: Any
    """A rows, of standardised points."""


def archive_budget_bytes(settings: StreamSettings) -> int:
    """Most bytes of the archive: a 32nd of the state's, at most 16 MiB. 0 where none is kept."""
    kept = settings.half_life is not None and settings.max_archived > 0 and settings.conjugate
    return min(_LARGEST_BUDGET, settings.max_state_bytes // 32) if kept and settings.method == "default" else 0


def archive_bytes(archive: Archive | None) -> int:
    """Bytes of its arrays."""
    return (
        0
        if archive is None
        else sum(a.nbytes for a in (archive.ids, archive.born_at, archive.retired_at))
        + sum(field.nbytes for field in archive.stats)
    )


def within_limits(archive: Archive | None, settings: StreamSettings) -> Archive | None:
    """The newest entries that the settings allow; None without any."""
    if archive is None:
        return None
    row_bytes = archive_bytes(archive) // len(archive.ids)
    kept = min(len(archive.ids), settings.max_archived, archive_budget_bytes(settings) // row_bytes)
    return chosen(archive, slice(len(archive.ids) - kept, None))


def longer(archive: Archive | None, new: Archive) -> Archive:
    """The archive with new entries after the others."""
    if archive is None:
        return new
    fields = [np.concatenate([a, b]) for a, b in zip(archive[:3], new[:3], strict=True)]
    stats = concatenated(archive.stats, new.stats)
    return Archive(fields[0], fields[1], fields[2], stats)


def chosen(archive: Archive, rows: Any) -> Archive | None:
    """The entries `rows`; None without any."""
    rest = Archive(archive.ids[rows], archive.born_at[rows], archive.retired_at[rows], take(archive.stats, rows))
    return rest if len(rest.ids) else None
