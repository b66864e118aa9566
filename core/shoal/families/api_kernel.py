"""The three steps that a family gives to the one-pass kernel, as names. Each family's kernel module overloads them.

They are resolved by the type of `work` when the kernel is compiled: a family passed as functions would miss the disk
cache and compile again in every process. None is called from Python.
"""

from typing import Any

from shoal.arrays import Array

OPTIONS: Any = {"error_model": "numpy", "nogil": True, "forceinline": True}
"""Options of every overload: a call that hands over a dozen arrays costs more than the step for one small component."""


def score_all(work: Any, constants: Array, x: Array, i: int, n: int, score: Array, scratch: Array) -> None:
    """Write log p(x[i] | component k), all constants kept, into score[k] for rows 0 <= k < n of `work`.

    Finite for every finite x: squared distances saturate at `SATURATION`. `scratch` (3, D) is the family's own; what
    is left in it lasts until the point has been absorbed.
    """
    raise NotImplementedError("compiled code only")


def absorb(work: Any, stats: Any, constants: Array, x: Array, i: int, k: int, resp: float, scratch: Array) -> None:
    """Add point x[i] with responsibility `resp` > 0 to row k of `work` and `stats`."""
    raise NotImplementedError("compiled code only")


def clear_row(work: Any, stats: Any, k: int, empty: Any) -> None:
    """Make row k an empty component: its work the prior's (row 0 of `empty`), its statistics zero."""
    raise NotImplementedError("compiled code only")
