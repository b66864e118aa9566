"""Bytes of a piece and of what came of it, for processes that compute pieces for another.

    task = length of container u64 | CRC-32 of the rows u32 | container | dense rows, C order      little-endian

Layout and checksum are those of `mixture.container`, without pickle. Dense rows are most of a task and stand behind it,
since SHA-256 of them would take as long as some families take to learn them. The bytes are for processes of one
service: an altered byte is noticed, but values are not checked as those of an unknown sender are. They are refused by
another version of shoal, or of what it computes with: their results could differ in the last bits.
"""

import struct
import zlib
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.errors import SnapshotDamagedError, SnapshotVersionError
from shoal.mixture import (
    READ_ERRORS,
    Event,
    clock_from_arrays,
    clock_to_arrays,
    named_rows,
    pack_arrays,
    part_from_arrays,
    part_to_arrays,
    prior_to_arrays,
    require,
    settings_and_prior,
    settings_to_header,
    taken_rows,
    unpack_arrays,
)
from shoal.partitions.pieces import PieceResult, PieceTask, RoundContext
from shoal.points.rows import Points, SparseRows
from shoal.points.weighted_rows import WeightedRows, unweighted, weights_of
from shoal.runtime.arithmetic import arithmetic
from shoal.runtime.cache import library_digest
from shoal.sequential import Encounter
from shoal.sequential.learn import first_encounter

_FORMAT = 1
"""Format number of the bytes, raised with every change of them."""

_FRONT = struct.Struct("<QI")
_CONTEXT_ROWS = ("location", "scale", "jitter", "ids")
_CONTEXT_NUMBERS = ("begins_at", "next_id")
_TASK_NUMBERS = ("from_base", "base_at", "low", "limit")
_Arrays = dict[str, npt.NDArray[Any]]


@cache
def pieces_version() -> str:
    """What must be the same where a piece is computed as where it is needed: the format of the bytes, the sources of
    shoal, NumPy, SciPy, Numba, LLVM, and the kind of processor."""
    parts = (_FORMAT, library_digest(), *(version(name) for name in ("numpy", "scipy", "numba", "llvmlite")))
    return "-".join(map(str, (*parts, arithmetic())))


def task_to_bytes(task: PieceTask) -> bytes:
    """The bytes of a task, without the arrays that it only writes. Equal tasks give equal bytes."""
    return b"".join(task_to_buffers(task))


def task_to_buffers(task: PieceTask) -> list[bytes | memoryview]:
    """The same bytes in a few parts, of which the rows are shared with the task."""
    context = task.context
    header: dict[str, Any] = {"piece": pieces_version(), **settings_to_header(context.settings)}
    header |= {name: getattr(context, name) for name in _CONTEXT_NUMBERS}
    header |= {name: getattr(task, name) for name in _TASK_NUMBERS}
    arrays = {name: getattr(context, name) for name in _CONTEXT_ROWS} | prior_to_arrays(context.prior)
    if context.clock is not None:
        header["clock"], own = clock_to_arrays(context.clock)
        arrays |= own
    header |= {"monitored": task.part.monitor is not None, "cached": task.part.cache is not None}
    header["part"], own = part_to_arrays("part", task.part)
    arrays |= own
    points, weights = unweighted(task.rows), weights_of(task.rows)
    if weights is not None:
        arrays["weights"] = weights
    if isinstance(points, SparseRows):
        container, rows = pack_arrays(header, arrays | named_rows("rows", points)), memoryview(b"")
    else:
        header["shape"] = list(points.shape)
        container, rows = pack_arrays(header, arrays), np.ascontiguousarray(points, dtype="<f8").data.cast("B")
    return [_FRONT.pack(len(container), zlib.crc32(rows)), container, rows]


