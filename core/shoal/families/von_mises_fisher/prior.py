"""Unit vectors, such as embeddings: von Mises-Fisher components of unknown directions and concentrations.

Mardia and Jupp (2000), "Directional Statistics", section 9.3: F(x | m, k) = C(k) exp(k m'x) with respect to the surface
of the unit sphere. k has a prior on a grid of values k_g, the direction m the von Mises-Fisher prior vMF(m0, k0):

    p(m, k_g) = w_g C(k0) exp(k0 m0'm)   natural   (sum r x, sum r)   statistic   (k m, log C(k))

and log partition A(S, n) = log sum_g w_g C(k_g)^n C(k0) / C(|k_g S + k0 m0|). So the prior is conjugate: evidence,
joins and predictive densities are exact, and statistics do not depend on the prior. With one value, k is known.

w_g is a normal density of log k_g, of deviation `spread` about `concentration`. Refinements learn both, and k0 and m0.
"""

from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.errors import SettingError
from shoal.families.base import take
from shoal.families.counts import AdditiveFamily
from shoal.families.hyperparameters import Hyperparameters, as_positive, as_real
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.prior_choices import LEAST_MASS, Choice, choice_near
from shoal.families.von_mises_fisher.bessel import (
    LOG_2PI,
    log_normaliser,
    log_normaliser_of_square,
    mean_length,
    mean_length_over,
    order_of,
)
from shoal.families.von_mises_fisher.sampling import drawn
from shoal.families.von_mises_fisher.types import (
    VonMisesFisherCache,
    VonMisesFisherConstants,
    VonMisesFisherDraw,
    VonMisesFisherParams,
    VonMisesFisherPredictive,
    VonMisesFisherStats,
)
from shoal.kernels.distances import row_blocks
from shoal.kernels.log_sum_exp import log_sum_exp
from shoal.points.arrays import Array
from shoal.points.domains import UNIT, Domain

FIRST_SPREAD = 0.5
"""Of priors before any component is known."""
_SPREADS = (0.02, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4)
"""Standard deviations of log concentrations that are tried. The least leaves the middle one alone."""
_STEPS = tuple(2.0 ** (j / 4) for j in range(-8, 9))
"""Factors that move the middle by whole steps of the grid: the other values stay, and evidence changes smoothly."""
_PARTS_OF_STEP = tuple(2.0 ** (j / 16) for j in range(-2, 3))
_STRENGTHS, _STRENGTHS_COARSE = range(9), range(0, 9, 2)
_MULTIPLIERS = tuple(2.0**j for j in range(-4, 5))
_LEAST_LENGTH, _MOST_LENGTH = 1e-9, 1.0 - 1e-3
_EARLIER_FIELDS = frozenset({"step_offset", "step_power", "n_points"})
"""Of priors stored by shoal 0.1.0, which learned directions by stochastic gradient."""
_GRID = np.arange(-12, 13) / 4.0
"""log2 of concentrations over `concentration`. Half a step is 9 % of a concentration."""

_BLOCK = 1 << 18


class Grid(NamedTuple):
    """The concentrations that components may have."""

    concentration: Array  # (G,)
    log_share: Array  # (G,) log w_g
    log_front: Array  # (G,) log C(k_g)


