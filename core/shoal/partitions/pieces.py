"""Pieces of a round as data: what a partition reads to learn its rows of a call, and what comes of it.

A piece is a function of its task alone, `learnt_piece`, and gives the same bits wherever it is computed. So the learner
of a stream may pass its pieces to any `PieceRunner`. `in_turn` and `in_threads` compute them in this process; others
send them to other processes as bytes (`piece_bytes`). Only the learner keeps the result. If a worker elsewhere is lost,
its piece is computed again.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from shoal.families import AnyFamily
from shoal.families.predictive_cache import empty_cache
from shoal.mixture import (
    NEW_SCHEDULE,
    Clock,
    Event,
    MixtureState,
    PartitionState,
    StreamSettings,
    empty_lineage,
    next_decay,
)
from shoal.partitions.contributions import copied, decayed_inplace, partition_state
from shoal.points.arrays import Array, IntArray
from shoal.points.weighted_rows import LearntPoints
from shoal.runtime.threads import run_in_threads
from shoal.sequential import PrequentialScores
from shoal.sequential.learn import learn_inplace, renewed_cache

_NEVER = 1 << 61


class RoundContext(NamedTuple):
    """What all pieces of a call read, and none of them writes. `D` features, `n` components of the base."""

    settings: StreamSettings
    prior: AnyFamily
    location: Array  # (D,)
    scale: Array  # (D,)
    jitter: Array  # (D,)
    clock: Clock | None
    """With all decays by time up to the end of the call."""
    ids: IntArray  # (n,) of the components of the base
    begins_at: int
    """Points seen at the beginning of the round."""
    next_id: int
    """The id of the first component born in the round, before it gets its final one."""


class PieceTask(NamedTuple):
    """Rows of one partition, N >= 1, and all that is read to learn them."""

    context: RoundContext
    partition: PartitionState
    """What the partition has made of the round so far. It is written. For the first piece of a partition from
    `partition` 1 on: the base, which is only read."""
    from_base: bool
    """Whether `partition` is the base, without a predictive cache: to be copied, and decayed up to `low`."""
    base_at: int
    """Points seen up to which the base has had its decays."""
    low: int
    """Points seen before the first row."""
    rows: LearntPoints  # (N, D)
    limit: int
    """Most components that the partition may have, those of the base included."""
    labels: IntArray
    """(N,) where the ids of the rows' components belong. They are written, and never read."""
    scores: PrequentialScores
    """Where the scores of the rows belong, N of each. The same."""


class PieceResult(NamedTuple):
    """What comes of a piece."""

    partition: PartitionState
    """The partition after the rows."""
    events: list[Event]
    """In order of offset."""
    labels: IntArray
    """(N,) ids of the rows' components, with those from `next_id` on as if the partition were the first one."""
    scores: PrequentialScores
    """Of the N rows."""


class PieceRunner(Protocol):
    """Whoever computes pieces: at the same time or not, here or elsewhere."""

    def __call__(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        """The results of `learnt_piece`, one a task, in the order of the tasks.

        Each task must be computed once in this process, or on a copy elsewhere: `learnt_piece` writes `partition`,
        `labels` and `scores` of its task. A task that was sent elsewhere and did not come back may still be computed
        here, since here nothing of it was written. No task may be written any more when this returns or raises. Arrays
        of a result are the caller's own from then on.
        """


def in_turn(tasks: Sequence[PieceTask]) -> list[PieceResult]:
    """Compute one piece after another."""
    return [learnt_piece(task) for task in tasks]


def in_threads(tasks: Sequence[PieceTask]) -> list[PieceResult]:
    """Compute pieces in threads of this process, as many at the same time as it has cores."""
    results: list[PieceResult] = run_in_threads([partial(learnt_piece, task) for task in tasks])
    return results


def learnt_piece(task: PieceTask) -> PieceResult:
    """A partition after the rows of a task. Writes its `partition`, `labels` and `scores`, which the result shares."""
    context, partition = task.context, task.partition
    if task.from_base:
        partition = decayed_inplace(context, copied(partition), context.begins_at, task.base_at, task.low)
        partition = partition._replace(cache=empty_cache(context.prior, len(partition.born_at)))
    own = working_state(context, partition, task.low)
    if task.from_base:
        own = own._replace(cache=renewed_cache(own))
    own, events = learn_inplace(
        own, task.rows, task.labels, task.scores, partition_limit=max(task.limit, own.n_components)
    )
    return PieceResult(partition_state(own), events, task.labels, task.scores)


def working_state(context: RoundContext, partition: PartitionState, points_seen: int) -> MixtureState:
    """A state that learns the next rows of a partition.

    It does nothing but learn and decay: it has no window to move, no check, and nothing that may return.
    """
    settings, n = context.settings, len(context.ids)
    ids = np.zeros(len(partition.born_at), dtype=np.int64)
    ids[:n] = context.ids
    ids[n : partition.n_components] = context.next_id + np.arange(partition.n_components - n)
    clock = context.clock
    if clock is not None:
        had = int(np.searchsorted(clock.at, points_seen, "right" if points_seen == context.begins_at else "left"))
        clock = clock._replace(done=clock.dropped + had)
    return MixtureState(
        settings=settings,
        prior=context.prior,
        frozen=True,
        location=context.location,
        scale=context.scale,
        jitter=context.jitter,
        stats=partition.stats,
        cache=partition.cache,
        ids=ids,
        born_at=partition.born_at,
        last_seen_at=partition.last_seen_at,
        pairs=partition.pairs,
        n_components=partition.n_components,
        next_id=context.next_id + partition.n_components - n,
        points_seen=points_seen,
        decayed_count=partition.decayed_count,
        pruned_mass=partition.pruned_mass,
        at_capacity=partition.at_capacity,
        births_refused=partition.births_refused,
        next_check=_NEVER,
        next_decay=next_decay(points_seen, settings.half_life_points),
        next_refit=-1,
        buffer=settings.domain.none(settings.n_features),
        lineage=empty_lineage(),
        monitor=partition.monitor,
        schedule=NEW_SCHEDULE._replace(alarm=partition.alarm),
        clock=clock,
    )
