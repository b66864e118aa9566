"""Independent counts: Poisson components under gamma priors.

Gelman et al. (2013), "Bayesian Data Analysis", section 2.6, one feature beside the other. The likelihood of a row x is
prod_d theta_d^x_d exp(-theta_d) / x_d!; the predictive of each feature is negative binomial. As an exponential family
in log theta_d and -theta_d, with the measure prod_d dtheta_d / theta_d:

    natural    shape_d, rate_d        statistic    log theta_d, -theta_d

and log normaliser sum_d log G(shape_d) - shape_d log rate_d. 1 / prod_d x_d! is the carrier.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, psi, xlogy

from shoal.families.counts import (
    AdditiveFamily,
    in_columns,
    linear_scores,
    log_factorial_sums,
    log_rises,
    mean_log_rises,
    term_scores,
    weighted_sums,
)
from shoal.families.feature_contrast import higher_rates
from shoal.families.gamma_draws import log_gamma_draws
from shoal.families.holes import observed_and_filled
from shoal.families.hyperparameters import Hyperparameters, as_positive_features
from shoal.families.natural_statistics import Origin, ShiftedRows, Statistics
from shoal.families.poisson.types import PoissonCache, PoissonDraw, PoissonParams, PoissonPredictive, PoissonStats
from shoal.families.portable import Portable
from shoal.families.prior_choices import ROWS_WORTH, Choice, choice_near
from shoal.kernels.linalg import diagonal_matrices
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows


class GammaPoisson(AdditiveFamily, Hyperparameters):
    """The prior theta_d ~ Gamma(shape_d, rate_d), independent over features, with density proportional to
    theta_d^(shape_d - 1) exp(-rate_d theta_d).

    `shape`, `rate` > 0, (D,) each, or one of them a number. Raises SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {"shape": "shape", "rate": "rate"}
    name: ClassVar[str] = "poisson"
    description: ClassVar[str] = "counts"
    cache_kind: ClassVar[type[Any]] = PoissonCache
    serves_products: ClassVar[bool] = True
    shape: Array
    rate: Array

    def __init__(self, shape: ArrayLike, rate: ArrayLike) -> None:
        shapes, rates = as_positive_features(shape=shape, rate=rate)
        self._freeze(shape=shapes, rate=rates)

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """Mean and deviation 1."""
        return cls(np.ones(n_features), 1.0)

    @classmethod
    def candidate_priors(cls, rows: Points, thorough: bool) -> list[Self]:
        """Priors whose mean is the smoothed mean of each feature of `rows` (N, D).

        They differ in how far the components' means spread about it: coefficients of variation from 4 to 1/4.
        """
        mean = (weighted_sums(rows, np.ones((len(rows), 1)))[0] + 0.5) / (len(rows) + 1.0)
        shapes = [2.0**power for power in range(-4, 5, 1 if thorough else 2)]
        return [cls(shape, shape / mean) for shape in shapes]

    @property
    def n_features(self) -> int:
        """D."""
        return self.shape.size

    @property
    def n_free_parameters(self) -> int:
        """An intensity a feature."""
        return self.n_features

    # Statistics

    def empty_stats(self, n_components: int) -> PoissonStats:
        """Statistics of components that have seen nothing."""
        none = np.zeros(n_components)
        return PoissonStats(none, np.zeros((n_components, self.n_features)), none.copy())

    def suffstats(self, x: Points, resp: Array) -> PoissonStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        return PoissonStats(resp.sum(axis=0), weighted_sums(x, resp), -(resp.T @ log_factorial_sums(x)))

    def posterior(self, stats: PoissonStats) -> PoissonParams:
        """Counts added to the shape, mass to the rate."""
        return PoissonParams(self.shape + stats.total, self.rate + stats.mass[:, None])

    # The exponential family

    def natural(self, params: PoissonParams) -> Array:
        """(K, 2 D): shape, rate."""
        return np.hstack([params.shape, params.rate])

    def from_natural(self, natural: Array) -> PoissonParams:
        """Inverse of `natural`."""
        d = self.n_features
        return PoissonParams(natural[:, :d].copy(), natural[:, d:].copy())

    def log_partition(self, params: PoissonParams) -> Array:
        """A (K,)."""
        result: Array = (gammaln(params.shape) - params.shape * np.log(params.rate)).sum(axis=1)
        return result

    def mean_params(self, params: PoissonParams) -> Array:
        """(K, 2 D): E log theta, -E theta."""
        return np.hstack([psi(params.shape) - np.log(params.rate), -params.shape / params.rate])

    def log_carrier(self, stats: PoissonStats) -> Array:
        """The weighted sum of -log x! (K,)."""
        return stats.log_coefficient.copy()

    def collapsed_evidence(self, stats: PoissonStats) -> Array:
        """(K,); the terms with the rate, of counts and mass together, are left at both means, to either side."""
        spread = (self.shape + stats.total) * np.log1p(stats.mass[:, None] / self.rate) + stats.total * np.log(
            self.rate
        )
        return np.asarray(mean_log_rises(self.shape, stats.total) - spread.sum(axis=1) + stats.log_coefficient)

    # Points

    @staticmethod
    def point_log_carrier(x: Points) -> Array:
        """log h(x) (N,)."""
        return -log_factorial_sums(x)

    def expected_log_likelihood(self, params: PoissonParams, x: Points) -> Array:
        """E_q[log p(x | theta)] (N, K)."""
        log_mean, less_mean = np.hsplit(self.mean_params(params), 2)
        return np.asarray(linear_scores(x, log_mean) + less_mean.sum(axis=1) - log_factorial_sums(x)[:, None])

    def predictive(self, params: PoissonParams) -> PoissonPredictive:
        """A negative binomial a feature, of `shape` successes with probability rate / (rate + 1)."""
        log_zeros = -(params.shape * np.log1p(1.0 / params.rate)).sum(axis=1)
        return PoissonPredictive(params.shape, np.log1p(params.rate), log_zeros)

    def portable(self, predictive: PoissonPredictive) -> Portable:
        """See `portable.portable`."""
        return Portable("independent_negative_binomial", predictive._asdict())

    def log_predictive_from(self, predictive: PoissonPredictive, x: Points) -> Array:
        """log probability (N, K) of points x (N, D)."""
        shape, log_rate = predictive.shape, predictive.log_rate

        def term(column: Any, value: Array) -> Array:
            return np.asarray(log_rises(shape[:, column], value) - value * log_rate[:, column])

        return term_scores(x, len(shape), term) + predictive.log_zeros

    def log_predictive(self, params: PoissonParams, x: Points) -> Array:
        """log probability (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def log_likelihood(self, parameters: PoissonDraw, x: Points) -> Array:
        """log p(x | theta) (N, K)."""
        zeros = -np.exp(parameters.log_intensity).sum(axis=1)
        return np.asarray(linear_scores(x, parameters.log_intensity) + zeros - log_factorial_sums(x)[:, None])

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """Counts that are higher than elsewhere."""
        return higher_rates(value, rest)

    def predictive_mean(self, params: PoissonParams) -> Array:
        """(K, D)."""
        result: Array = params.shape / params.rate
        return result

    def predictive_variance(self, params: PoissonParams) -> Array:
        """(K, D)."""
        result: Array = self.predictive_mean(params) * (1.0 + 1.0 / params.rate)
        return result

    def predictive_covariance(self, params: PoissonParams) -> Array:
        """(K, D, D), diagonal."""
        return diagonal_matrices(self.predictive_variance(params))

    def sample_parameters(self, params: PoissonParams, rng: np.random.Generator) -> PoissonDraw:
        """Log intensities: small shapes give intensities below any float."""
        return PoissonDraw(log_gamma_draws(params.shape, rng) - np.log(params.rate))

    def sample_points(self, parameters: PoissonDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        k, d = parameters.log_intensity.shape
        return rng.poisson(np.exp(parameters.log_intensity)[:, None, :], (k, n, d)).astype(np.float64)

    # Where components and points lie, and the predictive cache

    def positions(self, stats: PoissonStats) -> Array:
        """(K, D) 2 sqrt(mean): differences are in standard deviations of a Poisson count (Anscombe)."""
        return np.asarray(2.0 * np.sqrt(self.predictive_mean(self.posterior(stats))))

    @staticmethod
    def coordinates(x: Points) -> Points:
        """2 sqrt(x): of nearly equal variance whatever the intensity."""
        rows = SparseRows.of(x)
        return rows.with_values(2.0 * np.sqrt(rows.data))

    def cache_of(self, stats: PoissonStats) -> PoissonCache:
        """The predictive cache of statistics, row by row."""
        return PoissonCache(self.predictive(self.posterior(stats)).log_zeros)

    def kernel_constants(self) -> Array:
        """(2, D): shape, rate."""
        return np.stack([self.shape, self.rate])

    # Points with holes

    def marginal_log_predictive(self, params: PoissonParams, x: Array) -> Array:
        """The negative binomial of each observed feature. Exact."""
        out = np.zeros((len(x), len(params.shape)))
        for row, point in zip(out, x, strict=True):
            seen = np.flatnonzero(~np.isnan(point))
            shape, rate, value = params.shape[:, seen], params.rate[:, seen], point[seen]
            rises = gammaln(shape + value) - gammaln(shape) - gammaln(value + 1.0)
            row[:] = (rises - shape * np.log1p(1.0 / rate) - value * np.log1p(rate)).sum(axis=1)
        return out

    def expected_stats(self, params: PoissonParams, x: Array, resp: Array) -> PoissonStats:
        """A hole counts as the component's mean, which leaves that mean where it was. It has no carrier."""
        observed, filled = observed_and_filled(x, self.predictive_mean(params))
        carrier = float(gammaln(x[observed] + 1.0).sum())
        return PoissonStats(resp.copy(), resp[:, None] * filled, -resp * carrier)

    def drawn_missing(self, params: PoissonParams, x: Array, rng: np.random.Generator) -> Array:
        """The point (D,) with each hole drawn by the component's intensity."""
        drawn = rng.poisson(np.minimum(self.predictive_mean(params)[0], 1e15))
        return np.where(np.isnan(x), drawn.astype(np.float64), x)

    # Abilities that engines ask for

    def natural_statistics(self, x: Points, origin: Origin) -> Statistics:
        """Counts, and the one that a point adds to each rate."""
        return Statistics(self.sparse_statistics(x).toarray(), self.point_log_carrier(x))

    def sparse_statistics(self, x: Points) -> ShiftedRows:
        """(x, 1)."""
        return ShiftedRows(in_columns(x, (1.0, 0.0)), np.repeat([0.0, 1.0], x.shape[1]))

    def prior_choices(self, stats: PoissonStats, n_components: int) -> Choice:
        """The shape, by which the components' means spread about the smoothed means."""
        mean = (stats.total.sum(axis=0) + 0.5) / (float(stats.mass.sum()) + 1.0)
        return choice_near(lambda shape: type(self)(shape, shape / mean), (ROWS_WORTH,), float(self.shape.mean()))

    def log_caps(self, stats: PoissonStats, x: Points, further: Array) -> Array:
        """The probability at the rate x, feature by feature; one where x is zero."""
        rows = SparseRows.of(x)
        logs = xlogy(rows.data, rows.data) - rows.data - gammaln(rows.data + 1.0)
        best = np.asarray(rows.with_values(logs).sum(axis=1))
        return np.repeat(best[:, None], len(stats.mass), axis=1)
