"""What the learner needs: epochs, checkpoints, trimming behind them, dead letters, and all of it after a restart."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from shoal_service.errors import StaleWriterError, UnknownDeadLetterError
from shoal_service.store import Checkpoint, DeadLetter, DeadLetterHead, EntryKind, Store


def test_each_writer_has_a_larger_epoch(line: Any, store: Store) -> None:
    epochs = [line.epoch, *(store.acquire_writer(*line.key) for _ in range(3))]
    assert epochs == sorted(set(epochs))


def test_an_older_writer_is_refused_and_changes_nothing(line: Any, store: Store) -> None:
    for _ in range(3):
        line.add()
    line.save(1)
    line.save(2)
    line.mark(2)
    before = store.tail(*line.key), store.load_checkpoints(*line.key)
    store.acquire_writer(*line.key)
    with pytest.raises(StaleWriterError, match="epoch 2"):
        line.save(3)
    with pytest.raises(StaleWriterError):
        line.mark(3)
    with pytest.raises(StaleWriterError):
        store.add_dead_letter(*line.key, line.epoch, DeadLetter(1, 1, 1, "", b""))
    assert (store.tail(*line.key), store.load_checkpoints(*line.key)) == before
    assert store.dead_letters(*line.key) == []


def test_an_epoch_that_was_never_given_out_is_refused(line: Any) -> None:
    line.epoch += 1
    with pytest.raises(StaleWriterError):
        line.mark(0)


# -- checkpoints


def test_the_two_newest_checkpoints_stay(line: Any, store: Store) -> None:
    assert store.load_checkpoints(*line.key) == []
    for _ in range(4):
        line.add()
    line.save(1, 1)
    assert store.load_checkpoints(*line.key) == [Checkpoint(1, 1, b"state after 1")]
    for seq in (2, 4, 3):  # by seq, not by when they were saved
        line.save(seq, seq)
    assert [c.seq for c in store.load_checkpoints(*line.key)] == [4, 3]
    line.save(1)
    assert [c.seq for c in store.load_checkpoints(*line.key)] == [4, 3]
    line.save(4, 4, b"again")
    assert store.load_checkpoints(*line.key) == [Checkpoint(4, 4, b"again"), Checkpoint(3, 3, b"state after 3")]


@pytest.mark.parametrize("size", [1, 256 * 1024, 4 << 20, (4 << 20) + 1, (9 << 20) + 77])
@pytest.mark.short_form("sqlite-*", "redis-*", "memory-1")
def test_a_checkpoint_of_any_size_comes_back_as_it_was(line: Any, store: Store, size: int) -> None:
    blob = random.Random(size).randbytes(size)
    line.add()
    line.save(0, 0, blob[::-1])
    line.save(1, 1, blob)
    assert store.load_checkpoints(*line.key) == [Checkpoint(1, 1, blob), Checkpoint(0, 0, blob[::-1])]


def test_a_checkpoint_beyond_the_log_is_the_callers_mistake(line: Any, store: Store) -> None:
    line.add()
    with pytest.raises(ValueError, match="ends at entry 1"):
        line.save(2)
    assert store.load_checkpoints(*line.key) == []


# -- trimming


def test_with_one_checkpoint_nothing_is_dropped(line: Any) -> None:
    for _ in range(3):
        line.add()
    line.save(3)
    line.save(3)  # the same one again is still one
    assert line.seqs() == [1, 2, 3]


def test_nothing_behind_the_older_checkpoint_is_dropped_without_a_window(line: Any, store: Store) -> None:
    for _ in range(5):
        line.add(b"xy")
    line.save(2)
    line.save(5)
    assert line.seqs() == [3, 4, 5]
    line.save(5, 5, b"again")
    assert line.seqs() == [3, 4, 5]
    line.mark(5)
    assert line.add().seq == 6
    line.save(6)
    assert line.seqs() == [6]
    line.save(6)
    assert store.tail(*line.key) == (6, 6, 1, 6)


@pytest.mark.parametrize(
    ("older", "newer", "keep_after", "first"),
    [
        (None, None, None, 5),  # no window: everything up to the older checkpoint
        (4, 6, 9, 5),  # a window that begins at its checkpoint needs nothing
        (3, None, None, 4),
        (0, 5, None, 1),  # each of the two counts
        (3, 2, None, 3),
        (None, None, 1, 2),  # what somebody reads just now stays
        (2, 3, 1, 2),
        (2, 3, 3, 3),
    ],
)
def test_entries_of_windows_stay(
    line: Any, store: Store, older: int | None, newer: int | None, keep_after: int | None, first: int
) -> None:
    for _ in range(6):
        line.add(b"x" * 100, 10)
    line.save(4, window_seq=older)
    line.save(6, window_seq=newer, keep_after=keep_after)
    assert store.tail(*line.key).first_seq == first
    assert line.seqs() == list(range(first, 7))
    assert [c.window_seq for c in store.load_checkpoints(*line.key)] == [newer, older]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.short_form("*-[0-3]")
def test_trimming_is_what_asking_every_entry_who_needs_it_says(line: Any, store: Store, seed: int) -> None:
    rng = random.Random(seed)
    checkpoints: dict[int, int | None] = {0: None}
    adoptions: dict[int, tuple[str, int]] = {}  # by seq: the key of the blob, and after which entry it reads
    last, first = 0, 1
    line.save(0)
    for i in range(8):
        for _ in range(rng.randint(1, 5)):
            last = line.add(b"x", rng.choice([0, 1, 3])).seq
        if rng.random() < 0.6:
            key, after = f"blob-{i}", rng.randint(first - 1, last)
            store.put_blob(*line.key, key, b"b")
            last = line.adopt(key, after).seq
            adoptions[last] = key, after
        at = rng.randint(max(checkpoints), last)
        window = rng.choice([None, rng.randint(0, at)])
        keep_after = rng.choice([None, rng.randint(0, last)])
        checkpoints[at] = window
        line.save(at, window_seq=window, keep_after=keep_after)

        kept = sorted(checkpoints)[-2:]
        if len(kept) == 2:
            replayed = range(kept[0] + 1, last + 1)
            readers = [*(checkpoints[seq] for seq in kept), keep_after]
            readers += [after for seq, (_, after) in adoptions.items() if seq in replayed]

            def is_needed(seq: int, replayed: Any = replayed, readers: Any = tuple(readers)) -> bool:
                return seq in replayed or any(after is not None and seq > after for after in readers)

            first = max(first, next((seq for seq in range(first, last + 1) if is_needed(seq)), last + 1))
        assert store.tail(*line.key).first_seq == first
        assert line.seqs() == list(range(first, last + 1))
        assert store.blob_keys(*line.key) == sorted(key for seq, (key, _) in adoptions.items() if seq >= first)


# -- dead letters


def test_dead_letters_are_kept_once_each_and_in_order(line: Any, store: Store) -> None:
    letters = [DeadLetter(seq, seq * 10, 10, f"reason {seq}", b"p" * seq * 100_000) for seq in (3, 1, 7)]
    for letter in letters:
        store.add_dead_letter(*line.key, line.epoch, letter)
    store.add_dead_letter(*line.key, line.epoch, letters[0]._replace(reason="another", payload=b""))
    assert store.dead_letters(*line.key) == sorted(letters)
    assert [store.dead_letter(*line.key, letter.seq) for letter in letters] == letters
    assert store.dead_letter_heads(*line.key) == [
        DeadLetterHead(*letter[:3], len(letter.payload), letter.reason) for letter in sorted(letters)
    ]
    with pytest.raises(UnknownDeadLetterError, match="no dead letter of entry 99"):
        store.dead_letter(*line.key, 99)
    reasons = store.dead_letter_reasons(*line.key)
    assert list(reasons.items()) == [(1, "reason 1"), (3, "reason 3"), (7, "reason 7")]


# -- the next process


def test_everything_is_there_after_a_restart(open_durable_store: Any, new_line: Any, clock: Any) -> None:
    store = open_durable_store(clock=clock)
    line, other = new_line(store), new_line(store, "other")
    for i in range(1, 6):
        line.add(b"x" * i * 100, i)
    line.keyed("k", b"body" * 100_000, 2)
    line.add(b"set", 0, kind=EntryKind.SETTINGS, settings=b"{1}")
    line.save(2, 3)
    line.save(4, 10, window_seq=2)
    line.mark(6)
    store.put_blob(*line.key, "b", b"blob" * 500_000)
    store.put_job(*line.key, "j", b"body", version=0)
    store.add_dead_letter(*line.key, line.epoch, DeadLetter(1, 1, 1, "why", b"payload"))
    questions: tuple[Callable[[Store], object], ...] = (
        lambda s: s.list_streams(),
        lambda s: s.tail(*line.key)[:2],
        lambda s: s.tail(*line.key).first_seq,
        lambda s: s.read(*line.key, 2, max_bytes=1 << 30),
        lambda s: s.load_checkpoints(*line.key),
        lambda s: s.dead_letters(*line.key),
        lambda s: s.dead_letter_reasons(*line.key),
        lambda s: s.dead_letter_heads(*line.key),
        lambda s: s.dead_letter(*line.key, 1),
        lambda s: s.tail(*other.key),
        lambda s: s.blob_keys(*line.key),
        lambda s: s.get_blob(*line.key, "b"),
        lambda s: s.jobs(*line.key),
    )
    before = [ask(store) for ask in questions]
    store.close()

    line.store = open_durable_store(clock=clock)
    try:
        assert [ask(line.store) for ask in questions] == before
        # What is not known to be applied waits: all after the newest checkpoint.
        assert line.store.tail(*line.key).unapplied_bytes == 500 + 400_000 + 3
        assert line.keyed("k", b"body" * 100_000, 2) == (6, 17, 2, True)
        assert line.store.acquire_writer(*line.key) == line.epoch + 1
        assert line.add(b"next", 3)[:2] == (8, 20)
    finally:
        line.store.close()


def test_a_log_that_is_trimmed_to_nothing_counts_on_after_a_restart(
    open_durable_store: Any, new_line: Any, clock: Any
) -> None:
    line = new_line(open_durable_store(clock=clock))
    for _ in range(3):
        line.add(b"x" * 10, 5)
    line.save(2)
    line.save(3)
    line.add(b"x" * 10, 5)
    line.save(4)
    line.save(4)
    line.store.close()
    line.store = open_durable_store(clock=clock)
    try:
        assert line.store.tail(*line.key) == (4, 20, 0, 4)
        assert line.add(b"x", 1)[:2] == (5, 21)
        assert line.seqs() == [4, 5]
    finally:
        line.store.close()


def test_settings_are_put_right_unless_they_are_others_by_now(line: Any) -> None:
    line.add(b"one", kind=EntryKind.SETTINGS, settings=b'{"a": 1}')
    line.store.replace_settings(*line.key, line.epoch, b"{}", b'{"a": 2}')
    assert line.store.get_stream("s").settings == b'{"a": 1}'
    line.store.replace_settings(*line.key, line.epoch, b'{"a": 1}', b'{"a": 0}')
    assert line.store.get_stream("s").settings == b'{"a": 0}'
    with pytest.raises(StaleWriterError):
        line.store.replace_settings(*line.key, line.epoch - 1, b'{"a": 0}', b"{}")
    assert line.store.get_stream("s").settings == b'{"a": 0}'
