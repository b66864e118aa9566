"""The one-pass steps of the negative binomial family: a score reads a row's counts, and what zeros add is kept."""

import math
from typing import Any

from numba.extending import overload

from shoal.families.counts.kernel import FEW, LEAST, add_counts, clear_counts, log_rise_over_factorial, remove_counts
from shoal.families.negative_binomial.types import NegativeBinomialCache
from shoal.families.steps_kernel import absorb, clear_row, release, score_all
from shoal.kernels.math import lgamma_step
from shoal.points.arrays import Array
from shoal.runtime.kernels import OVERLOAD_OPTIONS, compiled


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


@overload(score_all, jit_options=OVERLOAD_OPTIONS)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> Any:
    if getattr(cache, "instance_class", None) is not NegativeBinomialCache:
        return None

    def implementation(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> Any:
        scratch[1, 0] = _log_coefficient_of(x, constants, i)
        _score(cache, stats, constants, x, i, n, score, scratch)

    return implementation


@overload(absorb, jit_options=OVERLOAD_OPTIONS)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> Any:
    if getattr(cache, "instance_class", None) is not NegativeBinomialCache:
        return None

    def implementation(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> Any:
        add_counts(stats, x, i, k, resp, scratch[1, 0])
        cache.log_zeros[k] = _log_zeros_of(stats, constants, k)

    return implementation


@overload(clear_row, jit_options=OVERLOAD_OPTIONS)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> Any:
    if getattr(cache, "instance_class", None) is not NegativeBinomialCache:
        return None

    def implementation(cache: Any, stats: Any, k: Any, empty: Any) -> Any:
        cache.log_zeros[k] = empty.log_zeros[0]
        clear_counts(stats, k)

    return implementation


@overload(release, jit_options=OVERLOAD_OPTIONS)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    if getattr(cache, "instance_class", None) is not NegativeBinomialCache:
        return None

    def implementation(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
        remove_counts(stats, x, i, k)
        stats.log_coefficient[k] -= _log_coefficient_of(x, constants, i)
        cache.log_zeros[k] = _log_zeros_of(stats, constants, k)
        return True

    return implementation
