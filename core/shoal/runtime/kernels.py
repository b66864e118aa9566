"""Decorators for compiled code, with the options that it is compiled with."""

from collections.abc import Callable
from typing import Any

from shoal.runtime.cache import enable_cache

OVERLOAD_OPTIONS: Any = {"error_model": "numpy", "nogil": True, "forceinline": True, "_nrt": False}
"""Options of every overload that kernels resolve by type. Overloads are inlined, as a call that hands over a dozen
arrays costs more than the step for one small component; references to arrays are not counted (`compiled`)."""


def compiled(*, makes_arrays: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for a function that kernels call. Compiled with them, so not cached by itself, and made part of them:
    one that stays a function of its own is compiled a second time where a process compiles a kernel instead of loading
    it, and what may be reordered need not come out in the same order (last digits of refinements in 2-D did not).

    `error_model="numpy"` throughout: the check for division by zero keeps loops out of vector registers. References to
    arrays are counted only in functions that make some: a count is an atomic operation, and two at each use of an
    array took two fifths of the time of one pass in 2-D. A function without counts must return no array, nor a tuple
    that holds one: the caller would give back a reference that nobody took.
    """
    import numba

    options = {"forceinline": True} | options | {"nogil": True, "error_model": "numpy", "_nrt": makes_arrays}
    decorate: Callable[[Callable[..., Any]], Any] = numba.njit(**options)
    return decorate


def kernel(*, makes_arrays: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for a kernel, the function that Python calls: as `compiled`, cached on disk (`runtime.cache`), and
    counting references unless told that it makes no arrays.
    """
    decorate = compiled(makes_arrays=makes_arrays, **options | {"forceinline": False})
    return lambda function: enable_cache(decorate(function))
