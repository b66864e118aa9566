"""The evidence of components' points in closed form, for the Gaussian families, a component after the other.

With few components NumPy's some thirty calls cost far more than the arithmetic, and a search asks for the evidence
after every sweep, for every pair that may join and for every prior that it tries.
"""

import math

import numpy as np

from shoal.kernels.cholesky import factored_anyhow, log_det_of
from shoal.kernels.math import REORDER, log_positive
from shoal.points.arrays import Array
from shoal.runtime.kernels import kernel

_LOG_PI = math.log(math.pi)
_LOG_2PI = math.log(2.0 * math.pi)


@kernel(makes_arrays=False)
def known_evidence(
    mass: Array, mean: Array, scatter: Array, centre: Array, precision: float, variance: float, out: Array
) -> None:
    """log m (T,) under a covariance `variance` I and means of N(centre, variance / precision I) a priori.

    log m = -(D/2) (n log(2 pi variance) + log(1 + n / precision)) - scatter/2 - (n precision / (n + precision))
    |mean - centre|^2 / (2 variance), scatter being in units of the variance.
    """
    log_peak = -0.5 * (_LOG_2PI + math.log(variance))
    for k in range(mass.size):
        n = mass[k]
        apart = 0.0
        if n > 0.0:
            for a in range(centre.size):
                apart += (mean[k, a] - centre[a]) ** 2
        shrunk = n / (1.0 + n / precision)
        each = n * log_peak - 0.5 * math.log1p(n / precision)
        out[k] = centre.size * each - 0.5 * (scatter[k] + shrunk * apart / variance)


@kernel(makes_arrays=False, fastmath=REORDER)
def diagonal_evidence(
    mass: Array,
    mean: Array,
    scatter: Array,
    centre: Array,
    strength: float,
    shape: float,
    rate: Array,
    out: Array,
) -> None:
    """log m (T,) under a normal-inverse-gamma prior of every feature; NaN where a statistic is not finite.

    log m = -(D/2) (n log 2 pi + log(1 + n / strength)) + D log(G(shape + n/2) / G(shape)) - sum_d ((shape + n/2)
    log(rate'_d / rate_d) + n/2 log rate_d), rate'_d >= rate_d being what rate_d has become.
    """
    start, sum_log = math.lgamma(shape), 0.0
    for a in range(centre.size):
        sum_log += math.log(rate[a])
    for k in range(mass.size):
        n = mass[k]
        lever = n / (1.0 + n / strength)
        sum_log_ratio, sum_ratio = 0.0, 0.0
        for a in range(centre.size):
            apart = mean[k, a] - centre[a] if n > 0.0 else 0.0
            ratio = 1.0 + 0.5 * (scatter[k, a] + lever * apart * apart) / rate[a]
            sum_log_ratio += log_positive(ratio)
            sum_ratio += ratio
        each = math.lgamma(shape + 0.5 * n) - start - 0.5 * (n * _LOG_2PI + math.log1p(n / strength))
        value = centre.size * each - (shape + 0.5 * n) * sum_log_ratio - 0.5 * n * sum_log
        out[k] = value if sum_ratio < np.inf else np.nan


@kernel()
def gaussian_evidence(
    mass: Array,
    mean: Array,
    scatter: Array,
    centre: Array,
    strength: float,
    dof: float,
    scale: Array,
    out: Array,
) -> bool:
    """log m (T,) under a normal-inverse-Wishart prior; False where rounding left a matrix without a Cholesky factor.

    log m = -(D/2) (n log pi + log(1 + n / strength)) - dof/2 (log |scale'| - log |scale|) - n/2 log |scale'|
    + sum_d log(G((dof + n + 1 - d) / 2) / G((dof + 1 - d) / 2)), scale' being what `scale` has become.
    """
    d = centre.size
    whole, apart = scale.copy(), np.empty(d)
    log_det_before = log_det_of(whole) if factored_anyhow(whole) else np.nan
    start = 0.0
    for a in range(d):
        start += math.lgamma(0.5 * (dof - a))
    for k in range(mass.size):
        n = mass[k]
        lever = n / (1.0 + n / strength)
        for a in range(d):
            apart[a] = mean[k, a] - centre[a] if n > 0.0 else 0.0
            for b in range(a + 1):
                whole[a, b] = scale[a, b] + scatter[k, a, b] + lever * apart[a] * apart[b]
        log_det = log_det_of(whole) if factored_anyhow(whole) else np.nan
        if not log_det < np.inf:
            return False
        gammas = 0.0
        for a in range(d):
            gammas += math.lgamma(0.5 * (dof + n - a))
        powers = 0.5 * d * (n * _LOG_PI + math.log1p(n / strength))
        out[k] = gammas - start - powers - 0.5 * (dof * (log_det - log_det_before) + n * log_det)
    return bool(log_det_before < np.inf)
