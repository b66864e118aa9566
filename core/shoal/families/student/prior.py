"""Student t components: Gaussians with a random precision factor at each point, so that outliers count for little.

    x | u ~ N(mu, S / u),  u ~ Gamma(nu / 2, rate nu / 2),  mu | S ~ N(mean, S / mean_strength),  S ~ IW(dof, scale)

nu, the degrees of freedom, belongs to the prior. Given u the model is that of `gaussian`, with points of weight u. The
posterior is approximated by q(mu, S) times a Gamma q(u) for each point and component (Svensen and Bishop 2005, "Robust
Bayesian mixture modelling"). Statistics hold what the q(u) add to the bound, so that they still add, and
`log_marginal` of statistics is a lower bound on their evidence. It is the best one for the q(u) that they hold.

`suffstats` gives every point the q(u) of a point at its expected distance; `suffstats_given` fits the q(u) to given
components. `expected_log_likelihood` is at its best over q(u), which makes it a Student t.

The predictive density has no closed form. Its approximation here is the Student t with the same mean and covariance,
of nu* degrees of freedom with 1 - 2 / nu* = (1 - 2 / nu)(1 - 2 / n), n = dof - D + 1. It is exact in the limits of
known parameters and of nu.
"""

from functools import cached_property
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, psi

from shoal.families.base import RowsT, take
from shoal.families.gaussian import (
    FACTOR_BLOCK,
    LEAST_REST,
    GaussianParams,
    GaussianPredictive,
    GaussianStats,
    NormalInverseWishart,
    WithInnerGaussian,
    log_predictive_in_blocks,
    scales_of_roots,
)
from shoal.families.hyperparameters import Hyperparameters, as_positive
from shoal.families.located import LocatedFamily
from shoal.families.natural_statistics import Origin
from shoal.families.portable import Portable
from shoal.families.predictive_cache import CacheScales
from shoal.families.prior_choices import Choice
from shoal.families.student.precision import POINT_ROUNDS, best_degrees, factor_given, log_prior
from shoal.families.student.types import StudentCache, StudentConstants, StudentDraw, StudentStats
from shoal.kernels import linalg, moments
from shoal.kernels.distances import row_blocks, whitened_quadratic
from shoal.points.arrays import Array

_LOG_2PI, _LOG_PI = float(np.log(2 * np.pi)), float(np.log(np.pi))


