"""Copying one row of a component's predictive cache and statistics to another, for every family at once.

Resolved by the types of the fields when a kernel is compiled, as the steps of `steps_kernel` are.
"""

from typing import Any

from numba.extending import overload

from shoal.runtime.kernels import OVERLOAD_OPTIONS


def copy_row(cache: Any, stats: Any, source: int, target: int) -> None:
    """Make row `target` of the predictive cache and of the statistics equal to row `source`."""
    raise NotImplementedError("compiled code only")


def _copy_field(field: Any, source: int, target: int) -> None:
    """Row `target` of an array of one, two or three axes becomes row `source`."""
    raise NotImplementedError("compiled code only")


@overload(_copy_field, jit_options=OVERLOAD_OPTIONS)
def _copy_array(field: Any, source: Any, target: Any) -> Any:
    def scalar(field: Any, source: Any, target: Any) -> Any:
        field[target] = field[source]

    def vector(field: Any, source: Any, target: Any) -> Any:
        for a in range(field.shape[1]):
            field[target, a] = field[source, a]

    def matrix(field: Any, source: Any, target: Any) -> Any:
        for a in range(field.shape[1]):
            for b in range(field.shape[2]):
                field[target, a, b] = field[source, a, b]

    return {1: scalar, 2: vector, 3: matrix}[field.ndim]


def _copy_fields(fields: Any, source: int, target: int) -> None:
    """`_copy_field` for each array of a tuple."""
    raise NotImplementedError("compiled code only")


@overload(_copy_fields, jit_options=OVERLOAD_OPTIONS)
def _copy_tuple(fields: Any, source: Any, target: Any) -> Any:
    def last(fields: Any, source: Any, target: Any) -> Any:
        _copy_field(fields[0], source, target)

    def first_and_rest(fields: Any, source: Any, target: Any) -> Any:
        _copy_field(fields[0], source, target)
        _copy_fields(fields[1:], source, target)

    return last if len(fields) == 1 else first_and_rest


@overload(copy_row, jit_options=OVERLOAD_OPTIONS)
def _copy_row(cache: Any, stats: Any, source: Any, target: Any) -> Any:
    def implementation(cache: Any, stats: Any, source: Any, target: Any) -> Any:
        _copy_fields(cache, source, target)
        _copy_fields(stats, source, target)

    return implementation
