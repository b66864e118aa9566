"""Under the lid: gaps are seen, counters are exact, nothing is left behind, and no command spans two hash tags."""

import logging
from typing import Any

import pytest

from harness.ports import free_port
from harness.waiting import eventually
from shoal_service.errors import LogGapError, StreamGoneError, UnknownStreamError
from shoal_service.store import SOURCES, Appended, DeadLetter, PageRun, SourceStep
from shoal_service.store.redis.keys import registry_keys, stream_keys
from shoal_service.store.redis.scripts import script
from shoal_service.store.redis.writer import WriteRequest

pytestmark = pytest.mark.redis


@pytest.fixture
def hand(open_store: Any, hand_of: Any) -> Any:
    return hand_of(open_store())


@pytest.fixture
def keys(prefix: str, hand: Any) -> Any:
    return stream_keys(prefix, *hand.key)


@pytest.fixture
def client(server: Any) -> Any:
    with server.client() as client:
        yield client


# -- damage


@pytest.mark.parametrize("part", ["log", "data"])
@pytest.mark.parametrize("lost", [1, 3, 5])
def test_an_entry_that_is_missing_is_a_gap(part: str, lost: int, hand: Any, keys: Any, client: Any) -> None:
    for _ in range(5):
        hand.add(b"abc")
    client.xdel(getattr(keys, part), f"{lost}-0")
    with pytest.raises(LogGapError, match=f"entry {lost} is missing"):
        hand.payloads(lost - 1)
    with pytest.raises(LogGapError, match=f"entry {lost} is missing"):
        hand.payloads(0)
    assert len(hand.payloads(lost)) == 5 - lost


def test_a_payload_that_lost_a_piece_is_a_gap(hand: Any, keys: Any, client: Any) -> None:
    hand.add(b"x" * (3 << 20))
    assert client.xlen(keys.data) == 3
    client.xdel(keys.data, "1-1")
    with pytest.raises(LogGapError, match="damaged"):
        hand.payloads()


def test_an_append_that_is_there_already_is_an_error_and_changes_nothing(
    hand: Any, keys: Any, client: Any, hand_of: Any, open_store: Any
) -> None:
    hand.add(b"one")
    hand.add(b"two")
    client.hset(keys.meta, "seq", 1)  # as if the counters had been brought back from an older backup
    with pytest.raises(LogGapError, match="entry 2 was acknowledged"):
        hand.add(b"again")
    with pytest.raises(LogGapError, match="number already"):
        hand_of(open_store()).add(b"again")
    assert client.xlen(keys.log) == 2
    assert client.hget(keys.meta, "seq") == b"1"


def test_a_damaged_checkpoint_is_left_out_and_does_not_count(
    hand: Any, keys: Any, client: Any, caplog: pytest.LogCaptureFixture
) -> None:
    hand.lead()
    for seq in (1, 2):
        hand.add()
        hand.save(seq, b"state %d" % seq)
    name = client.hget(keys.checkpoints, 2).split()[3].decode().rsplit(":")[0]
    client.hset(keys.blobs, f"{name}/0", b"state ?")
    with caplog.at_level(logging.WARNING, "shoal_service.store"):
        assert [c.seq for c in hand.store.load_checkpoints(*hand.key)] == [1]
    assert "the checkpoint at entry 2 of stream 's' is damaged" in caplog.text
    hand.add()
    hand.save(3)
    assert [c.seq for c in hand.store.load_checkpoints(*hand.key)] == [3, 1]
    assert hand.store.tail(*hand.key).first_seq == 2  # the log reaches back to the older good one


def test_a_dead_letter_that_lost_a_piece_is_said_and_its_reason_kept(hand: Any, keys: Any, client: Any) -> None:
    hand.lead()
    assert hand.store.dead_letter_reasons(*hand.key) == {}
    for seq in (12, 3):
        letter = DeadLetter(seq, 9, 4, f"why {seq} \N{SNOWMAN}\n", b"x" * (2 << 20))
        hand.store.add_dead_letter(*hand.key, hand.epoch, letter)
    assert [letter.seq for letter in hand.store.dead_letters(*hand.key)] == [3, 12]
    client.hdel(keys.letters, "12/1")
    with pytest.raises(LogGapError, match="entry 12 is damaged"):
        hand.store.dead_letters(*hand.key)
    assert hand.store.dead_letter_reasons(*hand.key) == {3: "why 3 \N{SNOWMAN}\n", 12: "why 12 \N{SNOWMAN}\n"}


