"""Accelerated variational Dirichlet process mixture: points in one node of a tree share their responsibilities.

Kurihara, Welling and Vlassis (2006), sections 5-6. The family of q is that of `vdp`, with q(z_n) tied within the nodes
of a frontier. The value is a bound at every frontier, rises when nodes are opened at the same parameters, and equals
that of `vdp` when every node is a single point (ERRATA 1.15). Components are released on one frontier, so that T is
compared with T + 1 on the same expansion (ERRATA 1.9). Nodes are opened in between.
"""

from typing import Any

import numpy as np

from shoal.errors import SettingError
from shoal.families import AnyFamily
from shoal.families.natural_statistics import origin_for, stats_of_groups
from shoal.inference import stick_prior
from shoal.mixture import BatchFit, ProgressCallback
from shoal.points.arrays import Array, IntArray
from shoal.variational.cells import Cells, cells_of_points
from shoal.variational.rounds import Run, model_of, stick_fit
from shoal.variational.search import Found, Moves, search_on_tree
from shoal.variational.tree import Tree, grow_tree, to_points
from shoal.variational.vdp import check_points, fit_of

_LEAVES = 500
"""Default number of leaves; of fewer points each is a leaf, so that no two clusters of few points must share one. On
ten Gaussians in 16-D this costs at most half a percent of the bound. In 50-D and more it costs much, and rounds on
points at the end recover it."""
_ORIGIN_POINTS = 10_000
"""Points from which the origin is estimated: any origin near the mean of all points serves."""


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
    point_rounds: int = 0,
    point_resp: bool = True,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
) -> BatchFit:
    """Fit points x (N, D), N > 0, under sticks Beta(1, concentration), or Beta(*sticks).

    The tree has leaves of about `leaf_points` points (None: N / 500, at least 1). Nodes are opened until freeing all
    leaves would raise the bound by at most `expansion` nats a point at fixed parameters. With 0 all are opened, and
    with leaves of one point the result is that of `fit_vdp`. The bound is that of the tied responsibilities.
    `point_resp=False` leaves `resp` None and saves the (N, T) array. Other settings as for `fit_vdp`.

    `point_rounds` > 0: at the end the tree is opened down to single points, and at most so many rounds of `fit_vdp`
    follow, without moves. They end when the bound stops rising. The bound is then that of untied responsibilities, and
    never below the tied one. These rounds help in many dimensions, where tying costs most of the bound.

    `extra`: `sticks` (T, 2), parameters of q(v); `nodes` (1,), the size of the frontier; `tying_cost` (1,), the
    nats that freeing the leaves would gain at once; and with `point_resp` `tail` (N,), q(z_n > T).
    Raises SettingError and ShapeError.
    """
    prior = stick_prior(concentration, sticks)
    check_points(x, max_iter, tol, moves)
    size = _leaf_size(len(x), leaf_points, expansion, point_rounds)
    origin = origin_for(family, x[:: max(1, len(x) // _ORIGIN_POINTS)])
    run = Run(model_of(family, prior, origin), tol * len(x), max_iter, rng, candidate_points, progress)
    tree = grow_tree(family, x, origin, size, rng)
    found = search_on_tree(run, tree, expansion, moves)
    found = found._replace(state=run.settle(found.cells, found.state, "settling", share=0.01))
    if point_rounds > 0:
        return _on_points(run, cells_of_points(family, x, origin), found, point_rounds, point_resp)
    return _on_nodes(run, tree, found, point_resp, x)


def _leaf_size(n: int, leaf_points: float | None, expansion: float, point_rounds: int) -> float:
    """Points a leaf. Raises SettingError for settings out of range."""
    size = max(1.0, n / _LEAVES) if leaf_points is None else leaf_points
    if not size >= 1.0 or not expansion >= 0.0:
        raise SettingError(f"leaf_points is {size} (at least 1) and expansion {expansion} (not negative)")
    if point_rounds < 0:
        raise SettingError(f"point_rounds is {point_rounds}; it is a number of rounds, not negative")
    return size


def _on_points(run: Run, cells: Cells, found: Found, rounds: int, point_resp: bool) -> BatchFit:
    """The last rounds, on single points."""
    state = run.settle(cells, found.state, "settling points", rounds - 1)
    state, resp = run.divided(cells, state)
    fit = fit_of(run, cells, state, resp, None, found.converged)
    if not point_resp:
        fit = fit._replace(resp=None, extra={"sticks": fit.extra["sticks"]})
    fit.extra["nodes"], fit.extra["tying_cost"] = np.array([float(cells.n_cells)]), np.zeros(1)
    return fit


def _on_nodes(run: Run, tree: Tree, found: Found, point_resp: bool, x: Array) -> BatchFit:
    """One last E-step on the nodes, and the result."""
    frontier, cells = found.frontier, found.cells
    state, resp = run.divided(cells, found.state)
    run.history[-1] = state.elbo  # the same but for rounding
    extra = {"nodes": np.array([float(frontier.size)]), "tying_cost": np.array([found.cost])}
    shares = None
    if point_resp:
        every = to_points(tree, frontier, resp.T)
        shares, extra["tail"] = np.ascontiguousarray(every[:, :-1]), every[:, -1].copy()
    stats = node_stats(run.model.family, cells, resp[:-1], tree, frontier, x)
    return stick_fit(stats, shares, state.sticks, state.elbo, run.history, found.converged, **extra)


def node_stats(family: AnyFamily, cells: Cells, resp: Array, tree: Tree, frontier: IntArray, x: Array) -> Any:
    """Statistics (T) of the tied responsibilities resp (T, A): from the nodes where moments suffice, else from the
    points."""
    if cells.spread is not None:
        stats = stats_of_groups(family, resp * cells.mass, cells.location, cells.spread)
        if stats is not None:
            return stats
    return family.suffstats(x, np.ascontiguousarray(to_points(tree, frontier, resp.T)))
