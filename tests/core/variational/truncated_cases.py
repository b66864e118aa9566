"""Small data, priors, the six methods, and the exact evidence of the truncated models by enumeration of partitions."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import permutations
from math import factorial, perm
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.mixture import BatchFit
from shoal.points.arrays import Array
from shoal.variational import fit_cfsd, fit_ctsb, fit_fsd, fit_o_ctsb, fit_o_tsb, fit_tsb

from . import vdp_cases

ALPHAS = (0.3, 1.0, 4.0)
X = np.array([[0.1, 0.2], [-0.3, 0.1], [0.2, -0.4], [3.1, 2.7], [2.8, 3.3], [-2.0, 3.0]])
FAMILIES: dict[str, AnyFamily] = {
    "gaussian": NormalInverseWishart([0.2, 0.1], 0.3, 3.5, [[1.0, 0.2], [0.2, 0.7]]),
    "diagonal": NormalInverseGamma([0.2, 0.1], 0.3, 1.7, [0.6, 0.9]),
    "known_covariance": KnownCovariance([0.2, 0.1], [[4.0, 0.5], [0.5, 3.0]], [[0.5, 0.1], [0.1, 0.4]]),
    "spherical": KnownCovariance([0.0, 0.0], 4.0, 0.5),
}
COUNTED: dict[str, tuple[AnyFamily, Array]] = {name: (family, x[:6]) for name, (family, x) in vdp_cases.COUNTED.items()}
EVERY: dict[str, tuple[AnyFamily, Array]] = {name: (family, X) for name, family in FAMILIES.items()} | COUNTED
"""Every family with six points of its kind."""
Fit = Callable[..., BatchFit]
UNCOLLAPSED: dict[str, Fit] = {"tsb": fit_tsb, "o-tsb": fit_o_tsb, "fsd": fit_fsd}
TAYLOR: dict[str, Fit] = {"ctsb": fit_ctsb, "o-ctsb": fit_o_ctsb, "cfsd": fit_cfsd}
COLLAPSED: dict[str, Fit] = {f"{name} exact": partial(fit, expectations="exact") for name, fit in TAYLOR.items()}
BOUNDS = UNCOLLAPSED | COLLAPSED
"""The methods whose value is a bound, in every form."""
ALL = BOUNDS | {f"{name} taylor": fit for name, fit in TAYLOR.items()}


def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def some_resp(n: int, t: int, seed: int = 0, sharpness: float = 1.0) -> Array:
    score = sharpness * np.random.default_rng(seed).normal(size=(n, t))
    weights = np.exp(score - score.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def partitions(n: int) -> Iterator[tuple[int, ...]]:
    """Restricted growth strings of length n."""

    def grow(prefix: tuple[int, ...], used: int) -> Iterator[tuple[int, ...]]:
        if len(prefix) == n:
            yield prefix
            return
        for label in range(used + 1):
            yield from grow((*prefix, label), max(used, label + 1))

    yield from grow((), 0)


def log_sticks(counts: Any, alpha: float) -> float:
    """log p(z) of label counts under truncated sticks, ERRATA 2.1 factor by factor."""
    later = np.cumsum(np.array(counts, dtype=float)[::-1])[::-1]
    own, tail, whole = np.array(counts[:-1], dtype=float), later[1:], later[:-1]
    terms = np.log(alpha) + gammaln(1 + own) + gammaln(alpha + tail) - gammaln(1 + alpha + whole)
    return float(terms.sum())


def log_symmetric(counts: Any, alpha: float) -> float:
    share, n = alpha / len(counts), sum(counts)
    terms = gammaln(share + np.array(counts, dtype=float)) - gammaln(share)
    return float(gammaln(alpha) - gammaln(alpha + n) + terms.sum())


def log_labels(method: str, counts: Any, alpha: float) -> float:
    return (log_symmetric if "fsd" in method else log_sticks)(counts, alpha)


def log_partition_prior(method: str, counts: tuple[int, ...], truncation: int, alpha: float) -> float:
    """log p(partition): the sum over all ways to give the blocks different labels."""
    k = len(counts)
    if k > truncation:
        return -np.inf
    padded = (*counts, *[0] * (truncation - k))
    if "fsd" in method:
        return float(np.log(perm(truncation, k)) + log_symmetric(padded, alpha))
    repeats = np.log(factorial(truncation - k))  # permutations of the empty labels among themselves
    return float(logsumexp([log_sticks(order, alpha) for order in permutations(padded)]) - repeats)


def log_block(family: AnyFamily, x: Array) -> float:
    """log p(x) of one component's points by the chain rule of predictives."""
    total = 0.0
    for n in range(len(x)):
        seen = family.posterior(family.suffstats(x[:n], np.ones((n, 1))) if n else family.empty_stats(1))
        total += float(family.log_predictive(seen, x[n : n + 1])[0, 0])
    return total


def log_evidence(method: str, family: AnyFamily, x: Array, truncation: int, alpha: float) -> float:
    """log p(x) of the truncated model itself."""
    evidence = log_evidence_given_sizes(family, tuple(map(tuple, x.tolist())))
    return float(logsumexp([log_partition_prior(method, s, truncation, alpha) + e for s, e in evidence.items()]))


@cache
def log_evidence_given_sizes(family: AnyFamily, rows: tuple[tuple[float, ...], ...]) -> dict[tuple[int, ...], float]:
    """Log of the sum over the partitions with blocks of these sizes, of the evidence of their blocks."""
    x, terms = np.array(rows), defaultdict(list)
    block = cache(lambda members: log_block(family, x[list(members)]))
    for z in partitions(len(x)):
        members = [tuple(i for i, label in enumerate(z) if label == k) for k in range(max(z) + 1)]
        terms[tuple(sorted(map(len, members), reverse=True))].append(sum(map(block, members)))
    return {sizes: float(logsumexp(values)) for sizes, values in terms.items()}