# -- counters


def test_counters_are_exact_far_beyond_what_lua_prints(hand: Any, keys: Any, client: Any) -> None:
    big = (1 << 53) - 1000
    client.hset(keys.meta, mapping={"seq": big, "offset": big, "bytes": big, "applied": big, "answers": big,
                                    "floor_seq": big, "floor_offset": big, "floor_bytes": big})  # fmt: skip
    assert hand.add(b"abc", 7, key="k") == Appended(big + 1, big + 7, 7, replayed=False)
    assert hand.add(b"abc", 7, key="k") == Appended(big + 1, big + 7, 7, replayed=True)
    hand.lead()
    step = SourceStep("orders", "0", None, "5")
    assert hand.add(b"de", 2, source=step) == hand.add(b"de", 2, source=step)._replace(replayed=False)
    assert hand.store.documents(*hand.key, SOURCES)["orders/0"].endswith(
        b',"seq":%d,"log_offset":%d}' % (big + 2, big + 9)
    )
    assert [e[:3] for e in hand.store.read(*hand.key, big, max_bytes=9)] == [
        (big + 1, big + 7, 7),
        (big + 2, big + 9, 2),
    ]
    hand.mark(big + 1)
    assert hand.store.tail(*hand.key) == (big + 2, big + 9, 2, big + 1)
    hand.save(big + 1)
    hand.save(big + 2)
    assert hand.store.tail(*hand.key) == (big + 2, big + 9, 2, big + 2)


