"""A server that forgets, evicts or does not sync is refused, with every reason; one that is full says so."""

from typing import Any

import pytest
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from shoal.errors import SettingError
from shoal_service.errors import StoreFormatError, StoreStartingError, StoreUnavailableError
from shoal_service.store.redis import RedisStore
from shoal_service.store.redis.keys import FORMAT_VERSION
from shoal_service.store.redis.server_checks import Durability, ServerFacts, check
from shoal_service.store.redis.writer import WriteRequest, exchange_requests

pytestmark = pytest.mark.redis

GOOD = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}


def facts(version: tuple[int, int] = (7, 0), role: str = "master", nodes: int = 1, **settings: str) -> ServerFacts:
    said = GOOD | {name.replace("_", "-"): value for name, value in settings.items()}
    return ServerFacts(
        "redis", f"{version[0]}.{version[1]}.0", version, role, nodes > 1, said, None, nodes, "id", True, False
    )


@pytest.mark.parametrize(
    ("settings", "reasons"),
    [
        ({"appendonly": "no"}, ["appendonly is not yes"]),
        ({"appendfsync": "everysec"}, ["appendfsync is everysec", "may-lose-a-second"]),
        ({"appendfsync": "no"}, ["appendfsync is no,"]),
        ({"maxmemory_policy": "allkeys-lru"}, ["maxmemory-policy is allkeys-lru"]),
        ({"no_appendfsync_on_rewrite": "yes"}, ["no-appendfsync-on-rewrite"]),
        (
            {"appendonly": "no", "maxmemory_policy": "volatile-ttl"},
            ["appendonly is not yes", "maxmemory-policy is volatile-ttl"],
        ),
    ],
)
def test_a_server_that_may_forget_is_not_ready_and_takes_nothing(
    settings: dict[str, str], reasons: list[str], own_server: Any, open_at: Any
) -> None:
    server = own_server(**settings)
    store = open_at(server.url)
    for verb in (store.check, lambda: store.create_stream("s", "i", b"{}", max_streams=9)):
        with pytest.raises(StoreUnavailableError) as refused:
            verb()
        assert all(reason in str(refused.value) for reason in reasons)
    with server.client() as client:
        assert client.dbsize() == 0


def test_a_server_that_is_spoilt_while_it_runs_is_refused_from_the_next_check_on(
    own_server: Any, open_at: Any, hand_of: Any
) -> None:
    server = own_server()
    hand = hand_of(open_at(server.url))
    hand.store.check()
    with server.client() as client:
        client.config_set("appendfsync", "everysec")
    for verb in (hand.store.check, hand.add, hand.lead):
        with pytest.raises(StoreUnavailableError, match="everysec"):
            verb()
    with server.client() as client:
        client.config_set("appendfsync", "always")
    hand.store.check()
    assert hand.add().seq == 1
    assert "appendfsync always" in hand.store.describe()


def test_nothing_is_acknowledged_once_the_file_is_switched_off(own_server: Any, open_at: Any, hand_of: Any) -> None:
    """Without a check in between, and until the file holds again what came meanwhile."""
    server = own_server()
    hand = hand_of(open_at(server.url))
    assert hand.add(b"before", key="a").seq == 1
    with server.client() as client:
        client.config_set("appendonly", "no")
        with pytest.raises(StoreUnavailableError, match="appendonly is not yes"):
            hand.add(b"keyed", key="b")
        with pytest.raises(StoreUnavailableError, match="appendonly is not yes"):
            hand.add(b"bare")
        client.config_set("appendonly", "yes")
        acknowledged, refused = hand.post(b"keyed", key="b"), None
        while (refused := acknowledged.exception(30)) is not None:
            assert isinstance(refused, StoreStartingError)
            acknowledged = hand.post(b"keyed", key="b")
        assert client.info("persistence")["aof_rewrite_in_progress"] == 0
    server.kill()
    server.start()
    assert hand.payloads() == [b"before", b"keyed"]
    assert hand.add(b"keyed", key="b").replayed


def test_syncing_every_second_is_taken_where_a_setting_says_what_it_may_lose(
    own_server: Any, open_at: Any, hand_of: Any
) -> None:
    server = own_server(appendfsync="everysec")
    store = open_at(server.url, durability="may-lose-a-second")
    store.check()
    assert hand_of(store).add().seq == 1
    assert "may lose" in store.describe()


