"""Whether any join could gain: the door to the kernels that most checks of a stream end at."""

from typing import Any, cast

import numpy as np

from shoal.families import AnyFamily
from shoal.families.predictive_cache import BoundsJoins, Call
from shoal.mixture.state import MixtureState
from shoal.points.arrays import Array, BoolArray

_ROUNDING, _ROUNDING_A_POINT = 1e-3, 1e-8
"""Nats by which log gammas and log determinants of so many points, the prior's own counted, may be off, generously."""


def join_ceiling(state: MixtureState, fresh: BoolArray | None, enough: float) -> float:
    """No less than the largest `merge_gain` of two components, nats, to rounding; needs pair rule `entropy`.

    fresh (K,): of pairs with one of these; None: of all. -infinity where there is no such pair. Infinity where there is
    no quick answer: for the families of counts and of vectors, a shared full covariance, many features or components.
    Where it is below `enough` it may be above the gain by any amount. Rounding is allowed for under priors of the
    strength of up to 1e10 points.
    """
    n = state.n_components
    asking = np.ones(n, dtype=np.bool_) if fresh is None else fresh
    if state.prior is None or n < 2 or not asking.any():
        return -np.inf
    if not hasattr(state.prior, "join_ceiling"):
        return np.inf
    bounds, others = cast(BoundsJoins, state.prior), n - int(asking.sum())
    if not bounds.join_ceiling_is_quick((n * (n - 1) - others * (others - 1)) // 2, n):
        return np.inf
    points = float(state.stats[0][:n].sum()) + bounds.prior_points
    slack = _ROUNDING + _ROUNDING_A_POINT * points
    call = ceiling_call(state.prior, state.stats, state.pairs, asking, state.settings.concentration, enough - slack)
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
