"""Cells of a fit: single points, or nodes of a tree, whose points share their responsibilities.

A node stands for its points with the mean of their natural statistics t(x) and of log h(x) (Kurihara, Welling and
Vlassis 2006, eq. 16; ERRATA 1.14), and with their number as its weight. For a conjugate family these suffice for a
component's evidence, posterior and scores. `NodeFamily` presents nodes as points of a family of their own, so that the
search of `inference` runs on them. Rows of nodes are (t, log h, location).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.families.natural_statistics import Origin, Statistics, natural_gain, seen_from, statistics
from shoal.inference import PastStats, locations_of
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points, SparseRows

_KEPT_ELEMENTS = 1 << 27
"""Elements of statistics that are kept, 1 GiB; beyond, every pass computes them again."""
_BLOCK_ELEMENTS = 1 << 19
"""Elements of statistics in a block: 4 MiB, so that they stay in cache for the second product."""


class Cells(NamedTuple):
    """A cells. The points of a cell share their responsibilities: their number, mean statistics and location."""

    family: AnyFamily
    origin: Origin
    location: Array  # (A, E) location of the point (`inference.locations`), or the mean of those of the points
    mass: Array  # (A,) number of points
    rows: Any  # (A, P) mean of t(x), sparse where the family's are; None: single points, computed on demand
    log_carrier: float  # sum over all points
    spread: Array | None  # (A, E, E) mean scatter of the points about `location`; None for single points
    n_points: float
    points: Points | None = None  # (A, D) single points

    @property
    def n_cells(self) -> int:
        """A."""
        return len(self.mass)

    @property
    def width(self) -> int:
        """P."""
        return int(self.rows_of(slice(0, 1)).shape[1])

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Pieces of the cells with their rows of statistics (n, P)."""
        step = max(64, _BLOCK_ELEMENTS // self.width)
        for start in range(0, self.n_cells, step):
            part = slice(start, min(start + step, self.n_cells))
            yield part, self.rows_of(part)

    def rows_of(self, part: slice | IntArray) -> Any:
        """Statistics of some of the cells (n, P)."""
        if self.rows is not None:
            return self.rows[part]
        assert self.points is not None, "cells of several points hold their rows"
        return statistics(self.family, self.points[part], self.origin).rows


def cells_of_points(family: AnyFamily, x: Points, origin: Origin) -> Cells:
    """Every point a cell of its own."""
    step = max(256, _BLOCK_ELEMENTS // max(1, x.shape[1] ** 2))
    width = statistics(family, x[:1], origin).rows.shape[1]
    if isinstance(statistics(family, x[:1], origin).rows, SparseRows):
        return _sparse_cells(family, x, origin)
    kept = np.empty((len(x), width)) if len(x) * width <= _KEPT_ELEMENTS else None
    carrier = 0.0
    for start in range(0, len(x), step):
        found = statistics(family, x[start : start + step], origin)
        if kept is not None:
            kept[start : start + step] = found.rows
        carrier += float(found.log_carrier.sum())
    locations = locations_of(family, x)
    return Cells(family, origin, locations, np.ones(len(x)), kept, carrier, None, float(len(x)), x)


def _sparse_cells(family: AnyFamily, x: Points, origin: Origin) -> Cells:
    """Points with statistics in sparse rows: all are kept."""
    found, n = statistics(family, x, origin), len(x)
    carrier = float(found.log_carrier.sum())
    return Cells(family, origin, locations_of(family, x), np.ones(n), found.rows, carrier, None, float(n), x)


class NodeStats(NamedTuple):
    """Sums over the points of K components."""

    mass: Array  # (K,)
    natural: Array  # (K, P) of t(x)
    log_carrier: Array  # (K,) of log h(x)
    location: Array  # (K, E) of locations


class NodeFamily:
    """A conjugate family over means of nodes; parameters are those of the family, about `origin`."""

    def __init__(self, family: AnyFamily, origin: Origin, width: int, n_columns: int) -> None:
        """`width` is P, `n_columns` the number of columns of a location."""
        self.family, self.origin, self.width, self.n_columns = family, origin, width, n_columns
        prior = seen_from(family, family.posterior(family.empty_stats(1)), origin)
        self.prior_natural = family.natural(prior)[0]
        self.n_features = width + 1 + n_columns
        self.n_free_parameters = family.n_free_parameters

    def empty_stats(self, n_components: int) -> NodeStats:
        """Statistics of components without points."""
        k = n_components
        return NodeStats(np.zeros(k), np.zeros((k, self.width)), np.zeros(k), np.zeros((k, self.n_columns)))

    def suffstats(self, x: Array, resp: Array) -> NodeStats:
        """Statistics (K) of nodes x under weighted responsibilities (A, K)."""
        sums = resp.T @ x
        return NodeStats(resp.sum(axis=0), sums[:, : self.width], sums[:, self.width].copy(), sums[:, self.width + 1 :])

    def add(self, a: NodeStats, b: NodeStats) -> NodeStats:
        """The statistics of both together."""
        return NodeStats(*(left + right for left, right in zip(a, b, strict=True)))

    def scale(self, stats: NodeStats, factor: float | Array) -> NodeStats:
        """Every weight times `factor`."""
        scale = np.broadcast_to(factor, stats.mass.shape)
        return NodeStats(*(field * scale.reshape((-1,) + (1,) * (field.ndim - 1)) for field in stats))

    def posterior(self, stats: NodeStats) -> Any:
        """Parameters of the family, about the origin."""
        return self.family.from_natural(self.prior_natural + stats.natural)

    def natural(self, params: Any) -> Array:
        """As in the family."""
        return self.family.natural(params)

    def from_natural(self, natural: Array) -> Any:
        """As in the family."""
        return self.family.from_natural(natural)

    def log_partition(self, params: Any) -> Array:
        """As in the family."""
        return self.family.log_partition(params)

    def mean_params(self, params: Any) -> Array:
        """As in the family."""
        return self.family.mean_params(params)

    def relative(self, values: Any, to: Any) -> Any:
        """The parameters unchanged: all are about one origin."""
        return values

    def log_carrier(self, stats: NodeStats) -> Array:
        """Sums of log h(x), (K,)."""
        return stats.log_carrier

    def expected_log_likelihood(self, params: Any, x: Array) -> Array:
        """E log p(x | eta) (A, K), carrier included."""
        scores: Array = x[:, : self.width] @ self.family.mean_params(params).T + x[:, self.width, None]
        return scores

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """t and log h, read from the rows."""
        return Statistics(x[:, : self.width], x[:, self.width])

    def positions(self, stats: NodeStats) -> Array:
        """(K, E) mean locations."""
        return stats.location / np.where(stats.mass > 0.0, stats.mass, 1.0)[:, None]

    def coordinates(self, x: Array) -> Array:
        """(A, E) locations of nodes."""
        return x[:, self.width + 1 :]


def node_rows(cells: Cells, log_carrier: Array) -> Array:
    """Cells as rows of the node family; log_carrier (A,) is the mean of log h(x) in each."""
    return np.hstack([cells.rows_of(slice(None)), log_carrier[:, None], cells.location])


def node_past(nodes: NodeFamily, past: PastStats) -> PastStats:
    """A past of the family in the form of the node family."""
    stats = nodes.empty_stats(len(past.mass))
    if np.any(past.mass > 0.0):
        carrier = nodes.family.log_carrier(seen_from(nodes.family, past.stats, nodes.origin))
        natural = natural_gain(nodes.family, past.stats, nodes.origin)
        stats = stats._replace(mass=past.mass.copy(), natural=natural, log_carrier=carrier)
    return past._replace(stats=stats)
