"""`laplace` in compiled code, a row after the other: mode, log partition and gradient.

Polygamma functions are computed at their argument plus seven by short series (DLMF 5.11.2, 5.15.8), and then at the
argument by recurrence. Unlike those of `kernels.polygamma` they have no branches, so that loops over features run in
vector registers, at some 4 ns an element and step of Newton's method.
"""

import math
from typing import Any

from shoal.families.dirichlet.laplace import CLOSE, FLATTEST, LOG_2PI, MOST_MOVE, MOST_STEPS
from shoal.kernels.math import REORDER, exp_negative, log_positive
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled, kernel

LOGS, ALPHA, WEIGHT, MOVE = range(4)
"""Rows of the scratch: log x of a point, alpha, alpha over the diagonal, a step."""

_GROWTH = math.exp(MOST_MOVE)
_LARGEST = 1e40
_SERIES_FROM = 12.0


@compiled()
def digamma_above(a: float) -> float:
    """psi(a + 1), a >= 0."""
    z = a + 7.0
    r = 1.0 / (z * z)
    tail = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * (691 / 32760 - r / 12))))))
    below = 1.0 / (a + 1.0) + 1.0 / (a + 2.0) + 1.0 / (a + 3.0) + 1.0 / (a + 4.0) + 1.0 / (a + 5.0) + 1.0 / (a + 6.0)
    result: float = log_positive(z) - 0.5 / z - tail - below
    return result


@compiled()
def trigamma_above(a: float) -> float:
    """psi'(a + 1), a >= 0."""
    z, below = a + 7.0, 0.0
    for j in range(1, 7):
        q = 1.0 / (a + j)
        below += q * q
    q = 1.0 / z
    r = q * q
    tail = r * (1 / 6 - r * (1 / 30 - r * (1 / 42 - r * (1 / 30 - r * (5 / 66 - r * (691 / 2730 - r * 7 / 6))))))
    result: float = below + q + 0.5 * r + q * tail
    return result


@compiled()
def _tetragamma_above(a: float) -> float:
    """psi''(a + 1), a >= 0."""
    z, below = a + 7.0, 0.0
    for j in range(1, 7):
        q = 1.0 / (a + j)
        below += q * q * q
    q = 1.0 / z
    r = q * q
    tail = r * (1 / 2 - r * (1 / 6 - r * (1 / 6 - r * (3 / 10 - r * (5 / 6 - r * (691 / 210 - r * 35 / 2))))))
    result: float = -(2.0 * below + r + r * q + r * tail)
    return result


@compiled()
def _pentagamma_above(a: float) -> float:
    """psi'''(a + 1), a >= 0."""
    z, below = a + 7.0, 0.0
    for j in range(1, 7):
        q = 1.0 / (a + j)
        below += q * q * q * q
    q = 1.0 / z
    r = q * q
    tail = r * (2.0 - r * (1.0 - r * (4 / 3 - r * (3.0 - r * (10.0 - r * (691 / 15 - r * 280.0))))))
    result: float = 6.0 * below + r * (2.0 * q + 3.0 * r + q * tail)
    return result


@compiled()
def _tail(z: float) -> float:
    """Stirling's remainder from six on."""
    r = 1.0 / (z * z)
    series = 1 / 1680 - r * (1 / 1188 - r * (691 / 360360 - r / 156))
    result: float = (1 / 12 - r * (1 / 360 - r * (1 / 1260 - r * series))) / z
    return result


@compiled()
def log_gamma(a: float) -> float:
    """log G(a), a > 0."""
    z, b = a + 7.0, min(a, _LARGEST)
    product = b * (b + 1.0) * (b + 2.0) * (b + 3.0) * (b + 4.0) * (b + 5.0) * (b + 6.0)
    result: float = (z - 0.5) * log_positive(z) - z + 0.5 * LOG_2PI + _tail(z) - log_positive(product)
    return result


@compiled()
def remainder(shape: float) -> float:
    """Stirling's remainder e(shape), shape > 0."""
    b = min(shape, _SERIES_FROM)
    product = b * (b + 1.0) * (b + 2.0) * (b + 3.0) * (b + 4.0) * (b + 5.0)
    near = (b + 5.5) * log_positive(b + 6.0) - (b - 0.5) * log_positive(b) - 6.0 + _tail(b + 6.0)
    near -= log_positive(product)
    result: float = near if shape < _SERIES_FROM else _tail(max(shape, _SERIES_FROM))
    return result


@compiled(fastmath=REORDER)
def _sum_of(rows: Array, i: int, d: int) -> float:
    total = 0.0
    for b in range(d):
        total += rows[i, b]
    return total


