"""Tasks for definitions of streams, with a store that does not always answer."""

import asyncio
import io
from collections.abc import Mapping
from typing import Any

import pytest

from harness.waiting import eventually
from shoal_service.errors import StoreUnavailableError
from shoal_service.logs import make_log
from shoal_service.streams import stream_tasks
from shoal_service.streams.events import Feed
from shoal_service.streams.stream_tasks import LearntStream, StreamTasks

STREAM = LearntStream("s", "i", Feed(kept=10), lambda: None)
BROKEN = LearntStream("broken", "i", Feed(kept=10), lambda: None)


class Work:
    """Work that waits to be ended."""

    def __init__(self, definition: Any) -> None:
        self.definition = definition
        self.ended = False

    async def run(self) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            self.ended = True

    def save_now(self) -> None:
        """Nothing is saved."""


class Tasks(StreamTasks[Work]):
    """Tasks whose definitions a test sets."""

    def __init__(self, *streams: LearntStream) -> None:
        learnt = {stream.name: stream for stream in streams or (STREAM,)}
        super().__init__("tests", make_log("error", "json", io.StringIO()), lambda: learnt)
        self.held: dict[str, int] = {"a": 1}
        self.failures = 0
        self.begun: list[Work] = []

    def definitions(self, stream: LearntStream) -> Mapping[str, Any]:
        if stream is BROKEN:
            raise TypeError("a definition of a newer version")
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("it does not answer")
        return dict(self.held)

    def begin(self, definition: Any, stream: LearntStream) -> Work:
        self.begun.append(Work(definition))
        return self.begun[-1]


def test_a_change_that_could_not_be_read_is_read_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_tasks, "LOOK_S", 0.01)
    monkeypatch.setattr(stream_tasks, "READ_S", 3600.0)
    tasks = Tasks()
    tasks.start()
    try:
        eventually(lambda: len(tasks.begun) == 1)
        tasks.held, tasks.failures = {}, 3
        tasks.notify("s", "i")
        eventually(lambda: tasks.begun[0].ended)
        assert tasks.failures == 0
    finally:
        tasks.close(10.0)


def test_definitions_of_a_stream_that_cannot_be_read_keep_no_other_stream_from_its_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The streams behind it used to have no tasks at all."""
    monkeypatch.setattr(stream_tasks, "LOOK_S", 0.01)
    tasks = Tasks(BROKEN, STREAM)
    tasks.start()
    try:
        eventually(lambda: [stream for stream, _ in tasks.work] == ["s"])
    finally:
        tasks.close(10.0)


def test_work_that_was_begun_runs_once_although_other_work_of_the_stream_cannot_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It used to be begun again at each look, and all of it ran at the same time."""
    monkeypatch.setattr(stream_tasks, "LOOK_S", 0.01)

    class Failing(Tasks):
        attempts = 0

        def begin(self, definition: Any, stream: LearntStream) -> Work:
            if definition == 0:
                self.attempts += 1
                raise OSError("no certificates")
            return super().begin(definition, stream)

    tasks = Failing()
    tasks.held = {"broken": 0} | {f"work {n}": n for n in range(1, 9)}
    tasks.start()
    try:
        eventually(lambda: tasks.attempts > 20)
        assert len(tasks.begun) == len({work.definition for work in tasks.begun}), "each of them once"
    finally:
        tasks.close(10.0)
    assert all(work.ended for work in tasks.begun)
