"""A fit on the leaves of a tree alone, for points that are elsewhere: too many for memory, on disk, in other processes.

The tree holds the sums of its leaves (`tree.LeafSums`), which others have added up. The search is that of `fast_vdp`.
What it found is given in the coordinates of the points, so that whoever has the points can continue with them.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.families.natural_statistics import Origin, natural_gain, seen_from, statistics
from shoal.inference import StickPrior, locations_of, units_of
from shoal.mixture import ProgressCallback
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.variational.rounds import Run, State, Totals, model_of, normalize, round_of, scorer, without_past
from shoal.variational.search import Moves, search_on_tree
from shoal.variational.tree import Planes, Tree, cells_of, finer_planes, leaf_sums


class TreeSearch(NamedTuple):
    """Settings of a search on a tree."""

    sticks: StickPrior
    tol: float
    """Nats a point that a move must gain."""
    max_iter: int
    moves: Moves
    expansion: float
    """Nats a point that tying nodes above the leaves may cost at the end, > 0."""
    candidate_points: int | None = 2000


class TreeFit(NamedTuple):
    """T components in decreasing mass, found on the leaves of a tree."""

    params: Any
    """Posteriors, T rows, in the coordinates of the points."""
    mass: Array  # (T,) points
    scores: tuple[Array, Array]  # slopes (T + 1, P) and offsets (T + 1,), see `rounds.scorer`; the tail last
    leaf_log_norm: Array  # (L,) log sum exp of the scores at the mean statistics of each leaf, carrier excluded
    leaf_mass: Array  # (L,) points
    elbo: float  # of tied responsibilities, nats
    history: Array  # bound after every round
    converged: bool


class Known(NamedTuple):
    """What is known of T components when a search starts from them."""

    stats: Any
    """Their statistics, T rows."""
    entropy: float  # of the responsibilities of the points, nats


def fit_tree(
    family: AnyFamily,
    tree: Tree,
    planes: Planes,
    origin: Origin,
    search: TreeSearch,
    *,
    rng: np.random.Generator,
    known: Known | None = None,
    progress: ProgressCallback = None,
) -> TreeFit:
    """Search for components on a tree, from one component, or from those that are known.

    Its `elbo` is a bound on the evidence of all points behind the leaves (ERRATA 1.14).
    """
    n = float(tree.mass[0])
    run = Run(
        model_of(family, search.sticks, origin),
        search.tol * n,
        search.max_iter,
        rng,
        search.candidate_points,
        progress,
    )
    start = None if known is None else _start(run, tree, origin, known)
    found = search_on_tree(run, tree, search.expansion, search.moves, start)
    state = run.settle(found.cells, found.state, "settling", share=0.01)
    slopes, offsets = scorer(run.model, state)
    leaves = planes.leaves
    params = seen_from(family, state.params, Origin(-origin.point, origin.located))
    log_norm = normalize(slopes, offsets, tree.rows[leaves])[1]
    history = np.array(run.history)
    history[-1] = state.elbo
    return TreeFit(
        params, state.mass, (slopes, offsets), log_norm, tree.mass[leaves], state.elbo, history, found.converged
    )


def _start(run: Run, tree: Tree, origin: Origin, known: Known) -> State:
    """The state of known components after a round on the leaves."""
    family, mass = run.model.family, np.asarray(known.stats[0])
    natural = natural_gain(family, known.stats, origin)
    totals = Totals(np.vstack([natural, np.zeros(natural.shape[1])]), np.append(mass, 0.0), known.entropy)
    cells = cells_of(family, tree, np.flatnonzero(tree.left < 0), origin)
    state = run.fitted(cells, totals, without_past(mass.size))
    state, _ = round_of(run.model, cells, state)
    run.note(state.elbo, state.n_components, "starting")
    return state


def leaf_log_norms(family: AnyFamily, planes: Planes, x: Points, origin: Origin, fit: TreeFit) -> Array:
    """(L,) sums of log sum exp of the scores over points x (N, D), by leaf, carrier excluded.

    Summed over all points, less `leaf_mass` times `leaf_log_norm`, they are what the bound would gain if the points of
    each leaf no longer shared responsibilities: never negative.
    """
    of_point = leaf_sums(planes, locations_of(family, x))[1]
    log_norm = normalize(*fit.scores, statistics(family, x, origin).rows)[1]
    sums: Array = np.bincount(of_point, log_norm, minlength=len(planes.leaves)).astype(np.float64)
    return sums


def split_leaves(family: AnyFamily, planes: Planes, sample: Points, cost: Array, at_most: int, least: int) -> Planes:
    """Planes with the leaves of the highest cost (L,), nats, divided, until there are `at_most` leaves or no more cost.

    New planes follow from the points of `sample` (N, D) in each leaf, at least `least` on either side of a leaf that is
    divided.
    """
    where = locations_of(family, sample)
    return finer_planes(planes, where, _in_order(cost), at_most, least, units_of(family))


def _in_order(cost: Array) -> IntArray:
    """Leaves with any cost, the highest first."""
    order = np.argsort(-cost, kind="stable")
    return order[cost[order] > 0.0]
