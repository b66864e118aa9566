"""Gaussian components with unknown mean and variance in each feature, under normal-inverse-gamma priors.

Murphy (2007), "Conjugate Bayesian analysis of the Gaussian distribution", sections 3 and 6, one feature beside the
other; mean_strength and shape are shared by the features, which all see the same mass. As an exponential family in
(mu_d, r_d = 1 / s_d), with kappa = mean_strength, a = shape, b = rate:

    natural      kappa m_d    kappa                  2 a                2 b_d + kappa m_d^2
    statistic    r_d mu_d     -sum_d r_d mu_d^2 / 2  sum_d log r_d / 2  -r_d / 2

For D = 1 this is the normal-inverse-Wishart with dof 2 a and scale 2 b.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, psi

from shoal.families.base import RowsT
from shoal.families.diagonal import capabilities, predictive_cache
from shoal.families.diagonal.types import DiagonalCache, DiagonalDraw, DiagonalParams, DiagonalPredictive, DiagonalStats
from shoal.families.holes import observed_and_filled, patterns
from shoal.families.hyperparameters import Hyperparameters, as_mean, as_positive, as_positive_vector
from shoal.families.located import LocatedFamily
from shoal.families.portable import Portable
from shoal.kernels import linalg, moments
from shoal.kernels.distances import diagonal_quadratic, log1p_quadratic
from shoal.points.arrays import Array

LOG_2PI = float(np.log(2 * np.pi))


class NormalInverseGamma(LocatedFamily, Hyperparameters):
    """The prior mu_d | s_d ~ N(mean_d, s_d / mean_strength), s_d ~ IG(shape, rate_d), independent over features, with
    density of s_d proportional to s_d^(-shape - 1) exp(-rate_d / s_d).

    mean (D,); mean_strength > 0, the prior's worth in points; shape > 0; rate (D,) > 0, or one number for all features.
    Raises SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {
        "mean": "mean",
        "mean_strength": "mean_strength",
        "shape": "shape",
        "rate": "rate",
    }
    name: ClassVar[str] = "diagonal"
    description: ClassVar[str] = "Gaussians with a variance in each feature"
    mean: Array
    mean_strength: float
    shape: float
    rate: Array

    def __init__(self, mean: ArrayLike, mean_strength: ArrayLike, shape: ArrayLike, rate: ArrayLike) -> None:
        location = as_mean(mean)
        self._freeze(
            mean=location,
            mean_strength=as_positive("mean_strength", mean_strength),
            shape=as_positive("shape", shape),
            rate=as_positive_vector("rate", rate, location.size),
        )

    @classmethod
    def weak(cls, n_features: int, within_variance: float = 0.1, mean_strength: float = 0.01, dof: float = 1.0) -> Self:
        """A prior for standardised data under which a precision is 1 / within_variance on average."""
        shape = 1.0 + dof / 2.0
        return cls(np.zeros(n_features), mean_strength, shape, shape * within_variance)

    @property
    def n_features(self) -> int:
        """D."""
        return self.mean.size

    @property
    def n_free_parameters(self) -> int:
        """A mean and a variance a feature."""
        return 2 * self.n_features

    # Statistics

    def empty_stats(self, n_components: int) -> DiagonalStats:
        """Statistics of components that have seen nothing."""
        shape = (n_components, self.n_features)
        return DiagonalStats(np.zeros(n_components), np.zeros(shape), np.zeros(shape))

    def suffstats(self, x: Array, resp: Array) -> DiagonalStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        first = moments.first_moments(x, resp)
        return DiagonalStats(first.mass, first.mean, moments.feature_scatter(x, resp, first))

    def add(self, a: DiagonalStats, b: DiagonalStats) -> DiagonalStats:
        """Both together, row by row."""
        both = moments.join(a, b)
        return DiagonalStats(both.mass, both.mean, a.scatter + b.scatter + both.cross[:, None] * both.delta**2)

    def subtract(self, a: DiagonalStats, b: DiagonalStats) -> DiagonalStats:
        """`a` without `b`; what rounding has made negative becomes 0."""
        left = moments.part(a, b)
        scatter = a.scatter - b.scatter - left.cross[:, None] * left.delta**2
        return DiagonalStats(left.mass, left.mean, np.where(left.mass[:, None] > 0.0, np.maximum(scatter, 0.0), 0.0))

    def scale(self, stats: DiagonalStats, factor: float | Array) -> DiagonalStats:
        """Every point's weight times `factor` (a scalar or (K,), >= 0)."""
        mass = stats.mass * factor
        scatter = stats.scatter * np.broadcast_to(factor, mass.shape)[:, None]
        return DiagonalStats(mass, np.where(mass[:, None] > 0.0, stats.mean, 0.0), scatter)

    def posterior(self, stats: DiagonalStats) -> DiagonalParams:
        """Parameters given the statistics; those of the prior, exactly, for a component without mass."""
        strength = self.mean_strength + stats.mass
        share = stats.mass / strength
        delta = np.where(stats.mass[:, None] > 0.0, stats.mean - self.mean, 0.0)
        return DiagonalParams(
            self.mean + share[:, None] * delta,
            strength,
            self.shape + 0.5 * stats.mass,
            self.rate + 0.5 * (stats.scatter + (self.mean_strength * share)[:, None] * delta**2),
        )

    # The exponential family

    def natural(self, params: DiagonalParams) -> Array:
        """(K, 2 D + 2): kappa m, kappa, 2 a, 2 b + kappa m^2."""
        kappa = params.mean_strength[:, None]
        second = 2.0 * params.rate + kappa * params.mean**2
        return np.hstack([kappa * params.mean, kappa, 2.0 * params.shape[:, None], second])

    def from_natural(self, natural: Array) -> DiagonalParams:
        """Inverse of `natural`."""
        d = self.n_features
        kappa = natural[:, d]
        mean = natural[:, :d] / kappa[:, None]
        rate = 0.5 * (natural[:, d + 2 :] - kappa[:, None] * mean**2)
        return DiagonalParams(mean, kappa, 0.5 * natural[:, d + 1], rate)

    def log_partition(self, params: DiagonalParams) -> Array:
        """A (K,), against the measure prod_d s_d^(-3/2) dmu ds."""
        d = self.n_features
        mean_part = 0.5 * d * (LOG_2PI - np.log(params.mean_strength))
        result: Array = mean_part + d * gammaln(params.shape) - params.shape * np.log(params.rate).sum(axis=1)
        return result

    def mean_params(self, params: DiagonalParams) -> Array:
        """(K, P): expectations of r mu, -sum r mu^2 / 2, sum log r / 2 and -r / 2."""
        precision = params.shape[:, None] / params.rate
        first = precision * params.mean
        second = self.n_features / params.mean_strength + np.einsum("kd,kd->k", first, params.mean)
        half_log_precision = 0.5 * self._expected_log_precision(params)
        return np.hstack([first, -0.5 * second[:, None], half_log_precision[:, None], -0.5 * precision])

    def log_carrier(self, stats: DiagonalStats) -> Array:
        """-mass D log(2 pi) / 2."""
        return -0.5 * self.n_features * LOG_2PI * stats.mass

    def relative(self, values: RowsT, to: DiagonalStats | DiagonalParams) -> RowsT:
        """`values` seen from the means of `to`."""
        return moments.relative(values, to)

    # Points

    def expected_log_likelihood(self, params: DiagonalParams, x: Array) -> Array:
        """E_q[log N(x | mu, diag s)] (N, K)."""
        constant = 0.5 * self._expected_log_precision(params)
        constant -= 0.5 * self.n_features * (LOG_2PI + 1.0 / params.mean_strength)
        inverse_width = np.sqrt(params.shape[:, None] / (2.0 * params.rate))
        return constant - diagonal_quadratic(x, params.mean, inverse_width)

    def _expected_log_precision(self, params: DiagonalParams) -> Array:
        """sum_d E_q log r_d (K,)."""
        result: Array = self.n_features * psi(params.shape) - np.log(params.rate).sum(axis=1)
        return result

    def predictive(self, params: DiagonalParams) -> DiagonalPredictive:
        """One Student t with 2 shape degrees of freedom a feature."""
        return self._t(params, self.n_features)

    def _t(self, params: DiagonalParams, n_features: int) -> DiagonalPredictive:
        shrink = params.mean_strength / (params.mean_strength + 1.0)
        log_width = 0.5 * (np.log(2.0 * params.rate).sum(axis=1) - n_features * np.log(shrink))
        constant = n_features * (linalg.log_gamma_ratio(params.shape, 0.5) - 0.5 * np.log(np.pi)) - log_width
        inverse_width = np.sqrt(shrink[:, None] / (2.0 * params.rate))
        return DiagonalPredictive(params.mean, inverse_width, constant, params.shape + 0.5)

    def portable(self, predictive: DiagonalPredictive) -> Portable:
        """See `portable.portable`."""
        return Portable("independent_t", predictive._asdict())

    def log_predictive_from(self, predictive: DiagonalPredictive, x: Array) -> Array:
        """log density (N, K) of points x (N, D)."""
        distance = log1p_quadratic(x, predictive.mean, predictive.inverse_width)
        return predictive.log_constant - predictive.power * distance

    def log_predictive(self, params: DiagonalParams, x: Array) -> Array:
        """log density (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def predictive_mean(self, params: DiagonalParams) -> Array:
        """(K, D); NaN for a shape of at most 1/2, where the t has no mean."""
        return np.where(params.shape[:, None] > 0.5, params.mean, np.nan)

    def predictive_variance(self, params: DiagonalParams) -> Array:
        """(K, D); infinite for a shape of at most 1."""
        excess = params.shape - 1.0
        factor = moments.ratio(params.mean_strength + 1, params.mean_strength * np.maximum(excess, 0.0))
        return np.where(excess[:, None] > 0.0, factor[:, None] * params.rate, np.inf)

    def predictive_covariance(self, params: DiagonalParams) -> Array:
        """(K, D, D), diagonal; off it NaN for a shape of at most 1/2."""
        d = self.n_features
        covariance = np.zeros((params.shape.size, d, d))
        covariance[params.shape <= 0.5] = np.nan
        covariance[:, np.arange(d), np.arange(d)] = self.predictive_variance(params)
        return covariance

    def sample_parameters(self, params: DiagonalParams, rng: np.random.Generator) -> DiagonalDraw:
        """Variances, then means given them."""
        variance = params.rate / rng.standard_gamma(params.shape[:, None], size=params.rate.shape)
        noise = rng.standard_normal(variance.shape)
        return DiagonalDraw(params.mean + noise * np.sqrt(variance / params.mean_strength[:, None]), variance)

    def sample_points(self, parameters: DiagonalDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        k, d = parameters.mean.shape
        noise = rng.standard_normal((k, n, d))
        return parameters.mean[:, None, :] + noise * np.sqrt(parameters.variance)[:, None, :]

    def log_likelihood(self, parameters: DiagonalDraw, x: Array) -> Array:
        """log N(x | mean, diag variance) (N, K)."""
        constant = -0.5 * (self.n_features * LOG_2PI + np.log(parameters.variance).sum(axis=1))
        log_density: Array = constant - diagonal_quadratic(x, parameters.mean, np.sqrt(0.5 / parameters.variance))
        return log_density

    # Points with holes

    def marginal_log_predictive(self, params: DiagonalParams, x: Array) -> Array:
        """The Student t of each observed feature. Exact."""
        out = np.empty((len(x), params.shape.size))
        for rows, observed in patterns(x):
            part = DiagonalParams(
                params.mean[:, observed], params.mean_strength, params.shape, params.rate[:, observed]
            )
            p = int(observed.sum())
            predictive = self._t(part, p)
            out[rows] = self.log_predictive_from(predictive, x[rows][:, observed]) if p else 0.0
        return out

    def _mean_variance(self, params: DiagonalParams) -> Array:
        """E[s] (K, D); for a shape of at most 3/2, where it is large or infinite, twice the rate."""
        return params.rate / np.maximum(params.shape - 1.0, 0.5)[:, None]

    def expected_stats(self, params: DiagonalParams, x: Array, resp: Array) -> DiagonalStats:
        """Holes are filled by the component's means, and add its variances to the scatter."""
        observed, filled = observed_and_filled(x, params.mean)
        return DiagonalStats(resp.copy(), filled, np.where(observed, 0.0, resp[:, None] * self._mean_variance(params)))

    def drawn_missing(self, params: DiagonalParams, x: Array, rng: np.random.Generator) -> Array:
        """The point (D,) with each hole drawn from the component's normal."""
        noise = rng.standard_normal(x.size) * np.sqrt(self._mean_variance(params)[0])
        return np.where(np.isnan(x), params.mean[0] + noise, x)

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
    with_learned_covariance = capabilities.with_learned_covariance
    with_mean_strength = capabilities.with_mean_strength
    expected_covariance = capabilities.expected_covariance
    log_caps = capabilities.log_caps

    # Predictive cache and kernels of streams

    cache_kind: ClassVar[type[Any]] = DiagonalCache
    serves_products: ClassVar[bool] = True
    cache_of = predictive_cache.cache_of
    cache_scales = predictive_cache.cache_scales
    kernel_constants = predictive_cache.kernel_constants
    renewal = predictive_cache.renewal
    join_ceiling = predictive_cache.join_ceiling
    join_ceiling_is_quick = predictive_cache.join_ceiling_is_quick

    @property
    def prior_points(self) -> float:
        """Points that the prior's log gammas count for."""
        return 2.0 * self.shape
