"""The inverse of a Cholesky factor: a point in its metric, and its change when a point is added. O(D^2) each.

The root of component k is root[k] (D, D), lower triangular with zeros above, of an array (C, D, D). Arrays are in C
order. Sweeps that write are spelt out in vectors of 8: LLVM cannot know that no row is another, and asks before each,
which takes longer than the sweep.
"""

import math
from typing import Any

from numba import types

from shoal.kernels.math import REORDER
from shoal.kernels.vectors import as_vector, build, contiguous, multiply_add, spelt_out, spread, start_of
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

MOST_WAITING = 8
"""Outer products that a scatter waits for, to be read and written once for all of them."""

_ROWS = 4

_types: Any = types


def _rows(builder: Any, first: Any, stride: Any) -> list[Any]:
    """Pointers to _ROWS rows, as vectors."""
    places = [first]
    for _ in range(_ROWS - 1):
        places.append(builder.gep(places[-1], [stride]))
    return [as_vector(builder, place) for place in places]


@spelt_out
def _change_four_rows(_: Any, root: Any, first: Any, d: Any, scratch: Any, blocks: Any, factors: Any) -> Any:
    """The sweep of `update_root` over four rows, the first of which begins at element `first` of `root`, each `d`
    elements after the one before, and `blocks` times 8 columns. `factors` are z, keep and share of the rows in turn."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, at, stride, running, count, numbers = arguments
        rows = _rows(builder, builder.gep(start_of(context, builder, signature.args[0], values), [at]), stride)
        sums = as_vector(builder, start_of(context, builder, signature.args[3], running))
        factor = [[spread(builder, builder.extract_value(numbers, 3 * row + i)) for i in range(3)] for row in range(4)]
        with build.for_range(builder, count) as loop:
            sum_here = builder.gep(sums, [loop.index])
            places = [builder.gep(row, [loop.index]) for row in rows]
            total = builder.load(sum_here, align=8)
            old = [builder.load(place, align=8) for place in places]
            for place, r, (z, keep, share) in zip(places, old, factor, strict=True):
                taken = builder.fneg(builder.fmul(share, total))
                builder.store(multiply_add(builder, keep, r, taken), place, align=8)
                total = multiply_add(builder, z, r, total)
            builder.store(total, sum_here, align=8)
        return context.get_dummy_value()

    contiguous(root, scratch)
    twelve = _types.UniTuple(types.float64, 3 * _ROWS)
    return types.none(root, types.int64, types.int64, scratch, types.int64, twelve), generate


@spelt_out
def _add_eight(_: Any, scatter: Any, first: Any, vectors: Any, begin: Any, d: Any, a: Any, blocks: Any) -> Any:
    """The sum of `add_outer_products` for row a, which begins at element `first` of `scatter`, and `blocks` times 8
    columns; the eight vectors begin at element `begin` of `vectors`, one after another."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values, at, others, start, stride, row, count = arguments
        target = builder.gep(start_of(context, builder, signature.args[0], values), [at])
        target = as_vector(builder, target)
        place = builder.gep(start_of(context, builder, signature.args[2], others), [start])
        vectors, numbers = [], []
        for _ in range(MOST_WAITING):
            vectors.append(as_vector(builder, place))
            numbers.append(spread(builder, builder.load(builder.gep(place, [row]))))
            place = builder.gep(place, [stride])
        with build.for_range(builder, count) as loop:
            here = builder.gep(target, [loop.index])
            total = builder.load(here, align=8)
            for vector, number in zip(vectors, numbers, strict=True):
                u = builder.load(builder.gep(vector, [loop.index]), align=8)
                total = multiply_add(builder, number, u, total)
            builder.store(total, here, align=8)
        return context.get_dummy_value()

    contiguous(scatter, vectors)
    integers = (types.int64, types.int64, types.int64, types.int64)
    return types.none(scatter, types.int64, vectors, *integers), generate


