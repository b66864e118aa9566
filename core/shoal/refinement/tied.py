"""Refinement by Fast-VDP: rows in one leaf of a tree share their responsibilities; rounds cost by the leaves.

Kurihara, Welling and Vlassis (2006), sections 5-6, from the live components and with their past tied to them; none is
born or joined. What the tied rounds find, rows divide once more each by itself, for that is what is adopted.
"""

from typing import Any, cast

import numpy as np
from scipy.sparse import csr_array

from shoal.families.natural_statistics import Origin, natural_gain, origin_for, seen_from, statistics
from shoal.mixture.batch import Past
from shoal.points.arrays import Array
from shoal.refinement.ground import Ground
from shoal.refinement.sweeps import Model, State, stepped, sweep
from shoal.variational.tree import Tree, cells_of, grow, leaves
from shoal.variational.vdp import past_carrier
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_past import tied_of
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import Totals, model_of
from shoal.variational.vdp_sticks import stick_prior

_LEAVES, _LEAF_ROWS = 500, 20.0
_TOLERANCE = 1e-7
_ROUNDS = 200


def redivided_by_leaves(ground: Ground, model: Model, state: State, rng: np.random.Generator) -> State:
    """The better of `state` and of what rounds on leaves, then two on rows, make of it."""
    family = model.family
    origin = origin_for(family, ground.x)
    tree = grow(family, ground.x, origin, max(_LEAF_ROWS, ground.n_rows / _LEAVES), rng)
    cells = _weighted(ground, model, tree, origin)
    past = Past(state.held.stats, state.held.pairs)
    tied = tied_of(family, past, origin)
    constants = model_of(family, stick_prior(model.concentration, None), origin, past_carrier(family, past, origin))
    run = Run(constants, _TOLERANCE * ground.total, _ROUNDS, rng, None)
    window = natural_gain(family, state.stats, origin) - tied.natural
    totals = Totals(np.vstack([window, np.zeros(window.shape[1])]), np.append(state.window_mass, 0.0), 0.0)
    found = run.fitted(cells, totals, tied, np.arange(state.n_components))
    found = run.settle(cells, found, "settling")
    back = np.argsort(found.tags)
    params = family.from_natural(constants.prior_natural + found.natural[back])
    params = seen_from(family, params, Origin(-origin.point, origin.located))
    mass = cast(Array, np.maximum(found.totals.mass[:-1][back], 0.0))
    after = stepped(ground, model, params, mass, state.held, state.tags)
    ground.tell(after.bound, after.n_components, "dividing")
    after = sweep(ground, model, after)
    return after if after.bound > state.bound else state


def _weighted(ground: Ground, model: Model, tree: Tree, origin: Origin) -> Cells:
    """The leaves as cells, each row counting by its weight (ERRATA 1.14: means of t(x) and of log h(x))."""
    cells = cells_of(model.family, tree, leaves(tree), origin)
    if ground.even:
        return cells
    place = np.searchsorted(leaves(tree), tree.leaf)
    member = csr_array((ground.weights, (place, np.arange(ground.n_rows))), (cells.n_cells, ground.n_rows))
    mass: Array = np.asarray(member.sum(axis=1)).ravel()
    share = 1.0 / np.where(mass > 0.0, mass, 1.0)
    rows, carrier = np.zeros((cells.n_cells, cells.reach.size)), 0.0
    step = max(256, (1 << 20) // cells.reach.size)
    for start in range(0, ground.n_rows, step):
        part = slice(start, start + step)
        found = statistics(model.family, ground.x[part], origin)
        sums: Any = member[:, part] @ found.rows
        rows += cast(Array, sums.toarray() if isinstance(sums, csr_array) else sums)
        carrier += float(ground.weights[part] @ found.log_carrier)
    rows *= share[:, None]
    return cells._replace(mass=mass, rows=rows, log_carrier=carrier, n_points=ground.total)
