"""kill -9 of a connector and of its service in the middle of a source: the log has each record once, in order."""

import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from harness.redis_server import RedisServer, running_redis
from harness.running_service import RunningService
from harness.shoal_command import started
from harness.short_form import longer
from harness.waiting import eventually
from harness.web import WEB
from shoal_service.store import SqliteStore
from shoal_service.wire import from_log

pytestmark = pytest.mark.system

N, KAFKA_KILLS = 1500, 2


@pytest.fixture
def source(redis_binary: str, tmp_path: Path) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path) as server:
        yield server


@pytest.mark.redis
@pytest.mark.parametrize("kills", [2, longer(20)])
def test_a_redis_stream_is_stored_once_over_kills(
    start_service: Callable[..., RunningService], source: RedisServer, tmp_path: Path, kills: int
) -> None:
    rng = random.Random(8)
    service = start_service("connected", checkpoint_interval_s=0.3)
    settings = {"n_features": 2, "refinement": None}
    assert WEB.put(f"{service.url}/streams/s", json=settings).status_code == 201
    records = np.stack([np.arange(N), -np.arange(N)], axis=1).astype("<f4")
    log = tmp_path / "connect.log"
    arguments = [
        "connect", "redis-stream", source.url, "k", "--stream", "s", "--url", service.url, "--format", "float32",
        "--batch-size", "25", "--group", "g",
    ]  # fmt: skip

    def stored() -> int:
        return int(WEB.get(f"{service.url}/streams/s").json()["log_offset"])

    def wait_for(n: int) -> None:
        eventually(lambda: stored() >= n, lambda: log.read_text()[-3000:], limit_s=240)

    with source.client() as client:
        connector = started(arguments, log)
        try:
            for at in range(kills):
                end = min((at + 1) * N // kills, N - 1)
                for i in range(at * N // kills, end):
                    client.xadd("k", {"data": records[i].tobytes()})
                wait_for(at * N // kills + rng.randrange(25, 150))
                connector.kill()
                if at == kills // 2:
                    service.kill()
                connector = started(arguments, log)
                if at == kills // 2:
                    service.start()
            client.xadd("k", {"data": records[N - 1].tobytes()})  # stored by the last connector, which has thus started
            wait_for(N)
            connector.send_signal(15)
            assert connector.wait(120) == 0
        finally:
            connector.kill()
        (group,) = client.xinfo_groups("k")
        assert group["last-delivered-id"] == client.xinfo_stream("k")["last-generated-id"]
    np.testing.assert_array_equal(logged(service, N), records)


def logged(service: RunningService, n: int) -> np.ndarray:
    """The points of the log, which is to hold n, once the service is killed."""
    service.kill()
    store = SqliteStore(service.data)
    (record,) = store.list_streams()
    assert store.tail("s", record.incarnation).log_offset == n
    entries = store.read("s", record.incarnation, 0, max_bytes=1 << 40)
    store.close()
    return np.concatenate([np.asarray(from_log(e.payload)) for e in entries if e.kind == "batch"])


def test_a_kafka_topic_is_stored_once_over_kills_of_two_connectors(
    start_service: Callable[..., RunningService], tmp_path: Path
) -> None:
    pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    from harness.mock_kafka import kafka_for_tests

    rng, n, partitions = random.Random(3), 120, 3
    service = start_service("kafka")
    settings = {"n_features": 2, "refinement": None}
    assert WEB.put(f"{service.url}/streams/s", json=settings).status_code == 201
    cluster, topic, log = kafka_for_tests(), f"t{uuid.uuid4().hex}", tmp_path / "connect.log"
    cluster.create(topic, partitions)
    arguments = [
        "connect", "kafka", cluster.brokers, topic, "--stream", "s", "--url", service.url, "--batch-size", "7",
        "--group", topic, "--set", "session.timeout.ms=6000", "--set", "heartbeat.interval.ms=200",
    ]  # fmt: skip

    def wait_for(total: int) -> None:
        stored = lambda: int(WEB.get(f"{service.url}/streams/s").json()["log_offset"])  # noqa: E731
        eventually(lambda: stored() >= total, lambda: log.read_text()[-3000:], limit_s=240)

    connectors = [started(arguments, log) for _ in range(2)]
    try:
        for wave in range(KAFKA_KILLS + 1):
            for i in range(wave * n, (wave + 1) * n):
                for partition in range(partitions):
                    cluster.produce(topic, partition, b"[%d,%d]" % (i, partition))
            cluster.flush()
            if wave == KAFKA_KILLS:
                break
            wait_for(partitions * wave * n + rng.randrange(1, partitions * n))
            connectors[wave % 2].kill()
            if wave == 0:
                service.kill()
                service.start()
            connectors[wave % 2] = started(arguments, log)
        wait_for(partitions * (KAFKA_KILLS + 1) * n)
    finally:
        for connector in connectors:
            connector.kill()
        cluster.close()
    found = logged(service, partitions * (KAFKA_KILLS + 1) * n)
    for partition in range(partitions):
        mine = found[found[:, 1] == partition, 0]
        np.testing.assert_array_equal(mine, np.arange((KAFKA_KILLS + 1) * n))
