"""Documents as counts of terms: multinomial components under a Dirichlet prior.

The likelihood of a row x with n = sum_d x_d is n! / prod_d x_d! * prod_d theta_d^x_d, given its length n, of which
the family says nothing. Predictive and evidence are Dirichlet-multinomial (Minka 2000, "Estimating a Dirichlet
distribution"; Mosimann 1962). As an exponential family in log theta, with the measure prod_d dtheta_d / theta_d:

    natural    b_d (the posterior's pseudo counts)      statistic    log theta_d

and log normaliser sum_d log G(b_d) - log G(sum_d b_d). The multinomial coefficient is the carrier.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, psi, xlogy

from shoal.families.counts import (
    AdditiveFamily,
    linear_scores,
    log_factorial_sums,
    log_rise_over_factorial,
    log_rises,
    mean_log_rises,
    row_sums,
    term_scores,
    weighted_sums,
)
from shoal.families.feature_contrast import higher_rates
from shoal.families.gamma_draws import log_gamma_draws
from shoal.families.hyperparameters import Hyperparameters, as_positive_features
from shoal.families.multinomial.types import (
    MultinomialCache,
    MultinomialDraw,
    MultinomialParams,
    MultinomialPredictive,
    MultinomialStats,
)
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.portable import Portable
from shoal.families.prior_choices import Choice, choice_near
from shoal.kernels.linalg import log_gamma_ratio
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows

_SMOOTHING = 0.5
"""Added to every term's count before it is a prior frequency: a term that has not come yet may come."""


