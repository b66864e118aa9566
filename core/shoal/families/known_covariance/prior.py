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

from shoal.families.base import RowsT, contiguous, take
from shoal.families.capabilities import QuadraticForm, SplitPrior
from shoal.families.holes import conditional, normal_draw, patterns
from shoal.families.hyperparameters import Hyperparameters, as_covariance, as_mean, as_positive, as_real
from shoal.families.known_covariance.basis import Basis, joint_basis
from shoal.families.known_covariance.types import (
    KnownCovarianceDraw,
    KnownCovarianceParams,
    KnownCovariancePredictive,
    KnownCovarianceStats,
    SharedBasisCache,
    SharedBasisConstants,
    SphericalCache,
)
from shoal.families.located import LocatedFamily
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.portable import Portable
from shoal.families.predictive_cache import CacheScales, Call
from shoal.families.prior_choices import FINE_MULTIPLIERS, LARGEST, RIDGE, SMALLEST, STRENGTHS, Choice, choice_near
from shoal.kernels import linalg, moments
from shoal.kernels.distances import diagonal_quadratic, whitened_quadratic
from shoal.points.arrays import Array
from shoal.points.contamination import absurd_values
from shoal.points.rows import Points

MOST_DIFFERENCES = 1 << 23
"""Features of all pairs up to which the kernel for joins is quicker than NumPy."""

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
    prior_points: ClassVar[float] = 0.0
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

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """t(y) = (B y, 1), y = x - origin, B the basis."""
        y = x - origin.point
        points = self.empty_stats(len(x))._replace(mass=np.ones(len(x)), mean=y)
        return Statistics(np.hstack([self.to_basis(y), np.ones_like(y)]), self.log_carrier(points))

    def statistics_of_moments(self, location: Array, spread: Array, origin: Origin) -> Statistics:
        """Means of t(x) and log h(x) over groups of points, from their moments."""
        y = location - origin.point
        groups = self.empty_stats(len(y))._replace(mass=np.ones(len(y)), mean=y, scatter=self.scatter_in_layout(spread))
        return Statistics(np.hstack([self.to_basis(y), np.ones_like(y)]), self.log_carrier(groups))

    def scatter_in_layout(self, scatter: Array) -> Array:
        """tr(covariance^-1 scatter) (K,); the diagonals (K, D) suffice for a spherical covariance."""
        if scatter.ndim == 2:
            return np.asarray(scatter.sum(axis=1) / float(self.covariance))
        basis = self.basis
        traces: Array = np.einsum("kde,de->k", scatter, basis.T @ basis)
        return traces

    def quadratic_form(self, params: KnownCovarianceParams) -> QuadraticForm | None:
        """Expected log densities as quadratic forms; None unless spherical."""
        if not self.spherical:
            return None
        constant = self.log_det_basis - 0.5 * self.n_features * LOG_2PI - 0.5 * (1.0 / params.precision).sum(axis=1)
        root = np.full(params.mean.shape, np.sqrt(1.0 / float(self.covariance)))
        return QuadraticForm(constant, params.mean, root, 1.0 / root)

    def stats_of_moments(
        self, sums: WeightedMoments, most: float, past: KnownCovarianceStats
    ) -> KnownCovarianceStats | None:
        """Statistics of moments about centres, joined with those of the past; spherical."""
        from shoal.families.located.m_step_kernel import spherical_stats

        stats = self.empty_stats(len(past.mass))
        done = spherical_stats(sums, most, float(self.covariance), contiguous(past), stats)
        return stats if done else None

    def fast_log_marginal(self, stats: KnownCovarianceStats) -> Array | None:
        """log m(S_k) by a kernel; None unless spherical."""
        if not self.spherical:
            return None
        from shoal.families.located.evidence_kernel import known_evidence

        out = np.empty(len(stats.mass))
        given = (self.mean, float(self.prior_precision[0]), float(self.covariance))
        known_evidence(*contiguous(stats), *given, out)
        return out

    def split_prior(self) -> SplitPrior | None:
        """The prior of the mean, in units of the variance; None unless spherical."""
        if not self.spherical:
            return None
        variance = float(self.covariance)
        scale = np.full(self.n_features, variance)
        return SplitPrior(self.mean, variance / float(self.prior_covariance), 0.0, scale)

    def log_left_out(self, component: KnownCovarianceStats, x: Array, share: Array) -> Array:
        """Scores of a component's own points without them.

        In the basis a coordinate is p / (p - u) times as far from the mean that is left as from the whole one.
        """
        params = self.posterior(component)
        whole = params.precision
        precision = whole - share[:, None]
        away = self.to_basis(x - params.mean) * (whole / precision)
        constant = -0.5 * self.n_features * LOG_2PI + self.log_det_basis - 0.5 * np.log1p(1.0 / precision).sum(axis=1)
        return np.asarray(constant - 0.5 * (np.square(away) * (precision / (precision + 1.0))).sum(axis=1))

    def prior_choices(self, stats: KnownCovarianceStats, n_components: int) -> Choice | None:
        """The pooled variance within times a number near one, and what the mean is worth; None unless spherical."""
        if not self.spherical:
            return None
        near = ~absurd_values(stats.mean, stats.mass).any(axis=1)
        mass, means, scatter = (stats.mass, stats.mean, stats.scatter) if near.all() else take(stats, near)
        total = float(mass.sum())
        mean = mass @ means / total
        between = float((mass @ np.square(means - mean)).mean()) / total
        within = float(self.covariance) * float(scatter.sum()) / (total * self.n_features)
        within = min(within + RIDGE * (within + between) + SMALLEST, LARGEST)

        def build(multiplier: float, strength: float) -> Any:
            variance = multiplier * within
            return type(self)(mean, variance / strength, variance)

        strength = float(self.covariance) / float(self.prior_covariance)
        return choice_near(build, (FINE_MULTIPLIERS, STRENGTHS), float(self.covariance) / within, strength)

    def restated(self, stats: KnownCovarianceStats, before: "KnownCovariance") -> KnownCovarianceStats:
        """Statistics with scatters in units of this covariance, which differs from the one before by a factor."""
        if self.covariance.shape != before.covariance.shape:
            raise ValueError("one covariance is spherical and the other is not; scatters cannot be restated")
        factor = float(np.trace(np.atleast_2d(before.covariance)) / np.trace(np.atleast_2d(self.covariance)))
        return stats if factor == 1.0 else stats._replace(scatter=stats.scatter * factor)

    def expected_covariance(self) -> Array:
        """The covariance: a number or (D, D)."""
        return self.covariance

    def log_caps(self, stats: KnownCovarianceStats, x: Points, further: Array) -> Array:
        """The peak of the normal with the precision raised by the further points."""
        precision = self.posterior(stats).precision + further[:, None, None]
        spread = np.log1p(1.0 / precision).sum(axis=2)
        return np.asarray(self.log_det_basis - 0.5 * (self.n_features * LOG_2PI + spread))

    # Points with holes

    def marginal_log_predictive(self, params: KnownCovarianceParams, x: Array) -> Array:
        """The normal of the observed features. Exact."""
        out = np.empty((len(x), len(params.mean)))
        covariance = self.predictive_covariance(params)
        for rows, observed in patterns(x):
            seen = np.flatnonzero(observed)
            factors = linalg.cholesky(covariance[:, seen[:, None], seen])
            constant = -0.5 * seen.size * LOG_2PI - 0.5 * linalg.log_determinant(factors)
            distance = whitened_quadratic(x[rows][:, seen], params.mean[:, seen], linalg.inverse_lower(factors))
            out[rows] = constant - 0.5 * distance
        return out

    def _filled(self, params: KnownCovarianceParams, x: Array) -> tuple[Array, Array]:
        axes = self.from_basis(np.eye(self.n_features))
        covariance = np.broadcast_to(axes.T @ axes, (len(params.mean), self.n_features, self.n_features))
        return conditional(params.mean, covariance, x)

    def expected_stats(self, params: KnownCovarianceParams, x: Array, resp: Array) -> KnownCovarianceStats:
        """Holes are filled by their conditional means. Their conditional covariance C adds tr(S^-1 C) to the scatter,
        which is the number of holes."""
        filled, _ = self._filled(params, x)
        return KnownCovarianceStats(resp.copy(), filled, resp * float(np.isnan(x).sum()))

    def drawn_missing(self, params: KnownCovarianceParams, x: Array, rng: np.random.Generator) -> Array:
        """The point (D,) with its holes drawn from the conditional normal."""
        filled, spread = self._filled(params, x)
        return normal_draw(filled[0], spread[0], rng)

    # Predictive cache and kernels of streams

    def _spherical(self, stats: KnownCovarianceStats) -> SphericalCache:
        params = self.posterior(stats)
        precision = params.precision[:, 0]
        variance = float(self.covariance)
        half_precision = 0.5 * precision / (variance * (precision + 1.0))
        log_norm = -0.5 * self.n_features * (LOG_2PI + np.log(variance) + np.log1p(1.0 / precision))
        return SphericalCache(params.mean, precision, half_precision, log_norm)

    def _shared_basis(self, stats: KnownCovarianceStats) -> SharedBasisCache:
        params = self.posterior(stats)
        mean = self.to_basis(params.mean - self.mean)
        half_precision = 0.5 * params.precision / (params.precision + 1.0)
        log_norm = self.log_det_basis - 0.5 * (LOG_2PI + np.log1p(1.0 / params.precision)).sum(axis=1)
        return SharedBasisCache(mean, params.precision, half_precision, log_norm)

    def cache_of(self, stats: KnownCovarianceStats) -> SphericalCache | SharedBasisCache:
        """The cache of statistics, row by row."""
        return self._spherical(stats) if self.spherical else self._shared_basis(stats)

    def cache_scales(self, cache: SphericalCache | SharedBasisCache) -> CacheScales:
        """The deviation from the precision; scatters are in units of the covariance."""
        resolution = 1.0 / np.sqrt(2.0 * cache.half_precision.reshape(len(cache.mean), -1).max(axis=1))
        return CacheScales(resolution, resolution, cache.half_precision > 0)

    def kernel_constants(self) -> Array | SharedBasisConstants:
        """Spherical: the variance (1, 1)."""
        if self.spherical:
            return np.full((1, 1), float(self.covariance))
        return SharedBasisConstants(np.array(self.basis), self.mean[None].copy(), self.log_det_basis)

    def join_ceiling(self, *given: Any) -> Call | None:
        """The kernel that bounds the gain of any join from above; None unless spherical."""
        if not self.spherical:
            return None
        from shoal.families.located.join_ceiling_kernel import spherical_ceiling

        return spherical_ceiling, (*given, self.mean, float(self.prior_precision[0]), float(self.covariance))

    def join_ceiling_is_quick(self, n_pairs: int, n_components: int) -> bool:
        """Whether the kernel takes less time than NumPy for its candidates."""
        return n_pairs * self.n_features <= MOST_DIFFERENCES

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
