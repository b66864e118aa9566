"""The Cholesky factor of one small matrix, compiled: of few features LAPACK's call takes longer than its work."""

import math

from shoal.kernels.math import REORDER
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

FEW_FEATURES = 32
"""Up to so many features this takes no longer than LAPACK."""


def _factored(a: Array) -> bool:
    """Turn the lower triangle of `a` (D, D) into its Cholesky factor; False where it is not positive definite."""
    for j in range(a.shape[0]):
        for b in range(j):
            s = a[j, b]
            for c in range(b):
                s -= a[j, c] * a[b, c]
            a[j, b] = s / a[b, b]
        s = a[j, j]
        for c in range(j):
            s -= a[j, c] * a[j, c]
        if not s > 0.0:
            return False
        a[j, j] = math.sqrt(s)
    return True


factored = compiled(fastmath={"contract"})(_factored)
"""Sums in order."""
factored_anyhow = compiled(fastmath=REORDER)(_factored)
"""Sums in vector registers: for bounds, and several times as fast from a dozen features on."""


@compiled()
def log_det_of(factor: Array) -> float:
    """log |A| of a matrix with this Cholesky factor (D, D)."""
    total = 0.0
    for a in range(factor.shape[0]):
        total += math.log(factor[a, a])
    return 2.0 * total
