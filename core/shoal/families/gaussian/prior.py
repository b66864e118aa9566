"""Gaussian components with unknown mean and covariance under a normal-inverse-Wishart prior.

Murphy (2007), "Conjugate Bayesian analysis of the Gaussian distribution", section 9 gives the updates and the Student
t; here with psi = scale, kappa = mean_strength, nu = dof. As an exponential family in (mu, L = S^-1):

    natural      kappa m      kappa          nu           psi + kappa m m'
    statistic    L mu         -mu'L mu / 2   log|L| / 2   -L / 2

One scalar does not serve for kappa and nu (ERRATA 0.6): both grow by the mass.
"""

from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.families.base import AnyFamily, RowsT, contiguous, take
from shoal.families.capabilities import QuadraticForm, SplitPrior
from shoal.families.covariance_prior import CovariancePrior, maximised
from shoal.families.gaussian.types import (
    GaussianCache,
    GaussianConstants,
    GaussianDraw,
    GaussianParams,
    GaussianPredictive,
    GaussianStats,
)
from shoal.families.holes import conditional, normal_draw, patterns
from shoal.families.hyperparameters import Hyperparameters, as_covariance, as_mean, as_positive
from shoal.families.located import LocatedFamily
from shoal.families.located.renewal_kernel import renew_gaussian
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import Origin, Statistics, constant_carrier
from shoal.families.portable import Portable
from shoal.families.predictive_cache import CacheScales, Call
from shoal.families.prior_choices import MULTIPLIERS, STRENGTHS, Choice, choice_near, dofs, geometric_mean, pooled
from shoal.kernels import linalg, moments
from shoal.kernels.cholesky import FEW_FEATURES
from shoal.kernels.distances import row_blocks, whitened_quadratic
from shoal.points.arrays import Array, read_only
from shoal.points.rows import Points

