"""Replies that never arrive: what has a key, or is the same when done twice, is done once; the rest is in doubt."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.fault_proxy import FaultProxy
from harness.waiting import eventually
from shoal_service.errors import IdempotencyMismatchError, SourcePositionError, StoreUnavailableError
from shoal_service.store import DeadLetter, ReaderRequest, SourceStep

pytestmark = pytest.mark.redis


@pytest.fixture
def proxy(server: Any) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server.port)
    yield proxy
    proxy.close()


@pytest.fixture
def hand(proxy: FaultProxy, open_at: Any, hand_of: Any) -> Any:
    return hand_of(open_at(proxy.url))


def test_an_append_with_a_key_whose_reply_is_lost_thrice_is_one_entry(hand: Any, proxy: FaultProxy) -> None:
    hand.add(b"before")
    proxy.lose(b"needle", 3)
    assert hand.add(b"needle", 5, key="k") == (2, 6, 5, False)  # and it is no replay: nobody had been answered
    assert proxy.losses == 0
    assert hand.payloads() == [b"before", b"needle"]
    assert hand.add(b"needle", 5, key="k") == (2, 6, 5, True)
    with pytest.raises(IdempotencyMismatchError):
        hand.add(b"another", key="k")


def test_a_step_of_a_source_whose_reply_is_lost_thrice_is_one_entry(hand: Any, proxy: FaultProxy) -> None:
    step = SourceStep("orders", "0", None, "5")
    proxy.lose(b"needle", 3)
    assert hand.add(b"needle", 5, source=step) == (1, 5, 5, False)
    assert proxy.losses == 0
    assert hand.add(b"needle", 5, source=step) == (1, 5, 5, True)
    proxy.lose(b"needle", 2)
    with pytest.raises(SourcePositionError) as refused:  # also after the reply was lost
        hand.add(b"needle", 5, source=SourceStep("orders", "0", "4", "6"))
    assert refused.value.position == "5"
    assert hand.payloads() == [b"needle"]


def test_a_change_of_documents_whose_reply_is_lost_thrice_is_made_once(hand: Any, proxy: FaultProxy) -> None:
    one = ("label", "7")
    proxy.lose(b"needle", 3)
    assert hand.store.change_documents(*hand.key, {one: b"needle"}, expected={one: None})
    assert proxy.losses == 0
    assert hand.store.documents(*hand.key, "label") == {"7": b"needle"}
    assert not hand.store.change_documents(*hand.key, {one: b"needle"}, expected={one: None})


def test_an_append_without_a_key_is_never_sent_twice_and_said_to_be_in_doubt(hand: Any, proxy: FaultProxy) -> None:
    proxy.lose(b"needle", 1)
    with pytest.raises(StoreUnavailableError, match="not known"):
        hand.add(b"needle")
    assert hand.payloads() == [b"needle"]
    assert hand.add(b"after").seq == 2


def test_of_a_group_whose_replies_are_lost_those_with_keys_are_answered(hand: Any, proxy: FaultProxy) -> None:
    for round_ in range(20):
        proxy.lose(b"needle", 1)
        start = hand.store.tail(*hand.key).seq
        keyed = [hand.post(b"needle %d" % i, key=f"{round_}/{i}") for i in range(10)]
        unkeyed = [hand.post(b"bare") for _ in range(3)]
        assert sorted(future.result(120).seq for future in keyed) == sorted({f.result(120).seq for f in keyed})
        assert not any(future.result().replayed for future in keyed)
        failed = sum(future.exception(30) is not None for future in unkeyed)
        payloads = hand.payloads(start)
        assert sorted(p for p in payloads if p != b"bare") == [b"needle %d" % i for i in range(10)]
        assert 3 - failed <= payloads.count(b"bare") <= 3


def test_the_other_changes_are_done_once_too(hand: Any, proxy: FaultProxy) -> None:
    store = hand.store
    for word in (b"inc-lost", b"EVALSHA"):  # the first step of a creation, or any
        proxy.lose(word, 2)
        assert store.create_stream(f"t{len(word)}", "inc-lost", b"{}", max_streams=99)[1]
    proxy.lose(b"EVALSHA", 2)
    assert hand.lead() >= 1
    hand.add()
    hand.add()
    proxy.lose(b"state of two", 2)
    hand.save(1)
    hand.save(2, b"state of two")
    assert [c.seq for c in store.load_checkpoints(*hand.key)] == [2, 1]
    proxy.lose(b"a letter", 2)
    store.add_dead_letter(*hand.key, hand.epoch, DeadLetter(1, 1, 1, "why", b"a letter"))
    assert [letter.payload for letter in store.dead_letters(*hand.key)] == [b"a letter"]
    proxy.lose(b"EVALSHA", 2)
    store.delete_stream("s")
    assert "s" not in [record.name for record in store.list_streams()]


def test_a_question_is_asked_again_once(hand: Any, proxy: FaultProxy) -> None:
    hand.add(b"one")
    proxy.lose(b"XRANGE", 1)
    assert hand.payloads() == [b"one"]
    proxy.lose(b"XRANGE", 2)
    with pytest.raises(StoreUnavailableError):
        hand.payloads()


def test_the_scripts_come_back_after_the_server_forgot_them(server: Any, hand: Any) -> None:
    hand.add(b"one")
    with server.client() as client:
        client.script_flush()
    futures = [hand.post(b"0"), hand.post(b"1", key="k")]
    assert [future.result(120)[:2] for future in futures] == [(2, 2), (3, 3)]
    assert hand.payloads() == [b"one", b"0", b"1"]


def test_a_subscription_whose_connection_was_lost_without_a_word_is_made_again(
    proxy: FaultProxy, open_at: Any, open_store: Any
) -> None:
    """As behind a network that was cut while the server gave the connection up: nothing of that arrives here."""
    listening, other = open_at(proxy.url, timeout_s=0.5), open_store()
    requests: list[ReaderRequest | None] = []
    messages: list[bytes | None] = []
    listening.sharing.on_request(requests.append)
    listening.messages.listen(("pieces",), messages.append)
    eventually(lambda: requests == messages == [None], "both listen")
    proxy.strand()
    eventually(lambda: other.messages.send("pieces", b"nobody hears") == 0)
    eventually(lambda: other.messages.send("pieces", b"heard again") == 1, "no listener came back", limit_s=20.0)
    eventually(lambda: b"heard again" in messages)
    request = ReaderRequest("s", "inc-s", 1, 3, "state")

    def asked() -> bool:
        other.sharing.send_request(request)
        return request in requests

    eventually(asked, "nobody heard of the request", limit_s=20.0, pause_s=0.1)


def test_a_subscription_on_which_nothing_is_said_for_long_still_hears(server: Any, open_store: Any) -> None:
    listening, other = open_store(timeout_s=0.3), open_store()
    requests: list[ReaderRequest | None] = []
    listening.sharing.on_request(requests.append)
    eventually(lambda: requests == [None])
    with server.client() as client:
        pings = lambda: client.info("commandstats").get("cmdstat_ping", {"calls": 0})["calls"]  # noqa: E731
        before = pings()
        eventually(lambda: pings() >= before + 3, "it asks whether the server is there")
    request = ReaderRequest("s", "inc-s", 1, 3, "state")
    other.sharing.send_request(request)
    eventually(lambda: request in requests)
