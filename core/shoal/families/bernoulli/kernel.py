"""The one-pass steps of the beta-Bernoulli family: a score reads a row's ones, what zeros add is kept a component."""

import math
from typing import Any

from shoal.families.bernoulli.types import BernoulliCache
from shoal.families.counts.kernel import LARGEST, LEAST, remove_counts
from shoal.families.steps_kernel import absorb, clear_row, implements, release, score_all
from shoal.kernels.math import REORDER, log_one_plus
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled


@compiled(fastmath=REORDER)
def log_zeros_of(stats: Any, constants: Array, k: int) -> float:
    """Predictive log probability of a row of zeros: -sum_d log(1 + a_d / b_d) of the posterior. O(D)."""
    mass = stats.mass[k]
    total = 0.0
    for b in range(constants.shape[1]):
        ones = stats.total[k, b]
        zeros = mass - ones if mass > ones else 0.0
        total -= log_one_plus((constants[0, b] + ones) / (constants[1, b] + zeros))
    return total


@compiled()
def _score(cache: Any, stats: Any, constants: Array, x: Any, i: int, n: int, score: Array) -> None:
    first, last = x.indptr[i], x.indptr[i + 1]
    for k in range(n):
        mass = stats.mass[k]
        product, logs = 1.0, cache.log_zeros[k]
        for p in range(first, last):
            b = x.indices[p]
            ones = stats.total[k, b]
            zeros = mass - ones if mass > ones else 0.0
            product *= (constants[0, b] + ones) / (constants[1, b] + zeros)
            if not LEAST < product < LARGEST:
                logs += math.log(product)
                product = 1.0
        score[k] = logs + math.log(product)


@implements(score_all, BernoulliCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    _score(cache, stats, constants, x, i, n, score)


@implements(absorb, BernoulliCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    stats.mass[k] += resp
    for p in range(x.indptr[i], x.indptr[i + 1]):
        stats.total[k, x.indices[p]] += resp
    cache.log_zeros[k] = log_zeros_of(stats, constants, k)


@implements(clear_row, BernoulliCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    cache.log_zeros[k] = empty.log_zeros[0]
    stats.mass[k] = 0.0
    for b in range(stats.total.shape[1]):
        stats.total[k, b] = 0.0


@implements(release, BernoulliCache)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    remove_counts(stats, x, i, k)
    cache.log_zeros[k] = log_zeros_of(stats, constants, k)
    return True
