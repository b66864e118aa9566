"""No less than what any join would gain, compiled: most checks find nothing to join, and see it here.

`moves.merge_gain` says the gain; NumPy's calls for it and for the candidates take half a millisecond of ten components,
as long as the stream's next thousand points. Here every pair is looked at, with ceilings first:

* of the label terms `_label_ceiling`, and where that leaves a pair open their exact value;
* under full covariances of the union's evidence: with A the scale matrix of one component and the other's mean, and B
  the other's scatter, det(A + B)^(1/D) >= det(A)^(1/D) + det(B)^(1/D) (Minkowski), and only what this leaves open is
  factored.

Each kernel gives the largest ceiling over the pairs i < j of which one is `fresh` (K,), nats: the gain itself, to
rounding, where it is not below `enough`. Infinity where a matrix has no factor or a gain is no number, -infinity where
there is no pair.
"""

import math
from typing import NamedTuple

import numpy as np

from shoal.families.diagonal.types import DiagonalStats
from shoal.families.gaussian.types import GaussianStats
from shoal.families.known_covariance.types import KnownCovarianceStats
from shoal.kernels.cholesky import factored_anyhow, log_det_of
from shoal.kernels.math import REORDER, log_positive
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.runtime.kernels import compiled, kernel

_LOG_2 = math.log(2.0)
_HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_LEAST = 1e-300


class Masses(NamedTuple):
    """The masses of K components as the label terms see them (`process.sticks`)."""

    mass: Array  # (K,)
    log_factorial: Array  # (K,) log G(1 + mass)
    place: IntArray  # (K,) in descending order
    sizes: Array  # (K,) masses in that order
    tails: Array  # (K,) concentration and the masses from a place on
    concentration: float
    slack: float  # what the label terms are at most above the log gammas'


@compiled(makes_arrays=True)
def _masses(mass: Array, n: int, concentration: float) -> Masses:
    own, order, place = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    sizes, tails, log_factorial = np.empty(n), np.empty(n), np.empty(n)
    for k in range(n):  # sorted by insertion: NumPy's sort would take longer to compile than all the rest
        own[k] = mass[k]
        log_factorial[k] = math.lgamma(1.0 + own[k])
        p = k
        while p > 0 and sizes[p - 1] < own[k]:
            sizes[p], order[p] = sizes[p - 1], order[p - 1]
            p -= 1
        sizes[p], order[p] = own[k], k
    tail = concentration
    for p in range(n - 1, -1, -1):
        place[order[p]] = p
        tail += sizes[p]
        tails[p] = tail
    slack = math.log(tails[0] / concentration)
    return Masses(own, log_factorial, place, sizes, tails, concentration, slack)


@compiled(fastmath={"contract"})
def _log_gamma_ceiling(x: float) -> float:
    """No less than log G(x), x > 0: Stirling's series errs by less than its last term."""
    ceiling: float = (x - 0.5) * log_positive(x) - x + _HALF_LOG_2PI + 1.0 / (12.0 * x)
    return ceiling


@compiled()
def _label_ceiling(masses: Masses, i: int, j: int) -> float:
    """No less than `_label_gain`, whose terms in the tails t make up less than log t[0].

    With first = a and second = b, the product over p in (a, b) of t[p] / (t[p] - size[b]) is at most t[a + 1] / t[b],
    since t[p] - size[b] >= t[p + 1]; that over p in [target, a) of t[p] / (t[p] - size[a] - size[b]) at most
    t[target] t[target + 1] / (t[a] t[a + 1]), since that difference is no less than t[p + 2]. With t[a] t[b] /
    t[target] this leaves t[target + 1].
    """
    union = _log_gamma_ceiling(1.0 + masses.mass[i] + masses.mass[j])
    ceiling: float = union - masses.log_factorial[i] - masses.log_factorial[j] + masses.slack
    return ceiling


@compiled()
def _label_gain(masses: Masses, i: int, j: int) -> float:
    """What `process.join_label_gain` says of rows i and j."""
    first, second = min(masses.place[i], masses.place[j]), max(masses.place[i], masses.place[j])
    union = masses.sizes[first] + masses.sizes[second]
    target = first
    while target > 0 and masses.sizes[target - 1] <= union:
        target -= 1
    gain = math.lgamma(1.0 + union) - masses.log_factorial[i] - masses.log_factorial[j]
    gain -= math.log(masses.concentration)
    gain += math.log(masses.tails[first]) + math.log(masses.tails[second]) - math.log(masses.tails[target])
    for p in range(target, first):
        gain -= math.log1p(-union / masses.tails[p])
    for p in range(first + 1, second):
        gain -= math.log1p(-masses.sizes[second] / masses.tails[p])
    return float(gain)


