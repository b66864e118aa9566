"""A decay of the Gaussian families' statistics in one call: in NumPy its dozen calls cost more than a short pass."""

from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled, kernel


@compiled()
def _weaken(mass: Array, sums: Array, pairs: Array, n: int, factor: float) -> bool:
    """Whether some mass has become zero."""
    gone = False
    for k in range(min(n, mass.size)):
        before = mass[k]
        mass[k] = before * factor
        gone = gone or (before > 0.0 and not mass[k] > 0.0)
        for a in range(sums.shape[1]):
            sums[k, a] *= factor
    for k in range(min(n, pairs.shape[0])):
        for j in range(n):
            pairs[k, j] *= factor
    return bool(gone)


@kernel(makes_arrays=False)
def weaken_all(
    mass: Array,
    sums: Array,
    pairs: Array,
    past_mass: Array,
    past_sums: Array,
    past_pairs: Array,
    mid_mass: Array,
    mid_sums: Array,
    mid_pairs: Array,
    last_seen_at: IntArray,
    n: int,
    factor: float,
    seen_before: int,
    least_mass: float,
) -> bool:
    """Every point's weight times `factor` in the first n rows of live components and marks, in place.

    Masses (C,), other sums (C, P), pair sums (C, C) or (0, 0); of a mark that is not kept all are empty. Tells whether
    a component is light, or was last seen before `seen_before`, or has a mass that has become zero.
    """
    gone = _weaken(mass, sums, pairs, n, factor)
    gone = _weaken(past_mass, past_sums, past_pairs, n, factor) or gone
    gone = _weaken(mid_mass, mid_sums, mid_pairs, n, factor) or gone
    for k in range(n):
        gone = gone or mass[k] < least_mass or last_seen_at[k] < seen_before
    return bool(gone)
