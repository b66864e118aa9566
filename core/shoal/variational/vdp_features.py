"""Points as rows of natural statistics, so that one E-step and one M-step are two matrix products in every family.

For a conjugate family the posterior's natural parameters are those of the prior plus sum_n r_n t(x_n), and
E_q log p(x | parameter) = t(x) . mean_params(q) + log h(x). Both are linear in t(x), so the rows t(x_n), laid out as
`family.natural` lays out its parameters, are all that an engine needs of the points; the row of a group of points is
the mean of theirs (Kurihara, Welling and Vlassis 2006, eq. 16; ERRATA 1.14: of t(x), not of x).

Second moments are taken about one origin common to all components, which costs digits where components are many times
narrower than the whole: at a ten-thousandth of its width the bound was right to 1e-8 nats a point, at a millionth to
1e-3. Statistics in a result are taken anew, about each component's own mean.
"""

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
from shoal.kernels.linalg import outer, pack
from shoal.kernels.moments import centre_of
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows

_BLOCK_ROWS = 256


class Statistics(NamedTuple):
    """Natural statistics of N points about an origin."""

    rows: Any  # (N, P) t(x): an array, or `SparseRows` where the points are sparse and no other element is added
    log_carrier: Array  # (N,) log h(x)


class Origin(NamedTuple):
    """Where the natural parameters are seen from; (0, ...) for a family without a location."""

    point: Array  # (D,)
    located: bool


def origin_for(family: AnyFamily, x: Array) -> Origin:
    """The middle of the points x (N, D), if the family has a location."""
    located = "mean" in family.empty_stats(1)._fields
    return Origin(centre_of(x) if located else np.zeros(x.shape[1]), located)


def seen_from(family: AnyFamily, values: Any, origin: Origin) -> Any:
    """Stats or Params about the origin."""
    if not origin.located:
        return values
    here = family.empty_stats(1)._replace(mean=origin.point[None, :])
    return family.relative(values, to=here)


def statistics(family: AnyFamily, x: Points, origin: Origin) -> Statistics:
    """t(x) and log h(x) of points x (N, D)."""
    return _statistics(family, x, origin)


def mean_statistics(family: AnyFamily, x: Array, origin: Origin) -> tuple[Array, float]:
    """Mean of t(x) (P,) and of log h(x) over points x (N, D), N > 0."""
    found = _statistics(family, x, origin)
    return found.rows.mean(axis=0), float(found.log_carrier.mean())


def natural_gain(family: AnyFamily, stats: Any, origin: Origin) -> Array:
    """sum t(x) (K, P) of the points behind `stats`, whose points are gone."""
    prior = family.natural(seen_from(family, family.posterior(family.empty_stats(1)), origin))
    gain: Array = family.natural(seen_from(family, family.posterior(stats), origin)) - prior
    return gain


@singledispatch
def _statistics(family: AnyFamily, x: Any, origin: Origin) -> Statistics:
    """Any family, through the statistics of one point a component."""
    rows, carriers = [], []
    for start in range(0, len(x), _BLOCK_ROWS):
        block = x[start : start + _BLOCK_ROWS]
        stats = family.suffstats(block, np.eye(len(block)))
        rows.append(natural_gain(family, stats, origin))
        carriers.append(family.log_carrier(seen_from(family, stats, origin)))
    return Statistics(np.concatenate(rows), np.concatenate(carriers))


@_statistics.register
def _(family: DirichletMultinomial, x: Points, origin: Origin) -> Statistics:
    """The counts themselves, as sparse as they are."""
    return Statistics(SparseRows.of(x), family.point_log_carrier(x))


@_statistics.register(BetaBernoulli)
@_statistics.register(GammaPoisson)
def _(family: Any, x: Points, origin: Origin) -> Statistics:
    """Counts, and what one point adds to the other parameter of each feature."""
    counts = SparseRows.of(x).toarray()
    other = 1.0 - counts if isinstance(family, BetaBernoulli) else np.ones_like(counts)
    return Statistics(np.hstack([counts, other]), family.point_log_carrier(x))


@_statistics.register
def _(family: NormalInverseWishart, x: Array, origin: Origin) -> Statistics:
    n, d = x.shape
    y = x - origin.point
    rows = np.empty((n, d + 2 + d * (d + 1) // 2))
    rows[:, :d] = y
    rows[:, d : d + 2] = 1.0
    column = d + 2
    for i in range(d):  # row i of the upper triangle at a time: contiguous writes, no (N, D, D) temporary
        width = d - i
        np.multiply(y[:, i:], y[:, i : i + 1], out=rows[:, column : column + width])
        rows[:, column + 1 : column + width] *= 2.0
        column += width
    return Statistics(rows, _constant_carrier(family, n))


@_statistics.register
def _(family: NormalInverseGamma, x: Array, origin: Origin) -> Statistics:
    y = x - origin.point
    rows = np.hstack([y, np.ones((len(x), 2)), np.square(y)])
    return Statistics(rows, _constant_carrier(family, len(x)))


@_statistics.register
def _(family: KnownCovariance, x: Array, origin: Origin) -> Statistics:
    y = x - origin.point
    points = family.empty_stats(len(x))._replace(mass=np.ones(len(x)), mean=y)
    return Statistics(np.hstack([family.to_basis(y), np.ones_like(y)]), family.log_carrier(points))


@singledispatch
def statistics_of_moments(family: AnyFamily, location: Array, spread: Array, origin: Origin) -> Statistics | None:
    """Mean of t(x) and of log h(x) over groups of points of mean `location` (A, D) and mean scatter `spread`
    (A, D, D) about it; None for a family whose t(x) is more than linear and quadratic terms."""
    return None


@statistics_of_moments.register
def _(family: NormalInverseWishart, location: Array, spread: Array, origin: Origin) -> Statistics:
    y = location - origin.point
    second = pack(spread + outer(y), with_multiplicity=True)
    return Statistics(np.hstack([y, np.ones((len(y), 2)), second]), _constant_carrier(family, len(y)))


@statistics_of_moments.register
def _(family: NormalInverseGamma, location: Array, spread: Array, origin: Origin) -> Statistics:
    y = location - origin.point
    second = np.square(y) + np.diagonal(spread, axis1=1, axis2=2)
    return Statistics(np.hstack([y, np.ones((len(y), 2)), second]), _constant_carrier(family, len(y)))


@statistics_of_moments.register
def _(family: KnownCovariance, location: Array, spread: Array, origin: Origin) -> Statistics:
    y = location - origin.point
    groups = family.empty_stats(len(y))._replace(mass=np.ones(len(y)), mean=y, scatter=scatter_as(family, spread))
    return Statistics(np.hstack([family.to_basis(y), np.ones_like(y)]), family.log_carrier(groups))


@singledispatch
def scatter_as(family: AnyFamily, scatter: Array) -> Array:
    """A scatter (K, D, D) in the layout of the family's statistics: whole."""
    return scatter


@scatter_as.register
def _(family: NormalInverseGamma, scatter: Array) -> Array:
    return np.diagonal(scatter, axis1=1, axis2=2)


@scatter_as.register
def _(family: KnownCovariance, scatter: Array) -> Array:
    basis = family.basis
    result: Array = np.einsum("kde,de->k", scatter, basis.T @ basis)
    return result


def _constant_carrier(family: AnyFamily, n: int) -> Array:
    """(n,) log h of a family for which it is the same at every point."""
    return np.full(n, float(family.log_carrier(_unit_mass(family))[0]))


def _unit_mass(family: AnyFamily) -> Any:
    return family.empty_stats(1)._replace(mass=np.ones(1))
