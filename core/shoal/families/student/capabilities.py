"""Abilities of the Student family that engines use, as methods of `MultivariateStudent`."""

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from shoal.families.gaussian import GaussianParams, NormalInverseWishart
from shoal.families.gaussian.capabilities import learned_covariance
from shoal.families.natural_statistics import Origin
from shoal.families.prior_choices import Choice
from shoal.families.student.precision import best_degrees, factor_given
from shoal.families.student.types import StudentStats
from shoal.kernels import linalg
from shoal.kernels.distances import whitened_quadratic
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.student.prior import MultivariateStudent

POINT_ROUNDS = 6
"""Rounds between the q(u) of a point and the component that includes it."""

_LEAST_REST = 1e-12
"""Least share of a scale matrix's determinant that is left without a point: rounding would leave nothing."""


def suffstats_given(family: "MultivariateStudent", params: GaussianParams, x: Array, resp: Array) -> StudentStats:
    """Statistics of points x (N, D) under resp (N, K), with the best q(u) given the components' posteriors."""
    factor = factor_given(family.degrees, family.n_features, family.expected_square(params, x))
    return family.weighted_stats(x, resp, factor.mean, factor.log_mean, factor.entropy)


def natural_rows_given(family: "MultivariateStudent", params: GaussianParams, x: Array, origin: Origin) -> Array:
    """(N, P) t(x) of points x (N, D), with the best q(u) given one component's posterior."""
    factor = factor_given(family.degrees, family.n_features, family.expected_square(params, x))
    rows = family.inner.natural_statistics(x, origin).rows
    own = rows[:, family.n_features + 1].copy()  # of dof, which counts points whole
    rows *= factor.mean
    rows[:, family.n_features + 1] = own
    return np.asarray(rows)


def absorbed(family: "MultivariateStudent", stats: StudentStats, x: Array, resp: Array) -> StudentStats:
    """Statistics with one point x (1, D) added under resp (1, K), its q(u) fitted together with the component.

    The posterior with the point is a rank-one update, so each round between the two is a formula of the squared
    distance alone. The first round counts the point whole: a point that founds a component is not an outlier.
    """
    params = family.posterior(stats)
    whitening = linalg.inverse_lower(linalg.cholesky(params.scale))
    square = whitened_quadratic(x, params.mean, whitening)
    expected = expected_square_with(family, params, square, resp)
    factor = factor_given(family.degrees, family.n_features, expected)
    return family.add(stats, family.weighted_stats(x, resp, factor.mean, factor.log_mean, factor.entropy))


def expected_square_with(family: "MultivariateStudent", params: GaussianParams, square: Array, resp: Array) -> Array:
    """Expected squared distances (N, K) of points from components that include them.

    `square` (N, K) are the distances in the metric of the scale matrices without them.
    """
    nu, d = family.degrees, family.n_features
    strength, dof = params.mean_strength, params.dof + resp
    factor = np.ones_like(resp)
    expected = np.empty_like(resp)
    for _ in range(POINT_ROUNDS):
        weight = resp * factor
        left = strength / (strength + weight)
        expected = dof * left**2 * square / (1.0 + left * weight * square) + d / (strength + weight)
        factor = (nu + d) / (nu + expected)
    return expected


def log_left_out(family: "MultivariateStudent", component: StudentStats, x: Array, share: Array) -> Array:
    """Scores (M,) of a component's own points x (M, D), which it holds with weights `share` (M,), without them.

    Each point is taken out with its q(u) given the component, as in `gaussian`.
    """
    params = family.posterior(component)
    factors = linalg.cholesky(params.scale)
    square = whitened_quadratic(x, params.mean, linalg.inverse_lower(factors))[:, 0]
    expected = params.dof[0] * square + family.n_features / params.mean_strength[0]
    weight = share * factor_given(family.degrees, family.n_features, expected).mean
    strength, dof = params.mean_strength[0] - weight, params.dof[0] - share
    away = params.mean_strength[0] / strength
    rest = np.maximum(1.0 - away * weight * square, _LEAST_REST)
    log_det = linalg.log_determinant(factors)[0] + np.log(rest)
    power, width, log_norm = family.density_terms(strength, dof, log_det)
    return np.asarray(log_norm - power * np.log1p(width * away**2 * square / rest))


def prior_choices(family: "MultivariateStudent", stats: StudentStats, n_components: int) -> Choice:
    """The choices of a Gaussian of the weighted points, under the degrees of freedom that suit the q(u) best."""
    inner = family.inner.prior_choices(stats, n_components)  # type: ignore[arg-type]
    degrees = best_degrees(float(stats.mass.sum()), float(stats.weight.sum()), float(stats.log_weight.sum()))

    def build(*chosen: float) -> Any:
        return family.with_inner(cast("NormalInverseWishart", inner.build(*chosen)), degrees)

    return inner._replace(build=build)


def with_learned_covariance(family: "MultivariateStudent", stats: StudentStats) -> "MultivariateStudent":
    """The prior whose scale matrix and degrees of freedom suit the weighted points of the components best."""
    found = learned_covariance(family.inner, stats.mass, stats.weight, stats.mean, stats.scatter)
    return type(family)(family.mean, family.mean_strength, found.dof, found.scale, family.degrees)


def with_mean_strength(family: "MultivariateStudent", strength: float) -> "MultivariateStudent":
    """The same prior, whose mean is worth `strength` points."""
    return type(family)(family.mean, strength, family.dof, family.scale_matrix, family.degrees)
