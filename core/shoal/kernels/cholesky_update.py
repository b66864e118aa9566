"""The inverse of a Cholesky factor: a point in its metric, and its change when a point is added. O(D^2) each.

The root of component k is root[k] (D, D), lower triangular with zeros above, of an array (C, D, D). Arrays are in C
order. Columns are counted by unsigned numbers, since a signed index is first tested for counting from the end.
"""

import math
from typing import Any

import numpy as np

from shoal.kernels.math import REORDER
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

MOST_WAITING = 8
"""Outer products that a scatter waits for, to be read and written once for all of them."""


@compiled(fastmath={"contract"})
def add_outer_products(scatter: Array, k: int, vectors: Array) -> None:
    """scatter[k] += sum_p u_p u_p' over the rows of vectors[k] (MOST_WAITING, D), in their order."""
    d = scatter.shape[1]
    for a in range(d):
        u0, u1, u2, u3 = vectors[k, 0, a], vectors[k, 1, a], vectors[k, 2, a], vectors[k, 3, a]
        u4, u5, u6, u7 = vectors[k, 4, a], vectors[k, 5, a], vectors[k, 6, a], vectors[k, 7, a]
        for b in range(np.uint64(d)):
            total = scatter[k, a, b]
            total += u0 * vectors[k, 0, b]
            total += u1 * vectors[k, 1, b]
            total += u2 * vectors[k, 2, b]
            total += u3 * vectors[k, 3, b]
            total += u4 * vectors[k, 4, b]
            total += u5 * vectors[k, 5, b]
            total += u6 * vectors[k, 6, b]
            total += u7 * vectors[k, 7, b]
            scatter[k, a, b] = total


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
    for a in range(d):
        z = scratch[1, a]
        before = _factors(z, c, before[0], before[1], before[2])
        kept, share = before[3], before[4]
        for b in range(np.uint64(a + 1)):
            old = root[k, a, b]
            root[k, a, b] = kept * old - share * scratch[0, b]
            scratch[0, b] += z * old
    return before[0]
