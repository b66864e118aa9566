"""The entry to the one-pass kernel: it gives arrays one type, so that each family compiles once."""

from typing import Any

import numpy as np

from shoal.families.base import AnyFamily
from shoal.families.predictive_cache import deferred_rows, has_kernels, kernel_points, kernel_prior, kernel_views
from shoal.points.arrays import LARGEST_COORDINATE, Array, IntArray, largest_magnitude
from shoal.points.rows import Points
from shoal.sequential.kernel import ENTROPY, NO_PAIRS, OVERLAP, new_memory, sva_pass
from shoal.sequential.passes import Components, PassResult, PassRules
from shoal.sequential.reference import reference_pass_inplace

LONGEST_BLOCK = 1_024
"""Most rows for which bounds are computed at a time."""

_PAIR_RULES = {"none": NO_PAIRS, "entropy": ENTROPY, "overlap": OVERLAP}


def one_pass_inplace(
    family: AnyFamily,
    rules: PassRules,
    components: Components,
    n_components: int,
    points_seen: int,
    x: Points,
    labels: IntArray,
    log_density: Array,
    novelties: Array | None = None,
    *,
    weights: Array | None = None,
    block_rows: int | None = None,
    bounded: bool = False,
) -> PassResult:
    """Absorb standardised points x (N, D) in order, updating `components`. One call of the kernel.

    The result is the same, to the bit, however the stream is cut into calls and however many rows the arrays have; row
    `n_components` must exist (it serves as the empty component; what rows from there on hold does not matter).

    Written for the rows absorbed: `labels` (N,) int64, the component (row) of largest final responsibility, a newborn
    counted, ties to the lowest; `log_density` (N,), log(sum_k w_k p_k + alpha p_0) before the point was absorbed,
    from which log(alpha + sum w) is still to be subtracted; `novelties` (N,), where given, the responsibility of the
    empty component then.

    `weights` (N,), where given: each point's statistics and pair sums count so many times.

    Components that cannot matter are left unscored where bounds prove it, `block_rows` points at a time (1: all are
    scored): that changes nothing, to the bit.

    Coordinates beyond 1e100 count as 1e100 with their sign (`bounded` says that there are none). A point so far
    out that its log score saturates under every component ties them all; with a prior within a factor of 1e90 of the
    data's scale that cannot happen.
    """
    out = (labels, log_density, np.empty(len(x)) if novelties is None else novelties)
    if not has_kernels(family):
        return reference_pass_inplace(family, rules, components, n_components, points_seen, x, *out, weights=weights)
    given = (family, rules, components, n_components, points_seen, x, *out, weights, block_rows, bounded)
    return PassResult(*sva_pass(*pass_arguments(*given)))


def pass_arguments(
    family: AnyFamily,
    rules: PassRules,
    components: Components,
    n_components: int,
    points_seen: int,
    x: Points,
    labels: IntArray,
    log_density: Array,
    novelties: Array,
    weights: Array | None = None,
    block_rows: int | None = None,
    bounded: bool = False,
) -> tuple[Any, ...]:
    """What `one_pass_inplace` calls the kernel with: of these types for every stream with the same predictive cache."""
    monitor, prior = components.monitor, kernel_prior(family)
    stats, cache, empty = kernel_views(family, components.stats, components.cache, prior.empty)
    capacity = components.stats[0].shape[0]
    points = kernel_points(family, x if bounded else within_bounds(x))
    longest = min(LONGEST_BLOCK if block_rows is None else int(block_rows), max(len(x), 1))
    return (
        points,
        np.zeros(0) if weights is None else np.require(weights, np.float64, ["C", "W"]),
        (empty, prior.constants),
        stats,
        cache,
        (
            components.born_at,
            components.last_seen_at,
            components.pairs,
            monitor.base,
            monitor.spread,
            monitor.level,
            monitor.collected,
        ),
        (
            float(rules.concentration),
            float(rules.birth_threshold),
            float(rules.responsibility_floor),
            _PAIR_RULES[rules.pair_rule],
            int(rules.max_components),
            longest,
        ),
        n_components,
        points_seen,
        (labels, log_density, novelties),
        new_memory(capacity, points.shape[1], longest, deferred_rows(family, capacity)),
    )


def within_bounds(x: Points) -> Points:
    """Tables with bounded coordinates; a copy only where it must be."""
    if isinstance(x, np.ndarray) and largest_magnitude(x) > LARGEST_COORDINATE:
        return np.clip(x, -LARGEST_COORDINATE, LARGEST_COORDINATE)
    return x