class VonMisesFisher(AdditiveFamily, Hyperparameters):
    """x ~ vMF(m, k) with m ~ vMF(mean, mean_concentration): mean (D,) a unit vector, D >= 2, mean_concentration >= 0.

    With mean_concentration 0 all directions are alike. `concentration` > 0 is the middle of the prior of k, and
    `spread` >= 0 the standard deviation of log k. Values from an eighth to eight times the middle are possible. With
    the spread 0, k is known. Raises SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {
        "mean": "mean",
        "mean_concentration": "mean_concentration",
        "concentration": "concentration",
        "spread": "spread",
    }
    name: ClassVar[str] = "von_mises_fisher"
    description: ClassVar[str] = "unit vectors about a direction"
    earlier_stats_fields: ClassVar[tuple[str, ...]] = ("mass", "estimate", "seen")
    predicts_by_kernel: ClassVar[bool] = True
    cache_kind: ClassVar[type[Any]] = VonMisesFisherCache
    domain: ClassVar[Domain] = UNIT
    fewest_features: ClassVar[int] = 2
    SIGNED: ClassVar[tuple[str, ...]] = ("total",)
    mean: Array
    mean_concentration: float
    concentration: float
    spread: float

    def __init__(
        self, mean: ArrayLike, mean_concentration: ArrayLike, concentration: ArrayLike, spread: ArrayLike = 0.0
    ) -> None:
        self._freeze(
            mean=_direction(mean),
            mean_concentration=_not_negative("mean_concentration", mean_concentration),
            concentration=as_positive("concentration", concentration),
            spread=_not_negative("spread", spread),
        )

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Self:
        """Inverse of `to_arrays`. An earlier prior has no spread, and settings of gradient steps that are left out."""
        given = {name: value for name, value in arrays.items() if name not in _EARLIER_FIELDS}
        return super().from_arrays({"spread": np.zeros(()), **given})

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """All directions alike; a concentration of about one a feature."""
        d = max(n_features, 2)
        return cls(np.eye(1, d)[0], 0.0, float(d), 1.0)

    @classmethod
    def candidate_priors(cls, rows: Array, thorough: bool) -> list[Self]:
        """The concentration goes from that of all `rows` (N, D) as one component, or D / 4 if that is more, to 256
        times it. Directions spread about the mean as the rows do."""
        d, mean = rows.shape[1], rows.mean(axis=0)
        own = float(np.linalg.norm(mean))
        centre = mean / own if own > _LEAST_LENGTH else np.eye(1, d)[0]
        whole = _concentration_of(own, d)
        least = max(whole, 0.25 * d)
        chosen = _STRENGTHS if thorough else _STRENGTHS_COARSE
        strength = whole if own > _LEAST_LENGTH else 0.0
        return [cls(centre, strength, least * 2.0**k, FIRST_SPREAD) for k in chosen]

    @property
    def n_features(self) -> int:
        """D."""
        return self.mean.size

    @property
    def n_free_parameters(self) -> int:
        """D: a direction and a concentration."""
        return self.n_features

    @cached_property
    def grid(self) -> Grid:
        """The concentrations, read-only."""
        if self.spread == 0.0:
            values, log_share = np.array([self.concentration]), np.zeros(1)
        else:
            values = self.concentration * 2.0**_GRID
            log_share = -0.5 * (_GRID * np.log(2.0) / self.spread) ** 2
            log_share -= log_sum_exp(log_share)
        return Grid(values, log_share, log_normaliser(self.n_features, values))

    @cached_property
    def log_front_of_mean(self) -> float:
        """log C(k0), nats."""
        return float(log_normaliser(self.n_features, self.mean_concentration))

    # Statistics

    def empty_stats(self, n_components: int) -> VonMisesFisherStats:
        """Statistics of components that have seen nothing."""
        return VonMisesFisherStats(np.zeros(n_components), np.zeros((n_components, self.n_features)))

    def suffstats(self, x: Array, resp: Array) -> VonMisesFisherStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        return VonMisesFisherStats(resp.sum(axis=0), np.ascontiguousarray(resp.T @ x))

    def posterior(self, stats: VonMisesFisherStats) -> VonMisesFisherParams:
        """Parameters given the statistics: these, as the natural parameters of the prior are 0."""
        return VonMisesFisherParams(stats.total.copy(), stats.mass.copy())

    # The exponential family

    def natural(self, params: VonMisesFisherParams) -> Array:
        """(K, D + 1)."""
        return np.concatenate([params.total, params.mass[:, None]], axis=1)

    def from_natural(self, natural: Array) -> VonMisesFisherParams:
        """Inverse of `natural`."""
        return VonMisesFisherParams(natural[:, :-1].copy(), natural[:, -1].copy())

    def log_joint(self, params: VonMisesFisherParams) -> Array:
        """log of the summands of the partition function (K, G): what speaks for each concentration."""
        grid = self.grid
        ends = log_normaliser_of_square(
            self.n_features, self.square_lengths(_square(params.total), params.total @ self.mean)
        )
        return np.asarray(grid.log_share + params.mass[:, None] * grid.log_front + self.log_front_of_mean - ends)

    def square_lengths(self, square: Array, along: Array) -> Array:
        """|k_g S + k0 m0|^2 (..., G) of |S|^2 (...) and m0'S (...)."""
        k, k0 = self.grid.concentration, self.mean_concentration
        return np.maximum(k * k * square[..., None] + (2.0 * k0 * k) * along[..., None] + k0 * k0, 0.0)

    def log_partition(self, params: VonMisesFisherParams) -> Array:
        """A (K,)."""
        return log_sum_exp(self.log_joint(params))[:, 0]

    def mean_params(self, params: VonMisesFisherParams) -> Array:
        """E[k m] and E[log C(k)] (K, D + 1)."""
        return self.log_partition_with_gradient(params)[1]

    def log_partition_with_gradient(self, params: VonMisesFisherParams) -> tuple[Array, Array]:
        """`log_partition` and `mean_params`."""
        log_partition, share, over = self._given_each(params)
        k = self.grid.concentration
        own, common = (share * over * k * k).sum(axis=1), (share * over * k).sum(axis=1) * self.mean_concentration
        vector = own[:, None] * params.total + common[:, None] * self.mean
        return log_partition, np.concatenate([vector, (share @ self.grid.log_front)[:, None]], axis=1)

    def _given_each(self, params: VonMisesFisherParams) -> tuple[Array, Array, Array]:
        """A (K,), probabilities (K, G) of the concentrations, and A(R) / R (K, G), R being |k_g S + k0 m0|."""
        joint = self.log_joint(params)
        log_partition = log_sum_exp(joint)
        squares = self.square_lengths(_square(params.total), params.total @ self.mean)
        return log_partition[:, 0], np.exp(joint - log_partition), mean_length_over(self.n_features, np.sqrt(squares))

    def log_carrier(self, stats: VonMisesFisherStats) -> Array:
        """Zeros (K,)."""
        return np.zeros_like(stats.mass)

    # Points

    def expected_log_likelihood(self, params: VonMisesFisherParams, x: Array) -> Array:
        """E_q[log F(x | m, k)] (N, K)."""
        slope = self.mean_params(params)
        return np.asarray(x @ slope[:, :-1].T + slope[:, -1])

    def predictive(self, params: VonMisesFisherParams) -> VonMisesFisherPredictive:
        """The sum that a point is added to, and constants."""
        joint = self.log_joint(params)
        front = joint + log_normaliser_of_square(
            self.n_features, self.square_lengths(square := _square(params.total), along := params.total @ self.mean)
        )
        front += self.grid.log_front - log_sum_exp(joint)
        return VonMisesFisherPredictive(params.total, square, along, front)

    def log_predictive_from(self, predictive: VonMisesFisherPredictive, x: Array) -> Array:
        """log density (N, K)."""
        out = np.empty((len(x), len(predictive.square)))
        for rows in row_blocks(len(x), max(1, predictive.log_front.size), _BLOCK):
            own = np.square(x[rows]).sum(axis=1)[:, None]
            square = predictive.square + 2.0 * (x[rows] @ predictive.total.T) + own
            along = predictive.along + (x[rows] @ self.mean)[:, None]
            ends = log_normaliser_of_square(self.n_features, self.square_lengths(square, along))
            out[rows] = log_sum_exp(predictive.log_front - ends)[..., 0]
        return out

    def log_predictive(self, params: VonMisesFisherParams, x: Array) -> Array:
        """log density (N, K)."""
        return self.log_predictive_from(self.predictive(params), x)

    def log_likelihood(self, parameters: VonMisesFisherDraw, x: Array) -> Array:
        """log F(x | m, k) (N, K)."""
        front = log_normaliser(self.n_features, parameters.concentration)
        return np.asarray(front + x @ (parameters.concentration[:, None] * parameters.direction).T)

    # Moments

    def predictive_mean(self, params: VonMisesFisherParams) -> Array:
        """(K, D)."""
        _, share, over = self._given_each(params)
        k, length = self.grid.concentration, mean_length(self.n_features, self.grid.concentration)
        own = (share * over * length * k).sum(axis=1)
        common = (share * over * length).sum(axis=1) * self.mean_concentration
        return np.asarray(own[:, None] * params.total + common[:, None] * self.mean)

    def predictive_variance(self, params: VonMisesFisherParams) -> Array:
        """(K, D)."""
        across, *weights = self._second_moment(params)
        s, m0, mean = params.total, self.mean, self.predictive_mean(params)
        ss, sm, mm = (weight[:, None] for weight in weights)
        whole = across[:, None] + ss * s * s + 2.0 * sm * s * m0 + mm * m0 * m0
        return np.maximum(whole - mean * mean, 0.0)  # of equal points rounding is all that is left

    def predictive_covariance(self, params: VonMisesFisherParams) -> Array:
        """(K, D, D)."""
        across, *weights = self._second_moment(params)
        s, m0, mean = params.total, self.mean, self.predictive_mean(params)
        ss, sm, mm = (weight[:, None, None] for weight in weights)
        mixed = s[:, :, None] * m0
        whole = ss * s[:, :, None] * s[:, None, :] + sm * (mixed + mixed.transpose(0, 2, 1)) + mm * np.outer(m0, m0)
        whole -= mean[:, :, None] * mean[:, None, :]
        diagonal = np.arange(self.n_features)
        whole[:, diagonal, diagonal] += across[:, None]
        return np.asarray(whole)

    def _second_moment(self, params: VonMisesFisherParams) -> tuple[Array, Array, Array, Array]:
        """E x x' = a I + b S S' + c (S m0' + m0 S') + e m0 m0': a, b, c, e (K,).

        Given k it is that of a point given m, A(k) / k I + (1 - D A(k) / k) m m', averaged over m.
        """
        d, k, k0 = self.n_features, self.grid.concentration, self.mean_concentration
        _, share, spread = self._given_each(params)
        within = mean_length_over(d, k)
        square = self.square_lengths(_square(params.total), params.total @ self.mean)
        rest = share * (1.0 - d * within)
        turned = np.divide(1.0 - d * spread, square, out=np.zeros_like(square), where=square > 0.0) * rest
        across = (share * within + rest * spread).sum(axis=1)
        return across, turned @ (k * k), k0 * (turned @ k), k0 * k0 * turned.sum(axis=1)

    def sample_parameters(self, params: VonMisesFisherParams, rng: np.random.Generator) -> VonMisesFisherDraw:
        """A concentration, then a direction given it."""
        _, share, _ = self._given_each(params)
        chosen = (rng.random((len(share), 1)) > np.cumsum(share, axis=1)[:, :-1]).sum(axis=1)
        k = self.grid.concentration[chosen]
        natural = k[:, None] * params.total + self.mean_concentration * self.mean
        length = np.linalg.norm(natural, axis=1)
        natural[length == 0.0, 0] = 1.0
        unit = natural / np.where(length > 0.0, length, 1.0)[:, None]
        return VonMisesFisherDraw(drawn(unit, length, 1, rng)[:, 0], k)

    def sample_points(self, parameters: VonMisesFisherDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        return drawn(parameters.direction, parameters.concentration, n, rng)

    # Where components and points lie

    def positions(self, stats: VonMisesFisherStats) -> Array:
        """(K, D) directions of the components."""
        length = np.linalg.norm(stats.total, axis=1, keepdims=True)
        unit: Array = np.divide(stats.total, length, out=np.zeros_like(stats.total), where=length > 0.0)
        return unit

    @staticmethod
    def coordinates(x: Array) -> Array:
        """The points themselves."""
        return x

    # Abilities that engines ask for

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """t(x) = (x, 1)."""
        return Statistics(np.concatenate([x, np.ones((len(x), 1))], axis=1), np.zeros(len(x)))

    def prior_choices(self, stats: VonMisesFisherStats, n_components: int) -> Choice | None:
        """The middle concentration of components, its spread, and how far directions are from their mean.

        The last is searched for about the estimate of Banerjee et al. from the directions of components.
        """
        units = self.positions(take(stats, stats.mass > LEAST_MASS))
        mean = units.mean(axis=0) if len(units) else np.zeros(self.n_features)
        own = float(np.linalg.norm(mean))
        centre = mean / own if own > _LEAST_LENGTH else self.mean
        about = _concentration_of(own, self.n_features)

        def build(steps: float, part: float, spread: float, strength: float) -> Any:
            return type(self)(centre, strength * about, steps * part * self.concentration, spread)

        start = (1.0, 1.0, self.spread, self.mean_concentration / about)
        return choice_near(build, (_STEPS, _PARTS_OF_STEP, _SPREADS, _MULTIPLIERS), *start)

    def log_caps(self, stats: VonMisesFisherStats, x: Array, further: Array) -> Array:
        """The largest density at the direction itself: a mixture of densities is at most the largest of them."""
        grid = self.grid
        return np.full((len(x), len(stats.mass)), float((grid.log_front + grid.concentration).max()))

    def stats_from_earlier(self, mass: Array, estimate: Array, seen: Array) -> VonMisesFisherStats:
        """Statistics from the masses (K,) and estimated directions (K, D) of shoal 0.1.0: those of as many points, with
        the mean that the direction and the concentration expect."""
        length = float(mean_length(self.n_features, self.concentration))
        return VonMisesFisherStats(mass, (length * mass)[:, None] * estimate)

    # Predictive cache and kernels of streams

    def cache_of(self, stats: VonMisesFisherStats) -> VonMisesFisherCache:
        """The predictive cache of statistics, row by row."""
        params = self.posterior(stats)
        made, peak = self.predictive(params), self.log_joint(params).argmax(axis=1)
        return VonMisesFisherCache(made.square, made.along, peak.astype(np.float64), made.log_front)

    def kernel_constants(self) -> VonMisesFisherConstants:
        """The prior as kernels read it."""
        d, grid = self.n_features, self.grid
        order, above = order_of(d)
        ends = (order, order + above, -0.5 * d * LOG_2PI)
        return VonMisesFisherConstants(self.mean, self.mean_concentration, self.log_front_of_mean, *grid, *ends)


def _square(total: Array) -> Array:
    return np.asarray(np.einsum("kd,kd->k", total, total))


def _not_negative(what: str, value: ArrayLike) -> float:
    number = as_real(what, value)
    return 0.0 if not number.any() else as_positive(what, number)


def _direction(value: ArrayLike) -> Array:
    mean = as_real("mean", value)
    if mean.ndim != 1 or mean.size < 2:
        raise SettingError(f"mean has shape {mean.shape}; give a vector of at least two numbers")
    length = float(np.linalg.norm(mean))
    if not abs(length - 1.0) < 1e-4:
        raise SettingError(f"mean has length {length!r}; give a unit vector")
    return np.asarray(mean if abs(length - 1.0) < 1e-12 else mean / length)


def _concentration_of(length: float, n_features: int) -> float:
    """The concentration whose mean has this length, about (Banerjee et al. 2005, "Clustering on the unit hypersphere
    using von Mises-Fisher distributions", eq. 4.4)."""
    r = min(max(length, _LEAST_LENGTH), _MOST_LENGTH)
    return r * (n_features - r**2) / (1.0 - r**2)
