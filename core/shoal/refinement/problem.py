"""The window of a state, and problem and solution of its refinement: plain data, the same for every family and method.

All values are in the coordinates of the family (standardised where the stream is). The problem has the points whose
responsibilities are free (the rows of the window) and those whose are fixed (the past, tied to the components). The
solution has the responsibilities of the rows and tells where each component of the live mixture went.
"""

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse

from shoal.errors import RefinementError
from shoal.families import AnyFamily, take
from shoal.families.capabilities import working_rows
from shoal.families.holes import as_table, drawn_missing, marginal_log_predictive, rows_with_holes
from shoal.inference import Rows
from shoal.mixture import MixtureState, Past, left_since, live_rows, with_new_window
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points, standardised
from shoal.points.weighted_rows import unweighted, weights_of
from shoal.refinement.copies import typical_copies
from shoal.refinement.schedule import nothing_born
from shoal.sequential.prior.jitter import jittered

WORTH_A_ROW = 1e-6
"""Least rise of the bound, in nats a window row, for a solution to be worth adopting."""
RefinementMethod: TypeAlias = Literal["vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd", "cfsd"]


class Problem(NamedTuple):
    """A live mixture of T components, N rows of the window, and the past before them."""

    family: AnyFamily
    """The prior in force."""
    concentration: float
    """Of the Dirichlet process, > 0."""
    rows: Rows
    """(N, D) the window's points, oldest first."""
    weights: Array
    """(N,) > 0: weight of each point, after decay."""
    past: Past
    """Statistics of the points that have left the window, T rows, and their pair entropies (T, T)."""
    live: Any
    """Statistics of past and window together, T rows, as in the stream; the search starts at these components."""
    reestimate_prior: bool
    """Whether the prior is estimated again (prior `auto` or `hierarchical`). False keeps the user's."""
    hierarchical: bool = False
    """Whether the whole prior of covariances is estimated too."""
    confirmed: bool = False
    """Whether the last refinement kept the structure, and no component of notable mass was born since."""
    copies: int = 1
    """How often a typical row occurs in the window, >= 1. All its copies are one observation for the bound."""

    @property
    def bound_weights(self) -> Array:
        """(N,) weight of each row in the bound."""
        return self.weights / self.copies

    @property
    def start(self) -> Any:
        """Statistics of past and window, T rows, as the bound counts them."""
        if self.copies == 1:
            return self.live
        past = self.past.stats
        return self.family.add(past, self.family.scale(self.family.subtract(self.live, past), 1.0 / self.copies))


class Solution(NamedTuple):
    """A mixture of T' components, in decreasing mass, and its relation to the live one."""

    family: AnyFamily
    """The prior, re-estimated where the problem asks for it."""
    stats: Any
    """Statistics of past and window together, T' rows, from `resp` and the problem's past."""
    resp: scipy.sparse.csr_matrix
    """(N, T') responsibilities of the window's rows, each row summing to one, entries below a floor dropped."""
    live_resp: scipy.sparse.csr_matrix
    """(N, T) responsibilities of the live components, where the search started."""
    past_stats: Any
    """Statistics of the past by row of the solution, T' rows: the problem's, joined, or shared between two children."""
    past_pairs: Array
    """(T', T') pair entropies of the past after the moves that the search made, nats."""
    past_entropy: float
    """Entropy of the past's responsibilities as the bounds count it, after those moves, nats."""
    past_row: IntArray
    """(T,) the row of the solution that holds the past of each live component, or the larger share of it."""
    bound_before: float
    """The functional at the live mixture, after one E- and one M-step, nats."""
    bound_after: float
    """The same functional at the solution, on the same points, nats; never below `bound_before`."""
    tail_mass: float
    """Decayed mass that moved between components when small responsibilities were dropped."""
    rounds: int
    """Passes over the rows, all trials included."""
    changed: bool
    """Whether the structure differs: a component was split, joined or removed."""
    report: dict[str, Any]
    """Facts for people: counts of moves, and whether the prior changed."""

    @property
    def worthwhile(self) -> bool:
        """Whether the bound rose by more than `WORTH_A_ROW` a window row."""
        return self.bound_after - self.bound_before > WORTH_A_ROW * self.resp.shape[0]


