"""Batches of a stream that wait, learnt as one: fewer calls, and whole ranges of rows for the partitions.

The info of a batch must not depend on the batches that happen to wait with it. Its labels are those of components that
live at its end. So a pass ends with the batch in which anything but a birth may happen: a decay, a check, a look at the
scale, the end of a round. The labels of every batch before that are still those at its own end.
"""

from collections.abc import Iterable
from typing import NamedTuple

from shoal.mixture import MixtureState, ended_by_time, next_round_end, rows_before_rounds
from shoal.partitions.pieces import PieceRunner, in_turn
from shoal.partitions.rounds import learn_of
from shoal.points.arrays import Array
from shoal.points.weighted_rows import LearntPoints
from shoal.sequential import AssimilateInfo, assimilate_inplace, assimilate_together_inplace, timed
from shoal.sequential.rescale import is_watched

PASS_ROWS = 1_024
"""Rows after which a pass of one learner ends. More of them in one call are hardly cheaper."""


class Batch(NamedTuple):
    """Points of a stream that came together."""

    x: LearntPoints
    """(N, D), N >= 1, as `assimilate_inplace` learns them."""
    times: Array | None = None
    """(N,) as `timed` has them. None for points without times."""
    arrived: float | None = None


def assimilate_batches_inplace(
    state: MixtureState, batches: Iterable[Batch], run: PieceRunner = in_turn
) -> tuple[MixtureState, list[AssimilateInfo]]:
    """Learn the first of some batches, at least one, and no more than may be learnt in one pass. Consumes `state`.

    Gives the info of each batch that was learnt. States and infos are the same as with `timed` and `assimilate_inplace`
    of one batch after another; only births that were refused are all counted with the last one. Nothing is read of
    `batches` beyond what is learnt.
    """
    began = state.points_seen
    parts: list[LearntPoints] = []
    end = began
    for batch in batches:
        x = batch.x
        if batch.times is not None:
            state, x = timed(state._replace(points_seen=end), x, batch.times, batch.arrived)
            state = state._replace(points_seen=began)
        parts.append(x)
        end += x.shape[0]
        if end >= _last_end(state):
            break
    learn = learn_of(state.settings, run)
    if len(parts) == 1:
        state, info = assimilate_inplace(state, parts[0], learn)
        return state, [info]
    return assimilate_together_inplace(state, parts, learn)


def _last_end(state: MixtureState) -> int:
    """Points seen with which a pass ends: the batch that has its last row there or later is the last one."""
    seen, settings = state.points_seen, state.settings
    if not state.frozen:
        return seen
    ends = []
    if is_watched(state):
        ends.append(seen if state.watch is None else state.watch.next_look)
    clock = state.clock
    pending = None if clock is None or clock.pending is None else int(clock.at[clock.pending])
    before = rows_before_rounds(seen, settings)
    if before > 0:
        ends += [seen + PASS_ROWS, seen + before, state.next_check]
        if state.next_decay >= 0:
            ends.append(state.next_decay)
        if pending is not None:
            ends.append(pending + 1)  # it falls before the next row
        return min(ends)
    if state.round is not None:
        begins_at, by_rows = state.round.begins_at, state.round.ends_at
    else:
        begins_at, by_rows = seen, next_round_end(seen, settings)
        if pending == seen:
            ends.append(seen + 1)
    by_time = ended_by_time(clock, begins_at, by_rows)
    return min([*ends, by_rows if by_time == by_rows else by_time + 1])
