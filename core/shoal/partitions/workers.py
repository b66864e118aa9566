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
from shoal.mixture import Part
from shoal.partitions.piece_bytes import pieces_version
from shoal.partitions.pieces import PieceResult, PieceTask, RoundContext, at_once, in_turn, learnt_piece
from shoal.points.weighted_rows import LearntPoints
from shoal.runtime.executors import Executor, InProcess, in_order, lasting
from shoal.runtime.threads import run_beside
from shoal.sequential.learn import unscored


class _Common(NamedTuple):
    """What the pieces of a call share: it is sent to a machine of a Ray cluster once."""

    version: str
    context: RoundContext
    base: Part | None


class _Sent(NamedTuple):
    """The rest of a task. Labels and scores are not sent, because they are never read."""

    part: Part | None
    """None for the base."""
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
        if not self._alone:
            lasting(executor)

    def __call__(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        """See `PieceRunner`. Warns once, with a RuntimeWarning, when the workers are lost."""
        if self._alone:
            return at_once(tasks)
        if len(tasks) < 2:
            return in_turn(tasks)
        others, first = run_beside(lambda: self._elsewhere(tasks[1:]), lambda: learnt_piece(tasks[0]))
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
            return [first, *at_once(tasks[1:])]

    def _elsewhere(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        base = next((task.part for task in tasks if task.from_base), None)
        common = _Common(pieces_version(), tasks[0].context, base)
        sent = [
            _Sent(None if task.from_base else task.part, task.base_at, task.low, task.rows, task.limit)
            for task in tasks
        ]
        workers = lasting(self._executor)
        with workers.lock:
            return [_own(result) for result in in_order(workers.pool, _computed, common, sent)]


def _computed(common: _Common, sent: _Sent) -> PieceResult:
    """Compute a piece in a worker. Raises SettingError where that could give other bits."""
    if common.version != pieces_version():
        raise SettingError(
            f"a worker computes with version {pieces_version()!r}, this process with {common.version!r}; give all "
            "machines of the cluster the same versions"
        )
    n = len(sent.rows)
    labels, scores = np.full(n, -1, dtype=np.int64), unscored(n)
    part = common.base if sent.part is None else sent.part
    assert part is not None
    from_base, numbers = sent.part is None, (sent.base_at, sent.low)
    task = PieceTask(common.context, part, from_base, *numbers, sent.rows, sent.limit, labels, scores)
    return learnt_piece(_own(task))


def _own(received: PieceTask | PieceResult) -> Any:
    """What was received, in arrays that may be written: those that Ray gives may not, as they lie in its store."""
    arrays: list[npt.NDArray[Any]] = [received.part.born_at, received.labels]
    if isinstance(received, PieceTask):
        arrays.append(received.context.location)
    return received if all(array.flags.writeable for array in arrays) else copy.deepcopy(received)
