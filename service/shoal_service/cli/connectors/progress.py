"""Progress of a connector, as numbers for operators."""

import time
from collections.abc import Callable
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

STARTING = "it has just started"


class Lag(NamedTuple):
    """How far a reader is behind the end of its source."""

    records: int | None = None
    """None where the source does not say."""
    seconds: float | None = None
    """Time between the last record that was read and the newest one. None where the source does not say."""


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
        self._lag = Gauge(
            "shoal_connect_lag_records", "Records that wait in the source, where it says so", registry=registry
        )
        self.trouble: str | None = STARTING
        """Why the connector cannot work now. None while it can."""

        self.n_points = self.n_records = self.n_skipped = 0
        """Points stored, records read, and records skipped by this connector."""
        self.last_stored_at: float | None = None
        """Unix time of the last stored batch."""
        self.lag: Lag | None = None
        """How far it is behind the end of the source. None before the first read."""

    def read(self, n_records: int, lag: Lag) -> None:
        """Count records that were read."""
        self.n_records += n_records
        self.records.inc(n_records)
        self.lag = lag
        if lag.records is not None:
            self._lag.set(lag.records)

    def skipped(self, n_records: int) -> None:
        """Count records that were skipped."""
        self.n_skipped += n_records
        self.bad.inc(n_records)

    def stored(self, n_points: int) -> None:
        """Count a batch that is in the log."""
        self.n_points += n_points
        self.points.inc(n_points)
        self.batches.inc()
        self.last_stored_at = self._clock()
        self.stored_at.set(self.last_stored_at)

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
