"""Abilities of the diagonal family that engines use, as methods of `NormalInverseGamma`."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import gammaln, psi

from shoal.families.base import contiguous
from shoal.families.capabilities import QuadraticForm, SplitPrior
from shoal.families.covariance_prior import maximised
from shoal.families.diagonal.types import DiagonalParams, DiagonalStats
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import Origin, Statistics, constant_carrier
from shoal.families.prior_choices import MULTIPLIERS, STRENGTHS, Choice, choice_near, dofs, geometric_mean, pooled
from shoal.kernels.linalg import log_gamma_ratio
from shoal.points.arrays import Array
from shoal.points.rows import Points

if TYPE_CHECKING:
    from shoal.families.diagonal.prior import NormalInverseGamma

LOG_2PI = float(np.log(2 * np.pi))
_LEAST_REST = 1e-12
"""Least share of a rate that is left without a point: rounding would leave nothing."""


def natural_statistics(family: "NormalInverseGamma", x: Array, origin: Origin) -> Statistics:
    """t(y) = (y, 1, 1, y^2), y = x - origin."""
    y = x - origin.point
    rows = np.hstack([y, np.ones((len(x), 2)), np.square(y)])
    return Statistics(rows, constant_carrier(family, len(x)))


def statistics_of_moments(family: "NormalInverseGamma", location: Array, spread: Array, origin: Origin) -> Statistics:
    """Means of t(x) and log h(x) over groups of points, from their moments."""
    y = location - origin.point
    second = np.square(y) + np.diagonal(spread, axis1=1, axis2=2)
    return Statistics(np.hstack([y, np.ones((len(y), 2)), second]), constant_carrier(family, len(y)))


def scatter_in_layout(family: "NormalInverseGamma", scatter: Array) -> Array:
    """The diagonals (K, D)."""
    return np.diagonal(scatter, axis1=1, axis2=2) if scatter.ndim == 3 else scatter


def quadratic_form(family: "NormalInverseGamma", params: DiagonalParams) -> QuadraticForm:
    """Expected log densities as quadratic forms."""
    constant = psi(params.shape) - LOG_2PI - 1.0 / params.mean_strength
    constant = family.n_features * constant - np.log(params.rate).sum(axis=1)
    root = np.sqrt(params.shape[:, None] / params.rate)
    return QuadraticForm(0.5 * constant, params.mean, root, 1.0 / root)


def stats_of_moments(
    family: "NormalInverseGamma", sums: WeightedMoments, most: float, past: DiagonalStats
) -> DiagonalStats | None:
    """Statistics of moments about centres, joined with those of the past."""
    from shoal.families.located.m_step_kernel import diagonal_stats

    stats = family.empty_stats(len(past.mass))
    return stats if diagonal_stats(sums, most, contiguous(past), stats) else None


def fast_log_marginal(family: "NormalInverseGamma", stats: DiagonalStats) -> Array:
    """log m(S_k) by a kernel."""
    from shoal.families.located.evidence_kernel import diagonal_evidence

    out = np.empty(len(stats.mass))
    diagonal_evidence(*contiguous(stats), family.mean, family.mean_strength, family.shape, family.rate, out)
    return out


def split_prior(family: "NormalInverseGamma") -> SplitPrior:
    """The normal-inverse-Wishart that this prior is of each feature."""
    return SplitPrior(family.mean, family.mean_strength, 2.0 * family.shape, 2.0 * family.rate)


def log_left_out(family: "NormalInverseGamma", component: DiagonalStats, x: Array, share: Array) -> Array:
    """Scores of a component's own points without them: rate_d without u points at x is rate_d - c e_d^2 / 2."""
    params = family.posterior(component)
    strength, shape = params.mean_strength[0] - share, params.shape[0] - 0.5 * share
    away, shrink = params.mean_strength[0] / strength, strength / (strength + 1.0)
    square = np.square(x - params.mean[0])
    rate = params.rate[0]
    rate = np.maximum(rate - 0.5 * (away * share)[:, None] * square, _LEAST_REST * rate)
    width = 2.0 * rate / shrink[:, None]
    constant = family.n_features * (log_gamma_ratio(shape, 0.5) - 0.5 * np.log(np.pi)) - 0.5 * np.log(width).sum(axis=1)
    distance = np.log1p(away[:, None] ** 2 * square / width).sum(axis=1)
    return np.asarray(constant - (shape + 0.5) * distance)


def prior_choices(family: "NormalInverseGamma", stats: DiagonalStats, n_components: int) -> Choice:
    """The pooled variance within, by feature, times a number; what it is worth; what the mean is worth."""
    mean, within = pooled(stats.mass, stats.mean, stats.scatter)

    def build(multiplier: float, dof: float, strength: float) -> Any:
        shape = 1.0 + dof / 2.0
        return type(family)(mean, strength, shape, shape * multiplier * within)

    multiplier = geometric_mean(family.rate / family.shape / within)
    lists = (MULTIPLIERS, dofs(n_components), STRENGTHS)
    return choice_near(build, lists, multiplier, 2.0 * (family.shape - 1.0), family.mean_strength)


def with_learned_covariance(family: "NormalInverseGamma", stats: DiagonalStats) -> "NormalInverseGamma":
    """The prior whose rates and shape suit the components best (`covariance_prior`): in each feature an inverse Wishart
    distribution with the same degrees of freedom, 2 shape, and scale 2 rate."""
    some = stats.mass > 0.0
    mass = stats.mass[some][:, None]
    lever = family.mean_strength * mass / (family.mean_strength + mass)
    moment = stats.scatter[some] + lever * np.square(stats.mean[some] - family.mean)

    def evidence(scale: Array, dof: float) -> float:
        gammas = gammaln(0.5 * (dof + mass)) - gammaln(0.5 * dof)
        return float((gammas + 0.5 * dof * np.log(scale) - 0.5 * (dof + mass) * np.log(scale + moment)).sum())

    def expectation(scale: Array, dof: float) -> Array:
        return np.asarray(1.0 / ((dof + mass) / (scale + moment)).mean(axis=0))

    found = maximised(2.0 * family.rate, 2.0 * family.shape, 2.0, int(some.sum()), evidence, expectation)
    return type(family)(family.mean, family.mean_strength, 0.5 * found.dof, 0.5 * found.scale)


def with_mean_strength(family: "NormalInverseGamma", strength: float) -> "NormalInverseGamma":
    """The same prior, whose mean is worth `strength` points."""
    return type(family)(family.mean, strength, family.shape, family.rate)


def expected_covariance(family: "NormalInverseGamma") -> Array:
    """The rates (D,)."""
    return family.rate


def log_caps(family: "NormalInverseGamma", stats: DiagonalStats, x: Points, further: Array) -> Array:
    """The peak of the Student t with the block's own rates, and mean_strength and shape raised by the further points.

    The rates only grow with further points, and the peak falls with them.
    """
    d, params = family.n_features, family.posterior(stats)
    strength, shape = params.mean_strength + further[:, None], params.shape + 0.5 * further[:, None]
    per_feature = log_gamma_ratio(shape, 0.5) - 0.5 * (LOG_2PI + np.log1p(1.0 / strength))
    return np.asarray(d * per_feature - 0.5 * np.log(params.rate).sum(axis=1))
