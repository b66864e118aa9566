"""Pieces of rounds computed by the workers of an executor: processes of this machine, or a Ray cluster.

The calling process computes the first piece of a call, and workers the others, at the same time. Nothing of a stream
stays with a worker. If workers are lost, and none come in their place, this process computes their pieces, and all
later ones.
"""

import copy
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.errors import SettingError, WorkersLostError
from shoal.mixture import PartitionState
from shoal.partitions.piece_bytes import pieces_version
from shoal.partitions.pieces import PieceResult, PieceTask, RoundContext, in_threads, in_turn, learnt_piece
from shoal.points.weighted_rows import LearntPoints
from shoal.runtime.executors import Executor, InProcess, in_order, lasting
from shoal.runtime.threads import run_beside
from shoal.sequential.learn import unscored


class _SharedInput(NamedTuple):
    """What the tasks of a call have in common: it is sent to a machine of a Ray cluster once."""

    version: str
    context: RoundContext
    base: PartitionState | None


class _TaskInput(NamedTuple):
    """The rest of a task. Labels and scores are not sent, because they are never read."""

    partition: PartitionState | None
    """None: it is the base."""
    base_at: int
    low: int
    rows: LearntPoints
    limit: int


class Workers:
    """A `PieceRunner`. Its workers start when it is made, and end with this process."""

    def __init__(self, executor: Executor) -> None:
        """Raises SettingError where the executor cannot start workers."""
        self._executor = executor
        self._alone = isinstance(executor, InProcess)
        """Whether this process computes all pieces, because there are no workers or no more."""
        if not self._alone:
            lasting(executor)

    def __call__(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        """See `PieceRunner`. Warns once, with a RuntimeWarning, when the workers are lost."""
        if self._alone:
            return in_threads(tasks)
        if len(tasks) < 2:
            return in_turn(tasks)
        others, first = run_beside(lambda: self._computed_by_workers(tasks[1:]), lambda: learnt_piece(tasks[0]))
        try:
            return [first, *others.result()]
        except (WorkersLostError, SettingError) as error:
            self._alone = True
            warnings.warn(
                f"no worker of {self._executor} computes any more ({error}); this process goes on alone, with the same "
                "result; give executor again by set_params, or load the stream, to try workers again",
                RuntimeWarning,
                stacklevel=2,
            )
            return [first, *in_threads(tasks[1:])]

    def _computed_by_workers(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        base = next((task.partition for task in tasks if task.from_base), None)
        shared = _SharedInput(pieces_version(), tasks[0].context, base)
        own = [
            _TaskInput(None if task.from_base else task.partition, task.base_at, task.low, task.rows, task.limit)
            for task in tasks
        ]
        workers = lasting(self._executor)
        with workers.lock:
            return [_writable(result) for result in in_order(workers.pool, _computed, shared, own)]


def _computed(shared: _SharedInput, own: _TaskInput) -> PieceResult:
    """Compute a piece in a worker. Raises SettingError where that could give other bits."""
    if shared.version != pieces_version():
        raise SettingError(
            f"a worker computes with version {pieces_version()!r}, this process with {shared.version!r}; give all "
            "machines of the cluster the same versions"
        )
    n = len(own.rows)
    labels, scores = np.full(n, -1, dtype=np.int64), unscored(n)
    partition = shared.base if own.partition is None else own.partition
    assert partition is not None
    task = PieceTask(
        context=shared.context,
        partition=partition,
        from_base=own.partition is None,
        base_at=own.base_at,
        low=own.low,
        rows=own.rows,
        limit=own.limit,
        labels=labels,
        scores=scores,
    )
    return learnt_piece(_writable(task))


def _writable(received: PieceTask | PieceResult) -> Any:
    """The same in arrays that may be written. Those that Ray gives may not, because they are in its store."""
    arrays: list[npt.NDArray[Any]] = [received.partition.born_at, received.labels]
    if isinstance(received, PieceTask):
        arrays.append(received.context.location)
    return received if all(array.flags.writeable for array in arrays) else copy.deepcopy(received)
