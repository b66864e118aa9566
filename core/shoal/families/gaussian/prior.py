"""Gaussian components with unknown mean and covariance under a normal-inverse-Wishart prior.

Murphy (2007), "Conjugate Bayesian analysis of the Gaussian distribution", section 9 gives the updates and the Student
t; here with psi = scale, kappa = mean_strength, nu = dof. As an exponential family in (mu, L = S^-1):

    natural      kappa m      kappa          nu           psi + kappa m m'
    statistic    L mu         -mu'L mu / 2   log|L| / 2   -L / 2

One scalar does not serve for kappa and nu (ERRATA 0.6): both grow by the mass.
"""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.families.base import RowsT, take
from shoal.families.gaussian import capabilities, holes, predictive_cache
from shoal.families.gaussian.types import GaussianCache, GaussianDraw, GaussianParams, GaussianPredictive, GaussianStats
from shoal.families.hyperparameters import Hyperparameters, as_covariance, as_mean, as_positive
from shoal.families.located import LocatedFamily
from shoal.families.portable import Portable
from shoal.kernels import linalg, moments
from shoal.kernels.distances import row_blocks, whitened_quadratic
from shoal.points.arrays import Array

FACTOR_BLOCK = 1 << 22
"""Elements of the Cholesky factors held at once: 32 MiB."""
LOG_2PI = float(np.log(2 * np.pi))