@compiled(fastmath={"contract"})
def add_outer_products(scatter: Array, k: int, vectors: Array) -> None:
    """scatter[k] += sum_p u_p u_p' over the rows of vectors[k] (MOST_WAITING, D), in their order."""
    d = scatter.shape[1]
    whole = d - d % 8
    begin = k * MOST_WAITING * d
    for a in range(d):
        _add_eight(scatter, (k * d + a) * d, vectors, begin, d, a, d // 8)
        for b in range(whole, d):
            for p in range(MOST_WAITING):
                scatter[k, a, b] += vectors[k, p, a] * vectors[k, p, b]


@compiled(fastmath=REORDER)
def whiten(root: Array, k: int, d: int, scratch: Array) -> float:
    """z = root[k] e into scratch[1], of e in scratch[0]; |z|^2.

    Four rows a sweep, so that each element of e is read once for four products. Row a ends at column a; a sweep runs
    to the next multiple of 8 past its last row, over the zeros stored there. In the plane there is no loop, of which it
    would be the larger part.
    """
    if d == 2:
        first, second = root[k, 0, 0] * scratch[0, 0], root[k, 1, 0] * scratch[0, 0] + root[k, 1, 1] * scratch[0, 1]
        scratch[1, 0], scratch[1, 1] = first, second
        square: float = first * first + second * second
        return square
    q = 0.0
    whole = d - d % 4
    for a in range(0, whole, 4):
        s0 = s1 = s2 = s3 = 0.0
        for b in range(min(d, (a // 8 + 1) * 8)):
            e = scratch[0, b]
            s0 += root[k, a, b] * e
            s1 += root[k, a + 1, b] * e
            s2 += root[k, a + 2, b] * e
            s3 += root[k, a + 3, b] * e
        scratch[1, a], scratch[1, a + 1], scratch[1, a + 2], scratch[1, a + 3] = s0, s1, s2, s3
        q += s0 * s0 + s1 * s1 + s2 * s2 + s3 * s3
    for a in range(whole, d):
        s0 = 0.0
        for b in range(d):
            s0 += root[k, a, b] * scratch[0, b]
        scratch[1, a] = s0
        q += s0 * s0
    return q


@compiled(fastmath={"contract"})
def _factors(z: float, c: float, grown: float, root_before: float, inverse_before: float) -> Any:
    """t and its root and inverse root after a row, and what the row keeps of itself and takes of the sum."""
    grown += c * z * z
    root = math.sqrt(1.0 + grown)
    inverse = 1.0 / root
    return grown, root, inverse, root_before * inverse, c * z * inverse_before * inverse


@compiled(fastmath={"contract"})
def _update_in_the_plane(root: Array, k: int, c: float, scratch: Array) -> float:
    """`update_root` of two features."""
    z = scratch[1, 0]
    first = _factors(z, c, 0.0, 1.0, 1.0)
    second = _factors(scratch[1, 1], c, first[0], first[1], first[2])
    root[k, 1, 0] = second[3] * root[k, 1, 0] - second[4] * (z * root[k, 0, 0])
    root[k, 0, 0] *= first[3]
    root[k, 1, 1] *= second[3]
    grown: float = second[0]
    return grown


@compiled(fastmath={"contract"})
def update_root(root: Array, k: int, d: int, c: float, scratch: Array) -> float:
    """Turn root of Psi into root of Psi + c e e' and return c e' Psi^-1 e, with z = root e in scratch[1].

    With t_a = 1 + c (z_0^2 + ... + z_a^2) row a becomes
    sqrt(t_{a-1} / t_a) (row a - c z_a / t_{a-1} sum_{b<a} z_b row b), which is the inverse of the Cholesky factor of
    I + c z z' from the left (Gill, Golub, Murray and Saunders 1974). O(D^2). Row 0 of `scratch` is overwritten by the
    running sum of z_b row b, of more features than two.
    """
    if d == 2:
        grown: float = _update_in_the_plane(root, k, c, scratch)
        return grown
    for b in range(d):
        scratch[0, b] = 0.0
    before = (0.0, 1.0, 1.0, 0.0, 0.0)
    whole = d - d % 4
    for a in range(0, whole, 4):
        z0, z1, z2, z3 = scratch[1, a], scratch[1, a + 1], scratch[1, a + 2], scratch[1, a + 3]
        f0 = _factors(z0, c, before[0], before[1], before[2])
        f1 = _factors(z1, c, f0[0], f0[1], f0[2])
        f2 = _factors(z2, c, f1[0], f1[1], f1[2])
        f3 = _factors(z3, c, f2[0], f2[1], f2[2])
        before = f3
        width = min(d, (a // 8 + 1) * 8)  # whole vectors, over the zeros past the diagonal
        factors = (z0, f0[3], f0[4], z1, f1[3], f1[4], z2, f2[3], f2[4], z3, f3[3], f3[4])
        _change_four_rows(root, (k * d + a) * d, d, scratch, width // 8, factors)
        for b in range(width - width % 8, width):
            for row in range(4):
                old = root[k, a + row, b]
                root[k, a + row, b] = factors[3 * row + 1] * old - factors[3 * row + 2] * scratch[0, b]
                scratch[0, b] += factors[3 * row] * old
    for a in range(whole, d):
        z = scratch[1, a]
        before = _factors(z, c, before[0], before[1], before[2])
        for b in range(d):
            old = root[k, a, b]
            root[k, a, b] = before[3] * old - before[4] * scratch[0, b]
            scratch[0, b] += z * old
    return before[0]
