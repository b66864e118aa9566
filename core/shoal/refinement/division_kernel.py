"""A Gaussian component's part of the rows divided between two children: all rounds in one call.

`divisions` says the same in NumPy for every family, by products with a table of statistics; of few features its calls
take longer than their work. A full covariance and a diagonal one differ in the shape of `scale` alone, (D, D) or (D,):
with 2 shape and 2 rate as degrees of freedom and scale, the normal-inverse-gamma reads as the normal-inverse-Wishart,
but for the D arguments of its gamma functions, which are all one. Numba compiles the one branch that fits. Zero degrees
of freedom stand for a known covariance: the diagonal `scale`, by which nothing is learnt.

Points are about the component's own mean, so that sums of squares lose next to nothing, unless some are 1e7 deviations
away from the others.
"""

import math
from typing import Any

import numpy as np

from shoal.kernels.cholesky import factored, log_det_of
from shoal.kernels.math import REORDER, exp_negative, log_one_plus
from shoal.kernels.polygamma import digamma
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled, kernel

TILE = 64
_LOG_2 = math.log(2.0)
_LEAST_JITTER, _MOST_JITTER = 1e-15, 1e-6
"""As `linalg.cholesky` has them: what a diagonal is raised by, of itself, where rounding has made a matrix indefinite,
times D and tenfold from there on."""


@compiled()
def _gammas(dof: float, d: int, full: bool) -> tuple[float, float]:
    """Sum of the d log-gammas of a log partition function, and of their derivatives."""
    if not full:
        return d * math.lgamma(0.5 * dof), d * digamma(0.5 * dof)
    log_gamma, slope = 0.0, 0.0
    for a in range(d):
        log_gamma += math.lgamma(0.5 * (dof - a))
        slope += digamma(0.5 * (dof - a))
    return log_gamma, slope


@compiled()
def _precision_full(scale: Array, dof: float, precision: Array) -> float:
    """dof scale^-1 (D, D) into `precision` (both triangles), log |scale| back, NaN where it is not positive definite.

    `scale` is used up: only its lower triangle is read.
    """
    d = scale.shape[0]
    if not factored(scale):
        return math.nan
    log_det: float = log_det_of(scale)
    for a in range(d):  # the inverse of the factor, in place of it
        own = 1.0 / scale[a, a]
        for b in range(a):
            total = 0.0
            for c in range(b, a):
                total += scale[a, c] * scale[c, b]
            scale[a, b] = -own * total
        scale[a, a] = own
    for a in range(d):
        for b in range(a + 1):
            total = 0.0
            for c in range(a, d):
                total += scale[c, a] * scale[c, b]
            precision[a, b] = dof * total
            precision[b, a] = precision[a, b]
    return log_det


@compiled()
def _child(
    mass: float,
    first: Array,
    second: Array,
    prior_mean: Array,
    prior_strength: float,
    prior_dof: float,
    prior_scale: Array,
    mean: Array,
    precision: Array,
    scratch: Array,
) -> tuple[float, float]:
    """Log partition function of the posterior after sums mass, first (D,) and second (D, D) or (D,), without the
    constants that all of one family share, and the log density at its mean, likewise; NaN where there is no posterior.

    Written: `mean` (D,) and `precision`, the expected one, of the shape of `second`. The expected log density of y is
    what came back less (y - mean)' precision (y - mean) / 2.
    """
    d = mean.size
    strength, dof = prior_strength + mass, prior_dof + mass
    for a in range(d):
        mean[a] = (prior_strength * prior_mean[a] + first[a]) / strength
    if prior_scale.ndim == 2:
        log_det, jitter = math.nan, 0.0
        while math.isnan(log_det) and jitter <= _MOST_JITTER:
            for a in range(d):
                for b in range(a + 1):
                    moved = prior_strength * prior_mean[a] * prior_mean[b] - strength * mean[a] * mean[b]
                    scratch[a, b] = prior_scale[a, b] + (second[a, b] + moved)
                scratch[a, a] *= 1.0 + jitter
            log_det = _precision_full(scratch, dof, precision)
            jitter = 10.0 * jitter if jitter > 0.0 else _LEAST_JITTER * d
    elif prior_dof == 0.0:
        reach = 0.0
        for a in range(d):
            precision[a] = 1.0 / prior_scale[a]
            reach += mean[a] * mean[a] * precision[a]
        return 0.5 * (strength * reach - d * math.log(strength)), -0.5 * d / strength
    else:
        log_det = 0.0
        for a in range(d):
            moved = prior_strength * prior_mean[a] * prior_mean[a] - strength * mean[a] * mean[a]
            own = prior_scale[a] + (second[a] + moved)
            precision[a] = dof / own
            log_det += math.log(own) if own > 0.0 else math.nan
    log_gamma, slope = _gammas(dof, d, prior_scale.ndim == 2)
    log_partition = log_gamma + 0.5 * dof * (d * _LOG_2 - log_det) - 0.5 * d * math.log(strength)
    return log_partition, 0.5 * (slope + d * _LOG_2 - log_det) - 0.5 * d / strength


