"""The one-pass steps of Dirichlet components: `laplace` for one row, and an estimate that leaves far rows out.

A score is a difference of two log partitions. The one with the point takes a few steps of Newton's method from the mode
without it. So rows are first estimated, to second order in what the point moves, each feature no more than a gamma
variable would. Rows `_FAR` below the best keep the estimate.
"""

import math
from typing import Any

from shoal.families.dirichlet.laplace_kernel import (
    ALPHA,
    LOGS,
    digamma_above,
    find_mode,
    log_gamma,
    partition_at,
    rest_of,
    trigamma_above,
)
from shoal.families.dirichlet.types import LEAST_SHARE, DirichletCache
from shoal.families.steps_kernel import absorb, clear_row, implements, release, score_all
from shoal.kernels.math import REORDER
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

_FAR = 60.0
"""Nats. Estimates of components of several points are right to a few; a share of exp(-37) is lost in rounding."""


@compiled(fastmath=REORDER)
def _estimate(cache: Any, k: int, d: int, scratch: Array) -> float:
    """What log p of row k with the point of the scratch is about."""
    total, along = 0.0, 0.0
    for b in range(d):
        a, h = cache.alpha[k, b], cache.curvature[k, b]
        pull = a * (scratch[LOGS, b] - cache.expected[k, b])
        total += (a - 1.0) * scratch[LOGS, b] + 0.5 * pull * pull / (h + abs(pull))
        along += a * pull / h
    result: float = total + cache.log_front[k] + 0.5 * max(cache.coupling[k], 0.0) * along * along
    return result


@compiled()
def _score(cache: Any, stats: Any, constants: Any, k: int, logs: float, scratch: Array) -> float:
    """log p of row k with the point of the scratch, whose logarithms sum to `logs`."""
    for b in range(cache.alpha.shape[1]):
        scratch[ALPHA, b] = cache.alpha[k, b]
    find_mode(constants, stats.total, stats.mass[k], k, 1.0, scratch)
    result: float = partition_at(constants, stats.total, stats.mass[k], k, 1.0, scratch) - cache.log_partition[k] - logs
    return result


@compiled()
def _renew(cache: Any, stats: Any, constants: Any, k: int, scratch: Array) -> None:
    """The cache of row k from its statistics, begun at the alpha in it."""
    d, n = cache.alpha.shape[1], stats.mass[k] + 1.0
    for b in range(d):
        scratch[ALPHA, b] = cache.alpha[k, b]
    find_mode(constants, stats.total, stats.mass[k], k, 0.0, scratch)
    cache.log_partition[k] = partition_at(constants, stats.total, stats.mass[k], k, 0.0, scratch)
    whole, spread, front = 0.0, 0.0, 0.0
    for b in range(d):
        a = scratch[ALPHA, b]
        whole += a
        front -= log_gamma(a)
        cache.alpha[k, b] = a
        cache.curvature[k, b] = constants.pseudo_counts[b] + n * (1.0 + a * a * trigamma_above(a))
        cache.expected[k, b] = digamma_above(a) - 1.0 / a
        spread += a * a / cache.curvature[k, b]
    middle = digamma_above(whole) - 1.0 / whole
    for b in range(d):
        cache.expected[k, b] -= middle
    bend = (constants.strength - constants.shape + n * (1.0 + whole * whole * trigamma_above(whole))) / (whole * whole)
    cache.log_front[k] = front + log_gamma(whole)
    cache.coupling[k] = bend / rest_of(constants, bend, spread, whole)


@compiled()
def _take_logs(x: Array, i: int, scratch: Array) -> float:
    """log x into the scratch, and their sum."""
    total = 0.0
    for b in range(x.shape[1]):
        scratch[LOGS, b] = math.log(max(x[i, b], LEAST_SHARE))
        total += scratch[LOGS, b]
    return total


@implements(score_all, DirichletCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    d, best, first = x.shape[1], -math.inf, 0
    logs = _take_logs(x, i, scratch)
    for k in range(n):
        score[k] = _estimate(cache, k, d, scratch)
        if score[k] > best:
            best, first = score[k], k
    best = -math.inf
    for j in range(n):
        k = first if j == 0 else (j - 1 if j <= first else j)
        if j == 0 or score[k] >= best - _FAR or stats.mass[k] == 0.0:
            score[k] = _score(cache, stats, constants, k, logs, scratch)
            best = max(best, score[k])


@implements(absorb, DirichletCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    _take_logs(x, i, scratch)
    stats.mass[k] += resp
    for b in range(x.shape[1]):
        stats.total[k, b] += resp * scratch[LOGS, b]
    _renew(cache, stats, constants, k, scratch)


@implements(clear_row, DirichletCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    cache.log_partition[k] = empty.log_partition[0]
    cache.log_front[k] = empty.log_front[0]
    cache.coupling[k] = empty.coupling[0]
    stats.mass[k] = 0.0
    for b in range(cache.alpha.shape[1]):
        cache.alpha[k, b] = empty.alpha[0, b]
        cache.expected[k, b] = empty.expected[0, b]
        cache.curvature[k, b] = empty.curvature[0, b]
        stats.total[k, b] = 0.0


@implements(release, DirichletCache)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    _take_logs(x, i, scratch)
    stats.mass[k] -= 1.0
    for b in range(x.shape[1]):
        stats.total[k, b] -= scratch[LOGS, b]
    _renew(cache, stats, constants, k, scratch)
    return True
