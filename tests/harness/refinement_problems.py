"""Problems for the refinement engine, made by hand, and the functional worked out by another road."""

from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import betaln, entr

from shoal.families import (
    AnyFamily,
    BetaBernoulli,
    DirichletMultinomial,
    GammaPoisson,
    KnownCovariance,
    NormalInverseGamma,
    NormalInverseWishart,
    take,
)
from shoal.mixture import Past
from shoal.points.arrays import Array
from shoal.points.rows import SparseRows
from shoal.refinement import Problem, Solution

CONCENTRATION = 0.7


def pair_entropies(resp: Array, weights: Array) -> Array:
    """E (T, T), nats, of responsibilities (N, T): the weighted entropy between two, given that it is one of them."""
    n_components = resp.shape[1]
    found = np.zeros((n_components, n_components))
    for a in range(n_components):
        for b in range(a):
            u, v = resp[:, a], resp[:, b]
            found[a, b] = found[b, a] = weights @ (entr(u) + entr(v) - entr(u + v))
    return found


GAUSSIANS: dict[str, AnyFamily] = {
    "gaussian": NormalInverseWishart([0.1, -0.2], 0.5, 4.0, [[0.6, 0.1], [0.1, 0.4]]),
    "diagonal": NormalInverseGamma([0.1, -0.2], 0.5, 1.5, [0.4, 0.3]),
    "spherical": KnownCovariance([0.1, -0.2], 3.0, 0.3),
}
COUNTS: dict[str, AnyFamily] = {
    "multinomial": DirichletMultinomial([0.5, 0.7, 0.4]),
    "bernoulli": BetaBernoulli([0.5, 0.6, 0.7], 0.8),
    "poisson": GammaPoisson([1.0, 1.5, 0.8], 0.6),
}
FAMILIES = GAUSSIANS | COUNTS


def points_for(name: str, n: int, rng: np.random.Generator) -> Any:
    """n points that a family takes, in two groups."""
    side = rng.integers(2, size=n)
    if name in GAUSSIANS:
        return 0.5 * rng.normal(size=(n, 2)) + 2.5 * side[:, None]
    if name == "bernoulli":
        return SparseRows.of((rng.random((n, 3)) < np.where(side[:, None] == 1, 0.8, 0.2)).astype(float))
    return SparseRows.of(rng.poisson(np.where(side[:, None] == 1, [4.0, 1.0, 0.5], [0.5, 1.0, 4.0])).astype(float))


def problem_of(
    family: AnyFamily, x: Any, resp: Array, n_past: int, *, weights: Array | None = None, reestimate: bool = False
) -> Problem:
    """Points x (N, D) with responsibilities (N, T), the first n_past of them having left the window."""
    weights = np.ones(len(x)) if weights is None else weights
    weighted = resp * weights[:, None]
    pairs = pair_entropies(resp[:n_past], weights[:n_past])
    past = Past(family.suffstats(x[:n_past], weighted[:n_past]), pairs)
    live = family.suffstats(x, weighted)
    return Problem(family, CONCENTRATION, x[n_past:], weights[n_past:], past, live, reestimate)


def sharpened(rng: np.random.Generator, n: int, n_components: int) -> Array:
    """Responsibilities (n, T), some of them nearly certain."""
    raw = rng.random((n, n_components)) ** 4
    return np.asarray(raw / raw.sum(axis=1, keepdims=True))


def fed(problem: Problem, solution: Solution) -> Problem:
    """The next refinement, without new points: what an adoption would leave."""
    past = Past(solution.past_stats, solution.past_pairs)
    return problem._replace(family=solution.family, live=solution.stats, past=past)


def log_marginal_by_parts(family: AnyFamily, x: Any, weight: Array) -> float:
    """log m of points x (n, D) with weights, by the chain rule of the conjugate normaliser, a point at a time."""
    total, stats = 0.0, family.empty_stats(1)
    for i in range(len(x)):
        after = family.add(stats, family.suffstats(x[i : i + 1], weight[i : i + 1, None]))
        before, now = (family.log_partition(family.posterior(s))[0] for s in (stats, after))
        total += float(now - before) + float(family.log_carrier(after)[0] - family.log_carrier(stats)[0])
        stats = after
    return total


def functional(family: AnyFamily, x: Any, resp: Array, weights: Array) -> float:
    """sum_k log m_k + free sticks in decreasing mass + entropy, of all points with responsibilities (N, T)."""
    weighted = resp * weights[:, None]
    evidence = sum(log_marginal_by_parts(family, x, weighted[:, k]) for k in range(resp.shape[1]))
    mass = np.sort(weighted.sum(axis=0))[::-1]
    after = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0)
    sticks = betaln(1.0 + mass, CONCENTRATION + after) - betaln(1.0, CONCENTRATION)
    return float(evidence + sticks.sum() + weights @ entr(resp).sum(axis=1))


def partitions(n: int) -> list[list[list[int]]]:
    """All partitions of range(n)."""
    if n == 0:
        return [[]]
    found = []
    for size in range(n):
        for others in combinations(range(1, n), size):
            block, rest = [0, *others], [i for i in range(1, n) if i not in others]
            for inner in partitions(len(rest)):
                found.append([block, *[[rest[i] for i in part] for part in inner]])
    return found


def rows_of(stats: Any, rows: Any) -> Any:
    return take(stats, rows)
