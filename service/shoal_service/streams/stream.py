"""One live stream, as request handlers use it: its verbs are coroutines, and what blocks is done by other threads."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from shoal.points.arrays import IntArray
from shoal_service.errors import (
    DeadLetteredError,
    NotReadyError,
    OffsetBeyondLogError,
    OffsetNotAppliedError,
    SettingsMovedError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.settings import Settings
from shoal_service.store import Appended, Checkpoint, EntryKind, IdempotencyKey, Store, StreamRecord, Tail
from shoal_service.streams.applying import check_room
from shoal_service.streams.published import PublishedView
from shoal_service.streams.source import Source
from shoal_service.streams.spec import change_spec, check_points, held_to_limits, read_spec, refuse_other_shape
from shoal_service.wire import Points, to_log

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings

T = TypeVar("T")

LOAD_TIMEOUT_S = 30.0
"""How long a change of settings waits for the stream to be loaded."""
PACE_S, PACE_LOOK_S = 1.0, 0.01
"""How long a batch waits at the door for the learner, at most, and how often it looks."""
CHANGES_TRIED = 50
"""How often a change is made anew of settings that another process has just changed. Each time one of them succeeds."""


Check: TypeAlias = Callable[[StreamRecord], None]
"""Raises where a record is not as it should be."""


class Receipt(NamedTuple):
    """Something is in the durable log."""

    stream: str
    incarnation: str
    accepted: int
    """Points of the entry."""
    log_offset: int
    seq: int
    replayed: bool
    """The same request had been answered before; this is that answer."""


class Stream:
    """One incarnation of a stream: its record, its settings, and where its views come from."""

    def __init__(self, store: Store, record: StreamRecord, settings: Settings, source: Source) -> None:
        self.record = record
        self.spec: StreamSettings = read_spec(record.settings)
        self.source = source
        self.points_ingested = 0
        """Points accepted since the process started."""
        self._store = store
        self._settings = settings
        self._changing = asyncio.Lock()

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.record.name

    async def refresh(self) -> None:
        """Read the record again: another process, or the learner, may have changed it. Raises StreamGoneError."""
        try:
            record = await asyncio.to_thread(self._store.get_stream, self.name)
        except UnknownStreamError:
            record = None
        if record is None or record.incarnation != self.record.incarnation:
            raise StreamGoneError(f"stream {self.name!r} was deleted; create it again or name another")
        if record.settings != self.record.settings:
            self.record, self.spec = record, read_spec(record.settings)

    async def keep_pace(self) -> None:
        """Wait while too much of the log is not learnt yet, a second at most.

        Clients that send without a pause would otherwise take the time that the learner needs, and the log would grow
        up to its budget.
        """
        until = time.monotonic() + PACE_S
        while self.source.waiting_bytes > self._settings.log_pace_bytes and time.monotonic() < until:
            await asyncio.sleep(PACE_LOOK_S)

    async def ingest(self, points: Points, idempotency: IdempotencyKey | None) -> Receipt:
        """Append a batch; the receipt comes once it is durable. Raises as `check_points` and `Store.append`."""
        check_points(self.spec, self.name, points)
        receipt = await self._append(EntryKind.BATCH, to_log(points), points.n_points, idempotency=idempotency)
        if not receipt.replayed:
            self.points_ingested += receipt.accepted
        return receipt

    async def seen(self, receipt: Receipt, timeout_s: float) -> bool:
        """Wait until readers see what an entry did; False when that takes longer.

        False too when the learner ends before that: the entry is in the log, and will be seen after the next start.
        Raises DeadLetteredError when the learner could not take the entry, StreamGoneError when the stream was
        deleted.
        """
        try:
            await self.source.board.wait(seq=receipt.seq, timeout_s=timeout_s)
            seen = True
        except (TimeoutError, NotReadyError):
            seen = False
        refusal = self.source.refusal(receipt.seq)
        if refusal is not None:
            raise DeadLetteredError(
                f"the learner could not take the entry that ends at offset {receipt.log_offset} ({refusal}); "
                "it is kept aside and left out of the stream: sending it again gives the same"
            )
        return seen

    async def shown(self, seq: int, timeout_s: float) -> None:
        """Wait until readers here see what entry `seq` did, if that takes no longer and a learner is at work."""
        self.source.start()
        with contextlib.suppress(TimeoutError, NotReadyError, StreamGoneError):
            await self.source.board.wait(seq=seq, timeout_s=timeout_s)

    async def applied(self, receipt: Receipt, timeout_s: float) -> IntArray | None:
        """The ids given to the points of an entry, as of that entry, once readers see it.

        None when that takes longer, or when they are forgotten (a retry long after). Raises as `seen`.
        """
        until = time.monotonic() + timeout_s
        with self.source.expecting(receipt.seq) as labels:
            if not await self.seen(receipt, timeout_s):
                return None
            found: IntArray | None = await labels(until - time.monotonic())
            return found

    async def view(self, min_offset: int | None, timeout_s: float) -> PublishedView:
        """The last view published, or with `min_offset` the first that has applied so many points of the log.

        Raises OffsetBeyondLogError, OffsetNotAppliedError when the time is up, NotReadyError while the stream loads,
        StreamGoneError.
        """
        self.source.start()
        if self.source.gone:
            raise StreamGoneError(f"stream {self.name!r} was deleted; create it again or name another")
        view = self.source.board.view
        if view is not None and (min_offset is None or view.log_offset >= min_offset):
            return view
        if min_offset is not None:
            await self._check_within_log(min_offset)
        try:
            return await self.source.board.wait(log_offset=min_offset or 0, timeout_s=timeout_s)
        except TimeoutError:
            if self.source.board.view is None:
                raise NotReadyError(f"stream {self.name!r} is being loaded; ask again in a moment") from None
            raise OffsetNotAppliedError(
                f"offset {min_offset} of stream {self.name!r} was not applied within {timeout_s:g} s; ask again"
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

    async def change(self, values: Mapping[str, Any], check: Check = lambda record: None) -> Receipt | None:
        """Change the settings given; None when they are so already. Raises StreamConflictError on a change of shape.

        `check` raises where the record is not one to be changed. What other processes change meanwhile stays changed,
        and is checked again. Begun, it is done, though the request be cut off.
        """
        return await _to_the_end(self._change(values, check))

    async def _change(self, values: Mapping[str, Any], check: Check) -> Receipt | None:
        async with self._changing:
            for _ in range(CHANGES_TRIED - 1):
                with contextlib.suppress(SettingsMovedError):
                    return await self._change_once(values, check)
            return await self._change_once(values, check)

    async def _change_once(self, values: Mapping[str, Any], check: Check) -> Receipt | None:
        await self.refresh()
        check(self.record)
        wanted = change_spec(self.spec, values, self._settings)
        if wanted == self.spec:
            return None
        await asyncio.to_thread(check_room, wanted)
        payload = wanted.to_json().encode()
        return await self._append_settings(EntryKind.SETTINGS, payload, wanted, expected=self.record.settings)

    async def restore(self, blob: bytes, spec: "StreamSettings", idempotency: IdempotencyKey | None) -> Receipt:
        """Put the state of a snapshot in the place of the stream's own, as an entry of the log: offsets go on from
        here.

        `spec` are the snapshot's settings, which become the stream's. Raises StreamConflictError when their shape
        differs. Begun, it is done, though the request be cut off.
        """
        return await _to_the_end(self._restore(blob, spec, idempotency))

    async def _restore(self, blob: bytes, spec: "StreamSettings", idempotency: IdempotencyKey | None) -> Receipt:
        async with self._changing:
            await self.refresh()
            refuse_other_shape(self.spec, spec)
            return await self._append_settings(
                EntryKind.RESTORE, blob, held_to_limits(spec, self._settings), idempotency=idempotency
            )

    async def snapshot(self, timeout_s: float) -> Checkpoint:
        """The state as the bytes of a snapshot file, with its place in the log."""
        return await self.source.snapshot(timeout_s)

    async def _append_settings(
        self,
        kind: EntryKind,
        payload: bytes,
        spec: "StreamSettings",
        *,
        idempotency: IdempotencyKey | None = None,
        expected: bytes | None = None,
    ) -> Receipt:
        """An entry that brings settings; with `expected` in the place of those and no others."""
        settings = spec.to_json().encode()
        receipt = await self._append(
            kind, payload, 0, idempotency=idempotency, settings=settings, expected_settings=expected
        )
        if not receipt.replayed:
            self.spec, self.record = spec, self.record._replace(settings=settings)
        return receipt

    async def _append(
        self,
        kind: EntryKind,
        payload: bytes,
        n_points: int,
        *,
        idempotency: IdempotencyKey | None,
        settings: bytes | None = None,
        expected_settings: bytes | None = None,
    ) -> Receipt:
        if kind is not EntryKind.BATCH:
            await self.view(None, LOAD_TIMEOUT_S)  # loaded: its beginning is in a checkpoint
        future = self._store.append(
            self.name,
            self.record.incarnation,
            kind,
            payload,
            n_points,
            budget_bytes=self._settings.log_budget_bytes,
            idempotency=idempotency,
            settings=settings,
            expected_settings=expected_settings,
        )
        appended: Appended = await _durable(future)
        self.source.appended(appended.log_offset, n_points, len(payload))
        return Receipt(
            self.name, self.record.incarnation, appended.n_points, appended.log_offset, appended.seq, appended.replayed
        )


async def _to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """The answer of work that is more than one step. A request that is cut off gives up waiting; the steps go on."""
    return await asyncio.shield(asyncio.create_task(work))


async def _durable(future: "Future[T]") -> T:
    """The future's answer. A request that is cut off meanwhile gives up waiting; the store's own work goes on."""
    return await asyncio.shield(asyncio.wrap_future(future))
