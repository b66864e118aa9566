"""The compiled two-way split: a sample of a Gaussian component's rows, all rounds in one call.

`two_way_split` has the same rounds in NumPy for every family. In few features NumPy's calls take longer than their
work. A full covariance and a diagonal one differ only in the shape of `scale`, (D, D) or (D,). With 2 shape degrees of
freedom and scale 2 rate, the normal-inverse-gamma reads as a normal-inverse-Wishart, but the D arguments of its gamma
functions are the same. Numba compiles only the branch that fits. Zero degrees of freedom stand for a known covariance,
the diagonal `scale`, about which nothing is learnt.

Points are about the component's own mean, so sums of squares lose almost no digits, unless some points lie 1e7
deviations away from the others.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from shoal.families.capabilities import SplitPrior
from shoal.inference.split_limits import SplitLimits
from shoal.kernels.cholesky import factored, log_det_of
from shoal.kernels.math import REORDER, exp_negative, log_one_plus
from shoal.kernels.polygamma import digamma
from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled, kernel

TILE = 64
_LOG_2 = math.log(2.0)
_LEAST_JITTER, _MOST_JITTER = 1e-15, 1e-6
"""As in `linalg.cholesky`: the share by which a diagonal is raised where rounding has made a matrix indefinite, times D
at first and tenfold from there on."""


class SplitTask(NamedTuple):
    """The rows to divide, and the place of the component on the stick."""

    y: Array  # (m, D) points about the component's mean
    weight: Array  # (m,)
    points_a_row: float
    mass_behind: float
    a1: float
    a2: float


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
    """Write dof scale^-1 (D, D) into `precision`, both triangles, and return log |scale|: NaN if not definite.

    Only the lower triangle of `scale` is read, and it is overwritten.
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
    """Posterior of a child with sums mass, first (D,) and second (D, D) or (D,).

    Returns its log partition function and the expected log density at its mean, both without the constants that all
    components share; NaN where there is no posterior. Writes `mean` (D,) and `precision`, the expected one, of the
    shape of `second`. The expected log density of y is less by (y - mean)' precision (y - mean) / 2.
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
        square = 0.0
        for a in range(d):
            precision[a] = 1.0 / prior_scale[a]
            square += mean[a] * mean[a] * precision[a]
        return 0.5 * (strength * square - d * math.log(strength)), -0.5 * d / strength
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
def _log_beta(a: float, b: float) -> float:
    value: float = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return value


@compiled()
def _split_gain(task: SplitTask, first: float, second: float) -> float:
    """`label_terms.split_gain`."""
    big, small, behind = max(first, second), min(first, second), task.mass_behind
    gain = _log_beta(task.a1 + big, task.a2 + small + behind) + _log_beta(task.a1 + small, task.a2 + behind)
    parent = _log_beta(task.a1 + big + small, task.a2 + behind) + _log_beta(task.a1, task.a2)
    result: float = gain - parent
    return result


@compiled()
def _log_odds(task: SplitTask, first: float, second: float) -> float:
    """`label_terms.split_log_odds`."""
    big, small, behind = max(first, second), min(first, second), task.a2 + task.mass_behind
    odds = digamma(task.a1 + big) - digamma(behind + small) - digamma(task.a1 + small)
    odds += digamma(task.a1 + small + behind)
    result: float = odds if first >= second else -odds
    return result


@compiled(makes_arrays=True)
def _tiled(y: Array) -> Array:
    """Rows (m, D) as tiles (M, D, TILE), the last padded with zeros: loops over a tile's rows fill registers."""
    m, d = y.shape
    tiles = np.zeros((-(-m // TILE), d, TILE))
    for i in range(m):
        for a in range(d):
            tiles[i // TILE, a, i % TILE] = y[i, a]
    return tiles


@compiled(makes_arrays=True, fastmath=REORDER)
def _summed(tiles: Array, weight: Array, share: Array, first: Array, second: Array) -> float:
    """Sum the rows times weight (m,) times share (m,) into `first` (D,) and `second`, a lower triangle or (D,).

    Returns the mass.
    """
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
    """Add sign times a child's log density to `linear` and `square`: and its constant, which is returned."""
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
    """An M-step. Returns the sum of the children's log partition functions, and the first's log density at the origin
    less the second's. At y the difference is greater by linear' y - y' square y / 2, both written here."""
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
    """An E-step: write the shares of the first child (m,); return the weight of each child and the entropy, nats."""
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
def divide_rows(task: SplitTask, seen: SplitPrior, limits: SplitLimits, shares: Array, gains: Array) -> float:
    """Rounds from every start, as `two_way_split` makes them.

    Written: shares of the first child (S, m), sides at first, and the gain of each division (S,), nats, -inf where a
    child died. Back: the correction of a gain. `seen` is the prior about the points' origin.
    """
    y, weight = task.y, task.weight
    (m, d), form, tiles = y.shape, seen.scale.shape, _tiled(y)
    whole_first, first, rest_first = np.empty(d), np.empty(d), np.empty(d)
    whole_second, second, rest_second = np.empty(form), np.empty(form), np.empty(form)
    precision, square, scratch = np.empty(form), np.empty(form), np.empty(form)
    mean, linear = np.empty(d), np.empty(d)
    prior = (seen.mean, seen.strength, seen.dof, seen.scale, mean, precision, scratch)
    total = _summed(tiles, weight, np.ones(m), whole_first, whole_second)
    parent, _ = _child(total, whole_first, whole_second, *prior)
    first[:] = 0.0
    second[:] = 0.0
    nothing, _ = _child(0.0, first, second, *prior)
    correction: float = _overfit_correction(task, total, whole_first, whole_second, seen.dof == 0.0)
    for s in range(shares.shape[0]):
        share = shares[s]
        entropy, gain = 0.0, -math.inf
        one = _summed(tiles, weight, share, first, second)
        two = total - one
        for done in range(limits.rounds):
            if not min(one, two) > limits.least_share * (one + two):
                gain = -math.inf
                break
            rest_first[:] = whole_first - first
            rest_second[:] = whole_second - second
            evidence, odds = _children(one, first, second, two, rest_first, rest_second, prior, linear, square)
            odds += _log_odds(task, one, two)
            now = evidence - parent - nothing + entropy + _split_gain(task, one, two)
            rise, gain = now - gain, now
            if not math.isfinite(now):
                gain = -math.inf
                break
            short = correction + limits.least_gain - gain
            late = done > 2
            rounds = limits.late_rounds if late else limits.early_rounds
            gains_too_little = done > 0 and short > rounds * rise and (late or short > limits.far)
            if rise <= limits.tolerance * (one + two) or gains_too_little or done == limits.rounds - 1:
                break
            one, two, entropy = _divided(tiles, weight, odds, linear, square, share)
            _summed(tiles, weight, share, first, second)
        gains[s] = gain
    return correction


@compiled()
def _overfit_correction(task: SplitTask, total: float, first: Array, second: Array, known: bool) -> float:
    """`two_way_split.overfit_correction`: free parameters that some row tells about (all if the covariance is known)
    times the points that a row speaks for beside itself."""
    weight, squares, informed, all_of_them = task.weight, 0.0, 2, 0
    for i in range(weight.size):
        squares += weight[i] * weight[i]
    for a in range(first.size):
        informed += first[a] != 0.0
        if second.ndim == 2:
            for b in range(a + 1):
                informed += second[a, b] != 0.0
            all_of_them += a + 2
        else:
            informed += second[a] != 0.0
            all_of_them += 2
    if known:
        informed = all_of_them = first.size
    result: float = min(informed, all_of_them) * max(squares / total - task.points_a_row, 0.0)
    return result
