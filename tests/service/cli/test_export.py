"""Events of a stream in a Redis stream, a Kafka topic and Parquet files, over restarts and faults of the sink."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import redis
from typer.testing import CliRunner

from harness.redis_server import RedisServer, running_redis
from shoal_service.cli.connectors import SourceAwayError
from shoal_service.cli.connectors import exporter as exporter_module
from shoal_service.cli.connectors import sinks as sinks_module
from shoal_service.cli.connectors.exporter import Exporter
from shoal_service.cli.connectors.sinks import KafkaSink, ParquetSink, RedisSink, Row, Sink
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.root import app
from shoal_service.client import Client, NotFoundError, StreamEvent, UnreachableError
from shoal_service.logs import make_log

LOG = make_log("error")
IDS = [f"inc.{seq}.0" for seq in range(1, 13)]


class Feed:
    """A stream with twelve events, which is deleted after them, and records that change."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []

    def events(self, after: str | None, *, on_connect: Callable[[], None]) -> Iterator[StreamEvent]:
        on_connect()
        first = 0 if after in (None, "0") else IDS.index(str(after)) + 1
        for i in range(first, len(IDS)):
            kind = "merged" if i == 9 else "born"
            yield StreamEvent(IDS[i], kind, (), (i,), i, i, None, None, raw={"log_offset": i, "children": [i]})
        raise NotFoundError("no such stream")

    def changed_records(self, since: str | None) -> list[Any]:
        self.asked.append(since)
        record = type("R", (), {"key": "host-1", "component": 3, "log_offset": 7})
        return [record()]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporter_module, "MOST", 4)
    monkeypatch.setattr(exporter_module, "QUIET_S", 0.1)
    monkeypatch.setattr(exporter_module, "GATHER_S", 0.05)
    monkeypatch.setattr(exporter_module, "PAUSE_S", 0.01)


class Failing:
    """A sink whose every second write fails at first, and that dies at a write."""

    def __init__(self, sink: Sink, dies_at: int) -> None:
        self._sink, self._dies_at, self._n = sink, dies_at, 0

    def position(self) -> str | None:
        return self._sink.position()

    def write(self, rows: Sequence[Row], position: str) -> None:
        self._n += 1
        if self._n == self._dies_at:
            raise KeyboardInterrupt
        if self._n % 2:
            raise SourceAwayError("away")
        self._sink.write(rows, position)

    def close(self) -> None:
        self._sink.close()


def export(sink: Sink, feed: Feed, *, assignments: bool = False, dies_at: int = 0) -> None:
    failing = Failing(sink, dies_at)
    run = Exporter(feed, failing, LOG, assignments=assignments, follow=False)  # type: ignore[arg-type]
    if dies_at:
        with pytest.raises(KeyboardInterrupt):
            run.run(feed)  # type: ignore[arg-type]
    else:
        run.run(feed)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def redis_server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.mark.redis
def test_a_redis_stream_has_each_event_once_in_order(redis_server: RedisServer) -> None:
    for dies_at in (2, 4, 0):
        sink = RedisSink(redis_server.url, "events")
        export(sink, Feed(), dies_at=dies_at)
        sink.close()
    with redis_server.client() as client:
        found = [fields[b"id"].decode() for _, fields in client.xrange("events")]
        assert found == IDS
        assert json.loads(client.xrange("events")[0][1][b"data"])["children"] == [0]
    with pytest.raises(CommandError, match="redis://"):
        RedisSink("nowhere", "k")
    with redis.Redis(port=1, retry=None), pytest.raises(SourceAwayError):
        RedisSink("redis://127.0.0.1:1/0", "k").position()


def test_parquet_files_have_each_event_once_and_the_changed_records(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    feed = Feed()
    for dies_at in (2, 4, 0):
        (tmp_path / ".000000000009.parquet.partial").write_bytes(b"of a crash")
        export(ParquetSink(tmp_path), feed, assignments=True, dies_at=dies_at)
    files = sorted(tmp_path.glob("[0-9]*.parquet"))
    assert [path.name for path in files] == [f"{n:012d}.parquet" for n in (1, 2, 3)]
    rows = [row for path in files for row in parquet.read_table(path).to_pylist()]
    assert [row["id"] for row in rows if row["kind"] != "assignment"] == IDS
    (moved,) = [row for row in rows if row["kind"] == "assignment"]
    assert json.loads(moved["data"]) == {"key": "host-1", "component": 3, "log_offset": 7}
    assert set(feed.asked) == {IDS[7]}  # the event before the write that has the merge


def test_a_damaged_last_parquet_file_is_named_and_can_be_removed(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export(ParquetSink(tmp_path), Feed())
    *whole, last = sorted(tmp_path.glob("[0-9]*.parquet"))
    last.write_bytes(last.read_bytes()[:60])
    with pytest.raises(CommandError, match=f"{last.name} is no whole Parquet file .*; remove it"):
        ParquetSink(tmp_path).position()
    last.unlink()
    export(ParquetSink(tmp_path), Feed())
    rows = [row["id"] for path in (*whole, last) for row in parquet.read_table(path).to_pylist()]
    assert rows == IDS


def test_a_kafka_topic_has_each_event_at_least_once(tmp_path: Path) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    from harness.mock_kafka import MockKafka

    cluster, state = MockKafka(1), tmp_path / "position"
    cluster.create("events", 1)
    for dies_at in (2, 4, 0):
        export(KafkaSink(cluster.brokers, "events", state, {"log_level": "0"}), Feed(), dies_at=dies_at)
    assert state.read_text() == IDS[-1]
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.brokers, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("events", 0, 0)])
    found: list[str] = []
    while len(dict.fromkeys(found)) < len(IDS):
        messages = consumer.consume(100, 10.0)
        assert messages, found
        found += [json.loads(message.value())["id"] for message in messages]
    consumer.close()
    cluster.close()
    assert list(dict.fromkeys(found)) == IDS


