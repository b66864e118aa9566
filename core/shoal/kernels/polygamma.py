"""The first two derivatives of log-gamma, for kernels: recurrence up to 10, Stirling's series from there.

The last term kept leaves out less than 1e-14 of the value (DLMF 5.11.2, 5.15.8).
"""

import math

from shoal.runtime.kernels import compiled

_SERIES_FROM = 10.0


@compiled()
def digamma(a: float) -> float:
    """psi(a), a > 0; within 1e-13 of its size, but near its root at 1.46."""
    shift = 0.0
    while a < _SERIES_FROM:
        shift -= 1.0 / a
        a += 1.0
    r = 1.0 / (a * a)
    series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * 691 / 32760)))))
    result: float = shift + math.log(a) - 0.5 / a - series
    return result


@compiled()
def trigamma(a: float) -> float:
    """psi'(a), 1e-150 < a; within 1e-13 of its size."""
    shift = 0.0
    while a < _SERIES_FROM:
        shift += 1.0 / (a * a)
        a += 1.0
    r = 1.0 / (a * a)
    series = r * (1 / 6 - r * (1 / 30 - r * (1 / 42 - r * (1 / 30 - r * (5 / 66 - r * 691 / 2730)))))
    result: float = shift + 1.0 / a + 0.5 * r + series / a
    return result
