"""Streams come, are found, and go; a verb on a stream that is gone, or on a closed store, says so."""

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from shoal_service.errors import (
    LimitError,
    SettingsMovedError,
    StoreUnavailableError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.store import Appended, Checkpoint, DeadLetter, EntryKind, IdempotencyKey, NewEntry, Store

PLENTY = 1 << 40

LETTER = DeadLetter(1, 1, 1, "why", b"")
OF_INCARNATION: dict[str, Callable[..., Any]] = {
    "append": lambda s, *k: s.append(*k, NewEntry(EntryKind.BATCH, b"", 1), budget_bytes=9).result(120),
    "read": lambda s, *k: s.read(*k, 0, max_bytes=1),
    "wait_for_entries": lambda s, *k: s.wait_for_entries(*k, 0, 9.0),
    "tail": lambda s, *k: s.tail(*k),
    "acquire_writer": lambda s, *k: s.acquire_writer(*k),
    "mark_applied": lambda s, *k: s.mark_applied(*k, 1, 0),
    "save_checkpoint": lambda s, *k: s.save_checkpoint(*k, 1, Checkpoint(0, 0, b"")),
    "load_checkpoints": lambda s, *k: s.load_checkpoints(*k),
    "put_blob": lambda s, *k: s.put_blob(*k, "key", b"blob"),
    "get_blob": lambda s, *k: s.get_blob(*k, "key"),
    "drop_blob": lambda s, *k: s.drop_blob(*k, "key"),
    "blob_keys": lambda s, *k: s.blob_keys(*k),
    "put_job": lambda s, *k: s.put_job(*k, "id", b"", version=0),
    "jobs": lambda s, *k: s.jobs(*k),
    "add_dead_letter": lambda s, *k: s.add_dead_letter(*k, 1, LETTER),
    "replace_settings": lambda s, *k: s.replace_settings(*k, 1, b"{}", b"{}"),
    "dead_letters": lambda s, *k: s.dead_letters(*k),
    "dead_letter_reasons": lambda s, *k: s.dead_letter_reasons(*k),
}
OF_NAME: dict[str, Callable[..., Any]] = {
    "create_stream": lambda s, name, inc: s.create_stream(name, inc, b"{}", max_streams=9),
    "get_stream": lambda s, name, inc: s.get_stream(name),
    "list_streams": lambda s, name, inc: s.list_streams(),
    "delete_stream": lambda s, name, inc: s.delete_stream(name),
    "check": lambda s, name, inc: s.check(),
}


def test_a_created_stream_is_found_and_creating_it_again_changes_nothing(store: Store, clock: Any) -> None:
    record, created = store.create_stream("b", "one", b'{"a":1}', max_streams=5)
    assert created
    assert record == ("b", "one", b'{"a":1}', clock.now)
    assert store.create_stream("b", "two", b"{}", max_streams=5) == (record, False)
    assert store.get_stream("b") == record
    assert store.tail("b", "one") == (0, 0, 0, 1)


def test_a_stream_is_created_only_beside_the_names_that_were_checked(store: Store) -> None:
    """Others create and delete streams between the look at the names and the creation."""
    at_most = 2

    def check(names: Collection[str]) -> None:
        seen.append(sorted(names))
        if len(names) >= at_most:
            raise LimitError("enough")

    seen: list[list[str]] = []
    barrier = threading.Barrier(4)

    def create(i: int) -> bool:
        barrier.wait(60)
        try:
            return store.create_stream(f"s{i}", f"inc-{i}", b"{}", max_streams=99, may_create=check)[1]
        except LimitError:
            return False

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(create, range(4))) == at_most
    names = [record.name for record in store.list_streams()]
    assert len(names) == at_most
    seen.clear()
    assert not store.create_stream(names[0], "other", b"{}", max_streams=99, may_create=check)[1], "it exists"
    assert seen == []
    store.delete_stream(names[0])
    assert store.create_stream("again", "new", b"{}", max_streams=99, may_create=check)[1]
    assert seen == [[names[1]]]


def test_another_incarnation_is_not_deleted(store: Store) -> None:
    store.create_stream("b", "one", b"{}", max_streams=5)
    store.delete_stream("b", "one")
    with pytest.raises(UnknownStreamError):
        store.delete_stream("b", "one")
    store.create_stream("b", "two", b"{}", max_streams=5)
    with pytest.raises(StreamGoneError, match="'b'"):
        store.delete_stream("b", "one")
    assert store.get_stream("b").incarnation == "two"


def test_streams_are_listed_by_name(store: Store) -> None:
    assert store.list_streams() == []
    for name in ("c", "a", "b"):
        store.create_stream(name, f"inc-{name}", b"{}", max_streams=5)
    assert [record.name for record in store.list_streams()] == ["a", "b", "c"]


