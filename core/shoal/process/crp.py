"""The Chinese restaurant: the law of a partition, and what the next point does."""

import numpy as np
from scipy.special import gammaln

from shoal.points.arrays import Array


def log_rising(concentration: float, n_points: float) -> float:
    """log alpha (alpha + 1) ... (alpha + N - 1): the denominator of the probability of a partition, nats."""
    return float(gammaln(concentration + n_points) - gammaln(concentration))


def log_eppf(counts: Array, concentration: float) -> float:
    """Log probability of a partition with block sizes `counts` (K,), each > 0, in nats.

    alpha^K prod_k (n_k - 1)! / (alpha (alpha + 1) ... (alpha + N - 1)), exchangeable in the blocks (ERRATA 4.1: this,
    not the law of the multiset of sizes, is the prior of a partition). Blocks of size 0 are none: leave them out.
    """
    sizes = np.asarray(counts, dtype=np.float64)
    rising = log_rising(concentration, float(sizes.sum()))
    return sizes.size * float(np.log(concentration)) + float(gammaln(sizes).sum()) - rising


def predictive_weights(mass: Array, concentration: float) -> tuple[Array, float]:
    """Weights (K,) of the existing components for the next point, and that of a new one; together they sum to one.

    w_k / (alpha + sum w) and alpha / (alpha + sum w), Lin (2013) eq. 12 with the mass that is there (ERRATA 5.13).
    """
    total = concentration + float(np.sum(mass))
    return np.asarray(mass, dtype=np.float64) / total, concentration / total
