"""Selection of the ceilings of a point that reach a threshold: eight at a time, without a branch for each.

A processor cannot predict which components are near, and a wrong prediction costs as much as twenty comparisons. So
comparisons become bits of a word, and the loop visits only the bits that are set. Places are unsigned, since a signed
index is first tested for counting from the end.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shoal.points.arrays import IntArray, SingleArray
from shoal.runtime.kernels import compiled

WORD = 64
"""Ceilings whose comparisons fill a word. Arrays of them have room to the next multiple, and -inf there."""

_intrinsic: Any = intrinsic
_build: Any = cgutils
_LANES = 8
_NONE, _ONE, _LANE, _WORD = np.uint64(0), np.uint64(1), np.uint64(_LANES), np.uint64(WORD)


@_intrinsic
def _at_least(_: Any, ceiling: Any, first: Any, least: Any) -> Any:
    """Bit b, b < 8, of a word: whether ceiling[first + b] >= least. `ceiling` is float32 in C order."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        eight = ir.VectorType(ir.FloatType(), _LANES)
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), eight.as_pointer())
        one = builder.insert_element(ir.Constant(eight, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0))
        same = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
        every = builder.shuffle_vector(one, ir.Constant(eight, ir.Undefined), same)
        bits = builder.fcmp_ordered(">=", builder.load(place, align=4), every)
        return builder.zext(builder.bitcast(bits, ir.IntType(_LANES)), ir.IntType(64))

    return types.uint64(ceiling, types.uint64, types.float32), generate


@_intrinsic
def _lowest(_: Any, word: Any) -> Any:
    """The lowest bit that is set, 64 for none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), generate


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


@_intrinsic
def _largest(_: Any, ceiling: Any, words: Any) -> Any:
    """The largest ceiling of `words` > 0 words, half a word at a time: LLVM keeps one running maximum to itself, and
    every comparison would wait for the one before."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        many = ir.VectorType(ir.FloatType(), WORD // 2)
        halves = builder.bitcast(array.data, many.as_pointer())
        running = _build.alloca_once_value(builder, builder.load(halves, align=4))
        with _build.for_range(builder, builder.shl(arguments[1], ir.Constant(ir.IntType(64), 1))) as loop:
            ceilings = builder.load(builder.gep(halves, [loop.index]), align=4)
            builder.store(_larger(builder, ceilings, builder.load(running)), running)
        largest, width = builder.load(running), WORD // 2
        while width > 1:
            width //= 2
            parts = (ir.Constant(ir.VectorType(ir.IntType(32), width), [*range(at, at + width)]) for at in (0, width))
            none = ir.Constant(largest.type, ir.Undefined)
            largest = _larger(builder, *(builder.shuffle_vector(largest, none, part) for part in parts))
        return builder.extract_element(largest, ir.Constant(ir.IntType(32), 0))

    return types.float32(ceiling, types.uint64), generate


@compiled()
def _word(ceiling: SingleArray, first: Any, least: Any) -> Any:
    """Bit b of it: whether ceiling[first + b] >= least."""
    word = _NONE
    for lane in range(_NONE, _WORD, _LANE):
        word |= _at_least(ceiling, first + lane, least) << lane
    return word


@compiled()
def fill_up(ceiling: SingleArray, n: int) -> None:
    """-inf from row n to the end of its word."""
    for k in range(n, (n + WORD - 1) // WORD * WORD):
        ceiling[k] = -np.inf


@compiled()
def place_of_largest(ceiling: SingleArray, n: int) -> Any:
    """A row of the largest of n > 0 finite ceilings."""
    largest: Any = _largest(ceiling, np.uint64((n + WORD - 1) // WORD))
    place = _NONE
    for first in range(_NONE, np.uint64(n), _WORD):
        word = _word(ceiling, first, largest)
        place = first + _lowest(word) if word != _NONE else place
    return place


@compiled()
def places_from(ceiling: SingleArray, n: int, least: Any, active: IntArray) -> Any:
    """Write the rows k < n with ceiling[k] >= least > -inf, float32, into `active`, in order; how many."""
    count = _NONE
    for first in range(_NONE, np.uint64(n), _WORD):
        word = _word(ceiling, first, least)
        while word != _NONE:
            active[count] = first + _lowest(word)
            count += _ONE
            word &= word - _ONE
    return count
