"""The one-pass steps of the diagonal Gaussian (normal-inverse-gamma). The algebra of a row is in `DiagonalCache`.

A component's score needs the sum over features of log1p(u_d). One vectorised product over the features and one
logarithm a component, vectorised over components, cost 0.25 ns a feature where a logarithm each cost 5. D roundings of
the product move the sum by about sqrt(D) 1e-16, the score by shape + 1/2 times that: 6e-10 at mass 1e6 and D = 128.
"""

import math
from typing import Any

from shoal.families.diagonal.types import DiagonalCache
from shoal.families.steps_kernel import absorb, clear_row, implements, score_all
from shoal.kernels.math import LARGEST_PRODUCT, REORDER, SATURATION, lgamma_step, log_one_plus, log_positive
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

_LOG_2PI = math.log(2.0 * math.pi)


@compiled(fastmath=REORDER)
def _product(mean: Array, spread: Array, k: int, x: Array, i: int, share: float) -> float:
    """prod_d (1 + share u_d), infinite where it overflows: every factor is at least 1."""
    product = 1.0
    for b in range(x.shape[1]):
        e = x[i, b] - mean[k, b]
        product *= 1.0 + share * spread[k, b] * e * e
    return product


@compiled(fastmath=REORDER)
def _sum_of_logs(mean: Array, spread: Array, k: int, x: Array, i: int, share: float) -> float:
    """sum_d log(1 + share u_d), a logarithm a feature: for products that overflow."""
    total = 0.0
    for b in range(x.shape[1]):
        e = x[i, b] - mean[k, b]
        u = share * spread[k, b] * e * e
        total += log_one_plus(u if u < SATURATION else SATURATION)
    return total


@compiled()
def _score(mean: Array, spread: Array, shape: Array, log_norm: Array, x: Array, i: int, n: int, score: Array) -> None:
    for k in range(n):
        product = _product(mean, spread, k, x, i, 1.0)
        if product < LARGEST_PRODUCT:
            score[k] = product
        else:
            score[k] = -_sum_of_logs(mean, spread, k, x, i, 1.0)  # a product is positive: the sign tells the two apart
    for k in range(n):
        logs = log_positive(score[k]) if score[k] > 0.0 else -score[k]
        score[k] = log_norm[k] - (shape[k] + 0.5) * logs


@compiled(fastmath={"contract"})
def _add_to_stats(stats: Any, x: Array, i: int, k: int, resp: float) -> None:
    """The pairwise update of the centred moments."""
    total = stats.mass[k] + resp
    gain = resp / total
    cross = stats.mass[k] * gain
    for b in range(x.shape[1]):
        delta = x[i, b] - stats.mean[k, b]
        stats.mean[k, b] += gain * delta
        stats.scatter[k, b] += cross * delta * delta
    stats.mass[k] = total


@compiled(fastmath=REORDER)
def _move(mean: Array, spread: Array, k: int, x: Array, i: int, gain: float, share: float, factor: float) -> None:
    """mean' = mean + gain e and spread' = spread factor / (1 + share u)."""
    for b in range(x.shape[1]):
        e = x[i, b] - mean[k, b]
        mean[k, b] += gain * e
        spread[k, b] *= factor / (1.0 + share * spread[k, b] * e * e)


@compiled()
def _add_to_cache(cache: Any, x: Array, i: int, k: int, resp: float) -> None:
    """rate' = rate + resp strength / (2 total) e^2, hence rate'/rate = 1 + share u with share <= 1 as below."""
    d = x.shape[1]
    strength = cache.mean_strength[k]
    total = strength + resp
    share = resp * (strength + 1.0) / total
    growth = _product(cache.mean, cache.inverse_spread, k, x, i, share)
    if growth < LARGEST_PRODUCT:
        log_growth = log_positive(growth)
    else:
        log_growth = _sum_of_logs(cache.mean, cache.inverse_spread, k, x, i, share)
    factor = (total / (total + 1.0)) * ((strength + 1.0) / strength)
    _move(cache.mean, cache.inverse_spread, k, x, i, resp / total, share, factor)
    shape = cache.shape[k] + 0.5 * resp
    sum_log_rate = cache.sum_log_rate[k] + log_growth
    cache.mean_strength[k] = total
    cache.shape[k] = shape
    cache.sum_log_rate[k] = sum_log_rate
    per_feature = lgamma_step(shape, 0.5) - 0.5 * (_LOG_2PI + log_one_plus(1.0 / total))
    cache.log_norm[k] = d * per_feature - 0.5 * sum_log_rate


@implements(score_all, DiagonalCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    _score(cache.mean, cache.inverse_spread, cache.shape, cache.log_norm, x, i, n, score)


@implements(absorb, DiagonalCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    _add_to_stats(stats, x, i, k, resp)
    _add_to_cache(cache, x, i, k, resp)


@implements(clear_row, DiagonalCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    for b in range(cache.mean.shape[1]):  # not by whole rows: that compiles Numba's message about unequal shapes
        cache.mean[k, b] = empty.mean[0, b]
        cache.inverse_spread[k, b] = empty.inverse_spread[0, b]
        stats.mean[k, b] = 0.0
        stats.scatter[k, b] = 0.0
    cache.mean_strength[k] = empty.mean_strength[0]
    cache.shape[k] = empty.shape[0]
    cache.sum_log_rate[k] = empty.sum_log_rate[0]
    cache.log_norm[k] = empty.log_norm[0]
    stats.mass[k] = 0.0
