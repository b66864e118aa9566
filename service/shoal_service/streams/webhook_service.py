"""Webhooks as request handlers use them: create, change, show and delete."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoal_service.settings import Settings
from shoal_service.store import Store
from shoal_service.streams.events import EventPlace
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.stream import Stream
from shoal_service.streams.webhooks import (
    DeadDelivery,
    DeliveryState,
    Webhook,
    WebhookDocuments,
    check_url,
    key_of_secret,
)

LOAD_S = 30.0
"""Longest wait for a stream to be loaded, so that a new webhook knows where it begins."""


class WebhookStatus(NamedTuple):
    """A webhook and how far it is."""

    stream: Stream
    webhook: Webhook
    state: DeliveryState
    dead: Sequence[DeadDelivery] = ()
    """Deliveries that were given up and are kept, oldest first; only of a single webhook."""


class WebhookService:
    """The webhooks of all streams of a service."""

    def __init__(
        self, store: Store, settings: Settings, streams: KnownStreams, notify: Callable[[str, str], None]
    ) -> None:
        """`notify(name, incarnation)` is called after each change of the webhooks of a stream."""
        self._store = store
        self._settings = settings
        self._streams = streams
        self._notify = notify

    async def put(
        self, stream_name: str, name: str, *, url: str, events: Sequence[str], secret: str
    ) -> tuple[WebhookStatus, bool]:
        """Create a webhook, which gets the events from now on, or change the one of this name, which goes on.

        True when it was created. Raises ParameterError, LimitError, UnknownStreamError, and as `Stream.view`.
        """
        self._streams.refuse_when_stopping()
        check_url(url, allow_private=self._settings.webhook_allow_private)
        key_of_secret(secret)
        stream = await self._streams.get(stream_name)
        view = await stream.view(None, LOAD_S)
        begins = max(stream.view_source.feed.end, EventPlace(view.seq + 1, 0))
        asked = Webhook(
            str(uuid.uuid4()), name, url, tuple(dict.fromkeys(events)), secret, time.time(), (begins.seq, begins.nth)
        )
        documents = self._documents(stream)
        webhook, created = await asyncio.to_thread(documents.put, asked)
        self._notify(stream.name, stream.record.incarnation)
        return WebhookStatus(stream, webhook, await asyncio.to_thread(documents.state, webhook)), created

    async def all(self, stream_name: str) -> tuple[Stream, list[WebhookStatus]]:
        """The webhooks of a stream, by name. Raises UnknownStreamError."""
        stream = await self._streams.get(stream_name)
        documents = self._documents(stream)
        webhooks = await asyncio.to_thread(documents.all)
        states = await asyncio.to_thread(documents.states, webhooks)
        return stream, [WebhookStatus(stream, *each) for each in zip(webhooks, states, strict=True)]

    async def one(self, stream_name: str, name: str) -> WebhookStatus:
        """One webhook, with its dead deliveries. Raises UnknownStreamError, UnknownWebhookError."""
        stream = await self._streams.get(stream_name)
        documents = self._documents(stream)
        webhook = await asyncio.to_thread(documents.get, name)
        state = await asyncio.to_thread(documents.state, webhook)
        return WebhookStatus(stream, webhook, state, await asyncio.to_thread(documents.dead, webhook))

    async def delete(self, stream_name: str, name: str) -> None:
        """Delete a webhook with its dead deliveries. Raises UnknownStreamError, UnknownWebhookError."""
        self._streams.refuse_when_stopping()
        stream = await self._streams.get(stream_name)
        await asyncio.to_thread(self._documents(stream).delete, name)
        self._notify(stream.name, stream.record.incarnation)

    def _documents(self, stream: Stream) -> WebhookDocuments:
        return WebhookDocuments(self._store, stream.name, stream.record.incarnation)
