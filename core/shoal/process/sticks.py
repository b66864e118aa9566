"""Labels in stick-breaking order, every stick free: the prior's part of the evidence bound, and what a join does to it.

With one Beta(1, alpha) stick a component, none of them fixed to one, the labels of a partition whose components stand
in descending order of mass have log probability

    L = sum_i [lB(1 + n_i, alpha + n_{>i}) - lB(1, alpha)]                                              (ERRATA 0.3, i
    <= T)

Adjacent factors telescope: lB's denominator G(1 + alpha + n_{>=i}) is (alpha + n_{>=i}) times the previous numerator,
so

    L = K log alpha + lG(alpha) - lG(alpha + N) + sum_i lG(1 + n_i) - sum_i log(alpha + n_{>=i})

which costs one log-gamma and one log a component, is exact for fractional masses and finite for masses below one, where
log-gamma of the restaurant's n_k diverges. Descending order is the best one (ERRATA 1.13), so L is a function of the
multiset of masses: a move must put the masses in order again, which these functions do themselves.
"""

import numpy as np
from scipy.special import gammaln

from shoal.points.arrays import Array, IntArray

_CHUNK_ELEMENTS = 1 << 18


def log_label_prior(mass: Array, concentration: float) -> float:
    """L, in nats, of masses (K,) >= 0 given in any order."""
    return float(log_label_priors(np.asarray(mass, dtype=np.float64)[None, :], concentration)[0])


def log_label_priors(mass: Array, concentration: float) -> Array:
    """L (R,) of R lists of masses (R, K), each in any order."""
    sizes = np.sort(mass, axis=1)
    tails = np.cumsum(sizes, axis=1)  # ascending order: the tail n_{>=i} of each, itself included, from the smallest up
    total = tails[:, -1] if sizes.shape[1] else np.zeros(len(sizes))
    ends = gammaln(concentration) - gammaln(concentration + total) + sizes.shape[1] * float(np.log(concentration))
    result: Array = ends + gammaln(1.0 + sizes).sum(axis=1) - np.log(concentration + tails).sum(axis=1)
    return result


def join_label_gain(mass: Array, concentration: float, i: IntArray, j: IntArray) -> Array:
    """Change of L when components i[p] and j[p] of `mass` (K,) become one, for each pair p, (P,) in nats; i[p] != j[p].

    Cost O(K) a pair and K log K once, in bounded memory.
    """
    pairs = _Pairs(mass, concentration, i, j)
    gain = pairs.own_terms()
    step = max(1, _CHUNK_ELEMENTS // max(len(pairs.sizes), 1))
    for start in range(0, len(gain), step):
        gain[start : start + step] -= pairs.shifted_tails(slice(start, start + step))
    return gain


def join_label_ceiling(mass: Array, concentration: float, i: IntArray, j: IntArray) -> Array:
    """An upper bound of `join_label_gain` at O(1) a pair: enough to see that most pairs cannot gain.

    The tail of the m-th component above place b holds m + 1 masses of at least n_b, n_b itself being one, so that
    taking n_b from it costs at most -log(1 - 1/(m + 1)); over m = 1..M that telescopes to log(M + 1). Likewise the tail
    of the m-th above place a holds n_a + n_b and m masses of at least n_a: at most log((m + 2) / m), in sum log((M +
    1)(M + 2) / 2).
    """
    pairs = _Pairs(mass, concentration, i, j)
    between, before = pairs.second - pairs.first - 1.0, pairs.first - pairs.target + 0.0
    return np.asarray(pairs.own_terms() + np.log1p(between) + np.log1p(before) + np.log1p(before / 2))


class _Pairs:
    """Pairs among masses put in descending order.

    Joining the components at places a <= b puts their union at p <= a. The tails of those in [p, a) lose n_a + n_b, the
    tails of those in (a, b) lose n_b, and the rest keep theirs.
    """

    def __init__(self, mass: Array, concentration: float, i: IntArray, j: IntArray) -> None:
        order = np.argsort(-mass, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        self.sizes = np.asarray(mass, dtype=np.float64)[order]
        self.tails = concentration + np.cumsum(self.sizes[::-1])[::-1]
        self.log_concentration = float(np.log(concentration))
        self.first, self.second = np.minimum(place[i], place[j]), np.maximum(place[i], place[j])
        self.union = self.sizes[self.first] + self.sizes[self.second]
        self.target = np.searchsorted(-self.sizes, -self.union, side="left")

    def own_terms(self) -> Array:
        """Terms of the two components and of their union."""
        a, b = self.sizes[self.first], self.sizes[self.second]
        gammas = gammaln(1.0 + self.union) - gammaln(1.0 + a) - gammaln(1.0 + b) - self.log_concentration
        tails = self.tails
        return np.asarray(gammas + np.log(tails[self.first]) + np.log(tails[self.second]) - np.log(tails[self.target]))

    def shifted_tails(self, part: slice) -> Array:
        """Sum over the components in between of log(new tail / old tail), for the pairs of `part`."""
        target, first, second = self.target[part, None], self.first[part, None], self.second[part, None]
        places = np.arange(int(target.min()), int(second.max()))
        before = (places >= target) & (places < first)
        between = (places > first) & (places < second)
        lost = self.union[part, None] * before + self.sizes[second] * between
        return np.asarray(np.log1p(-lost / self.tails[places]).sum(axis=1))
