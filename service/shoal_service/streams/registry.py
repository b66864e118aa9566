"""Registry of the streams of one service, as request handlers use it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.errors import ShapeError
from shoal_service.errors import OffsetBeyondLogError, StreamGoneError, UnknownStreamError
from shoal_service.store import Checkpoint, IdempotencyKey, MayCreate, SourceStep, StreamRecord, Tail, known_step
from shoal_service.streams.engines import load_engines
from shoal_service.streams.known_streams import DEFAULT_STREAM, KnownStreams
from shoal_service.streams.labels import NO_LABELS, Label, Labels
from shoal_service.streams.learner import LocalSource
from shoal_service.streams.learnt_rows import LearntRows
from shoal_service.streams.names import with_names
from shoal_service.streams.refinement import with_window
from shoal_service.streams.stream import Check, PointForm, Receipt, Stream
from shoal_service.streams.stream_settings import new_settings, within_limits
from shoal_service.streams.view import PublishedView, Summary, summary_of
from shoal_service.wire import Points, check_stream_name

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings

WINDOW_ATTEMPTS = 3
"""States that are tried for a snapshot with its window. The log may be trimmed while its rows are read."""


class StreamInfo(NamedTuple):
    """A stream at the moment of the request."""

    record: StreamRecord
    settings: "StreamSettings"
    tail: Tail
    failure: str | None
    """The reason why its learner has stopped, or None."""
    summary: Summary | None
    """What the view says, or the last one of a stream that is not in memory because nobody uses it."""

    @property
    def status(self) -> str:
        """`empty`, `warming_up` or `live`; `loading` until it is loaded; `failed` when the learner has stopped."""
        if self.failure is not None:
            return "failed"
        if self.summary is not None:
            return self.summary.status
        return "loading" if self.tail.seq else "empty"


class StreamRegistry:
    """All streams of one store, by name. Its methods are coroutines."""

    def __init__(self, known: KnownStreams) -> None:
        self.known = known
        """The streams of this process, with their start and end."""
        self._store, self._settings = known.store, known.settings

    async def get(self, name: str) -> Stream:
        """The stream of a name. Raises StreamNameError, UnknownStreamError."""
        return await self.known.get(name)

    async def create(
        self, name: str, values: Mapping[str, Any], may_create: MayCreate | None = None
    ) -> tuple[Stream, bool]:
        """As `KnownStreams.create`, with the settings in a JSON object."""
        check_stream_name(name)
        return await self.known.create(name, new_settings(values, self._settings), may_create)

    async def create_or_change(
        self,
        name: str,
        values: Mapping[str, Any],
        check: Check = lambda record: None,
        may_create: MayCreate | None = None,
    ) -> tuple[Stream, bool]:
        """Create a stream, or change the given settings of an existing one. True when it was created.

        `check` as in `Stream.change`, `may_create` as in `Store.create_stream`.
        """
        self.known.refuse_when_stopping()

        async def change(stream: Stream) -> Stream:
            return await _changed(stream, values, check)

        try:
            return await self.known.with_stream(name, change), False
        except UnknownStreamError:
            stream, created = await self.create(name, values, may_create)
        return (stream, True) if created else (await self.known.with_stream(name, change), False)

    async def delete(self, name: str, incarnation: str | None = None) -> None:
        """Delete a stream and all that it holds. Requests that wait for it get StreamGoneError.

        With `incarnation`, StreamGoneError when another one has the name.
        """
        stream = await self.get(name)
        await asyncio.to_thread(self._store.delete_stream, name, incarnation)
        self.known.forget(stream)
        self.known.log.info("stream_deleted", stream=name, incarnation=stream.record.incarnation)

    async def describe(self, name: str) -> StreamInfo:
        """A stream at this moment. A stream that was not used since the start begins to be loaded."""
        return await self.known.with_stream(name, _described)

    async def list_page(
        self, limit: int | None, after: str | None = None, wanted: Callable[[str], bool] = lambda name: True
    ) -> tuple[list[StreamInfo], str | None]:
        """The first `limit` streams that are wanted, by name, after the name `after`; and the last name of the page.

        `limit`: None for all. That name is None on the last page. Streams that are deleted meanwhile are left out.
        Streams that are learnt here and are not in memory are not loaded.
        """
        records = await asyncio.to_thread(self._store.list_streams)
        names = [one.name for one in records if (after is None or one.name > after) and wanted(one.name)]
        page, found = names[:limit], []
        for name in page:
            try:
                found.append(await self.known.with_stream(name, _listed))
            except (UnknownStreamError, StreamGoneError):
                continue
        return found, page[-1] if len(page) < len(names) else None

    async def prepare_ingest(self, name: str, *, create: bool = False) -> None:
        """Prepare for a batch before its body is read: refuse it where `ingest` would refuse every batch.

        Waits a moment while the learner is far behind.
        """
        self.known.refuse_when_stopping()
        stream = await self._find(name, or_none=create)
        if stream is not None:
            await stream.keep_pace()

    async def point_form(self, name: str, *, create: bool = False) -> PointForm:
        """What points of a stream look like.

        Of anything for the stream `default` before its first batch, and with `create` for any stream that does not
        exist yet. Raises StreamNameError, UnknownStreamError.
        """
        stream = await self._find(name, or_none=create)
        return PointForm() if stream is None else stream.point_form

    async def _find(self, name: str, *, or_none: bool = False) -> Stream | None:
        try:
            return await self.get(name)
        except UnknownStreamError:
            if name != DEFAULT_STREAM and not or_none:
                raise
            return None

    async def learnt_rows(self, receipt: Receipt, timeout_s: float) -> LearntRows | None:
        """As `Stream.learnt_rows`. Raises StreamGoneError when the stream was deleted meanwhile."""
        return await self.known.incarnation_of(receipt.stream, receipt.incarnation).learnt_rows(receipt, timeout_s)

    async def wait_until_visible(self, receipt: Receipt, timeout_s: float) -> bool:
        """As `Stream.wait_until_visible`. Raises StreamGoneError when the stream was deleted meanwhile."""
        return await self.known.incarnation_of(receipt.stream, receipt.incarnation).wait_until_visible(
            receipt, timeout_s
        )

    async def ingest(
        self,
        name: str,
        points: Points,
        *,
        idempotency: IdempotencyKey | None = None,
        source: SourceStep | None = None,
        create: bool = False,
        incarnation: str | None = None,
        may_create: MayCreate | None = None,
    ) -> Receipt:
        """Append a batch to a stream's log. `source`: which records of a source it holds. `incarnation`: of the stream;
        StreamGoneError where another one has its name.

        The first batch creates the stream `default`, and with `create` any other, with its number of features, where
        `may_create` allows it, as in `Store.create_stream`.
        """
        self.known.refuse_when_stopping()
        if incarnation is not None:
            await self.get(name)
            return await self.known.incarnation_of(name, incarnation).ingest(points, idempotency, source)
        try:
            return await self.known.with_stream(name, lambda stream: stream.ingest(points, idempotency, source))
        except UnknownStreamError:
            if name != DEFAULT_STREAM and not create:
                raise
        if source is not None:
            known_step(name, source, None)  # one that goes on from a position is refused, and creates no stream
        if points.is_sparse:
            raise ShapeError(
                f"points are sparse rows, and stream {name!r} does not exist yet; create it first, of a family for "
                'sparse rows: PUT {"n_features": ..., "family": "multinomial"}'
            )
        check_stream_name(name)
        settings = new_settings({"n_features": points.n_features}, self._settings)
        stream, _ = await self.known.create(name, with_names(settings, points) or settings, may_create)
        return await stream.ingest(points, idempotency, source)

    async def view(self, name: str, *, min_offset: int | None = None, timeout_s: float) -> PublishedView:
        """The view of a stream, as `Stream.view`."""
        try:
            return await self.known.with_stream(name, lambda stream: stream.view(min_offset, timeout_s))
        except UnknownStreamError:
            if name != DEFAULT_STREAM:
                raise
            if min_offset:
                raise OffsetBeyondLogError(f"min_offset is {min_offset}, stream {name!r} has no points yet") from None
            return PublishedView(name, "", 0, 0, 0, "empty", None)

    async def labels(self, name: str) -> Labels:
        """The labels of a stream, as `StreamLabels.all`. The stream `default` may have no points yet."""
        stream = await self._find(name)
        return NO_LABELS if stream is None else await stream.labels.all()

    async def shown_labels(self, name: str) -> Mapping[int, Label]:
        """As `StreamLabels.shown`. The stream `default` may have no points yet."""
        stream = await self._find(name)
        return {} if stream is None else await stream.labels.shown()

    async def set_label(self, name: str, view: PublishedView, component: int, changes: Mapping[str, Any]) -> None:
        """Change the label of a component, as `StreamLabels.change`."""
        self.known.refuse_when_stopping()
        await self.known.with_stream(name, lambda stream: stream.labels.change(view, component, changes))

    async def snapshot(
        self, name: str, *, min_offset: int | None, timeout_s: float, window: bool = False
    ) -> tuple[Stream, Checkpoint]:
        """The state of a stream as the bytes of a snapshot file.

        `window`: with the rows of its window, where the log still holds them.
        """

        async def use(stream: Stream) -> tuple[Stream, Checkpoint]:
            await stream.view(min_offset, timeout_s)
            return stream, await self._state(stream, timeout_s, window)

        return await self.known.with_stream(name, use)

    async def _state(self, stream: Stream, timeout_s: float, window: bool) -> Checkpoint:
        for _ in range(WINDOW_ATTEMPTS if window else 0):
            base = await stream.snapshot(timeout_s)
            found = await asyncio.to_thread(with_window, self._store, stream.name, stream.record.incarnation, base)
            if found is not None:
                return found
        return await stream.snapshot(timeout_s)

    async def restore(
        self,
        name: str,
        blob: bytes,
        *,
        idempotency: IdempotencyKey | None = None,
        may_create: MayCreate | None = None,
    ) -> Receipt:
        """Replace the state of a stream by a snapshot. A stream that does not exist is created with its settings,
        where `may_create` allows it, as in `Store.create_stream`.

        Raises SnapshotError, LimitError, and StreamConflictError when the shape differs.
        """
        self.known.refuse_when_stopping()
        check_stream_name(name)
        settings = within_limits(await asyncio.to_thread(_settings_of, blob), self._settings)
        try:
            await self.get(name)
        except UnknownStreamError:
            await self.known.create(name, settings, may_create)
        return await self.known.with_stream(name, lambda stream: stream.restore(blob, settings, idempotency))


async def _changed(stream: Stream, values: Mapping[str, Any], check: Check) -> Stream:
    await stream.change(values, check)
    return stream


async def _described(stream: Stream) -> StreamInfo:
    info = await _listed(stream)
    if info.summary is None:
        stream.view_source.start()
    return info


async def _listed(stream: Stream) -> StreamInfo:
    """A stream at this moment. One that is learnt here and is not in memory is not loaded for that."""
    await stream.refresh()
    source, view = stream.view_source, stream.view_source.board.view
    summary = None if view is None else summary_of(view)
    if summary is None and isinstance(source, LocalSource):
        summary = source.last
    elif summary is None:
        source.start()
    return StreamInfo(stream.record, stream.settings, await stream.tail(), source.failure, summary)


def _settings_of(blob: bytes) -> "StreamSettings":
    load_engines()
    from shoal.mixture import from_bytes

    state, _ = from_bytes(blob)
    return state.settings
