"""Vectors of eight numbers, spelt out: LLVM keeps sums in registers only where it knows their length.

A lane is a point. Points are laid out as tiles (W, LANES), feature after feature, and lower triangular matrices (W, W)
by four rows at a time, as (W / 4, W, 4): element (g, b, r) is that of row 4 g + r and column b. W is D up to the next
multiple of four, and what is added is zero. Arrays are in C order.
"""

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types

from shoal.kernels.vectors import (
    LANES,
    Eight,
    as_lanes,
    build,
    contiguous,
    multiply_add,
    spelt_out,
    spread,
    start_of,
)
from shoal.points.arrays import Array

FOUR = 4
_TWO = 2

_types: Any = types
_Integer = ir.IntType(64)


def width_of(d: int) -> int:
    """D up to the next multiple of four."""
    return -(-d // FOUR) * FOUR


def in_fours(lower: Array) -> Array:
    """Lower triangular matrices (T, D, D) as (T, W / 4, W, 4)."""
    t, d, _ = lower.shape
    padded = np.zeros((t, width_of(d), width_of(d)))
    padded[:, :d, :d] = lower
    fours = padded.reshape(t, -1, FOUR, width_of(d)).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(fours)


def in_tiles(points: Array) -> Array:
    """Points (m, D) as tiles (M, W, LANES)."""
    m, d = points.shape
    tiles = np.zeros((-(-m // LANES), width_of(d), LANES))
    whole = m // LANES
    tiles[:whole, :d] = points[: whole * LANES].reshape(whole, LANES, d).transpose(0, 2, 1)
    tiles[whole:, :d, : m % LANES] = points[whole * LANES :].T
    return tiles


def _whole(number: int) -> Any:
    return ir.Constant(_Integer, number)


def _at(context: Any, builder: Any, kind: Any, array: Any, first: Any) -> Any:
    """A pointer to element `first` of an array."""
    return builder.gep(start_of(context, builder, kind, array), [first])


def _everywhere(builder: Any, place: Any) -> Any:
    """The number at a place in every lane."""
    return spread(builder, builder.load(place))


def _across(builder: Any, vector: Any) -> Any:
    """The sum of the lanes, in pairs."""
    width = LANES
    while width > 1:
        width //= 2
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), width), list(range(s, s + width))) for s in (0, width)]
        vector = builder.fadd(*(builder.shuffle_vector(vector, vector, mask) for mask in masks))
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _nothing(builder: Any, n: int) -> list[Any]:
    """Sums that nothing has been added to."""
    return [build.alloca_once_value(builder, ir.Constant(Eight, [0.0] * LANES)) for _ in range(n)]


def _four_products(builder: Any, fours: Any, points: Any, columns: Any) -> list[Any]:
    """Four rows of a matrix times the points: a row has so many columns."""
    sums = _nothing(builder, FOUR)
    with build.for_range(builder, columns) as loop:
        point = builder.load(builder.gep(points, [loop.index]), align=8)
        row = builder.gep(fours, [builder.mul(loop.index, _whole(FOUR))])
        for i, own in enumerate(sums):
            element = _everywhere(builder, builder.gep(row, [_whole(i)]))
            builder.store(multiply_add(builder, element, point, builder.load(own)), own)
    return [builder.load(own) for own in sums]


@spelt_out
def add_squares(_: Any, fours: Any, at: Any, centre: Any, near: Any, tile: Any, apart: Any, g: Any, square: Any) -> Any:
    """Add to `square` (LANES,) the squares of what four rows of a matrix, the 4 g-th and those after it, make of the
    points `tile` less a centre. The rows begin at element `at` of `fours`, the centre at `near` of `centre`. The
    differences are in `apart` (W, LANES), but for those of the four columns that are new in these rows, which are put
    there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        number = _at(context, builder, kinds[0], arguments[0], arguments[1])
        middle = _at(context, builder, kinds[2], arguments[2], arguments[3])
        points, away, square = (
            as_lanes(builder, _at(context, builder, kinds[i], arguments[i], _whole(0))) for i in (4, 5, 7)
        )
        first = builder.mul(arguments[6], _whole(FOUR))
        for i in range(FOUR):
            column = builder.add(first, _whole(i))
            point = builder.load(builder.gep(points, [column]), align=8)
            difference = builder.fsub(point, _everywhere(builder, builder.gep(middle, [column])))
            builder.store(difference, builder.gep(away, [column]), align=8)
        total = builder.load(square, align=8)
        for found in _four_products(builder, number, away, builder.add(first, _whole(FOUR))):
            total = multiply_add(builder, found, found, total)
        builder.store(total, square, align=8)
        return context.get_dummy_value()

    contiguous(fours, centre, tile, apart, square)
    n = types.int64
    return _types.none(fours, n, centre, n, tile, apart, n, square), generate


@spelt_out
def add_forms(_: Any, fours: Any, at: Any, tiles: Any, begin: Any, g: Any, form: Any) -> Any:
    """Add to `form` (LANES,) the products of the points of the tile, which begins at element `begin` of `tiles`, with
    what four rows, as in `add_squares`, make of them: sum_a y_a (row_a y)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        number = _at(context, builder, kinds[0], arguments[0], arguments[1])
        points = as_lanes(builder, _at(context, builder, kinds[2], arguments[2], arguments[3]))
        form = as_lanes(builder, _at(context, builder, kinds[5], arguments[5], _whole(0)))
        first = builder.mul(arguments[4], _whole(FOUR))
        total = builder.load(form, align=8)
        for i, found in enumerate(_four_products(builder, number, points, builder.add(first, _whole(FOUR)))):
            point = builder.load(builder.gep(points, [builder.add(first, _whole(i))]), align=8)
            total = multiply_add(builder, found, point, total)
        builder.store(total, form, align=8)
        return context.get_dummy_value()

    contiguous(fours, tiles, form)
    n = types.int64
    return _types.none(fours, n, tiles, n, n, form), generate


@spelt_out
def add_moments(_: Any, one: Any, at: Any, two: Any, begin: Any, width: Any, count: Any, total: Any, place: Any) -> Any:
    """Add to `total` (W, W), four rows and two columns from element `place` on, the products of four features of
    `count` tiles with two features of others, summed over points. The first tiles' features begin at element `at` of
    `one`, the others' at `begin` of `two`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds, wide = signature.args, arguments[4]
        left = as_lanes(builder, _at(context, builder, kinds[0], arguments[0], arguments[1]))
        right = as_lanes(builder, _at(context, builder, kinds[2], arguments[2], arguments[3]))
        target = _at(context, builder, kinds[6], arguments[6], arguments[7])
        sums = _nothing(builder, FOUR * _TWO)
        with build.for_range(builder, arguments[5]) as loop:
            here = builder.mul(loop.index, wide)
            others = [builder.load(builder.gep(right, [builder.add(here, _whole(b))]), align=8) for b in range(_TWO)]
            for a in range(FOUR):
                own = builder.load(builder.gep(left, [builder.add(here, _whole(a))]), align=8)
                for b, other in enumerate(others):
                    into = sums[_TWO * a + b]
                    builder.store(multiply_add(builder, own, other, builder.load(into)), into)
        for i, own in enumerate(sums):
            spot = builder.gep(target, [builder.add(builder.mul(_whole(i // _TWO), wide), _whole(i % _TWO))])
            builder.store(builder.fadd(builder.load(spot), _across(builder, builder.load(own))), spot)
        return context.get_dummy_value()

    contiguous(one, two, total)
    n = types.int64
    return _types.none(one, n, two, n, n, n, total, n), generate