@kernel(fastmath=REORDER)
def spherical_ceiling(
    stats: KnownCovarianceStats,
    pairs: Array,
    fresh: BoolArray,
    concentration: float,
    enough: float,
    mean: Array,
    precision: float,
    variance: float,
) -> float:
    """Under a known variance: means have the prior's `mean` (D,) with `precision`, in units of 1 / variance."""
    n, d = fresh.size, mean.size
    masses, highest = _masses(stats.mass, n, concentration), -math.inf
    square = np.zeros(n)
    for k in range(n):
        for b in range(d):
            square[k] += (stats.mean[k, b] - mean[b]) ** 2
    for j in range(n):
        for i in range(j):
            if not (fresh[i] or fresh[j]):
                continue
            p, q = masses.mass[i], masses.mass[j]
            both, apart = p + q, 0.0
            for b in range(d):
                apart += (stats.mean[j, b] - stats.mean[i, b]) ** 2
            cross = p * q / both * apart
            centred = (p * square[i] + q * square[j] - cross) / (both + precision)  # of the union, to the prior's mean
            alone = p / (p + precision) * square[i] + q / (q + precision) * square[j]
            strength = (p + precision) * (q + precision) / (precision * (both + precision))
            own = 0.5 * d * log_positive(strength) - pairs[i, j]
            own -= 0.5 / variance * (cross + precision * (centred - alone))
            gain = own + _label_ceiling(masses, i, j)
            if not gain < enough:
                gain = own + _label_gain(masses, i, j)
            if math.isnan(gain):
                return math.inf
            highest = max(highest, gain)
    return highest


@compiled(fastmath=REORDER)
def _sum_log_rate(
    rate: Array, mean: Array, first: Array, second: Array, scatter: Array, more: Array, p: float, q: float, weak: float
) -> float:
    """Sum over the features of the log rates of points of mass p about `first` and of mass q about `second` (D,)."""
    share, cross = q / (p + q), p * q / (p + q)
    weight, total = weak * (p + q) / (weak + p + q), 0.0
    for b in range(mean.size):
        delta = second[b] - first[b]
        apart = first[b] + share * delta - mean[b]
        moment = scatter[b] + more[b] + cross * delta * delta + weight * apart * apart
        total += log_positive(max(rate[b] + 0.5 * moment, _LEAST))
    return total


@kernel(fastmath=REORDER)
def diagonal_ceiling(
    stats: DiagonalStats,
    pairs: Array,
    fresh: BoolArray,
    concentration: float,
    enough: float,
    mean: Array,
    mean_strength: float,
    shape: float,
    rate: Array,
) -> float:
    """Under a normal-inverse-gamma prior in each feature: mean (D,), mean_strength, shape, rate (D,)."""
    n, d = fresh.size, mean.size
    masses, highest = _masses(stats.mass, n, concentration), -math.inf
    alone, nothing = np.empty(n), np.zeros(d)
    none = d * (math.lgamma(shape) - 0.5 * math.log(mean_strength))
    for b in range(d):
        none -= shape * math.log(rate[b])
    for k in range(n):
        own, spread = stats.mean[k], stats.scatter[k]
        log_rate = _sum_log_rate(rate, mean, own, own, spread, nothing, masses.mass[k], 0.0, mean_strength)
        half = shape + 0.5 * masses.mass[k]
        alone[k] = d * (math.lgamma(half) - 0.5 * math.log(mean_strength + masses.mass[k])) - half * log_rate
    for j in range(n):
        for i in range(j):
            if not (fresh[i] or fresh[j]):
                continue
            p, q = masses.mass[i], masses.mass[j]
            log_rate = _sum_log_rate(
                rate, mean, stats.mean[i], stats.mean[j], stats.scatter[i], stats.scatter[j], p, q, mean_strength
            )
            half = shape + 0.5 * (p + q)
            rest = -0.5 * d * log_positive(mean_strength + p + q) - half * log_rate
            rest += none - alone[i] - alone[j] - pairs[i, j]
            gain = rest + d * _log_gamma_ceiling(half) + _label_ceiling(masses, i, j)
            if not gain < enough:
                gain = rest + d * math.lgamma(half) + _label_gain(masses, i, j)
            if math.isnan(gain):
                return math.inf
            highest = max(highest, gain)
    return highest


@compiled()
def _gaussian_evidence(mass: float, log_det: float, mean_strength: float, dof: float, d: int) -> float:
    """log m of points of this mass, without what only their number and the prior say; log_det of the scale matrix."""
    half = 0.5 * (dof + mass)
    value = half * (d * _LOG_2 - log_det) - 0.5 * d * math.log(mean_strength + mass)
    for b in range(d):
        value += math.lgamma(half - 0.5 * b)
    return value


