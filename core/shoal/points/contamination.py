"""Values too far from all others to be of any use for a scale: found, so that no scale is made of them.

One value a million times too large among a thousand makes the deviation thirty thousand times too large, and all
clusters one point. The test for such values must not take for absurd what a heavy tail or a small far cluster gives. So
it has two wide null hypotheses on the distances of a feature's values from their median. By Rényi (1953), for a tail
that is a power law of index a, and m distances beyond the quartile r,

    P(the i-th largest > g times the next) = g^(-a i),    P(the i-th largest > t r) = P(Binomial(m, t^-a) >= i).

Few absurd values stand behind a gap. The first probability is taken with a = 2, the heaviest tail of which a variance
is on the verge of being finite. Many of different sizes leave no gap, and are too many. The second is taken with a = 1,
as it asks for the law from the quartile on, where usual laws have not yet reached their index: the Cauchy law passes.
Values are absurd where either is below its share of `FALSE_RATE`. At most a tenth of a feature's values are, as median
and quartile must be those of the others; a larger group is a cluster.
"""

import numpy as np
from scipy.special import betainc

from shoal.points.arrays import Array, BoolArray

FALSE_RATE = 1e-3
"""Probability of finding anything in features whose tails are those of the null hypothesis, over all of them."""

GAP_INDEX, NUMBER_INDEX = 2.0, 1.0
"""Indices of the heaviest tails that are not contamination, for the two tests."""

MOST_SHARE = 0.1
"""Largest share of the values of a feature that may be absurd."""


def absurd_values(values: Array, mass: Array | None = None) -> BoolArray:
    """True (N, D) for values (N, D) that are too far from the others of their feature. Row n counts `mass[n]` times."""
    weights = np.ones(len(values)) if mass is None else mass
    absurd = np.zeros(values.shape, dtype=np.bool_)
    for column in range(values.shape[1]):
        distance = np.abs(values[:, column] - _median(values[:, column], weights))
        fence = _fence(distance, weights, FALSE_RATE / values.shape[1])
        if fence is not None:
            absurd[:, column] = distance >= fence
    return absurd


def _median(values: Array, weights: Array) -> float:
    order = np.argsort(values, kind="stable")
    above = np.cumsum(weights[order])
    return float(values[order[np.searchsorted(above, 0.5 * above[-1])]])


def _fence(distance: Array, weights: Array, rate: float) -> float | None:
    """The least of the absurd distances (N,) from the median; None where none is.

    Distances of zero say nothing: a feature that is constant but for some values has no scale to compare them with.
    """
    order = np.argsort(-distance, kind="stable")
    order = order[(distance[order] > 0.0) & (weights[order] > 0.0)]
    ordered, rank = distance[order], np.cumsum(weights[order])
    if ordered.size < 2 or MOST_SHARE * rank[-1] < 1.0:
        return None
    m = np.floor(0.25 * rank[-1])
    quartile = ordered[min(int(np.searchsorted(rank, m)), ordered.size - 1)]
    if ordered[0] <= quartile * m ** (1.0 / GAP_INDEX):
        return None  # no farther than the largest of such a tail is expected to be: nearly always
    found = np.flatnonzero((rank[:-1] >= 1.0) & (rank[:-1] <= MOST_SHARE * rank[-1]))
    largest, following, count = ordered[found], ordered[found + 1], np.floor(rank[found])
    gap = (1.0 + 2.0 / rate) ** (1.0 / GAP_INDEX)  # the sum of gap^(-a i) over i is half of the rate
    share = np.minimum(1.0, (quartile / largest) ** NUMBER_INDEX)
    too_many = betainc(count, m - count + 1.0, share) < 0.5 * rate / np.floor(MOST_SHARE * rank[-1])
    absurd = (largest > gap * following) | (too_many & ~too_many[-1:])  # up to the last one: more than a tenth
    if not absurd.any():
        return None
    fence = float(largest[np.flatnonzero(absurd)[-1]])
    return fence if weights[distance >= fence].sum() <= MOST_SHARE * rank[-1] else None
