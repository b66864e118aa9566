"""Prometheus metrics of one service, in a registry of their own.

Numbers about streams are read from the learners' counters when a scraper asks, so that learning never waits for a
metric. Their labels are stream names, of which there are at most `max_streams`; routes are labelled by template,
never by path.
"""

import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from shoal_service.errors import StoreError, UnknownStreamError
from shoal_service.store import Store
from shoal_service.streams import (
    LOG_DENSITY_EDGES,
    NOVELTY_EDGES,
    SOURCE_STATUSES,
    Buckets,
    Learner,
    LeaseCounters,
    PieceCounters,
    RefinementCounters,
    RunningSource,
    Stream,
)

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_COUNTERS = (
    ("shoal_points_applied", "points_applied", "Points applied by the learner, replays after a start included"),
    ("shoal_entries_applied", "entries_applied", "Log entries applied by the learner"),
    ("shoal_component_births", "births", "Components born"),
    ("shoal_component_merges", "merges", "Components merged into another"),
    ("shoal_component_prunes", "prunes", "Components pruned"),
    (
        "shoal_births_refused",
        "births_refused",
        "Births refused because the stream has its largest number of components",
    ),
    ("shoal_dead_letters", "dead_letters", "Log entries that the learner could not apply"),
    ("shoal_publications", "publications", "Views published to readers"),
)
_OUTCOMES = (
    ("shoal_refinements_adopted", "adopted", "Refinements adopted"),
    ("shoal_refinements_not_adopted", "not_adopted", "Refinements that were not adopted"),
    ("shoal_refinements_set_aside", "dead_letters", "Refinements whose entry became a dead letter"),
)


_PIECES = (
    ("sent", "Pieces of partitioned streams that this process offered to others"),
    ("answered", "Offered pieces that another process computed"),
    ("taken_back", "Offered pieces that no process picked up"),
    ("lost", "Offered pieces that were picked up, and whose result did not come in time"),
    ("computed_for_others", "Pieces that this process computed for others"),
)
_SOURCE_LABELS = ("stream", "source")
_SOURCE_COUNTERS = (
    ("shoal_source_records", "records", "Records read from the source, those that were read again included"),
    ("shoal_source_bad_records", "skipped", "Records of the source that were skipped"),
    ("shoal_source_points", "points", "Points of the source that were stored"),
)
_SOURCE_GAUGES = (
    ("shoal_source_lag_records", "lag_records", "Records that wait in the source, where it says so"),
    (
        "shoal_source_lag_seconds",
        "lag_s",
        "Time between the last record that was read and the newest one, where the source says so",
    ),
    ("shoal_source_last_stored_timestamp_seconds", "last_stored_at", "Unix time of the source's last stored batch"),
)
_SCORES = (
    (
        "shoal_point_log_density",
        "Log density of every eighth point of a batch just before it was learnt",
        LOG_DENSITY_EDGES,
    ),
    ("shoal_point_novelty", "Novelty of every eighth point of a batch just before it was learnt", NOVELTY_EDGES),
)


