"""The feed: places that a replay repeats, readers that come back or are slow, and what a checkpoint keeps."""

import asyncio
import random
import threading
import time

import pytest

from shoal_service.errors import NotReadyError
from shoal_service.streams import events
from shoal_service.streams.events import EventPlace, Feed, FeedEvent, Trail
from shoal_service.streams.learner import checkpoints

pytestmark = pytest.mark.anyio
BEGINNING = Trail(EventPlace(0, 0), [])


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def born(*ids: int) -> list[tuple[str, dict[str, object]]]:
    return [("born", {"children": [i]}) for i in ids]


def ids(found: list[FeedEvent]) -> list[int]:
    return [int(e.data["children"][0]) for e in found]


def test_events_have_the_place_of_their_entry() -> None:
    feed = Feed(100)
    feed.begin(0, BEGINNING)
    feed.add(1, born(0, 1))
    feed.add(2, [])
    feed.add(3, born(2))
    batch = feed.after(feed.begins)
    assert [e.place for e in batch.events] == [(1, 0), (1, 1), (3, 0)]
    assert not batch.missed
    assert feed.end == (4, 0)
    assert ids(feed.after(EventPlace(1, 0).next).events) == [1, 2]
    assert feed.after(feed.end).events == []


def test_a_replay_adds_nothing_twice() -> None:
    feed = Feed(100)
    feed.begin(0, BEGINNING)
    for _ in range(3):
        feed.add(1, born(0))
        feed.add(2, born(1))
    assert ids(feed.after(EventPlace(0, 0)).events) == [0, 1]


def test_who_is_overtaken_is_told_and_who_is_not_is_not() -> None:
    feed = Feed(3)
    feed.begin(0, BEGINNING)
    for seq in range(1, 8):
        feed.add(seq, born(seq))
    assert feed.after(EventPlace(4, 0).next) == (feed.after(EventPlace(5, 0)).events, False)
    late = feed.after(EventPlace(3, 0).next)
    assert late.missed
    assert ids(late.events) == [5, 6, 7]


def test_a_long_past_is_given_in_parts() -> None:
    feed = Feed(1000)
    feed.begin(0, BEGINNING)
    feed.add(1, born(*range(600)))
    seen: list[int] = []
    place = EventPlace(0, 0)
    while found := feed.after(place).events:
        assert len(found) <= events.AT_ONCE
        seen += ids(found)
        place = found[-1].place.next
    assert seen == list(range(600))


@pytest.mark.parametrize("kept", [5, 1000])
def test_a_checkpoint_brings_back_what_was_and_says_what_is_missing(kept: int) -> None:
    rng = random.Random(kept)
    whole, feed = Feed(10_000), Feed(kept)
    for each in (whole, feed):
        each.begin(0, BEGINNING)
    for seq in range(1, 40):
        told = born(*(100 * seq + i for i in range(rng.randint(0, 2))))
        whole.add(seq, told)
        feed.add(seq, told)
        packed = checkpoints.pack_checkpoint(b"state", feed.trail(8), b"monitor" * (seq % 2))
        state, trail, monitor = checkpoints.unpack_checkpoint(packed)
        assert (state, monitor) == (b"state", b"monitor" * (seq % 2))
        assert trail is not None
        again = Feed(kept)
        again.begin(seq, trail)
        assert len(trail.events) <= 8
        for place in (EventPlace(0, 0), EventPlace(max(seq - 3, 1), 0), EventPlace(seq, 1), whole.end):
            everything = list(whole.after(place).events)
            found = again.after(place)
            assert found.events == everything[len(everything) - len(found.events) :]
            assert found.missed or found.events == everything
            assert not found.missed or len(found.events) < len(everything), "a false alarm"


def test_a_checkpoint_state_alone_is_a_state_and_all_before_it_is_missing() -> None:
    assert checkpoints.unpack_checkpoint(b"\x93SHOAL\r\nold") == (b"\x93SHOAL\r\nold", None, b"")
    feed = Feed(10)
    feed.begin(7, None)
    assert feed.after(EventPlace(7, 0)).missed
    assert not feed.after(feed.end).missed


async def test_a_reader_waits_and_is_woken() -> None:
    feed = Feed(10)
    feed.begin(0, BEGINNING)
    assert not await feed.grown(feed.end, 0.01)
    threading.Timer(0.05, lambda: feed.add(1, born(0))).start()
    began = time.monotonic()
    assert await feed.grown(EventPlace(1, 0), 30)
    assert time.monotonic() - began < 20
    assert await feed.grown(EventPlace(1, 0), 0.0)
    feed.add(2, [])
    assert not await feed.grown(EventPlace(1, 1), 0.01)


async def test_a_reader_that_waits_is_told_when_nothing_more_will_come() -> None:
    feed = Feed(10)
    feed.begin(0, BEGINNING)
    waiting = [asyncio.create_task(feed.grown(feed.end, 30)) for _ in range(3)]
    await asyncio.sleep(0.01)
    feed.fail(lambda: NotReadyError("over"))
    await asyncio.gather(*waiting)
    with pytest.raises(NotReadyError, match="over"):
        await feed.grown(feed.end, 1)
