"""Bounds that rule out components of a point before they are scored, for a block of points at a time.

At the start of a block every component's distance to every point is worked out as it then stands, in float32, by BLAS,
and lowered by what rounding may have added (`bounds`); of full covariances first from the distances of the means alone,
then in the metric of each component that these do not rule out. While the block is learnt, a component's mean moves and
its scale grows; by how much is bounded (`drift`, `shrink`), and so is the distance that the live component keeps. What
is thereby proved to be far below the best is not scored. What is scored, is scored from the live float64 parameters:
nothing that is learnt depends on a bound, on BLAS, or on where a block begins.

With rho the responsibility of a point, w its component's strength after it, c the gain of the scatter and q the live
squared distance: taking it in multiplies the scale matrix by at most 1 + c q (since e e' <= q Psi for
q = e' Psi^-1 e), and moves the mean by rho / w times e. So, in the units that the component had at the block's start,

    drift' = drift + (rho / w) sqrt(q) / shrink,   shrink' = shrink / sqrt(1 + c q),
    sqrt(q of another point, live) >= (reach - drift) shrink.
"""

from typing import Any

import numpy as np

from shoal.families.gaussian.types import GaussianCache
from shoal.families.known_covariance.types import SphericalCache
from shoal.families.steps_kernel import (
    absorb,
    absorb_tracked,
    ceilings,
    freeze,
    implements,
    lift,
    limit,
    score_one,
    settle,
)
from shoal.families.subspace.types import SubspaceCache
from shoal.kernels.math import REORDER
from shoal.points.arrays import Array, SingleArray
from shoal.runtime.kernels import OVERLOAD_OPTIONS, compiled

FROZEN: Any = OVERLOAD_OPTIONS | {"forceinline": False, "_nrt": True}
"""Options of `freeze`, which is called once a block."""

UNIT = 2.0**-23
"""Twice the largest relative rounding of float32."""

BOUNDED = (GaussianCache, SphericalCache, SubspaceCache)
"""The predictive caches whose modules give bounds. A diagonal one costs no more to score than to bound."""

KEPT = np.float32(1.0 - 2.0**-18)
"""What rounding of single operations, here and in the live parameters, leaves of a distance, and less."""

LEAST_SQUARE, LARGEST_SQUARE = 1e-30, 1e36
"""Squared distances between which float32 has all its digits, with room to spare; elsewhere the bound is 0."""

DEFERRED = (GaussianCache, SubspaceCache)
"""Those whose outer products may wait."""

LIFTED = (SubspaceCache,)
"""Those whose scores have a part that depends on the point alone."""

LOWEST = -1e38
"""No ceiling is below it: float32 still has a number for it, and -inf is left for places without a component."""

FEWEST_BOUNDED = 4
"""Fewest components for which bounds are worked out."""


@compiled()
def rounded_up(value: float) -> Any:
    """A float32 above `value`, with room for the rounding of two more sums of float32 about its size."""
    return np.float32(value + 4.0 * UNIT * (abs(value) + 1.0))


@compiled(fastmath={"contract"})
def _squares(own: Array, squared: Array, product: Array, j: int, kept: float, bounds: Array, n: int) -> None:
    """|x|^2 + |m|^2 - 2 x'm, in float32, lowered by its rounding.

    That of the product is at most 2^-24 (D + 2) |x| |m| and as much again for its rounded factors, that of the sums
    some 2^-23 (|x|^2 + |m|^2): all below 2^-23 (D + 12) (|x|^2 + |m|^2). That of numbers so small that float32 has no
    digits for them is larger: below `LEAST_SQUARE` the square is 0.
    """
    size = own[j]
    two, nothing = np.float32(2.0), np.float32(0.0)
    least, largest = np.float32(LEAST_SQUARE), np.float32(LARGEST_SQUARE)
    for k in range(n):
        square = kept * (size + squared[k]) - two * product[j, k]
        square = square if square > nothing else nothing
        bounds[j, k] = square if square < largest and size + squared[k] > least else nothing


@compiled(fastmath=REORDER)
def _offset(x: Array, i: int, origin: Array, out: Array, j: int) -> np.float32:
    """Write x[i] - origin[0] into out[j], float32; its squared length."""
    total = 0.0
    for b in range(out.shape[1]):
        e = x[i, b] - origin[0, b]
        out[j, b] = np.float32(e)
        total += e * e
    return np.float32(total)


@compiled(makes_arrays=True, fastmath={"contract"})
def euclidean_squares(mean: Array, x: Array, i: int, rows: int, n: int, bounds: SingleArray) -> None:
    """Write into bounds[:rows, :n], float32, what |x[i + j] - mean[k]|^2 is at least: by one product, seen from the
    first mean."""
    d = x.shape[1]
    points, means, product = (
        np.empty((rows, d), np.float32),
        np.empty((n, d), np.float32),
        np.empty((rows, n), np.float32),
    )
    squared = np.empty(n, np.float32)
    for k in range(n):
        squared[k] = _offset(mean, k, mean, means, k)
    slack = np.float32(1.0 - (d + 12.0) * UNIT)
    own = np.empty(rows, np.float32)
    for j in range(rows):
        own[j] = _offset(x, i + j, mean, points, j)
    np.dot(points, means.T, product)
    for j in range(rows):
        _squares(own, squared, product, j, slack, bounds, n)


@implements(freeze, unless=BOUNDED)
def _freeze(
    cache: Any, stats: Any, constants: Any, log_mass: Any, cut: Any, x: Any, i: Any, rows: Any, n: Any, bounds: Any
) -> Any:
    return False


@implements(ceilings, unless=BOUNDED)
def _ceilings(cache: Any, bounds: Any, j: Any, n: Any, limits: Any, out: Any) -> None:
    pass


@implements(lift, unless=LIFTED)
def _lift(cache: Any, x: Any, i: Any, n: Any, out: Any) -> None:
    pass


@implements(limit, unless=BOUNDED)
def _limit(cache: Any, k: Any, drift: Any, shrink: Any, log_mass: Any, limits: Any) -> None:
    pass


@implements(score_one, unless=BOUNDED)
def _score_one(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    return np.inf


@implements(absorb_tracked, unless=BOUNDED)
def _absorb_tracked(
    cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any, tracks: Any, scored: Any
) -> None:
    absorb(cache, stats, constants, x, i, k, resp, scratch)


@implements(settle, unless=DEFERRED)
def _settle(cache: Any, stats: Any, waiting: Any, n: Any) -> None:
    pass
