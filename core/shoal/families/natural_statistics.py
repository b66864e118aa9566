"""Points as rows of natural statistics, so that one E-step and one M-step are two matrix products in every family.

For a conjugate family the posterior's natural parameters are those of the prior plus sum_n r_n t(x_n), and
E_q log p(x | parameter) = t(x) . mean_params(q) + log h(x). Both are linear in t(x). So the rows t(x_n), laid out as
`family.natural` lays out its parameters, are all that an engine needs of the points. The row of a group of points is
the mean of theirs (Kurihara, Welling and Vlassis 2006, eq. 16; ERRATA 1.14: of t(x), not of x).

Second moments are taken about one origin common to all components. That costs digits where components are many times
narrower than the whole: at a ten-thousandth of its width the bound was right to 1e-8 nats a point, at a millionth to
1e-3. Statistics in a result are summed again, about each component's own mean.

A family may compute t(x) itself (`OwnNaturalStatistics`), from moments alone (`MomentStatistics`), or as sparse rows
plus one row that all points share (`SparseStatistics`).
"""

from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from shoal.families.base import AnyFamily
from shoal.kernels.moments import centre_of
from shoal.points.arrays import Array
from shoal.points.contamination import absurd_values
from shoal.points.rows import Points, SparseRows

_BLOCK_ROWS = 256
_LARGEST_SPARSE_SHARE = 0.125
"""Share of entries up to which sparse rows are multiplied as such. An entry of theirs costs several of a table's."""
_SIDE_POINTS, _ONE_SIDED = 1_000, 0.8
"""Points by which the sides of a mean are compared, and the excess of one side from which absurd values are sought."""


class Statistics(NamedTuple):
    """Natural statistics of N points about an origin."""

    rows: Any  # (N, P) t(x): an array, or `SparseRows` where the points are sparse and no other element is added
    log_carrier: Array  # (N,) log h(x)


class ShiftedRows:
    """t(x) (N, P) as sparse rows plus one row that all points share; the table itself is not written out.

    It has products with slopes, `table @ slope` (N,), and with weights, `weights @ table` (P,).
    """

    __array_ufunc__ = None  # so that NumPy leaves `weights @ table` to this class

    def __init__(self, rows: SparseRows, shared: Array) -> None:
        """`rows` (N, P), `shared` (P,)."""
        self.rows, self.shared = rows, shared

    def __matmul__(self, slope: Array) -> Array:
        return np.asarray(self.rows @ slope + float(self.shared @ slope))

    def __rmatmul__(self, weights: Array) -> Array:
        return np.asarray(self.rows.T @ weights + weights.sum() * self.shared)

    def toarray(self) -> Array:
        """The table (N, P)."""
        return np.asarray(self.rows.toarray() + self.shared)


class Origin(NamedTuple):
    """Point from which natural parameters are seen; (0, ...) for a family without a location."""

    point: Array  # (D,)
    located: bool


class LocatedInPart(Protocol):
    """A family of which some features have a location and others have none."""

    def origin_of(self, x: Any) -> Origin:
        """An origin for points x (N, D)."""

    def stats_at(self, point: Array) -> Any:
        """Empty statistics of one component whose location is the point (D,), for `relative`."""


class OwnNaturalStatistics(Protocol):
    """A family that computes t(x) faster than through the statistics of single points."""

    def natural_statistics(self, x: Any, origin: Origin) -> Statistics:
        """t(x) and log h(x) of points x (N, D)."""


class SparseStatistics(Protocol):
    """A family of sparse points whose t(x) is sparse but for one row that all points share."""

    def sparse_statistics(self, x: Points) -> ShiftedRows:
        """t(x) of points x (N, D)."""


class MomentStatistics(Protocol):
    """A family whose t(x) is linear and quadratic in x, so that two moments of a group of points suffice."""

    def statistics_of_moments(self, location: Array, spread: Array, origin: Origin) -> Statistics:
        """Means of t(x) and log h(x) over groups of mean `location` (A, D) and mean scatter `spread` (A, D, D)."""

    def scatter_in_layout(self, scatter: Array) -> Array:
        """Scatters (K, D, D), or their diagonals (K, D) where those suffice, in the layout of the statistics."""


def origin_for(family: AnyFamily, x: Array) -> Origin:
    """The middle of the points x (N, D), if the family has a location."""
    if hasattr(family, "origin_of"):
        return cast(LocatedInPart, family).origin_of(x)
    located = has_location(family)
    return Origin(mean_without_absurd(x) if located else np.zeros(x.shape[1]), located)


