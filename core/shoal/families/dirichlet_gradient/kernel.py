"""The one-pass steps of Dirichlet observations: scores are linear in log x, a point moves one estimate of theta.

The same as `DirichletByGradient` does in NumPy, in which the formulas are explained.
"""

import math
from typing import Any

from shoal.families.dirichlet_gradient.prior import LEAST_SHARE, LOWEST_LOG, DirichletGradientCache
from shoal.families.dirichlet_gradient.proportion_integral import LOWEST, N_CUMULANTS, SPACING
from shoal.families.estimated import MOST_MOVE
from shoal.families.estimated.kernel import bounded, clear_estimate, count_point, hermite, step_length
from shoal.families.steps_kernel import absorb, clear_row, implements, score_all
from shoal.kernels.math import REORDER
from shoal.kernels.polygamma import digamma, trigamma
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

_PRECISION, _LOG_GAMMA_PRECISION, _LOG_FRONT, _TOTAL, _OFFSET, _POWER, _N_POINTS, _HIGHEST = range(8)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)


@compiled()
def _cumulant_sums(constants: Array, table: Array, d: int, logs: Array, s: float, order: int) -> tuple[float, float]:
    """sum_j K_order and K_(order + 1) at log x_j - s."""
    first = second = 0.0
    highest = constants[0, _HIGHEST]
    for b in range(d):
        v = min(max(math.asinh(logs[b] - s), LOWEST), highest)
        place = (v - LOWEST) / SPACING
        i = int(place)
        f = place - i
        at = LOWEST + SPACING * i
        left, right = math.cosh(at) * SPACING, math.cosh(at + SPACING) * SPACING
        own = table[int(constants[2, b]) :]
        far = math.exp(math.sinh(v))
        first += far + hermite(own, i, N_CUMULANTS, order, order + 1, f, left, right)
        second += far + hermite(own, i, N_CUMULANTS, order + 1, order + 2, f, left, right)
    return first, second


@compiled()
def _log_new(constants: Array, d: int, logs: Array) -> float:
    """log of the integral of F over the prior; `proportion_integral`."""
    precision = constants[0, _PRECISION]
    table = constants[3:].reshape(-1)
    s = -math.log(precision)
    for _ in range(80):
        mean, variance = _cumulant_sums(constants, table, d, logs, s, 1)
        if abs(mean - precision) <= 1e-11 * precision:
            break
        s += bounded((mean - precision) / variance, 3.0)
    height, mean = _cumulant_sums(constants, table, d, logs, s, 0)
    variance, third = _cumulant_sums(constants, table, d, logs, s, 2)
    _, fourth = _cumulant_sums(constants, table, d, logs, s, 3)
    correction = fourth / (8.0 * variance * variance) - 5.0 * third * third / (24.0 * variance * variance * variance)
    density = height + s * precision - _HALF_LOG_2PI - 0.5 * math.log(variance) + math.log1p(max(correction, -0.5))
    total = 0.0
    for b in range(d):
        total += logs[b]
    result: float = constants[0, _LOG_FRONT] - total + density
    return result


@compiled(fastmath=REORDER)
def _score(cache: Any, k: int, d: int, logs: Array) -> float:
    total = 0.0
    for b in range(d):
        total += (cache.alpha[k, b] - 1.0) * logs[b]
    result: float = total + cache.log_norm[k]
    return result


@compiled()
def _settle(cache: Any, stats: Any, constants: Array, k: int, d: int) -> None:
    """The estimate made log theta, and the predictive cache that follows from it."""
    top = -math.inf
    for b in range(d):
        top = max(top, stats.estimate[k, b])
    total = 0.0
    for b in range(d):
        total += math.exp(stats.estimate[k, b] - top)
    shift = top + math.log(total)
    log_norm = constants[0, _LOG_GAMMA_PRECISION]
    for b in range(d):
        stats.estimate[k, b] = max(stats.estimate[k, b] - shift, LOWEST_LOG)
        cache.alpha[k, b] = constants[0, _PRECISION] * math.exp(stats.estimate[k, b])
        log_norm -= math.lgamma(cache.alpha[k, b])
    cache.log_norm[k] = log_norm


@compiled()
def _step_by_mass(cache: Any, stats: Any, constants: Array, k: int, d: int, resp: float, scratch: Array) -> None:
    """Rule `mass`: the natural gradient of rho (log F + log prior / w)."""
    mass = stats.mass[k]
    above = below = 0.0
    for b in range(d):
        alpha = cache.alpha[k, b]
        information = trigamma(alpha)
        v = scratch[0, b] - digamma(alpha) + constants[1, b] / (alpha * mass)
        scratch[1, b], scratch[2, b] = v, information
        above += v / information
        below += 1.0 / information
    m = above / below
    length = resp * step_length(constants[0, _OFFSET] + mass, constants[0, _POWER])
    for b in range(d):
        move = length * (scratch[1, b] - m) / (cache.alpha[k, b] * scratch[2, b])
        stats.estimate[k, b] += bounded(move, MOST_MOVE)


@compiled()
def _step_of_paper(cache: Any, stats: Any, constants: Array, k: int, d: int, resp: float, scratch: Array) -> None:
    """Rule `paper`: eq. 21 in u."""
    precision, total, n_points = constants[0, _PRECISION], constants[0, _TOTAL], constants[0, _N_POINTS]
    mean = 0.0
    for b in range(d):
        scratch[1, b] = scratch[0, b] - digamma(cache.alpha[k, b])
        mean += cache.alpha[k, b] * scratch[1, b]
    mean /= precision
    length = step_length(stats.seen[k], constants[0, _POWER])
    for b in range(d):
        prior = constants[1, b] - cache.alpha[k, b] / precision * total
        stats.estimate[k, b] += length * (prior / n_points + resp * cache.alpha[k, b] * (scratch[1, b] - mean))


@implements(score_all, DirichletGradientCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    d = x.shape[1]
    for b in range(d):
        scratch[0, b] = math.log(max(x[i, b], LEAST_SHARE))
    count_point(stats, n)
    for k in range(n):
        if stats.mass[k] == 0.0:
            score[k] = _log_new(constants, d, scratch[0])
        else:
            score[k] = _score(cache, k, d, scratch[0])


@implements(absorb, DirichletGradientCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    d = x.shape[1]
    born = stats.mass[k] == 0.0
    stats.mass[k] += resp
    if born:
        for b in range(d):
            share = max(x[i, b], LEAST_SHARE)
            stats.estimate[k, b] = math.log(constants[1, b] + constants[0, _PRECISION] * share)
    elif constants[0, _N_POINTS] > 0.0:
        _step_of_paper(cache, stats, constants, k, d, resp, scratch)
    else:
        _step_by_mass(cache, stats, constants, k, d, resp, scratch)
    _settle(cache, stats, constants, k, d)


@implements(clear_row, DirichletGradientCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    clear_estimate(stats, k)
    cache.log_norm[k] = empty.log_norm[0]
    for b in range(cache.alpha.shape[1]):
        cache.alpha[k, b] = empty.alpha[0, b]
