"""Which streams a process knows: by name, each with its source, from the first look at its record to its end."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from shoal_service.errors import NotReadyError, StreamGoneError, UnknownStreamError
from shoal_service.settings import Settings
from shoal_service.store import Store, StreamRecord
from shoal_service.streams.learner.apply import check_room
from shoal_service.streams.stream import Stream
from shoal_service.streams.view_source import Source
from shoal_service.wire import check_stream_name

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings

T = TypeVar("T")

DRAIN_SHARE = 0.7
"""Share of the time allowed for closing in which the log is applied; the rest is for the last checkpoints."""


class Roster:
    """The streams of one process. `start` and `close` block; the other verbs are coroutines, or done at once."""

    def __init__(self, store: Store, settings: Settings, log: Any, source_of: Callable[[StreamRecord], Source]) -> None:
        self._store = store
        self._settings = settings
        self._log = log
        self._source_of = source_of
        self._streams: dict[str, Stream] = {}
        self._stopping = False

    def start(self) -> None:
        """Take up all streams that there are, so that whoever asks first finds them loaded, or nearly."""
        for record in self._store.list_streams():
            self.adopt(record).source.start()

    def stop_taking(self) -> None:
        """Refuse what is new from here on. Safe in a signal handler."""
        self._stopping = True

    def close(self, timeout_s: float) -> bool:
        """Let the sources end well; True when all did within the time. What is not applied stays in the log."""
        self.stop_taking()
        began = time.monotonic()
        sources = [stream.source for stream in self._streams.values()]
        for source in sources:
            source.finish(began + DRAIN_SHARE * timeout_s)
        ended = [source.join(began + timeout_s - time.monotonic()) for source in sources]
        return all(ended)

    @property
    def drained(self) -> bool:
        """Whether the sources have ended with nothing left to apply in their logs."""
        return all(stream.source.drained for stream in self._streams.values())

    @property
    def stopping(self) -> bool:
        """Whether nothing new is taken."""
        return self._stopping

    def refuse_when_stopping(self) -> None:
        """Raise NotReadyError when nothing new is taken."""
        if self._stopping:
            raise NotReadyError("the service is stopping; send again when it runs")

    @property
    def loaded(self) -> list[Stream]:
        """The streams known to this process, by name."""
        return [stream for _, stream in sorted(self._streams.items()) if not stream.source.gone]

    def known(self, name: str) -> Stream | None:
        """The stream of a name, if this process knows it."""
        stream = self._streams.get(name)
        if stream is None or not stream.source.gone:
            return stream
        self.forget(stream)
        return None

    async def get(self, name: str) -> Stream:
        """The stream of a name. Raises StreamNameError, UnknownStreamError."""
        check_stream_name(name)
        if (stream := self.known(name)) is not None:
            return stream
        record = await asyncio.to_thread(self._store.get_stream, name)
        # Meanwhile the stream may have been deleted and made again: what is known now is at least as new.
        return self.known(name) or self.adopt(record)

    async def create(self, name: str, spec: "StreamSettings") -> tuple[Stream, bool]:
        """Create a stream if there is none of that name: (stream, True), else what there is and False."""
        self.refuse_when_stopping()
        await asyncio.to_thread(check_room, spec)
        record, created = await asyncio.to_thread(
            self._store.create_stream,
            name,
            str(uuid.uuid4()),
            spec.to_json().encode(),
            max_streams=self._settings.max_streams,
        )
        stream = self.adopt(record)
        if created:
            stream.source.start()
            self._log.info("stream_created", stream=name, incarnation=record.incarnation, n_features=spec.n_features)
        return stream, created

    async def asked(self, name: str, ask: Callable[[Stream], Awaitable[T]]) -> T:
        """Ask the stream of a name; where the one known is gone, another of that name, if there is one by now."""
        stream = await self.get(name)
        try:
            return await ask(stream)
        except StreamGoneError as gone:
            self.forget(stream)
            try:
                stream = await self.get(name)
            except UnknownStreamError:
                raise gone from None
            return await ask(stream)

    def of(self, name: str, incarnation: str) -> Stream:
        """One incarnation of a stream. Raises StreamGoneError when it is not there any more."""
        stream = self.known(name)
        if stream is None or stream.record.incarnation != incarnation:
            raise StreamGoneError(f"stream {name!r} was deleted; create it again or name another")
        return stream

    def adopt(self, record: StreamRecord) -> Stream:
        """The stream of a record: the one known, unless that was of an earlier incarnation."""
        known = self._streams.get(record.name)
        if known is not None and known.record.incarnation == record.incarnation:
            return known
        if known is not None:
            known.source.abandon()
        stream = self._streams[record.name] = Stream(self._store, record, self._settings, self._source_of(record))
        return stream

    def forget(self, stream: Stream) -> None:
        """The stream has ended."""
        stream.source.abandon()
        if self._streams.get(stream.name) is stream:
            del self._streams[stream.name]