@compiled(fastmath=REORDER)
def _slopes(prior: Any, total: Array, k: int, point: float, n: float, slope: float, scratch: Array) -> tuple[Any, Any]:
    """Gradient over alpha into MOVE, alpha over the diagonal into WEIGHT; sum alpha weight and sum weight gradient."""
    spread, along = 0.0, 0.0
    for b in range(total.shape[1]):
        a, c = scratch[ALPHA, b], prior.pseudo_counts[b]
        own = total[k, b] + point * scratch[LOGS, b] + slope
        gradient = c + a * own - n * (a * digamma_above(a) - 1.0)
        weight = a / (c + n * (1.0 + a * a * trigamma_above(a)))
        spread += a * weight
        along += weight * gradient
        scratch[WEIGHT, b], scratch[MOVE, b] = weight, gradient / a
    return spread, along


@compiled()
def find_mode(prior: Any, total: Array, mass: float, k: int, point: float, scratch: Array) -> None:
    """The mode of row k of the totals and its mass, and the point of the scratch taken `point` times, in place of the
    alpha of the scratch."""
    d, n = total.shape[1], mass + point
    for _ in range(MOST_STEPS):
        whole = _sum_of(scratch, ALPHA, d)
        own = (prior.strength - prior.shape) / whole
        slope = -own - prior.shape / prior.precision + n * (digamma_above(whole) - 1.0 / whole)
        spread, along = _slopes(prior, total, k, point, n, slope, scratch)
        bend = (own * whole + n * (1.0 + whole * whole * trigamma_above(whole))) / (whole * whole)
        rest = 1.0 - bend * spread
        if rest <= 0.0:
            bend = min(own / whole, 0.0)
            rest = 1.0 - bend * spread
        rest = max(rest, FLATTEST * prior.shape * spread / (whole * whole))
        largest, lift = 0.0, bend * along / rest
        for b in range(d):
            move = scratch[WEIGHT, b] * (scratch[MOVE, b] + lift)
            largest = max(largest, abs(move))
            move = min(max(move, -MOST_MOVE), MOST_MOVE)
            scratch[ALPHA, b] *= _GROWTH * exp_negative(move - MOST_MOVE)
        if largest <= CLOSE:
            break


@compiled(fastmath=REORDER)
def _heights(
    prior: Any, total: Array, k: int, point: float, n: float, whole: float, scratch: Array
) -> tuple[Any, Any, Any]:
    """What features add to the log partition, sum alpha^2 over the diagonal, and how the width of the mean falls."""
    spread, height, fall = 0.0, 0.0, 0.0
    for b in range(total.shape[1]):
        a, c = scratch[ALPHA, b], prior.pseudo_counts[b]
        tri = 1.0 + a * a * trigamma_above(a)
        h = c + n * tri
        spread += a * a / h
        fall += (1.0 - a / whole) * n * (2.0 * tri + a * a * a * _tetragamma_above(a) - 2.0) / h
        height += c * log_positive(a) + a * (total[k, b] + point * scratch[LOGS, b]) - n * log_gamma(a)
        height += remainder(h) - 0.5 * log_positive(h)
    return height, spread, 0.5 * fall


@compiled()
def rest_of(prior: Any, bend: float, spread: float, whole: float) -> float:
    """det(-f'') over the product of the diagonal."""
    result: float = max(1.0 - bend * spread, FLATTEST * prior.shape * spread / (whole * whole))
    return result


@compiled()
def _least_shape(prior: Any, peak: float) -> float:
    result: float = 0.5 * min(prior.shape, peak)
    return result


@compiled()
def partition_at(prior: Any, total: Array, mass: float, k: int, point: float, scratch: Array) -> float:
    """A of the same, where the alpha of the scratch is the mode."""
    d, n = total.shape[1], mass + point
    whole = _sum_of(scratch, ALPHA, d)
    height, spread, fall = _heights(prior, total, k, point, n, whole, scratch)
    bend = (prior.strength - prior.shape + n * (1.0 + whole * whole * trigamma_above(whole))) / (whole * whole)
    rest = rest_of(prior, bend, spread, whole)
    peak = rest * whole * whole / spread
    shape = max(peak - fall, _least_shape(prior, peak))
    height += n * log_gamma(whole) + (prior.shape - prior.strength) * log_positive(whole)
    height += prior.log_front - prior.shape / prior.precision * whole
    height += 0.5 * (d * LOG_2PI - log_positive(rest)) - remainder(prior.strength + n)
    below = peak - shape
    result: float = height + (shape - 0.5) * math.log1p(-below / peak) + below + remainder(shape)
    return result


