"""Code that the families of counts share: points in compressed rows, statistics that are sums, scores by words present.

A point is mostly zeros. Its score under a component is a sum over its non-zero elements, plus what the zeros add, which
is one number a component, worked out when the component changes. So scoring costs by the elements present, whatever
the number of features.
"""

from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from scipy.special import gammaln

from shoal.families.base import RowsT
from shoal.kernels.distances import row_blocks
from shoal.kernels.linalg import log_gamma_ratio
from shoal.kernels.moments import EMPTY_BELOW
from shoal.points.arrays import Array, IntArray
from shoal.points.domains import COUNTS, Domain
from shoal.points.rows import Points, SparseRows, row_elements

StatsT = TypeVar("StatsT", bound=tuple[Any, ...])

_BLOCK = 1 << 20
"""Elements of a table of terms: 8 MiB."""

_FEW = 8.0


class AdditiveFamily:
    """Mixin: statistics are sums over points, the mass first, with no location to take them about.

    Fields named in `SIGNED` may be negative; all others are sums of what is not.
    A family gives `collapsed_evidence` beside: the terms that are convex in a count by `mean_log_rises`, the others at
    the mean.
    """

    domain: ClassVar[Domain] = COUNTS
    stats_are_sums: ClassVar[bool] = True
    SIGNED: ClassVar[tuple[str, ...]] = ("log_coefficient",)

    def add(self, a: StatsT, b: StatsT) -> StatsT:
        """Both together, row by row."""
        return type(a)(*(left + right for left, right in zip(a, b, strict=True)))

    def subtract(self, a: StatsT, b: StatsT) -> StatsT:
        """`a` without `b`; what rounding has made negative becomes 0, and with it all of a component without mass."""
        gone = a[0] - b[0] <= EMPTY_BELOW * a[0]
        fields = []
        for name, left, right in zip(_fields(a), a, b, strict=True):
            rest = left - right if name in self.SIGNED else np.maximum(left - right, 0.0)
            fields.append(np.where(_beside(gone, rest), 0.0, rest))
        return type(a)(*fields)

    def scale(self, stats: StatsT, factor: float | Array) -> StatsT:
        """Every point's weight times `factor` (a scalar or (K,), >= 0)."""
        each = np.broadcast_to(factor, stats[0].shape)
        return type(stats)(*(field * _beside(each, field) + 0.0 for field in stats))

    def relative(self, values: RowsT, to: Any) -> RowsT:
        """`values` themselves: there is no location."""
        return values


def _fields(values: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = values._fields
    return names


def _beside(per_component: Array, field: Array) -> Array:
    """(K,) in a shape that goes with a field (K, ...)."""
    return per_component.reshape(-1, *[1] * (field.ndim - 1))


def weighted_sums(x: Points, resp: Array) -> Array:
    """sum_n resp_nk x_nd as (K, D), cost by elements present."""
    return np.ascontiguousarray(resp.T @ SparseRows.of(x))


def linear_scores(x: Points, slopes: Array) -> Array:
    """sum_d x_nd slopes_kd as (N, K), cost by elements present."""
    return np.asarray(SparseRows.of(x) @ np.ascontiguousarray(slopes.T))


def in_columns(x: Points, factors: tuple[float, ...]) -> SparseRows:
    """(N, F D) points x (N, D) F times beside one another, each time multiplied by one of the factors (F,)."""
    rows, (n, d) = SparseRows.of(x), x.shape
    columns = rows.indices.astype(np.int64)
    first, *others = (
        SparseRows((factor * rows.data, columns + j * d, rows.indptr), shape=(n, len(factors) * d))
        for j, factor in enumerate(factors)
        if factor != 0.0
    )
    return SparseRows.of(sum(others, first))


def row_sums(x: Points) -> Array:
    """(N,) sum of each row's elements."""
    return np.asarray(SparseRows.of(x).sum(axis=1))


def log_factorial_sums(x: Points) -> Array:
    """(N,) sum over each row's elements of log x!."""
    rows = SparseRows.of(x)
    logs = rows.with_values(gammaln(rows.data + 1.0))
    return np.asarray(logs.sum(axis=1))


def log_rise_over_factorial(a: Array, n: Array) -> Array:
    """log of G(a + n) / (G(a) n!) elementwise, a > 0, n >= 0: the kernels' function of that name, and its error."""
    above = log_gamma_ratio(n + 1.0, a - 1.0) - gammaln(a)
    return np.where(n >= a, above, log_gamma_ratio(a, n) - gammaln(n + 1.0))


def log_rises(a: Array, n: Array) -> Array:
    """`log_rise_over_factorial` of a (K, P) and n (P,), n >= 1: of the few-fold words, nearly all, by n logarithms."""
    few = n <= _FEW
    out = np.empty(a.shape)
    out[:, ~few] = log_rise_over_factorial(a[:, ~few], n[~few])
    near, times = a[:, few], n[few]
    logs = np.log(near)
    for j in range(1, int(times.max(initial=1.0))):
        more = times > j
        logs[:, more] += np.log(near[:, more] + j)
    out[:, few] = logs - gammaln(times + 1.0)
    return out


def mean_log_rises(a: Array, s: Array) -> Array:
    """Sums over features of E[log G(a + S) - log G(a)] from below, (K,): a (D,) > 0, s (K, D) >= 0 the means of whole
    numbers S >= 0.

    log G(a + S) is convex, and its chord between the whole numbers next to s lies below the mean over any S of that
    mean (and is it, where S is one of the two). Below 1 the chord is s log a, so only larger counts cost logarithms.
    """
    rows, columns = np.nonzero(s >= 1.0)
    whole = np.floor(s[rows, columns])
    start = a[columns]
    rises = log_gamma_ratio(start, whole) + (s[rows, columns] - whole) * np.log(start + whole)
    return np.where(s < 1.0, s, 0.0) @ np.log(a) + np.bincount(rows, rises, minlength=len(s))


class Pairs(NamedTuple):
    """The different (feature, value) pairs of some rows, and each row as a sum of pairs."""

    column: IntArray  # (P,)
    value: Array  # (P,)
    rows: SparseRows  # (n, P) of ones


def term_scores(x: Points, n_components: int, term: Any) -> Array:
    """sum over elements present of term(feature, value), as (N, K): `term` takes columns (P,) and values (P,), gives
    (K, P).

    Each different pair is worked out once a block: texts repeat theirs. Every row's sum is of its own terms in order,
    whatever stands beside it.
    """
    rows = SparseRows.of(x)
    out = np.zeros((len(rows), n_components))
    for part in row_blocks(len(rows), row_elements(rows) * max(1, n_components), _BLOCK):
        pairs = _pairs(rows[part])
        if pairs.value.size:
            out[part] = pairs.rows @ np.ascontiguousarray(term(pairs.column, pairs.value).T)
    return out


def _pairs(rows: SparseRows) -> Pairs:
    values, value_of = np.unique(rows.data, return_inverse=True)
    codes = rows.indices.astype(np.int64) * max(1, values.size) + value_of
    distinct, place = np.unique(codes, return_inverse=True)
    members = SparseRows((np.ones(place.size), place, rows.indptr), shape=(len(rows), max(1, distinct.size)))
    column, value = np.divmod(distinct, max(1, values.size))
    return Pairs(column, values[value] if values.size else np.zeros(0), members)
