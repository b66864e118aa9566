"""Variational Dirichlet process mixture: Kurihara, Welling and Vlassis (2006), with ERRATA section 1.

Every point has responsibilities of its own; the tree-based engine is `fast_vdp`.
"""

from typing import Any

import numpy as np

from shoal.errors import SettingError, ShapeError
from shoal.families import AnyFamily
from shoal.families.capabilities import has_latent_variables
from shoal.families.natural_statistics import origin_for
from shoal.inference import past_of, stick_prior, summed_shares
from shoal.mixture import BatchFit, Past, ProgressCallback
from shoal.points.arrays import Array, IntArray
from shoal.variational.cells import Cells, cells_of_points
from shoal.variational.greedy_release import release
from shoal.variational.latent import check_latent, fit_latent
from shoal.variational.rounds import Run, State, model_of, round_of, stick_fit, totals_of, without_past
from shoal.variational.search import Moves, better_of_two_starts, few_points, search_points, start_on_tree


def fit_vdp(
    family: AnyFamily,
    x: Array,
    *,
    concentration: float | None = None,
    sticks: tuple[float, float] | None = None,
    max_iter: int = 10_000,
    tol: float = 1e-5,
    moves: Moves = "default",
    candidate_points: int | None = 2000,
    resp_init: Array | None = None,
    past: Past | None = None,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
) -> BatchFit:
    """Fit points x (N, D), N > 0, under sticks Beta(1, concentration), or Beta(*sticks).

    `tol` is in nats a point: a move is accepted only if it raises the bound by more than tol * N. Rounds before and
    after a move continue while one gains more than a tenth of that, at the end a hundredth. `max_iter` limits the
    rounds (all q(z), then all parameters), those of rejected moves included. Splits are proposed from at most
    `candidate_points` points of a component (None: all) and then tested on all points.

    With `resp_init` (N, T), rows summing to one, nothing is split, merged or deleted. The parameters are fitted to it
    with an empty tail, in its order. Rounds follow, with components put in decreasing mass between their halves, until
    one gains at most tol * N. `elbo_history[s]` is the bound after s of them. Without `resp_init` it holds the bound of
    the best state so far. With `past` the first T components start from its statistics, which stay whole.

    `extra`: `sticks` (T, 2), parameters of q(v); `tail` (N,), q(z_n > T); with `past` also `past_rows`, the component
    that each row of it belongs to at the end.
    Raises SettingError and ShapeError.
    """
    prior = stick_prior(concentration, sticks)
    check_points(x, max_iter, tol, moves)
    if resp_init is not None:
        _check_start(x, resp_init, past)
    if has_latent_variables(family):
        check_latent(moves, past)
        return fit_latent(family, x, prior, max_iter=max_iter, tol=tol, resp_init=resp_init, rng=rng, progress=progress)
    origin = origin_for(family, x)
    cells = cells_of_points(family, x, origin)
    model = model_of(family, prior, origin, None if past is None else past_of(past))
    run = Run(model, tol * len(x), max_iter, rng, candidate_points, progress)
    if resp_init is not None:
        state, resp, converged = _fixed(run, cells, resp_init)
        return fit_of(run, cells, state, resp, past, converged)
    state, converged = _searched(run, cells, x, moves)
    state, resp = run.divided(cells, run.settle(cells, state, "settling", share=0.01))
    return fit_of(run, cells, state, resp, past, converged)


def _searched(run: Run, cells: Cells, x: Array, moves: Moves) -> tuple[State, bool]:
    """Components by one of the searches. Returns the state, and whether the search stopped by its rule."""
    no_past, few = run.model.past.mass.size == 0, few_points(cells)
    if moves == "default" and no_past and not few:
        state = search_points(run, cells, start_on_tree(run, cells, x))
    else:
        state = run.settle(cells, run.start(cells), "settling")
        if moves == "paper":
            return release(run, cells, state)
        state = better_of_two_starts(run, cells, state) if few else search_points(run, cells, state)
    return state, not run.exhausted


def fit_of(run: Run, cells: Cells, state: State, resp: Array, past: Past | None, converged: bool) -> BatchFit:
    """The result, with statistics computed again from the points, about their own means."""
    family = run.model.family
    shares = np.ascontiguousarray(resp[:-1].T)
    run.history[-1] = state.elbo  # equal to rounding
    assert cells.points is not None, "every cell is a point"
    stats = family.suffstats(cells.points, shares)
    extra: dict[str, Any] = {"tail": resp[-1]}
    if past is not None:
        extra["past_rows"], own = _past_of_components(run, state, past)
        stats = family.add(stats, own)
    return stick_fit(stats, shares, state.sticks, state.elbo, run.history, converged, **extra)


def _past_of_components(run: Run, state: State, past: Past) -> tuple[IntArray, Any]:
    """(T0,) the component that has each row of the past, or its larger share; and the past of each component."""
    share = run.model.past.share[state.past_row] * (state.past_row >= 0)[:, None]
    stats = summed_shares(run.model.family, past.stats, share)
    return np.asarray(share.argmax(axis=0), dtype=np.int64), stats


def _fixed(run: Run, cells: Cells, resp_init: Array) -> tuple[State, Array, bool]:
    """Rounds from given responsibilities, without moves."""
    n_components, no_past = resp_init.shape[1], run.model.past.mass.size == 0
    resp = np.vstack([resp_init.T, np.zeros(cells.n_cells)])
    past_row = without_past(n_components) if no_past else np.arange(n_components)
    state = run.fitted(cells, totals_of(cells, resp), past_row, reorder=False)
    run.note(state.elbo, n_components, "fitting")
    for _ in range(run.max_iter):
        before, (state, order) = state.elbo, round_of(run.model, cells, state, resp)
        resp = resp[np.append(order, n_components)]
        run.note(state.elbo, n_components, "settling")
        if state.elbo - before <= run.threshold:
            return state, resp, True
    return state, resp, False


def check_points(x: Array, max_iter: int, tol: float, moves: str) -> None:
    """Raise ShapeError without points, SettingError for settings out of range."""
    if len(x) == 0:
        raise ShapeError("there are no points; send at least one row")
    if max_iter < 0 or not tol >= 0.0:
        raise SettingError(f"max_iter is {max_iter} and tol {tol}; neither may be negative")
    if moves not in ("default", "paper"):
        raise SettingError(f"moves is {moves!r}; choose 'default' or 'paper'")


def _check_start(x: Array, resp_init: Array, past: Past | None) -> None:
    if resp_init.ndim != 2 or len(resp_init) != len(x) or resp_init.shape[1] == 0:
        raise ShapeError(f"resp_init has shape {resp_init.shape}; send one row for each of the {len(x)} points")
    if past is not None and len(past.stats[0]) != resp_init.shape[1]:
        raise ShapeError(
            f"resp_init has {resp_init.shape[1]} columns, the past {len(past.stats[0])} components; make them equal"
        )
    if not (np.all(resp_init >= 0.0) and np.allclose(resp_init.sum(axis=1), 1.0, rtol=0.0, atol=1e-6)):
        raise SettingError("rows of resp_init must be probabilities: not negative, summing to one")
