"""The one-pass steps of the categorical family: a point reads and changes one count of each feature."""

import math
from typing import Any

from shoal.families.categorical.types import CategoricalCache
from shoal.families.counts.kernel import LARGEST, LEAST
from shoal.families.steps_kernel import absorb, clear_row, implements, release, score_all
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled


@compiled()
def place_of(constants: Any, x: Any, i: int, d: int) -> int:
    """Column of the level of feature d of point x[i]; levels beyond the last one are the last. It is one of the feature
    whatever the number is, because rows are checked elsewhere."""
    first, after = constants.start[d], constants.start[d + 1]
    place: int = first + int(max(min(x[i, d], float(after - first - 1)), 0.0))
    return place


@compiled()
def log_norm_of(constants: Any, mass: float) -> float:
    """The cache of a component of that mass."""
    total = 0.0
    for d in range(constants.strength.size):
        total -= math.log(constants.strength[d] + mass)
    return total


@compiled()
def _score(cache: Any, stats: Any, constants: Any, x: Any, i: int, n: int, score: Array) -> None:
    for k in range(n):
        product, logs = 1.0, cache.log_norm[k]
        for d in range(constants.strength.size):
            p = place_of(constants, x, i, d)
            product *= constants.pseudo_counts[p] + stats.total[k, p]
            if not LEAST < product < LARGEST:
                logs += math.log(product)
                product = 1.0
        score[k] = logs + math.log(product)


@compiled()
def _add(cache: Any, stats: Any, constants: Any, x: Any, i: int, k: int, resp: float) -> None:
    stats.mass[k] += resp
    for d in range(constants.strength.size):
        stats.total[k, place_of(constants, x, i, d)] += resp
    cache.log_norm[k] = log_norm_of(constants, stats.mass[k])


@implements(score_all, CategoricalCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    _score(cache, stats, constants, x, i, n, score)


@implements(absorb, CategoricalCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    _add(cache, stats, constants, x, i, k, resp)


@implements(clear_row, CategoricalCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    cache.log_norm[k] = empty.log_norm[0]
    stats.mass[k] = 0.0
    for p in range(stats.total.shape[1]):
        stats.total[k, p] = 0.0


@implements(release, CategoricalCache)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    _add(cache, stats, constants, x, i, k, -1.0)
    return True
