"""No less than what any join would gain, compiled: most checks find nothing to join, and see it here.

`moves.merge_gain` says the gain; NumPy's calls for it and for the candidates take half a millisecond of ten components,
as long as the stream's next thousand points. Here every pair has its own part of the gain in full, and of the label
terms a ceiling (`_label_ceiling`). Under full covariances the evidence of a union is bounded first: with A the scale
matrix of one component and the other's mean, and B the other's scatter, det(A + B)^(1/D) >= det(A)^(1/D) +
det(B)^(1/D) (Minkowski), and only what this leaves open is factored.

Each kernel gives the largest ceiling over the pairs i < j < n of which one is `fresh` (n,), nats; infinity where a
matrix has no factor, -infinity where there is no pair. What lies below `enough` may be a looser ceiling.
"""

import math

import numpy as np

from shoal._numba import compiled, kernel
from shoal.arrays import Array, BoolArray
from shoal.families.cholesky_kernel import factored, log_det_of
from shoal.families.diagonal import DiagonalStats
from shoal.families.gaussian import GaussianStats
from shoal.families.known_covariance import KnownCovarianceStats


@compiled()
def _total(mass: Array, n: int) -> float:
    total = 0.0
    for k in range(n):
        total += mass[k]
    return total


@compiled()
def _label_ceiling(a: float, b: float, total: float, n: int, concentration: float) -> float:
    """No less than `process.join_label_gain` of masses a, b among n of sum `total`.

    The tail of the smaller of the two holds at most n masses of its size and nothing of the larger; that of the larger
    is no longer than that of the union. What those in between lose: `process.join_label_ceiling`, at the worst places.
    """
    small, large = min(a, b), max(a, b)
    tail = concentration + max(small, min(total - large, n * small))
    gammas = math.lgamma(1.0 + a + b) - math.lgamma(1.0 + a) - math.lgamma(1.0 + b)
    return gammas + math.log(tail / concentration) + 3.0 * math.log1p(0.5 * (n - 2))


@kernel()
def spherical_ceiling(
    stats: KnownCovarianceStats,
    pairs: Array,
    fresh: BoolArray,
    n: int,
    concentration: float,
    enough: float,
    mean: Array,
    precision: float,
    variance: float,
) -> float:
    """Under a known variance: means have the prior's `mean` (D,) with `precision`, in units of 1 / variance."""
    d = mean.size
    total, highest = _total(stats.mass, n), -math.inf
    from_prior = np.zeros(n)
    for i in range(n):
        for b in range(d):
            from_prior[i] += (stats.mean[i, b] - mean[b]) ** 2
    for j in range(n):
        for i in range(j):
            if not (fresh[i] or fresh[j]):
                continue
            p, q = stats.mass[i], stats.mass[j]
            both = p + q
            apart = together = 0.0
            for b in range(d):
                delta = stats.mean[j, b] - stats.mean[i, b]
                apart += delta * delta
                together += (stats.mean[i, b] + q / both * delta - mean[b]) ** 2
            spread = p * q / both * apart + precision * (
                both / (both + precision) * together
                - p / (p + precision) * from_prior[i]
                - q / (q + precision) * from_prior[j]
            )
            strength = math.log1p(p / precision) + math.log((q + precision) / (both + precision))
            own = 0.5 * d * strength - 0.5 * spread / variance - pairs[i, j]
            gain = own + _label_ceiling(p, q, total, n, concentration)
            highest = gain if not gain <= highest else highest
    return highest


@kernel()
def diagonal_ceiling(
    stats: DiagonalStats,
    pairs: Array,
    fresh: BoolArray,
    n: int,
    concentration: float,
    enough: float,
    mean: Array,
    mean_strength: float,
    shape: float,
    rate: Array,
) -> float:
    """Under a normal-inverse-gamma prior in each feature: mean (D,), mean_strength, shape, rate (D,)."""
    d = mean.size
    total, highest = _total(stats.mass, n), -math.inf
    alone = np.empty(n)
    none = -0.5 * d * math.log(mean_strength) + d * math.lgamma(shape)
    for b in range(d):
        none -= shape * math.log(rate[b])
    for k in range(n):
        mass = stats.mass[k]
        strength = mean_strength + mass
        weight = mean_strength * mass / strength
        log_rate = 0.0
        for b in range(d):
            apart = stats.mean[k, b] - mean[b] if mass > 0.0 else 0.0
            log_rate += math.log(rate[b] + 0.5 * (stats.scatter[k, b] + weight * apart * apart))
        own_shape = shape + 0.5 * mass
        alone[k] = d * (math.lgamma(own_shape) - 0.5 * math.log(strength)) - own_shape * log_rate
    for j in range(n):
        for i in range(j):
            if not (fresh[i] or fresh[j]):
                continue
            p, q = stats.mass[i], stats.mass[j]
            both = p + q
            strength = mean_strength + both
            weight, cross, share = mean_strength * both / strength, p * q / both, q / both
            log_rate = 0.0
            for b in range(d):
                delta = stats.mean[j, b] - stats.mean[i, b]
                apart = stats.mean[i, b] + share * delta - mean[b]
                scatter = stats.scatter[i, b] + stats.scatter[j, b] + cross * delta * delta
                log_rate += math.log(rate[b] + 0.5 * (scatter + weight * apart * apart))
            own_shape = shape + 0.5 * both
            union = d * (math.lgamma(own_shape) - 0.5 * math.log(strength)) - own_shape * log_rate
            own = union - alone[i] - alone[j] + none - pairs[i, j]
            gain = own + _label_ceiling(p, q, total, n, concentration)
            highest = gain if not gain <= highest else highest
    return highest