class NormalInverseWishart(LocatedFamily, Hyperparameters):
    """The prior mu | S ~ N(mean, S / mean_strength), S ~ IW(dof, scale), with density of S proportional to
    |S|^(-(dof + D + 1) / 2) exp(-trace(scale S^-1) / 2).

    mean (D,); mean_strength > 0, the prior's worth in points; dof > D - 1; scale (D, D) positive definite, kept as
    `scale_matrix`. Raises SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {
        "mean": "mean",
        "mean_strength": "mean_strength",
        "dof": "dof",
        "scale": "scale_matrix",
    }
    name: ClassVar[str] = "gaussian"
    description: ClassVar[str] = "Gaussians with full covariances"
    mean: Array
    mean_strength: float
    dof: float
    scale_matrix: Array

    def __init__(self, mean: ArrayLike, mean_strength: ArrayLike, dof: ArrayLike, scale: ArrayLike) -> None:
        location = as_mean(mean)
        self._freeze(
            mean=location,
            mean_strength=as_positive("mean_strength", mean_strength),
            dof=as_positive("dof", dof, above=location.size - 1),
            scale_matrix=as_covariance("scale", scale, location.size),
        )

    @classmethod
    def weak(cls, n_features: int, within_variance: float = 0.1, mean_strength: float = 0.01, dof: float = 1.0) -> Self:
        """A prior for standardised data under which a precision is 1 / within_variance on average."""
        total = n_features + 1.0 + dof
        return cls(np.zeros(n_features), mean_strength, total, total * within_variance * np.eye(n_features))

    @property
    def n_features(self) -> int:
        """D."""
        return self.mean.size

    @property
    def n_free_parameters(self) -> int:
        """A mean and a symmetric matrix."""
        return self.n_features * (self.n_features + 3) // 2

    # Statistics

    def empty_stats(self, n_components: int) -> GaussianStats:
        """Statistics of components that have seen nothing."""
        k, d = n_components, self.n_features
        return GaussianStats(np.zeros(k), np.zeros((k, d)), np.zeros((k, d, d)))

    def suffstats(self, x: Array, resp: Array) -> GaussianStats:
        """Statistics of points x (N, D) under resp (N, K); rows of zero responsibility cost nothing."""
        first = moments.first_moments(x, resp)
        return GaussianStats(first.mass, first.mean, moments.full_scatter(x, resp, first.mean))

    def add(self, a: GaussianStats, b: GaussianStats) -> GaussianStats:
        """Both together, row by row."""
        both = moments.join(a, b)
        scatter = a.scatter + b.scatter
        scatter += linalg.outer(np.sqrt(both.cross)[:, None] * both.delta)
        return GaussianStats(both.mass, both.mean, scatter)

    def subtract(self, a: GaussianStats, b: GaussianStats) -> GaussianStats:
        """`a` without `b`; variances that rounding has made negative become 0, with their covariances."""
        left = moments.part(a, b)
        scatter = a.scatter - b.scatter
        scatter -= linalg.outer(np.sqrt(left.cross)[:, None] * left.delta)
        alive = (np.diagonal(scatter, axis1=1, axis2=2) > 0.0) & (left.mass[:, None] > 0.0)
        scatter = np.where(alive[:, :, None] & alive[:, None, :], scatter, 0.0)
        return GaussianStats(left.mass, left.mean, scatter)

    def scale(self, stats: GaussianStats, factor: float | Array) -> GaussianStats:
        """Every point's weight times `factor` (a scalar or (K,), >= 0)."""
        mass = stats.mass * factor
        scatter = stats.scatter * np.broadcast_to(factor, mass.shape)[:, None, None]
        return GaussianStats(mass, np.where(mass[:, None] > 0.0, stats.mean, 0.0), scatter)

    def posterior(self, stats: GaussianStats) -> GaussianParams:
        """Parameters given the statistics; those of the prior, exactly, for a component without mass."""
        strength = self.mean_strength + stats.mass
        share = stats.mass / strength
        delta = np.where(stats.mass[:, None] > 0.0, stats.mean - self.mean, 0.0)
        scale = self.scale_matrix + stats.scatter
        scale += linalg.outer(np.sqrt(self.mean_strength * share)[:, None] * delta)
        return GaussianParams(self.mean + share[:, None] * delta, strength, self.dof + stats.mass, scale)

    # The exponential family

    def natural(self, params: GaussianParams) -> Array:
        """(K, D + 2 + D (D + 1) / 2): kappa m, kappa, nu, and psi + kappa m m' with off-diagonal elements doubled."""
        kappa = params.mean_strength[:, None]
        second = params.scale + kappa[:, :, None] * linalg.outer(params.mean)
        return np.hstack([kappa * params.mean, kappa, params.dof[:, None], linalg.pack(second, with_multiplicity=True)])

    def from_natural(self, natural: Array) -> GaussianParams:
        """Inverse of `natural`."""
        d = self.n_features
        kappa = natural[:, d]
        mean = natural[:, :d] / kappa[:, None]
        second = linalg.unpack(natural[:, d + 2 :], d)
        return GaussianParams(mean, kappa, natural[:, d + 1], second - kappa[:, None, None] * linalg.outer(mean))

    def log_partition(self, params: GaussianParams) -> Array:
        """A (K,), against the measure |S|^(-(D + 2) / 2) dmu dS."""
        return self._log_partition(params, linalg.cholesky(params.scale))

    def mean_params(self, params: GaussianParams) -> Array:
        """(K, P): expectations of L mu, -mu'L mu / 2, log|L| / 2 and -L / 2 (upper triangle)."""
        return self._mean_params(params, linalg.cholesky(params.scale))

    def log_partition_with_gradient(self, params: GaussianParams) -> tuple[Array, Array]:
        """`log_partition` (K,) and `mean_params` (K, P), from one factor of each scale matrix."""
        factors = linalg.cholesky(params.scale)
        return self._log_partition(params, factors), self._mean_params(params, factors)

    def _log_partition(self, params: GaussianParams, factors: Array) -> Array:
        d, half_dof = self.n_features, params.dof / 2
        log_det = linalg.log_determinant(factors)
        mean_part = 0.5 * d * (LOG_2PI - np.log(params.mean_strength))
        covariance_part = half_dof * (d * np.log(2.0) - log_det) + linalg.multivariate_gammaln(half_dof, d)
        result: Array = mean_part + covariance_part
        return result

    def _mean_params(self, params: GaussianParams, factors: Array) -> Array:
        whitening = linalg.inverse_lower(factors)
        precision = params.dof[:, None, None] * np.matmul(whitening.transpose(0, 2, 1), whitening)
        first = np.matmul(precision, params.mean[:, :, None])[:, :, 0]
        second = self.n_features / params.mean_strength + np.einsum("kd,kd->k", first, params.mean)
        half_log_det = 0.5 * self._expected_log_det_precision(params, factors)
        return np.hstack(
            [
                first,
                -0.5 * second[:, None],
                half_log_det[:, None],
                -0.5 * linalg.pack(precision, with_multiplicity=False),
            ]
        )

    def log_carrier(self, stats: GaussianStats) -> Array:
        """-mass D log(2 pi) / 2."""
        return -0.5 * self.n_features * LOG_2PI * stats.mass

    def relative(self, values: RowsT, to: GaussianStats | GaussianParams) -> RowsT:
        """`values` seen from the means of `to`."""
        return moments.relative(values, to)

    # Points

    def expected_log_likelihood(self, params: GaussianParams, x: Array) -> Array:
        """E_q[log N(x | mu, S)] (N, K)."""
        out = np.empty((x.shape[0], params.dof.size))
        for rows in row_blocks(params.dof.size, self.n_features**2, FACTOR_BLOCK):
            block = take(params, rows)
            factors = linalg.cholesky(block.scale)
            constant = 0.5 * self._expected_log_det_precision(block, factors)
            constant -= 0.5 * self.n_features * (LOG_2PI + 1.0 / block.mean_strength)
            distance = whitened_quadratic(x, block.mean, linalg.inverse_lower(factors))
            out[:, rows] = constant - 0.5 * block.dof * distance
        return out

    def _expected_log_det_precision(self, params: GaussianParams, factors: Array) -> Array:
        """E_q log|L| (K,), from the Cholesky factors of the scale."""
        d = self.n_features
        spread = linalg.multivariate_digamma(params.dof / 2, d) + d * float(np.log(2.0))
        return spread - linalg.log_determinant(factors)

    def predictive(self, params: GaussianParams) -> GaussianPredictive:
        """The Student t with dof - D + 1 degrees of freedom, whitened: one Cholesky factor inverted a component."""
        d = self.n_features
        factors = linalg.cholesky(params.scale)
        shrink = params.mean_strength / (params.mean_strength + 1.0)
        whitening = linalg.inverse_lower(factors)
        whitening *= np.sqrt(shrink)[:, None, None]
        constant = linalg.log_gamma_ratio((params.dof - d + 1) / 2, d / 2)
        constant += 0.5 * (d * np.log(shrink / np.pi) - linalg.log_determinant(factors))
        return GaussianPredictive(params.mean, whitening, constant, (params.dof + 1) / 2)

    def portable(self, predictive: GaussianPredictive) -> Portable:
        """See `portable.portable`."""
        return Portable("multivariate_t", predictive._asdict())

    def log_predictive_from(self, predictive: GaussianPredictive, x: Array) -> Array:
        """log density (N, K) of points x (N, D)."""
        distance = whitened_quadratic(x, predictive.mean, predictive.whitening)
        return predictive.log_constant - predictive.power * np.log1p(distance, out=distance)

    def log_predictive(self, params: GaussianParams, x: Array) -> Array:
        """log density (N, K), with the factors of 32 MiB of components at a time."""
        out = np.empty((x.shape[0], params.dof.size))
        for rows in row_blocks(params.dof.size, self.n_features**2, FACTOR_BLOCK):
            out[:, rows] = self.log_predictive_from(self.predictive(take(params, rows)), x)
        return out

    def predictive_mean(self, params: GaussianParams) -> Array:
        """(K, D); NaN for a dof of at most D, where the t has no mean."""
        return np.where(params.dof[:, None] > self.n_features, params.mean, np.nan)

    def predictive_variance(self, params: GaussianParams) -> Array:
        """(K, D); infinite for a dof of at most D + 1."""
        return self._moment(params, np.diagonal(params.scale, axis1=1, axis2=2))

    def predictive_covariance(self, params: GaussianParams) -> Array:
        """(K, D, D); for a dof of at most D + 1 infinite on the diagonal and undefined, NaN, off it."""
        covariance = self._moment(params, params.scale)
        off = ~np.eye(self.n_features, dtype=bool)
        return np.where(np.isinf(covariance) & off, np.nan, covariance)

    def _moment(self, params: GaussianParams, scale: Array) -> Array:
        """scale (K, ...) times (kappa + 1) / (kappa (nu - D - 1)), infinite where that is not positive."""
        excess = params.dof - self.n_features - 1
        factor = moments.ratio(params.mean_strength + 1, params.mean_strength * np.maximum(excess, 0.0))
        shape = (-1, *(1,) * (scale.ndim - 1))
        return np.where(excess.reshape(shape) > 0.0, factor.reshape(shape) * scale, np.inf)

    def sample_parameters(self, params: GaussianParams, rng: np.random.Generator) -> GaussianDraw:
        """S by Bartlett's decomposition (Smith and Hocking 1972), then mu given S."""
        k, d = params.mean.shape
        bartlett = np.tril(rng.standard_normal((k, d, d)), -1)
        diagonal = np.sqrt(rng.chisquare(params.dof[:, None] - np.arange(d)))
        bartlett[:, np.arange(d), np.arange(d)] = diagonal
        # scale = L L' and S^-1 = L^-T A A' L^-1, hence S = F F' with F = L A^-T
        root = np.matmul(linalg.cholesky(params.scale), linalg.inverse_lower(bartlett).transpose(0, 2, 1))
        noise = np.matmul(root, rng.standard_normal((k, d, 1)))[:, :, 0]
        mean = params.mean + noise / np.sqrt(params.mean_strength)[:, None]
        return GaussianDraw(mean, np.matmul(root, root.transpose(0, 2, 1)))

    def sample_points(self, parameters: GaussianDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        factors = linalg.cholesky(parameters.covariance)
        noise = rng.standard_normal((factors.shape[0], n, factors.shape[1]))
        points: Array = parameters.mean[:, None, :] + np.matmul(noise, factors.transpose(0, 2, 1))
        return points

    def log_likelihood(self, parameters: GaussianDraw, x: Array) -> Array:
        """log N(x | mean, covariance) (N, K), one Cholesky factor inverted a component."""
        factors = linalg.cholesky(parameters.covariance)
        constant = -0.5 * (self.n_features * LOG_2PI + linalg.log_determinant(factors))
        result: Array = constant - 0.5 * whitened_quadratic(x, parameters.mean, linalg.inverse_lower(factors))
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
    with_learned_covariance = capabilities.with_learned_covariance
    with_mean_strength = capabilities.with_mean_strength
    expected_covariance = capabilities.expected_covariance
    log_caps = capabilities.log_caps
    marginal_log_predictive = holes.marginal_log_predictive
    expected_stats = holes.expected_stats
    drawn_missing = holes.drawn_missing
    reads_all_products: ClassVar[bool] = True

    # Predictive cache and kernels of streams

    cache_kind: ClassVar[type[Any]] = GaussianCache
    serves_products: ClassVar[bool] = True
    cache_of = predictive_cache.cache_of
    cache_scales = predictive_cache.cache_scales
    kernel_constants = predictive_cache.kernel_constants
    renewal = predictive_cache.renewal
    deferred_rows = predictive_cache.deferred_rows
    join_ceiling = predictive_cache.join_ceiling
    join_ceiling_is_quick = predictive_cache.join_ceiling_is_quick

    @property
    def prior_points(self) -> float:
        """Points that the prior's log gammas count for."""
        return self.dof
