"""Compiled M-steps of the Gaussian families: statistics from moments about given centres, joined with the past's.

Both are joined as `moments.join` does, each about its own mean (Chan, Golub and LeVeque 1983). Each kernel writes into
`out`. It returns False where a second moment is more than `most` times what is left of it about the points' own mean:
then the moments are to be summed again about a nearer centre.
"""

import numpy as np

from shoal.families.diagonal.types import DiagonalStats
from shoal.families.gaussian.types import GaussianStats
from shoal.families.known_covariance.types import KnownCovarianceStats
from shoal.families.located.types import WeightedMoments
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled, kernel


@compiled()
def _placed(
    k: int, sums: WeightedMoments, past_mass: Array, past_mean: Array, shift: Array, apart: Array
) -> tuple[float, float, float]:
    """Place the means of component k: that of the points from the centre, and that of the past from the points' own,
    into `shift` and `apart` (D,). Returns the joint mass, the past's share of it, and the lever of `apart`."""
    mass = sums.mass[k]
    together = mass + past_mass[k]
    share = past_mass[k] / together if together > 0.0 else 0.0
    for a in range(shift.size):
        shift[a] = sums.first[k, a] / mass if mass > 0.0 else 0.0
        apart[a] = past_mean[k, a] - (sums.centre[k, a] + shift[a] if mass > 0.0 else 0.0)
    return together, share, mass * share


@kernel()
def spherical_stats(
    sums: WeightedMoments, most: float, variance: float, past: KnownCovarianceStats, out: KnownCovarianceStats
) -> bool:
    """Statistics with one scatter a component, in units of the variance; second moments (T, D)."""
    d = sums.centre.shape[1]
    shift, apart = np.empty(d), np.empty(d)
    for k in range(sums.mass.size):
        together, share, lever = _placed(k, sums, past.mass, past.mean, shift, apart)
        scatter, between = 0.0, 0.0
        for a in range(d):
            left = sums.second[k, a] - shift[a] * sums.first[k, a]
            if sums.second[k, a] > most * left:
                return False
            scatter += left
            between += apart[a] * apart[a]
            out.mean[k, a] = (sums.centre[k, a] + shift[a] if sums.mass[k] > 0.0 else 0.0) + share * apart[a]
        out.mass[k] = together
        out.scatter[k] = (scatter + lever * between) / variance + past.scatter[k]
    return True


@kernel()
def diagonal_stats(sums: WeightedMoments, most: float, past: DiagonalStats, out: DiagonalStats) -> bool:
    """Statistics with a scatter in each feature; second moments (T, D)."""
    d = sums.centre.shape[1]
    shift, apart = np.empty(d), np.empty(d)
    for k in range(sums.mass.size):
        together, share, lever = _placed(k, sums, past.mass, past.mean, shift, apart)
        for a in range(d):
            left = sums.second[k, a] - shift[a] * sums.first[k, a]
            if sums.second[k, a] > most * left:
                return False
            out.mean[k, a] = (sums.centre[k, a] + shift[a] if sums.mass[k] > 0.0 else 0.0) + share * apart[a]
            out.scatter[k, a] = left + past.scatter[k, a] + lever * apart[a] * apart[a]
        out.mass[k] = together
    return True


@kernel()
def full_stats(sums: WeightedMoments, most: float, past: GaussianStats, out: GaussianStats) -> bool:
    """Statistics with a scatter matrix; second moments (T, D, D) the lower triangle."""
    d = sums.centre.shape[1]
    shift, apart = np.empty(d), np.empty(d)
    for k in range(sums.mass.size):
        together, share, lever = _placed(k, sums, past.mass, past.mean, shift, apart)
        for a in range(d):
            if sums.second[k, a, a] > most * (sums.second[k, a, a] - shift[a] * sums.first[k, a]):
                return False
            out.mean[k, a] = (sums.centre[k, a] + shift[a] if sums.mass[k] > 0.0 else 0.0) + share * apart[a]
            for b in range(a + 1):
                left = sums.second[k, a, b] - shift[a] * sums.first[k, b]
                out.scatter[k, a, b] = left + past.scatter[k, a, b] + lever * apart[a] * apart[b]
                out.scatter[k, b, a] = out.scatter[k, a, b]
        out.mass[k] = together
    return True
