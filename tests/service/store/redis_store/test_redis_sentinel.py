"""Failovers of Redis Sentinel: the store follows them, and says what one has lost."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from harness.ports import free_port
from harness.redis_server import RedisServer
from harness.sentinels import Watched, watched_redis
from harness.waiting import LONGEST_WAIT_S
from shoal.errors import SettingError
from shoal_service.errors import LogGapError, StoreUnavailableError
from shoal_service.store.redis import RedisStore
from shoal_service.store.redis.sentinel import parse_sentinel_url

pytestmark = pytest.mark.redis


@pytest.fixture
def watched(redis_binary: str, tmp_path: Path) -> Iterator[Watched]:
    with watched_redis(redis_binary, tmp_path) as made:
        yield made


def insist(call: Any, timeout_s: float = LONGEST_WAIT_S) -> Any:
    """The answer, asked for again while the store is not available."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return call()
        except StoreUnavailableError:
            assert time.monotonic() < until
            time.sleep(0.1)


def until_replica(server: RedisServer) -> None:
    """Wait until the sentinels have made a replica of a server that came back."""
    until = time.monotonic() + LONGEST_WAIT_S
    with server.client() as client:
        while True:
            with contextlib.suppress(redis.ConnectionError):  # the sentinels end its connections, also in an answer
                if client.info("replication")["role"] != "master":
                    return
            assert time.monotonic() < until
            time.sleep(0.1)
            client.connection_pool.disconnect()


@pytest.mark.parametrize("failovers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_failovers_are_followed_without_a_restart(watched: Watched, open_at: Any, hand_of: Any, failovers: int) -> None:
    hand = hand_of(open_at(watched.url))
    for n in range(5):
        hand.add(b"%d" % n, key=str(n))
    assert hand.lead() == 1
    for n in range(5, 5 + failovers):
        watched.wait_until_replicated()
        old = watched.primary()
        old.kill()
        assert insist(lambda n=n: hand.add(b"%d" % n, key=str(n))).seq == n + 1
        assert watched.primary() is not old
        assert hand.payloads() == [b"%d" % i for i in range(n + 1)]
        assert [hand.add(b"%d" % i, key=str(i)).replayed for i in range(n + 1)] == [True] * (n + 1)
        hand.save(3)  # the epoch stands
        old.start()
        until_replica(old)
    assert "redis+sentinel://" in hand.store.describe()


def test_a_failover_that_lost_acknowledged_entries_is_said(watched: Watched, open_at: Any, hand_of: Any) -> None:
    """The replica stands still while entries are acknowledged, and then becomes the primary."""
    hand = hand_of(open_at(watched.url))
    hand.add(b"kept", key="a")
    watched.wait_until_replicated()
    primary, replica = watched.primary(), watched.replica()
    replica.pause()
    with primary.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "replica")  # or its socket would hold what comes now
    hand.add(b"lost", key="b")
    primary.kill()
    replica.resume()
    watched.wait_for_failover(primary)
    with pytest.raises(LogGapError, match="ends at entry 1, but entry 2 was acknowledged"):
        insist(lambda: hand.add(b"next", key="c"))
    with pytest.raises(LogGapError, match="ends at entry 1, but entry 2 was acknowledged"):
        hand.store.tail(*hand.key)
    unaware = hand_of(open_at(watched.url))
    assert unaware.payloads() == [b"kept"]
    assert unaware.add(b"lost", key="b").seq == 2


def test_a_primary_that_was_replaced_while_it_hung_is_left_at_the_next_check(
    watched: Watched, open_at: Any, hand_of: Any
) -> None:
    hand = hand_of(open_at(watched.url, timeout_s=1.0))
    hand.add(b"one", key="a")
    watched.wait_until_replicated()
    old = watched.primary()
    old.pause()
    watched.wait_for_failover(old)
    insist(hand.store.check)
    assert hand.add(b"two", key="b").seq == 2
    old.resume()
    until_replica(old)
    hand.store.check()
    assert hand.add(b"three", key="c").seq == 3
    assert hand.payloads() == [b"one", b"two", b"three"]


def test_sentinels_that_are_gone_or_know_no_such_service_are_said(open_at: Any, redis_binary: str) -> None:
    store = open_at(f"redis+sentinel://:secret@127.0.0.1:{free_port()}/shoal", timeout_s=1.0)
    with pytest.raises(StoreUnavailableError, match="No master found for 'shoal'") as error:
        store.check()
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis+sentinel://a:1,b/s", ([("a", 1), ("b", 26379)], "s", 0, False, {}, {})),
        ("rediss+sentinel://u:p%40@[::1]:5/s/3", ([("::1", 5)], "s", 3, True, {"username": "u", "password": "p@"}, {})),
        (
            "redis+sentinel://:p@a/s?sentinel_password=q",
            ([("a", 26379)], "s", 0, False, {"password": "p"}, {"password": "q"}),
        ),
    ],
)
def test_an_address_of_sentinels_is_read(url: str, expected: Any) -> None:
    assert parse_sentinel_url(url) == expected


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sentinel://:secret@a:1", "names no service"),
        ("redis+sentinel://:secret@a:1/s/x", "database .* 'x'"),
        ("redis+sentinel://:secret@a:one/s", "'a:one' is no address"),
        ("redis+sentinel://:secret@a/s?db=1", "unknown parameter 'db'"),
    ],
)
def test_a_wrong_address_of_sentinels_is_a_setting_error(url: str, says: str) -> None:
    with pytest.raises(SettingError, match=says) as error:
        RedisStore(url)
    assert "secret" not in str(error.value)
