"""The kernels of `gibbs_kernel` and `split_merge_kernel` in NumPy, over a family's own functions.

They serve families without kernels. Points leave and join components by `subtract` and `add`. Predictive densities are
computed again for the rows that have changed.
"""

from typing import Any

import numpy as np

from shoal.families import AnyFamily, take
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points


class _Rows:
    """Components in arrays of C rows, with their predictive densities."""

    def __init__(self, family: AnyFamily, stats: Any, n: int) -> None:
        self.family, self.stats = family, stats
        self.empty = family.empty_stats(1)
        self.blank = family.predictive(family.posterior(self.empty))
        rows = len(stats[0])
        self.scored_by = type(self.blank)(*(np.repeat(field, rows, axis=0) for field in self.blank))
        if n:
            _put(self.scored_by, slice(0, n), family.predictive(family.posterior(take(stats, slice(0, n)))))

    def get(self, k: int) -> Any:
        """A copy of row k."""
        return type(self.stats)(*(field[k : k + 1].copy() for field in self.stats))

    def put(self, k: int, row: Any) -> None:
        """Write row k."""
        _put(self.stats, slice(k, k + 1), row)
        _put(self.scored_by, slice(k, k + 1), self.family.predictive(self.family.posterior(row)))

    def clear(self, k: int) -> None:
        """Make row k a component without points."""
        _put(self.stats, slice(k, k + 1), self.empty)
        _put(self.scored_by, slice(k, k + 1), self.blank)

    def move(self, source: int, target: int) -> None:
        """Write row `source` over row `target`."""
        for field in (*self.stats, *self.scored_by):
            field[target] = field[source]

    def scores(self, n: int, point: Points) -> Array:
        """Log predictive density of a point (1, D) under each of the first n rows (n,)."""
        return np.asarray(self.family.log_predictive_from(take(self.scored_by, slice(0, n)), point)[0])

    def one(self, point: Points) -> Any:
        """Statistics of one point (1, D)."""
        return self.family.suffstats(point, np.ones((1, 1)))


def sweep_plainly(
    family: AnyFamily,
    concentration: float,
    x: Points,
    uniforms: Array,
    labels: IntArray,
    stats: Any,
    n: int,
    start: int,
    rebuild: bool,
) -> tuple[int, int]:
    """Draw the labels of x[start:] as `gibbs_sweep` does, writing `labels` and `stats` (C rows, the first n in use).

    Returns the next row of x, where the arrays are full, and the components in use.
    """
    if rebuild and n:
        _put(stats, slice(0, n), family.suffstats(x, (labels[:, None] == np.arange(n)).astype(np.float64)))
    rows, capacity = _Rows(family, stats, n), len(stats[0])
    for i in range(start, x.shape[0]):
        if n + 2 > capacity:
            return i, n
        point, k, before = x[i : i + 1], int(labels[i]), None
        one = rows.one(point)
        if k >= 0 and stats[0][k] < 1.5:  # alone: its component is removed, and the last one moves to its row
            n, labels[i], last = n - 1, -1, n - 1
            rows.move(last, k)
            labels[labels == last] = k
            k = -1
        elif k >= 0:
            before = rows.get(k)
            rows.put(k, family.subtract(before, one))
        rows.clear(n)
        log_p = rows.scores(n + 1, point) + np.log(np.append(stats[0][:n], concentration))
        heights = np.cumsum(np.exp(log_p - log_p.max()))
        drawn = int(np.searchsorted(heights, uniforms[i] * heights[-1], side="right"))
        labels[i] = drawn
        rows.put(drawn, before if drawn == k and before is not None else family.add(rows.get(drawn), one))
        n += drawn == n
    return x.shape[0], n


def divide_plainly(
    family: AnyFamily,
    x: Points,
    uniforms: Array,
    target: IntArray,
    n_scans: int,
    sequential: bool,
    stats: Any,
    labels: IntArray,
) -> float:
    """Divide points x (M, D) between the anchors x[0] and x[1] as `divide_pair` does.

    Writes `labels` and rows 0 and 1 of `stats`. Returns the log of the probability of the result, nats.
    """
    m, rows, log_q = x.shape[0], _Rows(family, stats, 0), 0.0

    def choose(i: int, uniform: float, wanted: IntArray) -> tuple[int, float]:
        """The side drawn for point i, which is in neither, and the log of its probability."""
        log_p = rows.scores(2, x[i : i + 1]) + np.log(stats[0][:2])
        log_p -= np.logaddexp(log_p[0], log_p[1])
        side = int(wanted[i]) if wanted.size else int(np.log(max(uniform, 1e-300)) < log_p[1])
        return side, float(log_p[side])

    def join(i: int, side: int) -> None:
        rows.put(side, family.add(rows.get(side), rows.one(x[i : i + 1])))
        labels[i] = side

    for k in range(2):
        rows.clear(k)
        join(k, k)
    if sequential:
        for i in range(2, m):
            side, log_p = choose(i, uniforms[i], target)
            join(i, side)
            log_q += log_p
        return log_q
    for i in range(2, m):
        join(i, int(uniforms[i] < 0.5))
    for scan in range(1, n_scans + 2):
        last = scan == n_scans + 1
        for i in range(2, m):
            k = int(labels[i])
            before = rows.get(k)
            rows.put(k, family.subtract(before, rows.one(x[i : i + 1])))
            side, log_p = choose(i, uniforms[scan * m + i], target if last else target[:0])
            if side == k:
                rows.put(k, before)
            else:
                join(i, side)
            log_q += log_p if last else 0.0
    return log_q


def _put(target: Any, rows: slice, source: Any) -> None:
    for field, fresh in zip(target, source, strict=True):
        field[rows] = fresh
