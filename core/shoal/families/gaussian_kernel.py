"""The one-pass steps of the full Gaussian (normal-inverse-Wishart). The algebra of a row is in `GaussianWork`."""

import math
from typing import Any

import numpy as np
from numba.extending import overload

from shoal._numba import compiled
from shoal.arrays import Array, SingleArray
from shoal.families.api_kernel import (
    OPTIONS,
    absorb,
    absorb_tracked,
    ceilings,
    clear_row,
    freeze,
    score_all,
    score_one,
)
from shoal.families.bounds_kernel import (
    FEWEST_BOUNDED,
    FROZEN,
    KEPT,
    euclidean_squares,
    rounded_up,
)
from shoal.families.gaussian_bounds_kernel import least_stretch, refined
from shoal.families.math_kernel import REORDER, SATURATION, lgamma_step, log_one_plus
from shoal.families.working import GaussianWork

_LOG_PI = math.log(math.pi)

_LEAST_WORK = 5_000
"""Least components x features squared for which bounds are worked out."""


@compiled(fastmath=REORDER)
def _whiten(root: Array, k: int, d: int, scratch: Array) -> float:
    """z = root[k] e into scratch[1], of e in scratch[0]; |z|^2.

    Four rows a sweep, so that each element of e is read once for four products. Row a ends at column a; a sweep runs
    to the next multiple of 8 past its last row, over the zeros stored there.
    """
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


@compiled()
def _distance(mean: Array, root: Array, x: Array, i: int, k: int, scratch: Array) -> float:
    """|root[k] (x[i] - mean[k])|^2; in the plane without a loop, of which it would be the larger part."""
    d = x.shape[1]
    if d == 2:
        e, f = x[i, 0] - mean[k, 0], x[i, 1] - mean[k, 1]
        first, second = root[k, 0, 0] * e, root[k, 1, 0] * e + root[k, 1, 1] * f
        square: float = first * first + second * second
        return square
    for b in range(d):
        scratch[0, b] = x[i, b] - mean[k, b]
    distance: float = _whiten(root, k, d, scratch)
    return distance


@compiled(fastmath=REORDER)
def _diagonal_distance(mean: Array, root: Array, x: Array, i: int, k: int) -> float:
    """|root[k] (x[i] - mean[k])|^2 of a diagonal root."""
    q = 0.0
    for b in range(x.shape[1]):
        e = root[k, b, b] * (x[i, b] - mean[k, b])
        q += e * e
    return q


@compiled()
def _short_distance(work: Any, stats: Any, constants: Array, x: Array, i: int, k: int, scratch: Array) -> float:
    """The same, in D steps for an empty component of a prior without covariances."""
    if stats.mass[k] == 0.0 and constants[x.shape[1] + 2, 0] == 1.0:
        near: float = _diagonal_distance(work.mean, work.root, x, i, k)
        return near
    distance: float = _distance(work.mean, work.root, x, i, k, scratch)
    return distance


@compiled()
def _log_density(strength: Array, dof: Array, log_norm: Array, k: int, q: float) -> float:
    """log p at squared distance q."""
    q = q if q < SATURATION else SATURATION
    u = q * (strength[k] / (strength[k] + 1.0))
    density: float = log_norm[k] - 0.5 * (dof[k] + 1.0) * log_one_plus(u)
    return density


