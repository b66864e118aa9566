"""The one-pass steps of Gaussians in a subspace: those of a full Gaussian over the coordinates, and the noise outside.

`x` is a `ProjectedRows`. The noise adds the same to the score of every component, and each point's squared distance to
the component's sum.
"""

from typing import Any

from shoal.families.bounds_kernel import FROZEN, LOWEST, rounded_up
from shoal.families.gaussian.types import GaussianCache
from shoal.families.steps_kernel import (
    absorb,
    absorb_tracked,
    ceilings,
    clear_row,
    freeze,
    implements,
    lift,
    limit,
    release,
    score_all,
    score_one,
    settle,
)
from shoal.families.subspace.types import SubspaceCache
from shoal.runtime.kernels import compiled


@compiled(inline="always")
def _gaussian(cache: Any) -> Any:
    """The cache of the coordinates' Gaussians."""
    return GaussianCache(cache.mean, cache.mean_strength, cache.dof, cache.root, cache.log_det, cache.log_norm)


@implements(score_all, SubspaceCache)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    score_all(_gaussian(cache), stats, constants, x.coordinates, i, n, score, scratch)
    for k in range(n):
        score[k] += x.log_outside[i]


@implements(score_one, SubspaceCache)
def _score_one(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    own = score_one(_gaussian(cache), stats, constants, x.coordinates, i, k, scratch)
    return own + x.log_outside[i]


@implements(absorb, SubspaceCache)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    absorb(_gaussian(cache), stats, constants, x.coordinates, i, k, resp, scratch)
    stats.outside[k] += resp * x.square[i]


@implements(absorb_tracked, SubspaceCache)
def _absorb_tracked(
    cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any, tracks: Any, scored: Any
) -> None:
    absorb_tracked(_gaussian(cache), stats, constants, x.coordinates, i, k, resp, scratch, tracks, scored)
    stats.outside[k] += resp * x.square[i]


@implements(clear_row, SubspaceCache)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    clear_row(_gaussian(cache), stats, k, _gaussian(empty))
    stats.outside[k] = 0.0


@implements(release, SubspaceCache)
def _release(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    released = release(_gaussian(cache), stats, constants, x.coordinates, i, k, scratch)
    if released:
        stats.outside[k] = max(stats.outside[k] - x.square[i], 0.0)
    return released


@implements(freeze, SubspaceCache, options=FROZEN)
def _freeze(
    cache: Any, stats: Any, constants: Any, log_mass: Any, cut: Any, x: Any, i: Any, rows: Any, n: Any, bounds: Any
) -> Any:
    return freeze(_gaussian(cache), stats, constants, log_mass, cut, x.coordinates, i, rows, n, bounds)


@implements(limit, SubspaceCache)
def _limit(cache: Any, k: Any, drift: Any, shrink: Any, log_mass: Any, limits: Any) -> None:
    limit(_gaussian(cache), k, drift, shrink, log_mass, limits)


@implements(ceilings, SubspaceCache)
def _ceilings(cache: Any, bounds: Any, j: Any, n: Any, limits: Any, out: Any) -> None:
    ceilings(_gaussian(cache), bounds, j, n, limits, out)


@implements(lift, SubspaceCache)
def _lift(cache: Any, x: Any, i: Any, n: Any, out: Any) -> None:
    for k in range(n):
        out[k] = rounded_up(max(out[k] + x.log_outside[i], LOWEST))


@implements(settle, SubspaceCache)
def _settle(cache: Any, stats: Any, waiting: Any, n: Any) -> None:
    settle(_gaussian(cache), stats, waiting, n)