def test_waitaof_makes_every_second_durable(own_server: Any, open_at: Any, hand_of: Any) -> None:
    server = own_server(appendfsync="everysec")
    with server.client() as client:
        version = client.info("server")["redis_version"]
    store = open_at(server.url, durability=Durability.WAIT_AOF)
    if tuple(map(int, version.split(".")[:2])) < (7, 2):
        with pytest.raises(StoreUnavailableError, match=r"WAITAOF needs version 7\.2"):
            store.check()
        pytest.skip(f"the server is {version}; WAITAOF came with 7.2")
    hand = hand_of(store)
    for i in range(3):
        assert hand.add(b"%d" % i, key=str(i)).seq == i + 1
    server.kill()
    server.start()
    assert hand.payloads() == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("synced", "counts"), [([1, 0], True), ([1, 2], True), ([0, 0], False), (ResponseError("unknown command"), False)]
)
def test_a_reply_to_waitaof_that_does_not_say_synced_is_a_lost_reply(synced: Any, counts: bool) -> None:
    class Scripted:
        def exchange(self, commands: Any) -> list[Any]:
            assert [command[0] for command in commands] == ["EVALSHA", "INCR", "WAITAOF", "CONFIG"]
            return [[b"ok", 1, 1], 7, synced, [b"appendonly", b"yes", b"appendfsync", b"everysec"]]

    said = facts((7, 2), appendfsync="everysec")

    job: WriteRequest[Any] = WriteRequest("tag", ("EVALSHA",), lambda reply, resent: reply, grouped=True)
    if counts:
        assert exchange_requests(Scripted(), [job], "probes", said) == [(job, [b"ok", 1, 1])]  # type: ignore[arg-type]
    else:
        with pytest.raises(RedisTimeoutError, match="not synced"):
            exchange_requests(Scripted(), [job], "probes", said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "durability", "reason"),
    [
        (facts((6, 2)), Durability.ALWAYS, "oldest that works"),
        (facts(role="slave"), Durability.ALWAYS, "point the address at the primary"),
        (facts(nodes=3), Durability.ALWAYS, "3 nodes"),
        (facts((7, 0)), Durability.WAIT_AOF, "WAITAOF"),
        (facts(appendfsync="no"), Durability.MAY_LOSE_A_SECOND, "appendfsync is no"),
        (facts(appendonly="no"), Durability.MAY_LOSE_A_SECOND, "appendonly"),
        (facts()._replace(settings={}), Durability.ALWAYS, "maxmemory-policy is None"),
    ],
)
def test_what_cannot_be_started_here_is_refused_by_what_it_says(
    said: ServerFacts, durability: Durability, reason: str
) -> None:
    with pytest.raises(StoreUnavailableError, match=reason):
        check("there", said, durability)


@pytest.mark.parametrize(
    ("said", "durability"),
    [
        (facts(), Durability.ALWAYS),
        (facts((8, 2)), Durability.ALWAYS),
        (facts((7, 2), appendfsync="everysec"), Durability.WAIT_AOF),
        (facts(appendfsync="everysec", no_appendfsync_on_rewrite="yes"), Durability.MAY_LOSE_A_SECOND),
    ],
)
def test_what_is_fit_is_taken(said: ServerFacts, durability: Durability) -> None:
    check("there", said, durability)


def test_a_replica_is_refused(own_server: Any, open_at: Any) -> None:
    primary = own_server()
    replica = own_server(replicaof=f"127.0.0.1 {primary.port}")
    with pytest.raises(StoreUnavailableError, match="it is a replica"):
        open_at(replica.url).check()


def test_a_server_that_may_not_be_asked_is_refused(own_server: Any, open_at: Any) -> None:
    server = own_server()
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "shoal", "on", ">pw", "~*", "&*", "+@all", "-config")
    store = open_at(f"redis://shoal:pw@127.0.0.1:{server.port}/0")
    with pytest.raises(StoreUnavailableError, match="CONFIG GET"):
        store.check()
    assert "pw" not in store.describe()
    with pytest.raises(StoreUnavailableError, match="refused the password") as wrong:
        open_at(f"redis://shoal:secret@127.0.0.1:{server.port}/0").check()
    assert "secret" not in str(wrong.value)


def test_what_a_newer_shoal_wrote_is_left_alone(server: Any, open_store: Any, prefix: str) -> None:
    with server.client() as client:
        client.set(f"{prefix}:{{registry}}:format", FORMAT_VERSION + 1)
    with pytest.raises(StoreFormatError, match=f"format {FORMAT_VERSION + 1}"):
        open_store().check()


def test_an_address_that_is_none_is_a_setting_error() -> None:
    with pytest.raises(SettingError, match="redis://host"):
        RedisStore("localhost:6379")


def test_a_full_server_refuses_appends_and_lets_the_learner_make_room(
    own_server: Any, open_at: Any, hand_of: Any
) -> None:
    server = own_server()
    hand = hand_of(open_at(server.url))
    hand.lead()
    hand.add(b"known", key="k")
    with server.client() as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + (16 << 20))
        refused = None
        while refused is None:
            refused = hand.post(b"x" * (1 << 20)).exception(30)
        assert isinstance(refused, StoreUnavailableError)
        assert "memory limit" in str(refused)
        # Full for certain, whatever buffers are let go of meanwhile.
        client.config_set("maxmemory", client.info("memory")["used_memory"] - (3 << 20))
    last = hand.store.tail(*hand.key).seq
    with pytest.raises(StoreUnavailableError, match="memory limit"):
        hand.store.check()
    posted = [hand.post(b"known", key="k") if i % 2 else hand.post() for i in range(8)]  # also those that go together
    for i, future in enumerate(posted):
        assert future.result(120).replayed if i % 2 else isinstance(future.exception(30), StoreUnavailableError)
    assert hand.store.tail(*hand.key).seq == last  # a refused append left nothing
    assert len(hand.payloads()) == last
    hand.mark(last)
    hand.save(last - 1, b"s" * (2 << 20))  # written although the memory is full: it is what makes room
    hand.save(last, b"s" * (2 << 20))
    hand.store.check()
    assert hand.add().seq == last + 1
    assert hand.payloads(last) == [b"x"]
