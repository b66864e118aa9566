"""A partition of the points: its labels, statistics and log joint."""

from typing import Any

import numpy as np

from shoal.families import AnyFamily, concatenated, log_marginal
from shoal.points.arrays import IntArray
from shoal.points.rows import Points
from shoal.process import log_eppf


def blocks_of(labels: IntArray) -> list[IntArray]:
    """The points of each block, ascending, by their `labels` (N,) 0..K-1; no block is empty."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])


def block_stats(family: AnyFamily, x: Points, rows: IntArray) -> Any:
    """Statistics of the points `rows` of x (N, D) as one block: one row."""
    return family.suffstats(x[rows], np.ones((rows.size, 1)))


def component_stats(family: AnyFamily, x: Points, labels: IntArray) -> Any:
    """Statistics of the blocks 0..K-1 of a partition `labels` (N,) of points x (N, D): K rows."""
    return concatenated(*(block_stats(family, x, rows) for rows in blocks_of(labels)))


def log_joint(family: AnyFamily, concentration: float, stats: Any) -> float:
    """log p(x, partition) in nats, carrier included, of blocks with statistics `stats`.

    For any partition it is a lower bound on the log evidence.
    """
    return float(log_marginal(family, stats).sum()) + log_eppf(stats[0], concentration)


def by_size(labels: IntArray) -> IntArray:
    """The same partition (N,) with labels 0..K-1 by decreasing size; ties by the first point."""
    _, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    return rank[inverse]