def test_more_rows_than_the_queue_of_kafkas_library_has_room_for_are_all_sent(tmp_path: Path) -> None:
    """A change of all records used to end the export with a BufferError."""
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    from harness.mock_kafka import MockKafka

    cluster, state = MockKafka(1), tmp_path / "position"
    cluster.create("events", 1)
    settings = {"log_level": "0", "queue.buffering.max.messages": "10", "linger.ms": "1"}
    rows = [Row(f"inc.1.{n}", "assignment", {"key": f"host-{n}"}) for n in range(500)]
    KafkaSink(cluster.brokers, "events", state, settings).write(rows, "inc.1.0")
    assert state.read_text() == "inc.1.0"
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.brokers, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("events", 0, 0)])
    found: set[str] = set()
    while len(found) < len(rows):
        messages = consumer.consume(500, 10.0)
        assert messages, len(found)
        found |= {json.loads(message.value())["key"] for message in messages}
    consumer.close()
    cluster.close()


class Away:
    """A sink that never answers."""

    def position(self) -> str | None:
        raise SourceAwayError("connection refused")

    def write(self, rows: Sequence[Row], position: str) -> None:
        raise AssertionError("its position is not known")

    def close(self) -> None:
        pass


def test_without_follow_a_sink_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was tried for ever, and a job in cron never ended."""
    monkeypatch.setattr(exporter_module, "GIVE_UP_S", 0.0)
    run = Exporter(Feed(), Away(), LOG, assignments=False, follow=False)  # type: ignore[arg-type]
    with pytest.raises(CommandError, match=r"the sink does not answer .connection refused.; .*--follow") as caught:
        run.run(Feed())  # type: ignore[arg-type]
    assert caught.value.code is ExitCode.UNREACHABLE


class RestartedServer(Feed):
    """A server that is away before its fifth event, and whose stream is deleted behind the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.began: list[str | None] = []

    def events(self, after: str | None, *, on_connect: Callable[[], None]) -> Iterator[StreamEvent]:
        self.began.append(after)
        for event in super().events(after, on_connect=on_connect):
            if event.id == IDS[4] and len(self.began) < 3:
                raise UnreachableError("connection refused", retryable=True)
            yield event


def test_with_follow_the_server_may_restart_and_the_end_of_the_stream_ends_the_export(tmp_path: Path) -> None:
    """The command ended three seconds after its server had, and never after its stream was deleted."""
    parquet = pytest.importorskip("pyarrow.parquet")
    feed = RestartedServer()
    Exporter(feed, ParquetSink(tmp_path), LOG, assignments=False, follow=True).run(feed)  # type: ignore[arg-type]
    assert feed.began == ["0", IDS[3], IDS[3]]
    rows = [row for path in sorted(tmp_path.glob("*.parquet")) for row in parquet.read_table(path).to_pylist()]
    assert [row["id"] for row in rows] == IDS


class NamedFeed(Feed):
    """The first events of the twelve, with the name of their stream."""

    def __init__(self, name: str, n_events: int) -> None:
        super().__init__()
        self._name, self._n_events = name, n_events

    def events(self, after: str | None, *, on_connect: Callable[[], None]) -> Iterator[StreamEvent]:
        for event in super().events(after, on_connect=on_connect):
            if IDS.index(event.id) < self._n_events:
                yield replace(event, raw={**event.raw, "stream": self._name})


def test_events_of_another_stream_are_not_mixed_into_an_export(tmp_path: Path) -> None:
    """They were appended, and the position in the first stream was lost."""
    pytest.importorskip("pyarrow")

    def written(feed: NamedFeed) -> int:
        run = Exporter(feed, ParquetSink(tmp_path), LOG, assignments=False, follow=False)  # type: ignore[arg-type]
        run.run(feed)  # type: ignore[arg-type]
        return run.written

    assert written(NamedFeed("a", 4)) == 4
    with pytest.raises(
        CommandError, match=r"has the events of stream 'a', and these are of 'b'; give each stream a key"
    ):
        written(NamedFeed("b", 12))
    assert written(NamedFeed("a", 8)) == 4


