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

from shoal.families.base import RowsT, contiguous
from shoal.families.capabilities import QuadraticForm, SplitPrior
from shoal.families.covariance_prior import maximised
from shoal.families.diagonal.types import DiagonalCache, DiagonalDraw, DiagonalParams, DiagonalPredictive, DiagonalStats
from shoal.families.holes import observed_and_filled, patterns
from shoal.families.hyperparameters import Hyperparameters, as_mean, as_positive, as_positive_vector
from shoal.families.located import LocatedFamily
from shoal.families.located.renewal_kernel import renew_diagonal
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import Origin, Statistics, constant_carrier
from shoal.families.portable import Portable
from shoal.families.predictive_cache import CacheScales, Call
from shoal.families.prior_choices import MULTIPLIERS, STRENGTHS, Choice, choice_near, dofs, geometric_mean, pooled
from shoal.kernels import linalg, moments
from shoal.kernels.distances import diagonal_quadratic, log1p_quadratic
from shoal.kernels.linalg import log_gamma_ratio
from shoal.points.arrays import Array
from shoal.points.rows import Points

_LEAST_REST = 1e-12
"""Least share of a rate that is left without a point: rounding would leave nothing."""
MOST_LOGARITHMS = 1 << 20
"""Features of all pairs up to which the kernel for joins is quicker than NumPy."""

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
    cache_kind: ClassVar[type[Any]] = DiagonalCache
    serves_products: ClassVar[bool] = True
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

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """t(y) = (y, 1, 1, y^2), y = x - origin."""
        y = x - origin.point
        rows = np.hstack([y, np.ones((len(x), 2)), np.square(y)])
        return Statistics(rows, constant_carrier(self, len(x)))

    def statistics_of_moments(self, location: Array, spread: Array, origin: Origin) -> Statistics:
        """Means of t(x) and log h(x) over groups of points, from their moments."""
        y = location - origin.point
        second = np.square(y) + np.diagonal(spread, axis1=1, axis2=2)
        return Statistics(np.hstack([y, np.ones((len(y), 2)), second]), constant_carrier(self, len(y)))

    def scatter_in_layout(self, scatter: Array) -> Array:
        """The diagonals (K, D)."""
        return np.diagonal(scatter, axis1=1, axis2=2) if scatter.ndim == 3 else scatter

    def quadratic_form(self, params: DiagonalParams) -> QuadraticForm:
        """Expected log densities as quadratic forms."""
        constant = psi(params.shape) - LOG_2PI - 1.0 / params.mean_strength
        constant = self.n_features * constant - np.log(params.rate).sum(axis=1)
        root = np.sqrt(params.shape[:, None] / params.rate)
        return QuadraticForm(0.5 * constant, params.mean, root, 1.0 / root)

    def stats_of_moments(self, sums: WeightedMoments, most: float, past: DiagonalStats) -> DiagonalStats | None:
        """Statistics of moments about centres, joined with those of the past."""
        from shoal.families.located.m_step_kernel import diagonal_stats

        stats = self.empty_stats(len(past.mass))
        return stats if diagonal_stats(sums, most, contiguous(past), stats) else None

    def fast_log_marginal(self, stats: DiagonalStats) -> Array:
        """log m(S_k) by a kernel."""
        from shoal.families.located.evidence_kernel import diagonal_evidence

        out = np.empty(len(stats.mass))
        diagonal_evidence(*contiguous(stats), self.mean, self.mean_strength, self.shape, self.rate, out)
        return out

    def split_prior(self) -> SplitPrior:
        """The normal-inverse-Wishart that this prior is of each feature."""
        return SplitPrior(self.mean, self.mean_strength, 2.0 * self.shape, 2.0 * self.rate)

    def log_left_out(self, component: DiagonalStats, x: Array, share: Array) -> Array:
        """Scores of a component's own points without them: rate_d without u points at x is rate_d - c e_d^2 / 2."""
        params = self.posterior(component)
        strength, shape = params.mean_strength[0] - share, params.shape[0] - 0.5 * share
        away, shrink = params.mean_strength[0] / strength, strength / (strength + 1.0)
        square = np.square(x - params.mean[0])
        rate = params.rate[0]
        rate = np.maximum(rate - 0.5 * (away * share)[:, None] * square, _LEAST_REST * rate)
        width = 2.0 * rate / shrink[:, None]
        constant = self.n_features * (log_gamma_ratio(shape, 0.5) - 0.5 * np.log(np.pi))
        constant = constant - 0.5 * np.log(width).sum(axis=1)
        distance = np.log1p(away[:, None] ** 2 * square / width).sum(axis=1)
        return np.asarray(constant - (shape + 0.5) * distance)

    def prior_choices(self, stats: DiagonalStats, n_components: int) -> Choice:
        """The pooled variance within, by feature, times a number; what it is worth; what the mean is worth."""
        mean, within = pooled(stats.mass, stats.mean, stats.scatter)

        def build(multiplier: float, dof: float, strength: float) -> Any:
            shape = 1.0 + dof / 2.0
            return type(self)(mean, strength, shape, shape * multiplier * within)

        multiplier = geometric_mean(self.rate / self.shape / within)
        lists = (MULTIPLIERS, dofs(n_components), STRENGTHS)
        return choice_near(build, lists, multiplier, 2.0 * (self.shape - 1.0), self.mean_strength)

    def with_learned_covariance(self, stats: DiagonalStats) -> "NormalInverseGamma":
        """The prior whose rates and shape suit the components best (`covariance_prior`): in each feature an inverse
        Wishart distribution with the same degrees of freedom, 2 shape, and scale 2 rate."""
        some = stats.mass > 0.0
        mass = stats.mass[some][:, None]
        lever = self.mean_strength * mass / (self.mean_strength + mass)
        moment = stats.scatter[some] + lever * np.square(stats.mean[some] - self.mean)

        def evidence(scale: Array, dof: float) -> float:
            gammas = gammaln(0.5 * (dof + mass)) - gammaln(0.5 * dof)
            return float((gammas + 0.5 * dof * np.log(scale) - 0.5 * (dof + mass) * np.log(scale + moment)).sum())

        def expectation(scale: Array, dof: float) -> Array:
            return np.asarray(1.0 / ((dof + mass) / (scale + moment)).mean(axis=0))

        found = maximised(2.0 * self.rate, 2.0 * self.shape, 2.0, int(some.sum()), evidence, expectation)
        return type(self)(self.mean, self.mean_strength, 0.5 * found.dof, 0.5 * found.scale)

    def with_mean_strength(self, strength: float) -> "NormalInverseGamma":
        """The same prior, whose mean is worth `strength` points."""
        return type(self)(self.mean, strength, self.shape, self.rate)

    def expected_covariance(self) -> Array:
        """The rates (D,)."""
        return self.rate

    def log_caps(self, stats: DiagonalStats, x: Points, further: Array) -> Array:
        """The peak of the Student t with the block's own rates, and mean_strength and shape raised by the further
        points.

        The rates only grow with further points, and the peak falls with them.
        """
        d, params = self.n_features, self.posterior(stats)
        strength, shape = params.mean_strength + further[:, None], params.shape + 0.5 * further[:, None]
        per_feature = log_gamma_ratio(shape, 0.5) - 0.5 * (LOG_2PI + np.log1p(1.0 / strength))
        return np.asarray(d * per_feature - 0.5 * np.log(params.rate).sum(axis=1))

    # Predictive cache and kernels of streams

    def cache_of(self, stats: DiagonalStats) -> DiagonalCache:
        """The cache of statistics, row by row."""
        params = self.posterior(stats)
        strength, shape = params.mean_strength, params.shape
        spread = 0.5 * (strength / (strength + 1.0))[:, None] / params.rate
        sum_log_rate = np.log(params.rate).sum(axis=1)
        per_feature = log_gamma_ratio(shape, 0.5) - 0.5 * (LOG_2PI + np.log1p(1.0 / strength))
        log_norm = self.n_features * per_feature - 0.5 * sum_log_rate
        return DiagonalCache(params.mean, strength, shape, spread, sum_log_rate, log_norm)

    def cache_scales(self, cache: DiagonalCache) -> CacheScales:
        """The least deviation of any feature."""
        resolution = 1.0 / np.sqrt(cache.inverse_spread.max(axis=1) * cache.shape)
        return CacheScales(resolution, 1.0, cache.inverse_spread > 0)

    def kernel_constants(self) -> Array:
        """Nothing (0, 0): the kernel needs no more than the cache."""
        return np.zeros((0, 0))

    def renewal(self, stats: DiagonalStats, cache: DiagonalCache, n: int) -> Call:
        """The kernel that makes the first n rows of `cache` again."""
        return renew_diagonal, (stats, self.mean, self.mean_strength, self.shape, self.rate, cache, n)

    def join_ceiling(self, *given: Any) -> Call:
        """The kernel that bounds the gain of any join from above."""
        from shoal.families.located.join_ceiling_kernel import diagonal_ceiling

        return diagonal_ceiling, (*given, self.mean, self.mean_strength, self.shape, self.rate)

    def join_ceiling_is_quick(self, n_pairs: int, n_components: int) -> bool:
        """Whether the kernel takes less time than NumPy for its candidates: it takes a logarithm of every feature."""
        return n_pairs * self.n_features <= MOST_LOGARITHMS

    @property
    def prior_points(self) -> float:
        """Points that the prior's log gammas count for."""
        return 2.0 * self.shape
