"""Dead letters as request handlers use them: list, read, and append once more."""

import asyncio
import hashlib
from typing import NamedTuple

from shoal_service.errors import MalformedBodyError, NotRequeueableError
from shoal_service.store import DeadLetter, DeadLetterHead, EntryKind, IdempotencyKey, NewEntry, Store
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.stream import Receipt, Stream
from shoal_service.streams.stream_settings import check_points
from shoal_service.wire import Points, fields_from_log, from_log


class StreamLetter(NamedTuple):
    """A dead letter and its stream."""

    stream: Stream
    letter: DeadLetter

    def points(self) -> Points:
        """Its points. NotRequeueableError where it holds none, as the entry of a restore or of settings."""
        letter = self.letter
        if letter.n_points == 0:
            raise NotRequeueableError(
                f"entry {letter.seq} of stream {self.stream.name!r} holds no points; repeat the request that made it"
            )
        try:
            return Points(from_log(letter.payload), fields_from_log(letter.payload))
        except MalformedBodyError as error:
            raise NotRequeueableError(
                f"the payload of entry {letter.seq} of stream {self.stream.name!r} holds no points ({error}); send the "
                "batch again from its source"
            ) from error


class DeadLetterService:
    """The dead letters of all streams of a service."""

    def __init__(self, store: Store, streams: KnownStreams) -> None:
        self._store = store
        self._streams = streams

    async def all(self, name: str) -> tuple[Stream, list[DeadLetterHead]]:
        """Those of a stream without payloads, oldest first. Raises UnknownStreamError."""
        stream = await self._streams.get(name)
        return stream, await asyncio.to_thread(self._store.dead_letter_heads, name, stream.record.incarnation)

    async def one(self, name: str, seq: int) -> StreamLetter:
        """The dead letter of an entry. Raises UnknownStreamError, UnknownDeadLetterError."""
        stream = await self._streams.get(name)
        letter = await asyncio.to_thread(self._store.dead_letter, name, stream.record.incarnation, seq)
        return StreamLetter(stream, letter)

    async def requeue(self, name: str, seq: int) -> Receipt:
        """Append the payload of a dead letter as a new entry, once: a repetition gets the first receipt.

        It is remembered as long as idempotency keys are. Its own key begins with a blank, as no key of a client may.
        Raises NotRequeueableError, and as `Stream.ingest`. The dead letter stays, since every replay passes over its
        entry.
        """
        self._streams.refuse_when_stopping()
        found = await self.one(name, seq)
        points = await asyncio.to_thread(found.points)
        check_points(found.stream.settings, name, points)
        payload = found.letter.payload
        key = IdempotencyKey(f" dead letter {seq}", hashlib.sha256(payload).digest())
        return await found.stream.append_batch(NewEntry(EntryKind.BATCH, payload, points.n_points, idempotency=key))
