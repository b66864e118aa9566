"""The streams that a process knows, where other processes create and delete streams too."""

import asyncio
import io
from typing import Any

from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store import SqliteStore, StreamRecord
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.stream_settings import new_settings


class Source:
    """What a `KnownStreams` asks of a source of views."""

    def __init__(self, record: StreamRecord) -> None:
        self.gone = False

    def start(self) -> None:
        """Nothing begins."""

    def abandon(self) -> None:
        self.gone = True


def test_a_stream_that_another_process_has_deleted_is_dropped_with_its_last_view() -> None:
    """It used to stay for as long as the process, with the view, unless somebody asked for its name again."""
    store, settings = SqliteStore(None), Settings(store="memory")
    make: Any = Source
    known = KnownStreams(store, settings, make_log("error", "json", io.StringIO()), make)
    shape = new_settings({"n_features": 2}, settings)

    async def scenario() -> None:
        for name in ("first", "second"):
            await known.create(name, shape)
        known.every[0].view_source.gone = True  # type: ignore[misc]  # as a replica says it
        await known.create("third", shape)
        assert [stream.name for stream in known.every] == ["second", "third"]
        store.create_stream("fourth", "i", shape.to_json().encode(), max_streams=99)
        known.every[0].view_source.gone = True  # type: ignore[misc]
        await known.get("fourth")
        assert [stream.name for stream in known.every] == ["third", "fourth"]

    try:
        asyncio.run(scenario())
    finally:
        store.close()
