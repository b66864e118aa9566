"""In which order the components of a truncated stick-breaking model should stand.

With v_T = 1 and one Beta(1, alpha) stick for every other label, the labels' part of the evidence depends on their order
through

    lG(alpha + N_T) - lG(1 + N_T) - sum_{i<T} log(alpha + N_{>=i})                                     (ERRATA 2.11)

For a given last label the others are best in descending order, which makes every tail as small as it can be. Which
label should be last is another matter: for alpha <= 1 the smallest, so that plain descending order is best (Kurihara,
Welling and Teh 2007, section 3.4); for alpha > 1 the last stick is expected to be longer than the one before it, and
any label may be the best there: all T are tried.
"""

import numpy as np
from scipy.special import gammaln

from shoal.points.arrays import Array, IntArray

_BLOCK_ELEMENTS = 1 << 20
_ROUNDING = 1e-13


def best_stick_order(mass: Array, concentration: float) -> IntArray:
    """The order (T,) of masses (T,) >= 0, any real numbers, that makes the labels' evidence largest.

    Equal masses keep their order, and so does everything where nothing is gained. Cost O(T log T), for concentrations
    above one O(T^2), in bounded memory.
    """
    descending = np.argsort(-mass, kind="stable")
    if concentration <= 1.0 or mass.size < 2:
        return descending
    values = _last_label_values(mass[descending], concentration)
    best = float(values.max())
    place = int(np.flatnonzero(values >= best - _ROUNDING * abs(best))[-1])  # of equals the smallest
    return np.append(np.delete(descending, place), descending[place])


def _last_label_values(sizes: Array, alpha: float) -> Array:
    """What depends on the order, (T,): for each choice of the last label among `sizes` (T,), which descend.

    With l last, a label before place l has the tail that it had, and one after it has moved up: its tail, itself
    included, has grown by n_l.
    """
    tails = np.cumsum(sizes[::-1])[::-1]
    kept = np.append(0.0, np.cumsum(np.log(alpha + tails)))[:-1]
    values = gammaln(alpha + sizes) - gammaln(1.0 + sizes) - kept
    step = max(1, _BLOCK_ELEMENTS // sizes.size)
    places = np.arange(sizes.size)
    for start in range(0, sizes.size, step):
        rows = slice(start, start + step)
        moved = np.log(alpha + tails[None, :] + sizes[rows, None])
        values[rows] -= np.where(places[None, :] > places[rows, None], moved, 0.0).sum(axis=1)
    return np.asarray(values)
