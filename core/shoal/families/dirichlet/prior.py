"""Proportions: Dirichlet components with a mean and a precision of their own.

F(x | alpha) = prod x_d^(alpha_d - 1) / B(alpha) (Lin 2013, eq. 23, with the precision unknown). alpha = precision *
theta, with theta ~ Dirichlet(c) and a gamma precision of the shape a:

    p(alpha)   natural   (sum r log x, sum r)   statistic   (alpha, -log B(alpha))   log h(x) = -sum log x

Sums of log x and masses are sufficient, whatever the prior. So components are joined and parted by adding and
subtracting, and evidence follows from one function of the sums, the log partition A; it has no closed form and is taken
by Laplace's method (`laplace`), in O(D). Everything else is derived from A, as in conjugate families.

Why not by stochastic gradient, as `dirichlet_gradient` is learnt: a step along the natural
gradient, of the length 1 / mass, in the mean parameters E[log x] is the running mean of log x (Sato 2001; Hoffman et
al. 2013, section 2.3). The sums are thus what that method would hold as its state. What remains is the estimate that
they imply. A few steps of Newton's method give it exactly, where gradients in other coordinates follow with a lag.

Refinements learn the mean of the precision, its spread, and the pseudo counts c.
"""

from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.families.counts import AdditiveFamily
from shoal.families.dirichlet import capabilities, laplace
from shoal.families.dirichlet.capabilities import log_shares
from shoal.families.dirichlet.types import (
    DirichletCache,
    DirichletDraw,
    DirichletParams,
    DirichletPredictive,
    DirichletStats,
)
from shoal.families.hyperparameters import Hyperparameters, as_positive, as_pseudo_counts
from shoal.families.telling import other_parts
from shoal.kernels.distances import row_blocks
from shoal.points.arrays import Array
from shoal.points.domains import PROPORTIONS, Domain

_STEPS = frozenset({"step_offset", "step_power", "n_points"})
"""Of priors stored by shoal 0.1.0, which learned means by stochastic gradient."""

_LEAST_SPREAD = 1e-3
_BLOCK = 1 << 18
_CHAIN = 12
"""Steps of a chain by which draws leave Laplace's approximation for the posterior itself."""


