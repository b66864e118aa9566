"""The start of a state's window: set to the present offset, or advanced by half a window. See `stats_at_offset`."""

from shoal.mixture.state import MixtureState
from shoal.mixture.stats_at_offset import empty_monitor, next_half_window, stats_at_offset


def with_new_window(state: MixtureState) -> MixtureState:
    """The state with an empty window from `points_seen`; without a window where the settings keep none.

    All statistics then belong to the past. The other arrays are shared with `state`.
    """
    schedule = state.schedule._replace(window_from=state.points_seen)
    if state.settings.window_rows == 0 or state.prior is None:
        return state._replace(past=None, mid=None, monitor=None, schedule=schedule)
    monitor = empty_monitor(state.capacity) if state.monitor is None else state.monitor
    past, mid = (
        stats_at_offset(state.points_seen, state.stats, state.pairs, state.pruned_mass, state.decayed_count)
        for _ in range(2)
    )
    return state._replace(past=past, mid=mid, monitor=monitor, schedule=schedule)


def with_window_moved(state: MixtureState) -> MixtureState:
    """The state with `past` and `mid` advanced, if that is due at `points_seen`.

    It is due after the last row of half a window, and done before the next row. So a refinement in between has the
    fullest window.
    """
    if state.mid is None or state.points_seen < next_half_window(state.mid.offset, state.settings):
        return state
    live = stats_at_offset(state.points_seen, state.stats, state.pairs, state.pruned_mass, state.decayed_count)
    return state._replace(past=state.mid, mid=live)
