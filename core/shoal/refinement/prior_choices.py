"""Among which priors empirical Bayes chooses: one function a family, registered here.

A family without one keeps its prior. The means are those of all points; what is searched for is how firmly components
are held to what they have in common: a few numbers, each from a short list.
"""

from collections.abc import Callable
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from shoal.families import (
    AnyFamily,
    BetaBernoulli,
    DirichletMultinomial,
    GammaPoisson,
    KnownCovariance,
    NormalInverseGamma,
    NormalInverseWishart,
)
from shoal.points.arrays import Array

LEAST_MASS = 2.0
"""Points below which a component tells nothing about the others."""
_MULTIPLIERS = tuple(2.0**j for j in range(-6, 3))
_FINE_MULTIPLIERS = tuple(2.0 ** (j / 8) for j in range(-8, 9))
_DOFS = tuple(2.0**j for j in range(10))
_STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.5)
_ROWS_WORTH = tuple(2.0**j for j in range(-4, 5))
_RIDGE = 1e-6
"""Share of the mean total variance that is added to every within variance."""
_SMALLEST = 1e-90


class Choice(NamedTuple):
    """Priors to choose among: one number from each list."""

    build: Callable[..., AnyFamily]
    values: tuple[tuple[float, ...], ...]
    start: tuple[float, ...]
    """Where the search begins, one of each."""


@singledispatch
def choices(family: AnyFamily, stats: Any, n_components: int) -> Choice | None:
    """What to choose among, given the components, `n_components` of them worth looking at; None: nothing."""
    return None


@singledispatch
def restated(family: AnyFamily, stats: Any, before: AnyFamily) -> Any:
    """Statistics made under the prior `before` as another of the family states them: the same, in general."""
    return stats


@choices.register
def _(family: NormalInverseGamma, stats: Any, n_components: int) -> Choice:
    """The pooled variance within, by feature, times a number; what it is worth; what the mean is worth."""
    mean, within = _pooled(stats.mass, stats.mean, stats.scatter)

    def build(multiplier: float, dof: float, strength: float) -> NormalInverseGamma:
        shape = 1.0 + dof / 2.0
        return NormalInverseGamma(mean, strength, shape, shape * multiplier * within)

    multiplier = _geometric_mean(family.rate / family.shape / within)
    lists = (_MULTIPLIERS, _dofs(n_components), _STRENGTHS)
    return _choice(build, lists, multiplier, 2.0 * (family.shape - 1.0), family.mean_strength)


@choices.register
def _(family: NormalInverseWishart, stats: Any, n_components: int) -> Choice:
    """As for independent features."""
    d = family.n_features
    mean, within = _pooled(stats.mass, stats.mean, np.diagonal(stats.scatter, axis1=1, axis2=2))

    def build(multiplier: float, dof: float, strength: float) -> NormalInverseWishart:
        total = d + 1.0 + dof
        return NormalInverseWishart(mean, strength, total, np.diag(total * multiplier * within))

    multiplier = _geometric_mean(np.diag(family.scale_matrix) / family.dof / within)
    lists = (_MULTIPLIERS, _dofs(n_components), _STRENGTHS)
    return _choice(build, lists, multiplier, family.dof - d - 1.0, family.mean_strength)


@choices.register
def _(family: KnownCovariance, stats: Any, n_components: int) -> Choice | None:
    """The pooled variance within times a number near one, and what the mean is worth; only where both are spherical."""
    if not family.spherical:
        return None
    total = float(stats.mass.sum())
    mean = stats.mass @ stats.mean / total
    between = float((stats.mass @ np.square(stats.mean - mean)).mean()) / total
    within = float(family.covariance) * float(stats.scatter.sum()) / (total * family.n_features)
    within += _RIDGE * (within + between) + _SMALLEST

    def build(multiplier: float, strength: float) -> KnownCovariance:
        variance = multiplier * within
        return KnownCovariance(mean, variance / strength, variance)

    strength = float(family.covariance) / float(family.prior_covariance)
    return _choice(build, (_FINE_MULTIPLIERS, _STRENGTHS), float(family.covariance) / within, strength)


@restated.register
def _(family: KnownCovariance, stats: Any, before: KnownCovariance) -> Any:
    """Scatters are in units of the covariance, which differs by a factor."""
    if family.covariance.shape != before.covariance.shape:
        raise ValueError("one covariance is spherical and the other is not; scatters cannot be restated")
    factor = float(np.trace(np.atleast_2d(before.covariance)) / np.trace(np.atleast_2d(family.covariance)))
    return stats if factor == 1.0 else stats._replace(scatter=stats.scatter * factor)


@choices.register
def _(family: DirichletMultinomial, stats: Any, n_components: int) -> Choice:
    """The strength of pseudo counts in proportion to the smoothed frequencies, in all from one to four a term."""
    totals = stats.total.sum(axis=0) + 0.5
    frequency = totals / totals.sum()
    top = int(np.ceil(np.log2(4.0 * totals.size)))
    strengths = tuple(2.0**power for power in range(top + 1))
    return _choice(
        lambda strength: DirichletMultinomial(strength * frequency), (strengths,), family.pseudo_counts.sum()
    )


@choices.register
def _(family: BetaBernoulli, stats: Any, n_components: int) -> Choice:
    """How many rows the smoothed shares are worth."""
    share = (stats.total.sum(axis=0) + 0.5) / (float(stats.mass.sum()) + 1.0)
    worth = float((family.a + family.b).mean())
    return _choice(lambda rows: BetaBernoulli(rows * share, rows * (1.0 - share)), (_ROWS_WORTH,), worth)


@choices.register
def _(family: GammaPoisson, stats: Any, n_components: int) -> Choice:
    """How far the components' means spread about the smoothed means: the shape."""
    mean = (stats.total.sum(axis=0) + 0.5) / (float(stats.mass.sum()) + 1.0)
    return _choice(lambda shape: GammaPoisson(shape, shape / mean), (_ROWS_WORTH,), float(family.shape.mean()))


def _pooled(mass: Array, mean: Array, scatter: Array) -> tuple[Array, Array]:
    """Mean (D,) of all points, and the variance within components (D,), with a ridge."""
    total = float(mass.sum())
    centre = mass @ mean / total
    within = scatter.sum(axis=0) / total
    between = mass @ np.square(mean - centre) / total
    return centre, within + _RIDGE * float((within + between).mean()) + _SMALLEST


def _dofs(n_components: int) -> tuple[float, ...]:
    """At most one a component: firmer, early groupings were held to be the truth and collapsed."""
    return tuple(value for value in _DOFS if value <= n_components)


def _geometric_mean(values: Array) -> float:
    return float(np.exp(np.log(values).mean()))


def _choice(build: Callable[..., AnyFamily], lists: tuple[tuple[float, ...], ...], *now: float) -> Choice:
    """Begins at the entries nearest to where the prior stands `now`, by ratio."""

    def nearest(values: tuple[float, ...], value: float) -> float:
        return min(values, key=lambda entry: abs(np.log(entry / max(value, _SMALLEST))))

    return Choice(build, lists, tuple(nearest(values, value) for values, value in zip(lists, now, strict=True)))
