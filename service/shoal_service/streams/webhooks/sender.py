"""Sender of webhooks: runs a delivery for each webhook of the streams that are learnt here.

Only the process that learns a stream has its feed, so a fleet has one sender for each stream. When another process
takes over, the deliveries go on there from the position in the store.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import httpx

from shoal_service.errors import StoreError
from shoal_service.settings import Settings
from shoal_service.store import Store
from shoal_service.streams.events import FeedEvent
from shoal_service.streams.labels import label_book, labelled
from shoal_service.streams.stream_tasks import LearntStream, StreamTasks
from shoal_service.streams.webhooks.attempt import Failure, Limits, Message, new_client, send
from shoal_service.streams.webhooks.definition import Webhook
from shoal_service.streams.webhooks.delivery import Delivery
from shoal_service.streams.webhooks.documents import WebhookDocuments


class WebhookSender(StreamTasks[Delivery]):
    """Sends webhooks between `start` and `close`. What is being sent then is sent again later."""

    def __init__(
        self, store: Store, settings: Settings, log: Any, streams: Callable[[], Mapping[str, LearntStream]]
    ) -> None:
        """`streams` gives those that this process learns now, by name."""
        super().__init__("webhooks", log, streams)
        self._store = store
        self._settings = settings
        self._limits = Limits(settings.webhook_timeout_s, settings.webhook_allow_private)
        self._client: httpx.AsyncClient | None = None  # made for the first webhook: it reads all root certificates

    @contextlib.asynccontextmanager
    async def resources(self) -> AsyncIterator[None]:
        """As `StreamTasks.resources`."""
        try:
            yield
        finally:
            if self._client is not None:
                await self._client.aclose()

    def definitions(self, stream: LearntStream) -> Mapping[str, Webhook]:
        """As `StreamTasks.definitions`."""
        return {one.name: one for one in WebhookDocuments(self._store, stream.name, stream.incarnation).all()}

    def after_check(self, stream: LearntStream, work: list[Delivery]) -> None:
        """Keep the events that are not sent yet."""
        positions = [one.position for one in work]
        stream.feed.needed = min((place for place in positions if place is not None), default=None)

    def begin(self, definition: Webhook, stream: LearntStream) -> Delivery:
        """As `StreamTasks.begin`."""
        client = self._client = self._client or new_client()
        book = label_book(self._store, stream.name, stream.incarnation)

        async def send_one(webhook: Webhook, message: Message) -> Failure | None:
            return await send(client, webhook, message, self._limits)

        async def named(event: FeedEvent) -> FeedEvent:
            with contextlib.suppress(StoreError):  # then by the labels that were read last
                await asyncio.to_thread(book.labels)
            return labelled(event, book.last.among(stream.family_tree()))

        return Delivery(
            definition,
            (stream.name, stream.incarnation),
            stream.feed,
            WebhookDocuments(self._store, stream.name, stream.incarnation),
            send_one,
            named,
            retry_s=self._settings.webhook_retry_s,
            give_up_s=self._settings.webhook_give_up_s,
            log=self._log,
        )
