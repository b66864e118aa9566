"""The one-pass steps of the negative binomial family: a score reads a row's counts, and what zeros add is kept."""

import math
from typing import Any

from shoal.families.counts.kernel import FEW, LEAST, add_counts, clear_counts, log_rise_over_factorial, remove_counts
from shoal.families.negative_binomial.types import NegativeBinomialCache
from shoal.families.steps_kernel import absorb, clear_row, implements, release, score_all
from shoal.kernels.math import lgamma_step
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled


@compiled()
def _log_zeros_of(stats: Any, constants: Array, k: int) -> float:
    """Predictive log probability of a row of zeros: sum_d log of B(a_d + r_d, b_d) / B(a_d, b_d). O(D)."""
    total = 0.0
    for d in range(constants.shape[1]):
        r = constants[2, d]
        a = constants[0, d] + stats.mass[k] * r
        total += lgamma_step(a, r) - lgamma_step(a + constants[1, d] + stats.total[k, d], r)
    return total


@compiled()
def _log_coefficient_of(x: Any, constants: Array, i: int) -> float:
    total = 0.0
    for p in range(x.indptr[i], x.indptr[i + 1]):
        total += log_rise_over_factorial(constants[2, x.indices[p]], x.values[p])
    return total


@compiled()
def _score(cache: Any, stats: Any, constants: Array, x: Any, i: int, n: int, score: Array, scratch: Array) -> None:
    for k in range(n):
        product, logs = 1.0, cache.log_zeros[k] + scratch[1, 0]
        for p in range(x.indptr[i], x.indptr[i + 1]):
            d, times = x.indices[p], x.values[p]
            b = constants[1, d] + stats.total[k, d]
            both = constants[0, d] + b + (stats.mass[k] + 1.0) * constants[2, d]
            if times > FEW:
                logs += lgamma_step(b, times) - lgamma_step(both, times)
                continue
            for j in range(int(times)):
                product *= (b + j) / (both + j)
                if product < LEAST:
                    logs += math.log(product)
                    product = 1.0
        score[k] = logs + math.log(product)


@implements(score_all, NegativeBinomialCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    scratch[1, 0] = _log_coefficient_of(x, constants, i)
    _score(cache, stats, constants, x, i, n, score, scratch)


@implements(absorb, NegativeBinomialCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    add_counts(stats, x, i, k, resp, scratch[1, 0])
    cache.log_zeros[k] = _log_zeros_of(stats, constants, k)


@implements(clear_row, NegativeBinomialCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    cache.log_zeros[k] = empty.log_zeros[0]
    clear_counts(stats, k)


@implements(release, NegativeBinomialCache)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    remove_counts(stats, x, i, k)
    stats.log_coefficient[k] -= _log_coefficient_of(x, constants, i)
    cache.log_zeros[k] = _log_zeros_of(stats, constants, k)
    return True
