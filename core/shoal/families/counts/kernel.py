"""Arithmetic that the kernels of the count families share: rising factorials by products, log factorials."""

import math
from typing import Any

import numpy as np
from scipy.special import gammaln

from shoal.kernels.math import lgamma_step
from shoal.runtime.kernels import compiled

FEW = 8.0
"""Up to so many equal words a rising factorial is multiplied out; beyond, differences of log-gamma are quicker."""

ALL = 2.0**53

LARGEST, LEAST = 1e100, 1e-100
"""A product is turned into a logarithm when it leaves this range: one more factor, within 1e-200 to 1e200, fits."""

_LOG_FACTORIALS = gammaln(np.arange(64.0) + 1.0)


@compiled()
def log_factorial(x: float) -> float:
    """log x! for whole x >= 0."""
    result: float = _LOG_FACTORIALS[int(x)] if x < 64.0 else math.lgamma(x + 1.0)
    return result


@compiled()
def log_factorials_of(x: Any, i: int, most: float) -> float:
    """Sum of log x! over the elements of row i that are at most `most`."""
    total = 0.0
    for p in range(x.indptr[i], x.indptr[i + 1]):
        if 1.0 < x.values[p] <= most:
            total += log_factorial(x.values[p])
    return total


@compiled()
def length_of(x: Any, i: int) -> float:
    """Sum of row i's elements."""
    total = 0.0
    for p in range(x.indptr[i], x.indptr[i + 1]):
        total += x.values[p]
    return total


@compiled()
def add_counts(stats: Any, x: Any, i: int, k: int, resp: float, log_coefficient: float) -> None:
    """Row i, whose log coefficient is given, to component k of the statistics of counts, `resp` times."""
    stats.mass[k] += resp
    stats.log_coefficient[k] += resp * log_coefficient
    for p in range(x.indptr[i], x.indptr[i + 1]):
        stats.total[k, x.indices[p]] += resp * x.values[p]


@compiled()
def clear_counts(stats: Any, k: int) -> None:
    """Component k of the statistics of counts made empty."""
    stats.mass[k] = 0.0
    stats.log_coefficient[k] = 0.0
    for b in range(stats.total.shape[1]):
        stats.total[k, b] = 0.0


@compiled()
def remove_counts(stats: Any, x: Any, i: int, k: int) -> None:
    """Take row i out of component k, but for its log coefficient. Sums of whole numbers: nothing cancels."""
    stats.mass[k] -= 1.0
    for p in range(x.indptr[i], x.indptr[i + 1]):
        stats.total[k, x.indices[p]] -= x.values[p]


@compiled()
def log_rise_over_factorial(a: float, n: float) -> float:
    """log of G(a + n) / (G(a) n!), a > 0, n >= 0 whole.

    The two largest of the three are taken from each other by series, so that the error is about 1e-16 min(a, n)
    log(a + n), where that of three log-gammas is 1e-16 (a + n) log(a + n).
    """
    if n >= a:
        above: float = lgamma_step(n + 1.0, a - 1.0) - math.lgamma(a)
        return above
    rise: float = lgamma_step(a, n) - log_factorial(n)
    return rise


@compiled()
def multiplied(product: float, logs: float, a: float, unit: float, n: float) -> tuple[float, float]:
    """product * exp(logs) times prod_{j<n} (a + j) / unit, n >= 1 whole, as such a pair; over n! too for n > FEW."""
    if n > FEW:
        logs += log_rise_over_factorial(a, n) - n * math.log(unit)
        return product, logs
    for j in range(int(n)):
        product *= (a + j) / unit
        if not LEAST < product < LARGEST:
            logs += math.log(product)
            product = 1.0
    return product, logs
