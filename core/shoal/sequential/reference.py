"""The step of `sva_kernel` in plain NumPy, over a family's own functions: what the kernel is held to.

It recomputes everything from the statistics at every point and keeps no working form, so it is slow (about K Cholesky
factors a point for `gaussian`) and serves any conjugate family.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from shoal.arrays import Array, IntArray
from shoal.families.base import AnyFamily
from shoal.sequential.one_pass import PassRules
from shoal.sequential.plain_pass import responsibilities
from shoal.sequential.sva_kernel import LEAST_CUT, NEGLIGIBLE, SMALLEST_OVERLAP


class ReferenceResult(NamedTuple):
    """The mixture after a pass of N points that ended with K components, and what happened on the way."""

    stats: Any  # K rows
    born_at: IntArray  # (K,)
    last_seen_at: IntArray  # (K,)
    pairs: Array  # (K, K) symmetric, diagonal zero
    labels: IntArray  # (N,)
    log_density: Array  # (N,) log(sum_k w_k p_k + alpha p_0), before the point was taken in
    resp: Array  # (N, K) the responsibilities with which each point was taken in
    n_refused: int


def reference_pass(family: AnyFamily, rules: PassRules, x: Array) -> ReferenceResult:
    """Algorithm 1 (Lin 2013, eq. 15-16; ERRATA 5.4-5.8) over points x (N, D) from an empty mixture."""
    stats = family.empty_stats(0)
    prior = family.empty_stats(1)
    born_at: list[int] = []
    rows: list[Array] = []
    log_density = np.empty(len(x))
    n_refused = 0
    for i, point in enumerate(x[:, None, :]):
        extended = _stack(stats, prior)
        log_weights = np.log(np.append(stats.mass, rules.concentration))
        log_joint = log_weights + family.log_predictive(family.posterior(extended), point)[0]
        old = log_joint[:-1]
        old[old < old.max(initial=-np.inf) - LEAST_CUT + np.log(max(rules.responsibility_floor, NEGLIGIBLE))] = -np.inf
        log_density[i] = logsumexp(log_joint)
        wanted = bool(np.exp(log_joint[-1] - log_density[i]) > rules.birth_threshold)
        born = wanted and len(born_at) < rules.max_components
        n_refused += wanted and not born
        resp = responsibilities(log_joint if born else log_joint[:-1], rules.responsibility_floor, born)
        stats = family.add(extended if born else stats, family.suffstats(point, resp[None, :]))
        if born:
            born_at.append(i + 1)
        rows.append(resp)
    table = np.zeros((len(x), len(born_at)))
    for i, resp in enumerate(rows):
        table[i, : len(resp)] = resp
    labels = np.argmax(table, axis=1) if len(x) else np.zeros(0, dtype=np.int64)
    births = np.array(born_at, dtype=np.int64)
    last = [int(max(birth, 1 + np.flatnonzero(labels == k).max(initial=-1))) for k, birth in enumerate(born_at)]
    return ReferenceResult(
        stats,
        births,
        np.array(last, dtype=np.int64),
        pair_sums(table, rules.pair_rule),
        labels,
        log_density,
        table,
        n_refused,
    )


def pair_sums(resp: Array, rule: str) -> Array:
    """Pair sums (K, K) of responsibilities (N, K), straight from their definition; zeros under the rule `none`.

    entropy: E[k, l] = -sum_i [r_ik log(r_ik / (r_ik + r_il)) + r_il log(r_il / (r_ik + r_il))].
    overlap: M[k, l] = sum_i min(r_ik, r_il) over those above 1e-12. A component not yet born has responsibility 0.
    """
    k = resp.shape[1]
    pairs = np.zeros((k, k))
    for a in range(k):
        for b in range(a):
            p, q = resp[(resp[:, a] > 0) & (resp[:, b] > 0)][:, [a, b]].T
            if rule == "entropy":
                pairs[a, b] = -np.sum(p * np.log(p / (p + q)) + q * np.log(q / (p + q)))
            elif rule == "overlap":
                smaller = np.minimum(p, q)
                pairs[a, b] = smaller[smaller > SMALLEST_OVERLAP].sum()
            pairs[b, a] = pairs[a, b]
    return pairs


def _stack(a: Any, b: Any) -> Any:
    """The rows of two statistics, one below the other."""
    return type(a)(*(np.concatenate([x, y]) for x, y in zip(a, b, strict=True)))