class DirichletMultinomial(AdditiveFamily, Hyperparameters):
    """The prior theta ~ Dirichlet(pseudo_counts), `pseudo_counts` (D,) > 0.

    Raises SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {"pseudo_counts": "pseudo_counts"}
    name: ClassVar[str] = "multinomial"
    description: ClassVar[str] = "counts of terms, the length of a row given"
    cache_kind: ClassVar[type[Any]] = MultinomialCache
    serves_products: ClassVar[bool] = True
    pseudo_counts: Array

    def __init__(self, pseudo_counts: ArrayLike) -> None:
        (counts,) = as_positive_features(pseudo_counts=pseudo_counts)
        self._freeze(pseudo_counts=counts)

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """Jeffreys' prior: half a count a term."""
        return cls(np.full(n_features, 0.5))

    @classmethod
    def candidate_priors(cls, rows: Points, thorough: bool) -> list[Self]:
        """Priors whose mean is the smoothed frequency of the terms in `rows` (N, D), from weak to strong.

        The strength is what a component's first document is held against: between one pseudo count in all and one for
        each term fourfold. `thorough` tries every doubling, else every other.
        """
        totals = weighted_sums(rows, np.ones((len(rows), 1)))[0] + _SMOOTHING
        frequency = totals / totals.sum()
        top = int(np.ceil(np.log2(4.0 * totals.size)))
        return [cls(frequency * 2.0**power) for power in range(0, top + 1, 1 if thorough else 2)]

    @property
    def n_features(self) -> int:
        """D."""
        return self.pseudo_counts.size

    @property
    def n_free_parameters(self) -> int:
        """Probabilities that sum to one."""
        return self.n_features - 1

    # Statistics

    def empty_stats(self, n_components: int) -> MultinomialStats:
        """Statistics of components that have seen nothing."""
        none = np.zeros(n_components)
        return MultinomialStats(none, np.zeros((n_components, self.n_features)), none.copy())

    def suffstats(self, x: Points, resp: Array) -> MultinomialStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        return MultinomialStats(resp.sum(axis=0), weighted_sums(x, resp), resp.T @ _log_coefficient(x))

    def posterior(self, stats: MultinomialStats) -> MultinomialParams:
        """Prior's and observed counts."""
        return MultinomialParams(self.pseudo_counts + stats.total)

    # The exponential family

    def natural(self, params: MultinomialParams) -> Array:
        """(K, D)."""
        return params.pseudo_counts.copy()

    def from_natural(self, natural: Array) -> MultinomialParams:
        """Inverse of `natural`."""
        return MultinomialParams(natural.copy())

    def log_partition(self, params: MultinomialParams) -> Array:
        """A (K,), the log of the multivariate beta function."""
        result: Array = gammaln(params.pseudo_counts).sum(axis=1) - gammaln(params.pseudo_counts.sum(axis=1))
        return result

    def mean_params(self, params: MultinomialParams) -> Array:
        """E log theta (K, D)."""
        result: Array = psi(params.pseudo_counts) - psi(params.pseudo_counts.sum(axis=1))[:, None]
        return result

    def log_carrier(self, stats: MultinomialStats) -> Array:
        """The weighted sum of the log multinomial coefficients (K,)."""
        return stats.log_coefficient.copy()

    def collapsed_evidence(self, stats: MultinomialStats) -> Array:
        """(K,); the term of all words, -log G(B + n), is concave and left at the mean, where it is too high by half the
        variance of n over B + n, about, where that is much above one."""
        all_words = log_gamma_ratio(self.pseudo_counts.sum(), stats.total.sum(axis=1))
        return np.asarray(mean_log_rises(self.pseudo_counts, stats.total) - all_words + stats.log_coefficient)

    # Points

    @staticmethod
    def point_log_carrier(x: Points) -> Array:
        """log h(x) (N,): the log multinomial coefficients."""
        return _log_coefficient(x)

    def expected_log_likelihood(self, params: MultinomialParams, x: Points) -> Array:
        """E_q[log p(x | theta)] (N, K)."""
        return linear_scores(x, self.mean_params(params)) + _log_coefficient(x)[:, None]

    def predictive(self, params: MultinomialParams) -> MultinomialPredictive:
        """Pseudo counts and their sums."""
        return MultinomialPredictive(params.pseudo_counts, params.pseudo_counts.sum(axis=1))

    def portable(self, predictive: MultinomialPredictive) -> Portable:
        """See `portable.portable`."""
        return Portable("dirichlet_multinomial", predictive._asdict())

    def log_predictive_from(self, predictive: MultinomialPredictive, x: Points) -> Array:
        """log probability (N, K) of points x (N, D), given their lengths."""
        b = predictive.pseudo_counts
        terms = term_scores(x, len(b), lambda column, value: log_rises(b[:, column], value))
        return terms - log_rise_over_factorial(predictive.strength, row_sums(x)[:, None])

    def log_predictive(self, params: MultinomialParams, x: Points) -> Array:
        """log probability (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def log_likelihood(self, parameters: MultinomialDraw, x: Points) -> Array:
        """log p(x | theta) (N, K)."""
        return linear_scores(x, parameters.log_probability) + _log_coefficient(x)[:, None]

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """Terms that are more frequent than elsewhere."""
        return higher_rates(value, rest)

    def predictive_mean(self, params: MultinomialParams) -> Array:
        """(K, D), of a document of one word: the probability of each term."""
        result: Array = params.pseudo_counts / params.pseudo_counts.sum(axis=1, keepdims=True)
        return result

    def predictive_variance(self, params: MultinomialParams) -> Array:
        """(K, D), of a document of one word."""
        mean = self.predictive_mean(params)
        return mean * (1.0 - mean)

    def predictive_covariance(self, params: MultinomialParams) -> Array:
        """(K, D, D), of a document of one word."""
        mean = self.predictive_mean(params)
        covariance = -mean[:, :, None] * mean[:, None, :]
        diagonal = np.arange(self.n_features)
        covariance[:, diagonal, diagonal] = self.predictive_variance(params)
        return covariance

    def sample_parameters(self, params: MultinomialParams, rng: np.random.Generator) -> MultinomialDraw:
        """Log probabilities, by gamma variables in logs: small pseudo counts give probabilities below any float."""
        log_gamma = log_gamma_draws(params.pseudo_counts, rng)
        top = log_gamma.max(axis=1, keepdims=True)
        return MultinomialDraw(log_gamma - top - np.log(np.exp(log_gamma - top).sum(axis=1, keepdims=True)))

    def sample_points(
        self, parameters: MultinomialDraw, n: int, rng: np.random.Generator, length: int | Array = 1
    ) -> Array:
        """n documents of each component (K, n, D), of `length` words each: one number, or (n,)."""
        probability = np.exp(parameters.log_probability)
        probability /= probability.sum(axis=1, keepdims=True)
        lengths = np.broadcast_to(length, (n,)).astype(np.int64)
        return np.stack([rng.multinomial(lengths, row) for row in probability]).astype(np.float64)

    # Where components and points lie, and the predictive cache

    def positions(self, stats: MultinomialStats) -> Array:
        """(K, D) square roots of the term probabilities: their distance is Hellinger's."""
        return np.sqrt(self.predictive_mean(self.posterior(stats)))

    @staticmethod
    def coordinates(x: Points) -> Points:
        """Square roots of each row's term frequencies; an empty document is at zero."""
        rows = SparseRows.of(x)
        lengths = np.repeat(row_sums(rows), np.diff(rows.indptr))
        return rows.with_values(np.sqrt(rows.data / lengths))

    def cache_of(self, stats: MultinomialStats) -> MultinomialCache:
        """The predictive cache of statistics, row by row."""
        return MultinomialCache(self.pseudo_counts.sum() + stats.total.sum(axis=1))

    def kernel_constants(self) -> Array:
        """(1, D): the prior's pseudo counts."""
        return self.pseudo_counts[None, :].copy()

    # Abilities that engines ask for

    def natural_statistics(self, x: Points, origin: Origin) -> Statistics:
        """The counts themselves, as sparse as they are."""
        return Statistics(SparseRows.of(x), self.point_log_carrier(x))

    def prior_choices(self, stats: MultinomialStats, n_components: int) -> Choice:
        """The strength of pseudo counts in proportion to the smoothed frequencies, from one in all to four a term."""
        totals = stats.total.sum(axis=0) + _SMOOTHING
        frequency = totals / totals.sum()
        top = int(np.ceil(np.log2(4.0 * totals.size)))
        strengths = tuple(2.0**power for power in range(top + 1))
        return choice_near(lambda strength: type(self)(strength * frequency), (strengths,), self.pseudo_counts.sum())

    def log_caps(self, stats: MultinomialStats, x: Points, further: Array) -> Array:
        """The probability at theta = x / n: a mixture of probabilities is at most the largest of them."""
        rows = SparseRows.of(x)
        lengths = np.asarray(rows.sum(axis=1))
        logs = xlogy(rows.data, rows.data) - gammaln(rows.data + 1.0)
        best = gammaln(lengths + 1.0) - xlogy(lengths, lengths)
        best += np.asarray(rows.with_values(logs).sum(axis=1))
        return np.repeat(best[:, None], len(stats.mass), axis=1)


def _log_coefficient(x: Points) -> Array:
    """log n! - sum_d log x_d! (N,), nats; right to about 1e-15 n log n."""
    result: Array = gammaln(row_sums(x) + 1.0) - log_factorial_sums(x)
    return result
