"""The one-pass steps of a product: those of its blocks, one block after another.

A step goes through tuples of blocks whose types differ. It does what the first block's family does, and calls itself
for the others. So the kernel of a product is compiled from the steps of its families, and no step knows another family.
Log densities are added in the order of the blocks, as `ProductPrior` adds them.
"""

from collections.abc import Callable
from typing import Any

from numba.extending import overload

from shoal.families.product.types import BlockCaches
from shoal.families.steps_kernel import SCRATCH_ROWS, absorb, clear_row, implements, score_all
from shoal.points.arrays import Array
from shoal.runtime.kernels import OVERLOAD_OPTIONS, compiled


@compiled(inline="always")
def _own_scratch(scratch: Array, d: int) -> Array:
    """Rows (SCRATCH_ROWS, d) for a block of d features, of what is left for it and those after it."""
    return scratch[: SCRATCH_ROWS * d].reshape((SCRATCH_ROWS, d))


def _over_blocks(
    step: Callable[..., Any], of_none: Callable[..., Any]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator for what `step` does with a tuple of one block or more, its first argument; `of_none` for none."""

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        def choose(parts: Any, *_others: Any) -> Callable[..., Any]:
            return implementation if len(parts) else of_none

        overload(step, jit_options=OVERLOAD_OPTIONS, strict=False)(choose)
        return implementation

    return register


def _add_scores(
    parts: Any, stats: Any, constants: Any, x: Any, i: int, n: int, score: Array, own: Array, scratch: Array
) -> None:
    raise NotImplementedError("compiled code only")


def _absorb_each(parts: Any, stats: Any, constants: Any, x: Any, i: int, k: int, resp: float, scratch: Array) -> None:
    raise NotImplementedError("compiled code only")


def _clear_each(parts: Any, stats: Any, k: int, empty: Any) -> None:
    raise NotImplementedError("compiled code only")


@_over_blocks(_add_scores, lambda parts, stats, constants, x, i, n, score, own, scratch: None)
def _add_scores_of(
    parts: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, own: Any, scratch: Any
) -> None:
    d = x[0].shape[1]
    score_all(parts[0], stats[0], constants[0], x[0], i, n, own, _own_scratch(scratch, d))
    for k in range(n):
        score[k] += own[k]
    _add_scores(parts[1:], stats[1:], constants[1:], x[1:], i, n, score, own, scratch[SCRATCH_ROWS * d :])


@_over_blocks(_absorb_each, lambda parts, stats, constants, x, i, k, resp, scratch: None)
def _absorb_by(parts: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    d = x[0].shape[1]
    absorb(parts[0], stats[0], constants[0], x[0], i, k, resp, _own_scratch(scratch, d))
    _absorb_each(parts[1:], stats[1:], constants[1:], x[1:], i, k, resp, scratch[SCRATCH_ROWS * d :])


@_over_blocks(_clear_each, lambda parts, stats, k, empty: None)
def _clear_by(parts: Any, stats: Any, k: Any, empty: Any) -> None:
    clear_row(parts[0], stats[0], k, empty[0])
    _clear_each(parts[1:], stats[1:], k, empty[1:])


@implements(score_all, BlockCaches)
def _score_all(cache: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> None:
    for k in range(n):
        score[k] = 0.0
    rest = scratch.reshape((scratch.size,))
    _add_scores(cache.parts, stats.parts, constants.parts, x.parts, i, n, score, cache.score, rest)


@implements(absorb, BlockCaches)
def _absorb(cache: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> None:
    rest = scratch.reshape((scratch.size,))
    _absorb_each(cache.parts, stats.parts, constants.parts, x.parts, i, k, resp, rest)


@implements(clear_row, BlockCaches)
def _clear_row(cache: Any, stats: Any, k: Any, empty: Any) -> None:
    _clear_each(cache.parts, stats.parts, k, empty.parts)
