"""Clusters of single features: algorithm 1 (`sequential.kernel`) over each column alone, in one compiled loop.

The search for a prior makes some eight passes a feature over a few hundred rows. As calls of `one_pass_inplace` they
would take half of the whole search. The clusters have an unknown mean and variance, whatever the family: a
normal-inverse-gamma prior of mean 0. `race.best_of` with the diagonal family gives the same clusters.

    p(x | k) = Student t: log p = c - (a + 1/2) log(1 + s (x - m)^2),   s = kappa / (2 (kappa + 1) b)
"""

import math
from typing import NamedTuple

import numpy as np

from shoal.kernels.math import exp_negative, log_not_negative, log_one_plus, log_positive
from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled, kernel

N_FINALISTS = 2
"""Priors that go on to the last row, of those tried over the first half."""


class UnivariateRules(NamedTuple):
    """Settings of the passes, and the shape of every prior."""

    concentration: float
    birth_threshold: float
    floor: float
    shape: float


class Clusters(NamedTuple):
    """The clusters of each of P passes: C rows, of which one serves as the empty cluster."""

    mass: Array  # (P, C)
    mean: Array  # (P, C)
    rate: Array  # (P, C)
    strength: Array  # (P, C)
    spread: Array  # (P, C) the s of the Student t
    log_weight: Array  # (P, C) log(mass) + c, of the empty cluster with the concentration as its mass


@compiled()
def _renew(clusters: Clusters, p: int, k: int, weight: float, shape: float) -> None:
    """Compute spread and log_weight of cluster k again.

    log G(a + 1/2) - log G(a) = log(z) / 2 + 1 / (64 z^2) - 5 / (2048 z^4) with z = a - 1/4, to 1e-10 from a = 16 on.
    """
    strength, rate, z = clusters.strength[p, k], clusters.rate[p, k], shape - 0.25
    spread = 0.5 * strength / ((strength + 1.0) * rate)
    r = 1.0 / (z * z)
    clusters.spread[p, k] = spread
    log_height = 0.5 * log_positive(z * spread / math.pi) + r * (1.0 / 64.0 - r * (5.0 / 2048.0))
    clusters.log_weight[p, k] = log_not_negative(weight) + log_height


@compiled()
def _clear(clusters: Clusters, p: int, k: int, strength: float, rate: float, rules: UnivariateRules) -> None:
    """Make cluster k the empty one."""
    clusters.mass[p, k], clusters.mean[p, k] = 0.0, 0.0
    clusters.strength[p, k], clusters.rate[p, k] = strength, rate
    _renew(clusters, p, k, rules.concentration, rules.shape)


@compiled()
def _absorb(clusters: Clusters, p: int, k: int, x: float, resp: float, shape: float) -> None:
    """Add x to cluster k with a responsibility."""
    strength, e = clusters.strength[p, k], x - clusters.mean[p, k]
    gain = resp / (strength + resp)
    clusters.mean[p, k] += gain * e
    clusters.rate[p, k] += 0.5 * strength * gain * e * e
    clusters.strength[p, k] = strength + resp
    clusters.mass[p, k] += resp
    _renew(clusters, p, k, clusters.mass[p, k], shape + 0.5 * clusters.mass[p, k])


@compiled()
def _learn(
    x: float, clusters: Clusters, p: int, n: int, born_allowed: bool, rules: UnivariateRules, resp: Array
) -> tuple[int, float, bool]:
    """Absorb one value into the first n clusters, or into the empty one in row n, too.

    Returns its cluster, its log density before it is absorbed, and whether it founds a cluster.
    """
    top, best = -math.inf, 0
    for k in range(n + 1):
        e = x - clusters.mean[p, k]
        power = rules.shape + 0.5 * clusters.mass[p, k] + 0.5
        resp[k] = clusters.log_weight[p, k] - power * log_one_plus(clusters.spread[p, k] * e * e)
    for k in range(n + 1):
        top = max(top, resp[k])
        best = k if k < n and resp[k] > resp[best] else best
    total = 0.0
    for k in range(n + 1):
        resp[k] = exp_negative(resp[k] - top)
        total += resp[k]
    born = born_allowed and resp[n] > rules.birth_threshold * total
    exempt = n if born else best
    least = rules.floor * (total if born else total - resp[n])
    kept = 0.0
    for k in range(n + 1):
        resp[k] = resp[k] if k == exempt or (k < n and resp[k] >= least) else 0.0
        kept += resp[k]
    label = exempt
    for k in range(n + 1):
        if resp[k] > 0.0:
            _absorb(clusters, p, k, x, resp[k] / kept, rules.shape)
            label = k if resp[k] > resp[label] else label
    return label, top + log_positive(total), born


@compiled()
def _rank(score: Array, p: int) -> int:
    """How many scores are better than that of p; of equal scores the first is the better."""
    rank = 0
    for q in range(score.size):
        rank += 1 if score[q] > score[p] or (score[q] == score[p] and q < p) else 0
    return rank


@kernel()
def cluster_columns(
    columns: Array, strength: Array, rate: Array, rules: UnivariateRules, clusters: Clusters, out: IntArray
) -> None:
    """Write into out (D, N) the clusters of each of the columns (D, N), of the prior that predicts the column best.

    Column b is searched with the priors strength[b, p], rate[p]. All are tried over the first half of the rows;
    `N_FINALISTS` go on. The score is the log predictive density of all rows but the first quarter, as of any trial.
    """
    n_rows, n_priors, most = columns.shape[1], rate.size, clusters.mass.shape[1] - 1
    resp, score, log_density = np.empty(most + 1), np.empty(n_priors), np.empty((n_priors, n_rows))
    labels, n_found = np.empty((n_priors, n_rows), dtype=np.int64), np.empty(n_priors, dtype=np.int64)
    rank = n_found.copy()
    for b in range(columns.shape[0]):
        for p in range(n_priors):
            score[p], n_found[p] = 0.0, 0
        for start, end in ((0, n_rows // 2), (n_rows // 2, n_rows)):
            for p in range(n_priors):
                if score[p] == -math.inf:
                    continue
                if start == 0:
                    _clear(clusters, p, 0, strength[b, p], rate[p], rules)
                for i in range(start, end):
                    n = n_found[p]
                    labels[p, i], log_density[p, i], born = _learn(columns[b, i], clusters, p, n, n < most, rules, resp)
                    if born:
                        n_found[p] = n + 1
                        _clear(clusters, p, n + 1, strength[b, p], rate[p], rules)
                score[p] = 0.0
                for i in range(end // 4, end):
                    score[p] += log_density[p, i]
            for p in range(n_priors):
                rank[p] = _rank(score, p)
            for p in range(n_priors):
                score[p] = score[p] if rank[p] < N_FINALISTS else -math.inf
        for p in range(n_priors):
            if rank[p] == 0:
                for i in range(n_rows):
                    out[b, i] = labels[p, i]
