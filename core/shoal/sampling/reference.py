"""The sweep of `gibbs_kernel` in plain NumPy, over a family's own functions: the reference for the kernel's tests.

It computes all statistics again from the labels for every point. That is slow, O(N^2 D^2) a sweep, and simple.
"""

import numpy as np

from shoal.families import AnyFamily
from shoal.points.arrays import Array, IntArray


def reference_sweep(family: AnyFamily, concentration: float, labels: IntArray, x: Array, uniforms: Array) -> IntArray:
    """Labels (N,) after one sweep of algorithm 3 (Neal 2000) from `labels` (-1: in no component yet), 0..K-1 in use.

    The last component moves to the place of an emptied one, as in the kernel: labels agree, not only partitions.
    """
    z = labels.copy()
    for i in range(len(x)):
        old = z[i]
        z[i] = -1
        n = int(max(z.max(), old)) + 1
        if old >= 0 and not np.any(z == old):
            n -= 1
            z[z == n] = old
        resp = (z[:, None] == np.arange(n + 1)).astype(np.float64)
        stats = family.suffstats(x, resp)
        log_weight = np.log(np.append(resp.sum(axis=0)[:-1], concentration))
        log_p = log_weight + family.log_predictive(family.posterior(stats), x[i : i + 1])[0]
        heights = np.cumsum(np.exp(log_p - log_p.max()))
        z[i] = int(np.searchsorted(heights, uniforms[i] * heights[-1], side="right"))
    return z
