"""Nodes of a tree as points of a family of their own, so that the search of `inference` runs on them as it is.

Points below a node share their responsibilities. A node stands for them with the mean of their natural statistics t(x)
and of log h(x) (Kurihara, Welling and Vlassis 2006, eq. 16; ERRATA 1.14) and with their number as its weight. For a
conjugate family both are all that a component's evidence, posterior and scores need. Rows of nodes are
(t, log h, location).
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.families.natural_statistics import Origin, Statistics, natural_gain, seen_from
from shoal.inference import PastStats
from shoal.points.arrays import Array
from shoal.variational.cells import Cells


class NodeStats(NamedTuple):
    """Sums over the points of K components."""

    mass: Array  # (K,)
    natural: Array  # (K, P) of t(x)
    log_carrier: Array  # (K,) of log h(x)
    location: Array  # (K, E) of locations


class NodeFamily:
    """A conjugate family seen through the means of nodes; parameters are the family's own, about `origin`."""

    def __init__(self, family: AnyFamily, origin: Origin, width: int, n_columns: int) -> None:
        """`width` is P, `n_columns` the number of columns of a location."""
        self.family, self.origin, self.width, self.n_columns = family, origin, width, n_columns
        prior = seen_from(family, family.posterior(family.empty_stats(1)), origin)
        self.prior_natural = family.natural(prior)[0]
        self.n_features = width + 1 + n_columns
        self.n_free_parameters = family.n_free_parameters

    def empty_stats(self, n_components: int) -> NodeStats:
        """Statistics of components that have seen nothing."""
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
        """As the family's."""
        return self.family.natural(params)

    def from_natural(self, natural: Array) -> Any:
        """As the family's."""
        return self.family.from_natural(natural)

    def log_partition(self, params: Any) -> Array:
        """As the family's."""
        return self.family.log_partition(params)

    def mean_params(self, params: Any) -> Array:
        """As the family's."""
        return self.family.mean_params(params)

    def relative(self, values: Any, to: Any) -> Any:
        """All parameters are about one origin."""
        return values

    def log_carrier(self, stats: NodeStats) -> Array:
        """(K,)."""
        return stats.log_carrier

    def expected_log_likelihood(self, params: Any, x: Array) -> Array:
        """(A, K), carrier included."""
        scores: Array = x[:, : self.width] @ self.family.mean_params(params).T + x[:, self.width, None]
        return scores

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """t and log h, as the rows have them."""
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
    """A past of the family as one of the node family. Its points' locations count by their statistics' mean."""
    stats = nodes.empty_stats(len(past.mass))
    if np.any(past.mass > 0.0):
        carrier = nodes.family.log_carrier(seen_from(nodes.family, past.stats, nodes.origin))
        natural = natural_gain(nodes.family, past.stats, nodes.origin)
        stats = stats._replace(mass=past.mass.copy(), natural=natural, log_carrier=carrier)
    return past._replace(stats=stats)