@kernel(makes_arrays=False)
def modes(prior: Any, total: Array, mass: Array, alpha: Array, scratch: Array) -> None:
    """The modes (M, D) of rows in place of `alpha`, from which the search begins. Scratch (4, D), its logs zero."""
    for k in range(mass.size):
        for b in range(total.shape[1]):
            scratch[ALPHA, b] = alpha[k, b]
        find_mode(prior, total, mass[k], k, 0.0, scratch)
        for b in range(total.shape[1]):
            alpha[k, b] = scratch[ALPHA, b]


@kernel(makes_arrays=False)
def partitions(prior: Any, total: Array, mass: Array, alpha: Array, scratch: Array, out: Array) -> None:
    """A (M,) of rows whose modes are `alpha`."""
    for k in range(mass.size):
        for b in range(total.shape[1]):
            scratch[ALPHA, b] = alpha[k, b]
        out[k] = partition_at(prior, total, mass[k], k, 0.0, scratch)


@kernel(makes_arrays=False)
def gradients(prior: Any, mass: Array, alpha: Array, scratch: Array, out: Array) -> None:
    """dA / dS and dA / dn (M, D + 1) of rows whose modes are `alpha`; the formulas are explained in `laplace`."""
    d = alpha.shape[1]
    for k in range(mass.size):
        n, whole, log_beta = mass[k], 0.0, 0.0
        for b in range(d):
            whole += alpha[k, b]
            log_beta += log_gamma(alpha[k, b])
        log_beta -= log_gamma(whole)
        spread, own, lost, fall, steep_mean, steeper = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for b in range(d):
            a, share = alpha[k, b], alpha[k, b] / whole
            tri, tetra = 1.0 + a * a * trigamma_above(a), a * a * a * _tetragamma_above(a) - 2.0
            h = prior.pseudo_counts[b] + n * tri
            of_diagonal = digamma_above(h) - 1.0 / h - log_positive(h)
            steep = n * (2.0 * tri + tetra) / h
            spread += a * a / h
            lost += a * a * tri / (h * h)
            own += of_diagonal * tri
            fall += 0.5 * (1.0 - share) * steep
            steep_mean += share * steep
            steeper += 0.5 * (1.0 - share) * (2.0 * tri + tetra - steep * tri) / h
            scratch[0, b], scratch[1, b], scratch[2, b] = h, of_diagonal * steep * h, steep
        tri_whole = 1.0 + whole * whole * trigamma_above(whole)
        tetra_whole = whole * whole * whole * _tetragamma_above(whole) - 2.0
        bend = (prior.strength - prior.shape + n * tri_whole) / (whole * whole)
        rest = rest_of(prior, bend, spread, whole)
        third = (-2.0 * (prior.strength - prior.shape) + n * tetra_whole) / (whole * whole * whole)
        rest_slope = -tri_whole / (whole * whole) * spread + bend * lost
        peak = rest * whole * whole / spread
        least = _least_shape(prior, peak)
        shape = max(peak - fall, least)
        by_shape = digamma_above(shape) - 1.0 / shape - log_positive(peak)
        by_peak, by_fall = 1.0 - (shape - 0.5) / peak, 0.0
        if peak - fall > least:
            by_peak += by_shape
            by_fall = -by_shape
        elif peak < prior.shape:
            by_peak += 0.5 * by_shape
        along = 0.0
        for b in range(d):
            a, h, steep = alpha[k, b], scratch[0, b], scratch[2, b]
            tri, tetra = 1.0 + a * a * trigamma_above(a), a * a * a * _tetragamma_above(a) - 2.0
            bow = n * (4.0 * tri + 5.0 * tetra + a * a * a * a * _pentagamma_above(a) + 6.0) / h - steep * steep
            of_spread = a * a / h * (2.0 - steep)
            of_rest = (-third * a * spread - bend * of_spread) / rest
            of_fall = 0.5 * (bow * (1.0 - a / whole) - a / whole * (steep - steep_mean))
            of_peak = peak * (of_rest + 2.0 * a / whole - of_spread / spread)
            scratch[1, b] += by_peak * of_peak + by_fall * of_fall - 0.5 * of_rest
            along += a / h * scratch[1, b]
        of_mass, middle = 0.0, digamma_above(whole) - 1.0 / whole
        for b in range(d):
            a, h = alpha[k, b], scratch[0, b]
            lift = scratch[1, b] / h + a / h * bend * along / rest
            of_mass += lift * (a * middle - (a * digamma_above(a) - 1.0))
            out[k, b] = a * (1.0 + lift)
        own += by_peak * peak * (rest_slope / rest + lost / spread) + by_fall * steeper
        out[k, d] = of_mass - log_beta + own - _remainder_slope(prior.strength + n) - 0.5 * rest_slope / rest


@compiled()
def _remainder_slope(shape: float) -> float:
    """e'(shape)."""
    result: float = digamma_above(shape) - 1.0 / shape - log_positive(shape) + 0.5 / shape
    return result
