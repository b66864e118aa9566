"""Whether any join could gain: the door to the kernels that most checks of a stream end at."""

from typing import Any

import numpy as np

from shoal.arrays import Array, BoolArray
from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.mixture.join_screen_kernel import diagonal_ceiling, gaussian_ceiling, spherical_ceiling
from shoal.mixture.state import MixtureState

MOST_DIFFERENCES, MOST_LOGARITHMS, MOST_FACTORS = 1 << 23, 1 << 20, 1 << 22
"""Up to so many features of all pairs, with a known variance and with variances in each feature, and elements of all
factors (32 MiB) looking at every pair is worth it: beyond, `candidate_pairs` looks at few of them."""

_ROUNDING, _ROUNDING_A_POINT = 1e-3, 1e-8
"""Nats by which log gammas and log determinants of so many points may be off, generously."""


def join_ceiling(state: MixtureState, fresh: BoolArray | None, enough: float) -> float:
    """No less than the largest `merge_gain` of two components, nats; needs pair rule `entropy`.

    fresh (K,): of pairs with one of these; None: of all. Infinity where there is no quick answer: for the families of
    counts and of vectors, a shared full covariance, many features or components. Below `enough` it may be far above
    the gain, but stays below.
    """
    n = state.n_components
    if state.prior is None:
        return np.inf
    asking = np.ones(n, dtype=np.bool_) if fresh is None else fresh
    slack = _ROUNDING + _ROUNDING_A_POINT * float(state.stats[0][:n].sum())
    call = ceiling_call(state.prior, state.stats, state.pairs, asking, state.settings.concentration, enough - slack)
    if call is None:
        return np.inf
    kernel, arguments = call
    ceiling = float(kernel(*arguments))
    return np.inf if np.isnan(ceiling) else ceiling + slack


def ceiling_call(
    prior: AnyFamily, stats: Any, pairs: Array, fresh: BoolArray, concentration: float, enough: float
) -> tuple[Any, tuple[Any, ...]] | None:
    """The kernel, and what it is called with, for the first rows of statistics and pair sums, as many as `fresh` (K,)
    has; None where there is none, or where NumPy takes less."""
    given = (stats, pairs, fresh, float(concentration), float(enough))
    n, d = fresh.size, prior.n_features
    differences = n * (n - 1) // 2 * d
    if isinstance(prior, NormalInverseGamma) and differences <= MOST_LOGARITHMS:
        return diagonal_ceiling, (*given, prior.mean, prior.mean_strength, prior.shape, prior.rate)
    if isinstance(prior, NormalInverseWishart) and n * d * d <= MOST_FACTORS:
        return gaussian_ceiling, (*given, prior.mean, prior.mean_strength, prior.dof, prior.scale_matrix)
    if isinstance(prior, KnownCovariance) and prior.spherical and differences <= MOST_DIFFERENCES:
        precision, variance = float(prior.prior_precision[0]), float(prior.covariance)
        return spherical_ceiling, (*given, prior.mean, precision, variance)
    return None
