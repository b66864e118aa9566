"""Candidate pairs for joins, and an upper bound on the gain of any join.

Most checks of a stream find no gain and end after one call of a kernel (`join_ceiling`). Otherwise gains are computed
for near pairs and overlapping pairs, at most four a component.
"""

from typing import Any, cast

import numpy as np

from shoal.families import AnyFamily
from shoal.families.predictive_cache import BoundsJoins, Call
from shoal.mixture.state import MixtureState
from shoal.points.arrays import Array, BoolArray, IntArray

_CHUNK_ROWS = 256
_ROUNDING, _ROUNDING_A_POINT = 1e-3, 1e-8
"""Rounding errors allowed for, in nats: of log gammas and log determinants, and per point, the prior's own included."""


def candidate_pairs(
    family: AnyFamily, stats: Any, pairs: Array, fresh: BoolArray | None = None
) -> tuple[IntArray, IntArray]:
    """Rows (i, j), i < j, each pair once, in order: every component with its two nearest by `family.positions`, and
    with the two of largest running pair sum (K, K), where above zero.

    fresh (K,): only pairs with one of these components; None: all pairs.
    Cost K^2 D for the distances (one matrix product in chunks) and K^2 for the pair sums; memory O(K) beside the input.
    With F fresh ones, F K D.
    """
    n = len(stats[0])
    asking = np.arange(n) if fresh is None else np.flatnonzero(fresh)
    if asking.size == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    points = family.positions(stats)
    norms = np.einsum("kd,kd->k", points, points)
    found = []
    for start in range(0, asking.size, _CHUNK_ROWS):
        rows = asking[start : start + _CHUNK_ROWS]
        near = norms[None, :] - 2.0 * (points[rows] @ points.T)  # |b|^2 - 2 a'b orders the others as the distance does
        near[np.arange(rows.size), rows] = np.inf
        found += [_two_least(near, rows, np.inf), _two_least(-pairs[rows], rows, 0.0)]
    i, j = np.concatenate(found, axis=1)
    codes = np.unique(np.minimum(i, j) * n + np.maximum(i, j))
    return codes // n, codes % n


def _two_least(values: Array, rows: IntArray, below: float) -> IntArray:
    """(2, M) pairs of a row and each of its two smallest columns, if below `below`; `values` is overwritten."""
    own = np.arange(len(rows))
    found = []
    for _ in range(2):
        columns = values.argmin(axis=1)
        good = values[own, columns] < below
        found.append(np.stack([rows[good], columns[good]]))
        values[own, columns] = np.inf
    return np.concatenate(found, axis=1)


def join_ceiling(state: MixtureState, fresh: BoolArray | None, enough: float) -> float:
    """An upper bound on `merge_gain` over pairs of components, nats, to rounding; needs pair rule `entropy`.

    fresh (K,): only pairs with one of these components; None: all pairs. -infinity where there is no such pair.
    Infinity where there is no quick answer: for the families of counts and of vectors, a shared full covariance, many
    features or components. A value below `enough` may exceed the largest gain by any amount. The allowance for rounding
    covers priors with the strength of up to 1e10 points.
    """
    n = state.n_components
    asking = np.ones(n, dtype=np.bool_) if fresh is None else fresh
    if state.prior is None or n < 2 or not asking.any():
        return -np.inf
    return gain_ceiling(state.prior, state.stats, state.pairs, asking, state.settings.concentration, enough)


def gain_ceiling(
    prior: AnyFamily, stats: Any, pairs: Array, fresh: BoolArray, concentration: float, enough: float
) -> float:
    """An upper bound, as `join_ceiling` says, on the gain of a join among the first rows of statistics and pair sums,
    as many as `fresh` (K,) has, of which one is `fresh`; as if there were no other components."""
    if not hasattr(prior, "join_ceiling"):
        return np.inf
    n = fresh.size
    bounds, others = cast(BoundsJoins, prior), n - int(np.count_nonzero(fresh))
    if not bounds.join_ceiling_is_quick((n * (n - 1) - others * (others - 1)) // 2, n):
        return np.inf
    points = float(stats[0][:n].sum()) + bounds.prior_points
    slack = _ROUNDING + _ROUNDING_A_POINT * points
    call = ceiling_call(prior, stats, pairs, fresh, concentration, enough - slack)
    if call is None:
        return np.inf
    kernel, arguments = call
    return float(kernel(*arguments)) + slack


def ceiling_call(
    prior: AnyFamily, stats: Any, pairs: Array, fresh: BoolArray, concentration: float, enough: float
) -> Call | None:
    """The kernel, and what it is called with, for the first rows of statistics and pair sums, as many as `fresh` (K,)
    has; None where the family has none. Infinity of it: no answer."""
    if not hasattr(prior, "join_ceiling"):
        return None
    return cast(BoundsJoins, prior).join_ceiling(stats, pairs, fresh, float(concentration), float(enough))
