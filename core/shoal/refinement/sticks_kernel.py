"""The sticks' share of a sweep: expected log weights before it, the labels' part of the bound after it."""

import math

import numpy as np

from shoal.kernels.polygamma import digamma
from shoal.points.arrays import Array
from shoal.runtime.kernels import kernel


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
