"""The M-step of the Gaussian families: sums about the centres of a sweep, and the past, as statistics together.

As `moments.join` of a component's window and its past, each about its own mean (Chan, Golub and LeVeque 1983).
"""

import numpy as np

from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled, kernel


@compiled()
def _placed(
    k: int, centre: Array, mass: Array, first: Array, past_mass: Array, past_mean: Array, shift: Array, apart: Array
) -> tuple[float, float, float]:
    """Of component k: what its window's mean is shifted by from the centre, and how far the past's mean lies from it,
    into `shift` and `apart` (D,); mass together, the past's share of it, and the lever of `apart`."""
    together = mass[k] + past_mass[k]
    share = past_mass[k] / together if together > 0.0 else 0.0
    for a in range(shift.size):
        shift[a] = first[k, a] / mass[k] if mass[k] > 0.0 else 0.0
        apart[a] = past_mean[k, a] - (centre[k, a] + shift[a] if mass[k] > 0.0 else 0.0)
    return together, share, mass[k] * share


@kernel()
def known_together(
    centre: Array,
    mass: Array,
    first: Array,
    second: Array,
    most: float,
    variance: float,
    past_mass: Array,
    past_mean: Array,
    past_scatter: Array,
    out_mass: Array,
    out_mean: Array,
    out_scatter: Array,
) -> bool:
    """Statistics of sums (T,), (T, D), (T, D) and of the past, scatters in units of the variance; False where a sum of
    squares is more than `most` times what is left of it about the rows' own mean: they are to be added up anew."""
    d = centre.shape[1]
    shift, apart = np.empty(d), np.empty(d)
    for k in range(mass.size):
        together, share, lever = _placed(k, centre, mass, first, past_mass, past_mean, shift, apart)
        scatter, between = 0.0, 0.0
        for a in range(d):
            left = second[k, a] - shift[a] * first[k, a]
            if second[k, a] > most * left:
                return False
            scatter += left
            between += apart[a] * apart[a]
            out_mean[k, a] = (centre[k, a] + shift[a] if mass[k] > 0.0 else 0.0) + share * apart[a]
        out_mass[k] = together
        out_scatter[k] = (scatter + lever * between) / variance + past_scatter[k]
    return True


@kernel()
def diagonal_together(
    centre: Array,
    mass: Array,
    first: Array,
    second: Array,
    most: float,
    past_mass: Array,
    past_mean: Array,
    past_scatter: Array,
    out_mass: Array,
    out_mean: Array,
    out_scatter: Array,
) -> bool:
    """As `known_together`, scatters (T, D) of each feature."""
    d = centre.shape[1]
    shift, apart = np.empty(d), np.empty(d)
    for k in range(mass.size):
        together, share, lever = _placed(k, centre, mass, first, past_mass, past_mean, shift, apart)
        for a in range(d):
            left = second[k, a] - shift[a] * first[k, a]
            if second[k, a] > most * left:
                return False
            out_mean[k, a] = (centre[k, a] + shift[a] if mass[k] > 0.0 else 0.0) + share * apart[a]
            out_scatter[k, a] = left + past_scatter[k, a] + lever * apart[a] * apart[a]
        out_mass[k] = together
    return True


@kernel()
def gaussian_together(
    centre: Array,
    mass: Array,
    first: Array,
    second: Array,
    most: float,
    past_mass: Array,
    past_mean: Array,
    past_scatter: Array,
    out_mass: Array,
    out_mean: Array,
    out_scatter: Array,
) -> bool:
    """As `known_together`, of second moments (T, D, D) the lower triangle; scatters (T, D, D)."""
    d = centre.shape[1]
    shift, apart = np.empty(d), np.empty(d)
    for k in range(mass.size):
        together, share, lever = _placed(k, centre, mass, first, past_mass, past_mean, shift, apart)
        for a in range(d):
            if second[k, a, a] > most * (second[k, a, a] - shift[a] * first[k, a]):
                return False
            out_mean[k, a] = (centre[k, a] + shift[a] if mass[k] > 0.0 else 0.0) + share * apart[a]
            for b in range(a + 1):
                left = second[k, a, b] - shift[a] * first[k, b]
                out_scatter[k, a, b] = left + past_scatter[k, a, b] + lever * apart[a] * apart[b]
                out_scatter[k, b, a] = out_scatter[k, a, b]
        out_mass[k] = together
    return True
