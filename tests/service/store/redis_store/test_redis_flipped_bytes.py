"""A flipped byte in the values of Redis is noticed, and nothing that was not written is ever read."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from shoal_service.errors import LogGapError, StoreError, StoreFormatError
from shoal_service.store import AccessKey, Checkpoint, DeadLetter, EntryKind, NewEntry
from shoal_service.store.redis.keys import FORMAT_VERSION, registry_keys, stream_keys

pytestmark = pytest.mark.redis


@pytest.fixture
def keys(prefix: str, hand: Any) -> Any:
    return stream_keys(prefix, *hand.key)


@pytest.fixture
def hand(hand_of: Any, open_store: Any) -> Any:
    return hand_of(open_store())


@pytest.fixture
def client(server: Any) -> Any:
    with server.client() as client:
        yield client


def payload(seq: int) -> bytes:
    return random.Random(seq).randbytes(60)


def rewrite(client: Any, key: str, change: Callable[[bytes, dict[bytes, bytes]], dict[bytes, bytes]]) -> None:
    """Write a stream of Redis again, with changed elements."""
    elements = client.xrange(key)
    client.delete(key)
    for element_id, fields in elements:
        client.xadd(key, change(element_id, fields), id=element_id)


def flipped(value: bytes, at: int, mask: int = 0x01) -> bytes:
    return value[:at] + bytes([value[at] ^ mask]) + value[at + 1 :]


def read_all(hand: Any) -> tuple[list[bytes], str | None]:
    """What a learner gets from the log: payloads, and the error that ends it."""
    found: list[bytes] = []
    try:
        while entries := hand.store.read(*hand.key, len(found), max_bytes=100):
            found += [entry.payload for entry in entries]
            assert entries[-1].seq == entries[-1].log_offset == len(found)
    except LogGapError as error:
        return found, str(error)
    return found, None


@pytest.mark.parametrize("part", ["data", "o", "b", "n", "s", "k", "c", "h"])
def test_an_entry_that_was_changed_is_not_learnt(hand: Any, keys: Any, client: Any, part: str) -> None:
    for seq in range(1, 6):
        hand.add(payload(seq))
    if part == "data":
        rewrite(client, keys.data, lambda i, f: {b"d": flipped(f[b"d"], 30)} if i == b"4-0" else f)
    else:
        name = part.encode()
        rewrite(client, keys.log, lambda i, f: {**f, name: flipped(f[name], 0)} if i == b"4-0" else f)
    found, error = read_all(hand)
    assert found == [payload(seq) for seq in range(1, 4)], "the whole entries before it are read"
    assert "entry 4 is missing or damaged" in str(error)
    assert hand.store.read(*hand.key, 4, max_bytes=100)[0].payload == payload(5)


@pytest.mark.parametrize("counter", ["offset", "bytes"])
def test_a_changed_counter_takes_no_more_appends(hand: Any, keys: Any, client: Any, counter: str) -> None:
    hand.add(b"one")
    hand.add(b"two")
    client.hincrby(keys.meta, counter, 1)
    with pytest.raises(LogGapError, match="counters do not match"):
        hand.add(b"three")
    assert client.xlen(keys.log) == 2


def test_an_entry_that_does_not_continue_the_log_is_not_learnt(hand: Any, keys: Any, client: Any) -> None:
    client.hincrby(keys.meta, "offset", 5)
    hand.add(b"one")
    with pytest.raises(LogGapError, match="entry 1 is missing or damaged"):
        hand.payloads()


def test_a_log_that_lost_its_end_says_so(hand: Any, keys: Any, client: Any, open_store: Any, hand_of: Any) -> None:
    for seq in range(1, 6):
        hand.add(payload(seq))
    client.xdel(keys.log, "5-0")
    assert read_all(hand)[0] == [payload(seq) for seq in range(1, 5)]
    with pytest.raises(LogGapError, match="counters do not match"):
        hand.add(b"x")
    # As after a restart with an older file: the counters went back as well, and only this process knows better.
    client.hset(keys.meta, mapping={"seq": 4, "offset": 4, "bytes": 240})
    with pytest.raises(LogGapError, match="ends at entry 4, but entry 5 was acknowledged"):
        hand.store.tail(*hand.key)
    other = hand_of(open_store())
    assert read_all(other) == ([payload(seq) for seq in range(1, 5)], None)


@pytest.mark.parametrize("at", range(0, 115, 6))
def test_a_checkpoint_whose_header_was_changed_is_left_out(
    hand: Any, keys: Any, client: Any, caplog: Any, at: int
) -> None:
    hand.lead()
    for _ in range(4):
        hand.add()
    for seq in (1, 3):
        checkpoint = Checkpoint(seq, seq, b"state %d" % seq, window_seq=0)
        hand.store.save_checkpoint(*hand.key, hand.epoch, checkpoint)
    header = client.hget(keys.checkpoints, 3)
    assert len(header) == 115
    client.hset(keys.checkpoints, 3, flipped(header, at))
    assert [checkpoint.seq for checkpoint in hand.store.load_checkpoints(*hand.key)] == [1]
    assert "is damaged and left out" in caplog.text
    hand.save(4)
    assert [checkpoint.seq for checkpoint in hand.store.load_checkpoints(*hand.key)] == [4, 1]


def test_a_checkpoint_with_a_changed_header_never_decides_what_is_trimmed(hand: Any, keys: Any, client: Any) -> None:
    hand.lead()
    for _ in range(5):
        hand.add()
    for seq in (1, 3):
        checkpoint = Checkpoint(seq, seq, b"state %d" % seq, window_seq=0)
        hand.store.save_checkpoint(*hand.key, hand.epoch, checkpoint)
    client.hset(keys.checkpoints, 3, client.hget(keys.checkpoints, 3).replace(b":1 0 h", b":1 3 h"))
    hand.store.save_checkpoint(*hand.key, hand.epoch, Checkpoint(5, 5, b"state 5", window_seq=4))
    assert [checkpoint.seq for checkpoint in hand.store.load_checkpoints(*hand.key)] == [5, 1]
    assert hand.store.tail(*hand.key).first_seq == 1, "the older whole checkpoint still has its window"


def test_a_changed_dead_letter_is_named(hand: Any, keys: Any, client: Any) -> None:
    hand.lead()
    hand.store.add_dead_letter(*hand.key, hand.epoch, DeadLetter(12, 3, 1, "why", b"payload"))
    header, piece = client.hmget(keys.letters, "12", "12/0")
    for at in range(len(header)):
        client.hset(keys.letters, "12", flipped(header, at))
        with pytest.raises(LogGapError, match="12"):
            hand.store.dead_letter_reasons(*hand.key)
    client.hset(keys.letters, "12", header)
    client.hset(keys.letters, "12/0", flipped(piece, 3))
    assert hand.store.dead_letter_reasons(*hand.key) == {12: "why"}
    with pytest.raises(LogGapError, match="entry 12 is damaged"):
        hand.store.dead_letters(*hand.key)
    client.hdel(keys.letters, "12")
    client.hset(keys.letters, "13", header)
    with pytest.raises(LogGapError, match="'13' is damaged"):
        hand.store.dead_letter_reasons(*hand.key)


def test_changed_settings_are_named(hand: Any, keys: Any, client: Any) -> None:
    hand.store.append(*hand.key, NewEntry(EntryKind.SETTINGS, b"x", settings=b'{"a": 1}'), budget_bytes=1 << 30).result(
        120
    )
    assert hand.store.get_stream("s").settings == b'{"a": 1}'
    hand.lead()
    hand.store.replace_settings(*hand.key, hand.epoch, b'{"a": 1}', b'{"a": 2}')
    assert [record.settings for record in hand.store.list_streams()] == [b'{"a": 2}']
    client.hset(keys.meta, "settings", b'{"a": 6}')
    with pytest.raises(StoreFormatError, match="record of stream 's' is damaged"):
        hand.store.get_stream("s")


def test_a_store_of_the_first_format_is_opened(
    hand: Any, keys: Any, client: Any, prefix: str, open_store: Any, hand_of: Any
) -> None:
    hand.lead()
    for seq in range(1, 5):
        hand.add(payload(seq))
    hand.save(1, b"older")
    hand.save(3, b"newer")
    hand.store.add_dead_letter(*hand.key, hand.epoch, DeadLetter(2, 2, 1, "why", b"letter"))
    # As the first format had it.
    rewrite(client, keys.log, lambda i, f: {k: v for k, v in f.items() if k not in (b"c", b"h")})
    for seq in ("1", "3"):
        client.hset(keys.checkpoints, seq, client.hget(keys.checkpoints, seq).rpartition(b" ")[0])
    client.hset(keys.letters, "2", b"2 1 6 1 why")
    client.hdel(keys.meta, "settings_hash")
    client.set(registry_keys(prefix).format, 1)

    other = hand_of(open_store())
    assert other.payloads(1) == [payload(seq) for seq in range(2, 5)]
    assert [c.blob for c in other.store.load_checkpoints(*hand.key)] == [b"newer", b"older"]
    assert other.store.dead_letters(*hand.key) == [DeadLetter(2, 2, 1, "why", b"letter")]
    other.lead()
    assert other.add(payload(5)).seq == 5
    other.save(5)
    assert [c.seq for c in other.store.load_checkpoints(*hand.key)] == [5, 3]
    assert other.store.tail(*hand.key).first_seq == 4
    assert other.payloads(3) == [payload(4), payload(5)]
    assert client.get(registry_keys(prefix).format) == b"%d" % FORMAT_VERSION


def test_no_flipped_byte_of_a_hash_changes_what_is_read(hand: Any, keys: Any, client: Any) -> None:
    hand.lead()
    for seq in range(1, 5):
        hand.add(payload(seq))
    hand.save(1, b"older" * 20)
    hand.save(3, b"newer" * 20)
    hand.store.put_blob(*hand.key, "k", b"blob" * 20)
    hand.store.add_dead_letter(*hand.key, hand.epoch, DeadLetter(2, 2, 1, "why", b"letter" * 20))
    rng = random.Random(1)
    said = set()
    for key in (keys.checkpoints, keys.blobs, keys.named, keys.letters):
        whole = client.hgetall(key)
        for _ in range(40):
            field = rng.choice(sorted(whole))
            value = whole[field]
            client.hset(key, field, flipped(value, rng.randrange(len(value)), rng.randrange(1, 256)))
            try:
                for found in hand.store.load_checkpoints(*hand.key):
                    assert found[:3] in [(1, 1, b"older" * 20), (3, 3, b"newer" * 20)]
                assert hand.store.get_blob(*hand.key, "k") == b"blob" * 20
                assert hand.store.dead_letters(*hand.key) == [DeadLetter(2, 2, 1, "why", b"letter" * 20)]
            except StoreError as error:
                said.add(str(error))
            client.hset(key, field, value)
    assert len(said) > 2


def test_no_flipped_byte_of_an_access_key_changes_what_it_allows(hand: Any, client: Any, prefix: str) -> None:
    key = AccessKey("a", "one", b"digest", b"read", 1.0)
    hand.store.put_access_key(key)
    access = registry_keys(prefix).access
    value = client.hget(access, "a")
    for at in range(len(value)):
        for mask in (0x01, 0x80):
            client.hset(access, "a", flipped(value, at, mask))
            (found,) = hand.store.access_keys()
            assert (found.digest, found.body) == (b"", b""), (at, mask)
    client.hset(access, "a", value)
    assert hand.store.access_keys() == [key]


def test_a_damaged_record_keeps_no_other_stream_out(
    hand: Any, keys: Any, client: Any, hand_of: Any, caplog: Any
) -> None:
    other = hand_of(hand.store, "other")
    settings = client.hget(keys.meta, "settings")
    client.hset(keys.meta, "settings", flipped(settings, 0))
    for _ in range(2):
        assert [record.name for record in hand.store.list_streams()] == ["other"]
    assert caplog.text.count("is damaged, so the stream is not served") == 1
    assert other.add(b"x").seq == 1
    with pytest.raises(StoreFormatError, match="record of stream 's' is damaged"):
        hand.store.get_stream("s")


@pytest.mark.parametrize("damage", ["registry", "incarnation", "counters"])
def test_a_damaged_registration_keeps_no_other_stream_out(
    hand: Any, keys: Any, client: Any, hand_of: Any, prefix: str, caplog: Any, damage: str
) -> None:
    """One of them used to fail the list of all streams, without which no process learns any."""
    other, registry = hand_of(hand.store, "other"), registry_keys(prefix).streams
    if damage == "registry":
        client.hset(registry, "s", b"=\x00")
    elif damage == "incarnation":
        client.hset(registry, "s", client.hget(registry, "s").replace(b"inc-s", b"inc\xffs"))
    else:
        client.delete(keys.meta)
    for _ in range(2):
        assert [record.name for record in hand.store.list_streams()] == ["other"]
    says = "its counters are missing" if damage == "counters" else "is damaged, so the stream is not served"
    assert caplog.text.count(says) == 1
    assert other.add(b"x").seq == 1
    with pytest.raises(StoreError, match=says):
        hand.store.get_stream("s")


def test_high_water_marks_survive_their_processes(
    hand_of: Any, open_store: Any, prefix: str, client: Any, tmp_path: Any
) -> None:
    """The server restarted with an older file while no process ran: the next one says what is missing."""
    first, second = (hand_of(open_store(marks_folder=tmp_path)) for _ in range(2))
    for n in range(5):
        (first if n < 4 else second).add(payload(n))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"shoal.high-water.redis-{n}" for n in range(2)]
    for hand in (first, second):
        hand.store.close()
    keys = stream_keys(prefix, *first.key)
    client.xdel(keys.log, "5-0")
    client.hset(keys.meta, mapping={"seq": 4, "offset": 4, "bytes": 240})
    late = open_store(marks_folder=tmp_path)
    with pytest.raises(LogGapError, match=r"entry 5 was acknowledged .* remove .*shoal.high-water.redis-\*"):
        late.tail(*first.key)
    with pytest.raises(LogGapError, match="entry 5 was acknowledged"):
        late.append(*first.key, NewEntry(EntryKind.BATCH, b"x", 1), budget_bytes=1 << 40).result(120)
    late.close()
    late = open_store(marks_folder=tmp_path)  # its own file was taken over, and says the same
    with pytest.raises(LogGapError):
        late.tail(*first.key)
    late.close()
    for path in tmp_path.iterdir():
        path.unlink()
    late = open_store(marks_folder=tmp_path)
    assert late.tail(*first.key).seq == 4


def test_damaged_or_unwritable_marks_raise_no_false_alarm(
    hand_of: Any, open_store: Any, tmp_path: Any, caplog: Any
) -> None:
    hand = hand_of(open_store(marks_folder=tmp_path / "data"))
    hand.add(b"one")
    hand.store.close()
    (file,) = (tmp_path / "data").iterdir()
    file.write_bytes(flipped(file.read_bytes(), -1, 0x40) + b"torn")
    again = open_store(marks_folder=tmp_path / "data")
    assert again.tail(*hand.key).seq == 1
    (tmp_path / "file").write_bytes(b"")
    with caplog.at_level("INFO", "shoal_service.store"):
        other = open_store(marks_folder=tmp_path / "file")
    assert "high-water marks cannot be kept" in caplog.text
    assert other.tail(*hand.key).seq == 1
