"""Abilities of the Dirichlet family that engines use, as methods of `DirichletObservations`."""

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import psi

from shoal.families.base import take
from shoal.families.dirichlet import laplace
from shoal.families.dirichlet.types import DirichletCache, DirichletStats
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.prior_choices import LEAST_MASS, Choice, choice_near
from shoal.families.steps_kernel import SCRATCH_ROWS
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.dirichlet.prior import DirichletObservations

LEAST_SHARE = 1e-12
"""Smaller shares are taken as this one."""

FIRST_SPREAD = 0.1
"""Of priors before any component is known. With more, one pass lets a component fall in precision to hold several."""

_SPREADS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
"""Deviations of precisions that are tried, over their mean."""

_STEPS = tuple(2.0 ** (j / 4) for j in range(-8, 9))
_MULTIPLIERS = tuple(2.0 ** (j / 2) for j in range(-8, 9))

_STRENGTHS, _STRENGTHS_COARSE = range(1, 9), range(1, 9, 2)


def log_shares(x: Array) -> Array:
    """log x, of shares at least `LEAST_SHARE`."""
    return np.asarray(np.log(np.maximum(x, LEAST_SHARE)))


def natural_statistics(family: "DirichletObservations", x: Array, origin: Origin) -> Statistics:
    """t(x) = (log x, 1) and log h(x) = -sum log x."""
    logs = log_shares(x)
    return Statistics(np.concatenate([logs, np.ones((len(x), 1))], axis=1), -logs.sum(axis=1))


def positions(family: "DirichletObservations", stats: DirichletStats) -> Array:
    """(K, D) square roots of the geometric means of shares; between square roots distances are Hellinger's."""
    middle = stats.total / np.maximum(stats.mass, 1e-300)[:, None]
    root = np.exp(0.5 * (middle - middle.max(axis=1, keepdims=True)))
    return np.asarray(root / np.linalg.norm(root, axis=1, keepdims=True))


def precision_of(rows: Array) -> float:
    """The precision of rows (N, D) as draws of one Dirichlet distribution, by moments, to a power of two."""
    x = np.maximum(rows, LEAST_SHARE)
    mean, variance = x.mean(axis=0), float(x.var(axis=0).sum())
    whole = float((mean * (1.0 - mean)).sum()) / max(variance, 1e-9) - 1.0
    return float(2.0 ** np.round(np.log2(np.clip(whole, 0.5, 1e6))))


def candidates(rows: Array, thorough: bool) -> list[tuple[float, Array, float]]:
    """Precisions from twice to 256 times that of all `rows` (N, D).

    With each, pseudo counts that are alike: one each, or with that precision as their sum, so that means of components
    lie about as far apart as the rows.
    """
    whole, d = precision_of(rows), rows.shape[1]
    strengths = _STRENGTHS if thorough else _STRENGTHS_COARSE
    counts = sorted({whole / d, 1.0})
    return [(whole * 2.0**k, np.full(d, count), FIRST_SPREAD) for k in strengths for count in counts]


def prior_choices(family: "DirichletObservations", stats: DirichletStats, n_components: int) -> Choice | None:
    """The mean precision of components, its spread, and how far means of components are from their mean.

    The mean is that of the components and of one uniform component. The last number is searched for about the
    precision of the components' means.
    """
    own = take(stats, stats.mass > LEAST_MASS)
    if not len(own.mass):
        return None
    theta = family.posterior_mode(own)
    theta /= theta.sum(axis=1, keepdims=True)
    centre = (theta.sum(axis=0) + 1.0 / family.n_features) / (len(theta) + 1.0)
    about = precision_of(theta)

    def build(step: float, spread: float, strength: float) -> Any:
        return type(family)(step * family.precision, strength * about * centre, spread)

    start = (1.0, family.spread, float(family.pseudo_counts.sum()) / about)
    return choice_near(build, (_STEPS, _SPREADS, _MULTIPLIERS), *start)


def stats_from_earlier(family: "DirichletObservations", mass: Array, estimate: Array, seen: Array) -> DirichletStats:
    """Statistics from the masses (K,) and estimated log means (K, D) of shoal 0.1.0: those of as many points, with the
    mean logarithms that the estimate and the precision expect."""
    alpha = family.precision * np.exp(estimate - estimate.max(axis=1, keepdims=True))
    alpha *= family.precision / np.maximum(alpha.sum(axis=1, keepdims=True), 1e-300)
    alpha = np.maximum(alpha, 1e-100)
    expected = laplace.times_digamma(alpha) / alpha - psi(family.precision)
    return DirichletStats(mass, mass[:, None] * np.maximum(expected, np.log(LEAST_SHARE)))


def cache_of(family: "DirichletObservations", stats: DirichletStats) -> DirichletCache:
    """The predictive cache of statistics, row by row."""
    made, n = family.predictive(family.posterior(stats)), stats.mass + 1.0
    at = laplace.curvature(family.laplace_prior, n, made.alpha)
    expected = laplace.times_digamma(made.alpha) / made.alpha - psi(at.whole)[:, None]
    return DirichletCache(
        made.alpha, made.log_partition, -laplace.log_beta(made.alpha), expected, at.diagonal, at.bend / at.rest
    )


def kernel_constants(family: "DirichletObservations") -> laplace.Prior:
    """The prior as kernels read it."""
    return family.laplace_prior


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
