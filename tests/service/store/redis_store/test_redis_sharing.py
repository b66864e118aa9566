"""What processes that share a server need of one another: leases, views, labels, wishes, and news of all of them."""

import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.redis_server import RedisServer
from shoal_service.errors import ServiceError, StaleWriterError, StreamGoneError
from shoal_service.store import Blob, Checkpoint, Lease, ReaderRequest, SharedStore, View
from shoal_service.store.redis import RedisStore
from shoal_service.store.redis.keys import PIECE_BYTES

pytestmark = pytest.mark.redis

Open = Callable[..., RedisStore]
OF = ("s", "inc-s")


@pytest.fixture
def store(open_store: Open, hand_of: Any) -> RedisStore:
    """With one stream of one entry."""
    store = open_store()
    hand_of(store).add(b"payload", 3)
    return store


def blob(name: str, data: bytes) -> Blob:
    return Blob(name, len(data), data)


def sent_before(name: str, data: bytes) -> Blob:
    return Blob(name, len(data), None)


def led(store: RedisStore, owner: str = "a", ttl_s: float = 60.0) -> int:
    epoch = store.sharing.acquire_lease(*OF, owner, ttl_s)
    assert epoch is not None
    return epoch


def test_it_is_a_shared_store(store: RedisStore) -> None:
    assert isinstance(store, SharedStore)


def test_one_leads_until_it_resigns(store: RedisStore) -> None:
    record = store.get_stream("s")
    assert store.sharing.without_leader([record]) == [record]
    first = led(store, "a")
    assert store.sharing.acquire_lease(*OF, "b", 60.0) is None
    assert store.sharing.without_leader([record]) == []
    store.sharing.release_lease(*OF, "b")  # not its own
    assert store.sharing.acquire_lease(*OF, "b", 60.0) is None
    store.sharing.release_lease(*OF, "a")
    assert led(store, "b") > first


def renew(store: RedisStore, owner: str, epoch: int, ttl_s: float) -> Any:
    """The blobs shown, for one lease; its error is raised."""
    (found,) = store.sharing.renew_leases(owner, [Lease(*OF, epoch)], ttl_s)
    if isinstance(found, ServiceError):
        raise found
    return found


def test_leases_are_renewed_together_and_one_that_is_lost_does_not_hold_up_the_others(store: RedisStore) -> None:
    epoch = led(store, "a")
    leases = [Lease("s", "another", 1), Lease(*OF, epoch), Lease(*OF, epoch - 1)]
    gone, kept, stale = store.sharing.renew_leases("a", leases, 60.0)
    assert isinstance(gone, StreamGoneError)
    assert isinstance(stale, StaleWriterError)
    assert set(kept) == set()
    assert store.sharing.renew_leases("a", [], 60.0) == []


def test_learners_know_of_one_another_while_they_live(store: RedisStore, open_store: Open) -> None:
    other = open_store().sharing
    assert store.sharing.announce("b", 60.0) == ["b"]
    assert other.announce("a", 0.05) == ["a", "b"]
    time.sleep(0.1)
    assert store.sharing.announce("b", 60.0) == ["b"]
    other.withdraw("b")
    assert other.announce("c", 60.0) == ["c"]


def test_a_lease_runs_out_and_who_was_held_up_is_refused(store: RedisStore) -> None:
    first = led(store, "a", ttl_s=0.05)
    time.sleep(0.1)
    second = led(store, "b")
    assert second > first
    for verb in (
        lambda: renew(store, "a", first, 60.0),
        lambda: store.sharing.publish_view(*OF, first, b"head", [blob("x", b"x")]),
        lambda: store.sharing.put_learnt_rows(*OF, first, 1, b""),
        lambda: store.mark_applied(*OF, first, 1),
        lambda: store.save_checkpoint(*OF, first, Checkpoint(1, 3, b"state")),
        lambda: store.replace_settings(*OF, first, b"{}", b"[]"),
    ):
        with pytest.raises(StaleWriterError):
            verb()
    renew(store, "b", second, 60.0)
    assert store.sharing.fetch_view(*OF, ()) is None


def test_a_lease_that_ran_out_unnoticed_is_taken_up_again(store: RedisStore) -> None:
    epoch = led(store, "a", ttl_s=0.05)
    time.sleep(0.1)
    renew(store, "a", epoch, 60.0)
    assert store.sharing.acquire_lease(*OF, "b", 60.0) is None


