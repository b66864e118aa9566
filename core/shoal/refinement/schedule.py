"""Schedule of refinements: absolute offsets and the misfit alarm, both functions of the stream alone.

Offsets: first after `warmup_points` rows. Then, up to the window's limit, each time the stream has doubled. Then at
multiples of half the window, where the window is fullest.

    rows       warm-up  x2    x2        x2            limit    + half a window   + half a window
    refine        |-----|-----|---------|---------------|-------------|-----------------|------ ...

Early refinements matter. A first one on few rows finds coarse clusters, and later ones split them further. A late first
one starts from the result of one long pass.

A refinement that changed no structure doubles the wait. The wait grows to at most `MOST_PERIODS` times its first
length. The limit is `MOST_FORGETTING` where points are forgotten, since the clusters may change. It is `MOST_GAINING`
while the window fills, if the refinement raised the bound, since better parameters may change the structure later. A
change of structure resets the wait. So does a component born later, once it has `BORN_MASS`.

A component that misfits (`stats_at_offset.MisfitMonitor`) asks for a refinement too, at the earliest `FIRST_GAP`
points after the last one. Each such refinement in a row doubles that gap, up to half a window. So does a family that
was fitted to points of another kind (`capabilities.lags_behind`); there the gap doubles only where a refinement was not
worthwhile.
"""

from typing import Literal, NamedTuple, TypeAlias

from shoal.families.capabilities import lags_behind
from shoal.mixture import (
    MixtureState,
    RefinementSchedule,
    StreamSettings,
    next_round_end,
    rows_before_rounds,
)

Reason: TypeAlias = Literal["warm-up", "doubled", "period", "misfit"]

FEWEST_ROWS = 100
"""Fewest rows of a window for a scheduled refinement."""

MISFIT_GRID = 500
"""Multiples of this offset are where an alarm, or a birth that shortens a wait, takes effect. So the result does not
depend on how the stream is cut into batches."""

FIRST_GAP = 500
MOST_PERIODS, MOST_FORGETTING, MOST_GAINING = 8, 2, 2
_NEARLY = 0.75
"""Share of the window's limit beyond which a long wait is extended to the limit."""
BORN_MASS = 30.0
"""Mass from which a component born since the last refinement is more than a few outliers."""

_NEVER = 1 << 62


class Due(NamedTuple):
    """A refinement that is due, and its reason."""

    why: Reason
    offset: int
    """Points seen when it became due; for a misfit, when the alarm was raised."""


def refinement_due(state: MixtureState) -> Due | None:
    """The refinement that is due now, with its reason.

    None during the warm-up, without a window, with the setting `refinement=None`, and while none is due.
    """
    if not _may(state):
        return None
    offset = _next_offset(state)
    if state.points_seen >= offset:
        return Due(_reason(state), offset)
    if state.points_seen >= _next_misfit(state):
        return Due("misfit", state.schedule.alarm)
    lagging = state.points_seen >= _after_gap(state) and _lags_behind(state)
    return Due("misfit", state.points_seen) if lagging else None


def points_until_refinement(state: MixtureState) -> int:
    """Points, >= 1, that can be learnt before the next call of `refinement_due`; a large number where none is ever due.

    A caller that cuts its chunks there, and calls only there, refines at the same offsets for any size of batches.
    Where partitions learn in rounds, that is at the end of rounds.
    """
    if _never(state.settings):
        return _NEVER
    if state.frozen and rows_before_rounds(state.points_seen, state.settings) == 0:
        return next_round_end(state.points_seen, state.settings) - state.points_seen
    left = _left_by_rows(state)
    return min(left, MISFIT_GRID - state.points_seen % MISFIT_GRID) if state.frozen else left


def _never(settings: StreamSettings) -> bool:
    return settings.refinement is None or settings.window_rows == 0


def _left_by_rows(state: MixtureState) -> int:
    """A warm-up that is prolonged beyond the first offset may end at its next fit."""
    seen = state.points_seen
    offset = _next_offset(state, seen + 1) if _may(state) else max(_first(state.settings), state.next_refit)
    return offset - seen if offset > state.points_seen else _NEVER


