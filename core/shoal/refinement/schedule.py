"""When a refinement is due: absolute offsets, and the misfit alarm, functions of the stream alone.

Offsets: the first `warmup_points` rows; then, up to the window's limit, once the stream has doubled; then multiples of
half of the window, where it is fullest. Coarse to fine matters: what a first refinement of few rows finds, the next
ones part further, while one that begins late begins from what one pass made of it all. A refinement that changed no
structure doubles the wait, up to `MOST_PERIODS` times what it was, or `MOST_FORGETTING` where points are forgotten,
since then what was right is no longer; while the window fills up to `MOST_GAINING` times if it raised the bound all
the same, since then parameters are worth another look. One that changed any resets it. So does a component born since,
once it has `BORN_MASS`.

A component that misfits (`stats_at_offset.Monitor`) asks for one too, `FIRST_GAP` points after the last at the
earliest; every one that it is granted in a row doubles that gap, up to half a window.
"""

from typing import Literal, NamedTuple, TypeAlias

from shoal.mixture import MixtureState, StreamSettings
from shoal.mixture.stats_at_offset import RefinementSchedule

Reason: TypeAlias = Literal["warm-up", "doubled", "period", "misfit"]

FEWEST_ROWS = 100
"""A window of fewer rows is not refined by itself."""

MISFIT_GRID = 500
"""An alarm, or a birth that shortens a wait, is acted upon at multiples of this offset, so that the result does not
depend on how a stream is cut."""

FIRST_GAP = 500
MOST_PERIODS, MOST_FORGETTING, MOST_GAINING = 8, 2, 2
_NEARLY = 0.75
"""A long wait that would end in the last quarter before the window's limit ends at the limit."""
BORN_MASS = 30.0
"""Mass from which a component that no refinement has placed is more than a few outliers."""

_NEVER = 1 << 62


class Due(NamedTuple):
    """A refinement is due."""

    why: Reason
    offset: int
    """Points seen at which it fell due; of a misfit, at which the alarm was raised."""


def refinement_due(state: MixtureState) -> Due | None:
    """Whether the state asks for a refinement now, and why.

    None while it warms up, without a window, with the setting `refinement=None`, and when none is due.
    """
    if not _may(state):
        return None
    offset = _next_offset(state)
    if state.points_seen >= offset:
        return Due(_reason(state), offset)
    misfit = _next_misfit(state)
    return Due("misfit", state.schedule.alarm) if state.points_seen >= misfit else None


def points_until_refinement(state: MixtureState) -> int:
    """Points that can be taken in before `refinement_due` is to be asked again, >= 1; a large number where there never
    will be one.

    A caller that cuts its chunks there and asks there alone refines at the same offsets however the stream is cut.
    """
    if _never(state.settings):
        return _NEVER
    left = _left_by_rows(state)
    return min(left, MISFIT_GRID - state.points_seen % MISFIT_GRID) if state.frozen else left


def refines_within(state: MixtureState, n_rows: int) -> bool:
    """Whether a refinement falls due among the next `n_rows` by their number alone, whatever they are, or is due."""
    offset = _next_offset(state) if _may(state) else _first(state.settings)
    return not _never(state.settings) and offset - state.points_seen <= n_rows


def _never(settings: StreamSettings) -> bool:
    return settings.refinement is None or settings.window_rows == 0


def _left_by_rows(state: MixtureState) -> int:
    offset = _next_offset(state) if _may(state) else _first(state.settings)
    return offset - state.points_seen if offset > state.points_seen else _NEVER


def moved_on(state: MixtureState, *, changed: bool, gained: bool = True) -> RefinementSchedule:
    """The schedule after a refinement of the state as it is, that changed the structure or did not.

    gained: whether it raised the bound by enough to be adopted. While the window fills, one that was made before it was
    due, by request or for a misfit, lengthens no wait.
    """
    schedule, settings, base = state.schedule, state.settings, state.points_seen
    filling = base < settings.window_rows
    most = min(_most_periods(settings), MOST_GAINING) if filling and gained else _most_periods(settings)
    early = filling and base < _scheduled(settings, schedule)
    periods = 1 if changed else schedule.periods if early else min(2 * schedule.periods, most)
    gap = FIRST_GAP if schedule.alarm < 0 else min(2 * schedule.misfit_gap, max(FIRST_GAP, settings.window_step))
    return schedule._replace(refined_at=base, periods=periods, misfit_gap=gap, alarm=-1)


def nothing_born(state: MixtureState) -> bool:
    """Whether no component of any size was born since the last refinement."""
    n = state.n_components
    return not ((state.born_at[:n] > state.schedule.refined_at) & (state.stats[0][:n] >= BORN_MASS)).any()


def _may(state: MixtureState) -> bool:
    return state.settings.refinement is not None and state.frozen and state.past is not None


def _first(settings: StreamSettings) -> int:
    return max(settings.warmup_points, FEWEST_ROWS)


def _next_offset(state: MixtureState) -> int:
    """Offset of the next refinement by rows alone."""
    assert state.past is not None
    offset = _scheduled(state.settings, state.schedule)
    if not nothing_born(state):
        early = _scheduled(state.settings, state.schedule._replace(periods=1))
        offset = min(offset, -(-early // MISFIT_GRID) * MISFIT_GRID)  # a birth is seen there, however calls are cut
    return max(offset, state.past.offset + FEWEST_ROWS)


def _scheduled(settings: StreamSettings, schedule: RefinementSchedule) -> int:
    last, limit, step = schedule.refined_at, settings.window_rows, settings.window_step
    periods = min(schedule.periods, _most_periods(settings))  # the half-life may be of later
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
    """Offset from which the alarm that stands, if any, asks for a refinement."""
    assert state.past is not None
    if state.schedule.alarm < 0:
        return _NEVER
    return max(state.schedule.refined_at + state.schedule.misfit_gap, state.past.offset + FEWEST_ROWS)
