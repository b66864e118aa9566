"""Centred weighted moments of K components, and how those of two sets of points join and part.

Chan, Golub and LeVeque (1983): joined about their common mean, moments keep their digits whatever the distance of the
data from the origin. A component without mass is (0, 0, 0), and every function here takes it as such.
"""

from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from shoal.kernels.distances import BLOCK, row_blocks
from shoal.points.arrays import Array

RowsT = TypeVar("RowsT", bound=tuple[Any, ...])

DIRECT_ABOVE = 1e4
"""Ratio of raw to centred moment above which a scatter is summed from differences; below, twelve digits are left."""
EMPTY_BELOW = 8 * np.finfo(np.float64).eps
"""Relative mass below which what is left by a subtraction is rounding."""


class Located(Protocol):
    """What all statistics with a location share."""

    @property
    def mass(self) -> Array:
        """(K,) sum of responsibilities."""

    @property
    def mean(self) -> Array:
        """(K, D) weighted mean."""


class Regrouped(NamedTuple):
    """Mass and mean of two sets together, or of what is left of one; `scatter` changes by cross * delta delta'."""

    mass: Array  # (K,)
    mean: Array  # (K, D)
    delta: Array  # (K, D) difference of the two means
    cross: Array  # (K,)


def ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator, 0 where the denominator is 0."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    out = np.zeros(shape)
    np.divide(numerator, denominator, out=out, where=np.not_equal(denominator, 0.0))
    return out


def join(a: Located, b: Located) -> Regrouped:
    """Mass and mean of a and b together; their scatter is the sum of both + cross * delta delta'."""
    mass = a.mass + b.mass
    share = ratio(b.mass, mass)
    delta = b.mean - a.mean
    return Regrouped(mass, a.mean + share[:, None] * delta, delta, a.mass * share)


def part(a: Located, b: Located) -> Regrouped:
    """Mass and mean of a without b; the scatter left is that of a - that of b - cross * delta delta'.

    What is left of the mass by rounding alone counts as nothing.
    """
    mass = a.mass - b.mass
    mass = np.where(mass <= EMPTY_BELOW * a.mass, 0.0, mass)
    delta = a.mean - b.mean
    lever = ratio(b.mass, mass)
    mean: Array = np.where(mass[:, None] > 0.0, a.mean + lever[:, None] * delta, 0.0)
    return Regrouped(mass, mean, delta, lever * a.mass)


def centre_of(x: Array) -> Array:
    """A point (D,) near the middle of x (N, D), exact in columns that are constant; 0 without points."""
    if x.shape[0] == 0:
        return np.zeros(x.shape[1])
    total = np.zeros(x.shape[1])
    for rows in row_blocks(x.shape[0], x.shape[1]):
        difference = x[rows] - x[0]
        total += np.ones(len(difference)) @ difference  # by BLAS: reductions along the first axis are slow in NumPy
    centre: Array = x[0] + total / x.shape[0]
    return centre


class Moments(NamedTuple):
    """First moments of K components: mean = origin + offset, the offset not yet rounded to the digits of the mean."""

    mass: Array  # (K,)
    mean: Array  # (K, D); 0 where the mass is 0
    origin: Array  # (D,)
    offset: Array  # (K, D); 0 where the mass is 0


def first_moments(x: Array, resp: Array) -> Moments:
    """Mass and weighted mean of points x (N, D) under responsibilities resp (N, K)."""
    mass: Array = resp.sum(axis=0)
    origin = centre_of(x)
    total = np.zeros((resp.shape[1], x.shape[1]))
    for rows in row_blocks(x.shape[0], x.shape[1]):
        total += resp[rows].T @ (x[rows] - origin)
    offset = ratio(total, mass[:, None])
    return Moments(mass, np.where(mass[:, None] > 0.0, origin + offset, 0.0), origin, offset)


def feature_scatter(x: Array, resp: Array, first: Moments) -> Array:
    """sum_n resp_nk (x_nd - mean_kd)^2 as (K, D).

    By BLAS about the common origin; components for which that loses digits are summed again from differences.
    """
    raw = np.zeros(first.mean.shape)
    for rows in row_blocks(x.shape[0], x.shape[1]):
        raw += resp[rows].T @ np.square(x[rows] - first.origin)
    scatter: Array = raw - first.mass[:, None] * np.square(first.offset)
    for k in np.flatnonzero(np.any(raw > DIRECT_ABOVE * scatter, axis=1)):
        scatter[k] = 0.0
        for weight, difference in _differences(x, resp[:, k], first.mean[k]):
            scatter[k] += weight @ np.square(difference)
    return scatter


def full_scatter(x: Array, resp: Array, mean: Array) -> Array:
    """sum_n resp_nk (x_n - mean_k)(x_n - mean_k)' as (K, D, D), from differences."""
    scatter = np.zeros((*mean.shape, mean.shape[1]))
    for k in range(mean.shape[0]):
        for weight, difference in _differences(x, resp[:, k], mean[k]):
            difference *= np.sqrt(weight)[:, None]
            scatter[k] += difference.T @ difference
    return scatter


def _differences(x: Array, weight: Array, mean: Array) -> Any:
    """Blocks of (weight, x - mean), over the rows of positive weight alone: hard assignments cost one pass over x."""
    support = np.flatnonzero(weight)
    for rows in row_blocks(support.size, x.shape[1], BLOCK):
        chosen = support[rows]
        yield weight[chosen], x[chosen] - mean


def relative(values: RowsT, to: Any) -> RowsT:
    """`values` seen from the means of `to`, both Stats or Params of a family with a location: a field `mean` (K, D)."""
    moved: Any = values
    seen: RowsT = moved._replace(mean=moved.mean - to.mean)
    return seen
