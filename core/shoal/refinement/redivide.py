"""Refinement by a label model of fixed size: the live components divide the window anew, and none is born or joined.

Each round is all responsibilities under the method's own label model, then all parameters. What the method itself
bounds differs from method to method and may be approximate, so the functional of `sweeps` says which round was best
(ERRATA 0.1, 2.6). `base`, the counts that the window's are added to, are the past's masses.

    tsb, o-tsb, fsd      expected log weights of truncated sticks, or of a symmetric Dirichlet
    ctsb, o-ctsb, cfsd   one row after another given the others' counts, to second order; a row counts as one whole
                         point in them, whatever it still weighs in the statistics
    the o-methods        components put in their best order between the halves of a round
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.points.arrays import Array, IntArray
from shoal.refinement.ground import Ground
from shoal.refinement.sweeps import Division, Model, State, divided, fitted, sparse_rows
from shoal.variational.collapsed_kernel import taylor_sweep_inplace
from shoal.variational.poisson_binomial import CountMoments, count_moments
from shoal.variational.truncated_labels import Labels, Sticks, Symmetric

_ROUNDS = 30
_TOLERANCE = 1e-6
"""Nats a row of a round below which it is the last."""
_SMALLEST = 1e-300


class LabelMethod(NamedTuple):
    """A label model and how it is used."""

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


def redivided(ground: Ground, model: Model, state: State, method: LabelMethod) -> State:
    """The best of the rounds from `state`, by the functional; `state` itself if none raised it."""
    labels: Labels = Symmetric(model.concentration) if method.symmetric else Sticks(model.concentration)
    best, now = state, state
    order = np.argsort(-state.mass, kind="stable")
    for _ in range(_ROUNDS):
        if method.ordered:
            order = order[labels.best_order(now.mass[order])]
        divide = _collapsed if method.collapsed else _expected
        division = divide(ground, model, now, labels, order)
        after = fitted(ground, model, division, now.held, now.tags)
        ground.tell(after.bound, after.n_components, "dividing")
        gain, now = after.bound - now.bound, after
        best = now if now.bound > best.bound else best
        if abs(gain) <= _TOLERANCE * ground.total:
            break
    return best


def _expected(ground: Ground, model: Model, state: State, labels: Labels, order: IntArray) -> Division:
    """All rows at once, under expected log weights."""
    weight = np.empty(order.size)
    weight[order] = labels.expected_log_weight(state.mass[order])
    return divided(ground, model.family, model.family.posterior(state.stats), weight)


def _collapsed(ground: Ground, model: Model, state: State, labels: Labels, order: IntArray) -> Division:
    """One row after another (Kurihara, Welling and Teh 2007, eq. 21, with ERRATA 2.2)."""
    terms = labels.terms(state.held.mass[order], ground.n_rows)
    resp = state.resp[:, order].tocsr()
    moments = _moments(ground, resp, terms.tail.size)
    back = np.argsort(order)
    params = model.family.posterior(state.stats)

    def scores() -> Iterator[tuple[slice, Array]]:
        for part, score in ground.scores(model.family, params):
            share = resp[part].toarray()
            taylor_sweep_inplace(share, np.ascontiguousarray(score[:, order]), terms.own, terms.tail, *moments)
            yield part, np.log(np.maximum(share[:, back], _SMALLEST))

    return sparse_rows(ground, scores(), np.zeros(order.size))


def _moments(ground: Ground, resp: csr_matrix, n_tails: int) -> CountMoments:
    """Moments of the window's counts, from blocks of dense rows."""
    found: Any = None
    step = max(64, (1 << 19) // resp.shape[1])
    for start in range(0, ground.n_rows, step):
        block = count_moments(resp[start : start + step].toarray(), n_tails)
        found = block if found is None else CountMoments(*(a + b for a, b in zip(found, block, strict=True)))
    moments: CountMoments = found
    return moments
