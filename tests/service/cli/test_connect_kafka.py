"""The connector of Kafka on the mock cluster of librdkafka, against the real service in this process."""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from shoal_service.cli.connect import properties
from shoal_service.cli.connectors import BadMessages, Connector, MessageDecoder, Progress
from shoal_service.cli.connectors.messages import MessageFormat
from shoal_service.cli.exits import CommandError
from shoal_service.client import Client
from shoal_service.logs import make_log

confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs the extra kafka")

from harness.mock_kafka import FETCH, OFFSET_COMMIT, MockKafka  # noqa: E402
from shoal_service.cli.connectors.kafka import KafkaReader  # noqa: E402

LOG = make_log("error")
QUICK = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "200", "fetch.wait.max.ms": "50", "log_level": "0"}
QUICK["topic.metadata.refresh.interval.ms"] = "200"


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockKafka]:
    cluster = MockKafka()
    yield cluster
    cluster.close()


class Rig:
    """A topic and a stream of their own, and connectors between them."""

    def __init__(self, cluster: MockKafka, deliver: Callable[[httpx.Request], httpx.Response], partitions: int) -> None:
        self.cluster, self._deliver = cluster, deliver
        self.name = f"t{uuid.uuid4().hex}"
        cluster.create(self.name, partitions)
        self.shoal = self.client()
        self.sent = [0] * partitions

    def client(self) -> Client:
        return Client(stream=self.name, transport=httpx.MockTransport(self._deliver), retries=0)

    def produce(self, n: int, partition: int = 0) -> None:
        for i in range(self.sent[partition], self.sent[partition] + n):
            self.cluster.produce(self.name, partition, b"[%d,%d]" % (i, partition), b"key-%d" % i, 1000 * (i + 1))
        self.cluster.flush()
        self.sent[partition] += n

    def started(self, count: int = 10, **options: bool) -> tuple[Connector, threading.Thread]:
        bad = BadMessages("kafka", stops=True, takes_holes=lambda: False, log=LOG)
        decoder = MessageDecoder(MessageFormat.JSON, bad)
        reader = KafkaReader(
            self.cluster.brokers, [self.name], decoder, LOG, group=f"g-{self.name}", count=count, settings=QUICK,
            **options,
        )  # fmt: skip
        connector = Connector(self.client(), reader, "kafka", Progress(), LOG, create=True, may_be_missing=True)
        self.failures: list[Exception] = []

        def run() -> None:
            try:
                connector.run()
            except Exception as error:  # noqa: BLE001 - looked at by the test
                self.failures.append(error)
            finally:
                reader.close()

        thread = threading.Thread(target=run)
        thread.start()
        return connector, thread

    def wait(self) -> None:
        """Wait until all that was produced is stored."""
        until = time.monotonic() + 60
        while (found := self.stored()) < sum(self.sent):
            assert time.monotonic() < until, f"{found} of {self.sent}"
            assert not self.failures, self.failures
            time.sleep(0.05)

    def stored(self) -> int:
        """Points in the log."""
        return {one.stream: one.log_offset for one in self.shoal.streams()}.get(self.name, 0)

    def stop(self, *running: tuple[Connector, threading.Thread]) -> None:
        for connector, _ in running:
            connector.stop()
        for _, thread in running:
            thread.join(120)
            assert not thread.is_alive()

    def check(self) -> None:
        """All messages are stored once: the log is as long as they are many, and each partition is at its end."""
        assert self.stored() == sum(self.sent)
        positions = {one.partition: one.position for one in self.shoal.sources()}
        assert positions == {f"{self.name}/{i}": str(n) for i, n in enumerate(self.sent) if n}


@pytest.fixture
def new_rig(cluster: MockKafka, real_shoal: Callable[[httpx.Request], httpx.Response]) -> Callable[[int], Rig]:
    return lambda partitions=1: Rig(cluster, real_shoal, partitions)


def test_partitions_are_read_from_their_positions_after_a_restart(new_rig: Callable[[int], Rig]) -> None:
    rig = new_rig(2)
    rig.produce(25, 0)
    rig.produce(7, 1)
    running = rig.started(message_key=True, message_time=True)
    rig.wait()
    rig.stop(running)
    rig.produce(5, 0)
    running = rig.started(message_key=True, message_time=True)
    rig.wait()
    rig.stop(running)
    rig.check()
    rig.shoal.wait(37)
    (record,) = rig.shoal.lookup_records(["key-29"])
    assert record.time == 30.0
    committed = confluent_kafka.Consumer({"bootstrap.servers": rig.cluster.brokers, "group.id": f"g-{rig.name}"})
    places = [confluent_kafka.TopicPartition(rig.name, i) for i in range(2)]
    assert [place.offset for place in committed.committed(places, 10)] == [30, 7]
    committed.close()


def test_a_rebalancing_loses_and_doubles_nothing(new_rig: Callable[[int], Rig]) -> None:
    rig = new_rig(4)
    running = [rig.started(count=3)]
    for wave in range(3):
        for partition in range(4):
            rig.produce(20, partition)
        if wave < 2:
            running.append(rig.started(count=3))
        rig.wait()
    rig.stop(running.pop(0))
    for partition in range(4):
        rig.produce(10, partition)
    rig.wait()
    rig.stop(*running)
    rig.check()


def test_faults_of_the_brokers_lose_and_double_nothing(new_rig: Callable[[int], Rig]) -> None:
    rig = new_rig(2)
    errors = confluent_kafka.KafkaError
    running = rig.started(count=4)
    for wave in range(4):
        rig.cluster.fail(FETCH, errors.NOT_LEADER_FOR_PARTITION, errors.REQUEST_TIMED_OUT)
        rig.cluster.fail(OFFSET_COMMIT, errors.COORDINATOR_NOT_AVAILABLE, errors.REBALANCE_IN_PROGRESS)
        rig.produce(10, 0)
        rig.produce(10, 1)
        rig.cluster.down(1 + wave % 3)
        time.sleep(0.2)
        rig.cluster.up(1 + wave % 3)
    rig.wait()
    rig.stop(running)
    rig.check()


def test_an_offset_that_is_gone_is_an_error(new_rig: Callable[[int], Rig]) -> None:
    rig = new_rig(1)
    rig.produce(3)
    rig.shoal.ingest_step(
        np.zeros((1, 2)),
        source="kafka", partition=f"{rig.name}/0", before=None, after="900", create=True,
    )  # fmt: skip
    _, thread = rig.started()
    thread.join(120)
    assert not thread.is_alive()
    (error,) = rig.failures
    assert isinstance(error, CommandError)
    assert "no longer holds the stored position" in str(error)


def test_settings_come_from_a_file_and_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# secrets\nsasl.username = me\nsasl.password=a=b\n\n")
    assert properties(["sasl.username=you"], file) == {"sasl.username": "you", "sasl.password": "a=b"}
    with pytest.raises(CommandError, match="is not a setting"):
        properties(["nothing"], None)
    bad = BadMessages("kafka", stops=True, takes_holes=lambda: False, log=LOG)
    decoder = MessageDecoder(MessageFormat.JSON, bad)
    with pytest.raises(CommandError, match=r"offset\.reset cannot be set"):
        KafkaReader("x", ["t"], decoder, LOG, group="g", settings={"auto.offset.reset": "latest"})
