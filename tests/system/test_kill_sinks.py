"""kill -9 of exports and of their service: each sink has every event at least once, in order, and no half of a file."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from harness.redis_server import running_redis
from harness.running_service import RunningService
from harness.shoal_command import started
from harness.waiting import eventually
from harness.web import WEB

pytestmark = [pytest.mark.system, pytest.mark.redis]

N = 6
"""Events, of the kind `restored`, after which every record is written."""


def test_sinks_have_every_event_in_order_over_kills(
    start_service: Callable[..., RunningService], redis_binary: str, tmp_path: Path
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    parquet = pytest.importorskip("pyarrow.parquet")
    from harness.mock_kafka import kafka_for_tests

    rng = random.Random(2)
    service = start_service("exported", publish_interval_s=0.01)
    settings = {"n_features": 2, "refinement": None, "window": 0}
    assert WEB.put(f"{service.url}/streams/s", json=settings).status_code == 201
    keys = [f"k{i}" for i in range(20)]
    body = {"points": np.random.default_rng(0).normal(size=(20, 2)).tolist(), "keys": keys}
    assert WEB.post(f"{service.url}/streams/s/ingest?wait=applied", json=body).status_code == 200
    snapshot = WEB.get(f"{service.url}/streams/s/snapshot").content
    incarnation = WEB.get(f"{service.url}/streams/s").json()["incarnation"]
    cluster, topic, folder, log = kafka_for_tests(), f"events-{incarnation}", tmp_path / "events", tmp_path / "log"
    cluster.create(topic, 1)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.brokers, "group.id": topic})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages: list[tuple[str, str, str]] = []

    def of_kafka() -> list[tuple[str, str, str]]:
        while (message := consumer.poll(0.2)) is not None and not message.error():
            row = json.loads(message.value())
            messages.append((row["id"], row["kind"], row.get("key", "")))
        return messages

    def of_parquet() -> list[tuple[str, str, str]]:
        rows = [row for file in sorted(folder.glob("*.parquet")) for row in parquet.read_table(file).to_pylist()]
        return [(row["id"], row["kind"], json.loads(row["data"]).get("key", "")) for row in rows]

    with running_redis(redis_binary, tmp_path) as server, server.client() as client:

        def of_redis() -> list[tuple[str, str, str]]:
            entries = [entry for _, entry in client.xrange("events")]
            return [
                (row[b"id"].decode(), row[b"kind"].decode(), json.loads(row[b"data"]).get("key", "")) for row in entries
            ]

        sinks = [
            ("--redis", server.url, "events"),
            ("--kafka", cluster.brokers, topic, "--state", str(tmp_path / "position")),
            ("--parquet", str(folder)),
        ]
        common = ("export", "events", "--url", service.url, "--stream", "s", "--follow", "--assignments")
        exports = [started([*common, *sink], log) for sink in sinks]
        expected = [f"{incarnation}.{seq}.0" for seq in range(2, N + 2)]
        reads = (of_redis, of_kafka, of_parquet)

        def has(read: Callable[[], list[tuple[str, str, str]]], event: str) -> bool:
            return event in {row[0] for row in read()}

        try:
            for n in range(N):
                kind = {"Content-Type": "application/octet-stream"}
                reply = WEB.put(f"{service.url}/streams/s/snapshot", content=snapshot, headers=kind)
                assert reply.status_code in (200, 202), reply.text
                time.sleep(rng.uniform(0.2, 0.35))  # about when the export writes: it gathers events for 0.2 s
                if n == N // 2:
                    service.kill()
                    service.start()
                exports[n % 3].kill()
                of_parquet()  # no half file under a whole one's name
                exports[n % 3] = started([*common, *sinks[n % 3]], log)
                following = (n + 1) % 3
                eventually(lambda n=n, read=reads[following]: has(read, expected[n]), reads[following])
            for read in reads:
                eventually(lambda read=read: has(read, expected[-1]), read)
            for export in exports:
                export.send_signal(15)
                assert export.wait(60) == 0, log.read_text()[-3000:]
        finally:
            for export in exports:
                export.kill()
        for read in reads:
            found = read()
            assert list(dict.fromkeys(row[0] for row in found if row[1] == "restored")) == expected
            assert {row[2] for row in found if row[:2] == (expected[-1], "assignment")} == set(keys)
    consumer.close()
    cluster.close()