def window_start(state: MixtureState) -> int | None:
    """Points seen before the first row of the window: the window is the rows (window_start, points_seen].

    None where the state keeps no window (`window=0`, method `sva` or `sva-pm`, or before the first row).
    """
    return None if state.past is None else state.past.offset


def forget_window(state: MixtureState) -> MixtureState:
    """The state with an empty window from `points_seen`, for a caller that has lost rows of the old window.

    The statistics stay, as past. Refinements of earlier states can no longer be adopted.
    """
    return with_new_window(state)


def restored(state: MixtureState, at: int) -> MixtureState:
    """The state after a restore with number `at` >= 0, unique among the restores of the stream (the seq of its log).

    Refinements of earlier states can no longer be adopted.
    """
    return state._replace(schedule=state.schedule._replace(restored_at=at), round=None)


def row_weights(state: MixtureState, first: int, n: int) -> Array:
    """(n,) what the decays since have left of the weights of the rows (first, first + n] at `points_seen`.

    A decay comes after its point and weakens it too. The half-life must not have changed since `first`.
    """
    return left_since(state, np.arange(first, first + n))


def window_points(state: MixtureState, rows: Rows) -> Points:
    """The raw rows (past.offset, points_seen] of a live state in the coordinates of its family (N, D)."""
    assert state.past is not None
    raw = state.settings.domain.convert(unweighted(rows))  # rows of an automatic family may be kept as tables
    z: Points = standardised(jittered(raw, state.jitter, state.past.offset), state.location, state.scale)
    return filled(state, z) if state.settings.takes_holes else z


def filled(state: MixtureState, z: Points) -> Points:
    """Standardised rows (N, D) of the window, each missing value drawn under the live mixture: from the component that
    fits the observed features best, given these.

    Batch inference needs whole rows. A draw keeps the variances of the components, which a mean would shrink. The
    random numbers are those of the row's offset and the setting `seed`, so that the same state fills a row in the same
    way.
    """
    holed = np.flatnonzero(rows_with_holes(z))
    if holed.size == 0 or state.n_components == 0 or state.prior is None or state.past is None:
        return z
    family, n = state.prior, state.n_components
    params, log_mass = family.posterior(live_rows(state.stats, n)), np.log(state.stats[0][:n])
    parts = as_table(z[holed])
    best = (marginal_log_predictive(family, params, parts) + log_mass).argmax(axis=1)
    for i, (row, k) in enumerate(zip(holed.tolist(), best.tolist(), strict=True)):
        rng = np.random.default_rng([state.settings.seed, state.past.offset + 1 + row])
        parts[i] = drawn_missing(family, take(params, slice(k, k + 1)), parts[i], rng)
    whole = as_table(z).copy()
    whole[holed] = parts
    return state.settings.domain.convert(whole)


def window_problem(state: MixtureState, rows: Rows) -> Problem:
    """The problem of the raw rows (past.offset, points_seen] of a live state. Raises RefinementError."""
    _check(state, rows)
    assert state.past is not None
    assert state.prior is not None
    n, start, own = state.n_components, state.past.offset, weights_of(rows)
    aged = row_weights(state, start, len(rows))
    return Problem(
        family=state.prior,
        concentration=state.settings.concentration,
        rows=working_rows(state.prior, window_points(state, rows)),
        weights=aged if own is None else own * aged,
        past=Past(live_rows(state.past.stats, n), state.past.pairs[:n, :n]),
        live=live_rows(state.stats, n),
        reestimate_prior=state.settings.learns_prior,
        hierarchical=state.settings.prior == "hierarchical",
        confirmed=state.schedule.periods > 1 and nothing_born(state),
        copies=typical_copies(unweighted(rows)) if state.settings.domain.unbounded else 1,
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
        needed = max(settings.warmup_points, state.next_refit)  # more where all rows so far are equal
        raise RefinementError(f"the stream is warming up ({state.points_seen} of {needed} rows); refine it afterwards")
    due = state.points_seen - state.past.offset
    if len(rows) != due:
        raise RefinementError(f"{len(rows)} rows were given, but the window has {due}; give all rows since its start")
    if due == 0:
        raise RefinementError("the window is empty; learn some rows first")
