"""A request sent again under its key is answered again, and appended once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shoal_service.errors import IdempotencyMismatchError, OverloadedError
from shoal_service.store import Appended, Store

DAY = 24 * 3600.0


@pytest.fixture
def forgetful(open_store: Any, clock: Any) -> Iterator[Store]:
    store: Store = open_store(clock=clock, answers_kept=3)
    yield store
    store.close()


def test_the_same_request_gets_the_first_answer(line: Any, store: Store) -> None:
    line.add(b"before", 2)
    first = line.keyed("k", b"body", 5)
    line.add(b"after", 1)
    assert first == Appended(2, 7, 5, replayed=False)
    assert line.keyed("k", b"body", 5) == Appended(2, 7, 5, replayed=True)
    assert store.tail(*line.key).seq == 3


def test_another_request_under_the_key_is_refused(line: Any, store: Store) -> None:
    line.keyed("k", b"body")
    with pytest.raises(IdempotencyMismatchError, match="'k'"):
        line.keyed("k", b"another")
    assert store.tail(*line.key).seq == 1
    assert line.keyed("k", b"body").replayed


def test_each_stream_has_its_own_keys(store: Store, new_line: Any) -> None:
    a, b = new_line(store, "a"), new_line(store, "b")
    assert not a.keyed("k", b"body").replayed
    assert not b.keyed("k", b"another").replayed


def test_a_known_key_is_answered_by_a_stream_that_is_overloaded(line: Any) -> None:
    line.keyed("k", b"x" * 100)
    with pytest.raises(OverloadedError):
        line.keyed("l", b"y", budget_bytes=10)
    assert line.keyed("k", b"x" * 100, budget_bytes=10).replayed
    assert not line.keyed("l", b"y").replayed  # the refusal left no answer behind


def test_a_key_is_known_for_a_day(line: Any, clock: Any) -> None:
    line.keyed("k", b"body")
    clock.now += DAY - 1
    assert line.keyed("k", b"body").replayed
    clock.now += 1
    assert line.keyed("k", b"another") == Appended(2, 2, 1, replayed=False)
    clock.now += DAY - 1
    assert line.keyed("k", b"another") == Appended(2, 2, 1, replayed=True)


def test_a_clock_set_back_forgets_nothing(line: Any, clock: Any) -> None:
    line.keyed("k")
    clock.now -= 10 * DAY
    assert line.keyed("k").replayed


def test_the_newest_keys_are_known_whatever_their_number(forgetful: Store, new_line: Any) -> None:
    line = new_line(forgetful)
    for key in "abc":
        line.keyed(key)
    assert line.keyed("a").replayed
    line.keyed("d")
    assert [line.keyed(key).replayed for key in "bcd"] == [True] * 3
    assert not line.keyed("a").replayed
    assert not line.keyed("b").replayed  # now that `a` is the newest


def test_very_many_keys_keep_to_both_limits(forgetful: Store, new_line: Any, clock: Any) -> None:
    line = new_line(forgetful)
    for i in range(300):
        line.keyed(f"k{i}")
        clock.now += 1
    assert [line.keyed(f"k{i}").replayed for i in (297, 298, 299)] == [True] * 3
    assert not line.keyed("k296").replayed


def test_keys_outlive_the_entries_that_they_name(line: Any, store: Store) -> None:
    first = line.keyed("k")
    for _ in range(3):
        line.add()
    line.save(3)
    line.save(4)
    assert store.tail(*line.key).first_seq == 4
    assert line.keyed("k") == first._replace(replayed=True)


def test_many_at_once_under_one_key_make_one_entry(line: Any, store: Store) -> None:
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda _: line.keyed("k", b"body", 3), range(64)))
    assert sorted(a.replayed for a in answers) == [False] + [True] * 63
    assert {a[:3] for a in answers} == {(1, 3, 3)}
    assert store.tail(*line.key).seq == 1
