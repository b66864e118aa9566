"""The one-pass steps of the gamma-Poisson family: a score reads a row's counts, what zeros add is kept a component."""

import math
from typing import Any

from shoal.families.counts.kernel import (
    ALL,
    FEW,
    add_counts,
    clear_counts,
    log_factorials_of,
    multiplied,
    remove_counts,
)
from shoal.families.poisson.types import PoissonCache
from shoal.families.steps_kernel import absorb, clear_row, implements, release, score_all
from shoal.kernels.math import REORDER, log_one_plus
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled


@compiled(fastmath=REORDER)
def log_zeros_of(stats: Any, constants: Array, k: int) -> float:
    """Predictive log probability of a row of zeros: -sum_d shape_d log(1 + 1 / rate_d) of the posterior. O(D)."""
    mass = stats.mass[k]
    total = 0.0
    for b in range(constants.shape[1]):
        total -= (constants[0, b] + stats.total[k, b]) * log_one_plus(1.0 / (constants[1, b] + mass))
    return total


@compiled()
def _score(cache: Any, stats: Any, constants: Array, x: Any, i: int, n: int, score: Array, scratch: Array) -> None:
    first, last = x.indptr[i], x.indptr[i + 1]
    for k in range(n):
        mass = stats.mass[k]
        product, logs = 1.0, cache.log_zeros[k] - scratch[2, 0]
        for p in range(first, last):
            b = x.indices[p]
            shape, rate = constants[0, b] + stats.total[k, b], constants[1, b] + mass
            product, logs = multiplied(product, logs, shape, rate + 1.0, x.values[p])
        score[k] = logs + math.log(product)


@implements(score_all, PoissonCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    scratch[1, 0] = -log_factorials_of(x, i, ALL)
    scratch[2, 0] = log_factorials_of(x, i, FEW)
    _score(cache, stats, constants, x, i, n, score, scratch)


@implements(absorb, PoissonCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    add_counts(stats, x, i, k, resp, scratch[1, 0])
    cache.log_zeros[k] = log_zeros_of(stats, constants, k)


@implements(clear_row, PoissonCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    cache.log_zeros[k] = empty.log_zeros[0]
    clear_counts(stats, k)


@implements(release, PoissonCache)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    remove_counts(stats, x, i, k)
    stats.log_coefficient[k] += log_factorials_of(x, i, ALL)
    cache.log_zeros[k] = log_zeros_of(stats, constants, k)
    return True
