"""Prometheus metrics of one service, in a registry of their own.

Numbers about streams are read from the learners' tallies when a scraper asks, so that learning never waits for a
metric. Their labels are stream names, of which there are at most `max_streams`; routes are labelled by template,
never by path.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from shoal_service.errors import StoreError, UnknownStreamError
from shoal_service.store import Store
from shoal_service.streams import Stream, StreamRegistry

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_COUNTERS = (
    ("shoal_points_applied", "points_applied", "Points applied by the learner, replays after a start included"),
    ("shoal_entries_applied", "entries_applied", "Log entries applied by the learner"),
    ("shoal_component_births", "births", "Components born"),
    ("shoal_component_merges", "merges", "Components merged into another"),
    ("shoal_component_prunes", "prunes", "Components pruned"),
    ("shoal_births_refused", "births_refused", "Births refused because the stream has as many components as it may"),
    ("shoal_dead_letters", "dead_letters", "Entries that the learner could not take"),
    ("shoal_publications", "publications", "Views published to readers"),
)


class Metrics:
    """The metrics of one service: `observe` each request, `render` for the scraper."""

    def __init__(self, store: Store, streams: StreamRegistry) -> None:
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "shoal_request_seconds",
            "Time from a request's first byte to the end of its answer",
            ["method", "route", "status"],
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._cut_off = Counter(
            "shoal_requests_cut_off",
            "Requests whose client went away before the body was whole",
            registry=self._registry,
        )
        self._registry.register(_StreamCollector(store, streams))
        ProcessCollector(registry=self._registry)

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self._requests.labels(method, route, f"{status // 100}xx").observe(seconds)

    def count_cut_off(self) -> None:
        """Count one request that was cut off."""
        self._cut_off.inc()

    def render(self) -> bytes:
        """All metrics in the text format. Asks the store: not for the event loop."""
        return generate_latest(self._registry)


class _StreamCollector(Collector):
    """What the learners and the log say, at the moment of asking."""

    def __init__(self, store: Store, streams: StreamRegistry) -> None:
        self._store = store
        self._streams = streams

    def describe(self) -> list[Metric]:
        """Nothing in advance, so that registering asks nothing of the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """One family a number, one sample a stream."""
        streams = self._streams.loaded
        for name, field, words in _COUNTERS:
            yield _counter(name, words, {s.name: getattr(s.learner.tally, field) for s in streams})
        yield _counter("shoal_points_ingested", "Points accepted", {s.name: s.points_ingested for s in streams})
        yield _checkpoint_seconds(streams)
        sizes = {s.name: s.learner.tally.checkpoint_bytes for s in streams}
        yield _gauge("shoal_checkpoint_bytes", "Size of the last checkpoint", sizes)
        yield _gauge("shoal_components", "Live components", {s.name: _n_components(s) for s in streams})
        halted = {s.name: int(s.learner.failure is not None) for s in streams}
        yield _gauge("shoal_learner_halted", "1 when the stream's learner has stopped on an error", halted)
        yield from self._log_gauges(streams)

    def _log_gauges(self, streams: list[Stream]) -> Iterator[Metric]:
        offsets, lags, waiting = {}, {}, {}
        for stream in streams:
            try:
                tail = self._store.tail(stream.name, stream.record.incarnation)
            except (StoreError, UnknownStreamError):
                continue  # deleted meanwhile, or a store that /readyz speaks for
            view = stream.learner.board.view
            offsets[stream.name] = tail.log_offset
            waiting[stream.name] = tail.unapplied_bytes
            if view is not None:
                lags[stream.name] = tail.log_offset - view.log_offset
        yield _gauge("shoal_log_offset", "Points in the log", offsets)
        yield _gauge("shoal_lag_points", "Points in the log that readers do not see yet", lags)
        yield _gauge("shoal_unapplied_bytes", "Bytes of the log that wait to be applied", waiting)


def _n_components(stream: Stream) -> int:
    view = stream.learner.board.view
    return 0 if view is None or view.snapshot is None else view.snapshot.n_components


def _counter(name: str, words: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, words, labels=["stream"])
    for stream, value in values.items():
        family.add_metric([stream], value)
    return family


def _gauge(name: str, words: str, values: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=["stream"])
    for stream, value in values.items():
        family.add_metric([stream], value)
    return family


def _checkpoint_seconds(streams: list[Stream]) -> Metric:
    family = SummaryMetricFamily("shoal_checkpoint_seconds", "Time spent on checkpoints", labels=["stream"])
    for stream in streams:
        tally = stream.learner.tally
        family.add_metric([stream.name], tally.checkpoints, tally.checkpoint_seconds)
    return family
