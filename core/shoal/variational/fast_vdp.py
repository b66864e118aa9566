"""Accelerated variational Dirichlet process mixture: points in one node of a tree share their responsibilities.

Kurihara, Welling and Vlassis (2006), sections 5-6. The family of q is that of `vdp` with q(z_n) tied within the nodes
of a frontier, so the bound is one at every frontier, rises when nodes are opened at the same parameters, and is that
of `vdp` when every point stands alone (ERRATA 1.15). Components are released on one frontier, so that T is compared
with T + 1 on the same expansion (ERRATA 1.9); nodes are opened in between.
"""

from functools import singledispatch
from typing import Any

import numpy as np

from shoal.arrays import Array, IntArray
from shoal.errors import SettingError
from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.mixture.batch import BatchFit, ProgressCallback
from shoal.variational.tree import Tree, cells_of, expanded, grow, leaves, to_points, top
from shoal.variational.vdp import Moves, check_points, start
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_default import improve
from shoal.variational.vdp_features import origin_for
from shoal.variational.vdp_paper import release
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import State, model_of
from shoal.variational.vdp_sticks import log_mean_weights, stick_prior

_FIRST_NODES = 64
"""Nodes that the search starts on."""


def fit_fast_vdp(
    family: AnyFamily,
    x: Array,
    *,
    concentration: float | None = None,
    sticks: tuple[float, float] | None = None,
    max_iter: int = 10_000,
    tol: float = 1e-5,
    moves: Moves = "default",
    candidate_points: int | None = 2000,
    leaf_points: float | None = None,
    expansion: float = 1e-3,
    point_resp: bool = True,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
) -> BatchFit:
    """Fit points x (N, D), N > 0, under sticks Beta(1, concentration), or Beta(*sticks).

    The tree has leaves of about `leaf_points` points (None: N / 1000, at least one). Nodes are opened until freeing all
    leaves would raise the bound by at most `expansion` nats a point at the parameters as they are; 0 opens them all,
    and with leaves of one point the result is that of `fit_vdp`. The bound is that of the tied responsibilities.
    `point_resp=False` leaves `resp` None and saves the (N, T) array. Other settings as for `fit_vdp`.

    `extra`: `sticks` (T, 2), parameters of q(v); `nodes` (1,), the size of the frontier; `tying_cost` (1,), nats, what
    freeing the leaves would gain at once; and with `point_resp` `tail` (N,), q(z_n > T).
    Raises SettingError and ShapeError.
    """
    prior = stick_prior(concentration, sticks)
    check_points(x, max_iter, tol, moves)
    size = max(1.0, len(x) / 1000) if leaf_points is None else leaf_points
    if not size >= 1.0 or not expansion >= 0.0:
        raise SettingError(f"leaf_points is {size} (at least 1) and expansion {expansion} (not negative)")
    origin = origin_for(family, x)
    model = model_of(family, prior, origin)
    run = Run(model, tol * len(x), max_iter, rng, candidate_points, progress)
    tree = grow(family, x, origin, size, rng)
    frontier = top(tree, _FIRST_NODES) if expansion > 0.0 else leaves(tree)
    cells = cells_of(family, tree, frontier, origin)
    state = start(run, cells, None)
    search = release if moves == "paper" else improve
    while True:
        state, converged = search(run, cells, run.settle(cells, state, "settling"))
        opened, cost = expanded(model, tree, frontier, state, 0.5 * expansion * len(x))
        if run.exhausted or cost <= expansion * len(x) or opened.size == frontier.size:
            break
        frontier, cells = opened, cells_of(family, tree, opened, origin)
    state, resp = run.divided(cells, run.settle(cells, state, "settling", share=0.01))
    return _fit(run, tree, cells, frontier, state, resp, point_resp, cost, converged, x)


def _fit(
    run: Run,
    tree: Tree,
    cells: Cells,
    frontier: IntArray,
    state: State,
    resp: Array,
    point_resp: bool,
    cost: float,
    converged: bool,
    x: Array,
) -> BatchFit:
    log_weight = log_mean_weights(state.sticks)
    run.history[-1] = state.elbo  # the same but for rounding
    extra = {"sticks": state.sticks, "nodes": np.array([float(frontier.size)]), "tying_cost": np.array([cost])}
    shares = None
    if point_resp:
        every = to_points(tree, frontier, resp.T)
        shares, extra["tail"] = np.ascontiguousarray(every[:, :-1]), every[:, -1].copy()
    stats = node_stats(run.model.family, cells, resp[:-1], tree, frontier, x)
    return BatchFit(
        stats,
        shares,
        log_weight[:-1],
        float(log_weight[-1]),
        state.elbo,
        np.array(run.history),
        True,
        len(run.history) - 1,
        converged,
        extra,
    )


@singledispatch
def node_stats(family: AnyFamily, cells: Cells, resp: Array, tree: Tree, frontier: IntArray, x: Array) -> Any:
    """Statistics (T) of the tied responsibilities resp (T, A); in general from the points."""
    return family.suffstats(x, np.ascontiguousarray(to_points(tree, frontier, resp.T)))


@node_stats.register(NormalInverseWishart)
@node_stats.register(NormalInverseGamma)
@node_stats.register(KnownCovariance)
def _(family: AnyFamily, cells: Cells, resp: Array, tree: Tree, frontier: IntArray, x: Array) -> Any:
    """From the nodes: the scatter of their means, plus that within."""
    assert cells.spread is not None
    weight = resp * cells.mass
    between = family.suffstats(cells.location, np.ascontiguousarray(weight.T))
    within = np.einsum("ka,ade->kde", weight, cells.spread, optimize=True)
    return between._replace(scatter=between.scatter + scatter_as(family, within))


@singledispatch
def scatter_as(family: AnyFamily, scatter: Array) -> Array:
    """A scatter (K, D, D) in the layout of the family's statistics: whole."""
    return scatter


@scatter_as.register
def _(family: NormalInverseGamma, scatter: Array) -> Array:
    return np.diagonal(scatter, axis1=1, axis2=2)


@scatter_as.register
def _(family: KnownCovariance, scatter: Array) -> Array:
    basis = family.basis
    result: Array = np.einsum("kde,de->k", scatter, basis.T @ basis)
    return result
