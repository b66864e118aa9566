"""Decorators for compiled code, with the options that it is compiled with."""

from collections.abc import Callable
from typing import Any

from shoal.runtime.cache import enable_cache

_ALWAYS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
"""`error_model`: the check for division by zero keeps loops out of vector registers. Wrappers for callers from outside
are compiled code, too, in which the whole function stands once more."""

OVERLOAD_OPTIONS: Any = _ALWAYS | {"forceinline": True, "no_cpython_wrapper": True, "_nrt": False}
"""Options of every overload that kernels resolve by type. LLVM inlines overloads, as a call that hands over a dozen
arrays costs more than the step for one small component. References to arrays are not counted (`compiled`)."""


def compiled(*, makes_arrays: bool = False, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for a function that only compiled code calls. Python has no entry to it, and crashes where it tries.

    It is compiled with its callers and inlined by LLVM: else it could be compiled differently in a process that
    compiles a kernel and in one that loads it, and the last digits of a result would differ.

    With `inline="always"` Numba puts its lines into those of the caller instead, before types are inferred. That saves
    most of the time to compile it, and its own `fastmath` is lost.

    References to arrays are counted only in functions that make some: a count is an atomic operation. With counts
    everywhere, whole streams with refinement take 1.45 times (grid-2d), 1.4 times (drift-2d) and 1.2 times (drift-16d)
    as long: medians of three turns of `benchmarks/micro/parts_of_a_stream.py`. A function without counts must not
    return an array, nor a tuple that holds one.
    """
    import numba

    own = {"forceinline": "inline" not in options, "no_cpython_wrapper": True} | options
    decorate: Callable[[Callable[..., Any]], Any] = numba.njit(**own | _ALWAYS | {"_nrt": makes_arrays})
    return decorate


def kernel(*, makes_arrays: bool = True, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator for a kernel, the function that Python calls: as `compiled`, cached on disk (`runtime.cache`), and
    counting references unless told that it makes no arrays.
    """
    decorate = compiled(makes_arrays=makes_arrays, **options | {"forceinline": False, "no_cpython_wrapper": False})
    return lambda function: enable_cache(decorate(function))