def test_a_stream_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    class Nothing(Feed):
        def events(self, after: str | None, *, on_connect: Callable[[], None]) -> Iterator[StreamEvent]:
            raise NotFoundError("no such stream")

    run = Exporter(Nothing(), ParquetSink(tmp_path), LOG, assignments=False, follow=True)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError):
        run.run(Nothing())  # type: ignore[arg-type]


@pytest.mark.redis
def test_more_rows_than_a_command_may_have_come_in_order(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "_MOST_ROWS", 5)
    sink = RedisSink(redis_server.url, "long")
    sink.write([Row(one, "born", {}) for one in IDS], IDS[-1])
    assert sink.position() == IDS[-1]
    sink.close()
    with redis_server.client() as client:
        assert [fields[b"id"].decode() for _, fields in client.xrange("long")] == IDS


@pytest.mark.redis
def test_a_key_of_another_type_stops_the_export_before_its_position_moves(redis_server: RedisServer) -> None:
    """The position was written all the same, so the events were skipped once the key was put right."""
    with redis_server.client() as client:
        client.set("planted", "text")
        with pytest.raises(CommandError, match="WRONGTYPE"):
            export(RedisSink(redis_server.url, "planted"), Feed())
        assert client.get("planted:position") is None
        client.delete("planted")
        export(RedisSink(redis_server.url, "planted"), Feed())
        assert [fields[b"id"].decode() for _, fields in client.xrange("planted")] == IDS


@pytest.mark.redis
def test_a_wrong_password_is_an_error_and_a_read_only_replica_is_waited_for(
    redis_server: RedisServer,
) -> None:
    with redis_server.client() as client:
        client.execute_command("ACL", "SETUSER", "writer", "on", ">right", "~*", "+@all")
        for user in ("writer:wrong@", "nobody:right@"):
            with pytest.raises(CommandError, match="refused the password"):
                RedisSink(redis_server.url.replace("//", f"//{user}"), "k").position()
        assert RedisSink(redis_server.url.replace("//", "//writer:right@"), "k").position() is None
        client.replicaof("127.0.0.1", 1)  # type: ignore[no-untyped-call]
        try:
            with pytest.raises(SourceAwayError, match="read only"):
                RedisSink(redis_server.url, "k").write([Row(IDS[0], "born", {})], IDS[0])
        finally:
            client.replicaof("NO", "ONE")  # type: ignore[no-untyped-call]


def test_a_parquet_file_of_another_program_does_not_restart_an_export(tmp_path: Path) -> None:
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    export(ParquetSink(tmp_path), Feed())
    foreign = tmp_path / "20260101.parquet"
    parquet.write_table(pa.table({"x": [1]}), foreign)
    with pytest.raises(CommandError, match=r"20260101.parquet was not written by this command.*move the file away"):
        ParquetSink(tmp_path).position()
    foreign.unlink()
    assert ParquetSink(tmp_path).position() == IDS[-1]


def test_the_folder_of_a_state_file_must_exist(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    with pytest.raises(CommandError, match="nowhere is no folder"):
        KafkaSink("127.0.0.1:1", "events", tmp_path / "nowhere" / "position", {})


def test_secrets_of_a_kafka_sink_may_stand_in_a_file(tmp_path: Path) -> None:
    """They were on the command line, which every user of the machine can read."""
    pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
    file = tmp_path / "kafka.properties"
    file.write_text("# of the cluster\nno.such.setting=secret\n")
    words = ["export", "events", "--kafka", "127.0.0.1:1", "t", "--state", str(tmp_path / "p"), "--set-file", str(file)]
    found = CliRunner().invoke(app, words)
    assert 'No such configuration property: "no.such.setting"' in found.output


def test_events_of_a_real_stream_are_exported(
    tmp_path: Path, real_shoal: Callable[[httpx.Request], httpx.Response]
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    stream = f"s{uuid.uuid4().hex}"
    client = Client(stream=stream, transport=httpx.MockTransport(real_shoal), retries=0)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 2)) + 30.0 * rng.integers(3, size=400)[:, None]
    client.create_stream(stream, n_features=2, warmup_points=50, refinement=None)
    client.wait(client.ingest(x, keys=[f"k{i}" for i in range(400)]).log_offset or 0)
    whole = client.changed_records(None)
    assert {record.key for record in whole} == {f"k{i}" for i in range(400)}

    class Once:
        """The stored events of the stream: the transport of the test cannot hold an answer open."""

        def events(self, after: str | None, *, on_connect: Callable[[], None]) -> Iterator[StreamEvent]:
            on_connect()
            yield StreamEvent("x.1.0", "merged", (), (), 400, 400, None, None, raw={"log_offset": 400})
            raise NotFoundError("no such stream")

    sink = ParquetSink(tmp_path)
    run = Exporter(client, sink, LOG, assignments=True, follow=False)
    run.run(Once())  # type: ignore[arg-type]
    rows = parquet.read_table(next(tmp_path.glob("[0-9]*.parquet"))).to_pylist()
    held = {json.loads(row["data"])["key"]: json.loads(row["data"])["component"] for row in rows[1:]}
    assert held == {record.key: record.component for record in whole}
    assert (run.written, sink.position()) == (401, "x.1.0")
