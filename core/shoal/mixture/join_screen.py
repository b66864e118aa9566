"""Whether any join could gain: the door to the kernels that most checks of a stream end at."""

from typing import Any

import numpy as np

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.mixture.join_screen_kernel import diagonal_ceiling, gaussian_ceiling, spherical_ceiling
from shoal.mixture.state import MixtureState
from shoal.points.arrays import Array, BoolArray

MOST_DIFFERENCES, MOST_LOGARITHMS, MOST_PRODUCTS, MOST_FACTORS = 1 << 23, 1 << 20, 1 << 18, 1 << 22
"""Features of all pairs asked for, with a known variance and with variances in each feature; elements of their
matrices, under full covariances, and K D^3: up to so many the kernels take less time than NumPy for its candidates."""

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
    if not _worthwhile(state.prior, n, int(asking.sum())):
        return np.inf
    points = float(state.stats[0][:n].sum()) + _points_of(state.prior)
    slack = _ROUNDING + _ROUNDING_A_POINT * points
    call = ceiling_call(state.prior, state.stats, state.pairs, asking, state.settings.concentration, enough - slack)
    if call is None:
        return np.inf
    kernel, arguments = call
    return float(kernel(*arguments)) + slack


def _points_of(prior: AnyFamily) -> float:
    """Points that the prior's log gammas count for."""
    if isinstance(prior, NormalInverseGamma):
        return 2.0 * prior.shape
    return prior.dof if isinstance(prior, NormalInverseWishart) else 0.0


def _worthwhile(prior: AnyFamily, n: int, n_asking: int) -> bool:
    """Whether to look at the pairs of n components with one of `n_asking`."""
    d, others = prior.n_features, n - n_asking
    pairs = (n * (n - 1) - others * (others - 1)) // 2
    if isinstance(prior, NormalInverseWishart):
        return pairs * d * d <= MOST_PRODUCTS and n * d**3 <= MOST_FACTORS
    return pairs * d <= (MOST_LOGARITHMS if isinstance(prior, NormalInverseGamma) else MOST_DIFFERENCES)


def ceiling_call(
    prior: AnyFamily, stats: Any, pairs: Array, fresh: BoolArray, concentration: float, enough: float
) -> tuple[Any, tuple[Any, ...]] | None:
    """The kernel, and what it is called with, for the first rows of statistics and pair sums, as many as `fresh` (K,)
    has; None where the family has none. Infinity of it: no answer."""
    given = (stats, pairs, fresh, float(concentration), float(enough))
    if isinstance(prior, NormalInverseGamma):
        return diagonal_ceiling, (*given, prior.mean, prior.mean_strength, prior.shape, prior.rate)
    if isinstance(prior, NormalInverseWishart):
        return gaussian_ceiling, (*given, prior.mean, prior.mean_strength, prior.dof, prior.scale_matrix)
    if isinstance(prior, KnownCovariance) and prior.spherical:
        precision, variance = float(prior.prior_precision[0]), float(prior.covariance)
        return spherical_ceiling, (*given, prior.mean, precision, variance)
    return None
