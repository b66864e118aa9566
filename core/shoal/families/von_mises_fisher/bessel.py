"""The normaliser of the von Mises-Fisher distribution in logs, and the length of its mean.

Both follow from h_v(z) = z^-v I_v(z), which is smooth and positive down to z = 0. I is the modified Bessel function of
the first kind. Where v^2 + z^2 is large, Debye's expansion gives log h and its slope (DLMF 10.41.3). Elsewhere it gives
those of a higher order, and h_(v-1) = z^2 h_(v+1) + 2 v h_v (DLMF 10.29.1), a sum of positive terms, leads down.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from shoal.points.arrays import Array

DEBYE_FROM = 50.0
"""Of sqrt(v^2 + z^2): from here on four terms leave out less than 1e-9."""

LOG_2PI = float(np.log(2.0 * np.pi))

DEBYE = (
    (3.0 / 24.0, -5.0 / 24.0),
    (81.0 / 1152.0, -462.0 / 1152.0, 385.0 / 1152.0),
    (30375.0 / 414720.0, -369603.0 / 414720.0, 765765.0 / 414720.0, -425425.0 / 414720.0),
    (
        4465125.0 / 39813120.0,
        -94121676.0 / 39813120.0,
        349922430.0 / 39813120.0,
        -446185740.0 / 39813120.0,
        185910725.0 / 39813120.0,
    ),
)
"""U_k(p) / p^k, k = 1 to 4, as polynomials of p^2 (DLMF 10.41.10)."""

_SLOPES = tuple(tuple((k + 2 * j) * c for j, c in enumerate(row)) for k, row in enumerate(DEBYE, start=1))
"""The same of the slopes of Debye's terms by r, times -r."""


def order_of(d: int) -> tuple[float, int]:
    """The order d / 2 - 1 of the normaliser in d dimensions, and how many orders above it suit every argument."""
    order = 0.5 * d - 1.0
    return order, max(0, int(np.ceil(DEBYE_FROM - order)))


def log_normaliser(d: int, concentration: ArrayLike) -> Array:
    """log C_d(k) with density C_d(k) exp(k m'x) on the unit sphere of d >= 2 dimensions, k >= 0; at 0 minus the log of
    its surface."""
    return log_normaliser_of_square(d, np.square(np.asarray(concentration, dtype=np.float64)))


def log_normaliser_of_square(d: int, square: Array) -> Array:
    """log C_d(k) of k^2."""
    order = order_of(d)[0]
    log_h = _log_h(order, square) if _all_far(order, square) else _log_h_and_ratio(d, square)[0]
    return np.asarray(-0.5 * d * LOG_2PI - log_h)


def mean_length(d: int, concentration: ArrayLike) -> Array:
    """A_d(k) = I_(d/2)(k) / I_(d/2 - 1)(k), the length of the mean of the distribution, in [0, 1)."""
    k = np.asarray(concentration, dtype=np.float64)
    return k * mean_length_over(d, k)


def mean_length_over(d: int, concentration: ArrayLike) -> Array:
    """A_d(k) / k; at 0 its limit 1 / d."""
    square = np.square(np.asarray(concentration, dtype=np.float64))
    order = order_of(d)[0]
    return _ratio(order, square) if _all_far(order, square) else _log_h_and_ratio(d, square)[1]


def _all_far(order: float, square: Array) -> bool:
    """Whether Debye's expansion suits every z^2."""
    return bool((order * order + square >= DEBYE_FROM**2).all())


def _log_h_and_ratio(d: int, square: Array) -> tuple[Array, Array]:
    """log h_v(z) and h_(v+1)(z) / h_v(z) of z^2, v = d / 2 - 1."""
    order, above = order_of(d)
    near = order * order + square < DEBYE_FROM**2
    log_h, ratio = np.empty_like(square), np.empty_like(square)
    log_h[near], ratio[near] = _from_order_above(order, above, square[near])
    log_h[~near], ratio[~near] = _log_h(order, square[~near]), _ratio(order, square[~near])
    return log_h, ratio


def _from_order_above(order: float, above: int, square: Array) -> tuple[Array, Array]:
    """The same, by way of the order that is so much above."""
    top = order + above
    log_h, ratio = _log_h(top, square), _ratio(top, square)
    product = np.ones_like(square)
    for v in range(above):
        step = square * ratio + 2.0 * (top - v)
        product = product * step
        ratio = 1.0 / step
    return log_h + np.log(product), ratio


def _log_h(order: float, square: Array) -> Array:
    """log h of z^2 by Debye's expansion."""
    r = np.sqrt(order * order + square)
    log_front = r - order * np.log(order + r) - 0.5 * (LOG_2PI + np.log(r))
    return np.asarray(log_front + np.log1p(_debye(DEBYE, order, r)))


def _ratio(order: float, square: Array) -> Array:
    """h_(v+1) / h_v of z^2, which is the slope of log h_v over z."""
    r = np.sqrt(order * order + square)
    slope = _debye(_SLOPES, order, r) * (1.0 / r)
    return np.asarray((r / (order + r) - 0.5 / r - slope / (1.0 + _debye(DEBYE, order, r))) / r)


def _debye(coefficients: tuple[tuple[float, ...], ...], order: float, r: Array) -> Array:
    """The sum over k of r^-k times the polynomial k of p^2, p = v / r."""
    q = 1.0 / r
    p2 = (order * q) ** 2
    total: Any = 0.0
    for row in reversed(coefficients):
        value: Any = row[-1]
        for c in row[-2::-1]:
            value = value * p2 + c
        total = (total + value) * q
    return np.asarray(total)
