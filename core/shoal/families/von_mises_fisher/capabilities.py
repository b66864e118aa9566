"""Abilities of the von Mises-Fisher family that engines use, as methods of `VonMisesFisher`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.families.base import take
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.prior_choices import LEAST_MASS, Choice, choice_near
from shoal.families.von_mises_fisher.bessel import LOG_2PI, mean_length, order_of
from shoal.families.von_mises_fisher.types import (
    VonMisesFisherCache,
    VonMisesFisherConstants,
    VonMisesFisherStats,
)
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.von_mises_fisher.prior import VonMisesFisher

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


def natural_statistics(family: "VonMisesFisher", x: Array, origin: Origin) -> Statistics:
    """t(x) = (x, 1)."""
    return Statistics(np.concatenate([x, np.ones((len(x), 1))], axis=1), np.zeros(len(x)))


def positions(family: "VonMisesFisher", stats: VonMisesFisherStats) -> Array:
    """(K, D) directions of the components."""
    length = np.linalg.norm(stats.total, axis=1, keepdims=True)
    unit: Array = np.divide(stats.total, length, out=np.zeros_like(stats.total), where=length > 0.0)
    return unit


def concentration_of(length: float, n_features: int) -> float:
    """The concentration whose mean has this length, about (Banerjee et al. 2005, "Clustering on the unit hypersphere
    using von Mises-Fisher distributions", eq. 4.4)."""
    r = min(max(length, _LEAST_LENGTH), _MOST_LENGTH)
    return r * (n_features - r**2) / (1.0 - r**2)


def candidates(rows: Array, thorough: bool) -> list[tuple[Array, float, float, float]]:
    """Mean, its concentration, that of components and its spread. The concentration goes from that of all `rows` (N, D)
    as one component, or D / 4 if that is more, to 256 times it. Directions spread about the mean as the rows do."""
    d, mean = rows.shape[1], rows.mean(axis=0)
    own = float(np.linalg.norm(mean))
    centre = mean / own if own > _LEAST_LENGTH else np.eye(1, d)[0]
    whole = concentration_of(own, d)
    least = max(whole, 0.25 * d)
    chosen = _STRENGTHS if thorough else _STRENGTHS_COARSE
    return [(centre, whole if own > _LEAST_LENGTH else 0.0, least * 2.0**k, FIRST_SPREAD) for k in chosen]


def prior_choices(family: "VonMisesFisher", stats: VonMisesFisherStats, n_components: int) -> Choice | None:
    """The middle concentration of components, its spread, and how far directions are from their mean.

    The last is searched for about the estimate of Banerjee et al. from the directions of components.
    """
    units = positions(family, take(stats, stats.mass > LEAST_MASS))
    mean = units.mean(axis=0) if len(units) else np.zeros(family.n_features)
    own = float(np.linalg.norm(mean))
    centre = mean / own if own > _LEAST_LENGTH else family.mean
    about = concentration_of(own, family.n_features)

    def build(steps: float, part: float, spread: float, strength: float) -> Any:
        return type(family)(centre, strength * about, steps * part * family.concentration, spread)

    start = (1.0, 1.0, family.spread, family.mean_concentration / about)
    return choice_near(build, (_STEPS, _PARTS_OF_STEP, _SPREADS, _MULTIPLIERS), *start)


def log_caps(family: "VonMisesFisher", stats: VonMisesFisherStats, x: Array, further: Array) -> Array:
    """The largest density at the direction itself: a mixture of densities is at most the largest of them."""
    grid = family.grid
    return np.full((len(x), len(stats.mass)), float((grid.log_front + grid.concentration).max()))


def stats_from_earlier(family: "VonMisesFisher", mass: Array, estimate: Array, seen: Array) -> VonMisesFisherStats:
    """Statistics from the masses (K,) and estimated directions (K, D) of shoal 0.1.0: those of as many points, with the
    mean that the direction and the concentration expect."""
    length = float(mean_length(family.n_features, family.concentration))
    return VonMisesFisherStats(mass, (length * mass)[:, None] * estimate)


def cache_of(family: "VonMisesFisher", stats: VonMisesFisherStats) -> VonMisesFisherCache:
    """The predictive cache of statistics, row by row."""
    params = family.posterior(stats)
    made, peak = family.predictive(params), family.log_joint(params).argmax(axis=1)
    return VonMisesFisherCache(made.square, made.along, peak.astype(np.float64), made.log_front)


def kernel_constants(family: "VonMisesFisher") -> VonMisesFisherConstants:
    """The prior as kernels read it."""
    d, grid = family.n_features, family.grid
    order, above = order_of(d)
    ends = (order, order + above, -0.5 * d * LOG_2PI)
    return VonMisesFisherConstants(family.mean, family.mean_concentration, family.log_front_of_mean, *grid, *ends)