@compiled()
def _gaussian_evidence(mass: float, log_det: float, mean_strength: float, dof: float, d: int) -> float:
    """log m of points of this mass, without what only their number and the prior say; log_det of the scale matrix."""
    half = 0.5 * (dof + mass)
    value = half * (d * math.log(2.0) - log_det) - 0.5 * d * math.log(mean_strength + mass)
    for b in range(d):
        value += math.lgamma(half - 0.5 * b)
    return value


@compiled()
def _least_log_det(
    stats: GaussianStats, i: int, j: int, strength: float, centre: Array, factor: Array, scatter: float, apart: Array
) -> float:
    """No more than log |scale matrix| of rows i and j together, from the factor and mean of i and log |scatter of j|.

    det(A + c v v' + B) with A = factor factor', v from the mean of i to that of j, c by their strengths, B the scatter.
    """
    d = centre.size
    q = stats.mass[j]
    for a in range(d):
        value = stats.mean[j, a] - centre[a]
        for b in range(a):
            value -= factor[a, b] * apart[b]
        apart[a] = value / factor[a, a]
    square = 0.0
    for a in range(d):
        square += apart[a] * apart[a]
    own = log_det_of(factor) + math.log1p(strength * q / (strength + q) * square)
    high, low = max(own, scatter), min(own, scatter)
    least: float = high + d * math.log1p(math.exp((low - high) / d))
    return least


@kernel()
def gaussian_ceiling(
    stats: GaussianStats,
    pairs: Array,
    fresh: BoolArray,
    n: int,
    concentration: float,
    enough: float,
    mean: Array,
    mean_strength: float,
    dof: float,
    scale: Array,
) -> float:
    """Under a normal-inverse-Wishart prior: mean (D,), mean_strength, dof, scale matrix (D, D)."""
    d = mean.size
    total, highest = _total(stats.mass, n), -math.inf
    factors, centre = np.empty((n, d, d)), np.empty((n, d))
    alone, scattered = np.empty(n), np.empty(n)
    joint, apart = np.empty((d, d)), np.empty(d)
    for a in range(d):
        for b in range(a + 1):
            joint[a, b] = scale[a, b]
    if not factored(joint):
        return math.inf
    none = _gaussian_evidence(0.0, log_det_of(joint), mean_strength, dof, d)
    for k in range(n):
        mass = stats.mass[k]
        strength = mean_strength + mass
        for a in range(d):
            apart[a] = stats.mean[k, a] - mean[a] if mass > 0.0 else 0.0
            centre[k, a] = mean[a] + mass / strength * apart[a]
            for b in range(a + 1):
                own = stats.scatter[k, a, b]
                joint[a, b] = own
                factors[k, a, b] = scale[a, b] + own + mean_strength * mass / strength * apart[a] * apart[b]
        scattered[k] = log_det_of(joint) if factored(joint) else -math.inf
        if not factored(factors[k]):
            return math.inf
        alone[k] = _gaussian_evidence(mass, log_det_of(factors[k]), mean_strength, dof, d)
    for j in range(n):
        for i in range(j):
            if not (fresh[i] or fresh[j]):
                continue
            p, q = stats.mass[i], stats.mass[j]
            rest = _label_ceiling(p, q, total, n, concentration) + none - alone[i] - alone[j] - pairs[i, j]
            least = _least_log_det(stats, i, j, mean_strength + p, centre[i], factors[i], scattered[j], apart)
            gain = rest + _gaussian_evidence(p + q, least, mean_strength, dof, d)
            if not gain < enough:
                both = p + q
                cross, weight = p * q / both, mean_strength * both / (mean_strength + both)
                for a in range(d):
                    apart[a] = stats.mean[i, a] + q / both * (stats.mean[j, a] - stats.mean[i, a]) - mean[a]
                for a in range(d):
                    delta = cross * (stats.mean[j, a] - stats.mean[i, a])
                    for b in range(a + 1):
                        joint[a, b] = (
                            scale[a, b]
                            + stats.scatter[i, a, b]
                            + stats.scatter[j, a, b]
                            + delta * (stats.mean[j, b] - stats.mean[i, b])
                            + weight * apart[a] * apart[b]
                        )
                if not factored(joint):
                    return math.inf
                gain = rest + _gaussian_evidence(both, log_det_of(joint), mean_strength, dof, d)
            highest = gain if not gain <= highest else highest
    return highest