FACTOR_BLOCK = 1 << 22
"""Elements of the Cholesky factors held at once: 32 MiB."""
LOG_2PI, _LOG_PI = float(np.log(2 * np.pi)), float(np.log(np.pi))
LEAST_REST = 1e-12
"""Least share of a scale matrix's determinant that is left without a point: rounding would leave nothing."""
MOST_PRODUCTS, MOST_FACTORS = 1 << 18, 1 << 22
"""Elements of the matrices of all pairs, and K D^3, up to which the kernel for joins is quicker than NumPy."""
LEAST_DEFERRED = 16
"""Least features for which outer products wait: of fewer the scatter is small enough to stay at hand."""


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
    reads_all_products: ClassVar[bool] = True
    cache_kind: ClassVar[type[Any]] = GaussianCache
    serves_products: ClassVar[bool] = True
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
        return log_predictive_in_blocks(self, params, x)

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

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """t(y) = (y, 1, 1, upper triangle of y y' with off-diagonal elements doubled), y = x - origin."""
        n, d = x.shape
        y = x - origin.point
        rows = np.empty((n, d + 2 + d * (d + 1) // 2))
        rows[:, :d] = y
        rows[:, d : d + 2] = 1.0
        column = d + 2
        for i in range(d):  # row i of the upper triangle at a time: contiguous writes, no (N, D, D) temporary
            width = d - i
            np.multiply(y[:, i:], y[:, i : i + 1], out=rows[:, column : column + width])
            rows[:, column + 1 : column + width] *= 2.0
            column += width
        return Statistics(rows, constant_carrier(self, n))

    def statistics_of_moments(self, location: Array, spread: Array, origin: Origin) -> Statistics:
        """Means of t(x) and log h(x) over groups of points, from their moments."""
        y = location - origin.point
        second = linalg.pack(spread + linalg.outer(y), with_multiplicity=True)
        return Statistics(np.hstack([y, np.ones((len(y), 2)), second]), constant_carrier(self, len(y)))

    def scatter_in_layout(self, scatter: Array) -> Array:
        """Scatters (K, D, D) as they are."""
        return scatter

    def quadratic_form(self, params: GaussianParams) -> QuadraticForm:
        """Expected log densities as quadratic forms."""
        d, factors = self.n_features, linalg.cholesky(params.scale)
        constant = linalg.multivariate_digamma(params.dof / 2.0, d) + d * np.log(2.0) - linalg.log_determinant(factors)
        constant -= d * (LOG_2PI + 1.0 / params.mean_strength)
        size = np.sqrt(params.dof)[:, None, None]
        return QuadraticForm(0.5 * constant, params.mean, linalg.inverse_lower(factors) * size, factors / size)

    def stats_of_moments(self, sums: WeightedMoments, most: float, past: GaussianStats) -> GaussianStats | None:
        """Statistics of moments about centres, joined with those of the past."""
        from shoal.families.located.m_step_kernel import full_stats

        stats = self.empty_stats(len(past.mass))
        return stats if full_stats(sums, most, contiguous(past), stats) else None

    def fast_log_marginal(self, stats: GaussianStats) -> Array | None:
        """log m(S_k) by a kernel, up to `FEW_FEATURES` features."""
        if self.n_features > FEW_FEATURES:
            return None
        from shoal.families.located.evidence_kernel import gaussian_evidence

        out = np.empty(len(stats.mass))
        given = (self.mean, self.mean_strength, self.dof, self.scale_matrix)
        return out if gaussian_evidence(*contiguous(stats), *given, out) else None

    def split_prior(self) -> SplitPrior | None:
        """The prior itself, up to `FEW_FEATURES` features."""
        if self.n_features > FEW_FEATURES:
            return None
        return SplitPrior(self.mean, self.mean_strength, self.dof, self.scale_matrix)

    def log_left_out(self, component: GaussianStats, x: Array, share: Array) -> Array:
        """Scores of a component's own points without them, by one factor of its scale matrix.

        With e = x - m, c = kappa u / (kappa - u) and q = e' Psi^-1 e,

            Psi without u points at x = Psi - c e e',    |..| = |Psi| (1 - c q),    e' (..)^-1 e = q / (1 - c q)

        (Sherman and Morrison 1950), and x is kappa / (kappa - u) times as far from the mean that is left.
        """
        params, d = self.posterior(component), self.n_features
        factor = linalg.cholesky(params.scale)
        strength, dof = params.mean_strength[0] - share, params.dof[0] - share
        away = params.mean_strength[0] / strength
        square = whitened_quadratic(x, params.mean, linalg.inverse_lower(factor))[:, 0]
        rest = np.maximum(1.0 - away * share * square, LEAST_REST)
        shrink = strength / (strength + 1.0)
        constant = linalg.log_gamma_ratio((dof + 1.0 - d) / 2.0, d / 2.0) + 0.5 * d * np.log(shrink / np.pi)
        log_det = linalg.log_determinant(factor)[0] + np.log(rest)
        distance = shrink * away**2 * square / rest
        return np.asarray(constant - 0.5 * log_det - 0.5 * (dof + 1.0) * np.log1p(distance))

    def prior_choices(self, stats: GaussianStats, n_components: int) -> Choice:
        """The pooled variance within, by feature, times a number; what it is worth; what the mean is worth."""
        d = self.n_features
        mean, within = pooled(stats.mass, stats.mean, np.diagonal(stats.scatter, axis1=1, axis2=2))

        def build(multiplier: float, dof: float, strength: float) -> Any:
            total = d + 1.0 + dof
            return type(self)(mean, strength, total, np.diag(total * multiplier * within))

        multiplier = geometric_mean(np.diag(self.scale_matrix) / self.dof / within)
        lists = (MULTIPLIERS, dofs(n_components), STRENGTHS)
        return choice_near(build, lists, multiplier, self.dof - d - 1.0, self.mean_strength)

    def learned_covariance(self, mass: Array, weight: Array, mean: Array, scatter: Array) -> CovariancePrior:
        """The covariance prior of components with `mass` (K,) points of `weight` (K,) in all, `mean` (K, D) and
        `scatter` (K, D, D) by weight."""
        some, d = mass > 0.0, self.n_features
        mass, weight = mass[some], weight[some]
        lever = self.mean_strength * weight / (self.mean_strength + weight)
        moment = scatter[some] + linalg.outer(np.sqrt(lever)[:, None] * (mean[some] - self.mean))

        def evidence(scale: Array, dof: float) -> float:
            before = linalg.log_determinant(linalg.cholesky(scale[None]))[0]
            after = linalg.log_determinant(linalg.cholesky(scale + moment))
            gammas = linalg.multivariate_gammaln(0.5 * (dof + mass), d)
            gammas = gammas - linalg.multivariate_gammaln(np.array([0.5 * dof]), d)
            return float((gammas + 0.5 * dof * before - 0.5 * (dof + mass) * after).sum())

        def expectation(scale: Array, dof: float) -> Array:
            whitening = linalg.inverse_lower(linalg.cholesky(scale + moment))
            precision = np.matmul(whitening.transpose(0, 2, 1), whitening)
            total = np.einsum("k,kab->ab", (dof + mass) / len(mass), precision)
            inverse = linalg.inverse_lower(linalg.cholesky(total[None]))[0]
            return np.asarray(inverse.T @ inverse)

        return maximised(self.scale_matrix, self.dof, d + 1.0, len(mass), evidence, expectation)

    def with_learned_covariance(self, stats: GaussianStats) -> "NormalInverseWishart":
        """The prior whose scale matrix and degrees of freedom suit the components best (`covariance_prior`)."""
        found = self.learned_covariance(stats.mass, stats.mass, stats.mean, stats.scatter)
        return type(self)(self.mean, self.mean_strength, found.dof, found.scale)

    def with_mean_strength(self, strength: float) -> "NormalInverseWishart":
        """The same prior, whose mean is worth `strength` points."""
        return type(self)(self.mean, strength, self.dof, self.scale_matrix)

    def expected_covariance(self) -> Array:
        """The scale matrix (D, D)."""
        return self.scale_matrix

    def log_caps(self, stats: GaussianStats, x: Points, further: Array) -> Array:
        """The peak of the Student t with the block's own scale, and mean_strength and dof raised by the further points.

        The scale only grows with further points, and the peak falls with it.
        """
        d, params = self.n_features, self.posterior(stats)
        log_det = linalg.log_determinant(linalg.cholesky(params.scale))
        strength, dof = params.mean_strength + further[:, None], params.dof + further[:, None]
        shape = linalg.log_gamma_ratio((dof - d + 1.0) / 2.0, d / 2.0)
        return np.asarray(shape - 0.5 * d * (np.log1p(1.0 / strength) + _LOG_PI) - 0.5 * log_det)

    # Points with holes

    def marginal_log_predictive(self, params: GaussianParams, x: Array) -> Array:
        """The Student t of the observed features, with the same dof - D + 1 degrees of freedom. Exact."""
        out = np.empty((len(x), params.dof.size))
        dof = params.dof - self.n_features + 1
        shrink = params.mean_strength / (params.mean_strength + 1.0)
        for rows, observed in patterns(x):
            seen = np.flatnonzero(observed)
            p = seen.size
            factors = linalg.cholesky(params.scale[:, seen[:, None], seen])
            constant = linalg.log_gamma_ratio(dof / 2, p / 2) + 0.5 * p * np.log(shrink / np.pi)
            constant -= 0.5 * linalg.log_determinant(factors)
            distance = whitened_quadratic(x[rows][:, seen], params.mean[:, seen], linalg.inverse_lower(factors))
            out[rows] = constant - 0.5 * (dof + p) * np.log1p(shrink * distance)
        return out

    def _mean_covariance(self, params: GaussianParams) -> Array:
        """E[S] (K, D, D); for a dof of at most D + 2, where it is large or infinite, the scale itself."""
        covariance: Array = params.scale / np.maximum(params.dof - self.n_features - 1, 1.0)[:, None, None]
        return covariance

    def expected_stats(self, params: GaussianParams, x: Array, resp: Array) -> GaussianStats:
        """Holes are filled by their conditional means, and add their conditional covariance to the scatter."""
        filled, spread = conditional(params.mean, self._mean_covariance(params), x)
        return GaussianStats(resp.copy(), filled, resp[:, None, None] * spread)

    def drawn_missing(self, params: GaussianParams, x: Array, rng: np.random.Generator) -> Array:
        """The point (D,) with its holes drawn from the conditional normal."""
        filled, spread = conditional(params.mean, self._mean_covariance(params), x)
        return normal_draw(filled[0], spread[0], rng)

    # Predictive cache and kernels of streams

    def _empty_cache(self) -> GaussianCache:
        """The cache of one component without points under a diagonal scale matrix, to the bit, without a factorisation:
        a search for a prior tries hundreds of such."""
        d, deviation = self.n_features, np.sqrt(self.scale_matrix.diagonal())
        root = np.zeros((1, d, d))
        root.reshape(-1)[:: d + 1] = 1.0 / deviation
        strength, log_det = np.array([self.mean_strength]), np.array([2.0 * np.log(deviation).sum()])
        log_shrink = -np.log1p(1.0 / strength)
        log_norm = _gamma_ratio(self.dof, d) + 0.5 * (d * (log_shrink - _LOG_PI) - log_det)
        return GaussianCache(self.mean[None].copy(), strength, np.array([self.dof]), root, log_det, log_norm)

    def cache_of(self, stats: GaussianStats) -> GaussianCache:
        """The cache of statistics, row by row: a Cholesky factor and its inverse a component."""
        if len(stats.mass) == 1 and not stats.mass[0] and _is_diagonal(self.scale_matrix):
            return self._empty_cache()
        d = self.n_features
        params = self.posterior(stats)
        factors = linalg.cholesky(params.scale)
        log_det = linalg.log_determinant(factors)
        log_shrink = -np.log1p(1.0 / params.mean_strength)
        gammas = linalg.log_gamma_ratio((params.dof - d + 1) / 2, d / 2)
        log_norm = gammas + 0.5 * (d * (log_shrink - _LOG_PI) - log_det)
        return GaussianCache(
            params.mean, params.mean_strength, params.dof, linalg.inverse_lower(factors), log_det, log_norm
        )

    def cache_scales(self, cache: GaussianCache) -> CacheScales:
        """The least deviation from the largest element of the inverse factor, which has to be triangular."""
        return scales_of_roots(cache.root, cache.dof)

    def kernel_constants(self) -> GaussianConstants:
        """The prior's own numbers."""
        matrix = self.scale_matrix
        return GaussianConstants(matrix.copy(), self.mean.copy(), self.mean_strength, _is_diagonal(matrix))

    def renewal(self, stats: GaussianStats, cache: GaussianCache, n: int) -> Call | None:
        """The kernel that makes the first n rows of `cache` again, up to `FEW_FEATURES` features."""
        if self.n_features > FEW_FEATURES:
            return None
        given = (self.mean, self.mean_strength, self.dof, self.scale_matrix)
        return renew_gaussian, (stats, *given, cache, n)

    def deferred_rows(self, capacity: int) -> int:
        """Rows, of `capacity`, whose outer products wait: all or none."""
        return capacity if self.n_features >= LEAST_DEFERRED else 0

    def join_ceiling(self, *given: Any) -> Call:
        """The kernel that bounds the gain of any join from above."""
        from shoal.families.located.join_ceiling_kernel import gaussian_ceiling

        return gaussian_ceiling, (*given, self.mean, self.mean_strength, self.dof, self.scale_matrix)

    def join_ceiling_is_quick(self, n_pairs: int, n_components: int) -> bool:
        """Whether the kernel takes less time than NumPy for its candidates: it factors matrices."""
        d = self.n_features
        return n_pairs * d * d <= MOST_PRODUCTS and n_components * d**3 <= MOST_FACTORS

    @property
    def prior_points(self) -> float:
        """Points that the prior's log gammas count for."""
        return self.dof


@lru_cache(maxsize=256)
def _gamma_ratio(dof: float, d: int) -> Array:
    return read_only(linalg.log_gamma_ratio(np.array([(dof - d + 1) / 2]), d / 2))


def _is_diagonal(matrix: Array) -> bool:
    return bool(np.count_nonzero(matrix) == np.count_nonzero(matrix.diagonal()))


def log_predictive_in_blocks(family: AnyFamily, params: GaussianParams, x: Array) -> Array:
    """`log_predictive` (N, K) of a family, with the factors of `FACTOR_BLOCK` elements of components at a time."""
    out = np.empty((x.shape[0], params.dof.size))
    for rows in row_blocks(params.dof.size, family.n_features**2, FACTOR_BLOCK):
        out[:, rows] = family.log_predictive_from(family.predictive(take(params, rows)), x)
    return out


def scales_of_roots(root: Array, dof: Array) -> CacheScales:
    """Scales of a cache with inverse factors `root` (K, D, D), which have to be triangular, and `dof` (K,)."""
    largest = np.abs(root).reshape(len(root), -1).max(axis=1)
    upright = (np.triu(root, 1) == 0).all() & (np.diagonal(root, axis1=1, axis2=2) > 0)
    return CacheScales(1.0 / (largest * np.sqrt(dof)), 1.0, upright)
