"""Sender of webhooks: one thread with an event loop, which runs a delivery for each webhook of streams learnt here.

Only the process that learns a stream has its feed, so a fleet has one sender for each stream. When another process
takes over, the deliveries end with the learner, and go on there from the position in the store.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import httpx

from shoal_service.errors import StoreError, StreamGoneError
from shoal_service.settings import Settings
from shoal_service.store import Store
from shoal_service.streams.events import Feed, FeedEvent
from shoal_service.streams.labels import label_book, labelled
from shoal_service.streams.record_index import FamilyTree
from shoal_service.streams.webhooks.attempt import Limits, Message, new_client, send
from shoal_service.streams.webhooks.definition import Webhook
from shoal_service.streams.webhooks.delivery import Delivery
from shoal_service.streams.webhooks.documents import WebhookDocuments

LOOK_S = 1.0
"""Time between two looks for learners that have come or gone. They cost no call of the store."""
READ_S = 30.0
"""Time after which the webhooks of a stream are read again, in case that no process has told of a change."""


class LearntStream(NamedTuple):
    """Stream that this process learns."""

    name: str
    incarnation: str
    feed: Feed
    family_tree: Callable[[], FamilyTree | None]
    """The live components and their descent, for labels."""


class _Running(NamedTuple):
    delivery: Delivery
    task: "asyncio.Task[None]"


class _Known(NamedTuple):
    """Stream whose webhooks were read."""

    feed: Feed
    read_at: float
    running: dict[str, _Running]


class WebhookSender:
    """Sends webhooks between `start` and `close`, which blocks. Any thread may call `notify`."""

    def __init__(
        self, store: Store, settings: Settings, log: Any, streams: Callable[[], Mapping[str, LearntStream]]
    ) -> None:
        """`streams` gives those that this process learns now, by name."""
        self._store = store
        self._settings = settings
        self._log = log
        self._streams = streams
        self._limits = Limits(settings.webhook_timeout_s, settings.webhook_allow_private)
        self._known: dict[tuple[str, str], _Known] = {}
        self._changed: set[tuple[str, str]] = set()  # streams whose webhooks were changed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="shoal-webhooks", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def notify(self, name: str, incarnation: str) -> None:
        """Tell that the webhooks of a stream were changed."""
        self._call(lambda: self._changed.add((name, incarnation)))

    def close(self, timeout_s: float) -> None:
        """End. A message that is being sent may be sent again by the next process."""
        if self._thread.ident is None:
            return

        def stop() -> None:
            self._stopping = True

        self._call(stop)
        self._thread.join(timeout_s)

    def _call(self, change: Callable[[], None]) -> None:
        """Make a change in the thread's loop, and wake it."""

        def changed() -> None:
            change()
            self._wake.set()

        loop = self._loop
        if loop is None or not self._thread.is_alive():
            change()
            return
        try:
            loop.call_soon_threadsafe(changed)
        except RuntimeError:  # the loop has closed meanwhile
            change()

    # -- the thread

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with new_client() as client:
            while not self._stopping:
                self._wake.clear()
                try:
                    await self._look(client)
                except Exception:  # noqa: BLE001 - without this thread nothing is sent: it continues, and logs the error
                    self._log.error("webhooks_failed", exc_info=True)
                try:
                    await asyncio.wait_for(self._wake.wait(), LOOK_S)
                except TimeoutError:
                    continue
            for known in tuple(self._known.values()):
                await self._end(known.running, save=True)

    async def _look(self, client: httpx.AsyncClient) -> None:
        """Bring the deliveries in line with the learners of this process and with the webhooks of their streams."""
        streams = {(one.name, one.incarnation): one for one in self._streams().values()}
        for key in self._known.keys() - streams.keys():
            await self._end(self._known.pop(key).running, save=True)
        changed, self._changed = self._changed, set()
        for key, stream in streams.items():
            known = self._known.get(key)
            if known is not None and known.feed is not stream.feed:
                await self._end(self._known.pop(key).running, save=True)
                known = None
            if known is None or key in changed or time.monotonic() - known.read_at >= READ_S or _has_ended(known):
                await self._read(client, key, stream, {} if known is None else known.running)
            if (known := self._known.get(key)) is not None:
                positions = [one.delivery.position for one in known.running.values()]
                stream.feed.needed = min((place for place in positions if place is not None), default=None)

    async def _read(
        self, client: httpx.AsyncClient, key: tuple[str, str], stream: LearntStream, running: dict[str, _Running]
    ) -> None:
        documents = WebhookDocuments(self._store, *key)
        try:
            webhooks = {one.name: one for one in await asyncio.to_thread(documents.all)}
        except StreamGoneError:
            return
        except StoreError as error:
            self._log.warning("webhooks_unread", stream=key[0], reason=str(error))
            return
        gone = {name: one for name, one in running.items() if webhooks.get(name) != one.delivery.webhook}
        gone |= {name: one for name, one in running.items() if one.task.done()}
        await self._end(gone)
        kept = {name: one for name, one in running.items() if name not in gone}
        for name in webhooks.keys() - kept.keys():
            kept[name] = self._begin(client, webhooks[name], stream, documents)
        self._known[key] = _Known(stream.feed, time.monotonic(), kept)

    def _begin(
        self, client: httpx.AsyncClient, webhook: Webhook, stream: LearntStream, documents: WebhookDocuments
    ) -> _Running:
        book = label_book(self._store, stream.name, stream.incarnation)

        async def send_one(webhook: Webhook, message: Message) -> str | None:
            return await send(client, webhook, message, self._limits)

        async def named(event: FeedEvent) -> FeedEvent:
            with contextlib.suppress(StoreError):  # then by the labels that were read last
                await asyncio.to_thread(book.labels)
            return labelled(event, book.last.among(stream.family_tree()))

        delivery = Delivery(
            webhook,
            (stream.name, stream.incarnation),
            stream.feed,
            documents,
            send_one,
            named,
            retry_s=self._settings.webhook_retry_s,
            give_up_s=self._settings.webhook_give_up_s,
            log=self._log,
        )
        return _Running(delivery, asyncio.create_task(delivery.run()))

    async def _end(self, running: Mapping[str, _Running], *, save: bool = False) -> None:
        for one in running.values():
            one.task.cancel()
        for name, one in running.items():
            (found,) = await asyncio.gather(one.task, return_exceptions=True)
            if isinstance(found, Exception) and not isinstance(found, StreamGoneError):
                self._log.error("webhook_ended", webhook=name, reason=f"{type(found).__name__}: {found}")
            if save:
                with contextlib.suppress(StoreError):  # the events since then are sent again
                    await asyncio.to_thread(one.delivery.save_now)


def _has_ended(known: _Known) -> bool:
    return any(one.task.done() for one in known.running.values())
