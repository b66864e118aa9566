"""Vectors of eight numbers, for kernels that spell them out, and arrays in C order as these find them."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8

spelt_out: Callable[[Callable[..., Any]], Any] = intrinsic
build: Any = cgutils
Eight = ir.VectorType(ir.DoubleType(), LANES)


def contiguous(*arrays: Any) -> None:
    """Raises TypeError for another order, in which places would be counted wrong."""
    if any(array.layout != "C" for array in arrays):
        raise TypeError("these kernels take arrays in C order")


def start_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """A pointer to the first element of an array."""
    return context.make_array(kind)(context, builder, array).data


def as_vector(builder: Any, pointer: Any) -> Any:
    """The same pointer, to vectors."""
    return builder.bitcast(pointer, Eight.as_pointer())


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c, in one rounding where the processor has that."""
    kind = ir.FunctionType(Eight, 3 * [Eight])
    return builder.call(build.get_or_insert_function(builder.module, kind, "llvm.fmuladd.v8f64"), [a, b, c])


def spread(builder: Any, number: Any) -> Any:
    """A number in every lane."""
    none = ir.Constant(Eight, ir.Undefined)
    one = builder.insert_element(none, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))
