"""The log: counted by the store, read back whole and in order, bounded by a budget, waited for without polling."""

import threading
import time
from typing import Any

import pytest

from shoal_service.errors import LogGapError, OverloadedError, StoreUnavailableError, StreamGoneError
from shoal_service.store import Appended, Entry, EntryKind, Store

KIB_256 = 256 * 1024


def test_entries_and_points_are_counted_by_the_store(line: Any, store: Store) -> None:
    assert line.add(b"one", 5) == Appended(1, 5, 5, replayed=False)
    assert line.add(b"two", 0, kind=EntryKind.SETTINGS) == Appended(2, 5, 0, replayed=False)
    assert line.add(b"three", 7, kind=EntryKind.RESTORE) == Appended(3, 12, 7, replayed=False)
    assert store.tail(*line.key) == (3, 12, 11, 1)
    assert store.read(*line.key, 0, max_bytes=1000) == [
        Entry(1, 5, 5, EntryKind.BATCH, b"one"),
        Entry(2, 5, 0, EntryKind.SETTINGS, b"two"),
        Entry(3, 12, 7, EntryKind.RESTORE, b"three"),
    ]


def test_streams_count_apart(store: Store, new_line: Any) -> None:
    a, b = new_line(store, "a"), new_line(store, "b")
    assert [a.add(b"a", 2).seq, b.add(b"b", 3).seq, a.add(b"a", 2).seq] == [1, 1, 2]
    assert store.tail(*a.key).log_offset == 4
    assert [e.payload for e in store.read(*b.key, 0, max_bytes=9)] == [b"b"]


