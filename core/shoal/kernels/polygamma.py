"""The first derivative of log-gamma, for kernels: recurrence up to 10, Stirling's series from there.

The last term kept leaves out less than 1e-14 of the value (DLMF 5.11.2).
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
