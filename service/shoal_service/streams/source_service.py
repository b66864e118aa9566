"""Positions of sources as request handlers use them: list and forget."""

import asyncio

from shoal_service.errors import UnknownSourceError
from shoal_service.store import SOURCES, SourcePosition, Store, decode_position
from shoal_service.streams.registry import StreamRegistry
from shoal_service.streams.stream import Stream


class SourceService:
    """The positions of the sources of all streams of a service."""

    def __init__(self, store: Store, streams: StreamRegistry) -> None:
        self._store = store
        self._streams = streams

    async def all(self, name: str) -> tuple[Stream, list[SourcePosition]]:
        """The stored positions of a stream, by source and partition. Raises UnknownStreamError."""
        stream = await self._streams.get(name)
        held = await asyncio.to_thread(self._store.documents, name, stream.record.incarnation, SOURCES)
        return stream, [decode_position(document, value) for document, value in held.items()]

    async def forget(self, name: str, source: str, partition: str | None) -> None:
        """Forget the positions of a source, or of one of its partitions. Raises UnknownSourceError."""
        self._streams.check()
        stream, held = await self.all(name)
        chosen = [one for one in held if one.source == source and partition in (None, one.partition)]
        if not chosen:
            of = "" if partition is None else f" partition {partition!r} of"
            raise UnknownSourceError(
                f"stream {name!r} has no position of{of} source {source!r}; list them for their names"
            )
        for one in chosen:
            document = f"{one.source}/{one.partition}"
            await asyncio.to_thread(self._store.set_document, name, stream.record.incarnation, SOURCES, document, None)
