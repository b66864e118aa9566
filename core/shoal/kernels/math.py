"""Arithmetic that the kernels share: logarithm and exponential that vectorise, a stable difference of log-gamma.

LLVM turns a loop over `math.log` into calls, one an element; `log_positive` is plain arithmetic on the bits and stays
in vector registers (0.8 ns an element against 5). `reassoc` is kept away: the order of additions is the accuracy.
"""

import math

import numpy as np

from shoal.runtime.kernels import compiled

REORDER = {"reassoc", "contract", "nsz", "arcp"}
"""Licence to sum in vector registers. Never `nnan` or `ninf`: infinities are met on purpose and guarded against."""

LARGEST_PRODUCT = 1e300
"""A product of factors >= 1 is exact to rounding up to here; beyond it logarithms are summed."""

SATURATION = 1e300
"""Squared distances are cut off here, so that a score stays finite whatever the point."""

EXP_RANGE = 707.0
"""`exp_negative` has no smaller number than exp(-EXP_RANGE)."""

_LEAST_NORMAL = 1e-300
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_LOG2_E = 1.4426950408889634
_ROUNDER = 6755399441055744.0
_ROUNDER_BITS = 0x4338000000000000
_SERIES_FROM = 24.0
_MOST_FACTORS, _LARGEST_FACTOR = 16, 1e18  # their product stays below 1e300


@compiled(fastmath={"contract"})
def log_positive(x: float) -> float:
    """log x within 1 ulp for normal x > 0; log of infinity reads 709.8, so nothing downstream becomes NaN.

    x = 2^e m with m in [sqrt(1/2), sqrt 2); log m = 2 artanh(s), s = (m - 1)/(m + 1), by the minimax polynomial in s^2
    of fdlibm's `log` (its coefficients and its split of ln 2).
    """
    bits = np.float64(x).view(np.int64)
    exponent = (bits - _SQRT_HALF_BITS) >> 52
    f = np.int64(bits - (exponent << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    odd = z * (
        6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    half = 0.5 * f * f
    e = float(exponent)
    result: float = e * _LN2_HIGH - ((half - (s * (half + even + odd) + e * _LN2_LOW)) - f)
    return result


@compiled()
def log_not_negative(x: float) -> float:
    """log x for every x >= 0: `log_positive` is for normal numbers."""
    return log_positive(x) if x > _LEAST_NORMAL else math.log(x)


@compiled(fastmath={"contract"})
def log_one_plus(u: float) -> float:
    """log(1 + u) for u >= 0, to a few ulp also where u is far below 1: what 1 + u rounds away is added back."""
    v = 1.0 + u
    lost = u - (v - 1.0)
    result: float = log_positive(v) + lost / v
    return result


@compiled(fastmath={"contract"})
def exp_negative(x: float) -> float:
    """exp x within 2 ulp for x <= 0, and below 1e-307 no smaller number: a denormal costs a hundred times a normal one.

    x = n ln 2 + r with |r| <= ln 2 / 2; the Taylor series of exp r to r^13 leaves out less than 5e-18. n is rounded by
    adding and taking away 1.5 * 2^52, and goes into the exponent through the bits of that sum, without a conversion.
    The series is summed by Estrin's scheme: by Horner's each term would wait for the one before.
    """
    x = x if x > -EXP_RANGE else -EXP_RANGE
    shifted = x * _LOG2_E + _ROUNDER
    n = shifted - _ROUNDER
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    r2 = r * r
    r4 = r2 * r2
    r8 = r4 * r4
    first = r + r2 * (0.5 + r * (1.0 / 6.0))
    second = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5040.0))
    third = (1.0 / 40320.0 + r * (1.0 / 362880.0)) + r2 * (1.0 / 3628800.0 + r * (1.0 / 39916800.0))
    fourth = 1.0 / 479001600.0 + r * (1.0 / 6227020800.0)
    series = 1.0 + ((first + r4 * second) + r8 * (third + r4 * fourth))
    bits = np.float64(series).view(np.int64) + ((np.float64(shifted).view(np.int64) - _ROUNDER_BITS) << 52)
    result: float = np.int64(bits).view(np.float64)
    return result


@compiled()
def lgamma_step(a: float, step: float) -> float:
    """log G(a + step) - log G(a) for a, a + step > 0, without the cancellation of two large values.

    From 24 on, both arguments: up to 16 whole steps are factors, G(a + 1) = a G(a), of one product, a half is
    `_log_half_step`; else by Stirling's series, whose last term kept leaves out less than 1e-15 there.
    """
    if min(a, a + step) < _SERIES_FROM:
        return math.lgamma(a + step) - math.lgamma(a)
    factors = int(step)
    rest = step - factors
    if step >= 0.0 and factors <= _MOST_FACTORS and a < _LARGEST_FACTOR and (rest == 0.0 or rest == 0.5):
        product = 1.0
        for j in range(factors):
            product *= a + j
        whole: float = log_positive(product)
        return whole if rest == 0.0 else whole + _log_half_step(a + factors)
    b = a + step
    tails: float = _stirling_tail(b) - _stirling_tail(a)
    return (b - 0.5) * math.log1p(step / a) + step * (math.log(a) - 1.0) + tails


@compiled()
def _log_half_step(a: float) -> float:
    """log G(a + 1/2) - log G(a) for a >= 24.

    Of z = a - 1/4, which lies in the middle, only even powers remain of the difference of two Stirling series: the
    coefficients are -2 B_{n+1}(3/4) / (n (n + 1)) of z^-n, B being Bernoulli polynomials, and the first left out is
    4e-17 at 24.
    """
    z = a - 0.25
    r = 1.0 / (z * z)
    series = r * (1.0 / 64.0 - r * (5.0 / 2048.0 - r * (61.0 / 49152.0 - r * 1385.0 / 1048576.0)))
    half: float = 0.5 * log_positive(z) + series
    return half


@compiled()
def _stirling_tail(a: float) -> float:
    r = 1.0 / (a * a)
    return (1.0 / 12.0 - r * (1.0 / 360.0 - r * (1.0 / 1260.0 - r * (1.0 / 1680.0 - r / 1188.0)))) / a
