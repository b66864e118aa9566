"""Talking to Redis: connections without retries of their own, raw replies, and Redis's errors as ours."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from shoal_service.errors import LogGapError, StoreError, StoreUnavailableError
from shoal_service.store import rules

Word: TypeAlias = str | bytes | memoryview | int | float
Command: TypeAlias = tuple[Word, ...]

MAX_READERS = 16
CONNECT_TIMEOUT_S = 2.0


class Links:
    """The way to one server: a pool of connections for questions, and single ones for who keeps one to itself."""

    def __init__(self, url: str, timeout_s: float) -> None:
        """Connects to nothing yet. ValueError for an address that is none."""
        ours: dict[str, Any] = {
            "protocol": 2,  # pinned: the shapes of the replies depend on it
            "decode_responses": False,
            "retry": Retry(NoBackoff(), 0),  # a repeated append is a second entry
            "retry_on_timeout": False,
            "socket_timeout": timeout_s,
            "socket_connect_timeout": min(CONNECT_TIMEOUT_S, timeout_s),
            "socket_keepalive": True,
        }
        if url.startswith("unix:"):
            del ours["socket_keepalive"]
        self.where = shown(url)
        self._pool = redis.BlockingConnectionPool.from_url(url, max_connections=MAX_READERS, timeout=timeout_s)
        self._pool.connection_kwargs.update(ours)  # after the address, which could say otherwise
        self._closed = False

    def connect(self) -> "Link":
        """A connection of one's own, connected; the caller closes it."""
        link = Link(self._pool.connection_class(**self._pool.connection_kwargs))
        link.open()
        return link

    def ask(self, *commands: Command) -> list[Any]:
        """The replies to commands that change nothing, in order.

        Asked once more when the connection breaks, since a server that was started again has closed those of the pool.
        StoreUnavailableError when that fails, when time is up, and for any reply that is an error.
        """
        for last in (False, True):
            try:
                with self._borrowed() as link:
                    replies = link.exchange(commands)
            except redis.exceptions.RedisError as error:
                if last or not isinstance(error, redis.exceptions.ConnectionError):
                    raise self.error(error) from error
                continue
            break
        for reply in replies:
            if isinstance(reply, redis.exceptions.RedisError):
                raise self.error(reply) from reply
        return replies

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator["Link"]:
        if self._closed:
            raise rules.closed()
        pool: Any = self._pool
        connection = pool.get_connection()
        try:
            yield Link(connection)
        except BaseException:
            connection.disconnect()  # whatever it would answer next belongs to nobody
            raise
        finally:
            pool.release(connection)

    def error(self, error: Exception) -> StoreError:
        """What went wrong at this server, as the error to raise."""
        if "equal or smaller than the target stream" in str(error):
            return LogGapError(
                f"redis at {self.where} has an entry of this number already: the stream's counters are behind its log, "
                "as after a restore of half its keys; restore the stream from a snapshot"
            )
        return StoreUnavailableError(f"redis at {self.where} {_complaint(error)}")

    def close(self) -> None:
        """Let go of the pool. Idempotent."""
        self._closed = True
        self._pool.disconnect()


class Link:
    """One connection. Its verbs raise the client's errors when it breaks; it is to be closed then."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def open(self) -> None:
        """Connect, and introduce ourselves."""
        try:
            self._connection.connect()
        except BaseException:
            self.close()
            raise

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send all, then read all replies; a reply that is an error is in the list."""
        self._connection.send_packed_command(self._connection.pack_commands(commands))
        return [self._reply() for _ in commands]

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except redis.exceptions.ResponseError as error:
            return error

    def heard(self, timeout_s: float) -> Any:
        """The next message of a subscription, None when none comes in time."""
        return self._connection.read_response() if self._connection.can_read(timeout_s) else None

    def close(self) -> None:
        """Hang up. Idempotent."""
        self._connection.disconnect()


def shown(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _complaint(error: Exception) -> str:
    if isinstance(error, redis.exceptions.OutOfMemoryError):
        return "is at its memory limit (maxmemory): give it more, or let the learner catch up"
    if isinstance(error, redis.exceptions.ReadOnlyError):
        return "is a replica: point the address at the primary"
    if isinstance(error, redis.exceptions.TimeoutError):
        return f"did not answer in time: {error}"
    if isinstance(error, redis.exceptions.BusyLoadingError):
        return "is loading its data: wait until it is done"
    if isinstance(error, redis.exceptions.ConnectionError):
        return f"cannot be reached: {error}"
    return f"refused: {error}"
