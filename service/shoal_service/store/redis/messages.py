"""Messages between the processes of one service, by channels of Redis. Nothing of them is kept, on disk or in memory.

They may be large. Their parts are written to the socket one after another: joining megabytes would cost more than
sending them.
"""

import logging
import threading
from collections.abc import Callable, Sequence

import redis

from shoal_service.store.redis.connection import BytesLike, Connection, Connections
from shoal_service.store.redis.pubsub import POLL_S

_LISTEN_S = 0.25

_log = logging.getLogger("shoal_service.store")


class RedisMessages:
    """Implementation of `ProcessMessages`."""

    def __init__(self, connections: Connections, prefix: str) -> None:
        self._connections = connections
        self._prefix = prefix
        self._channels: tuple[str, ...] = ()
        self._on_message: Callable[[bytes | None], None] = lambda message: None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def listen(self, channels: Sequence[str], on_message: Callable[[bytes | None], None]) -> None:
        """See `ProcessMessages.listen`."""
        self._channels = tuple(self._full(channel) for channel in channels)
        self._on_message = on_message
        self._thread = threading.Thread(target=self._run, name="shoal-redis-messages", daemon=True)
        self._thread.start()

    def send(self, channel: str, *parts: BytesLike) -> int:
        """See `ProcessMessages.send`."""
        return self._connections.publish(self._full(channel), parts)

    def close(self) -> None:
        """Listen no more. May be called again."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _full(self, channel: str) -> str:
        return f"{self._prefix}:{{registry}}:{channel}"

    # -- in the thread

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                connection = self._connections.subscribe(self._channels)
            except redis.exceptions.RedisError as error:
                _log.debug("no messages from redis: %s", error)
                self._closing.wait(POLL_S)
                continue
            try:
                self._listen(connection)
            except redis.exceptions.RedisError as error:
                _log.debug("the messages from redis ended: %s", error)
            finally:
                connection.close()

    def _listen(self, connection: Connection) -> None:
        self._on_message(None)
        while not self._closing.is_set():
            if (message := connection.next_message(_LISTEN_S)) is not None:
                self._on_message(message[2])
