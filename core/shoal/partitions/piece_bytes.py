"""Bytes of a piece and of what came of it, for processes that compute pieces for another.

    task = length of container u64 | CRC-32 of the rows u32 | container | dense rows, C order      little-endian

Layout and checksum are those of `mixture.container`, without pickle. Dense rows are most of a task and stand behind it,
since SHA-256 of them would take as long as some families take to learn them. Bytes are refused by another version of
shoal, or of what it computes with: their results could differ in the last bits.

An altered byte is noticed, and shapes, types and ranges are checked: kernels would read and write beside arrays of
other shapes. Whether a result is that of its task is not checked. So whoever may send one must be trusted.
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
    MOST_POINTS,
    READ_ERRORS,
    Event,
    check_partition,
    check_rows,
    clock_from_arrays,
    clock_to_arrays,
    named_rows,
    next_round_end,
    pack_arrays,
    partition_from_arrays,
    partition_to_arrays,
    prior_to_arrays,
    require,
    round_rows,
    settings_and_prior,
    settings_to_header,
    taken_rows,
    unpack_arrays,
)
from shoal.partitions.pieces import PieceResult, PieceTask, RoundContext
from shoal.points.rows import Points, SparseRows
from shoal.points.weighted_rows import WeightedRows, checked_weights, unweighted, weights_of
from shoal.runtime.arithmetic import arithmetic
from shoal.runtime.cache import library_digest
from shoal.sequential import PrequentialScores
from shoal.sequential.learn import unscored

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
    header |= {"monitored": task.partition.monitor is not None, "cached": task.partition.cache is not None}
    header["part"], own = partition_to_arrays("part", task.partition)
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
        partition = partition_from_arrays("part", header["part"], prior, arrays, **own)
        if "shape" in header:  # writable, since kernels are compiled for that
            points: Points = np.frombuffer(dense, dtype="<f8").reshape(-1, settings.n_features).astype(np.float64)
            require(list(points.shape) == header["shape"], f"rows have shape {points.shape}")
        else:
            points = unweighted(taken_rows("rows", arrays, settings.domain, settings.n_features))
        weights = arrays.pop("weights", None)
        rows = points if weights is None else WeightedRows(points, checked_weights(weights, len(points)))
        given: dict[str, Any] = {name: arrays.pop(name) for name in _CONTEXT_ROWS}
        given |= {name: header[name] for name in _CONTEXT_NUMBERS}
        context = RoundContext(settings=settings, prior=prior, clock=clock, **given)
        labels, scores = np.full(len(rows), -1, dtype=np.int64), unscored(len(rows))
        numbers = {name: header[name] for name in _TASK_NUMBERS}
        task = PieceTask(context=context, partition=partition, rows=rows, labels=labels, scores=scores, **numbers)
        _check_task(task)
        return task
    except (*READ_ERRORS, OverflowError) as error:
        raise SnapshotDamagedError(
            f"bytes are intact but hold no piece ({error}); send bytes that shoal wrote"
        ) from error


def result_to_bytes(result: PieceResult) -> bytes:
    """The bytes of what came of a piece. Equal results give equal bytes."""
    partition, scores = result.partition, result.scores
    header: dict[str, Any] = {"learnt": pieces_version(), "events": [list(event) for event in result.events]}
    header["monitored"] = partition.monitor is not None
    header["part"], arrays = partition_to_arrays("part", partition)
    arrays |= {"labels": result.labels, "log_density": scores.log_density, "novelty": scores.novelty}
    return pack_arrays(header, arrays | {"born": np.flatnonzero(scores.born).astype(np.int64)})


def result_from_bytes(blob: bytes | memoryview, task: PieceTask) -> PieceResult:
    """Inverse of `result_to_bytes`, with arrays of its own; `task` is the one that it came of, as it was sent.

    Raises SnapshotVersionError for bytes of another version, SnapshotDamagedError for bytes that are no intact result
    of this task.
    """
    header, arrays = _unpacked(blob, "learnt")
    n_rows = len(task.rows)
    try:
        own = {"cached": True, "monitored": header["monitored"]}
        partition = partition_from_arrays("part", header["part"], task.context.prior, arrays, **own)
        events = [
            Event(offset, kind, tuple(parents), tuple(children), reason)
            for offset, kind, parents, children, reason in header["events"]
        ]
        born = np.zeros(n_rows, dtype=np.bool_)
        born[arrays["born"]] = True
        scores = PrequentialScores(arrays["log_density"], arrays["novelty"], born)
        result = PieceResult(partition, events, arrays["labels"], scores)
        _check_result(result, task)
        return result
    except (*READ_ERRORS, OverflowError) as error:
        raise SnapshotDamagedError(
            f"bytes are intact but hold no result of the piece ({error}); send bytes that shoal wrote"
        ) from error


def _check_task(task: PieceTask) -> None:
    """Raise one of `READ_ERRORS` unless the task can be computed."""
    context, partition, d = task.context, task.partition, task.context.settings.n_features
    numbers = (context.begins_at, context.next_id, task.base_at, task.low, task.limit)
    require(all(type(number) is int and 0 <= number < MOST_POINTS for number in numbers), f"numbers {numbers}")
    high = task.low + len(task.rows)
    require(context.begins_at <= task.base_at <= task.low < high, "rows before the round, or none")
    settings, begins_at = context.settings, context.begins_at
    require(round_rows(settings) > 0 and high <= next_round_end(begins_at, settings), "rows after the round")
    for name in ("location", "scale", "jitter"):
        array = getattr(context, name)
        require(array.shape == (d,) and array.dtype == np.float64, f"{name} has shape {array.shape}")
        require(bool(np.isfinite(array).all()), f"{name} holds a number that is not finite")
    n = len(context.ids)
    require(context.ids.shape == (n,) and context.ids.dtype == np.int64, "ids of another kind")
    require(bool(((context.ids >= 0) & (context.ids < context.next_id)).all()), "an id was never given out")
    require(task.from_base is (partition.cache is None), "a base with a cache, or none")
    require(
        0 < n == partition.n_components if task.from_base else 0 < n <= partition.n_components, f"{n} ids of the base"
    )
    clock = context.clock
    if clock is not None:
        require(
            settings.clock_step_s is not None and clock.at.shape == clock.steps.shape == (len(clock.at),), "a clock"
        )
        require(clock.at.dtype == clock.steps.dtype == np.int64, "decays of another kind")
        require(bool((np.diff(clock.at) > 0).all() and (clock.steps > 0).all()), "decays are not in order")
    check_partition(context.prior, partition, task.low)
    check_rows("rows", task.rows, (len(task.rows), d), settings)


def _check_result(result: PieceResult, task: PieceTask) -> None:
    """Raise one of `READ_ERRORS` unless shapes, types and ranges are those of a result of the task."""
    partition, n_rows, first = result.partition, len(task.rows), task.context.next_id
    n = partition.n_components
    require(task.partition.n_components <= n <= task.partition.n_components + n_rows, "it belongs to another piece")
    require((partition.monitor is None) == (task.partition.monitor is None), "a monitor where there is none")
    for array, kind in (
        (result.labels, np.int64),
        (result.scores.log_density, np.float64),
        (result.scores.novelty, np.float64),
    ):
        require(array.shape == (n_rows,) and array.dtype == kind, "it belongs to another piece")
    require(not np.isnan((result.scores.log_density, result.scores.novelty)).any(), "a score of a row is no number")
    ids = np.append(task.context.ids, first + np.arange(n - len(task.context.ids)))
    require(bool(np.isin(result.labels, ids).all()), "a row belongs to no component")
    for event in result.events:
        numbers = (event.offset, *event.parents, *event.children)
        require(all(type(number) is int for number in numbers), f"an event has the numbers {numbers}")
        require(task.low < event.offset <= task.low + n_rows, f"an event at {event.offset}")
        require(
            type(event.kind) is str and (event.reason is None or type(event.reason) is str), "an event without words"
        )
    check_partition(task.context.prior, partition, task.low + n_rows)


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
