"""Abilities of the Gaussian family that engines use, as methods of `NormalInverseWishart`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.families.base import contiguous
from shoal.families.capabilities import QuadraticForm, SplitPrior
from shoal.families.covariance_prior import CovariancePrior, maximised
from shoal.families.gaussian.types import GaussianParams, GaussianStats
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import Origin, Statistics, constant_carrier
from shoal.families.prior_choices import MULTIPLIERS, STRENGTHS, Choice, choice_near, dofs, geometric_mean, pooled
from shoal.kernels import linalg
from shoal.kernels.cholesky import FEW_FEATURES
from shoal.kernels.distances import whitened_quadratic
from shoal.points.arrays import Array
from shoal.points.rows import Points

if TYPE_CHECKING:
    from shoal.families.gaussian.prior import NormalInverseWishart

LOG_2PI = float(np.log(2 * np.pi))
_LOG_PI = float(np.log(np.pi))
_LEAST_REST = 1e-12
"""Least share of a scale matrix's determinant that is left without a point: rounding would leave nothing."""


def natural_statistics(family: "NormalInverseWishart", x: Array, origin: Origin) -> Statistics:
    """t(y) = (y, 1, 1, upper triangle of y y' with off-diagonal elements doubled), y = x - origin."""
    n, d = x.shape
    y = x - origin.point
    rows = np.empty((n, d + 2 + d * (d + 1) // 2))
    rows[:, :d] = y
    rows[:, d : d + 2] = 1.0
    column = d + 2
    for i in range(d):  # row i of the upper triangle at a time: contiguous writes, no (N, D, D) temporary
        width = d - i
        np.multiply(y[:, i:], y[:, i : i + 1], out=rows[:, column : column + width])
        rows[:, column + 1 : column + width] *= 2.0
        column += width
    return Statistics(rows, constant_carrier(family, n))


def statistics_of_moments(family: "NormalInverseWishart", location: Array, spread: Array, origin: Origin) -> Statistics:
    """Means of t(x) and log h(x) over groups of points, from their moments."""
    y = location - origin.point
    second = linalg.pack(spread + linalg.outer(y), with_multiplicity=True)
    return Statistics(np.hstack([y, np.ones((len(y), 2)), second]), constant_carrier(family, len(y)))


def scatter_in_layout(family: "NormalInverseWishart", scatter: Array) -> Array:
    """Scatters (K, D, D) as they are."""
    return scatter


def quadratic_form(family: "NormalInverseWishart", params: GaussianParams) -> QuadraticForm:
    """Expected log densities as quadratic forms."""
    d, factors = family.n_features, linalg.cholesky(params.scale)
    constant = linalg.multivariate_digamma(params.dof / 2.0, d) + d * np.log(2.0) - linalg.log_determinant(factors)
    constant -= d * (LOG_2PI + 1.0 / params.mean_strength)
    size = np.sqrt(params.dof)[:, None, None]
    return QuadraticForm(0.5 * constant, params.mean, linalg.inverse_lower(factors) * size, factors / size)


def stats_of_moments(
    family: "NormalInverseWishart", sums: WeightedMoments, most: float, past: GaussianStats
) -> GaussianStats | None:
    """Statistics of moments about centres, joined with those of the past."""
    from shoal.families.located.m_step_kernel import full_stats

    stats = family.empty_stats(len(past.mass))
    return stats if full_stats(sums, most, contiguous(past), stats) else None


def fast_log_marginal(family: "NormalInverseWishart", stats: GaussianStats) -> Array | None:
    """log m(S_k) by a kernel, up to `FEW_FEATURES` features."""
    if family.n_features > FEW_FEATURES:
        return None
    from shoal.families.located.evidence_kernel import gaussian_evidence

    out = np.empty(len(stats.mass))
    given = (family.mean, family.mean_strength, family.dof, family.scale_matrix)
    return out if gaussian_evidence(*contiguous(stats), *given, out) else None


def split_prior(family: "NormalInverseWishart") -> SplitPrior | None:
    """The prior itself, up to `FEW_FEATURES` features."""
    if family.n_features > FEW_FEATURES:
        return None
    return SplitPrior(family.mean, family.mean_strength, family.dof, family.scale_matrix)


def log_left_out(family: "NormalInverseWishart", component: GaussianStats, x: Array, share: Array) -> Array:
    """Scores of a component's own points without them, by one factor of its scale matrix.

    With e = x - m, c = kappa u / (kappa - u) and q = e' Psi^-1 e,

        Psi without u points at x = Psi - c e e',    |..| = |Psi| (1 - c q),    e' (..)^-1 e = q / (1 - c q)

    (Sherman and Morrison 1950), and x is kappa / (kappa - u) times as far from the mean that is left.
    """
    params, d = family.posterior(component), family.n_features
    factor = linalg.cholesky(params.scale)
    strength, dof = params.mean_strength[0] - share, params.dof[0] - share
    away = params.mean_strength[0] / strength
    square = whitened_quadratic(x, params.mean, linalg.inverse_lower(factor))[:, 0]
    rest = np.maximum(1.0 - away * share * square, _LEAST_REST)
    shrink = strength / (strength + 1.0)
    constant = linalg.log_gamma_ratio((dof + 1.0 - d) / 2.0, d / 2.0) + 0.5 * d * np.log(shrink / np.pi)
    log_det = linalg.log_determinant(factor)[0] + np.log(rest)
    distance = shrink * away**2 * square / rest
    return np.asarray(constant - 0.5 * log_det - 0.5 * (dof + 1.0) * np.log1p(distance))


def prior_choices(family: "NormalInverseWishart", stats: GaussianStats, n_components: int) -> Choice:
    """The pooled variance within, by feature, times a number; what it is worth; what the mean is worth."""
    d = family.n_features
    mean, within = pooled(stats.mass, stats.mean, np.diagonal(stats.scatter, axis1=1, axis2=2))

    def build(multiplier: float, dof: float, strength: float) -> Any:
        total = d + 1.0 + dof
        return type(family)(mean, strength, total, np.diag(total * multiplier * within))

    multiplier = geometric_mean(np.diag(family.scale_matrix) / family.dof / within)
    lists = (MULTIPLIERS, dofs(n_components), STRENGTHS)
    return choice_near(build, lists, multiplier, family.dof - d - 1.0, family.mean_strength)


def with_learned_covariance(family: "NormalInverseWishart", stats: GaussianStats) -> "NormalInverseWishart":
    """The prior whose scale matrix and degrees of freedom suit the components best (`covariance_prior`)."""
    found = learned_covariance(family, stats.mass, stats.mass, stats.mean, stats.scatter)
    return type(family)(family.mean, family.mean_strength, found.dof, found.scale)


def learned_covariance(
    family: "NormalInverseWishart", mass: Array, weight: Array, mean: Array, scatter: Array
) -> CovariancePrior:
    """The covariance prior of components with `mass` (K,) points of `weight` (K,) in all, `mean` (K, D) and `scatter`
    (K, D, D) by weight."""
    some, d = mass > 0.0, family.n_features
    mass, weight = mass[some], weight[some]
    lever = family.mean_strength * weight / (family.mean_strength + weight)
    moment = scatter[some] + linalg.outer(np.sqrt(lever)[:, None] * (mean[some] - family.mean))

    def evidence(scale: Array, dof: float) -> float:
        before = linalg.log_determinant(linalg.cholesky(scale[None]))[0]
        after = linalg.log_determinant(linalg.cholesky(scale + moment))
        gammas = linalg.multivariate_gammaln(0.5 * (dof + mass), d)
        gammas = gammas - linalg.multivariate_gammaln(np.array([0.5 * dof]), d)
        return float((gammas + 0.5 * dof * before - 0.5 * (dof + mass) * after).sum())

    def expectation(scale: Array, dof: float) -> Array:
        whitening = linalg.inverse_lower(linalg.cholesky(scale + moment))
        precision = np.matmul(whitening.transpose(0, 2, 1), whitening)
        total = np.einsum("k,kab->ab", (dof + mass) / len(mass), precision)
        inverse = linalg.inverse_lower(linalg.cholesky(total[None]))[0]
        return np.asarray(inverse.T @ inverse)

    return maximised(family.scale_matrix, family.dof, d + 1.0, len(mass), evidence, expectation)


def with_mean_strength(family: "NormalInverseWishart", strength: float) -> "NormalInverseWishart":
    """The same prior, whose mean is worth `strength` points."""
    return type(family)(family.mean, strength, family.dof, family.scale_matrix)


def expected_covariance(family: "NormalInverseWishart") -> Array:
    """The scale matrix (D, D)."""
    return family.scale_matrix


def log_caps(family: "NormalInverseWishart", stats: GaussianStats, x: Points, further: Array) -> Array:
    """The peak of the Student t with the block's own scale, and mean_strength and dof raised by the further points.

    The scale only grows with further points, and the peak falls with it.
    """
    d, params = family.n_features, family.posterior(stats)
    log_det = linalg.log_determinant(linalg.cholesky(params.scale))
    strength, dof = params.mean_strength + further[:, None], params.dof + further[:, None]
    shape = linalg.log_gamma_ratio((dof - d + 1.0) / 2.0, d / 2.0)
    return np.asarray(shape - 0.5 * d * (np.log1p(1.0 / strength) + _LOG_PI) - 0.5 * log_det)
