"""What the kernel is held to: the plain pass from an empty mixture, with the responsibilities of all points, and what
follows from those by definition."""

from typing import Any, NamedTuple

import numpy as np

from shoal.families.base import AnyFamily, take
from shoal.points.arrays import Array, IntArray
from shoal.sequential.one_pass import PassRules, new_components
from shoal.sequential.plain_pass import plain_pass
from shoal.sequential.responsibilities_kernel import SMALLEST_OVERLAP


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
    rows = min(rules.max_components, len(x)) + 1
    components = new_components(family, rows, rules.pair_rule)
    labels, log_density, resp = np.zeros(len(x), dtype=np.int64), np.empty(len(x)), np.zeros((len(x), rows))
    _, n, n_refused, _, _ = plain_pass(family, rules, components, 0, 0, x, labels, log_density, resp)
    resp = resp[:, :n]
    births = components.born_at[:n]
    last = [int(max(birth, 1 + np.flatnonzero(labels == k).max(initial=-1))) for k, birth in enumerate(births)]
    return ReferenceResult(
        take(components.stats, slice(0, n)),
        births,
        np.array(last, dtype=np.int64),
        pair_sums(resp, rules.pair_rule),
        labels,
        log_density,
        resp,
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
