"""Categories as level numbers: each feature takes one of some levels, under a Dirichlet prior for each feature.

The features of a component are independent. The probabilities theta_d of the levels of feature d have the prior
Dirichlet(a_d), and the predictive of level l is (a_dl + n_dl) / (A_d + n), n_dl of a component's n points having had it
(Gelman et al. 2013, "Bayesian Data Analysis", section 3.4). As an exponential family in log theta:

    natural    b_dl (the posterior's pseudo counts)      statistic    log theta_dl

and log normaliser sum_d [sum_l log G(b_dl) - log G(sum_l b_dl)]. There is no carrier.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, psi

from shoal.errors import SettingError
from shoal.families.categorical.types import (
    CategoricalCache,
    CategoricalConstants,
    CategoricalDraw,
    CategoricalParams,
    CategoricalPredictive,
    CategoricalStats,
)
from shoal.families.counts import AdditiveFamily
from shoal.families.feature_contrast import FeatureValues, higher_rates
from shoal.families.gamma_draws import log_gamma_draws
from shoal.families.hyperparameters import Hyperparameters, as_positive_vector, as_real
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.prior_choices import ROWS_WORTH, Choice, choice_near
from shoal.kernels.linalg import diagonal_matrices
from shoal.points.arrays import Array, IntArray
from shoal.points.domains import LEVELS, Domain
from shoal.points.rows import SparseRows

MOST_LEVELS = 4_096
"""Most levels of a feature that the automatic prior tells apart; the others are one level together."""

_SMOOTHING = 0.5
"""Added to the number of rows of each level before it is a prior frequency."""


class DirichletCategorical(AdditiveFamily, Hyperparameters):
    """The prior theta_d ~ Dirichlet(a_d) for each feature d.

    `levels` (D,): how many levels each feature has, at least two. A point holds level numbers from 0. The last level
    stands for every number from there on, so that levels which nobody has seen have a probability. `pseudo_counts`
    (sum of levels,) > 0: a_0, then a_1, and so on; one number stands for equal ones. Raises SettingError when one of
    them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {"levels": "levels", "pseudo_counts": "pseudo_counts"}
    SIGNED: ClassVar[tuple[str, ...]] = ()
    name: ClassVar[str] = "categorical"
    description: ClassVar[str] = "categories, as level numbers from 0"
    domain: ClassVar[Domain] = LEVELS
    cache_kind: ClassVar[type[Any]] = CategoricalCache
    serves_products: ClassVar[bool] = True
    levels: Array
    pseudo_counts: Array

    def __init__(self, levels: ArrayLike, pseudo_counts: ArrayLike) -> None:
        numbers = as_real("levels", levels)
        if numbers.ndim != 1 or numbers.size == 0 or not np.all((numbers >= 2.0) & (numbers == np.floor(numbers))):
            raise SettingError(f"levels is {levels!r}; give a vector of whole numbers, at least 2 for each feature")
        if not np.all(numbers <= 1e6):
            raise SettingError(f"levels holds {numbers.max():g}; give at most 1,000,000 levels for a feature")
        self._freeze(
            levels=numbers, pseudo_counts=as_positive_vector("pseudo_counts", pseudo_counts, int(numbers.sum()))
        )
        counts = numbers.astype(np.int64)
        self._freeze(start=np.concatenate([[0], np.cumsum(counts)]), _feature=np.repeat(np.arange(counts.size), counts))

    start: IntArray
    _feature: IntArray

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """Three levels, the last of which is any other, and Jeffreys' prior: half a count a level."""
        return cls(np.full(n_features, 3.0), 0.5)

    @classmethod
    def candidate_priors(cls, rows: Array, thorough: bool) -> list[Self]:
        """Priors whose mean is the smoothed frequency of the levels in `rows` (N, D), from weak to strong.

        A feature has the levels up to the largest in the rows, and one more for all that has not come yet.
        """
        levels = np.minimum(rows.max(axis=0), MOST_LEVELS - 2.0) + 2.0
        unit = cls(levels, 1.0)
        totals = unit.suffstats(rows, np.ones((len(rows), 1))).total[0]
        mean = unit._shares(totals + _SMOOTHING)
        return [cls(levels, mean * 2.0**power) for power in range(-2, 5, 1 if thorough else 2)]

    @property
    def n_features(self) -> int:
        """D."""
        return self.levels.size

    @property
    def n_free_parameters(self) -> int:
        """Probabilities of each feature that sum to one."""
        return int(self.levels.sum()) - self.n_features

    # Statistics

    def empty_stats(self, n_components: int) -> CategoricalStats:
        """Statistics of components that have seen nothing."""
        return CategoricalStats(np.zeros(n_components), np.zeros((n_components, self.pseudo_counts.size)))

    def suffstats(self, x: Array, resp: Array) -> CategoricalStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        return CategoricalStats(resp.sum(axis=0), np.ascontiguousarray(resp.T @ self._indicators(x)))

    def posterior(self, stats: CategoricalStats) -> CategoricalParams:
        """Prior's and observed counts."""
        return CategoricalParams(self.pseudo_counts + stats.total)

    # The exponential family

    def natural(self, params: CategoricalParams) -> Array:
        """(K, P)."""
        return params.pseudo_counts.copy()

    def from_natural(self, natural: Array) -> CategoricalParams:
        """Inverse of `natural`."""
        return CategoricalParams(natural.copy())

    def log_partition(self, params: CategoricalParams) -> Array:
        """A (K,), logs of multivariate beta functions."""
        b = params.pseudo_counts
        return np.asarray(gammaln(b).sum(axis=1) - gammaln(self._sums(b)).sum(axis=1))

    def mean_params(self, params: CategoricalParams) -> Array:
        """E log theta (K, P)."""
        b = params.pseudo_counts
        return np.asarray(psi(b) - psi(self._sums(b))[:, self._feature])

    def log_carrier(self, stats: CategoricalStats) -> Array:
        """None: zeros (K,)."""
        return np.zeros(len(stats.mass))

    # Points

    def expected_log_likelihood(self, params: CategoricalParams, x: Array) -> Array:
        """E_q[log p(x | theta)] (N, K)."""
        return self._scores(self.mean_params(params), x)

    def predictive(self, params: CategoricalParams) -> CategoricalPredictive:
        """Log probabilities of the levels."""
        return CategoricalPredictive(np.log(self._shares(params.pseudo_counts)))

    def log_predictive_from(self, predictive: CategoricalPredictive, x: Array) -> Array:
        """log probability (N, K) of points x (N, D)."""
        return self._scores(predictive.log_probability, x)

    def log_predictive(self, params: CategoricalParams, x: Array) -> Array:
        """log probability (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def log_likelihood(self, parameters: CategoricalDraw, x: Array) -> Array:
        """log p(x | theta) (N, K)."""
        return self._scores(parameters.log_probability, x)

    @property
    def n_feature_values(self) -> int:
        """P."""
        return int(self._feature.size)

    def feature_values(self, params: CategoricalParams, means: Array) -> FeatureValues:
        """The share of each level of each feature."""
        start = self.start[:-1][self._feature]
        level = np.arange(self._feature.size) - start
        return FeatureValues(self._shares(params.pseudo_counts), self._feature, level)

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """Levels that are more frequent than elsewhere."""
        return higher_rates(value, rest)

    def predictive_mean(self, params: CategoricalParams) -> Array:
        """Mean level number (K, D), which says something of ordered levels only."""
        return self._sums(self._shares(params.pseudo_counts) * self._numbers)

    def predictive_variance(self, params: CategoricalParams) -> Array:
        """Variance of the level number (K, D)."""
        share = self._shares(params.pseudo_counts)
        away = self._numbers - self.predictive_mean(params)[:, self._feature]
        return self._sums(share * np.square(away))

    def predictive_covariance(self, params: CategoricalParams) -> Array:
        """(K, D, D), diagonal."""
        return diagonal_matrices(self.predictive_variance(params))

    def sample_parameters(self, params: CategoricalParams, rng: np.random.Generator) -> CategoricalDraw:
        """Log probabilities, by gamma variables in logs: small pseudo counts give probabilities below any float."""
        log_gamma = log_gamma_draws(params.pseudo_counts, rng)
        top = np.maximum.reduceat(log_gamma, self.start[:-1], axis=1)[:, self._feature]
        return CategoricalDraw(log_gamma - top - np.log(self._sums(np.exp(log_gamma - top)))[:, self._feature])

    def sample_points(self, parameters: CategoricalDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        share = np.exp(parameters.log_probability)
        points = np.empty((len(share), n, self.n_features))
        for d, (first, after) in enumerate(zip(self.start[:-1], self.start[1:], strict=True)):
            steps = np.cumsum(share[:, first:after], axis=1)
            drawn = rng.random((len(share), n)) * steps[:, -1:]
            points[:, :, d] = (drawn[:, :, None] >= steps[:, None, :-1]).sum(axis=2)
        return points

    # Where components and points lie, and the predictive cache

    def positions(self, stats: CategoricalStats) -> Array:
        """(K, P) square roots of the probabilities of the levels: their distance is Hellinger's."""
        return np.sqrt(self._shares(self.posterior(stats).pseudo_counts))

    def coordinates(self, x: Array) -> SparseRows:
        """(N, P) one for each feature's level: square roots of the frequencies of one point."""
        return self._indicators(x)

    def cache_of(self, stats: CategoricalStats) -> CategoricalCache:
        """The predictive cache of statistics, row by row."""
        strength = self._sums(self.pseudo_counts[None, :])[0]
        return CategoricalCache(-np.log(strength + stats.mass[:, None]).sum(axis=1))

    def kernel_constants(self) -> CategoricalConstants:
        """The prior as kernels read it."""
        strength = self._sums(self.pseudo_counts[None, :])[0]
        return CategoricalConstants(self.pseudo_counts.copy(), strength, self.start.copy())

    # Points with holes

    def marginal_log_predictive(self, params: CategoricalParams, x: Array) -> Array:
        """The probability of the observed features: they are independent given the component. Exact."""
        table = self.predictive(params).log_probability
        missing = np.isnan(x)
        places = self._places(np.where(missing, 0.0, x))
        return np.asarray(np.where(missing[:, :, None], 0.0, table.T[places]).sum(axis=1))

    def expected_stats(self, params: CategoricalParams, x: Array, resp: Array) -> CategoricalStats:
        """A hole counts as the probabilities of its levels, which leaves them where they were."""
        missing = np.isnan(x)
        seen = np.zeros(self.pseudo_counts.size)
        seen[self._places(np.where(missing, 0.0, x))[~missing]] = 1.0
        expected = np.where(missing[self._feature], self._shares(params.pseudo_counts), seen)
        return CategoricalStats(resp.copy(), resp[:, None] * expected)

    def drawn_missing(self, params: CategoricalParams, x: Array, rng: np.random.Generator) -> Array:
        """The point (D,) with the level of each hole drawn by the component's probabilities."""
        log_probability = self.predictive(params).log_probability[:1]
        drawn = self.sample_points(CategoricalDraw(log_probability), 1, rng)[0, 0]
        return np.where(np.isnan(x), drawn, x)

    # Abilities that engines ask for

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """A one for each feature's level."""
        return Statistics(self._indicators(x), np.zeros(len(x)))

    def prior_choices(self, stats: CategoricalStats, n_components: int) -> Choice:
        """Rows that a prior of the smoothed frequencies is worth."""
        mean = self._shares(stats.total.sum(axis=0) + _SMOOTHING)
        strength = float(self.pseudo_counts.sum()) / self.n_features
        return choice_near(lambda worth: type(self)(self.levels, worth * mean), (ROWS_WORTH,), strength)

    def log_caps(self, stats: CategoricalStats, x: Array, further: Array) -> Array:
        """Zero (N, K): the probability of a level is at most one."""
        return np.zeros((len(x), len(stats.mass)))

    # Levels

    def level_probabilities(self, params: CategoricalParams) -> list[Array]:
        """Predictive probabilities of the levels, (K, levels of d) for each feature d."""
        return np.split(self._shares(params.pseudo_counts), self.start[1:-1], axis=1)

    @property
    def _numbers(self) -> Array:
        """(P,) the number of each level within its feature."""
        return (np.arange(self._feature.size) - self.start[self._feature]).astype(np.float64)

    def _sums(self, values: Array) -> Array:
        """Sums (K, D) over the levels of each feature of values (K, P)."""
        return np.asarray(np.add.reduceat(values, self.start[:-1], axis=1))

    def _shares(self, counts: Array) -> Array:
        """Counts (..., P) divided by their sum over the feature's levels."""
        table = np.atleast_2d(counts)
        return np.asarray((table / self._sums(table)[:, self._feature]).reshape(counts.shape))

    def _places(self, x: Array) -> IntArray:
        """(N, D) columns of the points' levels among the P."""
        return self.start[:-1] + np.minimum(x, self.levels - 1.0).astype(np.int64)

    def _scores(self, table: Array, x: Array) -> Array:
        """sum_d table[k, level of x_nd] (N, K), feature after feature, so that a row does not depend on the others."""
        places = self._places(np.asarray(x))
        out = np.zeros((len(x), len(table)))
        for d in range(self.n_features):
            out += table.T[places[:, d]]
        return out

    def _indicators(self, x: Array) -> SparseRows:
        """(N, P) a one at each feature's level."""
        n, d = x.shape
        places = self._places(np.asarray(x))
        parts = (np.ones(n * d), places.ravel(), np.arange(0, n * d + 1, d))
        return SparseRows(parts, shape=(n, self.pseudo_counts.size))
