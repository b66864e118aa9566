"""The objective of the search, and the most that the prior can still add to a prefix.

The objective is log p(x, partition) = sum_k log m(S_k) + log of the exchangeable partition probability function,

    p(partition) = alpha^K prod_k (n_k - 1)! / (alpha (alpha + 1) ... (alpha + N - 1)),

not the law of the multiset of block sizes that Daume (2007) prints as eq. 2, which is another's and has another maximum
(ERRATA 4.1). Point by point: a point that joins a block of size l adds log l, one that founds a block log alpha, and
each the log predictive of its block; the denominator is the same for all partitions of the N points, so that prefixes
are compared without it.
"""

import numpy as np
from scipy.special import gammaln

from shoal.points.arrays import Array


def log_rising(concentration: float, n_points: int) -> float:
    """log alpha (alpha + 1) ... (alpha + N - 1), the denominator."""
    return float(gammaln(concentration + n_points) - gammaln(concentration))


def best_completion(n_left: int, largest: int, log_concentration: float) -> float:
    """The most that the prior can add with `n_left` points to come, when the largest block has `largest` points, nats.

    max(alpha^R, L (L + 1) ... (L + R - 1)): all alone, or all into the largest; log-convexity leaves no third (ERRATA
    4.4). Without a block the first point founds one. Daume's greedy completion falls short of it, and a value that is
    too low may cut off the best partition (ERRATA 4.3).
    """
    if n_left == 0:
        return 0.0
    if largest == 0:
        return log_concentration + best_completion(n_left - 1, 1, log_concentration)
    joined = float(gammaln(largest + n_left) - gammaln(largest))
    return max(n_left * log_concentration, joined)


def suffix_sums(values: Array) -> Array:
    """(N + 1,): the sum of values[n:] for n = 0..N."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)
