"""One live stream, as request handlers use it. Its methods are coroutines; other threads do what blocks."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from shoal_service.errors import (
    DeadLetteredError,
    LearnerStoppedError,
    NotReadyError,
    OffsetBeyondLogError,
    OffsetNotAppliedError,
    SettingsMovedError,
    StoreUnavailableError,
    StreamConflictError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.settings import Settings
from shoal_service.store import (
    Appended,
    Checkpoint,
    EntryKind,
    IdempotencyKey,
    NewEntry,
    SourceStep,
    Store,
    StreamRecord,
    Tail,
)
from shoal_service.streams.board import ViewSource, shielded
from shoal_service.streams.labels import label_book
from shoal_service.streams.learnt_rows import LearntRows
from shoal_service.streams.names import (
    added_names,
    as_appended,
    in_order,
    with_level_numbers,
    with_names,
    with_new_levels,
)
from shoal_service.streams.record_index import RecordReader, forget_payload
from shoal_service.streams.record_times import check_times, stamped
from shoal_service.streams.stream_labels import StreamLabels
from shoal_service.streams.stream_settings import (
    changed_settings,
    check_points,
    check_room,
    read_settings,
    refuse_other_shape,
    within_limits,
)
from shoal_service.streams.view import PublishedView
from shoal_service.tracing import span
from shoal_service.wire import Points, to_log

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings

T = TypeVar("T")

LOAD_TIMEOUT_S = 30.0
"""Longest wait of a change of settings for the stream to be loaded."""
PACE_S, PACE_POLL_S = 1.0, 0.01
"""Longest wait of a batch for a learner that is behind, and the time between two looks at it."""
MAX_CHANGE_ATTEMPTS = 50
"""Attempts at a change of settings that other processes change at the same time. In each round one of them succeeds."""


Check: TypeAlias = Callable[[StreamRecord], None]
"""Raises when a record does not allow a change."""
PayloadOf: TypeAlias = Callable[["StreamSettings", "StreamSettings"], bytes]
"""The payload of an entry, from the settings before and after it."""


class Receipt(NamedTuple):
    """Answer to a request whose entry is in the durable log."""

    stream: str
    incarnation: str
    accepted: int
    """Points of the entry."""
    log_offset: int
    seq: int
    replayed: bool
    """Whether this repeats the answer to an earlier request with the same key."""


class PointForm(NamedTuple):
    """What points of a stream look like, as a decoder needs to know. By default: of a stream that is not known yet."""

    n_features: int | None = None
    holes: bool = False
    """Whether values may be missing."""
    texts: bool = False
    """Whether columns may hold texts, as names of levels."""
    names: tuple[str, ...] | None = None
    """Names of the features, for errors about columns without names."""


class Stream:
    """One incarnation of a stream: its record, its settings and the source of its views."""

    def __init__(self, store: Store, record: StreamRecord, service_settings: Settings, view_source: ViewSource) -> None:
        self.record = record
        self.settings: StreamSettings = read_settings(record.settings)
        self.view_source = view_source
        self.points_ingested = 0
        """Points accepted since the process started."""
        self._store = store
        self._service_settings = service_settings
        self._chosen: StreamSettings | None = None  # those of the last view: a stream may have none at the moment
        self._changing = asyncio.Lock()
        self._naming = asyncio.Lock()
        self.labels = StreamLabels(label_book(store, record.name, record.incarnation), view_source)
        self.record_reader = RecordReader(lambda places: store.read_pages(record.name, record.incarnation, places))

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.record.name

    @property
    def point_form(self) -> PointForm:
        """What its points look like."""
        settings = self.settings
        texts = bool(settings.category_columns)
        return PointForm(settings.n_features, settings.takes_holes, texts, settings.feature_names)

    @property
    def learnt_settings(self) -> "StreamSettings":
        """The settings, with the family that the learner has chosen where it is automatic, as far as is known here."""
        if self.settings.family_requested is None:
            return self.settings
        view = self.view_source.board.view
        if view is not None and view.snapshot is not None:
            self._chosen = view.snapshot.settings
        return self.settings if self._chosen is None else self.settings.chosen_as(self._chosen)

    async def refresh(self) -> None:
        """Read the record again, since another process or the learner may have changed it. Raises StreamGoneError."""
        while True:
            before = self.record
            try:
                record = await asyncio.to_thread(self._store.get_stream, self.name)
            except UnknownStreamError:
                record = None
            if record is None or record.incarnation != before.incarnation:
                raise StreamGoneError(f"stream {self.name!r} was deleted; create it again or name another")
            if self.record is before:
                break  # otherwise it was changed here meanwhile, and what was read may be from before that
        if record.settings != before.settings:
            self.record, self.settings = record, read_settings(record.settings)

    async def keep_pace(self) -> None:
        """Wait while too much of the log is not learnt yet, one second at most.

        Without the wait, clients that send without a pause would use the processor time that the learner needs, and
        the log would grow up to its budget.
        """
        until = time.monotonic() + PACE_S
        while self.view_source.waiting_bytes > self._service_settings.log_pace_bytes and time.monotonic() < until:
            await asyncio.sleep(PACE_POLL_S)

    async def ingest(
        self, points: Points, idempotency: IdempotencyKey | None, source: SourceStep | None = None
    ) -> Receipt:
        """Append a batch. Returns once it is durable. Raises as `check_points`, `check_times`, `in_order` and
        `Store.append`.
        """
        points, view = stamped(points, self.settings, time.time()), self.view_source.board.view
        check_times(points, self.settings, None if view is None else view.newest_time, self.name)
        if points.names is None and points.texts is None:
            return await self._append_points(points, idempotency, source)
        await self._name_features(points)
        if (receipt := await self._append_named(points, idempotency, source)) is not None:
            return receipt
        async with self._naming:
            for _ in range(MAX_CHANGE_ATTEMPTS):
                await self._name_features(points)
                await self._name_levels(points)
                if (receipt := await self._append_named(points, idempotency, source)) is not None:
                    return receipt
        raise StoreUnavailableError(
            f"the names of stream {self.name!r} are changed by many requests at once; try again"
        )

    async def _name_features(self, points: Points) -> None:
        """Read the settings again. A stream without names of features takes over those of the points."""
        await self.refresh()  # another process may have changed the names
        if with_names(self.settings, points) is not None:
            check_points(self.settings, self.name, points)  # a batch that is refused leaves no names
            with contextlib.suppress(StreamConflictError):  # another batch was faster
                await self.change({"feature_names": list(points.names or ())}, _refuse_named)

    async def _name_levels(self, points: Points) -> None:
        """Take over the names of new levels. Batches of this process name levels one after another, under `_naming`."""
        ordered = in_order(points, self.settings, self.name)
        wanted = with_new_levels(self.settings, ordered)
        if wanted is not None:
            check_points(self.settings, self.name, with_level_numbers(ordered, wanted))  # a refused one leaves no names
            with contextlib.suppress(StreamConflictError):  # another process was faster
                await self.change({"level_names": wanted.to_dict()["level_names"]}, payload_of=added_names)

    async def _append_named(
        self, points: Points, idempotency: IdempotencyKey | None, source: SourceStep | None
    ) -> Receipt | None:
        """Append points with names. None where a level has no name yet, or where the settings, which give order and
        numbers, were changed meanwhile.
        """
        numbered = as_appended(points, self.settings, self.name)
        if numbered is None:
            return None
        try:
            return await self._append_points(numbered, idempotency, source, self.record.settings)
        except SettingsMovedError:
            return None

    async def _append_points(
        self,
        points: Points,
        idempotency: IdempotencyKey | None,
        source: SourceStep | None,
        expected_settings: bytes | None = None,
    ) -> Receipt:
        """`expected_settings`: those by which columns were ordered and levels numbered. None: points without names."""
        check_points(self.learnt_settings, self.name, points)
        return await self.append_batch(
            NewEntry(
                EntryKind.BATCH,
                to_log(points),
                points.n_points,
                idempotency=idempotency,
                expected_settings=expected_settings,
                source=source,
            )
        )

    async def append_batch(self, entry: NewEntry) -> Receipt:
        """Append checked points in the form that they have in the log. Raises as `Store.append`."""
        receipt = await self._append(entry)
        if not receipt.replayed:
            self.points_ingested += receipt.accepted
        return receipt

    async def forget(self, key: str) -> Receipt:
        """Append an entry that forgets the record of a key."""
        return await self._append(NewEntry(EntryKind.FORGET, forget_payload([key])))

    async def wait_until_visible(self, receipt: Receipt, timeout_s: float) -> bool:
        """Wait until readers see the effect of an entry. False after the timeout.

        False also when the learner ends first: the entry is in the log, and is learnt after the next start. Raises
        DeadLetteredError when the learner cannot apply the entry, StreamGoneError when the stream was deleted.
        """
        try:
            await self.view_source.board.wait(seq=receipt.seq, timeout_s=timeout_s)
            seen = True
        except (TimeoutError, NotReadyError):
            seen = False
        refusal = self.view_source.refusal(receipt.seq)
        if refusal is not None:
            raise DeadLetteredError(
                f"the learner could not apply the entry that ends at offset {receipt.log_offset} ({refusal}); "
                "it is stored as a dead letter and is not part of the stream; sending it again gives the same result"
            )
        return seen

    async def wait_for_entry(self, seq: int, timeout_s: float) -> None:
        """Wait until readers of this process see the effect of entry `seq`. Returns after the timeout in any case."""
        self.view_source.start()
        with contextlib.suppress(TimeoutError, NotReadyError, StreamGoneError):
            await self.view_source.board.wait(seq=seq, timeout_s=timeout_s)

    async def learnt_rows(self, receipt: Receipt, timeout_s: float) -> LearntRows | None:
        """The learnt rows of an entry, once readers see the entry.

        None after the timeout, or when they are no longer kept (a late retry). Raises as `wait_until_visible`.
        """
        until = time.monotonic() + timeout_s
        with self.view_source.expecting(receipt.seq) as learnt:
            if not await self.wait_until_visible(receipt, timeout_s):
                return None
            found: LearntRows | None = await learnt(until - time.monotonic())
            return found

    async def view(self, min_offset: int | None, timeout_s: float) -> PublishedView:
        """The last published view; with `min_offset`, one that includes at least so many points of the log.

        Raises OffsetBeyondLogError, OffsetNotAppliedError after the timeout, NotReadyError while the stream is being
        loaded, StreamGoneError.
        """
        self.view_source.start()
        board = self.view_source.board
        board.note_reader()
        if self.view_source.gone:
            raise StreamGoneError(f"stream {self.name!r} was deleted; create it again or name another")
        view = board.view
        if view is not None and (min_offset is None or view.log_offset >= min_offset) and not board.replaying:
            return view
        if min_offset is not None:
            await self._check_within_log(min_offset)
        try:
            return await board.wait(log_offset=min_offset or 0, timeout_s=timeout_s)
        except TimeoutError:
            if board.view is None:
                raise NotReadyError(f"stream {self.name!r} is being loaded; ask again in a moment") from None
            raise OffsetNotAppliedError(
                f"offset {min_offset} of stream {self.name!r} was not applied within {timeout_s:g} s; "
                f"the stream has learnt as far as offset {board.view.log_offset}; ask again"
            ) from None

    async def view_of_entry(self, seq: int, timeout_s: float) -> PublishedView:
        """The last published view, which includes entry `seq` where the log holds it.

        Raises as `view`, and OffsetNotAppliedError after the timeout.
        """
        last = min(seq, (await self.tail()).seq)
        try:
            return await self.view_source.board.wait(seq=last, timeout_s=timeout_s)
        except TimeoutError:
            raise OffsetNotAppliedError(
                f"entry {last} of stream {self.name!r} was not applied within {timeout_s:g} s; ask again"
            ) from None

    async def _check_within_log(self, min_offset: int) -> None:
        tail = await self.tail()
        if min_offset > tail.log_offset:
            raise OffsetBeyondLogError(
                f"min_offset is {min_offset}, the log of stream {self.name!r} ends at {tail.log_offset}; "
                "give an offset that an ingest has answered"
            )

    async def tail(self) -> Tail:
        """The end of the log."""
        return await asyncio.to_thread(self._store.tail, self.name, self.record.incarnation)

    async def change(
        self, values: Mapping[str, Any], check: Check = lambda record: None, payload_of: PayloadOf | None = None
    ) -> Receipt | None:
        """Change the given settings. None when they already have these values.

        Raises StreamConflictError on a change of shape. `check` raises when the record does not allow the change.
        `payload_of` makes the payload of the entry from the settings before and after; None: it holds all settings.
        Changes by other processes are kept, and checked again. A change that has begun is completed even when the
        client disconnects.
        """
        return await _completed(self._change(values, check, payload_of or _all_settings))

    async def _change(self, values: Mapping[str, Any], check: Check, payload_of: PayloadOf) -> Receipt | None:
        async with self._changing:
            for _ in range(MAX_CHANGE_ATTEMPTS - 1):
                with contextlib.suppress(SettingsMovedError):
                    return await self._change_once(values, check, payload_of)
            return await self._change_once(values, check, payload_of)

    async def _change_once(self, values: Mapping[str, Any], check: Check, payload_of: PayloadOf) -> Receipt | None:
        await self.refresh()
        check(self.record)
        wanted = changed_settings(self.settings, values, self._service_settings)
        if wanted == self.settings:
            return None
        await asyncio.to_thread(check_room, wanted)
        payload = payload_of(self.settings, wanted)
        return await self._append_settings(EntryKind.SETTINGS, payload, wanted, expected=self.record.settings)

    async def restore(self, blob: bytes, settings: "StreamSettings", idempotency: IdempotencyKey | None) -> Receipt:
        """Replace the state by that of a snapshot, through an entry of the log. Offsets continue.

        `settings` are the snapshot's, which become the stream's. Raises StreamConflictError when their shape differs;
        where the stream's family is automatic, the snapshot's may be any.
        A restore that has begun is completed even when the client disconnects.
        """
        return await _completed(self._restore(blob, settings, idempotency))

    async def _restore(self, blob: bytes, settings: "StreamSettings", idempotency: IdempotencyKey | None) -> Receipt:
        self._refuse_when_stopped(
            "not restore a snapshot; delete the stream first, and the restore then creates it again"
        )
        async with self._changing:
            await self.refresh()
            shape = self.settings
            if shape.family_requested is not None and settings.family_requested is None:
                shape = shape.with_family(settings.family, None)
            refuse_other_shape(shape, settings)
            return await self._append_settings(
                EntryKind.RESTORE, blob, within_limits(settings, self._service_settings), idempotency=idempotency
            )

    def refuse_refinement_when_stopped(self) -> None:
        """Raise LearnerStoppedError where the learner has stopped: the refinement would wait for it without end."""
        self._refuse_when_stopped(
            "adopt no refinement; see the service's log, and restart the service when the cause is removed"
        )

    def _refuse_when_stopped(self, consequence: str) -> None:
        """Raise LearnerStoppedError where the learner has stopped: a new entry comes after the one that stopped it."""
        if (failure := self.view_source.failure) is not None:
            raise LearnerStoppedError(
                f"the learner of stream {self.name!r} has stopped ({failure}), so it would {consequence}"
            )

    async def snapshot(self, timeout_s: float) -> Checkpoint:
        """The state as the bytes of a snapshot file, with its place in the log."""
        return await self.view_source.snapshot(timeout_s)

    async def _append_settings(
        self,
        kind: EntryKind,
        payload: bytes,
        settings: "StreamSettings",
        *,
        idempotency: IdempotencyKey | None = None,
        expected: bytes | None = None,
    ) -> Receipt:
        """Append an entry that changes the settings. With `expected`, only when those are the settings until then."""
        before, canonical = self.record, settings.to_json().encode()
        receipt = await self._append(
            NewEntry(kind, payload, idempotency=idempotency, settings=canonical, expected_settings=expected)
        )
        if self.record is not before:  # read again meanwhile, perhaps with a later change by another process
            with contextlib.suppress(StoreUnavailableError):  # the entry is in the log, whatever can be read now
                await self.refresh()
        elif not receipt.replayed:
            self.settings, self.record = settings, before._replace(settings=canonical)
        return receipt

    async def _append(self, entry: NewEntry) -> Receipt:
        if entry.kind is not EntryKind.BATCH:
            await self.view(None, LOAD_TIMEOUT_S)  # once loaded, its first state is in a checkpoint
        with span("append", {"shoal.stream": self.name, "shoal.kind": entry.kind, "shoal.points": entry.n_points}):
            budget_bytes = self._service_settings.log_budget_bytes
            future = self._store.append(self.name, self.record.incarnation, entry, budget_bytes=budget_bytes)
            appended: Appended = await _durable(future)
        self.view_source.appended(appended.log_offset, entry.n_points, len(entry.payload))
        return Receipt(
            self.name, self.record.incarnation, appended.n_points, appended.log_offset, appended.seq, appended.replayed
        )


async def _completed(work: Coroutine[Any, Any, T]) -> T:
    """The result of work in several steps. A cancelled request stops waiting; the steps continue."""
    return await shielded(asyncio.create_task(work))


async def _durable(future: "Future[T]") -> T:
    """The result of a future. A cancelled request stops waiting; the work of the store continues."""
    return await shielded(asyncio.wrap_future(future))


def _all_settings(before: "StreamSettings", after: "StreamSettings") -> bytes:
    """The payload of an entry that changes settings: all of them."""
    return after.to_json().encode()


def _refuse_named(record: StreamRecord) -> None:
    """Raise StreamConflictError for a stream whose features have names."""
    if read_settings(record.settings).feature_names is not None:
        raise StreamConflictError(f"the features of stream {record.name!r} have names already")
