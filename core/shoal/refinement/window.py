"""The window of a state: its rows, their weights, and the problem of their refinement."""

import numpy as np

from shoal.errors import RefinementError
from shoal.inference import Rows
from shoal.mixture import MixtureState, live_rows
from shoal.mixture.batch import Past
from shoal.mixture.offsets import decay_step
from shoal.mixture.standardise import standardised
from shoal.mixture.windowing import with_new_window
from shoal.points.arrays import Array
from shoal.refinement.problem import Problem
from shoal.refinement.schedule import nothing_born
from shoal.sequential.prior.jitter import jittered


def window_start(state: MixtureState) -> int | None:
    """Points seen before the first row of the window: the window is the rows (window_start, points_seen].

    None where the state keeps no window (`window=0`, method `sva` or `sva-pm`, or before the first row).
    """
    return None if state.past is None else state.past.offset


def most_window_rows(state: MixtureState) -> int:
    """Most rows that the window can hold under the state's settings, for the size of a log or ring; 0: no window."""
    return state.settings.window_rows


def forget_window(state: MixtureState) -> MixtureState:
    """The state with an empty window from `points_seen`, for a caller that has lost rows of the old window.

    The statistics stay, as past. Refinements of earlier states can no longer be adopted.
    """
    return with_new_window(state)


def restored(state: MixtureState, at: int) -> MixtureState:
    """The state after a restore with number `at` >= 0, unique among the restores of the stream (the seq of its log).

    Refinements of earlier states can no longer be adopted.
    """
    return state._replace(schedule=state.schedule._replace(restored_at=at))


def row_weights(state: MixtureState, first: int, n: int) -> Array:
    """(n,) weights of the rows (first, first + n] of the stream at `points_seen`: one factor for each decay since.

    A decay comes after its point and weakens it too. The half-life must not have changed since `first`.
    """
    half_life = state.settings.half_life
    if half_life is None:
        return np.ones(n)
    step = decay_step(half_life)
    rows = np.arange(first + 1, first + n + 1)
    decays = state.points_seen // step - (rows - 1) // step
    return np.asarray(2.0 ** (-(step / half_life) * decays))


def window_problem(state: MixtureState, rows: Rows) -> Problem:
    """The problem of the raw rows (past.offset, points_seen] of a live state. Raises RefinementError."""
    _check(state, rows)
    assert state.past is not None
    assert state.prior is not None
    n, start = state.n_components, state.past.offset
    z = standardised(jittered(rows, state.jitter, start), state.location, state.scale)
    return Problem(
        family=state.prior,
        concentration=state.settings.concentration,
        rows=z,
        weights=row_weights(state, start, len(rows)),
        past=Past(live_rows(state.past.stats, n), state.past.pairs[:n, :n]),
        live=live_rows(state.stats, n),
        reestimate_prior=state.settings.prior == "auto",
        confirmed=state.schedule.periods > 1 and nothing_born(state),
    )


def _check(state: MixtureState, rows: Rows) -> None:
    settings = state.settings
    if not settings.conjugate:
        raise RefinementError(
            f"family {settings.family!r} is not conjugate, and refinement needs a conjugate family; use one pass alone "
            "(methods default, sva, sva-pm)"
        )
    if settings.method != "default":
        raise RefinementError(
            f"method is {settings.method!r}, which keeps no window; only method 'default' can be refined"
        )
    if settings.window_rows == 0:
        raise RefinementError("the stream keeps no window (window=0 or too few window_bytes); set one to refine")
    if not state.frozen or state.past is None:
        raise RefinementError(
            f"the stream is warming up ({state.points_seen} of {settings.warmup_points} rows); refine it afterwards"
        )
    due = state.points_seen - state.past.offset
    if len(rows) != due:
        raise RefinementError(f"{len(rows)} rows were given, but the window has {due}; give all rows since its start")
    if due == 0:
        raise RefinementError("the window is empty; learn some rows first")
