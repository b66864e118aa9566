"""Connections to Redis without retries of their own, with raw replies, and its errors as errors of the store."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from shoal_service.errors import LogGapError, StoreError, StoreUnavailableError
from shoal_service.store import rules
from shoal_service.store.redis import sentinel

BytesLike: TypeAlias = bytes | memoryview
"""Part of a message. Of a memoryview, the format is bytes."""
Word: TypeAlias = str | bytes | memoryview | int | float
Command: TypeAlias = tuple[Word, ...]

MAX_READERS = 16
CONNECT_TIMEOUT_S = 2.0


class Connections:
    """Connections to one server: a pool for questions, and single ones for callers that keep one."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Connect to nothing yet. ValueError for a wrong address."""
        options: dict[str, Any] = {
            "protocol": 2,  # the shape of a reply depends on it
            "decode_responses": False,
            "retry": Retry(NoBackoff(), 0),  # a repeated append is a second entry
            "retry_on_timeout": False,
            "socket_timeout": timeout_s,
            "socket_connect_timeout": min(CONNECT_TIMEOUT_S, timeout_s),
            "socket_keepalive": True,
        }
        if url.startswith("unix:"):
            del options["socket_keepalive"]
        self.where = without_password(url)
        limits: dict[str, Any] = {"max_connections": MAX_READERS, "timeout": timeout_s}
        self._primary: sentinel.Primary | None = None
        self._pool: Any
        if sentinel.is_sentinel_url(url):
            self._pool, self._primary = sentinel.pool_at_primary(url, options, **limits)
        else:
            self._pool = redis.BlockingConnectionPool.from_url(url, **limits)
        self._pool.connection_kwargs.update(options)  # they override the address
        self._closed = False

    def connect(self) -> "Connection":
        """Return a new connection. The caller closes it."""
        connection = Connection(self._pool.connection_class(**self._pool.connection_kwargs))
        connection.open()
        return connection

    def subscribe(self, channels: Sequence[str]) -> "Connection":
        """Return a new connection that is subscribed to channels, for `Connection.next_message`. The caller closes it.

        Raises the error when the server refuses a channel: such a connection would never have a message.
        """
        connection = self.connect()
        try:
            for reply in connection.exchange([("SUBSCRIBE", channel) for channel in channels]):
                if isinstance(reply, Exception):
                    raise reply
        except BaseException:
            connection.close()
            raise
        return connection

    def ask(self, *commands: Command) -> list[Any]:
        """Send commands that change nothing, and return their replies in order.

        When the connection breaks, they are sent once more, because a restarted server has closed those of the pool.
        StoreUnavailableError when that fails too, when the time is up, and for any reply that is an error.
        """
        for last in (False, True):
            try:
                with self._borrowed() as connection:
                    replies = connection.exchange(commands)
            except redis.exceptions.RedisError as error:
                if last or not isinstance(error, redis.exceptions.ConnectionError):
                    raise self.error(error) from error
                continue
            break
        for reply in replies:
            if isinstance(reply, redis.exceptions.RedisError):
                raise self.error(reply) from reply
        return replies

    def publish(self, channel: str, parts: Sequence[BytesLike]) -> int:
        """Publish a message that consists of these parts, and return the number of connections that got it.

        When the connection breaks, it is sent once more. Errors as in `ask`.
        """
        for last in (False, True):
            try:
                with self._borrowed() as connection:
                    return connection.publish(channel, parts)
            except redis.exceptions.RedisError as error:
                if last or not isinstance(error, redis.exceptions.ConnectionError):
                    raise self.error(error) from error
        raise AssertionError("the second try returns or raises")

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator["Connection"]:
        if self._closed:
            raise rules.closed()
        pool = self._pool
        connection = pool.get_connection()
        try:
            yield Connection(connection)
        except BaseException:
            connection.disconnect()  # its next reply would belong to no question
            raise
        finally:
            pool.release(connection)

    def has_moved(self, connection: "Connection") -> bool:
        """Whether the sentinels name another primary than the one that `connection` leads to. False without sentinels,
        and while none of them answers. Idle connections to the old primary are closed.
        """
        if self._primary is None:
            return False
        try:
            moved = self._primary.address() != connection.address
        except redis.exceptions.RedisError:
            return False
        if moved:
            self._pool.disconnect(inuse_connections=False)
        return moved

    def error(self, error: Exception) -> StoreError:
        """Convert an error of the client to one of the store."""
        if "equal or smaller than the target stream" in str(error):
            return LogGapError(
                f"redis at {self.where} has an entry of this number already: the stream's counters are behind its log, "
                "as after a restore of half its keys; delete the stream and restore a snapshot file"
            )
        return StoreUnavailableError(f"redis at {self.where} {_complaint(error)}")

    def close(self) -> None:
        """Close the pool. May be called again."""
        self._closed = True
        self._pool.disconnect()


class Connection:
    """One connection. Its methods raise errors of the client when it breaks. Close it then."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._heard_at = time.monotonic()
        self._pinged_at: float | None = None  # since it was last heard of

    def open(self) -> None:
        """Connect and authenticate."""
        try:
            self._connection.connect()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it is connected to. Not for a socket file."""
        return self._connection.host, self._connection.port

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send all, then read all replies. A reply that is an error stays in the list."""
        self._connection.send_packed_command(self._connection.pack_commands(commands))
        return [self._reply() for _ in commands]

    def publish(self, channel: str, parts: Sequence[BytesLike]) -> int:
        """Publish a message without joining its parts."""
        name, size = channel.encode(), sum(len(part) for part in parts)
        head = b"*3\r\n$7\r\nPUBLISH\r\n$%d\r\n%b\r\n$%d\r\n" % (len(name), name, size)
        self._connection.send_packed_command([head, *parts, b"\r\n"])
        return int(self._connection.read_response())

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.exceptions.ResponseError as error:
            return error

    def next_message(self, timeout_s: float) -> Any:
        """Return the next message of a subscription. None when none comes in time.

        A server that has lost this connection without a word, as through a cut network, looks like one that has nothing
        to say. So it is pinged when it has said nothing for as long as an answer may take. The connection counts as
        broken when that is not answered either.
        """
        if self._connection.can_read(timeout_s):
            message = self._connection.read_response()
            self._heard_at, self._pinged_at = time.monotonic(), None
            return None if message[0] == b"pong" else message
        now, limit_s = time.monotonic(), self._connection.socket_timeout
        if self._pinged_at is None:
            if now - self._heard_at > limit_s:
                self._connection.send_command("PING", check_health=False)
                self._pinged_at = now
        elif now - self._pinged_at > limit_s:
            raise redis.exceptions.TimeoutError(f"a subscription got no answer to PING within {limit_s:g} s")
        return None

    def close(self) -> None:
        """Close the connection. May be called again."""
        self._connection.disconnect()


def without_password(url: str) -> str:
    """Return the address without user and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _complaint(error: Exception) -> str:
    if isinstance(error, redis.exceptions.OutOfMemoryError):
        return "is at its memory limit (maxmemory): give it more, or let the learner catch up"
    if isinstance(error, redis.exceptions.ReadOnlyError):
        return "is a replica: point the address at the primary"
    if isinstance(error, redis.exceptions.AuthenticationError):
        return f"refused the password: {error}; put the right user and password in the address"
    if isinstance(error, redis.exceptions.TimeoutError):
        return f"did not answer in time: {error}"
    if isinstance(error, redis.exceptions.BusyLoadingError):
        return "is loading its data: wait until it is done"
    if isinstance(error, redis.exceptions.ConnectionError):
        return f"cannot be reached: {error}"
    return f"refused: {error}"
