"""Reading of request bodies. A body over the limit is refused early, and a body that is cut off leaves nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import NamedTuple

from starlette.requests import Request

from shoal_service.errors import BodyTooLargeError, MalformedBodyError, NotReadyError, OverloadedError

LAST_MOMENT_S = 0.1
"""Seconds in which the rest of a body may still arrive when the service stops."""


class Upload(NamedTuple):
    """One request body, with its content type and encoding."""

    body: bytes
    content_type: str | None
    content_encoding: str | None


class Uploads:
    """Bodies that are being received or processed, with a limit on their total size."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._held_bytes = 0
        self._reading: set[asyncio.Task[object]] = set()
        self._stopped = False

    def stop(self) -> None:
        """Refuse bodies that are not complete yet. Safe in a signal handler."""
        self._stopped = True
        for task in tuple(self._reading):
            loop = task.get_loop()
            loop.call_soon_threadsafe(loop.call_later, LAST_MOMENT_S, self._interrupt, task)

    def _interrupt(self, task: "asyncio.Task[object]") -> None:
        if task in self._reading:  # otherwise its body is complete by now
            task.cancel()

    @contextmanager
    def _until_stopped(self) -> Iterator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._reading.add(task)
        try:
            if self._stopped:
                raise _stopping()
            yield
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            task.uncancel()
            raise _stopping() from None
        finally:
            self._reading.discard(task)

    @asynccontextmanager
    async def read(self, request: Request, limit_bytes: int) -> AsyncIterator[Upload]:
        """Read the whole body. It counts against the budget until the block ends.

        Raises BodyTooLargeError as soon as the body is known to be over `limit_bytes`, MalformedBodyError for a bad
        Content-Length, OverloadedError if all bodies together are over the budget, ClientDisconnect if the body is cut
        off, and NotReadyError if the service stops before the body is complete.
        """
        _check_announced(request.headers.get("content-length"), limit_bytes)
        chunks: list[bytes] = []
        size = 0
        try:
            with self._until_stopped():
                async with aclosing(request.stream()) as stream:
                    async for chunk in stream:
                        self._hold(len(chunk), size)
                        size += len(chunk)
                        if size > limit_bytes:
                            raise _too_large(limit_bytes)
                        chunks.append(chunk)
            headers = request.headers
            body = chunks[0] if len(chunks) == 2 and not chunks[1] else b"".join(chunks)
            chunks.clear()
            yield Upload(body, headers.get("content-type"), headers.get("content-encoding"))
        finally:
            self._held_bytes -= size

    def _hold(self, n_bytes: int, own_bytes: int) -> None:
        """Count more bytes of a body. A body that is alone may be larger than the budget, up to its own limit."""
        others = self._held_bytes - own_bytes
        if others and self._held_bytes + n_bytes > self._budget_bytes:
            raise OverloadedError(
                f"{others} bytes of other bodies are being received; send the request again in a moment"
            )
        self._held_bytes += n_bytes


def _check_announced(content_length: str | None, limit_bytes: int) -> None:
    if content_length is None:
        return
    if not content_length.isascii() or not content_length.isdigit():
        raise MalformedBodyError(f"Content-Length is {content_length[:40]!r}; send the number of bytes")
    if int(content_length) > limit_bytes:
        raise _too_large(limit_bytes)


def _stopping() -> NotReadyError:
    return NotReadyError("the service is stopping; send the request again when it has restarted")


def _too_large(limit_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than the limit of {limit_bytes} bytes; send smaller batches")
