"""The objective of the search, and the largest gain of the prior that a prefix can still have.

The objective is log p(x, partition) = sum_k log m(S_k) + log of the exchangeable partition probability function,

    p(partition) = alpha^K prod_k (n_k - 1)! / (alpha (alpha + 1) ... (alpha + N - 1)),

It is not the law of the multiset of block sizes, which Daume (2007) prints as eq. 2 and which has another maximum
(ERRATA 4.1). A point that joins a block of size l adds log l, and one that founds a block adds log alpha. Each also
adds its log predictive under the block. The denominator is the same for all partitions of the N points, so prefixes are
compared without it.
"""

import numpy as np
from scipy.special import gammaln

from shoal.points.arrays import Array


def best_completion(n_left: int, largest: int, log_concentration: float) -> float:
    """The largest gain of the prior from `n_left` further points, with `largest` points in the largest block, nats.

    It is max(alpha^R, L (L + 1) ... (L + R - 1)): all points alone, or all in the largest block. By log-convexity no
    third choice is better (ERRATA 4.4). Without a block the first point founds one. Daume's greedy completion is lower,
    and a value that is too low may cut off the best partition (ERRATA 4.3).
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