class Metrics:
    """Metrics of one service: `observe` each request, `render` for Prometheus."""

    def __init__(
        self,
        store: Store,
        streams: Callable[[], list[Stream]] = list,
        learners: Callable[[], Mapping[str, Learner]] = dict,
    ) -> None:
        """`streams` gives the numbers of logs and readers, `learners` those of learning, by stream."""
        self._store = store
        self._registry = CollectorRegistry()
        self._requests = Histogram(
            "shoal_request_seconds",
            "Time from a request's first byte to the end of its answer",
            ["method", "route", "status"],
            registry=self._registry,
            buckets=_BUCKETS,
        )
        self._seen: dict[tuple[str, str, int], Histogram] = {}
        self._cut_off = Counter(
            "shoal_requests_cut_off",
            "Requests whose client disconnected before the body was complete",
            registry=self._registry,
        )
        self._registry.register(_StreamCollector(store, streams, learners))
        ProcessCollector(registry=self._registry)

    def add_counter(self, name: str, words: str, value: Callable[[], float]) -> None:
        """Add a counter whose value is read when Prometheus asks."""
        self._add(CounterMetricFamily, name, words, value)

    def add_gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read when Prometheus asks."""
        self._add(GaugeMetricFamily, name, words, value)

    def _add(
        self, family: type[CounterMetricFamily | GaugeMetricFamily], name: str, words: str, value: Callable[[], float]
    ) -> None:
        class Once(Collector):
            def describe(self) -> list[Metric]:
                return [family(name, words)]

            def collect(self) -> Iterator[Metric]:
                yield family(name, words, value=value())

        self._registry.register(Once())

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        kind = (method, route, status // 100)
        if (seen := self._seen.get(kind)) is None:
            seen = self._seen[kind] = self._requests.labels(method, route, f"{status // 100}xx")
        seen.observe(seconds)

    def count_cut_off(self) -> None:
        """Count one request that was cut off."""
        self._cut_off.inc()

    def add_refining(self, counters: RefinementCounters) -> None:
        """Add the counters of the refinement worker of this process."""
        self.add_counter("shoal_refinements_made", "Refinements computed, adopted or not", lambda: counters.made)
        self.add_counter("shoal_refinement_seconds", "Seconds spent on computed refinements", lambda: counters.seconds)
        self.add_counter(
            "shoal_refinement_attempts_failed", "Attempts at refinements that failed", lambda: counters.attempts_failed
        )
        self.add_counter(
            "shoal_refinements_failed", "Refinements that failed after all attempts", lambda: counters.failed
        )

    def add_leases(self, counters: LeaseCounters, led: Callable[[], int]) -> None:
        """Add the counters of the leases of this process. `led` gives the number of streams that it leads."""
        self.add_counter("shoal_leases_taken", "Streams that this process began to lead", lambda: counters.taken)
        self.add_counter("shoal_leases_lost", "Streams that another process took over", lambda: counters.lost)
        self.add_gauge("shoal_streams_led", "Streams that this process leads", led)

    def add_pieces(self, counters: PieceCounters) -> None:
        """Add the counters of the pieces of streams with partitions that this process shares with others."""
        for field, words in _PIECES:
            self.add_counter(f"shoal_pieces_{field}", words, partial(getattr, counters, field))

    def add_sources(self, running: Callable[[], list[RunningSource]]) -> None:
        """Add the numbers of the configured sources that this process runs."""
        self._registry.register(_SourceCollector(running))

    def add_store(self, folder: Path | None) -> None:
        """Add whether the store accepts writes and, for a store in a folder, the room on its disk."""
        self.add_gauge(
            "shoal_store_accepts_writes", "1 when the store has just completed a write for this", self._accepts_writes
        )
        if folder is not None:
            self.add_gauge("shoal_disk_free_bytes", "Free space on the disk of the data", lambda: _disk(folder).free)
            self.add_gauge("shoal_disk_size_bytes", "Size of the disk of the data", lambda: _disk(folder).total)

    def _accepts_writes(self) -> float:
        try:
            self._store.check()
        except StoreError:
            return 0.0
        return 1.0

    def render(self) -> bytes:
        """Write all metrics in the text format. It reads the store, so do not call it in the event loop."""
        return generate_latest(self._registry)


class _StreamCollector(Collector):
    """Collector of numbers of learners and logs."""

    def __init__(
        self, store: Store, streams: Callable[[], list[Stream]], learners: Callable[[], Mapping[str, Learner]]
    ) -> None:
        self._store = store
        self._streams = streams
        self._learners = learners

    def describe(self) -> list[Metric]:
        """Nothing, so that registering does not read the store."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give one metric family per number, with one sample per stream."""
        streams, learners = self._streams(), dict(self._learners())
        for name, field, words in _COUNTERS:
            yield _counter(name, words, {of: getattr(learner.counters, field) for of, learner in learners.items()})
        outcomes = {of: learner.counters.refinements for of, learner in learners.items()}
        for name, field, words in _OUTCOMES:
            yield _counter(name, words, {of: getattr(counters, field) for of, counters in outcomes.items()})
        yield _checkpoint_seconds(learners)
        sizes = {of: learner.counters.checkpoint_bytes for of, learner in learners.items()}
        yield _gauge("shoal_checkpoint_bytes", "Size of the last checkpoint", sizes)
        adoptions = {of: counters.last_adoption_offset for of, counters in outcomes.items()}
        yield _gauge("shoal_last_adoption_offset", "Log offset of the last refinement adopted", adoptions)
        counted = {of: learner.counters.scores.counted() for of, learner in learners.items()}
        for i, (name, words, edges) in enumerate(_SCORES):
            yield _histogram(name, words, edges, {of: buckets[i] for of, buckets in counted.items()})
        scores = {s.name: view.score.mean for s in streams if (view := s.view_source.board.view) is not None}
        known = {of: mean for of, mean in scores.items() if mean is not None}
        yield _gauge(
            "shoal_predictive_score", "Mean log density of the last 1,000 points before they were learnt", known
        )
        yield _counter("shoal_points_ingested", "Points accepted", {s.name: s.points_ingested for s in streams})
        yield _gauge("shoal_components", "Live components", {s.name: _n_components(s) for s in streams})
        halted = {s.name: int(s.view_source.failure is not None) for s in streams}
        halted |= {of: int(learner.failure is not None) for of, learner in learners.items()}
        yield _gauge("shoal_learner_halted", "1 when the stream's learner has stopped on an error", halted)
        yield from self._log_gauges(streams)

    def _log_gauges(self, streams: list[Stream]) -> Iterator[Metric]:
        offsets, lags, waiting = {}, {}, {}
        for stream in streams:
            try:
                tail = self._store.tail(stream.name, stream.record.incarnation)
            except (StoreError, UnknownStreamError):
                continue  # deleted in the meantime, or the store is down, which /readyz says
            view = stream.view_source.board.view
            offsets[stream.name] = tail.log_offset
            waiting[stream.name] = tail.unapplied_bytes
            if view is not None:
                lags[stream.name] = tail.log_offset - view.log_offset
        yield _gauge("shoal_log_offset", "Points in the log", offsets)
        yield _gauge("shoal_lag_points", "Points in the log that readers do not see yet", lags)
        yield _gauge("shoal_unapplied_bytes", "Bytes of the log that wait to be applied", waiting)


