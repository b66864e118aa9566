"""Measures of how much a feature distinguishes a component from the rest of a mixture.

Every contrast is an information in nats a point, so that features of several kinds can be compared. That of numbers is
d^2 / 2, where d is the difference in pooled deviations: the divergence of two Gaussians of equal variance. A family may
declare another one, as for rates and for parts of a whole, and other values than the mean of each feature, such as the
share of each level of a category.
"""

from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from shoal.families.base import AnyFamily
from shoal.points.arrays import Array, IntArray

_TINY = 1e-300


class FeatureValues(NamedTuple):
    """Values that are compared between components."""

    value: Array  # (K, R)
    feature: IntArray  # (R,) the feature that each is of
    level: IntArray | None = None  # (R,) the level whose share it is, -1 for none; None where none has one


class HasContrast(Protocol):
    """A family with a measure of its own."""

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """See the function of that name."""


class HasFeatureValues(Protocol):
    """A family whose features are compared by other values than their means."""

    @property
    def n_feature_values(self) -> int:
        """R."""

    def feature_values(self, params: Any, means: Array) -> FeatureValues:
        """The values of K posteriors, whose means (K, D) are in the units of the data."""


def feature_values(family: AnyFamily, stats: Any, means: Array) -> FeatureValues:
    """The values to compare: those of the family, else the means (K, D) of the posterior predictives."""
    if hasattr(family, "feature_values"):
        return cast(HasFeatureValues, family).feature_values(family.posterior(stats), means)
    return FeatureValues(means, np.arange(means.shape[1]))


def contrast(family: AnyFamily, value: Array, rest: Array, deviation: Array) -> Array:
    """Difference of values (M, R) from those of the rest (M, R), in nats; at most 0 where there is none.

    `deviation` (R,): the pooled deviation of the feature of each value.
    """
    if hasattr(family, "contrast"):
        return cast(HasContrast, family).contrast(value, rest, deviation)
    return np.square((value - rest) / deviation) / 2.0


def higher_rates(value: Array, rest: Array) -> Array:
    """The information of higher rates of counts: r log(r / s) - r + s nats a point, for Poisson counts of rates r and s
    (Kullback and Leibler 1951); 0 where r is at most s."""
    r, s = np.maximum(value, _TINY), np.maximum(rest, _TINY)
    return np.where(r > s, r * np.log(r / s) - r + s, 0.0)


def other_rates(value: Array, rest: Array) -> Array:
    """The information of rates of binary features, higher or lower: p log(p / q) + (1 - p) log((1 - p) / (1 - q)) nats
    a point."""
    p, q = np.clip(value, _TINY, 1.0), np.clip(rest, _TINY, 1.0)
    no, without = np.maximum(1.0 - p, _TINY), np.maximum(1.0 - q, _TINY)
    return np.asarray(p * np.log(p / q) + no * np.log(no / without))


def other_parts(value: Array, rest: Array) -> Array:
    """The information of the ratio of two parts of a whole, in both directions: (p - q) log(p / q) nats."""
    p, q = np.maximum(value, _TINY), np.maximum(rest, _TINY)
    return np.asarray((p - q) * np.log(p / q))
