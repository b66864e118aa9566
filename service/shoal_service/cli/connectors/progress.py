"""Progress of a connector, as numbers for operators."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest


class Progress:
    """Counters of one connector, and whether it can work now. Any thread may call its methods."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        registry = self._registry = CollectorRegistry(auto_describe=False)
        self.records = Counter("shoal_connect_records", "Records read from the source", registry=registry)
        self.bad = Counter("shoal_connect_bad_records", "Records that were skipped", registry=registry)
        self.points = Counter("shoal_connect_points", "Points stored by this connector", registry=registry)
        self.batches = Counter("shoal_connect_batches", "Batches stored by this connector", registry=registry)
        self.refused = Counter(
            "shoal_connect_refused_batches", "Batches that did not begin at the stored position", registry=registry
        )
        self.source_errors = Counter(
            "shoal_connect_source_errors", "Times when the source could not be read", registry=registry
        )
        self.server_errors = Counter(
            "shoal_connect_server_errors", "Times when the server did not take a batch", registry=registry
        )
        self.stored_at = Gauge(
            "shoal_connect_last_stored_timestamp_seconds", "Unix time of the last stored batch", registry=registry
        )
        self._ready = Gauge("shoal_connect_ready", "1 while source and server can be reached", registry=registry)
        self.trouble: str | None = "it has just started"
        """Why the connector cannot work now. None while it can."""

        self.n_points = 0
        """Points stored by this connector."""

    def stored(self, n_points: int) -> None:
        """Count a batch that is in the log."""
        self.n_points += n_points
        self.points.inc(n_points)
        self.batches.inc()
        self.stored_at.set(self._clock())

    def works(self) -> None:
        """Note that source and server answer."""
        self.trouble = None
        self._ready.set(1)

    def fails(self, reason: str) -> None:
        """Note why the connector cannot work."""
        self.trouble = reason
        self._ready.set(0)

    def text(self) -> bytes:
        """All numbers in the text format of Prometheus."""
        return generate_latest(self._registry)
