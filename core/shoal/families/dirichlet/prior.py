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
from scipy.special import psi

from shoal.families.base import take
from shoal.families.counts import AdditiveFamily
from shoal.families.dirichlet import laplace
from shoal.families.dirichlet.types import (
    LEAST_SHARE,
    DirichletCache,
    DirichletDraw,
    DirichletParams,
    DirichletPredictive,
    DirichletStats,
)
from shoal.families.feature_contrast import other_parts
from shoal.families.gamma_draws import log_gamma_draws
from shoal.families.hyperparameters import Hyperparameters, as_positive, as_pseudo_counts
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.prior_choices import LEAST_MASS, Choice, choice_near
from shoal.families.steps_kernel import SCRATCH_ROWS
from shoal.kernels.distances import row_blocks
from shoal.points.arrays import Array
from shoal.points.domains import PROPORTIONS, Domain

FIRST_SPREAD = 0.1
"""Of priors before any component is known. With more, one pass lets a component fall in precision to hold several."""
_SPREADS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
"""Deviations of precisions that are tried, over their mean."""
_STEPS = tuple(2.0 ** (j / 4) for j in range(-8, 9))
_MULTIPLIERS = tuple(2.0 ** (j / 2) for j in range(-8, 9))
_STRENGTHS, _STRENGTHS_COARSE = range(1, 9), range(1, 9, 2)
_EARLIER_FIELDS = frozenset({"step_offset", "step_power", "n_points"})
"""Of priors stored by shoal 0.1.0, which learned means by stochastic gradient."""
_LEAST_SPREAD = 1e-3
_MODE_ROUNDING = 2e-14
"""Relative rounding of the cache, divided by the precision; up to 5e-15 was measured."""
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
    earlier_stats_fields: ClassVar[tuple[str, ...]] = ("mass", "estimate", "seen")
    predicts_by_kernel: ClassVar[bool] = True
    cache_kind: ClassVar[type[Any]] = DirichletCache
    domain: ClassVar[Domain] = PROPORTIONS
    fewest_features: ClassVar[int] = 2
    SIGNED: ClassVar[tuple[str, ...]] = ("total",)
    precision: float
    pseudo_counts: Array
    spread: float

    def __init__(self, precision: ArrayLike, pseudo_counts: ArrayLike, spread: ArrayLike = FIRST_SPREAD) -> None:
        self._freeze(
            precision=as_positive("precision", precision),
            pseudo_counts=as_pseudo_counts(pseudo_counts),
            spread=as_positive("spread", spread, above=0.999 * _LEAST_SPREAD),
        )

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Self:
        """Inverse of `to_arrays`. An earlier prior has no spread, and settings of gradient steps that are left out."""
        given = {name: value for name, value in arrays.items() if name not in _EARLIER_FIELDS}
        return super().from_arrays({"spread": np.asarray(FIRST_SPREAD), **given})

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
        """Precisions from twice to 256 times that of all `rows` (N, D).

        With each, pseudo counts that are alike: one each, or with that precision as their sum, so that means of
        components lie about as far apart as the rows.
        """
        whole, d = _precision_of(rows), rows.shape[1]
        strengths = _STRENGTHS if thorough else _STRENGTHS_COARSE
        counts = sorted({whole / d, 1.0})
        return [cls(whole * 2.0**k, np.full(d, count), FIRST_SPREAD) for k in strengths for count in counts]

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
        return DirichletStats(resp.sum(axis=0), np.ascontiguousarray(resp.T @ _log_shares(x)))

    def posterior(self, stats: DirichletStats) -> DirichletParams:
        """Parameters given the statistics: these, as the natural parameters of the prior are 0."""
        return DirichletParams(stats.total.copy(), stats.mass.copy())

    def posterior_mode(self, stats: DirichletStats | DirichletParams) -> Array:
        """(K, D): alpha where the density of log alpha is largest."""
        return posterior_modes(self, np.array(stats.total), np.array(stats.mass))

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
        return log_partitions(self, total, mass, posterior_modes(self, total, mass))

    def mean_params(self, params: DirichletParams) -> Array:
        """E[alpha] and -E[log B(alpha)] (K, D + 1), to the same order as `log_partition`."""
        return self.log_partition_with_gradient(params)[1]

    def log_partition_with_gradient(self, params: DirichletParams) -> tuple[Array, Array]:
        """A (K,) and its gradient (K, D + 1)."""
        total, mass = np.array(params.total), np.array(params.mass)
        alpha = posterior_modes(self, total, mass)
        return log_partitions(self, total, mass, alpha), gradients(self, mass, alpha)

    def log_carrier(self, stats: DirichletStats) -> Array:
        """Minus the sum of log x (K,)."""
        return np.asarray(-stats.total.sum(axis=1))

    # Points

    def expected_log_likelihood(self, params: DirichletParams, x: Array) -> Array:
        """E_q[log F(x | alpha)] (N, K)."""
        slope, logs = self.mean_params(params), _log_shares(x)
        return np.asarray(logs @ (slope[:, :-1] - 1.0).T + slope[:, -1])

    def predictive(self, params: DirichletParams) -> DirichletPredictive:
        """Modes and log partitions, from which scoring a point begins."""
        total, mass = np.array(params.total), np.array(params.mass)
        alpha = posterior_modes(self, total, mass)
        return DirichletPredictive(total, mass, alpha, log_partitions(self, total, mass, alpha))

    def log_predictive_from(self, predictive: DirichletPredictive, x: Array) -> Array:
        """log density (N, K): the log partition with the point less that without it."""
        logs, k = _log_shares(x), len(predictive.mass)
        out = np.empty((len(x), k))
        for rows in row_blocks(len(x), max(1, predictive.alpha.size), _BLOCK):
            own = logs[rows]
            total = (predictive.total + own[:, None, :]).reshape(-1, self.n_features)
            mass = np.tile(predictive.mass + 1.0, len(own))
            begin = np.tile(predictive.alpha, (len(own), 1))
            alpha = posterior_modes(self, total, mass, begin)
            value = log_partitions(self, total, mass, alpha).reshape(len(own), k)
            out[rows] = value - predictive.log_partition - own.sum(axis=1)[:, None]
        return out

    def log_predictive(self, params: DirichletParams, x: Array) -> Array:
        """log density (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def log_likelihood(self, parameters: DirichletDraw, x: Array) -> Array:
        """log Dir(x | alpha) (N, K)."""
        return np.asarray(_log_shares(x) @ (parameters.alpha - 1.0).T - laplace.log_beta(parameters.alpha))

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
        mean = gradients(self, np.array(params.mass), mode)[:, :-1]
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
        logs = log_gamma_draws(alpha, rng)
        share = np.exp(logs - logs.max(axis=2, keepdims=True))
        return np.asarray(share / share.sum(axis=2, keepdims=True))

    # Where components and points lie

    def positions(self, stats: DirichletStats) -> Array:
        """(K, D) square roots of the geometric means of shares; between square roots distances are Hellinger's."""
        middle = stats.total / np.maximum(stats.mass, 1e-300)[:, None]
        root = np.exp(0.5 * (middle - middle.max(axis=1, keepdims=True)))
        return np.asarray(root / np.linalg.norm(root, axis=1, keepdims=True))

    @staticmethod
    def coordinates(x: Array) -> Array:
        """Square roots of shares."""
        return np.sqrt(x)

    # Abilities that engines ask for

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """t(x) = (log x, 1) and log h(x) = -sum log x."""
        logs = _log_shares(x)
        return Statistics(np.concatenate([logs, np.ones((len(x), 1))], axis=1), -logs.sum(axis=1))

    def prior_choices(self, stats: DirichletStats, n_components: int) -> Choice | None:
        """The mean precision of components, its spread, and how far means of components are from their mean.

        The mean is that of the components and of one uniform component. The last number is searched for about the
        precision of the components' means.
        """
        own = take(stats, stats.mass > LEAST_MASS)
        if not len(own.mass):
            return None
        theta = self.posterior_mode(own)
        theta /= theta.sum(axis=1, keepdims=True)
        centre = (theta.sum(axis=0) + 1.0 / self.n_features) / (len(theta) + 1.0)
        about = _precision_of(theta)

        def build(step: float, spread: float, strength: float) -> Any:
            return type(self)(step * self.precision, strength * about * centre, spread)

        start = (1.0, self.spread, float(self.pseudo_counts.sum()) / about)
        return choice_near(build, (_STEPS, _SPREADS, _MULTIPLIERS), *start)

    def stats_from_earlier(self, mass: Array, estimate: Array, seen: Array) -> DirichletStats:
        """Statistics from the masses (K,) and estimated log means (K, D) of shoal 0.1.0: those of as many points, with
        the mean logarithms that the estimate and the precision expect."""
        alpha = self.precision * np.exp(estimate - estimate.max(axis=1, keepdims=True))
        alpha *= self.precision / np.maximum(alpha.sum(axis=1, keepdims=True), 1e-300)
        alpha = np.maximum(alpha, 1e-100)
        expected = laplace.times_digamma(alpha) / alpha - psi(self.precision)
        return DirichletStats(mass, mass[:, None] * np.maximum(expected, np.log(LEAST_SHARE)))

    # Predictive cache and kernels of streams

    def cache_of(self, stats: DirichletStats) -> DirichletCache:
        """The predictive cache of statistics, row by row."""
        made, n = self.predictive(self.posterior(stats)), stats.mass + 1.0
        at = laplace.curvature(self.laplace_prior, n, made.alpha)
        expected = laplace.times_digamma(made.alpha) / made.alpha - psi(at.whole)[:, None]
        return DirichletCache(
            made.alpha, made.log_partition, -laplace.log_beta(made.alpha), expected, at.diagonal, at.bend / at.rest
        )

    def cache_rounding(self, cache: DirichletCache) -> Array:
        """See the function of that name. The mean of log x has an error of about 1e-16, which moves the mode of log
        alpha by that times the precision. So heavy components of equal points have precisions of few digits."""
        moved = _MODE_ROUNDING * cache.alpha.sum(axis=1)
        return np.asarray(np.where(moved < 1.0, moved, np.inf))

    def kernel_constants(self) -> laplace.Prior:
        """The prior as kernels read it."""
        return self.laplace_prior


