"""Which components a point cannot belong to, proved before they are scored: bounds for a block of points at a time.

At the start of a block every component's distance to every point is worked out as it then stands, in float32, by BLAS,
and lowered by what rounding may have added (`reach`). While the block is learnt, a component's mean moves and its scale
grows; by how much is bounded (`drift`, `shrink`), and so is the distance that the live component keeps. What is thereby
proved to be far below the best is not scored. What is scored, is scored from the live float64 parameters: nothing that
is learnt depends on a bound, on BLAS, or on where a block begins.

With rho the responsibility of a point, w its component's strength after it, c the gain of the scatter and q the live
squared distance: taking it in multiplies the scale matrix by at most 1 + c q (since e e' <= q Psi for
q = e' Psi^-1 e), and moves the mean by rho / w times e. So, in the units that the component had at the block's start,

    drift' = drift + (rho / w) sqrt(q) / shrink,   shrink' = shrink / sqrt(1 + c q),
    sqrt(q of another point, live) >= (reach - drift) shrink.
"""

from typing import Any

import numpy as np
from numba.extending import overload

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

LARGEST_SQUARE = 1e36
"""Squared distances that float32 holds with room to spare; beyond, the bound is 0."""


def _unbounded(work: Any) -> bool:
    return getattr(work, "instance_class", None) not in BOUNDED


@overload(freeze, jit_options=OPTIONS)
def _freeze(work: Any, x: Any, i: Any, rows: Any, n: Any, reach: Any) -> Any:
    def implementation(work: Any, x: Any, i: Any, rows: Any, n: Any, reach: Any) -> Any:
        return False

    return implementation if _unbounded(work) else None


@overload(ceilings, jit_options=OPTIONS)
def _ceilings(work: Any, reach: Any, j: Any, n: Any, drift: Any, shrink: Any, log_mass: Any, out: Any) -> Any:
    def implementation(work: Any, reach: Any, j: Any, n: Any, drift: Any, shrink: Any, log_mass: Any, out: Any) -> Any:
        pass

    return implementation if _unbounded(work) else None


@overload(score_one, jit_options=OPTIONS)
def _score_one(work: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    def implementation(work: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
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
