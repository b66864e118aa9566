"""Which components a point cannot belong to, proved before they are scored: bounds for a block of points at a time.

At the start of a block every component's distance to every point is worked out as it then stands, in float32, by BLAS,
and lowered by what rounding may have added (`reach`); of full covariances first from the distances of the means alone,
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
from numba.extending import overload

from shoal._numba import compiled
from shoal.arrays import Array, SingleArray
from shoal.families.api_kernel import OPTIONS, absorb, absorb_tracked, ceilings, freeze, score_one
from shoal.families.working import GaussianWork, SphericalWork

FROZEN: Any = {"error_model": "numpy", "nogil": True}
"""Options of `freeze`, which is called once a block."""

UNIT = 2.0**-23
"""Twice the largest relative rounding of float32."""

BOUNDED = (GaussianWork, SphericalWork)
"""The working forms whose modules give bounds. A diagonal one costs no more to score than to bound."""

KEPT = np.float32(1.0 - 2.0**-18)
"""What rounding of single operations, here and in the live parameters, leaves of a distance, and less."""

LEAST_SQUARE, LARGEST_SQUARE = 1e-30, 1e36
"""Squared distances between which float32 has all its digits, with room to spare; elsewhere the bound is 0."""


FEWEST_BOUNDED = 4
"""Fewest components for which bounds are worked out."""


@compiled(fastmath={"contract"})
def _roots(own: float, squared: Array, product: Array, kept: float, reach: Array, n: int) -> None:
    """Roots of |x|^2 + |m|^2 - 2 x'm, in float32, lowered by its rounding.

    That of the product is at most 2^-24 (D + 2) |x| |m| and as much again for its rounded factors, that of the sums
    some 2^-23 (|x|^2 + |m|^2): all below 2^-23 (D + 12) (|x|^2 + |m|^2). That of numbers so small that float32 has no
    digits for them is larger: below `LEAST_SQUARE` the root is 0.
    """
    two, nothing = np.float32(2.0), np.float32(0.0)
    least, largest = np.float32(LEAST_SQUARE), np.float32(LARGEST_SQUARE)
    for k in range(n):
        square = kept * (own + squared[k]) - two * product[k]
        square = square if square > nothing else nothing
        square = square if square < largest and own + squared[k] > least else nothing
        reach[k] = KEPT * np.sqrt(square)


@compiled(fastmath={"contract"})
def euclidean_reach(mean: Array, x: Array, i: int, rows: int, n: int, reach: SingleArray) -> None:
    """Write into reach[:rows, :n], float32, what |x[i + j] - mean[k]| is at least: by one product, seen from the first
    mean."""
    d = x.shape[1]
    points, means, product = (
        np.empty((rows, d), np.float32),
        np.empty((d, n), np.float32),
        np.empty((rows, n), np.float32),
    )
    squared = np.empty(n, np.float32)
    for k in range(n):
        total = 0.0
        for b in range(d):
            e = mean[k, b] - mean[0, b]
            means[b, k] = np.float32(e)
            total += e * e
        squared[k] = np.float32(total)
    slack = np.float32(1.0 - (d + 12.0) * UNIT)
    own = np.empty(rows, np.float32)
    for j in range(rows):
        total = 0.0
        for b in range(d):
            e = x[i + j, b] - mean[0, b]
            points[j, b] = np.float32(e)
            total += e * e
        own[j] = np.float32(total)
    np.dot(points, means, product)
    for j in range(rows):
        _roots(own[j], squared, product[j], slack, reach[j], n)


def _unbounded(work: Any) -> bool:
    return getattr(work, "instance_class", None) not in BOUNDED


@overload(freeze, jit_options=OPTIONS)
def _freeze(
    work: Any, stats: Any, constants: Any, log_mass: Any, cut: Any, x: Any, i: Any, rows: Any, n: Any, reach: Any
) -> Any:
    def implementation(
        work: Any, stats: Any, constants: Any, log_mass: Any, cut: Any, x: Any, i: Any, rows: Any, n: Any, reach: Any
    ) -> Any:
        return False

    return implementation if _unbounded(work) else None


@overload(ceilings, jit_options=OPTIONS)
def _ceilings(work: Any, reach: Any, j: Any, n: Any, drift: Any, shrink: Any, log_mass: Any, out: Any) -> Any:
    def implementation(work: Any, reach: Any, j: Any, n: Any, drift: Any, shrink: Any, log_mass: Any, out: Any) -> Any:
        pass

    return implementation if _unbounded(work) else None


@overload(score_one, jit_options=OPTIONS)
def _score_one(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    def implementation(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
        return np.inf

    return implementation if _unbounded(work) else None


@overload(absorb_tracked, jit_options=OPTIONS)
def _absorb_tracked(
    work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any, drift: Any, shrink: Any
) -> Any:
    if not _unbounded(work):
        return None

    def implementation(
        work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any, drift: Any, shrink: Any
    ) -> Any:
        absorb(work, stats, constants, x, i, k, resp, scratch)

    return implementation
