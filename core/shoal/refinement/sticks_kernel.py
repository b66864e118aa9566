"""The sticks' share of a sweep: expected log weights before it, the labels' part of the bound after it."""

import math

import numpy as np

from shoal._numba import compiled, kernel
from shoal.arrays import Array

_SERIES_FROM = 10.0


@compiled()
def digamma(x: float) -> float:
    """The derivative of log G at x > 0, within 2e-15 or so many parts of it: psi(x + 1) = psi(x) + 1/x up to 10, from
    there the asymptotic series (Abramowitz and Stegun 6.3.18), of which the first term left out is below 5e-16."""
    lower = 0.0
    while x < _SERIES_FROM:
        lower += 1.0 / x
        x += 1.0
    r = 1.0 / (x * x)
    series = r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * 691.0 / 32760)))))
    return math.log(x) - 0.5 / x - series - lower


@kernel()
def log_stick_weights(mass: Array, concentration: float, out: Array) -> None:
    """Expected log weights (T,), nats, of free sticks Beta(1 + n_i, concentration + n_{>i}) in decreasing order of
    `mass` (T,), equal ones as they come."""
    order = np.argsort(-mass, kind="mergesort")
    after = np.empty(mass.size)
    later = 0.0
    for i in range(mass.size - 1, -1, -1):
        after[i] = later
        later += mass[order[i]]
    gone = 0.0
    for i in range(mass.size):
        own, rest = 1.0 + mass[order[i]], concentration + after[i]
        total = digamma(own + rest)
        out[order[i]] = gone + digamma(own) - total
        gone += digamma(rest) - total


@kernel()
def label_prior(mass: Array, concentration: float) -> float:
    """L, nats, of masses (T,) in any order: as `process.log_label_prior`."""
    sizes = np.sort(mass)
    tail, found = concentration, 0.0
    for i in range(sizes.size):
        tail += sizes[i]
        found += math.lgamma(1.0 + sizes[i]) - math.log(tail)
    ends = math.lgamma(concentration) - math.lgamma(tail) + sizes.size * math.log(concentration)
    return ends + found
