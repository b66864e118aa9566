"""The steps that a family gives to the one-pass kernel, as names. Each family's kernel module overloads the first
three; the others, which only save time, are in `bounds_kernel` for every predictive cache that has none of its own.

They are resolved by the type of `cache` when the kernel is compiled: a family passed as functions would miss the disk
cache and compile again in every process. None is called from Python.
"""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import OVERLOAD_OPTIONS

SCRATCH_ROWS = 4
"""Rows of the array (., D) that a step may write to."""

LIMIT_ROWS = 4
"""Numbers of a component that its ceilings are made of, at most."""


class Waiting(NamedTuple):
    """Vectors whose outer products are still to be added to the scatter of a row, in their order."""

    vectors: Array  # (C, MOST_WAITING, D), or none where nothing waits
    filled: IntArray  # (C,) how many of them are in use, or none


class Tracks(NamedTuple):
    """What absorbing points leaves beside `cache` and `stats`: by how much bounds have loosened within the block, and
    what is still to be added."""

    drift: Array  # (C,)
    shrink: Array  # (C,)
    waiting: Waiting


def score_all(cache: Any, stats: Any, constants: Array, x: Array, i: int, n: int, score: Array, scratch: Array) -> None:
    """Write log p(x[i] | component k), all constants kept, into score[k] for rows 0 <= k < n of `cache`.

    Finite for every finite x: squared distances saturate at `SATURATION`. `scratch` (SCRATCH_ROWS, D) is the family's
    own; what is left in it lasts until the point has been absorbed. `x` is an array (N, D), or for families of counts
    a `counts.CountRows`.
    """
    raise NotImplementedError("compiled code only")


def absorb(cache: Any, stats: Any, constants: Array, x: Array, i: int, k: int, resp: float, scratch: Array) -> None:
    """Add point x[i] with responsibility `resp` > 0 to row k of `cache` and `stats`."""
    raise NotImplementedError("compiled code only")


def clear_row(cache: Any, stats: Any, k: int, empty: Any) -> None:
    """Make row k an empty component: its work the prior's (row 0 of `empty`), its statistics zero."""
    raise NotImplementedError("compiled code only")


def freeze(
    cache: Any,
    stats: Any,
    constants: Array,
    log_mass: Array,
    cut: float,
    x: Array,
    i: int,
    rows: int,
    n: int,
    bounds: SingleArray,
) -> bool:
    """Write into bounds[:rows, :n], float32, what each distance of points x[i:i+rows] is at least, as things stand.

    In units that `ceilings` knows; it need be close only where the score may be within `cut` of the point's best.
    False, and nothing of use written, for a predictive cache without bounds or where they are not worth their cost.
    """
    raise NotImplementedError("compiled code only")


def limit(cache: Any, k: int, drift: Array, shrink: Array, log_mass: Array, limits: SingleArray) -> None:
    """Write into limits[:, k] (LIMIT_ROWS, C), float32, what `ceilings` reads of row k.

    At the start of a block, and whenever row k has absorbed a point since.
    """
    raise NotImplementedError("compiled code only")


def ceilings(cache: Any, bounds: SingleArray, j: int, n: int, limits: SingleArray, out: SingleArray) -> None:
    """Write into out[k], k < n, float32, what log_mass[k] + log p(point j of the block | k) cannot exceed.

    At least `bounds_kernel.LOWEST`.
    """
    raise NotImplementedError("compiled code only")


def lift(cache: Any, x: Any, i: int, n: int, out: SingleArray) -> None:
    """Raise the ceilings out[k], k < n, by what the scores of point x[i] have in common under every component, where
    `ceilings` does not know of it."""
    raise NotImplementedError("compiled code only")


def score_one(cache: Any, stats: Any, constants: Array, x: Array, i: int, k: Any, scratch: Array) -> float:
    """What `score_all` gives for row k, to the bit."""
    raise NotImplementedError("compiled code only")


def absorb_tracked(
    cache: Any,
    stats: Any,
    constants: Array,
    x: Array,
    i: int,
    k: int,
    resp: float,
    scratch: Array,
    tracks: Tracks,
    scored: bool,
) -> None:
    """`absorb`, and what it may have taken from the distances of row k to other points added to drift and shrink.

    `scored`: the last step was `score_one` of this point and row. What is put into `waiting` is not yet in `stats`:
    `settle` must come before anything else reads these.
    """
    raise NotImplementedError("compiled code only")


def settle(cache: Any, stats: Any, waiting: Waiting, n: int) -> None:
    """Add what waits to rows k < n of `stats`: their bits are then what `absorb` would have left."""
    raise NotImplementedError("compiled code only")


LEAST_SHARE = 1e-3
"""Least factor by which `release` may let a determinant (of a diagonal family: a rate) fall in one step."""


def release(cache: Any, stats: Any, constants: Array, x: Array, i: int, k: int, scratch: Array) -> bool:
    """Take point x[i], which is in row k with weight one among others, out of it, for samplers. False: refused, and
    nothing changed.

    To take out cancels: a component of scale matrix Psi keeps Psi - c e e', and where nearly all of Psi in some
    direction was that point, nearly all digits go. So a family refuses where the determinant would fall below
    `LEAST_SHARE` of what it was; the caller then computes the component from its other points. With the share kept,
    one step costs at most three digits of sixteen, and samplers compute all components again every few sweeps.
    """
    raise NotImplementedError("compiled code only")


def implements(
    step: Callable[..., Any], *caches: type, unless: Collection[type] = (), options: Any = OVERLOAD_OPTIONS
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for what `step` does with the predictive caches of these types; without any, with all but `unless`.

    The arguments are those of the step, in its order.
    """
    from numba.extending import overload

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        def choose(cache: Any, *_others: Any) -> Callable[..., Any] | None:
            kind = getattr(cache, "instance_class", None)
            return implementation if (kind in caches if caches else kind not in unless) else None

        overload(step, jit_options=options, strict=False)(choose)
        return implementation

    return register
