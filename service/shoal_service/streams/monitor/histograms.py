"""Histograms of novelty and log density of the points that a process has learnt, for the metrics.

Every eighth point of a batch is counted, which keeps the cost below a hundredth of learning.
"""

import threading

import numpy as np

from shoal.points.arrays import Array

LOG_DENSITY_EDGES = (
    -1000.0, -300.0, -100.0, -50.0, -30.0, -20.0, -15.0, -10.0, -7.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0,
    1.0, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0,
)  # fmt: skip
"""Upper edges of the buckets of log densities, in nats."""
NOVELTY_EDGES = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
"""Upper edges of the buckets of novelties."""


EVERY = 8
"""One point in so many of a batch is counted."""
AT_ONCE = 8_192
"""Points that are kept until they are counted together, which costs each of them less."""


class Buckets:
    """Counts of values by bucket."""

    def __init__(self, edges: tuple[float, ...]) -> None:
        self._edges = np.array(edges)
        self.counts = np.zeros(len(edges) + 1, dtype=np.int64)
        """(E + 1,) values in each bucket; the last one has those above all edges."""
        self.total = 0.0
        """Sum of the values."""

    def add(self, values: Array) -> None:
        """Add finite values (N,). One on an edge belongs below it."""
        found = self._edges.searchsorted(values)
        self.counts = self.counts + np.bincount(found, minlength=len(self.counts))
        self.total += float(values.sum())


class ScoreHistograms:
    """Log density and novelty of points, each just before it was learnt. Any thread may use it."""

    def __init__(self) -> None:
        self._log_density, self._novelty = Buckets(LOG_DENSITY_EDGES), Buckets(NOVELTY_EDGES)
        self._waiting: list[tuple[Array, Array]] = []
        self._n_waiting = 0
        self._lock = threading.Lock()

    def add(self, log_density: Array, novelty: Array) -> None:
        """Add every eighth of points (N,), the first one included. One without a log density, before there was a prior,
        counts for the novelty alone.
        """
        with self._lock:
            self._waiting.append((log_density[::EVERY], novelty[::EVERY]))
            self._n_waiting += len(novelty)
            if self._n_waiting >= AT_ONCE:
                self._count()

    def counted(self) -> tuple[Buckets, Buckets]:
        """The buckets of log density and of novelty, with every point that was added. Not to be changed."""
        with self._lock:
            self._count()
            return self._log_density, self._novelty

    def _count(self) -> None:
        if self._waiting:
            log_density, novelty = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
            self._waiting, self._n_waiting = [], 0
            self._log_density.add(log_density[np.isfinite(log_density)])
            self._novelty.add(novelty)
