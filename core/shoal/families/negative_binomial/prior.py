"""Overdispersed counts: negative binomial components of known dispersion under beta priors.

The likelihood of a row x is prod_d C(x_d + r_d - 1, x_d) theta_d^r_d (1 - theta_d)^x_d, r being the dispersion: the
variance is mean + mean^2 / r. The predictive of each feature is beta negative binomial (Johnson, Kemp and Kotz 2005,
"Univariate Discrete Distributions", section 6.2.3). As an exponential family in log theta_d and log(1 - theta_d), with
the measure prod_d dtheta_d / (theta_d (1 - theta_d)):

    natural    a_d, b_d        statistic    log theta_d, log(1 - theta_d)

A row adds r_d to a_d and x_d to b_d. The coefficient is the carrier. The predictive of large counts is a difference of
two terms of about x log x: at 1e12 it is right to 0.003 nats, and near 2^53 it has no digits left.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, xlogy

from shoal.families.counts import (
    BetaFamily,
    BetaParams,
    in_columns,
    linear_scores,
    log_rise_over_factorial,
    log_rises,
    mean_log_rises,
    term_scores,
    weighted_sums,
)
from shoal.families.feature_contrast import higher_rates
from shoal.families.gamma_draws import log_beta_draws
from shoal.families.hyperparameters import Hyperparameters, as_positive_features
from shoal.families.natural_statistics import Origin, ShiftedRows, Statistics
from shoal.families.negative_binomial.types import (
    NegativeBinomialCache,
    NegativeBinomialDraw,
    NegativeBinomialPredictive,
    NegativeBinomialStats,
)
from shoal.families.portable import Portable
from shoal.families.prior_choices import ROWS_WORTH, Choice, choice_near
from shoal.kernels.linalg import diagonal_matrices, log_gamma_ratio
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows

_DISPERSIONS = (0.5, 2.0, 8.0, 32.0)
"""Tried by `candidate_priors`: from far more to hardly more variance than a Poisson count."""


class BetaNegativeBinomial(BetaFamily, Hyperparameters):
    """The prior theta_d ~ Beta(a_d, b_d), independent over features, of counts with known dispersion r_d.

    `a`, `b`, `dispersion` > 0, (D,) each; all but one may be a number. Raises SettingError when one of them is out of
    range.
    """

    FIELDS: ClassVar[dict[str, str]] = {"a": "a", "b": "b", "dispersion": "dispersion"}
    name: ClassVar[str] = "negative_binomial"
    description: ClassVar[str] = "counts that vary more than a Poisson's, the dispersion known"
    cache_kind: ClassVar[type[Any]] = NegativeBinomialCache
    serves_products: ClassVar[bool] = True
    dispersion: Array

    def __init__(self, a: ArrayLike, b: ArrayLike, dispersion: ArrayLike) -> None:
        first, second, spread = as_positive_features(a=a, b=b, dispersion=dispersion)
        self._freeze(a=first, b=second, dispersion=spread)

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """Mean 1, worth half a row, of dispersion 2."""
        return cls(np.full(n_features, 2.0), 0.5, 2.0)

    @classmethod
    def candidate_priors(cls, rows: Points, thorough: bool) -> list[Self]:
        """Priors whose mean is the smoothed mean of each feature of `rows` (N, D), worth 1/16 to 16 rows, of several
        dispersions."""
        mean = (weighted_sums(rows, np.ones((len(rows), 1)))[0] + 0.5) / (len(rows) + 1.0)
        worths = [2.0**power for power in range(-4, 5, 2 if thorough else 4)]
        dispersions = _DISPERSIONS[:: 1 if thorough else 2]
        return [cls._around(mean, worth, r) for r in dispersions for worth in worths]

    @classmethod
    def _around(cls, mean: Array, worth: float, dispersion: ArrayLike) -> Self:
        """The prior of this mean (D,), r b / (a - 1), that is worth so many rows."""
        return cls(1.0 + worth * np.asarray(dispersion), worth * mean, dispersion)

    # Statistics

    def empty_stats(self, n_components: int) -> NegativeBinomialStats:
        """Statistics of components that have seen nothing."""
        none = np.zeros(n_components)
        return NegativeBinomialStats(none, np.zeros((n_components, self.n_features)), none.copy())

    def suffstats(self, x: Points, resp: Array) -> NegativeBinomialStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        return NegativeBinomialStats(resp.sum(axis=0), weighted_sums(x, resp), resp.T @ self.point_log_carrier(x))

    def posterior(self, stats: NegativeBinomialStats) -> BetaParams:
        """The dispersion of every row added to a, counts to b."""
        return BetaParams(self.a + stats.mass[:, None] * self.dispersion, self.b + stats.total)

    def log_carrier(self, stats: NegativeBinomialStats) -> Array:
        """The weighted sum of log coefficients (K,)."""
        return stats.log_coefficient.copy()

    def collapsed_evidence(self, stats: NegativeBinomialStats) -> Array:
        """(K,); the terms with the mass are left at its mean."""
        each = stats.mass[:, None] * self.dispersion
        rows = log_gamma_ratio(self.a, each) - log_gamma_ratio(self.a + self.b, each + stats.total)
        return np.asarray(mean_log_rises(self.b, stats.total) + rows.sum(axis=1) + stats.log_coefficient)

    # Points

    def point_log_carrier(self, x: Points) -> Array:
        """log h(x) (N,): the sum of log coefficients of each row."""
        rows = SparseRows.of(x)
        logs = log_rise_over_factorial(self.dispersion[rows.indices], rows.data)
        return np.asarray(rows.with_values(logs).sum(axis=1))

    def expected_log_likelihood(self, params: BetaParams, x: Points) -> Array:
        """E_q[log p(x | theta)] (N, K)."""
        success, failure = np.hsplit(self.mean_params(params), 2)
        return np.asarray(linear_scores(x, failure) + success @ self.dispersion + self.point_log_carrier(x)[:, None])

    def predictive(self, params: BetaParams) -> NegativeBinomialPredictive:
        """A beta negative binomial a feature."""
        both = params.a + params.b
        zeros = log_gamma_ratio(params.a, self.dispersion) - log_gamma_ratio(both, self.dispersion)
        return NegativeBinomialPredictive(params.b, both + self.dispersion, zeros.sum(axis=1))

    def portable(self, predictive: NegativeBinomialPredictive) -> Portable:
        """See `portable.portable`."""
        dispersion = np.broadcast_to(self.dispersion, predictive.b.shape)
        return Portable("independent_beta_negative_binomial", predictive._asdict() | {"dispersion": dispersion})

    def log_predictive_from(self, predictive: NegativeBinomialPredictive, x: Points) -> Array:
        """log probability (N, K) of points x (N, D)."""
        b, both = predictive.b, predictive.sum

        def term(column: Any, value: Array) -> Array:
            return np.asarray(log_rises(b[:, column], value) - log_rises(both[:, column], value))

        return term_scores(x, len(b), term) + predictive.log_zeros + self.point_log_carrier(x)[:, None]

    def log_predictive(self, params: BetaParams, x: Points) -> Array:
        """log probability (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def log_likelihood(self, parameters: NegativeBinomialDraw, x: Points) -> Array:
        """log p(x | theta) (N, K)."""
        zeros = parameters.log_success @ self.dispersion
        return np.asarray(linear_scores(x, parameters.log_failure) + zeros + self.point_log_carrier(x)[:, None])

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """Counts that are higher than elsewhere."""
        return higher_rates(value, rest)

    def predictive_mean(self, params: BetaParams) -> Array:
        """(K, D) r b / (a - 1); NaN for an `a` of at most 1, where it is infinite."""
        excess = np.where(params.a > 1.0, params.a - 1.0, np.nan)
        return np.asarray(self.dispersion * params.b / excess)

    def predictive_variance(self, params: BetaParams) -> Array:
        """(K, D); infinite for an `a` of at most 2."""
        a, b, r = params.a, params.b, self.dispersion
        excess = np.where(a > 2.0, a - 2.0, np.nan)
        variance = r * b * (a + r - 1.0) * (a + b - 1.0) / (excess * (a - 1.0) ** 2)
        return np.where(a > 2.0, variance, np.inf)

    def predictive_covariance(self, params: BetaParams) -> Array:
        """(K, D, D), diagonal."""
        return diagonal_matrices(self.predictive_variance(params))

    def sample_parameters(self, params: BetaParams, rng: np.random.Generator) -> NegativeBinomialDraw:
        """Logs of both probabilities."""
        return NegativeBinomialDraw(*log_beta_draws(params.a, params.b, rng))

    def sample_points(self, parameters: NegativeBinomialDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D): Poisson counts of gamma intensities."""
        k, d = parameters.log_success.shape
        scale = np.exp(np.minimum(parameters.log_failure - parameters.log_success, 30.0))
        intensity = rng.standard_gamma(self.dispersion, size=(k, n, d)) * scale[:, None, :]
        return rng.poisson(intensity).astype(np.float64)

    # Where components and points lie

    def positions(self, stats: NegativeBinomialStats) -> Array:
        """(K, D) 2 sqrt(r) arsinh sqrt(mean / r): differences are in standard deviations of a count (Anscombe 1948)."""
        params = self.posterior(stats)
        return self._stabilised(self.dispersion * params.b / params.a, self.dispersion)

    @staticmethod
    def coordinates(x: Points) -> Points:
        """2 arsinh sqrt(x), as for a dispersion of one: of nearly equal variance whatever the mean."""
        rows = SparseRows.of(x)
        values = BetaNegativeBinomial._stabilised(rows.data, 1.0)
        return rows.with_values(values)

    @staticmethod
    def _stabilised(mean: Array, dispersion: Array | float) -> Array:
        return np.asarray(2.0 * np.sqrt(dispersion) * np.arcsinh(np.sqrt(mean / dispersion)))

    # Abilities that engines ask for

    def natural_statistics(self, x: Points, origin: Origin) -> Statistics:
        """The dispersion, and counts."""
        return Statistics(self.sparse_statistics(x).toarray(), self.point_log_carrier(x))

    def sparse_statistics(self, x: Points) -> ShiftedRows:
        """(r, x)."""
        return ShiftedRows(in_columns(x, (0.0, 1.0)), np.append(self.dispersion, np.zeros(x.shape[1])))

    def prior_choices(self, stats: NegativeBinomialStats, n_components: int) -> Choice:
        """The rows that the smoothed means are worth."""
        mean = (stats.total.sum(axis=0) + 0.5) / (float(stats.mass.sum()) + 1.0)
        worth = max(float(((self.a - 1.0) / self.dispersion).mean()), ROWS_WORTH[0])
        return choice_near(lambda rows: self._around(mean, rows, self.dispersion), (ROWS_WORTH,), worth)

    def log_caps(self, stats: NegativeBinomialStats, x: Points, further: Array) -> Array:
        """The probability at theta = r / (r + x), feature by feature; one where x is zero."""
        rows = SparseRows.of(x)
        r, n = self.dispersion[rows.indices], rows.data
        logs = xlogy(r, r / (r + n)) + xlogy(n, n / (r + n)) + gammaln(r + n) - gammaln(r) - gammaln(n + 1.0)
        best = np.asarray(rows.with_values(logs).sum(axis=1))
        return np.repeat(best[:, None], len(stats.mass), axis=1)

    def cache_of(self, stats: NegativeBinomialStats) -> NegativeBinomialCache:
        """The predictive cache of statistics, row by row."""
        return NegativeBinomialCache(self.predictive(self.posterior(stats)).log_zeros)

    def kernel_constants(self) -> Array:
        """(3, D): a, b, dispersion."""
        return np.stack([self.a, self.b, self.dispersion])
