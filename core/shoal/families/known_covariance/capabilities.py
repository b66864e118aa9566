"""Abilities of the family with a known covariance that engines use, as methods of `KnownCovariance`.

Where both covariances are multiples of the identity (`spherical`), kernels serve it; else NumPy does.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.families.base import contiguous, take
from shoal.families.capabilities import QuadraticForm, SplitPrior
from shoal.families.known_covariance.types import KnownCovarianceParams, KnownCovarianceStats
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.prior_choices import FINE_MULTIPLIERS, RIDGE, SMALLEST, STRENGTHS, Choice, choice_near
from shoal.points.arrays import Array
from shoal.points.contamination import absurd_values
from shoal.points.rows import Points

if TYPE_CHECKING:
    from shoal.families.known_covariance.prior import KnownCovariance

LOG_2PI = float(np.log(2 * np.pi))


def natural_statistics(family: "KnownCovariance", x: Array, origin: Origin) -> Statistics:
    """t(y) = (B y, 1), y = x - origin, B the basis."""
    y = x - origin.point
    points = family.empty_stats(len(x))._replace(mass=np.ones(len(x)), mean=y)
    return Statistics(np.hstack([family.to_basis(y), np.ones_like(y)]), family.log_carrier(points))


def statistics_of_moments(family: "KnownCovariance", location: Array, spread: Array, origin: Origin) -> Statistics:
    """Means of t(x) and log h(x) over groups of points, from their moments."""
    y = location - origin.point
    groups = family.empty_stats(len(y))._replace(
        mass=np.ones(len(y)), mean=y, scatter=scatter_in_layout(family, spread)
    )
    return Statistics(np.hstack([family.to_basis(y), np.ones_like(y)]), family.log_carrier(groups))


def scatter_in_layout(family: "KnownCovariance", scatter: Array) -> Array:
    """tr(covariance^-1 scatter) (K,); the diagonals (K, D) suffice for a spherical covariance."""
    if scatter.ndim == 2:
        return np.asarray(scatter.sum(axis=1) / float(family.covariance))
    basis = family.basis
    traces: Array = np.einsum("kde,de->k", scatter, basis.T @ basis)
    return traces


def quadratic_form(family: "KnownCovariance", params: KnownCovarianceParams) -> QuadraticForm | None:
    """Expected log densities as quadratic forms; None unless spherical."""
    if not family.spherical:
        return None
    constant = family.log_det_basis - 0.5 * family.n_features * LOG_2PI - 0.5 * (1.0 / params.precision).sum(axis=1)
    root = np.full(params.mean.shape, np.sqrt(1.0 / float(family.covariance)))
    return QuadraticForm(constant, params.mean, root, 1.0 / root)


def stats_of_moments(
    family: "KnownCovariance", sums: WeightedMoments, most: float, past: KnownCovarianceStats
) -> KnownCovarianceStats | None:
    """Statistics of moments about centres, joined with those of the past; spherical."""
    from shoal.families.located.m_step_kernel import spherical_stats

    stats = family.empty_stats(len(past.mass))
    done = spherical_stats(sums, most, float(family.covariance), contiguous(past), stats)
    return stats if done else None


def fast_log_marginal(family: "KnownCovariance", stats: KnownCovarianceStats) -> Array | None:
    """log m(S_k) by a kernel; None unless spherical."""
    if not family.spherical:
        return None
    from shoal.families.located.evidence_kernel import known_evidence

    out = np.empty(len(stats.mass))
    given = (family.mean, float(family.prior_precision[0]), float(family.covariance))
    known_evidence(*contiguous(stats), *given, out)
    return out


def split_prior(family: "KnownCovariance") -> SplitPrior | None:
    """The prior of the mean, in units of the variance; None unless spherical."""
    if not family.spherical:
        return None
    variance = float(family.covariance)
    scale = np.full(family.n_features, variance)
    return SplitPrior(family.mean, variance / float(family.prior_covariance), 0.0, scale)


def log_left_out(family: "KnownCovariance", component: KnownCovarianceStats, x: Array, share: Array) -> Array:
    """Scores of a component's own points without them.

    In the basis a coordinate is p / (p - u) times as far from the mean that is left as from the whole one.
    """
    params = family.posterior(component)
    whole = params.precision
    precision = whole - share[:, None]
    away = family.to_basis(x - params.mean) * (whole / precision)
    constant = -0.5 * family.n_features * LOG_2PI + family.log_det_basis - 0.5 * np.log1p(1.0 / precision).sum(axis=1)
    return np.asarray(constant - 0.5 * (np.square(away) * (precision / (precision + 1.0))).sum(axis=1))


def prior_choices(family: "KnownCovariance", stats: KnownCovarianceStats, n_components: int) -> Choice | None:
    """The pooled variance within times a number near one, and what the mean is worth; None unless spherical."""
    if not family.spherical:
        return None
    near = ~absurd_values(stats.mean, stats.mass).any(axis=1)
    mass, means, scatter = (stats.mass, stats.mean, stats.scatter) if near.all() else take(stats, near)
    total = float(mass.sum())
    mean = mass @ means / total
    between = float((mass @ np.square(means - mean)).mean()) / total
    within = float(family.covariance) * float(scatter.sum()) / (total * family.n_features)
    within += RIDGE * (within + between) + SMALLEST

    def build(multiplier: float, strength: float) -> Any:
        variance = multiplier * within
        return type(family)(mean, variance / strength, variance)

    strength = float(family.covariance) / float(family.prior_covariance)
    return choice_near(build, (FINE_MULTIPLIERS, STRENGTHS), float(family.covariance) / within, strength)


def restated(family: "KnownCovariance", stats: KnownCovarianceStats, before: "KnownCovariance") -> KnownCovarianceStats:
    """Statistics with scatters in units of this covariance, which differs from the one before by a factor."""
    if family.covariance.shape != before.covariance.shape:
        raise ValueError("one covariance is spherical and the other is not; scatters cannot be restated")
    factor = float(np.trace(np.atleast_2d(before.covariance)) / np.trace(np.atleast_2d(family.covariance)))
    return stats if factor == 1.0 else stats._replace(scatter=stats.scatter * factor)


def expected_covariance(family: "KnownCovariance") -> Array:
    """The covariance: a number or (D, D)."""
    return family.covariance


def log_caps(family: "KnownCovariance", stats: KnownCovarianceStats, x: Points, further: Array) -> Array:
    """The peak of the normal with the precision raised by the further points."""
    precision = family.posterior(stats).precision + further[:, None, None]
    spread = np.log1p(1.0 / precision).sum(axis=2)
    return np.asarray(family.log_det_basis - 0.5 * (family.n_features * LOG_2PI + spread))