class _SourceCollector(Collector):
    """Collector of numbers of configured sources."""

    def __init__(self, running: Callable[[], list[RunningSource]]) -> None:
        self._running = running

    def describe(self) -> list[Metric]:
        """Nothing, as for streams."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Give one metric family per number, with one sample per source that has it."""
        running = self._running()
        for name, field, words in _SOURCE_COUNTERS:
            counter = CounterMetricFamily(name, words, labels=_SOURCE_LABELS)
            for one in running:
                counter.add_metric([one.stream, one.name], getattr(one.state, field) - getattr(one.begun, field))
            yield counter
        restarts = CounterMetricFamily(
            "shoal_source_restarts", "Ends of the source's process, which was started again", labels=_SOURCE_LABELS
        )
        for one in running:
            restarts.add_metric([one.stream, one.name], one.restarts)
        yield restarts
        for name, field, words in _SOURCE_GAUGES:
            gauge = GaugeMetricFamily(name, words, labels=_SOURCE_LABELS)
            for one in running:
                if (value := getattr(one.state, field)) is not None:
                    gauge.add_metric([one.stream, one.name], value)
            yield gauge
        states = GaugeMetricFamily(
            "shoal_source_state", "1 for the state that the source is in, 0 for the others", labels=_SOURCE_LABELS
        )
        for one in running:
            for status in SOURCE_STATUSES:
                labels = {"stream": one.stream, "source": one.name, "state": status}
                states.add_sample("shoal_source_state", labels, int(one.state.status == status))
        yield states


class _Disk(NamedTuple):
    total: float
    free: float


def _disk(folder: Path) -> _Disk:
    """Bytes of the disk of a folder, NaN where the system gives none. `free` is what this user may still write."""
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return _Disk(math.nan, math.nan)
    return _Disk(found.total, found.free)


def _n_components(stream: Stream) -> int:
    view = stream.view_source.board.view
    return 0 if view is None or view.snapshot is None else view.snapshot.n_components


def _counter(name: str, words: str, values: dict[str, int]) -> Metric:
    family = CounterMetricFamily(name, words, labels=["stream"])
    for stream, value in values.items():
        family.add_metric([stream], value)
    return family


def _histogram(name: str, words: str, edges: tuple[float, ...], values: dict[str, Buckets]) -> Metric:
    family = HistogramMetricFamily(name, words, labels=["stream"])
    for stream, buckets in values.items():
        counts = buckets.counts.cumsum().tolist()
        for edge, count in zip([*map(floatToGoString, edges), "+Inf"], counts, strict=True):
            family.add_sample(f"{name}_bucket", {"stream": stream, "le": edge}, count)
        # Added here, because `add_metric` leaves both out where an edge is negative.
        family.add_sample(f"{name}_count", {"stream": stream}, counts[-1])
        family.add_sample(f"{name}_sum", {"stream": stream}, buckets.total)
    return family


def _gauge(name: str, words: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, words, labels=["stream"])
    for stream, value in values.items():
        family.add_metric([stream], value)
    return family


def _checkpoint_seconds(learners: Mapping[str, Learner]) -> Metric:
    family = SummaryMetricFamily("shoal_checkpoint_seconds", "Time spent on checkpoints", labels=["stream"])
    for stream, learner in learners.items():
        family.add_metric([stream], learner.counters.checkpoints, learner.counters.checkpoint_seconds)
    return family