def test_the_pages_of_a_long_log_follow_one_another(hand: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_service.store.redis.log.PAGE", 3)
    monkeypatch.setattr("shoal_service.store.redis.log.SPAN_BYTES", 4)
    sent = [b"%02d" % i for i in range(10)]
    for payload in sent:
        hand.add(payload)
    for after in range(11):
        assert hand.payloads(after) == sent[after:]
    assert [e.seq for e in hand.store.read(*hand.key, 1, max_bytes=11)] == [2, 3, 4, 5, 6]


# -- what is left behind


def test_a_checkpoint_that_was_never_finished_is_cleared_away(hand: Any, keys: Any, client: Any) -> None:
    hand.lead()
    hand.add()

    def begin(name: str) -> None:
        command = script("stage_piece").command((keys.meta, keys.blobs), hand.epoch, 1, name, 3, 0, b"piece")
        hand.store._writer.run(WriteRequest(keys.tag, command, lambda reply, resent: None))

    begin("a")
    begin("b")
    assert client.hkeys(keys.blobs) == [b"b/0"]
    hand.save(1)
    assert client.hlen(keys.blobs) == 1
    begin("c")
    hand.lead()
    assert client.hlen(keys.blobs) == 1
    hand.save(1, b"x" * (5 << 20))
    assert client.hlen(keys.blobs) == 5
    assert hand.store.load_checkpoints(*hand.key)[0].blob == b"x" * (5 << 20)


def test_pages_that_arrive_late_on_a_connection_that_was_given_up_replace_no_newer_ones(
    hand: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a break in the network, a server may get what was sent before it when the write was sent again and done."""
    sent: list[Any] = []
    writer = hand.store._writer
    submit = writer.submit
    monkeypatch.setattr(writer, "submit", lambda request: (sent.append(request.command), submit(request))[1])
    epoch = hand.lead()
    hand.store.write_pages(*hand.key, epoch, {(1, 0): b"run 1", (0, 0): b"1"}).result()
    first = sent[-1]
    hand.store.write_pages(*hand.key, epoch, {(2, 0): b"run 2", (0, 0): b"2"}, [PageRun(1, 1)]).result()
    assert client.execute_command(*first) == [b"ok"]
    assert hand.store.read_pages(*hand.key, [(0, 0), (1, 0), (2, 0)]) == [b"2", None, b"run 2"]
    again = hand.lead()
    hand.store.write_pages(*hand.key, again, {(0, 0): b"3"}).result()
    assert hand.store.read_pages(*hand.key, [(0, 0)]) == [b"3"]


def test_a_stream_that_ends_leaves_a_trace_that_goes_by_itself(hand: Any, keys: Any, client: Any, prefix: str) -> None:
    hand.lead()
    hand.add(b"x" * (3 << 20), key="k")
    hand.save(1)
    hand.store.add_dead_letter(*hand.key, hand.epoch, DeadLetter(1, 1, 1, "", b"x"))
    hand.store.delete_stream("s")
    left = {key.decode() for key in client.scan_iter(f"{prefix}:*")}
    registry = registry_keys(prefix)
    assert left == {keys.meta, registry.format, registry.rewritten}
    assert 0 < client.ttl(keys.meta) <= 86400
    with pytest.raises(StreamGoneError):
        hand.add()


@pytest.mark.parametrize("state", [b"+", b"-"])
@pytest.mark.parametrize("counters", ["there", "not there"])
@pytest.mark.parametrize("first_look", ["get", "list", "create", "delete"])
def test_a_stream_left_half_way_is_put_right_by_the_next_look(
    state: bytes, counters: str, first_look: str, hand: Any, keys: Any, client: Any, prefix: str
) -> None:
    """A process died between two steps of a creation (`+`) or of an end (`-`)."""
    streams = registry_keys(prefix).streams
    client.hset(streams, "s", state + client.hget(streams, "s")[1:])
    if counters == "not there":
        client.delete(keys.meta)
        if state == b"-":
            client.hset(keys.meta, "ended", 1)
    store, coming = hand.store, state == b"+"
    match first_look:
        case "get" if not coming:
            with pytest.raises(UnknownStreamError):
                store.get_stream("s")
        case "get":
            assert store.get_stream("s").incarnation == "inc-s"
        case "list":
            assert [record.name for record in store.list_streams()] == (["s"] if coming else [])
        case "create":
            record, created = store.create_stream("s", "inc-2", b"{}", max_streams=1)
            assert (record.incarnation, created) == (("inc-s", False) if coming else ("inc-2", True))
        case "delete" if coming:
            store.delete_stream("s")
        case "delete":
            with pytest.raises(UnknownStreamError):
                store.delete_stream("s")
    left = [record.incarnation for record in store.list_streams()]
    assert left == ([] if first_look == "delete" else ["inc-s"] if coming else ["inc-2"] * (first_look == "create"))
    if left == ["inc-s"]:
        assert hand.add().seq == 1
    else:
        with pytest.raises(StreamGoneError):
            hand.add()


def test_a_creation_that_was_held_up_does_not_revive_a_stream_that_ended(
    hand: Any, keys: Any, client: Any, prefix: str
) -> None:
    held = client.hget(registry_keys(prefix).streams, "s")
    record = hand.store.get_stream("s")
    hand.store.delete_stream("s")
    hand.store._registry._create(b"+" + held[1:], record)
    assert hand.store.list_streams() == []
    with pytest.raises(StreamGoneError):
        hand.add()


# -- a cluster


def test_every_verb_works_where_keys_of_two_slots_may_not_meet(own_server: Any, open_at: Any, hand_of: Any) -> None:
    server = own_server(cluster_enabled="yes", cluster_port=str(free_port()))
    with server.client() as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"))
    store = open_at(server.url)
    store.check()
    hands = [hand_of(store, name) for name in ("a", "b")]
    for hand in hands:
        hand.lead()
        for i in range(70):
            hand.post(b"x%d" % i, key=str(i))
        hand.add(b"x" * (3 << 20))
        hand.mark(70)
        hand.save(60)
        hand.save(70, b"x" * (3 << 20))
        store.add_dead_letter(*hand.key, hand.epoch, DeadLetter(1, 1, 1, "why", b"p"))
        assert len(hand.payloads(60)) == 11
        assert len(store.load_checkpoints(*hand.key)) == 2
        assert len(store.dead_letters(*hand.key)) == 1
        assert store.wait_for_entries(*hand.key, 0, 1.0)
    assert [record.name for record in store.list_streams()] == ["a", "b"]
    store.delete_stream("a")
    assert [record.name for record in store.list_streams()] == ["b"]
