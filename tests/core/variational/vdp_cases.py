"""Small data sets, priors, and the exact evidence of a Dirichlet process mixture by enumeration of all partitions."""

from collections import defaultdict
from collections.abc import Iterator
from functools import cache

import numpy as np
from scipy.special import betaln, logsumexp

from shoal.families import (
    BetaBernoulli,
    DirichletMultinomial,
    GammaPoisson,
    KnownCovariance,
    NormalInverseGamma,
    NormalInverseWishart,
    log_marginal,
)

X2 = np.array([[0.1, 0.2], [-0.3, 0.1], [0.2, -0.4], [3.1, 2.7], [2.8, 3.3], [-2.0, 3.0], [0.4, 0.0]])
FAMILIES = {
    "gaussian": NormalInverseWishart([0.2, 0.1], 0.3, 3.5, [[1.0, 0.2], [0.2, 0.7]]),
    "diagonal": NormalInverseGamma([0.2, 0.1], 0.3, 1.7, [0.6, 0.9]),
    "known_covariance": KnownCovariance([0.2, 0.1], [[4.0, 0.5], [0.5, 3.0]], [[0.5, 0.1], [0.1, 0.4]]),
    "spherical": KnownCovariance([0.0, 0.0], 4.0, 0.5),
}
_COUNTS = np.array([[2.0, 0, 1], [3, 1, 0], [0, 0, 4], [1, 2, 0], [0, 1, 3], [2, 1, 1], [0, 3, 0]])
COUNTED = {
    "multinomial": (DirichletMultinomial([0.4, 0.7, 1.3]), _COUNTS),
    "bernoulli": (BetaBernoulli([0.4, 0.7, 1.3], 0.6), np.minimum(_COUNTS, 1.0)),
    "poisson": (GammaPoisson([0.4, 0.7, 1.3], 0.8), _COUNTS),
}
EVERY = {name: (family, X2) for name, family in FAMILIES.items()} | COUNTED
"""Every family with seven points of its kind."""


def partitions(n: int) -> Iterator[list[int]]:
    """Restricted growth strings of length n."""

    def grow(prefix: list[int], used: int) -> Iterator[list[int]]:
        if len(prefix) == n:
            yield prefix
            return
        for label in range(used + 1):
            yield from grow([*prefix, label], max(used, label + 1))

    yield from grow([], 0)


def log_eppf_of_sticks(counts: np.ndarray, a1: float, a2: float) -> float:
    """Log probability of a partition under Beta(a1, a2) sticks: over all orders and gaps of labels, by recursion.

    With the blocks still to come holding m points, the sticks skipped before the next used one each contribute
    B(a1, a2 + m) / B(a1, a2), a geometric series.
    """

    @cache
    def total(left: tuple[int, ...]) -> float:
        """Of blocks of these sizes, ascending."""
        if not left:
            return 0.0
        m = sum(left)
        skip = -np.log(-np.expm1(betaln(a1, a2 + m) - betaln(a1, a2)))
        terms = []
        for i, size in enumerate(left):
            rest = left[:i] + left[i + 1 :]
            terms.append(betaln(a1 + size, a2 + m - size) - betaln(a1, a2) + total(rest))
        return float(skip + logsumexp(terms))

    return total(tuple(sorted(int(c) for c in counts)))


def log_evidence(family: object, x: np.ndarray, a1: float, a2: float) -> float:
    prior = cache(lambda counts: log_eppf_of_sticks(np.array(counts), a1, a2))
    evidence = log_evidence_given_sizes(family, tuple(map(tuple, x.tolist())))
    return float(logsumexp([prior(counts) + value for counts, value in evidence.items()]))


@cache
def log_evidence_given_sizes(family: object, rows: tuple[tuple[float, ...], ...]) -> dict[tuple[int, ...], float]:
    """Log of the sum over the partitions with blocks of these sizes, of the evidence of their blocks."""
    x, terms = np.array(rows), defaultdict(list)

    @cache
    def log_block(members: tuple[int, ...]) -> float:
        stats = family.suffstats(x[list(members)], np.ones((len(members), 1)))  # type: ignore[attr-defined]
        return float(log_marginal(family, stats)[0])  # type: ignore[arg-type]

    for labels in partitions(len(x)):
        blocks = [tuple(i for i, label in enumerate(labels) if label == k) for k in range(max(labels) + 1)]
        terms[tuple(sorted(map(len, blocks)))].append(sum(map(log_block, blocks)))
    return {sizes: float(logsumexp(values)) for sizes, values in terms.items()}


def grid_points(n: int, seed: int, spacing: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    """Nine unit Gaussians on a 3 x 3 grid."""
    rng = np.random.default_rng(seed)
    centres = spacing * np.array([(i, j) for i in range(3) for j in range(3)], dtype=float)
    z = rng.integers(9, size=n)
    return centres[z] + rng.normal(size=(n, 2)), z
