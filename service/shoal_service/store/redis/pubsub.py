"""What is said on one channel, heard from every process: one subscription, many threads that wait, or a listener.

News may be lost (a connection that breaks, a server that starts again), so they only ever say "look now": who waits
looks again by itself every second.
"""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator

import redis

from shoal_service.store.redis.connection import Link, Links

LOOK_S = 1.0
"""How long a lost piece of news can delay a wait."""
_LISTEN_S = 0.25

_log = logging.getLogger("shoal_service.store")


class Listening:
    """One thread's wait for one stream."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def wait(self, timeout_s: float) -> None:
        """Until there is news, or `timeout_s`, or a second, is over."""
        self._event.wait(min(timeout_s, LOOK_S))
        self._event.clear()

    def hear(self) -> None:
        """There is news."""
        self._event.set()


class News:
    """Listens from the first wait to `close`."""

    def __init__(self, links: Links, channel: str) -> None:
        self._links = links
        self._channel = channel
        self._lock = threading.Lock()
        self._waiting: dict[bytes, set[Listening]] = {}
        self._hear: Callable[[str | None], None] | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    @contextlib.contextmanager
    def of(self, tag: str) -> Iterator[Listening]:
        """To be entered before looking: what happens after the look is heard, then."""
        listening, key = Listening(), tag.encode()
        with self._lock:
            self._start()
            self._waiting.setdefault(key, set()).add(listening)
        try:
            yield listening
        finally:
            with self._lock:
                others = self._waiting[key]
                others.discard(listening)
                if not others:
                    del self._waiting[key]

    def listen(self, hear: Callable[[str | None], None]) -> None:
        """Have everything that is said given to `hear`, in this object's thread: it is brief, and calls no verb.

        None stands for whatever was said while nobody could hear it.
        """
        with self._lock:
            self._hear = hear
            self._start()

    def _start(self) -> None:
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(target=self._run, name="shoal-redis-news", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Wake everybody, and stop listening. Idempotent."""
        self._closing.set()
        self._tell_all()
        if self._thread is not None:
            self._thread.join()

    # -- in the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                link = self._links.connect()
            except redis.exceptions.RedisError as error:
                _log.debug("no news from redis: %s", error)
                self._closing.wait(LOOK_S)
                continue
            try:
                self._listen(link)
            except redis.exceptions.RedisError as error:
                _log.debug("no more news from redis: %s", error)
            finally:
                link.close()

    def _listen(self, link: Link) -> None:
        link.exchange([("SUBSCRIBE", self._channel)])
        self._tell_all()  # what came before that was not heard
        while not self._closing.is_set():
            if (message := link.heard(_LISTEN_S)) is not None:
                self._tell(message[2])

    def _tell(self, tag: bytes) -> None:
        if self._hear is not None:
            self._hear(tag.decode("utf-8", "replace"))
        with self._lock:
            for listening in self._waiting.get(tag, ()):
                listening.hear()

    def _tell_all(self) -> None:
        if self._hear is not None:
            self._hear(None)
        with self._lock:
            for waiting in self._waiting.values():
                for listening in waiting:
                    listening.hear()