def test_epochs_that_are_over_do_not_pile_up(open_store: Open) -> None:
    here, other = open_store(), open_store()
    for name in ("kept", "lost"):
        here.create_stream(name, name, b"{}", max_streams=9)
    epoch = here.acquire_writer("kept", "kept")
    here.acquire_writer("lost", "lost")
    other.acquire_writer("lost", "lost")
    for i in range(150):
        here.create_stream("short", f"inc-{i}", b"{}", max_streams=9)
        if i % 2:
            here.acquire_writer("short", f"inc-{i}")
        else:
            assert here.sharing.acquire_lease("short", f"inc-{i}", "a", 60.0) is not None
        other.delete_stream("short")
    acquired = here._epochs.all()
    assert len(acquired) <= 64
    assert [stream for stream in acquired if stream[0] != "short"] == [("kept", "kept", epoch)]


def test_a_renewal_keeps_the_lease(store: RedisStore) -> None:
    epoch = led(store, "a", ttl_s=0.3)
    renew(store, "a", epoch, 60.0)
    time.sleep(0.4)
    assert store.sharing.acquire_lease(*OF, "b", 60.0) is None


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 40 * PIECE_BYTES + 7])
def test_a_view_is_fetched_as_it_was_shown(store: RedisStore, open_store: Open, size: int) -> None:
    data = (b"\x00\r\n%b" * (size // 4 + 1))[:size]
    epoch = led(store)
    assert store.sharing.publish_view(*OF, epoch, b"head\x00", [blob("live1", data), blob("past1", b"past")])
    other = open_store().sharing
    assert other.fetch_view(*OF, ()) == View(b"head\x00", {"live1": data, "past1": b"past"})
    (look,) = other.published_heads([OF])
    assert (look.seq, look.settings, look.head) == (1, b"{}", b"head\x00")


def test_what_was_sent_before_is_neither_sent_nor_read_again_and_the_rest_goes(
    store: RedisStore, server: RedisServer, prefix: str
) -> None:
    epoch = led(store)
    for n in range(5):
        live, past = b"live %d" % n, sent_before("past", b"past") if n else blob("past", b"past")
        assert store.sharing.publish_view(*OF, epoch, b"%d" % n, [blob(f"live{n}", live), past])
        assert renew(store, "a", epoch, 60.0) == {f"live{n}", "past"}
    assert store.sharing.fetch_view(*OF, ("past",)) == View(b"4", {"live4": b"live 4", "past": None})
    with server.client() as client:
        (key,) = client.scan_iter(f"{prefix}:*:view")
        assert set(client.hkeys(key)) == {b"head", b"runs", b"live4/0", b"past/0"}


def test_a_view_of_which_something_is_lost_is_not_shown(store: RedisStore, server: RedisServer, prefix: str) -> None:
    epoch = led(store)
    assert not store.sharing.publish_view(*OF, epoch, b"h", [blob("live", b"x"), sent_before("past", b"past")])
    assert store.sharing.fetch_view(*OF, ()) is None
    assert store.sharing.publish_view(*OF, epoch, b"h", [blob("live", b"x"), blob("past", b"past")])
    with server.client() as client:
        (key,) = client.scan_iter(f"{prefix}:*:view")
        client.delete(key)
    assert renew(store, "a", epoch, 60.0) == set()
    assert not store.sharing.publish_view(*OF, epoch, b"h", [blob("live2", b"x"), sent_before("past", b"past")])


def test_showing_leases_and_labels_cost_no_disk(own_server: Any, open_at: Open, hand_of: Any) -> None:
    """On a server of its own: what runs out of other tests' keys is written down, too."""
    server = own_server()
    store = open_at(server.url)
    hand_of(store).add(b"payload", 3)
    epoch = led(store)

    def written() -> int:
        with server.client() as client:
            return int(client.info("persistence")["aof_current_size"])

    before = written()
    for n in range(20):
        assert store.sharing.publish_view(*OF, epoch, b"head", [blob(f"x{n}", b"x" * 100_000)])
        store.sharing.put_learnt_rows(*OF, epoch, n, b"y" * 1000)
        renew(store, "a", epoch, 60.0)
    store.sharing.release_lease(*OF, "a")
    assert written() == before


def test_a_restart_forgets_the_lease_and_the_view_but_not_the_epoch(
    own_server: Callable[..., RedisServer], open_at: Open, hand_of: Any
) -> None:
    server = own_server()
    store = open_at(server.url)
    hand_of(store).add()
    epoch = led(store, "a")
    assert store.sharing.publish_view(*OF, epoch, b"head", [blob("x", b"x")])
    server.kill()
    server.start()
    assert store.sharing.fetch_view(*OF, ()) is None
    assert renew(store, "a", epoch, 60.0) == set(), "nobody has led since: it leads on"
    assert store.sharing.acquire_lease(*OF, "b", 60.0) is None
    assert not store.sharing.publish_view(*OF, epoch, b"head", [sent_before("x", b"x")])
    assert store.sharing.publish_view(*OF, epoch, b"head", [blob("x", b"x")])
    store.sharing.release_lease(*OF, "a")
    assert led(store, "b") > epoch


def test_labels_are_there_for_a_while(store: RedisStore, server: RedisServer, prefix: str) -> None:
    epoch = led(store)
    store.sharing.put_learnt_rows(*OF, epoch, 7, b"\x00\x01")
    assert store.sharing.get_learnt_rows(*OF, [6, 7]) == [None, b"\x00\x01"]
    assert store.sharing.get_learnt_rows(*OF, []) == []
    with server.client() as client:
        (key,) = client.scan_iter(f"{prefix}:*:labels:7")
        assert 50_000 < client.pttl(key) <= 60_000


def test_the_newest_checkpoint_is_read_if_it_is_new_enough(store: RedisStore) -> None:
    assert store.sharing.newest_checkpoint(*OF, 0) is None
    epoch = led(store)
    store.save_checkpoint(*OF, epoch, Checkpoint(0, 0, b"old"))
    store.save_checkpoint(*OF, epoch, Checkpoint(1, 3, b"new"))
    assert store.sharing.newest_checkpoint(*OF, 1) == Checkpoint(1, 3, b"new")
    assert store.sharing.newest_checkpoint(*OF, 2) is None


def test_the_end_of_a_stream_takes_all_with_it(store: RedisStore, server: RedisServer, prefix: str) -> None:
    epoch = led(store)
    assert store.sharing.publish_view(*OF, epoch, b"head", [blob("x", b"x")])
    store.delete_stream("s")
    (look,) = store.sharing.published_heads([OF])
    assert look.seq is None
    assert store.sharing.fetch_view(*OF, ()) is None
    for verb in (
        lambda: store.sharing.acquire_lease(*OF, "a", 60.0),
        lambda: renew(store, "a", epoch, 60.0),
        lambda: store.sharing.publish_view(*OF, epoch, b"head", [blob("y", b"y")]),
    ):
        with pytest.raises(StreamGoneError):
            verb()
    with server.client() as client:
        assert [key for key in client.scan_iter(f"{prefix}:*") if b"s/inc-s" in key] == [
            f"{prefix}:{{s/inc-s}}:meta".encode()
        ]


def test_everything_that_others_should_see_is_said(store: RedisStore, open_store: Open) -> None:
    shown: queue.Queue[Any] = queue.Queue()
    asked: queue.Queue[Any] = queue.Queue()
    other = open_store()
    other.sharing.on_published(shown.put)
    other.sharing.on_request(asked.put)
    assert shown.get(timeout=120) is None, "what was said before it listened was not heard"
    assert asked.get(timeout=120) is None
    epoch = led(store)
    assert store.sharing.publish_view(*OF, epoch, b"head", [blob("x", b"x")])
    assert shown.get(timeout=120) == OF
    store.sharing.put_learnt_rows(*OF, epoch, 1, b"")
    assert shown.get(timeout=120) == OF
    store.replace_settings(*OF, epoch, b"{}", b"[]")
    assert shown.get(timeout=120) == OF
    for what in ("view", "labels", "state", "refine"):
        want = ReaderRequest(*OF, 2**53 - 1, 7, what)
        store.sharing.send_request(want)
        assert asked.get(timeout=120) == want
    store.create_stream("t-1_x", "inc", b"{}", max_streams=9)
    assert asked.get(timeout=120) is None
    store.sharing.release_lease(*OF, "a")
    assert asked.get(timeout=120) is None
    store.delete_stream("s")
    assert shown.get(timeout=120) == OF


def test_scripts_that_a_server_has_forgotten_are_loaded_again(store: RedisStore, server: RedisServer) -> None:
    epoch = led(store)
    with server.client() as client:
        client.script_flush()
    renew(store, "a", epoch, 60.0)
    with server.client() as client:
        client.script_flush()
    assert store.sharing.publish_view(*OF, epoch, b"head", [blob("x", b"x")])


def test_an_address_with_a_password_shows_neither_in_a_description_nor_in_an_error(tmp_path: Path) -> None:
    store = RedisStore("redis://user:hunter2@127.0.0.1:1/0", timeout_s=0.2)
    try:
        with pytest.raises(Exception, match="cannot be reached") as caught:
            store.get_stream("s")
        assert "hunter2" not in str(caught.value) + store.describe() + repr(store)
    finally:
        store.close()