@compiled(fastmath=REORDER)
def _evidence_ceiling(mass: float, log_det: float, mean_strength: float, dof: float, d: int) -> float:
    """No less than `_gaussian_evidence`."""
    half = 0.5 * (dof + mass)
    value = half * (d * _LOG_2 - log_det) - 0.5 * d * log_positive(mean_strength + mass)
    for b in range(d):
        value += _log_gamma_ceiling(half - 0.5 * b)
    return float(value)


@compiled(fastmath=REORDER)
def _least_log_det(
    other: Array, scattered: float, weight: float, centre: Array, factor: Array, log_det: float, apart: Array
) -> float:
    """No more than log |F F' + weight v v' + B|, v from `centre` (D,) to `other`, log |B| = scattered, log_det of F F'.

    Overwrites `apart` (D,).
    """
    d = centre.size
    square = 0.0
    for a in range(d):
        value = other[a] - centre[a]
        for b in range(a):
            value -= factor[a, b] * apart[b]
        apart[a] = value / factor[a, a]
        square += apart[a] * apart[a]
    own = log_det + math.log1p(weight * square)
    high, low = max(own, scattered), min(own, scattered)
    least: float = high + d * math.log1p(math.exp((low - high) / d))
    return least


@compiled(fastmath=REORDER)
def _union_log_det(
    stats: GaussianStats, i: int, j: int, mean: Array, mean_strength: float, scale: Array, joint: Array, apart: Array
) -> float:
    """log |scale matrix| of rows i and j together, -infinity where it has no factor; overwrites `joint` and `apart`."""
    p, q, d = stats.mass[i], stats.mass[j], mean.size
    both = p + q
    cross, weight = p * q / both, mean_strength * both / (mean_strength + both)
    for a in range(d):
        apart[a] = stats.mean[i, a] + q / both * (stats.mean[j, a] - stats.mean[i, a]) - mean[a]
    for a in range(d):
        delta = cross * (stats.mean[j, a] - stats.mean[i, a])
        for b in range(a + 1):
            joint[a, b] = (
                scale[a, b]
                + (stats.scatter[i, a, b] + stats.scatter[j, a, b])
                + delta * (stats.mean[j, b] - stats.mean[i, b])
                + weight * apart[a] * apart[b]
            )
    log_det: float = log_det_of(joint) if factored_anyhow(joint) else -math.inf
    return log_det


@kernel(fastmath=REORDER)
def gaussian_ceiling(
    stats: GaussianStats,
    pairs: Array,
    fresh: BoolArray,
    concentration: float,
    enough: float,
    mean: Array,
    mean_strength: float,
    dof: float,
    scale: Array,
) -> float:
    """Under a normal-inverse-Wishart prior: mean (D,), mean_strength, dof, scale matrix (D, D)."""
    n, d = fresh.size, mean.size
    masses, highest = _masses(stats.mass, n, concentration), -math.inf
    factors, centre, joint, apart = np.empty((n, d, d)), np.empty((n, d)), np.empty((d, d)), np.empty(d)
    log_det, alone, scattered = np.empty(n), np.empty(n), np.empty(n)
    for a in range(d):  # not as a whole: that compiles Numba's message about unequal shapes
        for b in range(d):
            joint[a, b] = scale[a, b]
    if not factored_anyhow(joint):
        return math.inf
    none = _gaussian_evidence(0.0, log_det_of(joint), mean_strength, dof, d)
    for k in range(n):
        mass = masses.mass[k]
        share = mass / (mean_strength + mass)
        for a in range(d):
            apart[a] = stats.mean[k, a] - mean[a] if mass > 0.0 else 0.0
            centre[k, a] = mean[a] + share * apart[a]
            for b in range(a + 1):
                joint[a, b] = stats.scatter[k, a, b]
                factors[k, a, b] = scale[a, b] + joint[a, b] + mean_strength * share * apart[a] * apart[b]
        scattered[k] = log_det_of(joint) if factored_anyhow(joint) else -math.inf
        if not factored_anyhow(factors[k]):
            return math.inf
        log_det[k] = log_det_of(factors[k])
        alone[k] = _gaussian_evidence(mass, log_det[k], mean_strength, dof, d)
    for j in range(n):
        for i in range(j):
            if not (fresh[i] or fresh[j]):
                continue
            p, q = masses.mass[i], masses.mass[j]
            weight = (mean_strength + p) * q / (mean_strength + p + q)
            rest = none - alone[i] - alone[j] - pairs[i, j]
            least = _least_log_det(stats.mean[j], scattered[j], weight, centre[i], factors[i], log_det[i], apart)
            gain = rest + _evidence_ceiling(p + q, least, mean_strength, dof, d) + _label_ceiling(masses, i, j)
            if not gain < enough:
                own = _union_log_det(stats, i, j, mean, mean_strength, scale, joint, apart)
                gain = rest + _gaussian_evidence(p + q, own, mean_strength, dof, d) + _label_gain(masses, i, j)
            if math.isnan(gain):
                return math.inf
            highest = max(highest, gain)
    return highest
