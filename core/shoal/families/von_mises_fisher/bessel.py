"""The modified Bessel function of the first kind in logs, and the normaliser of the von Mises-Fisher distribution.

SciPy's `ive` where it has digits to give; below its range the series about 0 (DLMF 10.25.2), and where order or
argument is large, as of embeddings, Debye's expansion, uniform in both (DLMF 10.41.3).
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, ive

from shoal.points.arrays import Array

DEBYE_FROM = 50.0
"""Of sqrt(v^2 + z^2): from here on four terms leave out less than 1e-9."""

_SERIES_BELOW = 1e-3
"""z^2 / (4 (v + 1)) below which four terms of the series are all digits."""

_LOG_2PI = float(np.log(2.0 * np.pi))


def log_ive(order: float, z: ArrayLike) -> Array:
    """log(I_v(z) exp(-z)) for v >= 0, z > 0: without the exponential, whose digits would hide the others'."""
    z = np.asarray(z, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        small = order * np.log(0.5 * z) - gammaln(order + 1.0) + _log_series(order, z) - z
        middle = np.log(ive(order, z))
        large = _log_debye(order, z)
    return np.where(_is_small(order, z), small, np.where(np.hypot(order, z) >= DEBYE_FROM, large, middle))


def log_normaliser(d: int, concentration: ArrayLike) -> Array:
    """log C_d(k) with density C_d(k) exp(k m'x) on the unit sphere of d >= 2 dimensions, k >= 0; at 0 minus the log of
    its surface."""
    k = np.asarray(concentration, dtype=np.float64)
    order = 0.5 * d - 1.0
    flat = gammaln(order + 1.0) + order * np.log(2.0) - 0.5 * d * _LOG_2PI
    safe = np.where(k > 0.0, k, 1.0)
    far = order * np.log(safe) - 0.5 * d * _LOG_2PI - log_ive(order, safe) - safe
    return np.where(_is_small(order, k), flat - _log_series(order, k), far)


def mean_length(d: int, concentration: ArrayLike) -> Array:
    """A_d(k) = I_(d/2)(k) / I_(d/2 - 1)(k), the length of the mean of the distribution, in [0, 1)."""
    k = np.asarray(concentration, dtype=np.float64)
    order = 0.5 * d - 1.0
    safe = np.where(k > 0.0, k, 1.0)
    near = k / d * np.exp(_log_series(order + 1.0, k) - _log_series(order, k))
    return np.where(_is_small(order, k), near, np.exp(log_ive(order + 1.0, safe) - log_ive(order, safe)))


def _is_small(order: float, z: Array) -> Array:
    return np.asarray(z * z < 4.0 * (order + 1.0) * _SERIES_BELOW)


def _log_series(order: float, z: Array) -> Array:
    """log of 0F1(v + 1; z^2 / 4), four terms; for small z."""
    q = np.minimum(0.25 * z * z, order + 1.0)
    v = order + 1.0
    return np.log1p(
        q / v * (1.0 + q / (2.0 * (v + 1.0)) * (1.0 + q / (3.0 * (v + 2.0)) * (1.0 + q / (4.0 * (v + 3.0)))))
    )


def _log_debye(order: float, z: Array) -> Array:
    """log of exp(v eta - z) / sqrt(2 pi r) sum_k U_k(p) / v^k with r = sqrt(v^2 + z^2), p = v / r, v eta = r + v log(z
    / (v + r)); as U_k(p) / p^k is a polynomial in p^2, and p / v = 1 / r, order 0 is no exception."""
    r = np.hypot(order, z)
    p2 = (order / r) ** 2
    u1 = (3.0 - 5.0 * p2) / 24.0
    u2 = (81.0 + p2 * (-462.0 + 385.0 * p2)) / 1152.0
    u3 = (30375.0 + p2 * (-369603.0 + p2 * (765765.0 - 425425.0 * p2))) / 414720.0
    u4 = 4465125.0 + p2 * (-94121676.0 + p2 * (349922430.0 + p2 * (-446185740.0 + 185910725.0 * p2)))
    series = (u1 + (u2 + (u3 + u4 / 39813120.0 / r) / r) / r) / r
    height = order * order / (r + z) + order * np.log(z / (order + r))
    return np.asarray(height - 0.5 * (_LOG_2PI + np.log(r)) + np.log1p(series))
