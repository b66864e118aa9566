"""The precision factor u of a point: its prior, its posterior given a component, and what both add to the bound.

x | u ~ N(mu, S / u) with u ~ Gamma(nu / 2, rate nu / 2) is the Student t with nu degrees of freedom (Liu and Rubin
1995, "ML estimation of the t distribution using EM and its extensions"). Given a component, the best q(u) is
Gamma((nu + D) / 2, rate (nu + Q) / 2), where Q = E (x - mu)' S^-1 (x - mu) under the component's posterior.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, psi

from shoal.points.arrays import Array

POINT_ROUNDS = 6
"""Rounds between the q(u) of a point and the component that includes it."""

LEAST_DEGREES, MOST_DEGREES = 2.01, 1e4
"""Range of degrees of freedom that are learned. At the upper end a Student t is a Gaussian to four digits."""

_HALVINGS = 60


class PrecisionFactor(NamedTuple):
    """q(u) of points (N, K)."""

    mean: Array  # E[u]
    log_mean: Array  # E[log u]
    entropy: Array  # H(q(u)), nats


def factor_given(degrees: float, n_features: int, square: Array) -> PrecisionFactor:
    """The best q(u) of points with expected squared distances `square` (N, K)."""
    shape = 0.5 * (degrees + n_features)
    rate = 0.5 * (degrees + square)
    digamma = float(psi(shape))
    log_rate = np.log(rate)
    entropy = shape + float(gammaln(shape)) + (1.0 - shape) * digamma - log_rate
    return PrecisionFactor(shape / rate, digamma - log_rate, entropy)


def log_prior(degrees: float, mass: Array, weight: Array, log_weight: Array) -> Array:
    """Sum of r E[log p(u)] (K,), nats, from the sums of r, r E[u] and r E[log u]."""
    half = 0.5 * degrees
    constant = half * np.log(half) - float(gammaln(half))
    return np.asarray(mass * constant + (half - 1.0) * log_weight - half * weight)


def best_degrees(mass: float, weight: float, log_weight: float) -> float:
    """The degrees of freedom with the largest sum of r E[log p(u)], within the range that is learned.

    Its derivative by nu / 2, log(nu / 2) + 1 - digamma(nu / 2) + (log_weight - weight) / mass, falls in nu. So the zero
    is found by halving the range, in logarithms.
    """
    gap = (log_weight - weight) / mass + 1.0
    low, high = np.log(0.5 * LEAST_DEGREES), np.log(0.5 * MOST_DEGREES)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if middle - float(psi(np.exp(middle))) + gap > 0.0:
            low = middle
        else:
            high = middle
    return 2.0 * float(np.exp(0.5 * (low + high)))
