"""Kafka topics as a source, with the extra `kafka`. A position is the offset of the next message of a partition.

The consumer group shares the partitions among connectors. After each rebalancing the reader asks for the stored
positions, and reads its partitions from there: the offsets committed to the group only follow.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from shoal_service.cli.connectors.messages import MessageDecoder, Messages
from shoal_service.cli.connectors.progress import Lag
from shoal_service.cli.connectors.steps import PositionsNeededError, SourceAwayError, Step, not_a_position
from shoal_service.cli.exits import CommandError

POLL_S, GATHER_S = 1.0, 0.02
"""Longest wait for a message, and for others to come with it."""
LAG_S = 1.0
"""Time between two looks at the ends of the partitions."""
MUST_BE_OURS = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "partition.assignment.strategy": "range",
}
"""Settings of librdkafka that the promise needs."""


def load_kafka() -> Any:
    """Return the client library. CommandError when it is not installed."""
    try:
        import confluent_kafka
    except ImportError:
        raise CommandError("Kafka needs confluent-kafka; install it with pip install 'shoal[kafka]'") from None
    return confluent_kafka


class KafkaReader:
    """Reader of the partitions that a consumer group assigns to this process."""

    ended = False

    def __init__(
        self,
        brokers: str,
        topics: Sequence[str],
        decoder: MessageDecoder,
        log: Any,
        *,
        group: str,
        from_end: bool = False,
        count: int = 1000,
        message_key: bool = False,
        message_time: bool = False,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`from_end`: a partition without a stored position is read from its end, and not from its beginning.
        `message_key`, `message_time`: key and timestamp of a message are those of its record. `settings` of librdkafka.
        """
        self._kafka = load_kafka()
        given = dict(settings or {})
        if taken := sorted(given.keys() & MUST_BE_OURS.keys()):
            raise CommandError(f"{taken[0]} cannot be set: the stored position decides where to read")
        config = {"bootstrap.servers": brokers, "group.id": group, **given, **MUST_BE_OURS}
        try:
            self._consumer = self._kafka.Consumer(config, error_cb=self._note)
        except (self._kafka.KafkaException, TypeError) as error:
            raise CommandError(f"the consumer cannot be made: {error}") from error
        self._topics, self._decoder, self._log = list(topics), decoder, log
        self._from_end, self._count = from_end, count
        self._message_key, self._message_time = message_key, message_time
        self._assigned: set[tuple[str, int]] = set()
        self._positions_known = True
        self._subscribed = False
        self._steps: deque[Step] = deque()
        self._next: dict[tuple[str, int], int] = {}
        """Offset of the next message of each partition, or where it begins."""
        self.lag = Lag()
        self._lag_at = 0.0

    def begin(self, positions: Mapping[str, str]) -> None:
        """See `SourceReader.begin`."""
        self._steps.clear()
        if not self._subscribed:
            self._subscribed = True
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
        self._positions_known = True
        start = self._kafka.OFFSET_END if self._from_end else self._kafka.OFFSET_BEGINNING
        places = []
        for topic, number in sorted(self._assigned):
            position = positions.get(_partition(topic, number))
            if position is not None and not position.isdecimal():
                raise not_a_position(position, f"offset of Kafka, for {_partition(topic, number)}")
            places.append(self._kafka.TopicPartition(topic, number, start if position is None else int(position)))
        self._next = {(place.topic, place.partition): place.offset for place in places}
        try:
            self._consumer.assign(places)
        except self._kafka.KafkaException as error:
            raise SourceAwayError(str(error)) from error

    def read(self) -> Step | None:
        """See `SourceReader.read`. PositionsNeededError after a rebalancing."""
        if not self._steps:
            self._fetch()
        if not self._positions_known:
            self._steps.clear()
            raise PositionsNeededError
        return self._steps.popleft() if self._steps else None

    def stored(self, step: Step) -> None:
        """See `SourceReader.stored`. The offset of the group follows."""
        topic, _, number = step.partition.rpartition("/")
        if (topic, int(number)) not in self._assigned:
            return
        place = self._kafka.TopicPartition(topic, int(number), int(step.after))
        try:
            self._consumer.commit(offsets=[place], asynchronous=True)
        except self._kafka.KafkaException as error:
            self._log.warning("not_committed", partition=step.partition, reason=str(error))

    def close(self) -> None:
        """See `SourceReader.close`."""
        self._consumer.close()

    def _fetch(self) -> None:
        try:
            first = self._consumer.poll(POLL_S)
            found = [] if first is None else [first, *self._consumer.consume(self._count - 1, GATHER_S)]
        except self._kafka.KafkaException as error:
            raise SourceAwayError(str(error)) from error
        groups: dict[tuple[str, int], list[Any]] = {}
        for message in found:
            if (fault := message.error()) is None:
                groups.setdefault((message.topic(), message.partition()), []).append(message)
            else:
                self._check(fault, message)
        self._steps.extend(self._step(place, groups[place]) for place in sorted(groups) if place in self._assigned)
        self._measure_lag()

    def _measure_lag(self) -> None:
        """Note how many messages wait in the assigned partitions, as far as the library has heard of them."""
        if time.monotonic() - self._lag_at < LAG_S:
            return
        self._lag_at, waiting = time.monotonic(), 0
        for topic, number in self._assigned:
            first, end = self._consumer.get_watermark_offsets(self._kafka.TopicPartition(topic, number), cached=True)
            at = self._next.get((topic, number))
            if end < 0 or at is None:  # nothing is known of this partition yet
                self.lag = Lag()
                return
            begins = {self._kafka.OFFSET_BEGINNING: first, self._kafka.OFFSET_END: end}
            waiting += max(0, end - begins.get(at, at))
        self.lag = Lag(waiting)

    def _check(self, error: Any, message: Any) -> None:
        """Raise the error of a message, unless it says only that a partition has no further one."""
        codes = self._kafka.KafkaError
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            raise CommandError(
                f"partition {message.partition()} of topic {message.topic()!r} no longer holds the stored position, or "
                f"was made again ({error.str()}); to begin again, forget it: shoal sources forget SOURCE"
            )
        if error.fatal():
            raise CommandError(f"kafka: {error.str()}")
        if error.code() != codes._PARTITION_EOF:
            raise SourceAwayError(f"kafka: {error.str()}")

    def _step(self, place: tuple[str, int], found: list[Any]) -> Step:
        self._next[place] = found[-1].offset() + 1
        partition = _partition(*place)
        messages = Messages(
            _Ids(partition, found),
            [message.value() for message in found],
            [message.key() for message in found] if self._message_key else None,
            [self._time(message) for message in found] if self._message_time else None,
        )
        points = self._decoder.decode(messages)
        n_points = 0 if points is None else len(points.points)
        return Step(partition, str(found[-1].offset() + 1), points, len(found), len(found) - n_points)

    def _time(self, message: Any) -> float | None:
        kind, milliseconds = message.timestamp()
        return None if kind == self._kafka.TIMESTAMP_NOT_AVAILABLE else milliseconds / 1000.0

    def _on_assign(self, consumer: Any, places: list[Any]) -> None:
        """Hold all partitions until the stored positions are known, which another connector may just have moved."""
        self._assigned = {(place.topic, place.partition) for place in places}
        self._positions_known = False
        consumer.assign([])
        self._log.info("assigned", partitions=sorted(_partition(*place) for place in self._assigned))

    def _on_revoke(self, consumer: Any, places: list[Any]) -> None:
        self._assigned = set()
        self._steps.clear()
        consumer.unassign()

    def _note(self, error: Any) -> None:
        self._log.warning("kafka", reason=error.str())


class _Ids(Sequence[str]):
    """Places of messages, made into text when they are shown."""

    def __init__(self, partition: str, found: list[Any]) -> None:
        self._partition, self._found = partition, found

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, i: Any) -> Any:
        return f"{self._partition} offset {self._found[i].offset()}"


def _partition(topic: str, number: int) -> str:
    return f"{topic}/{number}"
