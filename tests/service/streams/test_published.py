"""The notice board between a learner and those who read."""

import asyncio
import threading
import time

import numpy as np
import pytest

from shoal_service.errors import NotReadyError, StreamGoneError
from shoal_service.streams import board as board_module
from shoal_service.streams import learnt_rows
from shoal_service.streams.board import Board, PublishedView

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def view(seq: int, log_offset: int) -> PublishedView:
    return PublishedView("s", "i", seq, log_offset, log_offset, "live", None)


async def test_waiting_ends_with_the_first_view_that_is_far_enough() -> None:
    board = Board()
    by_offset = asyncio.create_task(board.wait(log_offset=20, timeout_s=120))
    by_seq = asyncio.create_task(board.wait(seq=3, timeout_s=120))
    await asyncio.sleep(0)
    for seq, offset in ((1, 10), (2, 25), (3, 25)):
        await asyncio.to_thread(board.publish, view(seq, offset))
    assert (await by_offset).seq == 2
    assert (await by_seq).seq == 3
    assert (await board.wait(seq=2, timeout_s=0.01)).seq == 3


async def test_waiting_ends_when_the_time_is_up_and_leaves_nothing_behind() -> None:
    board = Board()
    with pytest.raises(TimeoutError):
        await board.wait(seq=1, timeout_s=0.01)
    assert not board.wanted(10, 10)


async def test_after_a_restart_a_reader_waits_for_what_it_saw_before() -> None:
    board = Board()
    early = asyncio.create_task(board.wait(timeout_s=120))  # before anything is loaded
    await asyncio.sleep(0)
    board.expect(5, time.monotonic() + 120)
    board.publish(view(2, 20))
    late = asyncio.create_task(board.wait(log_offset=10, timeout_s=120))
    await asyncio.sleep(0)
    board.publish(view(4, 40))
    assert not board.wanted(4, 40)
    assert board.wanted(5, 50)
    board.publish(view(5, 50))
    assert ((await early).seq, (await late).seq) == (5, 5)
    assert not board.replaying


async def test_a_long_or_failed_replay_keeps_no_reader_from_the_view_that_there_is() -> None:
    board = Board()
    board.expect(5, time.monotonic() + 0.01)
    board.publish(view(2, 20))
    assert (await board.wait(timeout_s=120)).seq == 2
    board.expect(5, time.monotonic() + 120)
    assert (await board.wait(timeout_s=0.01)).seq == 2
    with pytest.raises(TimeoutError):
        await board.wait(log_offset=30, timeout_s=0.01)
    waiting = asyncio.create_task(board.wait(timeout_s=120))
    await asyncio.sleep(0)
    board.fail(lambda: NotReadyError("damaged"))
    assert (await waiting).seq == 2
    assert (await board.wait(timeout_s=120)).seq == 2


async def test_what_somebody_waits_for_is_wanted() -> None:
    waits: list[tuple[int, int]] = []
    board = Board(on_wait=lambda seq, log_offset: waits.append((seq, log_offset)))
    board.publish(view(1, 10))
    waiting = asyncio.create_task(board.wait(log_offset=20, timeout_s=120))
    await asyncio.sleep(0)
    assert waits == board.waited_for() == [(0, 20)]
    assert not board.wanted(2, 19)
    assert board.wanted(2, 20)
    board.publish(view(2, 20))
    assert (await waiting).seq == 2
    assert not board.wanted(3, 30)


async def test_views_are_prepared_for_predictions_only_where_somebody_reads_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared: list[int] = []
    monkeypatch.setattr(PublishedView, "prepare", lambda view: prepared.append(view.seq))
    monkeypatch.setattr(board_module, "VIEWS_PREPARED", 3)
    board = Board()
    board.publish(view(1, 10))
    assert prepared == []
    board.note_reader()
    for seq in range(2, 8):
        board.publish(view(seq, 10 * seq))
    assert prepared == [2, 3, 4]
    board.note_reader()
    board.publish(view(8, 80))
    assert prepared == [2, 3, 4, 8]


async def test_a_failure_reaches_those_who_wait_and_those_who_come_later() -> None:
    board = Board()
    board.publish(view(1, 10))
    waiting = [asyncio.create_task(board.wait(seq=9, timeout_s=120)) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.to_thread(board.fail, lambda: StreamGoneError("gone"))
    board.fail(lambda: NotReadyError("stopping"))
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(error) for error in found] == [StreamGoneError] * 3
    assert len({id(error) for error in found}) == 3, "each gets an error of its own"
    with pytest.raises(StreamGoneError):
        await board.wait(seq=9, timeout_s=120)
    assert (await board.wait(seq=1, timeout_s=120)).seq == 1, "what is there can still be read"


async def test_many_threads_and_waiters_lose_nothing() -> None:
    board = Board()
    waiting = [asyncio.create_task(board.wait(seq=n % 50, timeout_s=120)) for n in range(500)]
    thread = threading.Thread(target=lambda: [board.publish(view(n, n)) for n in range(51)])
    thread.start()
    found = await asyncio.gather(*waiting)
    thread.join()
    assert all(v.seq >= n % 50 for n, v in enumerate(found))


def test_labels_are_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learnt_rows, "ROWS_KEPT", 160)
    board = Board()

    def keep(seq: int, n: int) -> list[int]:
        board.keep_learnt(seq, np.full(n, seq))
        return [held for held in range(1, 9) if board.learnt(held) is not None]

    assert [keep(seq, 50) for seq in range(1, 6)][-1] == [3, 4, 5]
    assert keep(5, 60) == [3, 4, 5], "an entry that is replayed counts once"
    assert keep(6, 1000) == [6], "the newest is kept whatever its size"
    assert keep(7, 1) == [7]