class DirichletObservations(AdditiveFamily, Hyperparameters):
    """x ~ Dir(alpha), alpha = p theta with theta ~ Dirichlet(pseudo_counts), pseudo_counts (D,) > 0, D >= 2.

    p has a gamma prior of mean `precision` > 0 whose standard deviation is `spread` >= 0.001 times that. Raises
    SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {"precision": "precision", "pseudo_counts": "pseudo_counts", "spread": "spread"}
    name: ClassVar[str] = "dirichlet"
    description: ClassVar[str] = "proportions that sum to one"
    domain: ClassVar[Domain] = PROPORTIONS
    SIGNED: ClassVar[tuple[str, ...]] = ("total",)
    precision: float
    pseudo_counts: Array
    spread: float

    def __init__(
        self, precision: ArrayLike, pseudo_counts: ArrayLike, spread: ArrayLike = capabilities.FIRST_SPREAD
    ) -> None:
        self._freeze(
            precision=as_positive("precision", precision),
            pseudo_counts=as_pseudo_counts(pseudo_counts),
            spread=as_positive("spread", spread, above=0.999 * _LEAST_SPREAD),
        )

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Self:
        """Inverse of `to_arrays`. An earlier prior has no spread, and settings of gradient steps that are left out."""
        given = {name: value for name, value in arrays.items() if name not in _STEPS}
        return super().from_arrays({"spread": np.asarray(capabilities.FIRST_SPREAD), **given})

    @classmethod
    def examples(cls) -> list[Self]:
        """A prior of the fewest features."""
        return [cls.weak(2)]

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """All means alike, precision ten a feature."""
        d = max(n_features, 2)
        return cls(10.0 * d, np.ones(d))

    @classmethod
    def candidate_priors(cls, rows: Array, thorough: bool) -> list[Self]:
        """See `capabilities.candidates`."""
        return [cls(*prior) for prior in capabilities.candidates(rows, thorough)]

    @property
    def n_features(self) -> int:
        """D."""
        return self.pseudo_counts.size

    @property
    def n_free_parameters(self) -> int:
        """D: a mean and a precision."""
        return self.n_features

    @cached_property
    def laplace_prior(self) -> laplace.Prior:
        """The prior as `laplace` reads it."""
        return laplace.prior_of(self.pseudo_counts, self.precision, self.spread**-2)

    # Statistics

    def empty_stats(self, n_components: int) -> DirichletStats:
        """Statistics of components that have seen nothing."""
        return DirichletStats(np.zeros(n_components), np.zeros((n_components, self.n_features)))

    def suffstats(self, x: Array, resp: Array) -> DirichletStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        return DirichletStats(resp.sum(axis=0), np.ascontiguousarray(resp.T @ log_shares(x)))

    def posterior(self, stats: DirichletStats) -> DirichletParams:
        """Parameters given the statistics: these, as the natural parameters of the prior are 0."""
        return DirichletParams(stats.total.copy(), stats.mass.copy())

    def posterior_mode(self, stats: DirichletStats | DirichletParams) -> Array:
        """(K, D): alpha where the density of log alpha is largest."""
        return capabilities.posterior_modes(self, np.array(stats.total), np.array(stats.mass))

    # The exponential family

    def natural(self, params: DirichletParams) -> Array:
        """(K, D + 1)."""
        return np.concatenate([params.total, params.mass[:, None]], axis=1)

    def from_natural(self, natural: Array) -> DirichletParams:
        """Inverse of `natural`."""
        return DirichletParams(natural[:, :-1].copy(), natural[:, -1].copy())

    def log_partition(self, params: DirichletParams) -> Array:
        """A (K,)."""
        total, mass = np.array(params.total), np.array(params.mass)
        return capabilities.log_partitions(self, total, mass, capabilities.posterior_modes(self, total, mass))

    def mean_params(self, params: DirichletParams) -> Array:
        """E[alpha] and -E[log B(alpha)] (K, D + 1), to the same order as `log_partition`."""
        return self.log_partition_with_gradient(params)[1]

    def log_partition_with_gradient(self, params: DirichletParams) -> tuple[Array, Array]:
        """A (K,) and its gradient (K, D + 1)."""
        total, mass = np.array(params.total), np.array(params.mass)
        alpha = capabilities.posterior_modes(self, total, mass)
        return capabilities.log_partitions(self, total, mass, alpha), capabilities.gradients(self, mass, alpha)

    def log_carrier(self, stats: DirichletStats) -> Array:
        """Minus the sum of log x (K,)."""
        return np.asarray(-stats.total.sum(axis=1))

    # Points

    def expected_log_likelihood(self, params: DirichletParams, x: Array) -> Array:
        """E_q[log F(x | alpha)] (N, K)."""
        slope, logs = self.mean_params(params), log_shares(x)
        return np.asarray(logs @ (slope[:, :-1] - 1.0).T + slope[:, -1])

    def predictive(self, params: DirichletParams) -> DirichletPredictive:
        """Modes and log partitions, from which scoring a point begins."""
        total, mass = np.array(params.total), np.array(params.mass)
        alpha = capabilities.posterior_modes(self, total, mass)
        return DirichletPredictive(total, mass, alpha, capabilities.log_partitions(self, total, mass, alpha))

    def log_predictive_from(self, predictive: DirichletPredictive, x: Array) -> Array:
        """log density (N, K): the log partition with the point less that without it."""
        logs, k = log_shares(x), len(predictive.mass)
        out = np.empty((len(x), k))
        for rows in row_blocks(len(x), max(1, predictive.alpha.size), _BLOCK):
            own = logs[rows]
            total = (predictive.total + own[:, None, :]).reshape(-1, self.n_features)
            mass = np.tile(predictive.mass + 1.0, len(own))
            begin = np.tile(predictive.alpha, (len(own), 1))
            alpha = capabilities.posterior_modes(self, total, mass, begin)
            value = capabilities.log_partitions(self, total, mass, alpha).reshape(len(own), k)
            out[rows] = value - predictive.log_partition - own.sum(axis=1)[:, None]
        return out

    def log_predictive(self, params: DirichletParams, x: Array) -> Array:
        """log density (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def log_likelihood(self, parameters: DirichletDraw, x: Array) -> Array:
        """log Dir(x | alpha) (N, K)."""
        return np.asarray(log_shares(x) @ (parameters.alpha - 1.0).T - laplace.log_beta(parameters.alpha))

    # Moments

    def predictive_mean(self, params: DirichletParams) -> Array:
        """(K, D), to second order in the deviations of alpha."""
        alpha, whole, spread = self._moments(params)
        shared = spread.sum(axis=2)
        mean = alpha / whole
        return np.asarray(mean - shared / whole**2 + mean * shared.sum(axis=1, keepdims=True) / whole**2)

    def predictive_variance(self, params: DirichletParams) -> Array:
        """(K, D)."""
        return np.array(np.diagonal(self.predictive_covariance(params), axis1=1, axis2=2))

    def predictive_covariance(self, params: DirichletParams) -> Array:
        """(K, D, D): that of means, and that of points given the mean, to second order in the deviations of alpha."""
        _, whole, spread = self._moments(params)
        mean, total = self.predictive_mean(params), whole[:, :, None]
        turned = spread - mean[:, :, None] * spread.sum(axis=1)[:, None, :]
        of_means = (turned - turned.sum(axis=2)[:, :, None] * mean[:, None, :]) / total**2
        within = -mean[:, :, None] * mean[:, None, :] - of_means
        diagonal = np.arange(self.n_features)
        within[:, diagonal, diagonal] += mean
        shrunk = 1.0 / (total + 1.0) + spread.sum(axis=(1, 2))[:, None, None] / (total + 1.0) ** 3
        return np.asarray(of_means + within * shrunk)

    def _moments(self, params: DirichletParams) -> tuple[Array, Array, Array]:
        """Expected alpha (K, D), its sum (K, 1), and covariances of alpha (K, D, D)."""
        mode = self.posterior_mode(params)
        mean = capabilities.gradients(self, np.array(params.mass), mode)[:, :-1]
        at = laplace.curvature(self.laplace_prior, params.mass, mode)
        along = mean * mode / at.diagonal
        covariance = (at.bend / at.rest)[:, None, None] * along[:, :, None] * along[:, None, :]
        diagonal = np.arange(self.n_features)
        covariance[:, diagonal, diagonal] += mean * mean / at.diagonal
        return mean, mean.sum(axis=1, keepdims=True), covariance

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """Parts that are larger, or smaller, than elsewhere."""
        return other_parts(value, rest)

    def sample_parameters(self, params: DirichletParams, rng: np.random.Generator) -> DirichletDraw:
        """A chain of independent proposals from Laplace's Gaussian of log alpha; without points, a draw of the prior.

        Each step is accepted as Metropolis and Hastings (1970) have it, so that the chain leads to the posterior.
        """
        prior, d = self.laplace_prior, self.n_features
        k = len(params.mass)
        theta = rng.standard_gamma(np.broadcast_to(self.pseudo_counts, (k, d)))
        theta = np.maximum(theta, 1e-290)
        drawn = theta / theta.sum(axis=1, keepdims=True)
        drawn *= rng.gamma(prior.shape, prior.precision / prior.shape, (k, 1))
        alpha = self.posterior_mode(params)
        at = laplace.curvature(prior, params.mass, alpha)
        now, log_ratio = alpha, np.full(k, -np.inf)
        for _ in range(_CHAIN):
            z = rng.standard_normal((k, d)) / np.sqrt(at.diagonal)
            move = z + alpha / at.diagonal * self._stretch(at, (alpha * z).sum(axis=1))[:, None]
            proposed = alpha * np.exp(move)
            quadratic = (at.diagonal * move * move).sum(axis=1) - at.bend * (alpha * move).sum(axis=1) ** 2
            ratio = laplace.log_integrand(prior, params.total, params.mass, proposed) + 0.5 * quadratic
            accepted = np.log(rng.random(k)) < ratio - log_ratio
            now = np.where(accepted[:, None], proposed, now)
            log_ratio = np.where(accepted, ratio, log_ratio)
        return DirichletDraw(np.where(params.mass[:, None] > 0.0, now, drawn))

    @staticmethod
    def _stretch(at: laplace.Curvature, along: Array) -> Array:
        """What turns draws of covariance 1 / diagonal into draws of the inverse of the whole matrix, (K,) times a
        vector of alpha / diagonal: (1 / sqrt(rest) - 1) / spread * alpha'z."""
        return np.asarray((1.0 / np.sqrt(at.rest) - 1.0) / at.spread * along)

    def sample_points(self, parameters: DirichletDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D), by gamma variables in logs: small alpha give shares below any float."""
        alpha = np.broadcast_to(parameters.alpha[:, None, :], (len(parameters.alpha), n, self.n_features))
        logs = np.log(rng.standard_gamma(alpha + 1.0)) + np.log(rng.random(alpha.shape)) / alpha
        share = np.exp(logs - logs.max(axis=2, keepdims=True))
        return np.asarray(share / share.sum(axis=2, keepdims=True))

    # Where components and points lie

    positions = capabilities.positions

    @staticmethod
    def coordinates(x: Array) -> Array:
        """Square roots of shares."""
        return np.sqrt(x)

    # Abilities that engines ask for

    natural_statistics = capabilities.natural_statistics
    prior_choices = capabilities.prior_choices
    stats_from_earlier = capabilities.stats_from_earlier
    earlier_stats_fields: ClassVar[tuple[str, ...]] = ("mass", "estimate", "seen")

    # Predictive cache and kernels of streams

    predicts_by_kernel: ClassVar[bool] = True
    cache_kind: ClassVar[type[Any]] = DirichletCache
    cache_of = capabilities.cache_of
    kernel_constants = capabilities.kernel_constants
