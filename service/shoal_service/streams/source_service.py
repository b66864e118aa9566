"""Sources as request handlers use them: positions, and the sources that the service runs itself."""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from shoal_service.errors import UnknownSourceError
from shoal_service.settings import Settings
from shoal_service.store import SOURCES, SourcePosition, Store, decode_position
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.sources import (
    SourceDefinition,
    SourceDocuments,
    SourceRules,
    SourceState,
    check_definition,
)
from shoal_service.streams.stream import Stream


class SourceStatus(NamedTuple):
    """A configured source, and what became of it."""

    stream: Stream
    source: SourceDefinition
    state: SourceState
    positions: list[SourcePosition]


class SourceService:
    """The sources of all streams of a service."""

    def __init__(
        self, store: Store, settings: Settings, streams: KnownStreams, notify: Callable[[str, str], None]
    ) -> None:
        """`notify(name, incarnation)` is called after each change of the configured sources of a stream."""
        self._store = store
        self._rules = SourceRules.of(settings)
        self._streams = streams
        self._notify = notify

    async def all(self, name: str) -> tuple[Stream, list[SourcePosition]]:
        """The stored positions of a stream, by source and partition. Raises UnknownStreamError."""
        stream = await self._streams.get(name)
        stored = await asyncio.to_thread(self._store.documents, name, stream.record.incarnation, SOURCES)
        return stream, [decode_position(document, value) for document, value in stored.items()]

    async def configured(self, name: str) -> tuple[list[SourcePosition], Stream, list[SourceStatus]]:
        """All positions of a stream, and its configured sources by name. Raises UnknownStreamError."""
        stream, positions = await self.all(name)
        documents = self._documents(stream)
        sources = await asyncio.to_thread(documents.all)
        states = await asyncio.to_thread(documents.states, sources) if sources else []
        return (
            positions,
            stream,
            [
                SourceStatus(stream, source, state, [one for one in positions if one.source == source.name])
                for source, state in zip(sources, states, strict=True)
            ],
        )

    async def one(self, stream_name: str, name: str) -> SourceStatus:
        """One configured source. Raises UnknownStreamError, UnknownSourceError."""
        stream, positions = await self.all(stream_name)
        documents = self._documents(stream)
        source = await asyncio.to_thread(documents.get, name)
        state = await asyncio.to_thread(documents.state, source)
        return SourceStatus(stream, source, state, [one for one in positions if one.source == name])

    async def put(
        self, stream_name: str, name: str, *, kind: str, enabled: bool, settings: Mapping[str, Any]
    ) -> tuple[SourceStatus, bool]:
        """Create a source, or change the one of this name, which goes on from its position. True when it was created.

        Raises ParameterError, LimitError, UnknownStreamError.
        """
        self._streams.refuse_when_stopping()
        check_definition(name, kind, settings, self._rules)
        stream = await self._streams.get(stream_name)
        asked = SourceDefinition(str(uuid.uuid4()), 1, name, kind, enabled, dict(settings), time.time())
        created = await asyncio.to_thread(self._documents(stream).put, asked)
        self._notify(stream.name, stream.record.incarnation)
        return await self.one(stream_name, name), created

    async def enable(self, stream_name: str, name: str, enabled: bool) -> SourceStatus:
        """Let a source run, or not. Raises UnknownStreamError, UnknownSourceError."""
        self._streams.refuse_when_stopping()
        stream = await self._streams.get(stream_name)
        await asyncio.to_thread(self._documents(stream).enable, name, enabled)
        self._notify(stream.name, stream.record.incarnation)
        return await self.one(stream_name, name)

    async def delete(self, stream_name: str, name: str, *, keep_positions: bool) -> None:
        """Delete a configured source, if there is one, and its positions unless they are kept. Raises
        UnknownSourceError if there is neither.
        """
        self._streams.refuse_when_stopping()
        stream = await self._streams.get(stream_name)
        try:
            await asyncio.to_thread(lambda: self._documents(stream).delete(name, keep_positions=keep_positions))
        except UnknownSourceError:
            if keep_positions:
                raise
            await self.forget(stream_name, name, None)
            return
        self._notify(stream.name, stream.record.incarnation)

    async def forget(self, name: str, source: str, partition: str | None) -> None:
        """Forget the positions of a source, or of one of its partitions. A configured source begins again. Raises
        UnknownSourceError.
        """
        self._streams.refuse_when_stopping()
        stream = await self._streams.get(name)
        if await asyncio.to_thread(self._documents(stream).forget, source, partition):
            self._notify(stream.name, stream.record.incarnation)

    def _documents(self, stream: Stream) -> SourceDocuments:
        return SourceDocuments(self._store, stream.name, stream.record.incarnation)