def test_no_more_streams_than_the_limit_but_those_there_are_answer(store: Store) -> None:
    store.create_stream("a", "one", b"{}", max_streams=1)
    with pytest.raises(LimitError, match="limit of 1"):
        store.create_stream("b", "two", b"{}", max_streams=1)
    assert store.create_stream("a", "other", b"{}", max_streams=1)[0].incarnation == "one"
    assert [record.name for record in store.list_streams()] == ["a"]


def test_a_name_that_no_stream_has_is_unknown(store: Store) -> None:
    with pytest.raises(UnknownStreamError, match="'nobody'"):
        store.get_stream("nobody")
    with pytest.raises(UnknownStreamError, match="'nobody'"):
        store.delete_stream("nobody")


def test_settings_given_with_an_append_become_the_records(line: Any, store: Store) -> None:
    line.add(b"new", 0, kind=EntryKind.SETTINGS, settings=b'{"v":2}')
    assert store.get_stream("s").settings == b'{"v":2}'
    assert [r.settings for r in store.list_streams()] == [b'{"v":2}']
    line.add(b"batch", 3)
    assert store.get_stream("s").settings == b'{"v":2}'


def test_settings_are_changed_only_where_they_are_still_those_expected(line: Any, store: Store) -> None:
    change = partial(line.add, n_points=0, kind=EntryKind.SETTINGS)
    assert change(b"one", settings=b'{"v":1}', expected_settings=b"{}").seq == 1
    for expected in (b"{}", b"", b'{"v":1} '):
        with pytest.raises(SettingsMovedError, match="'s'"):
            change(b"lost", settings=b'{"v":2}', expected_settings=expected)
    assert store.get_stream("s").settings == b'{"v":1}'
    assert store.tail(*line.key).seq == 1, "what is refused is not in the log"
    assert change(b"two", settings=b'{"v":3}', expected_settings=b'{"v":1}').seq == 2
    assert change(b"any", settings=b"{}").seq == 3
    assert change(b"last", expected_settings=b"{}").seq == 4
    with pytest.raises(SettingsMovedError, match="'s'"):  # an entry that changes no settings may depend on them, too
        change(b"lost", expected_settings=b'{"v":3}')
    found = [entry.payload for entry in store.read(*line.key, 0, max_bytes=PLENTY)]
    assert found == [b"one", b"two", b"any", b"last"]


def test_a_known_key_is_answered_whatever_settings_are_expected(line: Any) -> None:
    asked = IdempotencyKey("k", b"digest")
    change = partial(line.add, b"one", 0, kind=EntryKind.SETTINGS, settings=b'{"v":1}', idempotency=asked)
    first = change(expected_settings=b"{}")
    assert change(expected_settings=b"{}") == first._replace(replayed=True)


def test_a_stream_made_again_starts_over(line: Any, store: Store, new_line: Any) -> None:
    line.keyed("k")
    line.add()
    line.save(1)
    store.add_dead_letter(*line.key, line.epoch, LETTER)
    line.mark(2)
    store.put_blob(*line.key, "b", b"blob")
    line.adopt("b", 1)
    store.put_job(*line.key, "j", b"", version=0)
    store.delete_stream("s")
    again = new_line(store, "s", "another")
    assert store.tail(*again.key) == (0, 0, 0, 1)
    assert again.epoch == 1
    assert store.load_checkpoints(*again.key) == store.dead_letters(*again.key) == []
    assert store.blob_keys(*again.key) == store.jobs(*again.key) == []
    assert again.keyed("k", b"another body") == Appended(1, 1, 1, replayed=False)
    assert again.seqs() == [1]
    assert store.tail(*again.key).unapplied_bytes == len(b"another body")


@pytest.mark.parametrize("verb", OF_INCARNATION)
def test_a_verb_on_a_stream_that_is_gone_says_so(verb: str, store: Store, line: Any) -> None:
    for name, incarnation in (("s", "another"), ("nobody", "inc-s")):
        with pytest.raises(StreamGoneError, match=incarnation):
            OF_INCARNATION[verb](store, name, incarnation)
    store.delete_stream("s")
    with pytest.raises(StreamGoneError):
        OF_INCARNATION[verb](store, *line.key)


@pytest.mark.parametrize("verb", [*OF_INCARNATION, *OF_NAME])
def test_a_closed_store_refuses(verb: str, store: Store, line: Any) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        (OF_INCARNATION | OF_NAME)[verb](store, *line.key)


def test_append_never_raises_but_through_its_future(store: Store) -> None:
    store.close()
    future: Future[Appended] = store.append("s", "inc-s", NewEntry(EntryKind.BATCH, b"", 1), budget_bytes=1)
    assert isinstance(future.exception(9), StoreUnavailableError)


def test_a_working_store_is_ready_and_says_what_it_promises(store: Store) -> None:
    store.check()
    assert "acknowledged means" in store.describe()
    assert "\n" not in store.describe()
