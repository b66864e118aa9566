"""Streams that this process knows, by name, each with the source of its views."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from shoal_service.errors import NotReadyError, StreamGoneError, UnknownStreamError
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, MayCreate, Store, StreamRecord
from shoal_service.streams.board import ViewSource
from shoal_service.streams.learner import Learner, LearnerPool, LocalSource
from shoal_service.streams.stream import Stream
from shoal_service.streams.stream_settings import check_room
from shoal_service.wire import check_stream_name

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings

T = TypeVar("T")

DEFAULT_STREAM = "default"
"""The stream of the plain paths. It is created by its first batch; before that it can be read, and is empty."""
LOADED_AT_START = 100
"""Number of streams up to which all are loaded at the start. Of more, each is loaded when it is used first."""
DRAIN_SHARE = 0.7
"""Share of the time for closing in which the log is applied. The rest is for the last checkpoints."""


class KnownStreams:
    """The streams of one process. `start` and `close` block. The other methods are coroutines, or return at once."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        log: Any,
        source_of: Callable[[StreamRecord], ViewSource] | None = None,
        notify_refiner: Callable[[str, str], None] = lambda name, incarnation: None,
    ) -> None:
        """Streams are learnt in this process, unless `source_of` gives other sources of views.

        `notify_refiner(name, incarnation)` is called when a stream learnt here may have a refinement to be made.
        """
        self.store = store
        self.settings = settings
        self.log = log
        pool = LearnerPool()

        def local_source(record: StreamRecord) -> ViewSource:
            notify = partial(notify_refiner, record.name, record.incarnation)
            return LocalSource(store, record, settings, log, notify, pool)

        self._source_of = source_of or local_source
        self._streams: dict[str, Stream] = {}
        self._stopping = False

    def start(self, is_needed: Callable[[StreamRecord], bool] = lambda record: False) -> None:
        """Load the streams of the store, so that the first request finds them loaded.

        Of many streams, only those with points to learn are loaded, and those that are needed.
        """
        records = self.store.list_streams()
        for record in records:
            source = self.adopt(record).view_source
            if len(records) <= LOADED_AT_START or source.waiting_bytes or is_needed(record):
                source.start()

    def stop_accepting(self) -> None:
        """Refuse new work from now on. Safe in a signal handler."""
        self._stopping = True

    def close(self, timeout_s: float) -> bool:
        """End the sources; True when all ended within the time. Entries that are not applied stay in the log."""
        self.stop_accepting()
        began = time.monotonic()
        sources = [stream.view_source for stream in self._streams.values()]
        for source in sources:
            source.finish(began + DRAIN_SHARE * timeout_s)
        ended = [source.join(began + timeout_s - time.monotonic()) for source in sources]
        return all(ended)

    @property
    def drained(self) -> bool:
        """Whether the sources have ended with nothing left to apply in their logs."""
        return all(stream.view_source.drained for stream in self._streams.values())

    @property
    def stopping(self) -> bool:
        """Whether new work is refused."""
        return self._stopping

    def refuse_when_stopping(self) -> None:
        """Raise NotReadyError when new work is refused."""
        if self._stopping:
            raise NotReadyError("the service is stopping; send again when it runs")

    @property
    def every(self) -> tuple[Stream, ...]:
        """The streams known to this process, in no order, with those that are gone."""
        return tuple(self._streams.values())

    @property
    def loaded(self) -> list[Stream]:
        """The streams known to this process, by name."""
        return [stream for _, stream in sorted(self._streams.items()) if not stream.view_source.gone]

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of the streams that are learnt here, by stream. For any thread."""
        streams = sorted(self.every, key=lambda stream: stream.name)
        return {s.name: s.view_source.learner for s in streams if isinstance(s.view_source, LocalSource)}

    @property
    def learners_with_events(self) -> dict[str, Learner]:
        """Those of `learners` that do not rest, or whose events somebody needs."""
        return {
            name: learner
            for name, learner in self.learners.items()
            if not learner.resting or learner.feed.needed is not None
        }

    def state_of(self, name: str, incarnation: str) -> Checkpoint:
        """The state of a stream that is learnt here, to refine. Blocks: not for an event loop.

        Raises StreamGoneError, NotReadyError.
        """
        source = self.incarnation_of(name, incarnation).view_source
        if not isinstance(source, LocalSource):
            raise NotReadyError(f"stream {name!r} is not learnt by this process")
        return source.learner.wait_for_state()

    def find(self, name: str) -> Stream | None:
        """The stream of a name, if this process knows it."""
        stream = self._streams.get(name)
        if stream is None or not stream.view_source.gone:
            return stream
        self.forget(stream)
        return None

    async def get(self, name: str) -> Stream:
        """The stream of a name. Raises StreamNameError, UnknownStreamError."""
        if (stream := self.find(name)) is not None:
            return stream
        check_stream_name(name)
        record = await asyncio.to_thread(self.store.get_stream, name)
        self._forget_gone()
        # Meanwhile the stream may have been deleted and created again: what is known now is at least as new.
        return self.find(name) or self.adopt(record)

    async def create(
        self, name: str, settings: "StreamSettings", may_create: MayCreate | None = None
    ) -> tuple[Stream, bool]:
        """Create a stream if there is none of that name: (stream, True), else the existing one and False.

        `may_create` as in `Store.create_stream`.
        """
        self.refuse_when_stopping()
        await asyncio.to_thread(check_room, settings)
        record, created = await asyncio.to_thread(
            self.store.create_stream,
            name,
            str(uuid.uuid4()),
            settings.to_json().encode(),
            max_streams=self.settings.max_streams,
            may_create=may_create,
        )
        self._forget_gone()
        stream = self.adopt(record)
        if created:
            stream.view_source.start()
            self.log.info("stream_created", stream=name, incarnation=record.incarnation, n_features=settings.n_features)
        return stream, created

    async def with_stream(self, name: str, use: Callable[[Stream], Awaitable[T]]) -> T:
        """Use the stream of a name. Where the known one was deleted, use another of that name if there is one.

        Raises StreamGoneError where the stream was deleted meanwhile, and UnknownStreamError where another process had
        deleted it, perhaps before this call.
        """
        stream = await self.get(name)
        try:
            return await use(stream)
        except StreamGoneError as gone:
            was_told = stream.view_source.gone or self._streams.get(name) is not stream
            self.forget(stream)
            try:
                stream = await self.get(name)
            except UnknownStreamError:
                if not was_told:
                    raise
                raise gone from None
            return await use(stream)

    def incarnation_of(self, name: str, incarnation: str) -> Stream:
        """One incarnation of a stream. Raises StreamGoneError when it no longer exists."""
        stream = self.find(name)
        if stream is None or stream.record.incarnation != incarnation:
            raise StreamGoneError(f"stream {name!r} was deleted; create it again or name another")
        return stream

    def adopt(self, record: StreamRecord) -> Stream:
        """The stream of a record: the known one, unless that is of an earlier incarnation."""
        known = self._streams.get(record.name)
        if known is not None and known.record.incarnation == record.incarnation:
            return known
        if known is not None:
            known.view_source.abandon()
        stream = self._streams[record.name] = Stream(self.store, record, self.settings, self._source_of(record))
        return stream

    def _forget_gone(self) -> None:
        """Drop the streams that other processes have deleted, whose last views would stay in memory."""
        for stream in self.every:
            if stream.view_source.gone:
                self.forget(stream)

    def forget(self, stream: Stream) -> None:
        """Drop a stream that was deleted."""
        stream.view_source.abandon()
        if self._streams.get(stream.name) is stream:
            del self._streams[stream.name]
