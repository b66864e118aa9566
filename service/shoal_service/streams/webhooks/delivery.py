"""Delivery of the events of one webhook: in order, at least once, each until it is accepted or given up.

A failed attempt is repeated after a pause that doubles, with a share that is drawn from the id of the message. It is
longer where the receiver asks for that, up to the same limit. When a message has failed for the time that the settings
allow, it goes to the dead deliveries of the webhook, and the next one is tried. A receiver that accepts nothing since
then gets one attempt for each message, with the same pauses, so its dead deliveries do not grow faster than that. One
that answers 410 gets nothing more until its webhook is changed.

The position is saved after a success, at most once in `SAVE_S` while events follow one another. After a kill, the next
process sends those once more, with the same ids.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from shoal_service.errors import ServiceError, StoreUnavailableError
from shoal_service.streams.events import EventPlace, Feed, FeedEvent, event_fields, event_id
from shoal_service.streams.webhooks.attempt import Failure, Message
from shoal_service.streams.webhooks.definition import Webhook
from shoal_service.streams.webhooks.documents import WebhookDocuments
from shoal_service.streams.webhooks.state import DeadDelivery, DeliveryState

T = TypeVar("T")

MAX_PAUSE_S = 300.0
"""Longest pause between two attempts."""
SAVE_S = 1.0
"""Shortest time between two writes of the position, while events follow one another."""
WAIT_S = 5.0
"""Longest wait for an event. It bounds the time after which the end of a learner is noticed."""
STORE_PAUSE_S = 1.0
"""Pause before a write is repeated that the store could not take."""

Send = Callable[[Webhook, Message], Awaitable[Failure | None]]
"""Tries once; gives None after a success."""

Named = Callable[[FeedEvent], Awaitable[FeedEvent]]


class Delivery:
    """Sends the events of one webhook. `run` it on an event loop; cancel it to end."""

    def __init__(
        self,
        webhook: Webhook,
        stream: tuple[str, str],
        feed: Feed,
        documents: WebhookDocuments,
        send: Send,
        named: Named,
        *,
        retry_s: float,
        give_up_s: float,
        log: Any,
    ) -> None:
        """`stream`: name and incarnation. `named`: gives an event with its labels. `retry_s`: first pause. `give_up_s`:
        time until a message is given up.
        """
        self.webhook = webhook
        self.position: EventPlace | None = None
        """Place of the next event. None before the state is read."""
        self._stream = stream
        self._feed = feed
        self._documents = documents
        self._send = send
        self._named = named
        self._retry_s, self._give_up_s = retry_s, give_up_s
        self._log = log.bind(stream=stream[0], webhook=webhook.name)
        self._state: DeliveryState
        self._saved_at = 0.0
        self._dirty = False
        self._accepts_nothing = False  # since a message was given up

    async def run(self) -> None:
        """Send events until the stream ends or its learner does."""
        self._state = await self._stored(self._documents.state, self.webhook)
        if self._state.ended(self.webhook):
            await self._end()
        self._move(EventPlace(*self._state.position))
        try:
            while True:
                await self._send_what_is_there()
                try:
                    await self._feed.grown(self._place, WAIT_S)
                except ServiceError:
                    await self._save()
                    return
        finally:
            self.position = None

    def save_now(self) -> None:
        """Save the position once more, after `run` has ended. Blocks. Raises StoreError."""
        if self._dirty:
            self._documents.save(self.webhook, self._state)
            self._dirty = False

    @property
    def definition(self) -> Webhook:
        """As `StreamTask.definition`."""
        return self.webhook

    @property
    def _place(self) -> EventPlace:
        return EventPlace(*self._state.position)

    def _move(self, place: EventPlace) -> None:
        self._dirty |= place != self._place
        self._state = self._state._replace(position=(place.seq, place.nth))
        self.position = place

    async def _send_what_is_there(self) -> None:
        while True:
            batch = self._feed.after(self._place)
            if batch.missed:
                resumes = batch.events[0].place if batch.events else self._feed.begins
                reason = "events were deleted before they were sent; read the components again"
                await self._deliver(FeedEvent(self._place, "gap", {"reason": reason}))
                self._move(resumes)
            for event in batch.events:
                if event.kind in self.webhook.events:
                    await self._deliver(event)
                self._move(event.place.next)
                if time.monotonic() - self._saved_at >= SAVE_S:
                    await self._save()
            if not batch.events:
                if self._dirty and (left := self._saved_at + SAVE_S - time.monotonic()) > 0:
                    await asyncio.sleep(left)
                    continue
                await self._save()
                return

    async def _deliver(self, event: FeedEvent) -> None:
        """Send one event until it is accepted or given up."""
        message = self._message(await self._named(event))
        began, attempts = time.monotonic(), 0
        while True:
            failure = await self._send(self.webhook, message)
            attempts += 1
            now = time.time()
            if failure is None:
                self._accepts_nothing = False
                delivered = self._state.delivered + 1
                self._state = self._state._replace(delivered=delivered, failures=0, last_success=now)
                self._dirty = True
                return
            failures, reason = self._state.failures + 1, failure.reason
            gone = self.webhook.revision if failure.gone else None
            self._state = self._state._replace(failures=failures, last_failure=now, reason=reason, gone_revision=gone)
            self._log.warning("webhook_failed", message=message.id, attempts=attempts, reason=reason)
            self._dirty = True
            await self._save()
            if failure.gone:
                self._log.error("webhook_gone", message=message.id)
                await self._end()
            pause_s = max(self._pause_s(message.id, failures), min(failure.retry_after_s, MAX_PAUSE_S))
            pause_s = min(pause_s, self._give_up_s)
            left_s = began + self._give_up_s - time.monotonic()
            if left_s <= 0 or self._accepts_nothing:
                if self._accepts_nothing:
                    await asyncio.sleep(pause_s)
                await self._give_up(event, message, attempts, reason)
                return
            await asyncio.sleep(min(pause_s, left_s))

    async def _end(self) -> None:
        """Send nothing more, and hold no events back. Only a cancellation ends this: the webhook was changed."""
        self.position = None
        await asyncio.Event().wait()

    async def _give_up(self, event: FeedEvent, message: Message, attempts: int, reason: str) -> None:
        dead = DeadDelivery(
            self.webhook.id, message.id, event.kind, time.time(), attempts, reason, message.body.decode()
        )
        await self._stored(self._documents.add_dead, self.webhook, event.place, dead)
        self._log.error("webhook_gave_up", message=message.id, attempts=attempts, reason=reason)
        self._state = self._state._replace(dead=self._state.dead + 1)
        self._dirty = self._accepts_nothing = True

    def _message(self, event: FeedEvent) -> Message:
        """Make the message of an event. Its time is that of the first attempt."""
        name, incarnation = self._stream
        message_id = event_id(incarnation, event.place)
        body = {
            "type": event.kind,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "data": {"id": message_id, **event_fields(name, incarnation, event)},
        }
        return Message(message_id, msgspec.json.encode(body))

    def _pause_s(self, message_id: str, failures: int) -> float:
        longest = min(self._retry_s * 2.0 ** min(failures - 1, 30), MAX_PAUSE_S)
        drawn = hashlib.blake2b(f"{message_id} {failures}".encode(), digest_size=4).digest()
        return longest * (0.5 + int.from_bytes(drawn) / 2**33)

    async def _save(self) -> None:
        if self._dirty:
            await self._stored(self._documents.save, self.webhook, self._state)
            self._dirty = False
            self._saved_at = time.monotonic()

    async def _stored(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call the store in a thread, again as long as it is not available. Raises other StoreErrors."""
        while True:
            try:
                return await asyncio.to_thread(call, *arguments)
            except StoreUnavailableError as error:
                self._log.warning("webhook_store_failed", reason=str(error))
                await asyncio.sleep(STORE_PAUSE_S)