def _log_shares(x: Array) -> Array:
    """log x, of shares at least `LEAST_SHARE`."""
    return np.asarray(np.log(np.maximum(x, LEAST_SHARE)))


def _precision_of(rows: Array) -> float:
    """The precision of rows (N, D) as draws of one Dirichlet distribution, by moments, to a power of two."""
    x = np.maximum(rows, LEAST_SHARE)
    mean, variance = x.mean(axis=0), float(x.var(axis=0).sum())
    whole = float((mean * (1.0 - mean)).sum()) / max(variance, 1e-9) - 1.0
    return float(2.0 ** np.round(np.log2(np.clip(whole, 0.5, 1e6))))


def posterior_modes(family: "DirichletObservations", total: Array, mass: Array, begin: Array | None = None) -> Array:
    """`laplace.mode`, by a kernel."""
    from shoal.families.dirichlet.laplace_kernel import modes

    prior = family.laplace_prior
    alpha = laplace.start(prior, total, mass) if begin is None else begin
    modes(prior, total, mass, alpha, np.zeros((SCRATCH_ROWS, family.n_features)))
    return alpha


def log_partitions(family: "DirichletObservations", total: Array, mass: Array, alpha: Array) -> Array:
    """`laplace.log_partition`, by a kernel."""
    from shoal.families.dirichlet.laplace_kernel import partitions

    out = np.empty(len(mass))
    partitions(family.laplace_prior, total, mass, alpha, np.zeros((SCRATCH_ROWS, family.n_features)), out)
    return out


def gradients(family: "DirichletObservations", mass: Array, alpha: Array) -> Array:
    """`laplace.gradient` as one array (K, D + 1), by a kernel."""
    from shoal.families.dirichlet import laplace_kernel

    out = np.empty((len(mass), family.n_features + 1))
    scratch = np.zeros((SCRATCH_ROWS, family.n_features))
    laplace_kernel.gradients(family.laplace_prior, mass, alpha, scratch, out)
    return out
