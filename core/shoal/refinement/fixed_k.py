"""Refinement with a fixed number of components: responsibilities change, and no component is born or joined.

Each round finds all responsibilities under the label model of the method, then all parameters. The bounds of the
methods differ and some are approximate, so the bound of `inference.sweep` selects the best round (ERRATA 0.1, 2.6).
The counts of the window are added to the masses of the past.

    tsb, o-tsb, fsd      expected log weights of truncated sticks, or of a symmetric Dirichlet
    ctsb, o-ctsb, cfsd   one row after another given the counts of the others, to second order; each row counts as one
                         whole point there, whatever its weight in the statistics
    the o-methods        components put in their best order between the halves of a round
    fast-vdp             rows in one leaf of a tree share their responsibilities (Kurihara, Welling and Vlassis 2006)
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, csr_matrix

from shoal.errors import RefinementError
from shoal.families.natural_statistics import Origin, origin_for, seen_from, statistics
from shoal.inference import (
    Model,
    Responsibilities,
    State,
    SweepStart,
    WindowData,
    converge,
    m_step,
    normalized,
    swept,
    swept_from,
)
from shoal.points.arrays import Array, IntArray
from shoal.variational import (
    Cells,
    CountMoments,
    Labels,
    NodeFamily,
    Sticks,
    Symmetric,
    Tree,
    cells_of,
    count_moments,
    grow_tree,
    leaves,
    node_past,
    node_rows,
    taylor_sweep_inplace,
)

_ROUNDS = 30
_TOLERANCE = 1e-6
"""Nats a row: a round that gains less is the last."""
_SMALLEST = 1e-300
_LOST_DIGITS = (
    "fast-vdp adds up squares about one point, but rows of the window lie so far apart that the widths of components "
    "are lost; refine by method='vdp'"
)
_LEAVES, _LEAF_ROWS = 500, 20.0
_LEAF_SWEEPS = 200
_CONVERGED = 1e-7
"""Nats a row: a sweep on leaves that gains less is the last."""


class LabelMethod(NamedTuple):
    """A label model and the kind of its rounds."""

    symmetric: bool
    collapsed: bool
    ordered: bool


METHODS = {
    "tsb": LabelMethod(False, False, False),
    "o-tsb": LabelMethod(False, False, True),
    "fsd": LabelMethod(True, False, False),
    "ctsb": LabelMethod(False, True, False),
    "o-ctsb": LabelMethod(False, True, True),
    "cfsd": LabelMethod(True, True, False),
}
"""The methods of fixed size by name."""


def reassigned(data: WindowData, model: Model, state: State, method: LabelMethod) -> State:
    """The best round from `state` by the functional; `state` itself if none raised it."""
    labels: Labels = Symmetric(model.sticks.a2) if method.symmetric else Sticks(model.sticks.a2)
    best, now = state, state
    order = np.argsort(-state.mass, kind="stable")
    for _ in range(_ROUNDS):
        if method.ordered:
            order = order[labels.best_order(now.mass[order])]
        e_step = _collapsed if method.collapsed else _expected
        found = e_step(data, model, now, labels, order)
        after = m_step(data, model, found, now.past, now.tags, model.family.posterior(now.stats))
        data.count_pass(after.bound, after.n_components, "dividing")
        gain, now = after.bound - now.bound, after
        best = now if now.bound > best.bound else best
        if abs(gain) <= _TOLERANCE * data.total:
            break
    return best


def _expected(data: WindowData, model: Model, state: State, labels: Labels, order: IntArray) -> Responsibilities:
    """All rows at once, under expected log weights."""
    weight = np.empty(order.size)
    weight[order] = labels.expected_log_weight(state.mass[order])
    scores = data.score_blocks(model.family, model.family.posterior(state.stats))
    return normalized(data, scores, weight)


def _collapsed(data: WindowData, model: Model, state: State, labels: Labels, order: IntArray) -> Responsibilities:
    """One row after another (Kurihara, Welling and Teh 2007, eq. 21, with ERRATA 2.2)."""
    terms = labels.terms(state.past.mass[order], data.n_rows)
    resp = state.resp[:, order].tocsr()
    moments = _moments(data, resp, terms.tail.size)
    back = np.argsort(order)
    params = model.family.posterior(state.stats)

    def scores() -> Iterator[tuple[slice, Array]]:
        for part, score in data.score_blocks(model.family, params):
            share = resp[part].toarray()
            taylor_sweep_inplace(share, np.ascontiguousarray(score[:, order]), terms.own, terms.tail, *moments)
            yield part, np.log(np.maximum(share[:, back], _SMALLEST))

    return normalized(data, scores(), np.zeros(order.size))


def _moments(data: WindowData, resp: csr_matrix, n_tails: int) -> CountMoments:
    """Moments of the window's counts, from blocks of dense rows."""
    found: Any = None
    step = max(64, (1 << 19) // resp.shape[1])
    for start in range(0, data.n_rows, step):
        block = count_moments(resp[start : start + step].toarray(), n_tails)
        found = block if found is None else CountMoments(*(a + b for a, b in zip(found, block, strict=True)))
    moments: CountMoments = found
    return moments


def reassigned_by_leaves(data: WindowData, model: Model, state: State, rng: np.random.Generator) -> State:
    """The better of `state` and the result of sweeps on leaves, followed by two on rows.

    Raises RefinementError where sums of squares about one origin do not hold the widths of components.
    """
    family = model.family
    origin = origin_for(family, data.x)
    tree = grow_tree(family, data.x, origin, max(_LEAF_ROWS, data.n_rows / _LEAVES), rng)
    cells = cells_of(family, tree, leaves(tree), origin)
    nodes: Any = NodeFamily(family, origin, cells.width, cells.location.shape[1])
    rows, weights = _weighted_leaves(data, model, tree, cells, origin)
    leaf_data = WindowData(rows, weights)
    leaf_model = model._replace(family=nodes)
    params = seen_from(family, family.posterior(state.stats), origin)
    past = node_past(nodes, state.past)
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = swept_from(leaf_data, leaf_model, SweepStart(params, state.window_mass, past, state.tags))
            found = converge(leaf_data, leaf_model, found, _CONVERGED * data.total, _LEAF_SWEEPS)
    except np.linalg.LinAlgError as error:
        raise RefinementError(_LOST_DIGITS) from error
    if not np.isfinite(found.bound):
        raise RefinementError(_LOST_DIGITS)
    params = seen_from(family, nodes.posterior(found.stats), Origin(-origin.point, origin.located))
    after = swept_from(data, model, SweepStart(params, found.window_mass, state.past, state.tags))
    data.count_pass(after.bound, after.n_components, "dividing")
    after = swept(data, model, after)
    return after if after.bound > state.bound else state


def _weighted_leaves(data: WindowData, model: Model, tree: Tree, cells: Cells, origin: Origin) -> tuple[Array, Array]:
    """Leaves as rows of the node family, and their weights: sums of the weights of their rows (ERRATA 1.14)."""
    if data.unweighted:
        return node_rows(cells, tree.log_carrier[leaves(tree)]), cells.mass
    place = np.searchsorted(leaves(tree), tree.leaf)
    member = csr_array((data.weights, (place, np.arange(data.n_rows))), (cells.n_cells, data.n_rows))
    mass: Array = np.asarray(member.sum(axis=1)).ravel()
    sums = np.zeros((cells.n_cells, cells.width + 1))
    step = max(256, (1 << 20) // cells.width)
    for start in range(0, data.n_rows, step):
        part = slice(start, start + step)
        found = statistics(model.family, data.x[part], origin)
        own: Any = member[:, part]
        rows = own @ found.rows
        sums[:, :-1] += rows.toarray() if isinstance(rows, csr_array) else rows
        sums[:, -1] += own @ found.log_carrier
    sums /= np.where(mass > 0.0, mass, 1.0)[:, None]
    return node_rows(cells._replace(rows=sums[:, :-1]), sums[:, -1]), mass
