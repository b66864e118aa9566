"""The streams of one service: which there are, and the learners that work for them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.errors import ShapeError
from shoal_service.errors import NotReadyError, OffsetBeyondLogError, StreamGoneError, UnknownStreamError
from shoal_service.settings import Settings
from shoal_service.store import Checkpoint, IdempotencyKey, Store, StreamRecord, Tail
from shoal_service.streams.engines import load_engines
from shoal_service.streams.learner import Learner
from shoal_service.streams.published import PublishedView
from shoal_service.streams.roster import Roster
from shoal_service.streams.source import OwnLearner, Source
from shoal_service.streams.spec import create_spec, held_to_limits
from shoal_service.streams.stream import Check, Receipt, Stream
from shoal_service.wire import Points, check_stream_name

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings
    from shoal.points.arrays import IntArray

DEFAULT_STREAM = "default"
"""The stream of the plain paths: made on first ingest, and readable (as empty) before that."""


STATE_TIMEOUT_S = 60.0
"""How long a refinement waits for the state of a learner that is busy."""


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

    def __init__(
        self,
        store: Store,
        settings: Settings,
        log: Any,
        source_of: Callable[[StreamRecord], Source] | None = None,
        nudge_refiner: Callable[[str, str], None] = lambda name, incarnation: None,
    ) -> None:
        """Each stream is learnt in this process, unless `source_of` says where its views come from.

        `nudge_refiner` is called when there may be a refinement to be made for a stream that is learnt here.
        """
        self._store = store
        self._settings = settings
        self._log = log
        own = lambda record: OwnLearner(  # noqa: E731
            store, record, settings, log, lambda: nudge_refiner(record.name, record.incarnation)
        )
        self._roster = Roster(store, settings, log, source_of or own)
        self.start, self.stop_taking, self.close = self._roster.start, self._roster.stop_taking, self._roster.close

    def check(self) -> None:
        """Raise NotReadyError when the service is stopping. One stream that has failed stands in no other's way."""
        self._roster.refuse_when_stopping()

    @property
    def loaded(self) -> list[Stream]:
        """The streams known to this process, by name."""
        return self._roster.loaded

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of this registry's own, by stream."""
        return {s.name: s.source.learner for s in self.loaded if isinstance(s.source, OwnLearner)}

    @property
    def drained(self) -> bool:
        """After `close`: whether nothing is left to apply in the logs of streams learnt here."""
        return self._roster.drained

    @property
    def stopping(self) -> bool:
        """Whether nothing new is taken any more."""
        return self._roster.stopping

    def state_of(self, name: str, incarnation: str) -> Checkpoint:
        """The state of a stream that is learnt here, as a refinement begins with. Blocks: for no event loop.

        Raises StreamGoneError, NotReadyError.
        """
        source = self._roster.of(name, incarnation).source
        if not isinstance(source, OwnLearner):
            raise NotReadyError(f"stream {name!r} is not learnt by this process")
        try:
            return source.learner.snapshot().result(STATE_TIMEOUT_S)
        except TimeoutError:
            raise NotReadyError(f"stream {name!r} is busy: no state of it within {STATE_TIMEOUT_S:g} s") from None

    async def get(self, name: str) -> Stream:
        """The stream of a name. Raises StreamNameError, UnknownStreamError."""
        return await self._roster.get(name)

    async def create(self, name: str, values: Mapping[str, Any]) -> tuple[Stream, bool]:
        """Create a stream if there is none of that name: (stream, True), else what there is and False."""
        check_stream_name(name)
        return await self._roster.create(name, create_spec(values, self._settings))

    async def create_or_change(
        self, name: str, values: Mapping[str, Any], check: Check = lambda record: None
    ) -> tuple[Stream, bool]:
        """Create a stream, or change the settings given of one that there is; True when it was created.

        `check` as in `Stream.change`.
        """
        self._roster.refuse_when_stopping()
        try:
            await self.get(name)
        except UnknownStreamError:
            stream, created = await self.create(name, values)
            if created:
                return stream, True
        return await self._roster.asked(name, lambda live: _changed(live, values, check)), False

    async def delete(self, name: str) -> None:
        """End a stream and all that it holds. Who waits on it gets StreamGoneError."""
        stream = await self.get(name)
        await asyncio.to_thread(self._store.delete_stream, name)
        self._roster.forget(stream)
        self._log.info("stream_deleted", stream=name, incarnation=stream.record.incarnation)

    async def describe(self, name: str) -> StreamInfo:
        """A stream as of now; one that was not asked for since the start begins to be loaded."""
        return await self._roster.asked(name, _described)

    async def list_all(self) -> list[StreamInfo]:
        """All streams, by name."""
        found = []
        for record in await asyncio.to_thread(self._store.list_streams):
            try:
                found.append(await self.describe(record.name))
            except (UnknownStreamError, StreamGoneError):
                continue  # deleted meanwhile
        return found

    async def expect(self, name: str) -> int | None:
        """Refuse at the door what `ingest` would refuse whatever the points, before a body is read; and wait there, a
        moment, while the learner is far behind.

        Gives what `n_features` does.
        """
        self._roster.refuse_when_stopping()
        stream = await self._find(name)
        if stream is None:
            return None
        await stream.keep_pace()
        return stream.spec.n_features

    async def n_features(self, name: str) -> int | None:
        """Numbers in a point of a stream; None for the stream `default` while there is none.

        Raises StreamNameError, UnknownStreamError.
        """
        stream = await self._find(name)
        return None if stream is None else stream.spec.n_features

    async def _find(self, name: str) -> Stream | None:
        try:
            return await self.get(name)
        except UnknownStreamError:
            if name != DEFAULT_STREAM:
                raise
            return None

    async def applied(self, receipt: Receipt, timeout_s: float) -> "IntArray | None":
        """See `Stream.applied`. Raises StreamGoneError when the stream was deleted meanwhile."""
        return await self._roster.of(receipt.stream, receipt.incarnation).applied(receipt, timeout_s)

    async def seen(self, receipt: Receipt, timeout_s: float) -> bool:
        """See `Stream.seen`. Raises StreamGoneError when the stream was deleted meanwhile."""
        return await self._roster.of(receipt.stream, receipt.incarnation).seen(receipt, timeout_s)

    async def ingest(self, name: str, points: Points, *, idempotency: IdempotencyKey | None = None) -> Receipt:
        """Append a batch to a stream's log; the stream `default` is made by its first batch, with its dimension."""
        self._roster.refuse_when_stopping()
        try:
            return await self._roster.asked(name, lambda live: live.ingest(points, idempotency))
        except UnknownStreamError:
            if name != DEFAULT_STREAM:
                raise
        if points.is_sparse:
            raise ShapeError(
                f"points are sparse rows, and stream {name!r} is not there yet; make it first, of a family that "
                'takes them: PUT {"n_features": ..., "family": "multinomial"}'
            )
        stream, _ = await self.create(name, {"n_features": points.n_features})
        return await stream.ingest(points, idempotency)

    async def view(self, name: str, *, min_offset: int | None = None, timeout_s: float) -> PublishedView:
        """A stream as readers see it; see `Stream.view`."""
        try:
            return await self._roster.asked(name, lambda stream: stream.view(min_offset, timeout_s))
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

        return await self._roster.asked(name, ask)

    async def restore(self, name: str, blob: bytes, *, idempotency: IdempotencyKey | None = None) -> Receipt:
        """Put a snapshot in the place of a stream's state; a stream that is not there is made with its settings.

        Raises SnapshotError, LimitError, and StreamConflictError when its shape differs.
        """
        self._roster.refuse_when_stopping()
        check_stream_name(name)
        spec = held_to_limits(await asyncio.to_thread(_settings_of, blob), self._settings)
        try:
            await self.get(name)
        except UnknownStreamError:
            await self._roster.create(name, spec)
        return await self._roster.asked(name, lambda live: live.restore(blob, spec, idempotency))


async def _changed(stream: Stream, values: Mapping[str, Any], check: Check) -> Stream:
    await stream.change(values, check)
    return stream


async def _described(stream: Stream) -> StreamInfo:
    await stream.refresh()
    source = stream.source
    source.start()
    return StreamInfo(stream.record, stream.spec, await stream.tail(), source.board.view, source.failure)


def _settings_of(blob: bytes) -> "StreamSettings":
    load_engines()
    from shoal.mixture import from_bytes

    state, _ = from_bytes(blob)
    return state.settings