class MultivariateStudent(WithInnerGaussian, LocatedFamily, Hyperparameters):
    """The prior mu | S ~ N(mean, S / mean_strength), S ~ IW(dof, scale) of a Student t, with its degrees of freedom.

    mean (D,); mean_strength > 0, the prior's worth in points; dof > D + 1; scale (D, D) positive definite, kept as
    `scale_matrix`; degrees > 2, the degrees of freedom nu. A refinement under `prior="auto"` learns `degrees` too.
    Raises SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {**NormalInverseWishart.FIELDS, "degrees": "degrees"}
    name: ClassVar[str] = "student"
    description: ClassVar[str] = "Student t distributions with full scale matrices"
    cache_kind: ClassVar[type[Any]] = StudentCache
    has_scatter: ClassVar[bool] = False
    mean: Array
    mean_strength: float
    dof: float
    scale_matrix: Array
    degrees: float

    def __init__(
        self, mean: ArrayLike, mean_strength: ArrayLike, dof: ArrayLike, scale: ArrayLike, degrees: ArrayLike = 5.0
    ) -> None:
        inner = NormalInverseWishart(mean, mean_strength, dof, scale)
        self._freeze(
            mean=inner.mean,
            mean_strength=inner.mean_strength,
            dof=as_positive("dof", dof, above=inner.n_features + 1),
            scale_matrix=inner.scale_matrix,
            degrees=as_positive("degrees", degrees, above=2),
        )

    @classmethod
    def weak(
        cls,
        n_features: int,
        within_variance: float = 0.1,
        mean_strength: float = 0.01,
        dof: float = 1.0,
        degrees: float = 5.0,
    ) -> Self:
        """A prior for standardised data under which a precision is 1 / within_variance on average."""
        inner = NormalInverseWishart.weak(n_features, within_variance, mean_strength, dof)
        return cls(inner.mean, inner.mean_strength, inner.dof, inner.scale_matrix, degrees)

    def with_inner(self, inner: NormalInverseWishart, degrees: float) -> Self:
        """The same family under another prior of the components and other degrees of freedom."""
        return type(self)(inner.mean, inner.mean_strength, inner.dof, inner.scale_matrix, degrees)

    @property
    def n_features(self) -> int:
        """D."""
        return self.mean.size

    @property
    def n_free_parameters(self) -> int:
        """A mean and a symmetric matrix."""
        return self.inner.n_free_parameters

    @cached_property
    def inner(self) -> NormalInverseWishart:
        """The prior of the components, as that of Gaussians."""
        return NormalInverseWishart(self.mean, self.mean_strength, self.dof, self.scale_matrix)

    # Statistics

    def empty_stats(self, n_components: int) -> StudentStats:
        """Statistics of components that have seen nothing."""
        none = np.zeros(n_components)
        weight, mean, scatter = self.inner.empty_stats(n_components)
        return StudentStats(none, weight, mean, scatter, none.copy(), none.copy())

    def suffstats(self, x: Array, resp: Array) -> StudentStats:
        """Statistics of points x (N, D) under resp (N, K), with the same q(u), of mean one, for every point.

        A valid bound for any component, and a loose one: see `suffstats_given`.
        """
        typical = factor_given(self.degrees, self.n_features, np.full((1, 1), float(self.n_features)))
        return self.weighted_stats(x, resp, typical.mean, typical.log_mean, typical.entropy)

    def weighted_stats(self, x: Array, resp: Array, mean: Array, log_mean: Array, entropy: Array) -> StudentStats:
        """Statistics of points x (N, D) under resp (N, K) and q(u) with these moments (N, K)."""
        moment = self.inner.suffstats(x, resp * mean)
        log_weight, total = (resp * log_mean).sum(axis=0), (resp * entropy).sum(axis=0)
        return StudentStats(resp.sum(axis=0), moment.mass, moment.mean, moment.scatter, log_weight, total)

    def add(self, a: StudentStats, b: StudentStats) -> StudentStats:
        """Both together, row by row."""
        both = self.inner.add(weighted(a), weighted(b))
        return StudentStats(
            a.mass + b.mass, both.mass, both.mean, both.scatter, a.log_weight + b.log_weight, a.entropy + b.entropy
        )

    def subtract(self, a: StudentStats, b: StudentStats) -> StudentStats:
        """`a` without `b`; what rounding alone has left of the mass counts as nothing."""
        left, rest = self.inner.subtract(weighted(a), weighted(b)), a.mass - b.mass
        alive = (rest > moments.EMPTY_BELOW * a.mass) & (left.mass > 0.0)
        stats = StudentStats(rest, *left, a.log_weight - b.log_weight, a.entropy - b.entropy)
        return StudentStats(*(np.where(alive.reshape(-1, *(1,) * (f.ndim - 1)), f, 0.0) for f in stats))

    def scale(self, stats: StudentStats, factor: float | Array) -> StudentStats:
        """Every point's weight times `factor` (a scalar or (K,), >= 0). A component without mass left has no mean."""
        mass = stats.mass * factor
        moment = self.inner.scale(weighted(stats), factor)
        moment = moment._replace(mean=np.where(mass[:, np.newaxis] > 0.0, moment.mean, 0.0))
        return StudentStats(mass, *moment, stats.log_weight * factor, stats.entropy * factor)

    def posterior(self, stats: StudentStats) -> GaussianParams:
        """Parameters given the statistics; those of the prior, exactly, for a component without mass."""
        params = self.inner.posterior(weighted(stats))
        return params._replace(dof=self.dof + stats.mass)

    # The exponential family: that of `gaussian`

    def log_carrier(self, stats: StudentStats) -> Array:
        """The Gaussian's constant, E[D log u / 2], E[log p(u)] and the entropy of q(u), summed over the points (K,)."""
        own = self.inner.log_carrier(GaussianStats(stats.mass, stats.mean, stats.scatter))
        own = own + 0.5 * self.n_features * stats.log_weight + stats.entropy
        return np.asarray(own + log_prior(self.degrees, stats.mass, stats.weight, stats.log_weight))

    def relative(self, values: RowsT, to: StudentStats | GaussianParams) -> RowsT:
        """`values` seen from the means of `to`."""
        return moments.relative(values, to)

    # Points

    def expected_square(self, params: GaussianParams, x: Array) -> Array:
        """E (x - mu)' S^-1 (x - mu) (N, K) under q(mu, S)."""
        out = np.empty((x.shape[0], params.dof.size))
        for rows in row_blocks(params.dof.size, self.n_features**2, FACTOR_BLOCK):
            block = take(params, rows)
            square = whitened_quadratic(x, block.mean, linalg.inverse_lower(linalg.cholesky(block.scale)))
            out[:, rows] = block.dof * square + self.n_features / block.mean_strength
        return out

    def expected_log_likelihood(self, params: GaussianParams, x: Array) -> Array:
        """The largest E[log N(x | mu, S / u)] - KL(q(u) || p(u)) over q(u) (N, K)."""
        nu, d = self.degrees, self.n_features
        factors = linalg.cholesky(params.scale)
        log_det = linalg.multivariate_digamma(params.dof / 2, d) + d * np.log(2.0) - linalg.log_determinant(factors)
        square = self.expected_square(params, x)
        constant = float(gammaln(0.5 * (nu + d)) - gammaln(0.5 * nu)) - 0.5 * d * (_LOG_PI + np.log(nu))
        return np.asarray(constant + 0.5 * log_det - 0.5 * (nu + d) * np.log1p(square / nu))

    def density_terms(self, strength: Array, dof: Array, log_det: Array) -> tuple[Array, Array, Array]:
        """Power, width and constant of the predictive density log p = constant - power log1p(width q).

        q is the squared distance in the metric of the scale matrix, whose log determinant is `log_det`.
        """
        nu, d = self.degrees, self.n_features
        n = dof - d + 1.0
        tail = nu * n / (nu + n - 2.0)
        spread = 1.0 + (1.0 - 2.0 / nu) / strength
        width = n / (tail * spread)
        constant = linalg.log_gamma_ratio(0.5 * tail, 0.5 * d) + 0.5 * (d * (np.log(width) - _LOG_PI) - log_det)
        return 0.5 * (tail + d), width, constant

    def predictive(self, params: GaussianParams) -> GaussianPredictive:
        """The Student t of the predictive mean and covariance, whitened: one Cholesky factor inverted a component."""
        factors = linalg.cholesky(params.scale)
        log_det = linalg.log_determinant(factors)
        power, width, constant = self.density_terms(params.mean_strength, params.dof, log_det)
        whitening = linalg.inverse_lower(factors)
        whitening *= np.sqrt(width)[:, None, None]
        return GaussianPredictive(params.mean, whitening, constant, power)

    def portable(self, predictive: GaussianPredictive) -> Portable:
        """See `portable.portable`."""
        return self.inner.portable(predictive)

    def log_predictive_from(self, predictive: GaussianPredictive, x: Array) -> Array:
        """log density (N, K) of points x (N, D)."""
        return self.inner.log_predictive_from(predictive, x)

    def log_predictive(self, params: GaussianParams, x: Array) -> Array:
        """log density (N, K), with the factors of 32 MiB of components at a time."""
        return log_predictive_in_blocks(self, params, x)

    def predictive_mean(self, params: GaussianParams) -> Array:
        """(K, D)."""
        return params.mean

    def predictive_variance(self, params: GaussianParams) -> Array:
        """(K, D), exact."""
        return self._covariance_factor(params)[:, None] * np.diagonal(params.scale, axis1=1, axis2=2)

    def predictive_covariance(self, params: GaussianParams) -> Array:
        """(K, D, D), exact."""
        return self._covariance_factor(params)[:, None, None] * params.scale

    def core_variance(self, stats: StudentStats) -> Array:
        """(K, D): those of the Gaussian of the weighted points. The variance of all points grows without bound as
        `degrees` falls to 2."""
        return self.inner.predictive_variance(self.posterior(stats))

    def _covariance_factor(self, params: GaussianParams) -> Array:
        """(K,) of the scale matrix: E[1 / u] + 1 / mean_strength, over dof - D - 1."""
        spread = self.degrees / (self.degrees - 2.0) + 1.0 / params.mean_strength
        return np.asarray(spread / (params.dof - self.n_features - 1.0))

    def sample_parameters(self, params: GaussianParams, rng: np.random.Generator) -> StudentDraw:
        """S, then mu given S, as in `gaussian`."""
        return StudentDraw(*self.inner.sample_parameters(params, rng))

    def sample_points(self, parameters: StudentDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        factors = linalg.cholesky(parameters.covariance)
        noise = rng.standard_normal((factors.shape[0], n, factors.shape[1]))
        u = rng.chisquare(self.degrees, size=(factors.shape[0], n, 1)) / self.degrees
        points: Array = parameters.mean[:, None, :] + np.matmul(noise / np.sqrt(u), factors.transpose(0, 2, 1))
        return points

    def log_likelihood(self, parameters: StudentDraw, x: Array) -> Array:
        """log t(x | mean, scale matrix, degrees) (N, K)."""
        nu, d = self.degrees, self.n_features
        factors = linalg.cholesky(parameters.covariance)
        constant = float(gammaln(0.5 * (nu + d)) - gammaln(0.5 * nu)) - 0.5 * d * (_LOG_PI + np.log(nu))
        square = whitened_quadratic(x, parameters.mean, linalg.inverse_lower(factors))
        return np.asarray(constant - 0.5 * linalg.log_determinant(factors) - 0.5 * (nu + d) * np.log1p(square / nu))

    # Abilities that engines ask for

    def suffstats_given(self, params: GaussianParams, x: Array, resp: Array) -> StudentStats:
        """Statistics of points x (N, D) under resp (N, K), with the best q(u) given the components' posteriors."""
        factor = factor_given(self.degrees, self.n_features, self.expected_square(params, x))
        return self.weighted_stats(x, resp, factor.mean, factor.log_mean, factor.entropy)

    def natural_rows_given(self, params: GaussianParams, x: Array, origin: Origin) -> Array:
        """(N, P) t(x) of points x (N, D), with the best q(u) given one component's posterior."""
        factor = factor_given(self.degrees, self.n_features, self.expected_square(params, x))
        rows = self.inner.natural_statistics(x, origin).rows
        own = rows[:, self.n_features + 1].copy()  # of dof, which counts points whole
        rows *= factor.mean
        rows[:, self.n_features + 1] = own
        return np.asarray(rows)

    def _expected_square_with(self, params: GaussianParams, square: Array, resp: Array) -> Array:
        """Expected squared distances (N, K) of points from components that include them.

        `square` (N, K) are the distances in the metric of the scale matrices without them.
        """
        nu, d = self.degrees, self.n_features
        strength, dof = params.mean_strength, params.dof + resp
        factor = np.ones_like(resp)
        expected = np.empty_like(resp)
        for _ in range(POINT_ROUNDS):
            weight = resp * factor
            left = strength / (strength + weight)
            expected = dof * left**2 * square / (1.0 + left * weight * square) + d / (strength + weight)
            factor = (nu + d) / (nu + expected)
        return expected

    def absorbed(self, stats: StudentStats, x: Array, resp: Array) -> StudentStats:
        """Statistics with one point x (1, D) added under resp (1, K), its q(u) fitted together with the component.

        The posterior with the point is a rank-one update, so each round between the two is a formula of the squared
        distance alone. The first round counts the point whole: a point that founds a component is not an outlier.
        """
        params = self.posterior(stats)
        whitening = linalg.inverse_lower(linalg.cholesky(params.scale))
        square = whitened_quadratic(x, params.mean, whitening)
        expected = self._expected_square_with(params, square, resp)
        factor = factor_given(self.degrees, self.n_features, expected)
        return self.add(stats, self.weighted_stats(x, resp, factor.mean, factor.log_mean, factor.entropy))

    def log_left_out(self, component: StudentStats, x: Array, share: Array) -> Array:
        """Scores (M,) of a component's own points x (M, D), which it includes with weights `share` (M,), without them.

        Each point is taken out with its q(u) given the component, as in `gaussian`.
        """
        params = self.posterior(component)
        factors = linalg.cholesky(params.scale)
        square = whitened_quadratic(x, params.mean, linalg.inverse_lower(factors))[:, 0]
        expected = params.dof[0] * square + self.n_features / params.mean_strength[0]
        weight = share * factor_given(self.degrees, self.n_features, expected).mean
        strength, dof = params.mean_strength[0] - weight, params.dof[0] - share
        away = params.mean_strength[0] / strength
        rest = np.maximum(1.0 - away * weight * square, LEAST_REST)
        log_det = linalg.log_determinant(factors)[0] + np.log(rest)
        power, width, log_norm = self.density_terms(strength, dof, log_det)
        return np.asarray(log_norm - power * np.log1p(width * away**2 * square / rest))

    def prior_choices(self, stats: StudentStats, n_components: int) -> Choice:
        """The choices of a Gaussian of the weighted points, under the degrees of freedom that suit the q(u) best."""
        inner = self.inner.prior_choices(stats, n_components)  # type: ignore[arg-type]
        degrees = best_degrees(float(stats.mass.sum()), float(stats.weight.sum()), float(stats.log_weight.sum()))

        def build(*chosen: float) -> Any:
            return self.with_inner(cast(NormalInverseWishart, inner.build(*chosen)), degrees)

        return inner._replace(build=build)

    def with_learned_covariance(self, stats: StudentStats) -> "MultivariateStudent":
        """The prior whose scale matrix and degrees of freedom suit the weighted points of the components best."""
        found = self.inner.learned_covariance(stats.mass, stats.weight, stats.mean, stats.scatter)
        return type(self)(self.mean, self.mean_strength, found.dof, found.scale, self.degrees)

    def with_mean_strength(self, strength: float) -> "MultivariateStudent":
        """The same prior, whose mean is worth `strength` points."""
        return type(self)(self.mean, strength, self.dof, self.scale_matrix, self.degrees)

    # Predictive cache and kernels of streams

    def cache_of(self, stats: StudentStats) -> StudentCache:
        """The cache of statistics, row by row: a Cholesky factor and its inverse a component."""
        params = self.posterior(stats)
        factors = linalg.cholesky(params.scale)
        log_det = linalg.log_determinant(factors)
        power, width, log_norm = self.density_terms(params.mean_strength, params.dof, log_det)
        root = linalg.inverse_lower(factors)
        return StudentCache(params.mean, params.mean_strength, params.dof, root, log_det, width, power, log_norm)

    def cache_scales(self, cache: StudentCache) -> CacheScales:
        """The least deviation from the largest element of the inverse factor, which has to be triangular."""
        return scales_of_roots(cache.root, cache.dof)

    def kernel_constants(self) -> StudentConstants:
        """The prior's own numbers, and those of q(u) that are the same for every point."""
        shape = 0.5 * (self.degrees + self.n_features)
        return StudentConstants(self.inner.kernel_constants(), self.degrees, float(psi(shape)), float(gammaln(shape)))


def weighted(stats: StudentStats) -> GaussianStats:
    """The weighted moments, as statistics of Gaussians."""
    return GaussianStats(stats.weight, stats.mean, stats.scatter)
