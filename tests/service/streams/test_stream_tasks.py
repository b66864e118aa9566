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

    def __init__(self) -> None:
        super().__init__("tests", make_log("error", "json", io.StringIO()), lambda: {"s": STREAM})
        self.held: dict[str, int] = {"a": 1}
        self.failures = 0
        self.begun: list[Work] = []

    def definitions(self, stream: LearntStream) -> Mapping[str, Any]:
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
