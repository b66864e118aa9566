"""The one-pass steps of von Mises-Fisher components. A score is one product, and one normaliser a concentration.

Of rows that cannot come near the best only the largest term is computed.
"""

import math
from typing import Any

from shoal.families.steps_kernel import absorb, clear_row, implements, release, score_all
from shoal.families.von_mises_fisher.bessel import DEBYE, DEBYE_FROM, LOG_2PI
from shoal.families.von_mises_fisher.types import VonMisesFisherCache
from shoal.kernels.math import REORDER, exp_negative, log_positive
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

_LOST = 40.0
"""Nats below the largest term from where on all others together are lost in its rounding."""

_A0, _A1 = DEBYE[0]
_B0, _B1, _B2 = DEBYE[1]
_C0, _C1, _C2, _C3 = DEBYE[2]
_D0, _D1, _D2, _D3, _D4 = DEBYE[3]


@compiled()
def _log_normaliser(constants: Any, g: int, square: float, along: float) -> float:
    """log C(|k_g S + k0 m0|) of |S|^2 and m0'S."""
    k, order, strength = constants.concentration[g], constants.order, constants.strength
    length = max(k * k * square + 2.0 * strength * k * along + strength * strength, 0.0)
    top = order if order * order + length >= DEBYE_FROM * DEBYE_FROM else constants.top
    r = math.sqrt(top * top + length)
    q = 1.0 / r
    p2 = (top * q) * (top * q)
    first, second = _A0 + p2 * _A1, _B0 + p2 * (_B1 + p2 * _B2)
    third = _C0 + p2 * (_C1 + p2 * (_C2 + p2 * _C3))
    fourth = _D0 + p2 * (_D1 + p2 * (_D2 + p2 * (_D3 + p2 * _D4)))
    series = 1.0 + q * (first + q * (second + q * (third + q * fourth)))
    log_h = r - top * log_positive(top + r) + 0.5 * (log_positive(series * series * q) - LOG_2PI)
    if top > order:
        log_h += _log_of_lower_orders(constants, length, r, p2, series)
    result: float = constants.flat - log_h
    return result


@compiled()
def _log_of_lower_orders(constants: Any, length: float, r: float, p2: float, series: float) -> float:
    """log of h at the least order over h at the highest, of z^2 = `length`."""
    top, q = constants.top, 1.0 / r
    first, second = _A0 + 3.0 * p2 * _A1, 2.0 * _B0 + p2 * (4.0 * _B1 + 6.0 * p2 * _B2)
    third = 3.0 * _C0 + p2 * (5.0 * _C1 + p2 * (7.0 * _C2 + 9.0 * p2 * _C3))
    fourth = 4.0 * _D0 + p2 * (6.0 * _D1 + p2 * (8.0 * _D2 + p2 * (10.0 * _D3 + 12.0 * p2 * _D4)))
    slope = -q * q * (first + q * (second + q * (third + q * fourth)))
    ratio = (r / (top + r) - 0.5 * q + slope / series) * q
    product = 1.0
    for j in range(int(top - constants.order + 0.5)):
        step = length * ratio + 2.0 * (top - j)
        product *= step
        ratio = 1.0 / step
    result: float = log_positive(product)
    return result


@compiled()
def _largest(cache: Any, constants: Any, k: int, square: float, along: float) -> tuple[Any, Any]:
    """The largest term of the sum that `_score` is, and its number.

    The terms rise to one side of their largest and fall to the other. The search begins at the concentration that suits
    the row best.
    """
    g, size = int(cache.peak[k]), cache.log_front.shape[1]
    largest = cache.log_front[k, g] - _log_normaliser(constants, g, square, along)
    for way in (1, -1):
        moved = False
        while 0 <= g + way < size:
            term = cache.log_front[k, g + way] - _log_normaliser(constants, g + way, square, along)
            if term <= largest:
                break
            g, largest, moved = g + way, term, True
        if moved:
            break
    return largest, g


@compiled()
def _score(cache: Any, constants: Any, k: int, square: float, along: float) -> float:
    """log p of row k with a point, of |S|^2 and m0'S with it.

    From its largest term the sum goes both ways until terms are lost in rounding.
    """
    size = cache.log_front.shape[1]
    largest, middle = _largest(cache, constants, k, square, along)
    total = 1.0
    for way in (1, -1):
        g = middle + way
        while 0 <= g < size:
            term = cache.log_front[k, g] - _log_normaliser(constants, g, square, along)
            if term < largest - _LOST:
                break
            total += exp_negative(min(term - largest, 0.0))
            g += way
    result: float = largest + log_positive(total)
    return result


@compiled(fastmath=REORDER)
def _dot(rows: Array, k: int, x: Array, i: int) -> float:
    total = 0.0
    for b in range(x.shape[1]):
        total += rows[k, b] * x[i, b]
    return total


@compiled()
def _renew(cache: Any, stats: Any, constants: Any, k: int) -> None:
    """The cache of row k from its statistics."""
    square, along = 0.0, 0.0
    for b in range(stats.total.shape[1]):
        square += stats.total[k, b] * stats.total[k, b]
        along += constants.mean[b] * stats.total[k, b]
    cache.square[k], cache.along[k] = square, along
    size, peak, largest = cache.log_front.shape[1], 0, -math.inf
    for g in range(size):
        front = constants.log_share[g] + stats.mass[k] * constants.log_front[g] + constants.log_front_of_mean
        cache.log_front[k, g] = front - _log_normaliser(constants, g, square, along)
        if cache.log_front[k, g] > largest:
            peak, largest = g, cache.log_front[k, g]
    total = 0.0
    for g in range(size):
        total += exp_negative(cache.log_front[k, g] - largest)
    whole = largest + log_positive(total)
    for g in range(size):
        front = constants.log_share[g] + stats.mass[k] * constants.log_front[g] + constants.log_front_of_mean
        cache.log_front[k, g] = front + (constants.log_front[g] - whole)
    cache.peak[k] = peak


@implements(score_all, VonMisesFisherCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    along, own = 0.0, 0.0
    for b in range(x.shape[1]):
        along += constants.mean[b] * x[i, b]
        own += x[i, b] * x[i, b]
    best = -math.inf
    for k in range(n):
        square = cache.square[k] + 2.0 * _dot(stats.total, k, x, i) + own
        score[k], _ = _largest(cache, constants, k, square, cache.along[k] + along)
        best = max(best, score[k])
    far = best - _LOST - math.log(cache.log_front.shape[1])
    for k in range(n):
        if score[k] >= far:
            square = cache.square[k] + 2.0 * _dot(stats.total, k, x, i) + own
            score[k] = _score(cache, constants, k, square, cache.along[k] + along)


@implements(absorb, VonMisesFisherCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    stats.mass[k] += resp
    for b in range(x.shape[1]):
        stats.total[k, b] += resp * x[i, b]
    _renew(cache, stats, constants, k)


@implements(clear_row, VonMisesFisherCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    cache.square[k] = empty.square[0]
    cache.along[k] = empty.along[0]
    cache.peak[k] = empty.peak[0]
    for g in range(cache.log_front.shape[1]):
        cache.log_front[k, g] = empty.log_front[0, g]
    stats.mass[k] = 0.0
    for b in range(stats.total.shape[1]):
        stats.total[k, b] = 0.0


@implements(release, VonMisesFisherCache)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    stats.mass[k] -= 1.0
    for b in range(x.shape[1]):
        stats.total[k, b] -= x[i, b]
    _renew(cache, stats, constants, k)
    return True
