"""The pass of `sva_kernel` in plain NumPy, for families that are one estimate a component (`families.estimated`).

It runs families that have no kernel, and the kernels of those that have are held to it. It reads the same arrays and
stops where they are full, so that a stream is cut and saved alike. Some tens of microseconds a point, and the family's.
"""

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from shoal.arrays import Array, IntArray
from shoal.families.estimated import EstimatedFamily
from shoal.sequential.sva_kernel import LEAST_CUT, NEGLIGIBLE, SMALLEST_OVERLAP

if TYPE_CHECKING:
    from shoal.sequential.one_pass import Components, PassRules


def plain_pass(
    family: EstimatedFamily,
    rules: "PassRules",
    components: "Components",
    n: int,
    points_seen: int,
    x: Array,
    labels: IntArray,
    log_density: Array,
) -> tuple[int, int, int, int, int]:
    """As `sva_pass`: rows taken in, components in use, births refused, the first row of these or -1, and -1."""
    stats = components.stats
    refused, first_refused, i = 0, -1, 0
    while i < len(x) and n < len(stats.mass):
        point = x[i : i + 1]
        existing = np.log(stats.mass[:n]) + family.log_likelihood(stats.estimate[:n], point)[0]
        least = existing.max(initial=-np.inf) - LEAST_CUT + np.log(max(rules.responsibility_floor, NEGLIGIBLE))
        existing[existing < least] = -np.inf
        log_joint = np.append(existing, np.log(rules.concentration) + family.log_new(point)[0])
        log_density[i] = logsumexp(log_joint)
        wanted = bool(np.exp(log_joint[-1] - log_density[i]) > rules.birth_threshold)
        born = wanted and n < rules.max_components
        if wanted and not born:
            first_refused = i if refused == 0 else first_refused
            refused += 1
        resp = responsibilities(log_joint if born else existing, rules.responsibility_floor, born)
        if rules.pair_rule == "overlap":
            _add_overlap(components.pairs, n, resp, born)
        i += 1
        _take_in(family, components, n, point[0], resp, born)
        labels[i - 1] = label = int(resp.argmax())
        components.last_seen_at[label] = points_seen + i
        if born:
            components.born_at[n] = components.last_seen_at[n] = points_seen + i
            n += 1
    return i, n, refused, first_refused, -1


def responsibilities(log_joint: Array, floor: float, born: bool) -> Array:
    """Responsibilities (K,) of sum one, those below the floor dropped: bar the last if `born`, else bar the largest."""
    resp = np.exp(log_joint - logsumexp(log_joint))
    exempt = len(resp) - 1 if born else int(np.argmax(resp))
    dropped = resp < max(floor, NEGLIGIBLE)
    dropped[exempt] = False
    resp[dropped] = 0.0
    normalised: Array = resp / resp.sum()
    return normalised


def _take_in(family: EstimatedFamily, components: "Components", n: int, point: Array, resp: Array, born: bool) -> None:
    """Move the estimates of the components with a share in the point, each from where it stood; start the newborn."""
    stats = components.stats
    seen = (float(stats.seen[0]) if n else 0.0) + 1.0
    stats.seen[: n + born] = seen
    for k in np.flatnonzero(resp[:n]):
        stats.mass[k] += resp[k]
        stats.estimate[k] = family.moved(stats.estimate[k], point, float(resp[k]), float(stats.mass[k]), seen)
    if born:
        stats.mass[n] = resp[n]
        stats.estimate[n] = family.settled(family.start(point))


def _add_overlap(pairs: Array, n: int, resp: Array, born: bool) -> None:
    """Add min(a, b) of one point to the pair sums, both triangles."""
    if born:
        pairs[n, : n + 1] = pairs[: n + 1, n] = 0.0
    k = len(resp)
    smaller = np.minimum(resp[:, None], resp[None, :])
    np.fill_diagonal(smaller, 0.0)
    pairs[:k, :k] += np.where(smaller > SMALLEST_OVERLAP, smaller, 0.0)
