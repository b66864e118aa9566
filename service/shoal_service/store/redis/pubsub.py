"""Subscription to one channel, with many waiting threads or one callback.

A message may be lost when a connection breaks or a server restarts. Messages therefore only ask to look again, and a
waiting thread looks again by itself every second.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import redis

from shoal_service.store.contract import Wake
from shoal_service.store.redis.connection import Connection, Connections

POLL_S = 1.0
"""Longest delay that a lost message can cause."""
_LISTEN_S = 0.25

_log = logging.getLogger("shoal_service.store")


class StreamWait:
    """Wait of one thread for one stream."""

    def __init__(self, event: threading.Event | None) -> None:
        """With an `event` of the caller, the wait ends when that is set, and leaves it set."""
        self._event = threading.Event() if event is None else event
        self._own = event is None

    def wait(self, timeout_s: float) -> None:
        """Block until a message comes, but no longer than `timeout_s` or one second."""
        self._event.wait(min(timeout_s, POLL_S))
        if self._own:
            self._event.clear()

    def wake(self) -> None:
        """End the wait."""
        self._event.set()


class Subscription:
    """Subscription from the first wait to `close`."""

    def __init__(self, connections: Connections, channel: str) -> None:
        self._connections = connections
        self._channel = channel
        self._lock = threading.Lock()
        self._waiting: dict[bytes, set[StreamWait]] = {}
        self._watching: dict[bytes, set[Wake]] = {}
        self._on_message: Callable[[str | None], None] | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    @contextlib.contextmanager
    def waiting_for(self, tag: str, event: threading.Event | None = None) -> Iterator[StreamWait]:
        """Wait for messages about one stream. Enter before looking, so that no message after the look is missed."""
        wait, key = StreamWait(event), tag.encode()
        with self._lock:
            self._start()
            self._waiting.setdefault(key, set()).add(wait)
        try:
            yield wait
        finally:
            with self._lock:
                others = self._waiting[key]
                others.discard(wait)
                if not others:
                    del self._waiting[key]

    def watch(self, tag: str, event: Wake) -> None:
        """Set an event with each message about one stream, and when messages may have been missed."""
        with self._lock:
            self._start()
            self._watching.setdefault(tag.encode(), set()).add(event)

    def unwatch(self, tag: str, event: Wake) -> None:
        """Undo `watch`."""
        with self._lock:
            watching = self._watching.get(tag.encode(), set())
            watching.discard(event)
            if not watching:
                self._watching.pop(tag.encode(), None)

    def listen(self, on_message: Callable[[str | None], None]) -> None:
        """Call `on_message` with each message, in the thread of this object. It must be short and call no method.

        None stands for messages that may have been missed.
        """
        with self._lock:
            self._on_message = on_message
            self._start()

    def _start(self) -> None:
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="shoal-redis-pubsub", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wake all waiting threads and unsubscribe. May be called again."""
        self._closing.set()
        self._notify_all()
        if self._thread is not None:
            self._thread.join()

    # -- in the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                connection = self._connections.subscribe([self._channel])
            except redis.exceptions.RedisError as error:
                _log.debug("no subscription to redis: %s", error)
                self._closing.wait(POLL_S)
                continue
            try:
                self._listen(connection)
            except redis.exceptions.RedisError as error:
                _log.debug("the subscription to redis ended: %s", error)
            finally:
                connection.close()

    def _listen(self, connection: Connection) -> None:
        self._notify_all()  # earlier messages were missed
        while not self._closing.is_set():
            if (message := connection.next_message(_LISTEN_S)) is not None:
                self._notify(message[2])

    def _call_back(self, message: str | None) -> None:
        if self._on_message is None:
            return
        try:
            self._on_message(message)
        except Exception:  # noqa: BLE001 - without this thread, waits for entries would end late
            _log.exception("the message %r from redis could not be handled", message)

    def _notify(self, tag: bytes) -> None:
        self._call_back(tag.decode("utf-8", "replace"))
        with self._lock:
            for wait in self._waiting.get(tag, ()):
                wait.wake()
            for event in self._watching.get(tag, ()):
                event.set()

    def _notify_all(self) -> None:
        self._call_back(None)
        with self._lock:
            for waiting in self._waiting.values():
                for wait in waiting:
                    wait.wake()
            for watching in self._watching.values():
                for event in watching:
                    event.set()