def mean_without_absurd(x: Array) -> Array:
    """The mean (D,) of points x (N, D), without absurd values where these put it outside of all others.

    Seen from so far away, the squares of the others would have no digits left of the distances between them.
    """
    middle, few = centre_of(x), x[:: max(1, len(x) // _SIDE_POINTS)]
    for column in np.flatnonzero(np.abs(np.sign(few - middle).sum(axis=0)) >= _ONE_SIDED * len(few)):
        values = x[:, column : column + 1]
        absurd = absurd_values(values)[:, 0]
        if absurd.any():
            middle[column] = centre_of(values[~absurd])[0]
    return middle


def has_location(family: AnyFamily) -> bool:
    """Whether statistics hold a mean in the coordinates of the points."""
    return "mean" in family.empty_stats(1)._fields


def seen_from(family: AnyFamily, values: Any, origin: Origin) -> Any:
    """Stats or Params about the origin."""
    if not origin.located:
        return values
    in_part = hasattr(family, "stats_at")
    here = cast(LocatedInPart, family).stats_at(origin.point) if in_part else stats_at(family, origin.point)
    return family.relative(values, to=here)


def stats_at(family: AnyFamily, point: Array) -> Any:
    """Empty statistics of one component of a family with a location, which is the point (D,)."""
    return family.empty_stats(1)._replace(mean=point[None, :])


def statistics(family: AnyFamily, x: Any, origin: Origin) -> Statistics:
    """t(x) and log h(x) of points x (N, D)."""
    if hasattr(family, "natural_statistics"):
        return cast(OwnNaturalStatistics, family).natural_statistics(x, origin)
    return statistics_by_points(family, x, origin)


def statistics_table(family: AnyFamily, x: Any, origin: Origin) -> Any:
    """t(x) of points x (N, D), with products with slopes (P,) and weights (N,): sparse rows where few entries are."""
    if hasattr(family, "sparse_statistics"):
        points = SparseRows.of(x)
        if points.nnz <= _LARGEST_SPARSE_SHARE * points.shape[0] * points.shape[1]:
            return cast(SparseStatistics, family).sparse_statistics(points)
    return statistics(family, x, origin).rows


def statistics_by_points(family: AnyFamily, x: Any, origin: Origin) -> Statistics:
    """The same for any family, through the statistics of one point a component."""
    rows, carriers = [], []
    for start in range(0, len(x), _BLOCK_ROWS):
        block = x[start : start + _BLOCK_ROWS]
        stats = family.suffstats(block, np.eye(len(block)))
        rows.append(natural_gain(family, stats, origin))
        carriers.append(family.log_carrier(seen_from(family, stats, origin)))
    return Statistics(np.concatenate(rows), np.concatenate(carriers))


def natural_gain(family: AnyFamily, stats: Any, origin: Origin) -> Array:
    """sum t(x) (K, P) of the points behind `stats`, whose points are gone."""
    prior = family.natural(seen_from(family, family.posterior(family.empty_stats(1)), origin))
    gain: Array = family.natural(seen_from(family, family.posterior(stats), origin)) - prior
    return gain


def has_moment_statistics(family: AnyFamily) -> bool:
    """Whether means of t(x) over groups of points follow from two moments of the groups."""
    return hasattr(family, "statistics_of_moments")


def statistics_of_moments(family: AnyFamily, location: Array, spread: Array, origin: Origin) -> Statistics | None:
    """Means over groups of points, from their moments; None for a family whose t(x) needs more than those."""
    if not has_moment_statistics(family):
        return None
    return cast(MomentStatistics, family).statistics_of_moments(location, spread, origin)


def stats_of_groups(family: AnyFamily, weight: Array, location: Array, spread: Array) -> Any | None:
    """Statistics (K) of groups of mean `location` (A, D) and mean scatter `spread` (A, D, D), under weights (K, A).

    None for a family whose statistics need more than those moments. The scatter is that of the means plus that within.
    """
    if not hasattr(family, "scatter_in_layout"):
        return None
    between = family.suffstats(location, np.ascontiguousarray(weight.T))
    within = np.einsum("ka,ade->kde", weight, spread, optimize=True)
    return between._replace(scatter=between.scatter + cast(MomentStatistics, family).scatter_in_layout(within))


def constant_carrier(family: AnyFamily, n: int) -> Array:
    """(n,) log h of a family for which it is the same at every point."""
    unit = family.empty_stats(1)._replace(mass=np.ones(1))
    return np.full(n, float(family.log_carrier(unit)[0]))
