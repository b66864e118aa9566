"""Binary features: independent Bernoulli components under beta priors.

Gelman et al. (2013), "Bayesian Data Analysis", section 2.1, one feature beside the other. As an exponential family in
log theta_d and log(1 - theta_d), with the measure prod_d dtheta_d / (theta_d (1 - theta_d)):

    natural    a_d, b_d        statistic    log theta_d, log(1 - theta_d)

The log probability of a row is that of a row of zeros plus the log odds of its ones.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.families.bernoulli.types import (
    BernoulliCache,
    BernoulliDraw,
    BernoulliPredictive,
    BernoulliStats,
)
from shoal.families.counts import BetaFamily, BetaParams, in_columns, linear_scores, mean_log_rises, weighted_sums
from shoal.families.feature_contrast import other_rates
from shoal.families.gamma_draws import log_beta_draws
from shoal.families.holes import observed_and_filled
from shoal.families.hyperparameters import Hyperparameters, as_positive_features
from shoal.families.natural_statistics import Origin, ShiftedRows, Statistics
from shoal.families.portable import Portable
from shoal.families.prior_choices import ROWS_WORTH, Choice, choice_near
from shoal.kernels.linalg import diagonal_matrices, log_gamma_ratio
from shoal.points.arrays import Array
from shoal.points.domains import BINARY, Domain
from shoal.points.rows import Points, SparseRows


class BetaBernoulli(BetaFamily, Hyperparameters):
    """The prior theta_d ~ Beta(a_d, b_d), independent over features; `a`, `b` > 0, (D,) each, or one of them a number.

    Raises SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {"a": "a", "b": "b"}
    name: ClassVar[str] = "bernoulli"
    description: ClassVar[str] = "zeros and ones"
    domain: ClassVar[Domain] = BINARY
    cache_kind: ClassVar[type[Any]] = BernoulliCache
    serves_products: ClassVar[bool] = True

    def __init__(self, a: ArrayLike, b: ArrayLike) -> None:
        first, second = as_positive_features(a=a, b=b)
        self._freeze(a=first, b=second)

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """Jeffreys' prior."""
        return cls(np.full(n_features, 0.5), 0.5)

    @classmethod
    def candidate_priors(cls, rows: Points, thorough: bool) -> list[Self]:
        """Priors whose mean is the smoothed share of ones in each feature of `rows` (N, D), worth 1/16 to 16 rows."""
        share = (weighted_sums(rows, np.ones((len(rows), 1)))[0] + 0.5) / (len(rows) + 1.0)
        return [cls(share * 2.0**power, (1.0 - share) * 2.0**power) for power in range(-4, 5, 1 if thorough else 2)]

    # Statistics

    def empty_stats(self, n_components: int) -> BernoulliStats:
        """Statistics of components that have seen nothing."""
        return BernoulliStats(np.zeros(n_components), np.zeros((n_components, self.n_features)))

    def suffstats(self, x: Points, resp: Array) -> BernoulliStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        return BernoulliStats(resp.sum(axis=0), weighted_sums(x, resp))

    def posterior(self, stats: BernoulliStats) -> BetaParams:
        """Ones and zeros added to the prior's."""
        zeros = np.maximum(stats.mass[:, None] - stats.total, 0.0)
        return BetaParams(self.a + stats.total, self.b + zeros)

    def log_carrier(self, stats: BernoulliStats) -> Array:
        """0 (K,)."""
        return np.zeros(len(stats.mass))

    def collapsed_evidence(self, stats: BernoulliStats) -> Array:
        """(K,); the term of all rows, -log G(a_d + b_d + mass), is concave and left at the mean, too high there."""
        zeros = np.maximum(stats.mass[:, None] - stats.total, 0.0)
        rows = log_gamma_ratio(self.a + self.b, stats.mass[:, None]).sum(axis=1)
        return np.asarray(mean_log_rises(self.a, stats.total) + mean_log_rises(self.b, zeros) - rows)

    # Points

    @staticmethod
    def point_log_carrier(x: Points) -> Array:
        """0 (N,)."""
        return np.zeros(len(SparseRows.of(x)))

    def expected_log_likelihood(self, params: BetaParams, x: Points) -> Array:
        """E_q[log p(x | theta)] (N, K)."""
        one, zero = np.hsplit(self.mean_params(params), 2)
        return np.asarray(linear_scores(x, one - zero) + zero.sum(axis=1))

    def predictive(self, params: BetaParams) -> BernoulliPredictive:
        """Log odds a / b, and the log probability of zeros."""
        log_zeros = -np.log1p(params.a / params.b).sum(axis=1)
        return BernoulliPredictive(np.log(params.a / params.b), log_zeros)

    def portable(self, predictive: BernoulliPredictive) -> Portable:
        """See `portable.portable`."""
        return Portable("independent_bernoulli", predictive._asdict())

    def log_predictive_from(self, predictive: BernoulliPredictive, x: Points) -> Array:
        """log probability (N, K) of points x (N, D)."""
        return linear_scores(x, predictive.log_odds) + predictive.log_zeros

    def log_predictive(self, params: BetaParams, x: Points) -> Array:
        """log probability (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def log_likelihood(self, parameters: BernoulliDraw, x: Points) -> Array:
        """log p(x | theta) (N, K)."""
        odds = parameters.log_one - parameters.log_zero
        return np.asarray(linear_scores(x, odds) + parameters.log_zero.sum(axis=1))

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """Features that are on, or off, more often than elsewhere."""
        return other_rates(value, rest)

    def predictive_mean(self, params: BetaParams) -> Array:
        """(K, D)."""
        result: Array = params.a / (params.a + params.b)
        return result

    def predictive_variance(self, params: BetaParams) -> Array:
        """(K, D)."""
        mean = self.predictive_mean(params)
        return mean * (1.0 - mean)

    def predictive_covariance(self, params: BetaParams) -> Array:
        """(K, D, D), diagonal."""
        return diagonal_matrices(self.predictive_variance(params))

    def sample_parameters(self, params: BetaParams, rng: np.random.Generator) -> BernoulliDraw:
        """Logs of both probabilities."""
        return BernoulliDraw(*log_beta_draws(params.a, params.b, rng))

    def sample_points(self, parameters: BernoulliDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        k, d = parameters.log_one.shape
        drawn = rng.random((k, n, d)) < np.exp(parameters.log_one)[:, None, :]
        return drawn.astype(np.float64)

    # Where components and points lie, and the predictive cache

    def positions(self, stats: BernoulliStats) -> Array:
        """(K, D) 2 arcsin sqrt p: differences are in standard deviations of a binomial share (Freeman and Tukey)."""
        return np.asarray(2.0 * np.arcsin(np.sqrt(self.predictive_mean(self.posterior(stats)))))

    @staticmethod
    def coordinates(x: Points) -> Points:
        """The rows themselves: squared distances count the features that differ."""
        return SparseRows.of(x)

    def cache_of(self, stats: BernoulliStats) -> BernoulliCache:
        """The predictive cache of statistics, row by row."""
        return BernoulliCache(self.predictive(self.posterior(stats)).log_zeros)

    def kernel_constants(self) -> Array:
        """(2, D): a, b."""
        return np.stack([self.a, self.b])

    # Points with holes

    def marginal_log_predictive(self, params: BetaParams, x: Array) -> Array:
        """The probability of the observed features: they are independent given the component. Exact."""
        both = np.log(params.a + params.b)
        ones, zeros = np.log(params.a) - both, np.log(params.b) - both
        return np.asarray((x == 1.0) @ ones.T + (x == 0.0) @ zeros.T)

    def expected_stats(self, params: BetaParams, x: Array, resp: Array) -> BernoulliStats:
        """A hole counts as its probability of a one, which leaves that probability where it was."""
        _, filled = observed_and_filled(x, self.predictive_mean(params))
        return BernoulliStats(resp.copy(), resp[:, None] * filled)

    def drawn_missing(self, params: BetaParams, x: Array, rng: np.random.Generator) -> Array:
        """The point (D,) with each hole drawn by the component's probability of a one."""
        drawn = rng.random(x.size) < self.predictive_mean(params)[0]
        return np.where(np.isnan(x), drawn.astype(np.float64), x)

    # Abilities that engines ask for

    def natural_statistics(self, x: Points, origin: Origin) -> Statistics:
        """Ones and zeros."""
        return Statistics(self.sparse_statistics(x).toarray(), self.point_log_carrier(x))

    def sparse_statistics(self, x: Points) -> ShiftedRows:
        """(x, 1 - x)."""
        return ShiftedRows(in_columns(x, (1.0, -1.0)), np.repeat([0.0, 1.0], x.shape[1]))

    def prior_choices(self, stats: BernoulliStats, n_components: int) -> Choice:
        """The rows that the smoothed shares are worth."""
        share = (stats.total.sum(axis=0) + 0.5) / (float(stats.mass.sum()) + 1.0)
        worth = float((self.a + self.b).mean())
        return choice_near(lambda rows: type(self)(rows * share, rows * (1.0 - share)), (ROWS_WORTH,), worth)

    def log_caps(self, stats: BernoulliStats, x: Points, further: Array) -> Array:
        """Each feature at its odds with every further point as x is: (a + r) / (a + b + r) rises with r."""
        params = self.posterior(stats)
        both = params.a + params.b
        out = np.empty((x.shape[0], len(stats.mass)))
        for row, r, point in zip(out, further, SparseRows.of(x).toarray(), strict=True):
            row[:] = np.log((np.where(point > 0.0, params.a, params.b) + r) / (both + r)).sum(axis=1)
        return out
