"""Connectors on a real Redis, against the real service in this process."""

import socket
import threading
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import redis

from harness.redis_server import RedisServer, running_redis
from harness.waiting import eventually
from shoal_service.cli.connectors import BadMessages, Connector, HealthServer, MessageDecoder, Progress, redis_stream
from shoal_service.cli.connectors.messages import MessageFormat
from shoal_service.cli.connectors.redis_stream import RedisStreamReader
from shoal_service.cli.connectors.steps import SourceAwayError
from shoal_service.cli.exits import CommandError
from shoal_service.client import Client
from shoal_service.logs import make_log

pytestmark = pytest.mark.redis

LOG = make_log("error")


@pytest.fixture(scope="module")
def redis_server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def source(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        client.flushall()
        yield client


class Rig:
    """A stream of its own, and connectors to it."""

    def __init__(self, url: str, deliver: Callable[[httpx.Request], httpx.Response]) -> None:
        self.url, self._deliver = url, deliver
        self.stream = f"s{uuid.uuid4().hex}"
        self.fail: Callable[[httpx.Request], httpx.Response | None] = lambda request: None
        self.shoal = self.client()

    def client(self) -> Client:
        def answer(request: httpx.Request) -> httpx.Response:
            return self.fail(request) or self._deliver(request)

        return Client(stream=self.stream, transport=httpx.MockTransport(answer), retries=0)

    def connector(self, *keys: str, form: str = "json", skip: bool = False, **options: Any) -> Connector:
        bad = BadMessages("redis", stops=not skip, takes_holes=lambda: False, log=LOG)
        decoder = MessageDecoder(MessageFormat(form), bad)
        reader = RedisStreamReader(self.url, keys or ("k",), decoder, LOG, field="v", **options)
        self.progress = Progress()
        return Connector(
            self.client(), reader, "redis", self.progress, LOG, create=True, may_be_missing=True, skip_bad=skip
        )

    def run_until(self, connector: Connector, n_points: int) -> None:
        thread = threading.Thread(target=connector.run)
        thread.start()
        eventually(lambda: sum(self.stored().values()) >= n_points or not thread.is_alive(), self.stored)
        connector.stop()
        thread.join(120)
        assert not thread.is_alive()

    def stored(self) -> dict[str, int]:
        """Points in the log by the last step of each partition."""
        known = {one.stream: one.log_offset for one in self.shoal.streams()}
        return {"all": known.get(self.stream, 0)}


@pytest.fixture
def rig(redis_server: RedisServer, real_shoal: Callable[[httpx.Request], httpx.Response]) -> Rig:
    return Rig(redis_server.url, real_shoal)


def add(source: redis.Redis, n: int, key: str = "k", first: int = 0) -> list[str]:
    return [source.xadd(key, {"v": f"[{i},{-i}]"}).decode() for i in range(first, first + n)]


def test_entries_are_read_in_order_and_a_restart_goes_on(rig: Rig, source: redis.Redis) -> None:
    ids = add(source, 25)
    rig.run_until(rig.connector(count=10), 25)
    (held,) = rig.shoal.sources()
    assert (held.source, held.partition, held.position, held.log_offset) == ("redis", "k", ids[-1], 25)
    more = add(source, 7, first=25)
    rig.run_until(rig.connector(count=10), 32)
    assert rig.shoal.sources()[0].position == more[-1]
    assert rig.stored() == {"all": 32}


def test_each_key_is_a_partition_and_a_group_follows(rig: Rig, source: redis.Redis) -> None:
    ids = {key: add(source, 5, key)[-1] for key in ("a/b", "ü")}
    rig.run_until(rig.connector(*ids, group="watchers"), 10)
    assert {one.partition: one.position for one in rig.shoal.sources()} == {
        "a/b": ids["a/b"],
        "%C3%BC": ids["ü"],
    }
    for key, last in ids.items():
        (group,) = source.xinfo_groups(key)
        assert (group["name"], group["last-delivered-id"].decode()) == (b"watchers", last)


def test_a_lost_answer_doubles_nothing(rig: Rig, source: redis.Redis) -> None:
    add(source, 30)
    lost = [0]

    def lose(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/ingest") and lost[0] < 4:
            lost[0] += 1
            rig._deliver(request)  # it arrives, and its answer does not
            raise httpx.ReadError("lost", request=request)
        return None

    connector = rig.connector(count=10)
    rig.fail = lose
    rig.run_until(connector, 30)
    assert (rig.stored(), lost) == ({"all": 30}, [4])


def test_two_connectors_store_each_entry_once(rig: Rig, source: redis.Redis) -> None:
    add(source, 200)
    others = [rig.connector(count=count) for count in (7, 9)]
    threads = [threading.Thread(target=one.run) for one in others]
    for thread in threads:
        thread.start()
    rig.run_until(rig.connector(count=5), 200)
    for one in others:
        one.stop()
    for thread in threads:
        thread.join(120)
    assert rig.stored() == {"all": 200}
    assert rig.shoal.sources()[0].log_offset == 200


def test_bad_entries_are_skipped_and_counted(rig: Rig, source: redis.Redis) -> None:
    add(source, 3)
    source.xadd("k", {"v": "no"})
    source.xadd("k", {"w": "[1,2]"})
    add(source, 2)
    last = source.xadd("k", {"v": "[1,2,3]"}).decode()
    rig.run_until(rig.connector(skip=True), 5)
    assert rig.progress.bad._value.get() == 3
    assert rig.shoal.sources()[0].position == last
    bad = source.xadd("j", {"v": "no"}).decode()  # an id alone does not say in which of the keys it is
    with pytest.raises(CommandError, match=f"redis, message j {bad}: is not JSON"):
        rig.connector("k", "j").run()


def test_a_stream_that_was_made_again_is_an_error(rig: Rig, source: redis.Redis) -> None:
    source.xadd("k", {"v": "[1,2]"}, id="9-1")
    rig.run_until(rig.connector(), 1)
    source.delete("k")
    source.xadd("k", {"v": "[1,2]"}, id="5-1")
    with pytest.raises(CommandError, match="ends at 5-1, before the stored position 9-1"):
        rig.connector().run()


def test_a_stream_that_is_made_again_under_a_connector_is_an_error(
    rig: Rig, source: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read nothing more, without a word."""
    monkeypatch.setattr(redis_stream, "LAG_S", 0.0)
    monkeypatch.setattr(redis_stream, "BLOCK_MS", 10)
    source.xadd("k", {"v": "[1,2]"}, id="9-1")
    reader = rig.connector()._reader
    reader.begin({"k": "9-1"})
    assert reader.read() is None
    source.delete("k")
    assert reader.read() is None
    source.xadd("k", {"v": "[1,2]"}, id="5-1")
    with pytest.raises(CommandError, match="ends at 5-1, before the stored position 9-1"):
        reader.read()
    reader.close()


def test_a_start_beyond_the_newest_entry_is_waited_for(
    rig: Rig, source: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connector said that the stream was deleted and made again."""
    monkeypatch.setattr(redis_stream, "LAG_S", 0.0)
    monkeypatch.setattr(redis_stream, "BLOCK_MS", 10)
    source.xadd("k", {"v": "[1,2]"}, id="5-1")
    reader = rig.connector(start="9", group="g")._reader
    reader.begin({})
    assert reader.read() is None
    source.xadd("k", {"v": "[1,2]"}, id="7-0")
    assert reader.read() is None
    source.xadd("k", {"v": "[1,2]"}, id="9-1")
    step = reader.read()
    assert step is not None
    assert step.after == "9-1"
    reader.close()


@pytest.mark.parametrize("start", ["+", "yesterday", "5-", "-1"])
def test_a_start_that_is_no_id_is_refused(rig: Rig, start: str) -> None:
    with pytest.raises(CommandError, match="is no id of an entry; begin after an id such as"):
        rig.connector(start=start)


def test_a_deleted_stream_takes_its_group_along_and_is_read_on(rig: Rig, source: redis.Redis) -> None:
    """The connector ended with an error of XGROUP, or made an empty stream that the next start refused."""
    add(source, 3)
    rig.run_until(rig.connector(group="g"), 3)
    source.delete("k")
    reader = RedisStreamReader(rig.url, ("k",), None, LOG, field="v", group="g")  # type: ignore[arg-type]
    for _ in range(2):
        reader.begin({"k": rig.shoal.sources()[0].position})
    reader.close()
    assert not source.exists("k")
    ids = add(source, 2, first=3)
    rig.run_until(rig.connector(group="g"), 5)
    assert source.xinfo_groups("k")[0]["last-delivered-id"].decode() == ids[-1]


def test_entries_that_were_trimmed_unread_are_said(rig: Rig, source: redis.Redis) -> None:
    """Redis counts only those of XDEL as deleted, so a stream with MAXLEN lost entries without a word."""
    log = _Warnings()
    ids = add(source, 4)
    reader = RedisStreamReader(rig.url, ("k",), None, log, field="v")  # type: ignore[arg-type]
    source.xtrim("k", minid=ids[1], approximate=False)
    reader.begin({"k": ids[1]})
    assert log.said == []
    source.xtrim("k", minid=ids[3], approximate=False)
    reader.begin({"k": ids[1]})
    assert log.said == [("entries_gone", ids[1], ids[3])]
    source.xtrim("k", maxlen=0, approximate=False)
    for stored in (ids[3], ids[2]):
        reader.begin({"k": stored})
    reader.close()
    assert log.said[1:] == [("entries_gone", ids[2], ids[3])]


class _Warnings:
    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []

    def warning(self, event: str, *, stored: str, first: str, **_: Any) -> None:
        self.said.append((event, stored, first))


def test_raw_vectors_keys_and_times(rig: Rig, source: redis.Redis) -> None:
    x = np.random.default_rng(2).normal(size=(4, 3)).astype("<f4")
    for i, row in enumerate(x):
        source.xadd("k", {"v": row.tobytes(), "name": f"host-{i}"}, id=f"{1000 * i + 1000}-0")
    rig.run_until(rig.connector(form="float32", key_field="name", entry_time=True), 4)
    rig.shoal.wait(4)
    records = rig.shoal.lookup_records([f"host-{i}" for i in range(4)])
    assert [record.time for record in records] == [1.0, 2.0, 3.0, 4.0]


def test_the_health_port_tells_how_it_goes(rig: Rig, source: redis.Redis) -> None:
    connector = rig.connector()
    with HealthServer(rig.progress, "127.0.0.1", 0) as health:
        url = f"http://127.0.0.1:{health.port}"
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(f"{url}/readyz")
        refused.value.close()
        add(source, 5)
        rig.run_until(connector, 5)
        assert urllib.request.urlopen(f"{url}/readyz").read() == b"ready\n"
        assert urllib.request.urlopen(f"{url}/healthz").status == 200
        text = urllib.request.urlopen(f"{url}/metrics").read().decode()
    assert "shoal_connect_records_total 5.0" in text
    assert "shoal_connect_points_total 5.0" in text


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
def test_a_name_that_leads_elsewhere_after_the_check_is_not_followed(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even to connect: whether a private port is open says something about the network."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        asked: list[str] = []

        def look_up(host: str, *_: Any, **__: Any) -> list[Any]:
            asked.append(host)
            if host == "8.8.8.8":
                raise OSError("no route in this test")
            address = "8.8.8.8" if asked.count(host) == 1 else "127.0.0.1"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        decoder = MessageDecoder(
            MessageFormat.JSON, BadMessages("redis", stops=True, takes_holes=lambda: False, log=LOG)
        )
        reader = RedisStreamReader(f"{scheme}://h.test:{port}", ["k"], decoder, LOG, field="data", public_only=True)
        listener.setblocking(False)
        with pytest.raises((SourceAwayError, CommandError), match=r"no route in this test|private address"):
            reader.begin({})
        reader.close()
        assert set(asked) == {"h.test", "8.8.8.8"}
        with pytest.raises(BlockingIOError):
            listener.accept()