@compiled()
def _label_terms(others: Array, first: float, second: float, concentration: float) -> float:
    """What the label prior (`process.sticks`) says of two masses among `others` (T,), in ascending order, without the
    terms that their sum alone decides; a mass of nothing adds nothing."""
    small, big = min(first, second), max(first, second)
    found = math.lgamma(1.0 + small) + math.lgamma(1.0 + big)
    tail, k, left = 0.0, 0, 2
    for _ in range(others.size + 2):
        own = (small if left == 2 else big) if left > 0 else math.inf
        if k < others.size and others[k] < own:
            own = others[k]
            k += 1
        else:
            left -= 1
        tail += own
        found -= math.log(concentration + tail)
    result: float = found
    return result


@compiled()
def _log_odds(others: Array, first: float, second: float, concentration: float) -> float:
    """`divisions.log_odds`, others (T,) in ascending order."""
    small, big = min(first, second), max(first, second)
    behind = concentration
    for k in range(others.size):
        if others[k] >= small:
            break
        behind += others[k]
    odds = digamma(1.0 + big) - digamma(behind + small) - digamma(1.0 + small) + digamma(1.0 + small + behind)
    result: float = odds if first >= second else -odds
    return result


@compiled(makes_arrays=True)
def _tiled(y: Array) -> Array:
    """Rows (m, D) as tiles (M, D, TILE), the last filled up with zeros: loops over a tile's rows fill registers."""
    m, d = y.shape
    tiles = np.zeros((-(-m // TILE), d, TILE))
    for i in range(m):
        for a in range(d):
            tiles[i // TILE, a, i % TILE] = y[i, a]
    return tiles


@compiled(makes_arrays=True, fastmath=REORDER)
def _summed(tiles: Array, weight: Array, share: Array, first: Array, second: Array) -> float:
    """Sums of the rows times weight (m,) times share (m,): mass back, `first` (D,), and `second`, a lower triangle or
    (D,)."""
    mass, d = 0.0, first.size
    counted, part = np.empty(TILE), np.empty(TILE)
    first[:] = 0.0
    second[:] = 0.0
    for tile in range(tiles.shape[0]):
        y, start = tiles[tile], tile * TILE
        n = min(TILE, weight.size - start)
        for i in range(n):
            counted[i] = weight[start + i] * share[start + i]
            mass += counted[i]
        for a in range(d):
            total = 0.0
            for i in range(n):
                part[i] = counted[i] * y[a, i]
                total += part[i]
            first[a] += total
            for b in range(a if second.ndim == 1 else 0, a + 1):
                total = 0.0
                for i in range(n):
                    total += part[i] * y[b, i]
                if second.ndim == 2:
                    second[a, b] += total
                else:
                    second[a] += total
    return mass


@compiled(fastmath=REORDER)
def _slopes(mean: Array, precision: Array, sign: float, linear: Array, square: Array) -> float:
    """Add sign times a child's log density, as linear' y - y' square y / 2 + what comes back, to its sides."""
    d, constant = mean.size, 0.0
    for a in range(d):
        pull = 0.0
        if precision.ndim == 2:
            for b in range(d):
                pull += precision[a, b] * mean[b]
                square[a, b] += sign * precision[a, b]
        else:
            pull = precision[a] * mean[a]
            square[a] += sign * precision[a]
        linear[a] += sign * pull
        constant -= 0.5 * sign * pull * mean[a]
    return constant


@compiled()
def _children(
    one: float,
    first: Array,
    second: Array,
    two: float,
    rest_first: Array,
    rest_second: Array,
    prior: Any,
    linear: Array,
    square: Array,
) -> tuple[float, float]:
    """An M-step: the log partition functions of both children together, and by how much the first one's log density
    exceeds the other's at the origin; elsewhere linear' y - y' square y / 2 more, both written here."""
    mean, precision = prior[4], prior[5]
    linear[:] = 0.0
    square[:] = 0.0
    evidence, odds = _child(one, first, second, *prior)
    odds += _slopes(mean, precision, 1.0, linear, square)
    other, constant = _child(two, rest_first, rest_second, *prior)
    odds += _slopes(mean, precision, -1.0, linear, square) - constant
    return evidence + other, odds


@compiled(makes_arrays=True, fastmath=REORDER)
def _divided(
    tiles: Array, weight: Array, odds: float, linear: Array, square: Array, share: Array
) -> tuple[float, float, float]:
    """An E-step: shares of the first child into `share` (m,); the weight of each child and the entropy, nats."""
    first, second, entropy = 0.0, 0.0, 0.0
    value, pull = np.empty(TILE), np.empty(TILE)
    for tile in range(tiles.shape[0]):
        y, start = tiles[tile], tile * TILE
        n = min(TILE, weight.size - start)
        for i in range(n):
            value[i] = odds
        for a in range(linear.size):
            own = 0.5 * (square[a, a] if square.ndim == 2 else square[a])
            for i in range(n):
                pull[i] = linear[a] - own * y[a, i]
            if square.ndim == 2:
                for b in range(a):
                    for i in range(n):
                        pull[i] -= square[a, b] * y[b, i]
            for i in range(n):
                value[i] += pull[i] * y[a, i]
        for i in range(n):
            distance = abs(value[i])
            e = exp_negative(-distance)
            small = e / (1.0 + e)
            p = 1.0 - small if value[i] >= 0.0 else small
            share[start + i] = p
            first += weight[start + i] * p
            second += weight[start + i] * (1.0 - p)
            entropy += weight[start + i] * (log_one_plus(e) + distance * small)
    return first, second, entropy


@kernel()
def divide_part(
    y: Array,
    weight: Array,
    prior_mean: Array,
    prior_strength: float,
    prior_dof: float,
    prior_scale: Array,
    others: Array,
    concentration: float,
    limits: tuple[int, float, float, float, float, float],
    shares: Array,
    gains: Array,
) -> float:
    """Rounds from every start, as `divisions` makes them: shares of the first child (S, m), sides at first, into
    `shares`, and what each division gains, nats, into `gains` (S,), -inf where a child died.

    y (m, D) are the points about the origin that the prior is seen from, `others` (T - 1,) the masses of the other
    components in ascending order; `limits` are those of `divisions`. Back: nats by which a gain flatters.
    """
    rounds, tolerance, patience, early_patience, far, dead = limits
    (m, d), form, tiles = y.shape, prior_scale.shape, _tiled(y)
    whole_first, first, rest_first = np.empty(d), np.empty(d), np.empty(d)
    whole_second, second, rest_second = np.empty(form), np.empty(form), np.empty(form)
    precision, square, scratch = np.empty(form), np.empty(form), np.empty(form)
    mean, linear = np.empty(d), np.empty(d)
    prior = (prior_mean, prior_strength, prior_dof, prior_scale, mean, precision, scratch)
    total = _summed(tiles, weight, np.ones(m), whole_first, whole_second)
    alone, _ = _child(total, whole_first, whole_second, *prior)
    first[:] = 0.0
    second[:] = 0.0
    nothing, _ = _child(0.0, first, second, *prior)
    labels = _label_terms(others, total, 0.0, concentration)
    flattery: float = _flattery(weight, total, whole_first, whole_second, prior_dof == 0.0)
    for s in range(shares.shape[0]):
        share = shares[s]
        entropy, gain = 0.0, -math.inf
        one = _summed(tiles, weight, share, first, second)
        two = total - one
        for done in range(rounds):
            if not min(one, two) > dead * (one + two):
                gain = -math.inf
                break
            rest_first[:] = whole_first - first
            rest_second[:] = whole_second - second
            evidence, odds = _children(one, first, second, two, rest_first, rest_second, prior, linear, square)
            odds += _log_odds(others, one, two, concentration)
            now = evidence - alone - nothing + entropy + _label_terms(others, one, two, concentration) - labels
            rise, gain = now - gain, now
            if not math.isfinite(now):
                gain = -math.inf
                break
            short = flattery - gain
            late = done > 2
            hopeless = done > 0 and short > (patience if late else early_patience) * rise and (late or short > far)
            if rise <= tolerance * (one + two) or hopeless or done == rounds - 1:
                break
            one, two, entropy = _divided(tiles, weight, odds, linear, square, share)
            _summed(tiles, weight, share, first, second)
        gains[s] = gain
    return flattery


@compiled()
def _flattery(weight: Array, total: float, first: Array, second: Array, known: bool) -> float:
    """`divisions._flattery`: free parameters that some row tells of (all, where the covariance is known), times the
    points that a row speaks for beside itself."""
    squares, told, all_of_them = 0.0, 2, 0
    for i in range(weight.size):
        squares += weight[i] * weight[i]
    for a in range(first.size):
        told += first[a] != 0.0
        if second.ndim == 2:
            for b in range(a + 1):
                told += second[a, b] != 0.0
            all_of_them += a + 2
        else:
            told += second[a] != 0.0
            all_of_them += 2
    if known:
        told = all_of_them = first.size
    result: float = min(told, all_of_them) * max(squares / total - 1.0, 0.0)
    return result