@pytest.mark.parametrize("size", [0, 1, KIB_256 - 1, KIB_256, KIB_256 + 1, 5 * KIB_256 + 17])
def test_a_payload_of_any_size_comes_back_as_it_was(line: Any, store: Store, size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    for _ in range(2):
        line.add(payload[:size])
    assert [e.payload for e in store.read(*line.key, 0, max_bytes=10 * size)] == [payload[:size]] * 2
    assert store.tail(*line.key).unapplied_bytes == 2 * size


def test_a_read_takes_one_entry_and_then_what_fits(line: Any, store: Store) -> None:
    for size in (10, 20, 30, 0, 5):
        line.add(b"x" * size)

    def seqs(after: int, max_bytes: int) -> list[int]:
        return [e.seq for e in store.read(*line.key, after, max_bytes=max_bytes)]

    assert seqs(0, 0) == seqs(0, 29) == [1]
    assert seqs(0, 30) == seqs(0, 59) == [1, 2]
    assert seqs(0, 60) == seqs(0, 64) == [1, 2, 3, 4]
    assert seqs(0, 65) == [1, 2, 3, 4, 5]
    assert seqs(2, 30) == [3, 4]
    assert seqs(4, 0) == [5]
    assert seqs(5, 100) == []


def test_a_reader_ahead_of_the_log_is_told(line: Any, store: Store) -> None:
    line.add()
    with pytest.raises(LogGapError, match="ends at entry 1"):
        store.read(*line.key, 2, max_bytes=100)


def test_a_reader_behind_the_trimmed_part_is_told(line: Any, store: Store) -> None:
    for _ in range(5):
        line.add()
    line.save(2)
    line.save(4)
    assert line.seqs() == [3, 4, 5]
    assert line.seqs(after_seq=2) == [3, 4, 5]
    for after in (0, 1):
        with pytest.raises(LogGapError, match="oldest one stored is 3"):
            store.read(*line.key, after, max_bytes=100)


# -- the budget


def test_an_append_is_refused_when_the_waiting_bytes_are_over_the_budget_already(line: Any, store: Store) -> None:
    line.add(b"x" * 60, budget_bytes=100)
    line.add(b"x" * 40, budget_bytes=100)
    line.add(b"x" * 500, 7, budget_bytes=100)  # exactly at the budget is not over it
    with pytest.raises(OverloadedError, match="600 bytes waiting"):
        line.add(b"y", budget_bytes=100)
    assert store.tail(*line.key) == (3, 9, 600, 1)
    assert line.add(b"y", budget_bytes=600).seq == 4


def test_applied_entries_do_not_count_and_the_mark_may_go_back(line: Any, store: Store) -> None:
    for _ in range(4):
        line.add(b"x" * 100)
    waiting = []
    for seq in (1, 3, 4, 2, 0):
        line.mark(seq)
        waiting.append(store.tail(*line.key).unapplied_bytes)
    assert waiting == [300, 100, 0, 200, 400]
    with pytest.raises(OverloadedError):
        line.add(budget_bytes=399)
    line.mark(4)
    assert line.add(budget_bytes=0).seq == 5


def test_a_mark_on_a_trimmed_entry_counts_from_the_oldest_place_known(line: Any, store: Store) -> None:
    for _ in range(4):
        line.add(b"x" * 100)
    line.save(2)
    line.save(3)
    line.mark(1)
    assert store.tail(*line.key) == (4, 4, 200, 3)


def test_a_mark_beyond_the_log_is_the_callers_mistake(line: Any) -> None:
    line.add()
    for seq in (2, -1):
        with pytest.raises(ValueError, match="ends at entry 1"):
            line.mark(seq)


# -- waiting


def test_waiting_ends_at_once_where_there_is_something(line: Any, store: Store) -> None:
    line.add()
    assert store.wait_for_entries(*line.key, 0, 60.0)
    assert not store.wait_for_entries(*line.key, 1, 0.01)
    assert not store.wait_for_entries(*line.key, 1, 0.0)


@pytest.mark.parametrize("what", ["append", "delete", "close"])
def test_waiting_ends_with_what_happens(what: str, line: Any, store: Store) -> None:
    outcome: list[object] = []

    def wait() -> None:
        try:
            outcome.append(store.wait_for_entries(*line.key, 0, 60.0))
        except (StreamGoneError, StoreUnavailableError) as error:
            outcome.append(type(error))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    began = time.monotonic()
    {"append": line.add, "delete": lambda: store.delete_stream("s"), "close": store.close}[what]()
    for thread in threads:
        thread.join(30)
    assert time.monotonic() - began < 20  # and not the 60 s of the wait
    assert outcome == [{"append": True, "delete": StreamGoneError, "close": StoreUnavailableError}[what]] * 3


def test_a_wait_for_entries_ends_early_when_its_thread_is_woken(line: Any, store: Store) -> None:
    wake = threading.Event()
    outcome: list[bool] = []
    began = time.monotonic()
    waiting = threading.Thread(target=lambda: outcome.append(store.wait_for_entries(*line.key, 0, 60.0, wake)))
    waiting.start()
    time.sleep(0.05)
    wake.set()
    waiting.join(20)
    assert outcome == [False]
    assert not store.wait_for_entries(*line.key, 0, 60.0, wake), "it is still set"
    assert time.monotonic() - began < 20
    line.add()
    assert store.wait_for_entries(*line.key, 0, 60.0, wake)
    wake.clear()
    line.add()
    assert store.wait_for_entries(*line.key, 1, 60.0, wake)


def test_a_watch_is_told_of_each_entry_until_it_ends(store: Store, new_line: Any) -> None:
    a, b = new_line(store, "a"), new_line(store, "b")
    told, other = threading.Event(), threading.Event()
    store.watch(*a.key, told)
    store.watch(*b.key, other)
    a.add()
    assert told.wait(120)
    told.clear()
    a.add()
    assert told.wait(120)
    store.unwatch(*a.key, told)
    store.unwatch(*a.key, told)
    told.clear()
    other.clear()  # a subscription that begins announces to all
    a.add()
    b.add()
    assert other.wait(120)
    assert not told.is_set()
    other.clear()
    store.close()
    assert other.wait(120)


def test_an_entry_elsewhere_does_not_end_the_wait(store: Store, new_line: Any) -> None:
    a, b = new_line(store, "a"), new_line(store, "b")
    threading.Timer(0.02, b.add).start()
    assert not store.wait_for_entries(*a.key, 0, 0.2)
