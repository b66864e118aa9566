"""What the learner needs: epochs, checkpoints, trimming behind them, dead letters, and all of it after a restart."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from shoal_service.errors import StaleWriterError
from shoal_service.store import Checkpoint, DeadLetter, EntryKind, Store


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
    ("keep_points", "keep_bytes", "first"),
    [
        (0, 0, 5),  # no window: everything up to the older checkpoint
        (0, 999, 5),  # whichever is less
        (999, 0, 5),
        (20, 999, 5),  # entries 5 and 6 hold the newest 20 points
        (21, 999, 4),  # a point of entry 4 is needed, so the whole entry stays
        (30, 999, 4),
        (31, 999, 3),
        (31, 300, 4),  # the window of 300 bytes is the shorter one
        (31, 301, 3),
        (999, 301, 3),
        (999, 999, 1),
    ],
)
def test_entries_of_the_window_stay(line: Any, store: Store, keep_points: int, keep_bytes: int, first: int) -> None:
    for _ in range(6):
        line.add(b"x" * 100, 10)
    line.save(4)
    line.save(6, keep_points=keep_points, keep_bytes=keep_bytes)
    assert store.tail(*line.key).first_seq == first
    assert line.seqs() == list(range(first, 7))


@pytest.mark.parametrize("seed", range(12))
def test_trimming_is_what_counting_points_and_bytes_one_by_one_says(line: Any, store: Store, seed: int) -> None:
    rng = random.Random(seed)
    points: list[int] = []  # the entry of each point of the log
    octets: list[int] = []  # and of each byte
    saved: list[int] = [0]
    first = 1
    line.save(0)
    for _ in range(5):
        for _ in range(rng.randint(1, 5)):
            n_points, size = rng.choice([0, 1, 3]), rng.choice([0, 1, 4])
            seq = line.add(b"x" * size, n_points).seq
            points += [seq] * n_points
            octets += [seq] * size
        if (at := rng.randint(saved[-1], seq)) > saved[-1]:
            saved.append(at)
        kept = {"keep_points": rng.randint(0, 12), "keep_bytes": rng.randint(0, 16)}
        line.save(saved[-1], **kept)

        begins = []  # where each of the two windows begins; the shorter one counts
        for owners, keep in ((points, kept["keep_points"]), (octets, kept["keep_bytes"])):
            begins.append(1 if keep > len(owners) else [*owners, seq + 1][len(owners) - keep])
        if len(saved) > 1:
            first = max(first, min(saved[-2] + 1, max(begins)))
        assert store.tail(*line.key).first_seq == first
        assert line.seqs() == list(range(first, seq + 1))


# -- dead letters


def test_dead_letters_are_kept_once_each_and_in_order(line: Any, store: Store) -> None:
    letters = [DeadLetter(seq, seq * 10, 10, f"reason {seq}", b"p" * seq * 100_000) for seq in (3, 1, 7)]
    for letter in letters:
        store.add_dead_letter(*line.key, line.epoch, letter)
    store.add_dead_letter(*line.key, line.epoch, letters[0]._replace(reason="another", payload=b""))
    assert store.dead_letters(*line.key) == sorted(letters)
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
    line.save(4, 10)
    line.mark(6)
    store.add_dead_letter(*line.key, line.epoch, DeadLetter(1, 1, 1, "why", b"payload"))
    questions: tuple[Callable[[Store], object], ...] = (
        lambda s: s.list_streams(),
        lambda s: s.tail(*line.key)[:2],
        lambda s: s.tail(*line.key).first_seq,
        lambda s: s.read(*line.key, 2, max_bytes=1 << 30),
        lambda s: s.load_checkpoints(*line.key),
        lambda s: s.dead_letters(*line.key),
        lambda s: s.dead_letter_reasons(*line.key),
        lambda s: s.tail(*other.key),
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
    line.save(4, keep_points=0)
    line.save(4)
    line.store.close()
    line.store = open_durable_store(clock=clock)
    try:
        assert line.store.tail(*line.key) == (4, 20, 0, 4)
        assert line.add(b"x", 1)[:2] == (5, 21)
        assert line.seqs() == [4, 5]
    finally:
        line.store.close()
