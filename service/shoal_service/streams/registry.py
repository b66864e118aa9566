"""The streams of one service: which there are, and the learners that work for them."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from shoal_service.errors import NotReadyError, OffsetBeyondLogError, StreamGoneError, UnknownStreamError
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, IdempotencyKey, Store, StreamRecord, Tail
from shoal_service.streams.applying import check_room
from shoal_service.streams.published import PublishedView
from shoal_service.streams.spec import create_spec, held_to_limits
from shoal_service.streams.stream import Receipt, Stream
from shoal_service.wire import Points, check_stream_name

if TYPE_CHECKING:
    from shoal.arrays import IntArray
    from shoal.mixture import StreamSettings

T = TypeVar("T")

DEFAULT_STREAM = "default"
"""The stream of the plain paths: made on first ingest, and readable (as empty) before that."""

DRAIN_SHARE = 0.7
"""Share of the time allowed for closing in which the log is applied; the rest is for the last checkpoints."""


class StreamInfo(NamedTuple):
    """A stream as of now."""

    record: StreamRecord
    spec: "StreamSettings"
    tail: Tail
    view: PublishedView | None
    """None while the stream is being loaded, or cannot be."""
    failure: str | None
    """Why its learner has stopped, if it has."""

    @property
    def status(self) -> str:
        """`empty`, `warming_up` or `live`; `loading` after a start; `failed` when the learner has stopped."""
        if self.failure is not None:
            return "failed"
        if self.view is not None:
            return self.view.status
        return "loading" if self.tail.seq else "empty"


class StreamRegistry:
    """All streams over one store. `start` and `close` bracket its life; both block, the other verbs are coroutines."""

    def __init__(self, store: Store, settings: Settings, log: Any) -> None:
        self._store = store
        self._settings = settings
        self._log = log
        self._streams: dict[str, Stream] = {}
        self._stopping = False

    def start(self) -> None:
        """Start the learners of streams whose log holds what no checkpoint does; the others start when first asked
        for.
        """
        for record in self._store.list_streams():
            stream = self._adopt(record)
            if self._store.tail(record.name, record.incarnation).unapplied_bytes:
                stream.learner.start()

    def stop_taking(self) -> None:
        """Refuse what is new from here on. Safe in a signal handler."""
        self._stopping = True

    def close(self, timeout_s: float) -> bool:
        """Let the learners apply the log, write their checkpoints and end; True when all did within the time.

        What is not applied by then stays in the log, for the next start.
        """
        self.stop_taking()
        began = time.monotonic()
        learners = [stream.learner for stream in self._streams.values()]
        for learner in learners:
            learner.finish(began + DRAIN_SHARE * timeout_s)
        ended = [learner.join(began + timeout_s - time.monotonic()) for learner in learners]
        return all(ended)

    def check(self) -> None:
        """Raise NotReadyError when the service is stopping. One stream that has failed stands in no other's way."""
        self._refuse_when_stopping()

    @property
    def loaded(self) -> list[Stream]:
        """The streams known to this process, by name."""
        return [stream for _, stream in sorted(self._streams.items())]

    async def get(self, name: str) -> Stream:
        """The stream of a name. Raises StreamNameError, UnknownStreamError."""
        check_stream_name(name)
        stream = self._streams.get(name)
        if stream is not None:
            return stream
        record = await asyncio.to_thread(self._store.get_stream, name)
        # Meanwhile the stream may have been deleted and made again: what is known now is at least as new.
        return self._streams.get(name) or self._adopt(record)

    async def create(self, name: str, values: Mapping[str, Any]) -> tuple[Stream, bool]:
        """Create a stream if there is none of that name: (stream, True), else what there is and False."""
        check_stream_name(name)
        return await self._create(name, create_spec(values, self._settings))

    async def create_or_change(self, name: str, values: Mapping[str, Any]) -> tuple[Stream, bool]:
        """Create a stream, or change the settings given of one that there is; True when it was created."""
        self._refuse_when_stopping()
        try:
            await self.get(name)
        except UnknownStreamError:
            stream, created = await self.create(name, values)
            if created:
                return stream, True
        return await self._with(name, lambda live: _changed(live, values)), False

    async def delete(self, name: str) -> None:
        """End a stream and all that it holds. Who waits on it gets StreamGoneError."""
        stream = await self.get(name)
        await asyncio.to_thread(self._store.delete_stream, name)
        self._forget(stream)
        self._log.info("stream_deleted", stream=name, incarnation=stream.record.incarnation)

    async def describe(self, name: str) -> StreamInfo:
        """A stream as of now; one that was not asked for since the start begins to be loaded."""
        return await self._with(name, _described)

    async def list_all(self) -> list[StreamInfo]:
        """All streams, by name."""
        found = []
        for record in await asyncio.to_thread(self._store.list_streams):
            try:
                found.append(await self.describe(record.name))
            except (UnknownStreamError, StreamGoneError):
                continue  # deleted meanwhile
        return found

    async def expect(self, name: str) -> None:
        """Refuse at the door what `ingest` would refuse whatever the points: before a body is read."""
        self._refuse_when_stopping()
        if check_stream_name(name) != DEFAULT_STREAM:
            await self.get(name)

    async def applied(self, receipt: Receipt, timeout_s: float) -> "IntArray | None":
        """See `Stream.applied`. Raises StreamGoneError when the stream was deleted meanwhile."""
        return await self._of(receipt).applied(receipt, timeout_s)

    async def seen(self, receipt: Receipt, timeout_s: float) -> bool:
        """See `Stream.seen`. Raises StreamGoneError when the stream was deleted meanwhile."""
        return await self._of(receipt).seen(receipt, timeout_s)

    async def ingest(self, name: str, points: Points, *, idempotency: IdempotencyKey | None = None) -> Receipt:
        """Append a batch to a stream's log; the stream `default` is made by its first batch, with its dimension."""
        self._refuse_when_stopping()
        try:
            stream = await self.get(name)
        except UnknownStreamError:
            if name != DEFAULT_STREAM:
                raise
            stream, _ = await self.create(name, {"n_features": points.n_features})
        try:
            return await stream.ingest(points, idempotency)
        except StreamGoneError:
            self._forget(stream)
            raise

    async def view(self, name: str, *, min_offset: int | None = None, timeout_s: float) -> PublishedView:
        """A stream as readers see it; see `Stream.view`."""
        try:
            return await self._with(name, lambda stream: stream.view(min_offset, timeout_s))
        except UnknownStreamError:
            if name != DEFAULT_STREAM:
                raise
            if min_offset:
                raise OffsetBeyondLogError(f"min_offset is {min_offset}, stream {name!r} has no points yet") from None
            return PublishedView(name, "", 0, 0, 0, "empty", None)

    async def snapshot(self, name: str, *, min_offset: int | None, timeout_s: float) -> tuple[Stream, Checkpoint]:
        """A stream's state as the bytes of a snapshot file."""

        async def ask(stream: Stream) -> tuple[Stream, Checkpoint]:
            await stream.view(min_offset, timeout_s)
            return stream, await stream.snapshot(timeout_s)

        return await self._with(name, ask)

    async def restore(self, name: str, blob: bytes, *, idempotency: IdempotencyKey | None = None) -> Receipt:
        """Put a snapshot in the place of a stream's state; a stream that is not there is made with its settings.

        Raises SnapshotError, LimitError, and StreamConflictError when its shape differs.
        """
        self._refuse_when_stopping()
        check_stream_name(name)
        spec = held_to_limits(await asyncio.to_thread(_settings_of, blob), self._settings)
        try:
            stream = await self.get(name)
        except UnknownStreamError:
            stream, _ = await self._create(name, spec)
        return await stream.restore(blob, spec, idempotency)

    async def _with(self, name: str, ask: Callable[[Stream], Awaitable[T]]) -> T:
        """Ask the stream of a name; where the one known is gone, another of that name, if there is one by now."""
        stream = await self.get(name)
        try:
            return await ask(stream)
        except StreamGoneError as gone:
            self._forget(stream)
            try:
                stream = await self.get(name)
            except UnknownStreamError:
                raise gone from None
            return await ask(stream)

    def _of(self, receipt: Receipt) -> Stream:
        stream = self._streams.get(receipt.stream)
        if stream is None or stream.record.incarnation != receipt.incarnation:
            raise StreamGoneError(f"stream {receipt.stream!r} was deleted; create it again or name another")
        return stream

    async def _create(self, name: str, spec: "StreamSettings") -> tuple[Stream, bool]:
        self._refuse_when_stopping()
        await asyncio.to_thread(check_room, spec)
        record, created = await asyncio.to_thread(
            self._store.create_stream,
            name,
            str(uuid.uuid4()),
            spec.to_json().encode(),
            max_streams=self._settings.max_streams,
        )
        stream = self._adopt(record)
        if created:
            stream.learner.start()
            self._log.info("stream_created", stream=name, incarnation=record.incarnation, n_features=spec.n_features)
        return stream, created

    def _adopt(self, record: StreamRecord) -> Stream:
        """The stream of a record: the one known, unless that was of an earlier incarnation."""
        known = self._streams.get(record.name)
        if known is not None and known.record.incarnation == record.incarnation:
            return known
        if known is not None:
            known.learner.abandon()
        stream = self._streams[record.name] = Stream(self._store, record, self._settings, self._log)
        return stream

    def _forget(self, stream: Stream) -> None:
        stream.learner.abandon()
        if self._streams.get(stream.name) is stream:
            del self._streams[stream.name]

    def _refuse_when_stopping(self) -> None:
        if self._stopping:
            raise NotReadyError("the service is stopping; send again when it runs")


async def _changed(stream: Stream, values: Mapping[str, Any]) -> Stream:
    await stream.change(values)
    return stream


async def _described(stream: Stream) -> StreamInfo:
    learner = stream.learner
    learner.start()
    return StreamInfo(stream.record, stream.spec, await stream.tail(), learner.board.view, learner.failure)


def _settings_of(blob: bytes) -> "StreamSettings":
    from shoal.mixture import from_bytes

    state, _ = from_bytes(blob)
    return state.settings
