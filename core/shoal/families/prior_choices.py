"""Priors among which empirical Bayes chooses.

A family says itself what there is to choose (`ChoosesPriors`); a family that does not keeps its prior. The means are
those of all points. The search is for how firmly components are held to what they have in common: a few numbers, each
from a short list. The helpers here are for the families that say so.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from shoal.families.base import AnyFamily
from shoal.points.arrays import Array
from shoal.points.contamination import absurd_values

LEAST_MASS = 2.0
"""Points below which a component tells nothing about the others."""

MULTIPLIERS = tuple(2.0**j for j in range(-6, 3))
"""Factors on a pooled variance."""
FINE_MULTIPLIERS = tuple(2.0 ** (j / 8) for j in range(-8, 9))
STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.5)
"""Points that a prior's mean is worth."""
ROWS_WORTH = tuple(2.0**j for j in range(-4, 5))
"""Rows that a prior on counts is worth."""
_DOFS = tuple(2.0**j for j in range(10))
RIDGE = 1e-6
"""Share of the mean total variance that is added to every variance within."""
SMALLEST, LARGEST = 1e-90, 1e90
"""Range of the variances that a choice begins with, so that every choice is a prior, however far out points lie."""


class Choice(NamedTuple):
    """Priors to choose among: one number from each list."""

    build: Callable[..., AnyFamily]
    values: tuple[tuple[float, ...], ...]
    start: tuple[float, ...]
    """Where the search begins, one of each."""


class ChoosesPriors(Protocol):
    """A family with priors to choose among."""

    def prior_choices(self, stats: Any, n_components: int) -> Choice | None:
        """The choice for components `stats`, of which `n_components` are worth a look; None where there is none."""


class RestatesStatistics(Protocol):
    """A family whose statistics depend on the prior, by the units that they are in."""

    def restated(self, stats: Any, before: Any) -> Any:
        """Statistics made under the prior `before`, as this prior states them."""


def choices(family: AnyFamily, stats: Any, n_components: int) -> Choice | None:
    """The priors to choose among, given the components, `n_components` of them worth a look; None: nothing."""
    if not hasattr(family, "prior_choices"):
        return None
    return cast(ChoosesPriors, family).prior_choices(stats, n_components)


def restated(family: AnyFamily, stats: Any, before: AnyFamily) -> Any:
    """Statistics made under the prior `before`, as another prior of the family states them: the same, in general."""
    return cast(RestatesStatistics, family).restated(stats, before) if hasattr(family, "restated") else stats


def choice_near(build: Callable[..., AnyFamily], lists: tuple[tuple[float, ...], ...], *now: float) -> Choice:
    """The choice that starts at the entries nearest to the present prior's numbers `now`, by ratio."""

    def nearest(values: tuple[float, ...], value: float) -> float:
        return min(values, key=lambda entry: abs(np.log(entry / max(value, SMALLEST))))

    return Choice(build, lists, tuple(nearest(values, value) for values, value in zip(lists, now, strict=True)))


def pooled(mass: Array, mean: Array, scatter: Array) -> tuple[Array, Array]:
    """Mean (D,) of all points, and the variance within components (D,), with a ridge.

    Components at an absurd distance are left out: one far value would move the mean, and the ridge would be all of the
    variance.
    """
    near = ~absurd_values(mean, mass).any(axis=1)
    if not near.all():
        mass, mean, scatter = mass[near], mean[near], scatter[near]
    total = float(mass.sum())
    centre = mass @ mean / total
    within = scatter.sum(axis=0) / total
    between = mass @ np.square(mean - centre) / total
    return centre, np.minimum(within + RIDGE * float((within + between).mean()) + SMALLEST, LARGEST)


def dofs(n_components: int) -> tuple[float, ...]:
    """Degrees of freedom to try, at most one a component: with more, early groupings were kept as the truth."""
    return tuple(value for value in _DOFS if value <= n_components)


def geometric_mean(values: Array) -> float:
    """exp of the mean logarithm."""
    return float(np.exp(np.log(values).mean()))