def task_from_bytes(blob: bytes | memoryview) -> PieceTask:
    """Inverse of `task_to_bytes`, with arrays of its own.

    Raises SnapshotVersionError for bytes of another version, SnapshotDamagedError for bytes that are no intact task.
    """
    view = memoryview(blob)
    if len(view) < _FRONT.size:
        raise SnapshotDamagedError(f"these {len(view)} bytes are no piece; send bytes that shoal wrote")
    length, checksum = _FRONT.unpack_from(view)
    container, dense = view[_FRONT.size : _FRONT.size + length], view[_FRONT.size + length :]
    header, arrays = _unpacked(container, "piece")
    if zlib.crc32(dense) != checksum:
        raise SnapshotDamagedError("the checksum of a piece's rows does not match; send an intact copy")
    try:
        settings, prior = settings_and_prior(header, arrays)
        require(prior is not None, "a piece without a prior")
        assert prior is not None
        clock = clock_from_arrays(header["clock"], arrays) if "clock" in header else None
        own = {"cached": header["cached"], "monitored": header["monitored"]}
        part = part_from_arrays("part", header["part"], prior, arrays, **own)
        if "shape" in header:  # writable, since kernels are compiled for that
            points: Points = np.frombuffer(dense, dtype="<f8").reshape(header["shape"]).astype(np.float64)
        else:
            points = unweighted(taken_rows("rows", arrays, settings.domain, settings.n_features))
        weights = arrays.pop("weights", None)
        rows = points if weights is None else WeightedRows(points, weights)
        given: dict[str, Any] = {name: arrays.pop(name) for name in _CONTEXT_ROWS}
        given |= {name: header[name] for name in _CONTEXT_NUMBERS}
        context = RoundContext(settings=settings, prior=prior, clock=clock, **given)
        labels, met = np.full(len(rows), -1, dtype=np.int64), first_encounter(len(rows))
        numbers = {name: header[name] for name in _TASK_NUMBERS}
        return PieceTask(context=context, part=part, rows=rows, labels=labels, met=met, **numbers)
    except READ_ERRORS as error:
        raise SnapshotDamagedError(
            f"bytes are intact but hold no piece ({error}); send bytes that shoal wrote"
        ) from error


def result_to_bytes(result: PieceResult) -> bytes:
    """The bytes of what came of a piece. Equal results give equal bytes."""
    part, met = result.part, result.met
    header: dict[str, Any] = {"learnt": pieces_version(), "events": [list(event) for event in result.events]}
    header["monitored"] = part.monitor is not None
    header["part"], arrays = part_to_arrays("part", part)
    arrays |= {"labels": result.labels, "log_density": met.log_density, "novelty": met.novelty}
    return pack_arrays(header, arrays | {"born": np.flatnonzero(met.born).astype(np.int64)})


def result_from_bytes(blob: bytes | memoryview, task: PieceTask) -> PieceResult:
    """Inverse of `result_to_bytes`, with arrays of its own; `task` is the one that it came of, as it was sent.

    Raises SnapshotVersionError for bytes of another version, SnapshotDamagedError for bytes that are no intact result
    of this task.
    """
    header, arrays = _unpacked(blob, "learnt")
    n_rows = len(task.rows)
    try:
        own = {"cached": True, "monitored": header["monitored"]}
        part = part_from_arrays("part", header["part"], task.context.prior, arrays, **own)
        events = [
            Event(offset, kind, tuple(parents), tuple(children), reason)
            for offset, kind, parents, children, reason in header["events"]
        ]
        born = np.zeros(n_rows, dtype=np.bool_)
        born[arrays["born"]] = True
        labels, met = arrays["labels"], Encounter(arrays["log_density"], arrays["novelty"], born)
        sizes = {len(labels), len(met.log_density), len(met.novelty)}
        require(sizes == {n_rows} and part.n_components >= len(task.context.ids), "it belongs to another piece")
        return PieceResult(part, events, labels, met)
    except READ_ERRORS as error:
        raise SnapshotDamagedError(
            f"bytes are intact but hold no result of the piece ({error}); send bytes that shoal wrote"
        ) from error


def _unpacked(blob: bytes | memoryview, name: str) -> tuple[dict[str, Any], _Arrays]:
    """Header and arrays of bytes of this version, whose version stands under `name`."""
    header, arrays = unpack_arrays(blob)
    found = header.pop(name, None)
    if found != pieces_version():
        raise SnapshotVersionError(
            f"the piece was written by version {found!r}, this process computes with {pieces_version()!r}; give all "
            "processes of the service the same version"
        )
    return header, arrays
