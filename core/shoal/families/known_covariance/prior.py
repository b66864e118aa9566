"""Gaussian components that share a known covariance, with an unknown mean under a normal prior.

Spherical (both covariances numbers): Lin (2013), eq. 22. Full: Blei and Jordan (2004), section 5. Covariance S and
prior covariance S0 need not be proportional, which is conjugate but outside the form with one scalar strength (ERRATA
0.6): both are diagonalised together once, and in that basis each coordinate has a precision of its own. With theta the
mean in the basis and p the precision:

    natural      p_d m_d      p_d
    statistic    theta_d      -theta_d^2 / 2

The carrier depends on the data (ERRATA 0.4): it is N(x | 0, S), kept everywhere.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.families.base import RowsT
from shoal.families.hyperparameters import Hyperparameters, as_covariance, as_mean, as_positive, as_real
from shoal.families.known_covariance import capabilities, holes, predictive_cache
from shoal.families.known_covariance.basis import Basis, joint_basis
from shoal.families.known_covariance.types import (
    KnownCovarianceDraw,
    KnownCovarianceParams,
    KnownCovariancePredictive,
    KnownCovarianceStats,
    SharedBasisCache,
    SphericalCache,
)
from shoal.families.located import LocatedFamily
from shoal.families.portable import Portable
from shoal.kernels import moments
from shoal.kernels.distances import diagonal_quadratic
from shoal.points.arrays import Array

LOG_2PI = float(np.log(2 * np.pi))


class KnownCovariance(LocatedFamily, Hyperparameters):
    """The prior mu ~ N(mean, prior_covariance) for points x ~ N(mu, covariance).

    mean (D,); each covariance a positive number (times the identity) or a positive definite matrix (D, D), as given.
    `basis` is B (D, D) with B covariance B' = I and B prior_covariance B' = diag(1 / prior_precision); `spherical` says
    that it is a multiple of the identity. Raises SettingError when a value is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {
        "mean": "mean",
        "prior_covariance": "prior_covariance",
        "covariance": "covariance",
    }
    name: ClassVar[str] = "known_covariance"
    description: ClassVar[str] = "Gaussians whose covariance is known"
    mean: Array
    prior_covariance: Array
    covariance: Array
    prior_precision: Array
    _basis: Basis

    def __init__(self, mean: ArrayLike, prior_covariance: ArrayLike, covariance: ArrayLike) -> None:
        location = as_mean(mean)
        prior = _as_number_or_matrix("prior_covariance", prior_covariance, location.size)
        within = _as_number_or_matrix("covariance", covariance, location.size)
        basis, prior_variance = joint_basis(within, prior, location.size)
        self._freeze(
            mean=location,
            prior_covariance=prior,
            covariance=within,
            prior_precision=1.0 / prior_variance,
            _basis=basis,
        )

    @classmethod
    def weak(cls, n_features: int, within_variance: float = 0.1, mean_strength: float = 0.01, dof: float = 1.0) -> Self:
        """A spherical prior for standardised data, worth `mean_strength` points; a known variance needs no `dof`."""
        return cls(np.zeros(n_features), within_variance / mean_strength, within_variance)

    @property
    def n_features(self) -> int:
        """D."""
        return self.mean.size

    @property
    def n_free_parameters(self) -> int:
        """A mean."""
        return self.n_features

    @property
    def basis(self) -> Array:
        """B (D, D)."""
        return self._basis.matrix()

    @property
    def log_det_basis(self) -> float:
        """log |det B| = -log |covariance| / 2."""
        return self._basis.log_det

    @property
    def spherical(self) -> bool:
        """Whether B is a multiple of the identity, and all elements of prior_precision are equal."""
        return self.covariance.ndim == 0 and self.prior_covariance.ndim == 0

    def to_basis(self, x: Array) -> Array:
        """B x for vectors (..., D)."""
        return self._basis.forward(x)

    def from_basis(self, y: Array) -> Array:
        """B^-1 y for vectors (..., D)."""
        return self._basis.backward(y)

    # Statistics

    def empty_stats(self, n_components: int) -> KnownCovarianceStats:
        """Statistics of components that have seen nothing."""
        return KnownCovarianceStats(
            np.zeros(n_components), np.zeros((n_components, self.n_features)), np.zeros(n_components)
        )

    def suffstats(self, x: Array, resp: Array) -> KnownCovarianceStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        origin = moments.centre_of(x)
        y = self.to_basis(x - origin)
        first = moments.first_moments(y, resp)
        scatter = moments.feature_scatter(y, resp, first)
        mean = np.where(first.mass[:, None] > 0.0, origin + self.from_basis(first.mean), 0.0)
        return KnownCovarianceStats(first.mass, mean, scatter.sum(axis=1))

    def add(self, a: KnownCovarianceStats, b: KnownCovarianceStats) -> KnownCovarianceStats:
        """Both together, row by row."""
        both = moments.join(a, b)
        return KnownCovarianceStats(both.mass, both.mean, a.scatter + b.scatter + self._spread(both))

    def subtract(self, a: KnownCovarianceStats, b: KnownCovarianceStats) -> KnownCovarianceStats:
        """`a` without `b`; a scatter that rounding has made negative becomes 0."""
        left = moments.part(a, b)
        scatter = np.maximum(a.scatter - b.scatter - self._spread(left), 0.0)
        return KnownCovarianceStats(left.mass, left.mean, np.where(left.mass > 0.0, scatter, 0.0))

    def _spread(self, sets: moments.Regrouped) -> Array:
        """cross * delta' covariance^-1 delta (K,)."""
        spread: Array = sets.cross * np.square(self.to_basis(sets.delta)).sum(axis=1)
        return spread

    def scale(self, stats: KnownCovarianceStats, factor: float | Array) -> KnownCovarianceStats:
        """Every point's weight times `factor` (a scalar or (K,), >= 0)."""
        mass = stats.mass * factor
        return KnownCovarianceStats(mass, np.where(mass[:, None] > 0.0, stats.mean, 0.0), stats.scatter * factor)

    def posterior(self, stats: KnownCovarianceStats) -> KnownCovarianceParams:
        """Parameters given the statistics; those of the prior, exactly, for a component without mass.

        The mean is reached from the data or from the prior, whichever is nearer, so that a vague prior far away costs
        it no digits.
        """
        precision = self.prior_precision + stats.mass[:, None]
        gain = stats.mass[:, None] / precision
        delta = self.to_basis(np.where(stats.mass[:, None] > 0.0, stats.mean - self.mean, 0.0))
        near_data = np.add.reduce(gain, axis=1, keepdims=True) > 0.5 * self.n_features
        start = np.where(near_data, stats.mean, self.mean)
        step = np.where(near_data, -self.prior_precision / precision, gain) * delta
        return KnownCovarianceParams(start + self.from_basis(step), precision)

    # The exponential family

    def natural(self, params: KnownCovarianceParams) -> Array:
        """(K, 2 D): precision times mean, and precision, in the shared basis."""
        return np.hstack([params.precision * self.to_basis(params.mean), params.precision])

    def from_natural(self, natural: Array) -> KnownCovarianceParams:
        """Inverse of `natural`."""
        precision = natural[:, self.n_features :]
        return KnownCovarianceParams(self.from_basis(natural[:, : self.n_features] / precision), precision)

    def log_partition(self, params: KnownCovarianceParams) -> Array:
        """A (K,), against the measure d(basis mu)."""
        quadratic = params.precision * np.square(self.to_basis(params.mean))
        result: Array = 0.5 * (quadratic - np.log(params.precision) + LOG_2PI).sum(axis=1)
        return result

    def mean_params(self, params: KnownCovarianceParams) -> Array:
        """(K, 2 D): expectations of theta and -theta^2 / 2."""
        theta = self.to_basis(params.mean)
        return np.hstack([theta, -0.5 * (theta**2 + 1.0 / params.precision)])

    def log_carrier(self, stats: KnownCovarianceStats) -> Array:
        """Sum of resp * log N(x | 0, S) (K,)."""
        raw = stats.scatter + stats.mass * np.square(self.to_basis(stats.mean)).sum(axis=1)
        carrier: Array = stats.mass * self._log_peak - 0.5 * raw
        return carrier

    @property
    def _log_peak(self) -> float:
        """log N(0 | 0, S)."""
        return self.log_det_basis - 0.5 * self.n_features * LOG_2PI

    def relative(self, values: RowsT, to: KnownCovarianceStats | KnownCovarianceParams) -> RowsT:
        """`values` seen from the means of `to`."""
        return moments.relative(values, to)

    # Points

    def expected_log_likelihood(self, params: KnownCovarianceParams, x: Array) -> Array:
        """E_q[log N(x | mu, S)] (N, K)."""
        constant = self._log_peak - 0.5 * (1.0 / params.precision).sum(axis=1)
        mean = self.to_basis(params.mean - self.mean)
        distance = diagonal_quadratic(self.to_basis(x - self.mean), mean, np.ones_like(mean))
        result: Array = constant - 0.5 * distance
        return result

    def predictive(self, params: KnownCovarianceParams) -> KnownCovariancePredictive:
        """The normal with covariance S + B^-1 diag(1 / precision) B^-T."""
        variance_ratio = 1.0 / params.precision
        constant = self._log_peak - 0.5 * np.log1p(variance_ratio).sum(axis=1)
        return KnownCovariancePredictive(
            self.to_basis(params.mean - self.mean), 1.0 / np.sqrt(1.0 + variance_ratio), constant
        )

    def portable(self, predictive: KnownCovariancePredictive) -> Portable:
        """See `portable.portable`."""
        mean = self.mean + self.from_basis(predictive.mean)
        whitening = predictive.inverse_width[:, :, None] * self.basis
        return Portable(
            "multivariate_normal", {"mean": mean, "whitening": whitening, "log_constant": predictive.log_constant}
        )

    def log_predictive_from(self, predictive: KnownCovariancePredictive, x: Array) -> Array:
        """log density (N, K) of points x (N, D)."""
        distance = diagonal_quadratic(self.to_basis(x - self.mean), predictive.mean, predictive.inverse_width)
        return predictive.log_constant - 0.5 * distance

    def log_predictive(self, params: KnownCovarianceParams, x: Array) -> Array:
        """log density (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def predictive_mean(self, params: KnownCovarianceParams) -> Array:
        """(K, D)."""
        return params.mean.copy()

    def predictive_variance(self, params: KnownCovarianceParams) -> Array:
        """(K, D)."""
        variance: Array = (1.0 + 1.0 / params.precision) @ np.square(self._axes())
        return variance

    def predictive_covariance(self, params: KnownCovarianceParams) -> Array:
        """(K, D, D)."""
        axes = self._axes()
        covariance: Array = np.matmul(axes.T * (1.0 + 1.0 / params.precision)[:, None, :], axes)
        return covariance

    def _axes(self) -> Array:
        """Row d: the vector of the input whose coordinates in the basis are those of the d-th unit vector."""
        return self.from_basis(np.eye(self.n_features))

    def sample_parameters(self, params: KnownCovarianceParams, rng: np.random.Generator) -> KnownCovarianceDraw:
        """Means from their posteriors."""
        noise = rng.standard_normal(params.precision.shape) / np.sqrt(params.precision)
        return KnownCovarianceDraw(params.mean + self.from_basis(noise))

    def sample_points(self, parameters: KnownCovarianceDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        k, d = parameters.mean.shape
        return parameters.mean[:, None, :] + self.from_basis(rng.standard_normal((k, n, d)))

    def log_likelihood(self, parameters: KnownCovarianceDraw, x: Array) -> Array:
        """log N(x | mean, covariance) (N, K)."""
        mean = self.to_basis(parameters.mean - self.mean)
        distance = diagonal_quadratic(self.to_basis(x - self.mean), mean, np.ones_like(mean))
        result: Array = self._log_peak - 0.5 * distance
        return result

    # Abilities that engines ask for

    natural_statistics = capabilities.natural_statistics
    statistics_of_moments = capabilities.statistics_of_moments
    scatter_in_layout = capabilities.scatter_in_layout
    quadratic_form = capabilities.quadratic_form
    stats_of_moments = capabilities.stats_of_moments
    fast_log_marginal = capabilities.fast_log_marginal
    split_prior = capabilities.split_prior
    log_left_out = capabilities.log_left_out
    prior_choices = capabilities.prior_choices
    restated = capabilities.restated
    expected_covariance = capabilities.expected_covariance
    log_caps = capabilities.log_caps
    marginal_log_predictive = holes.marginal_log_predictive
    expected_stats = holes.expected_stats
    drawn_missing = holes.drawn_missing

    # Predictive cache and kernels of streams

    cache_of = predictive_cache.cache_of
    cache_scales = predictive_cache.cache_scales
    kernel_constants = predictive_cache.kernel_constants
    join_ceiling = predictive_cache.join_ceiling
    join_ceiling_is_quick = predictive_cache.join_ceiling_is_quick
    prior_points: ClassVar[float] = 0.0

    @property
    def cache_kind(self) -> type[Any]:
        """One precision a component where spherical, else one for each coordinate of the shared basis."""
        return SphericalCache if self.spherical else SharedBasisCache

    @classmethod
    def examples(cls) -> list[Self]:
        """A spherical prior and a full one: each has kernels of its own."""
        return [cls(np.zeros(1), 1.0, 1.0), cls(np.zeros(1), np.eye(1), np.eye(1))]


def _as_number_or_matrix(what: str, value: ArrayLike, n_features: int) -> Array:
    array = as_real(what, value)
    if array.ndim == 0:
        return np.asarray(as_positive(what, array))
    return as_covariance(what, array, n_features)