def schedule_after(state: MixtureState, *, changed: bool, gained: bool = True) -> RefinementSchedule:
    """The schedule after a refinement of the present state.

    changed: whether the structure changed. gained: whether the bound rose enough for adoption. While the window fills,
    a refinement before its time, by request or for a misfit, does not lengthen the wait.
    """
    schedule, settings, base = state.schedule, state.settings, state.points_seen
    filling = base < settings.window_rows
    most = min(_most_periods(settings), MOST_GAINING) if filling and gained else _most_periods(settings)
    early = filling and base < _scheduled(settings, schedule)
    periods = 1 if changed else schedule.periods if early else min(2 * schedule.periods, most)
    misfit = schedule.alarm >= 0 or (not gained and _lags_behind(state))
    gap = FIRST_GAP if not misfit else min(2 * schedule.misfit_gap, max(FIRST_GAP, settings.window_step))
    return schedule._replace(refined_at=base, periods=periods, misfit_gap=gap, alarm=-1)


def nothing_born(state: MixtureState) -> bool:
    """Whether no component of any size was born since the last refinement."""
    n = state.n_components
    return not ((state.born_at[:n] > state.schedule.refined_at) & (state.stats[0][:n] >= BORN_MASS)).any()


def _may(state: MixtureState) -> bool:
    return state.settings.refinement is not None and state.frozen and state.past is not None


def _first(settings: StreamSettings) -> int:
    return max(settings.warmup_points, FEWEST_ROWS)


def _next_offset(state: MixtureState, not_before: int = 0) -> int:
    """Offset of the next refinement by rows alone. What the rows themselves bring about, a birth or a window that has
    moved by time, takes effect at a multiple of the grid from `not_before` on: at the same one for any cut."""
    assert state.past is not None
    enough = state.past.offset + FEWEST_ROWS
    offset = max(_scheduled(state.settings, state.schedule), enough)
    if not nothing_born(state):
        early = _scheduled(state.settings, state.schedule._replace(periods=1))
        offset = min(offset, _on_grid(max(early, enough, not_before)))
    if state.settings.window_steps is not None and state.mid is not None and state.schedule.refined_at > 0:
        moved = (state.mid if state.schedule.periods == 1 else state.past).offset  # by time, after one or two halves
        if moved > state.schedule.refined_at:
            offset = min(offset, _on_grid(max(moved, enough, not_before)))
    return offset


def _on_grid(offset: int) -> int:
    return -(-offset // MISFIT_GRID) * MISFIT_GRID


def _scheduled(settings: StreamSettings, schedule: RefinementSchedule) -> int:
    last, limit, step = schedule.refined_at, settings.window_rows, settings.window_step
    periods = min(schedule.periods, _most_periods(settings))  # the half-life may have been set later
    if last == 0:
        return _first(settings)
    if last < limit:
        following = (1 + periods) * last
        return limit if periods > 1 and following > _NEARLY * limit else min(following, limit)
    behind = -(-(2 * last + step) // (2 * step)) - 1  # multiples of the step up to half a step after the last
    return (behind + periods) * step


def _most_periods(settings: StreamSettings) -> int:
    return MOST_PERIODS if settings.half_life is None else MOST_FORGETTING


def _reason(state: MixtureState) -> Reason:
    last = state.schedule.refined_at
    if last == 0:
        return "warm-up"
    return "doubled" if last < state.settings.window_rows else "period"


def _next_misfit(state: MixtureState) -> int:
    """Offset from which the present alarm, if any, asks for a refinement."""
    return _NEVER if state.schedule.alarm < 0 else _after_gap(state)


def _lags_behind(state: MixtureState) -> bool:
    """Whether the part of the prior that is fitted to points no longer suits the points of the window."""
    assert state.prior is not None
    assert state.past is not None
    return state.settings.learns_prior and lags_behind(state.prior, state.stats, state.past.stats)


def _after_gap(state: MixtureState) -> int:
    """Offset from which a misfit may ask for a refinement."""
    assert state.past is not None
    return max(state.schedule.refined_at + state.schedule.misfit_gap, state.past.offset + FEWEST_ROWS)
