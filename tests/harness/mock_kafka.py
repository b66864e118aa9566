"""A Kafka cluster inside this process: the mock brokers of librdkafka, on loopback, with faults on request.

The Python client has no door to them, so the library that it brings along is called with ctypes. `RealKafka` has the
same methods for a real broker, without faults.
"""

import ctypes
import os
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

PRODUCE, FETCH, OFFSET_COMMIT, OFFSET_FETCH, JOIN_GROUP, HEARTBEAT = 0, 1, 8, 9, 11, 12
"""Numbers of requests in the protocol of Kafka."""


def _library() -> Any:
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
    pointer, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, result, arguments in (
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class MockKafka:
    """Cluster of brokers numbered from 1."""

    def __init__(self, brokers: int = 3) -> None:
        self._library = _library()
        reason = ctypes.create_string_buffer(256)
        self._client = self._library.rd_kafka_new(0, None, reason, 256)
        assert self._client, reason.value
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        self._library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 100)
        self.brokers = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": self.brokers})

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def produce(self, topic: str, partition: int, value: bytes, key: bytes | None = None, at_ms: int = 0) -> None:
        """Add a message. `flush` waits until all are there."""
        self._producer.produce(topic, value, key, partition, timestamp=at_ms)

    def flush(self) -> None:
        """Wait until all messages are in the topics."""
        assert self._producer.flush(30) == 0

    def fail(self, request: int, *errors: int) -> None:
        """Answer the next requests of one kind with these errors."""
        self._library.rd_kafka_mock_push_request_errors(
            ctypes.c_void_p(self._cluster), ctypes.c_int16(request), ctypes.c_size_t(len(errors)), *errors
        )

    def down(self, broker: int) -> None:
        """Close the connections of a broker, and take no others."""
        self._library.rd_kafka_mock_broker_set_down(self._cluster, broker)

    def up(self, broker: int) -> None:
        """Take connections again."""
        self._library.rd_kafka_mock_broker_set_up(self._cluster, broker)

    def close(self) -> None:
        """End the cluster."""
        self._producer.flush(5)
        del self._producer
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


class RealKafka:
    """The broker at the address in the variable SHOAL_TEST_KAFKA."""

    def __init__(self) -> None:
        self.brokers = os.environ["SHOAL_TEST_KAFKA"]
        self._producer = confluent_kafka.Producer({"bootstrap.servers": self.brokers})

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic."""
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def produce(self, topic: str, partition: int, value: bytes) -> None:
        """Add a message. `flush` waits until all are there."""
        self._producer.produce(topic, value, partition=partition)

    def flush(self) -> None:
        """Wait until all messages are in the topics."""
        assert self._producer.flush(30) == 0

    def close(self) -> None:
        """Leave the broker as it is."""


def kafka_for_tests() -> MockKafka | RealKafka:
    """A real broker where SHOAL_TEST_KAFKA names one, else a mock cluster."""
    return RealKafka() if os.environ.get("SHOAL_TEST_KAFKA") else MockKafka()