@compiled(fastmath={"contract"})
def _update_root(root: Array, k: int, d: int, c: float, scratch: Array) -> float:
    """Turn root of Psi into root of Psi + c e e' and return c e' Psi^-1 e, with z = root e in scratch[1].

    With t_a = 1 + c (z_0^2 + ... + z_a^2) row a becomes
    sqrt(t_{a-1} / t_a) (row a - c z_a / t_{a-1} sum_{b<a} z_b row b), which is the inverse of the Cholesky factor of
    I + c z z' from the left (Gill, Golub, Murray and Saunders 1974). O(D^2). Rows 0, 2 and 3 of `scratch` are
    overwritten: the running sum, sqrt(t_a), and its inverse.
    """
    grown = 0.0
    for a in range(d):
        grown += c * scratch[1, a] * scratch[1, a]
        scratch[2, a] = grown
    for a in range(d):
        scratch[0, a] = 0.0  # from here on the running sum of z_b row b
        scratch[2, a] = math.sqrt(1.0 + scratch[2, a])
        scratch[3, a] = 1.0 / scratch[2, a]
    root_before = inverse_before = 1.0
    for a in range(d):
        z = scratch[1, a]
        keep = root_before * scratch[3, a]
        share = c * z * inverse_before * scratch[3, a]
        for b in range(min(d, (a // 8 + 1) * 8)):  # whole vectors, over the zeros past the diagonal
            old = root[k, a, b]
            root[k, a, b] = keep * old - share * scratch[0, b]
            scratch[0, b] += z * old
        root_before, inverse_before = scratch[2, a], scratch[3, a]
    return grown


@compiled(fastmath={"contract"})
def _add_to_stats(mass: Array, mean: Array, scatter: Array, x: Array, i: int, k: int, resp: float, u: Array) -> None:
    """The pairwise update of the centred moments; the outer product, of one vector, is symmetric to the bit."""
    d = x.shape[1]
    total = mass[k] + resp
    gain = resp / total
    root_gain = math.sqrt(mass[k] * gain)
    for b in range(d):
        delta = x[i, b] - mean[k, b]
        mean[k, b] += gain * delta
        u[1, b] = root_gain * delta
    for a in range(d):
        for b in range(d):
            scatter[k, a, b] += u[1, a] * u[1, b]
    mass[k] = total


@compiled()
def _add_to_work(work: Any, x: Array, i: int, k: int, resp: float, scratch: Array) -> tuple[float, float]:
    """The squared distance of the point before, and by what part the scale matrix grew at most."""
    d = x.shape[1]
    strength = work.mean_strength[k]
    total = strength + resp
    for b in range(d):
        scratch[0, b] = x[i, b] - work.mean[k, b]
        work.mean[k, b] += resp / total * scratch[0, b]
    q = _whiten(work.root, k, d, scratch)
    grown = _update_root(work.root, k, d, resp * strength / total, scratch)
    log_det = work.log_det[k] + log_one_plus(min(grown, SATURATION))
    dof = work.dof[k] + resp
    work.mean_strength[k] = total
    work.dof[k] = dof
    work.log_det[k] = log_det
    constant = lgamma_step(0.5 * (dof - d + 1.0), 0.5 * d) - 0.5 * d * (_LOG_PI + log_one_plus(1.0 / total))
    work.log_norm[k] = constant - 0.5 * log_det
    return q, grown


@overload(score_all, jit_options=OPTIONS)
def _score_all(work: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> Any:
    if getattr(work, "instance_class", None) is not GaussianWork:
        return None

    def implementation(work: Any, stats: Any, constants: Any, x: Any, i: Any, n: Any, score: Any, scratch: Any) -> Any:
        last = n - 1  # of one pass the empty component
        for k in range(last):
            score[k] = _distance(work.mean, work.root, x, i, k, scratch)
        if n > 0:
            score[last] = _short_distance(work, stats, constants, x, i, last, scratch)
        for k in range(n):
            score[k] = _log_density(work.mean_strength, work.dof, work.log_norm, k, score[k])

    return implementation


@overload(absorb, jit_options=OPTIONS)
def _absorb(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> Any:
    if getattr(work, "instance_class", None) is not GaussianWork:
        return None

    def implementation(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any) -> Any:
        _add_to_stats(stats.mass, stats.mean, stats.scatter, x, i, k, resp, scratch)
        _add_to_work(work, x, i, k, resp, scratch)

    return implementation


@overload(clear_row, jit_options=OPTIONS)
def _clear_row(work: Any, stats: Any, k: Any, empty: Any) -> Any:
    if getattr(work, "instance_class", None) is not GaussianWork:
        return None

    def implementation(work: Any, stats: Any, k: Any, empty: Any) -> Any:
        for a in range(work.mean.shape[1]):  # not by whole rows: that compiles Numba's message about unequal shapes
            work.mean[k, a] = empty.mean[0, a]
            stats.mean[k, a] = 0.0
            for b in range(work.mean.shape[1]):
                work.root[k, a, b] = empty.root[0, a, b]
                stats.scatter[k, a, b] = 0.0
        work.mean_strength[k] = empty.mean_strength[0]
        work.dof[k] = empty.dof[0]
        work.log_det[k] = empty.log_det[0]
        work.log_norm[k] = empty.log_norm[0]
        stats.mass[k] = 0.0

    return implementation


@compiled()
def _ceilings_at(
    work: Any, reach: Array, j: int, n: int, drift: Array, shrink: Array, log_mass: Array, out: SingleArray
) -> None:
    for k in range(n):
        least = max(reach[j, k] - drift[k], 0.0) * shrink[k]
        score = log_mass[k] + _log_density(work.mean_strength, work.dof, work.log_norm, k, least * least)
        out[k] = rounded_up(score)


@overload(freeze, jit_options=FROZEN)
def _freeze(
    work: Any, stats: Any, constants: Any, log_mass: Any, cut: Any, x: Any, i: Any, rows: Any, n: Any, reach: Any
) -> Any:
    """First by how far each component's mean is, and how little its root can make of that; then in its own metric where
    the point may belong: to the component that looks nearest, then to all that this one does not rule out."""
    if getattr(work, "instance_class", None) is not GaussianWork:
        return None

    def implementation(
        work: Any, stats: Any, constants: Any, log_mass: Any, cut: Any, x: Any, i: Any, rows: Any, n: Any, reach: Any
    ) -> Any:
        d = x.shape[1]
        if n < FEWEST_BOUNDED or n * d * d < _LEAST_WORK:
            return False
        euclidean_squares(work.mean, x, i, rows, n, reach)
        stretch, still, whole = np.empty(n, np.float32), np.zeros(n), np.ones(n)
        for k in range(n):
            stretch[k] = np.float32(KEPT * least_stretch(work, stats, constants, k))
        above, nearest = np.empty((rows, n), np.float32), np.empty(rows, np.int64)
        lists, sizes = np.empty((n, rows + 1), np.int64), np.zeros(n, np.int64)
        for j in range(rows):
            for k in range(n):
                reach[j, k] = stretch[k] * np.sqrt(reach[j, k])
            _ceilings_at(work, reach, j, n, still, whole, log_mass, above[j])
            k = int(np.argmax(above[j]))
            nearest[j] = k
            lists[k, sizes[k]] = j
            sizes[k] += 1
        root, e, z = np.empty((d, d), np.float32), np.empty((rows, d), np.float32), np.empty((rows, d), np.float32)
        refined(work, x, i, lists, sizes, root, e, z, reach)
        sizes[:] = 0
        for j in range(rows):
            own = nearest[j]
            q = reach[j, own] * reach[j, own]
            least = log_mass[own] + _log_density(work.mean_strength, work.dof, work.log_norm, own, q) - cut
            above[j, own] = -math.inf
            for k in range(n):  # without a branch, which would be guessed wrong half of the time
                lists[k, sizes[k]] = j
                sizes[k] += 1 if above[j, k] >= least else 0
        refined(work, x, i, lists, sizes, root, e, z, reach)
        return True

    return implementation


@overload(ceilings, jit_options=OPTIONS)
def _ceilings(
    work: Any, reach: Any, j: Any, n: Any, drift: Any, shrink: Any, log_mass: Any, limits: Any, out: Any
) -> Any:
    if getattr(work, "instance_class", None) is not GaussianWork:
        return None

    def implementation(
        work: Any, reach: Any, j: Any, n: Any, drift: Any, shrink: Any, log_mass: Any, limits: Any, out: Any
    ) -> Any:
        _ceilings_at(work, reach, j, n, drift, shrink, log_mass, out)

    return implementation


@overload(score_one, jit_options=OPTIONS)
def _score_one(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
    if getattr(work, "instance_class", None) is not GaussianWork:
        return None

    def implementation(work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, scratch: Any) -> Any:
        q = _short_distance(work, stats, constants, x, i, k, scratch)
        return _log_density(work.mean_strength, work.dof, work.log_norm, k, q)

    return implementation


@overload(absorb_tracked, jit_options=OPTIONS)
def _absorb_tracked(
    work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any, drift: Any, shrink: Any
) -> Any:
    if getattr(work, "instance_class", None) is not GaussianWork:
        return None

    def implementation(
        work: Any, stats: Any, constants: Any, x: Any, i: Any, k: Any, resp: Any, scratch: Any, drift: Any, shrink: Any
    ) -> Any:
        _add_to_stats(stats.mass, stats.mean, stats.scatter, x, i, k, resp, scratch)
        q, grown = _add_to_work(work, x, i, k, resp, scratch)
        drift[k] += resp / work.mean_strength[k] * math.sqrt(q) / shrink[k]
        shrink[k] /= math.sqrt(1.0 + grown)

    return implementation
