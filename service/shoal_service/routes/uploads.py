"""Request bodies, read while they come: over the limit they are refused without being kept, cut off they leave
nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import NamedTuple

from starlette.requests import Request

from shoal_service.errors import BodyTooLargeError, MalformedBodyError, NotReadyError, OverloadedError

LAST_MOMENT_S = 0.1
"""What is on its way already may arrive when the service stops: the rest of a body, or that its client has gone."""


class Upload(NamedTuple):
    """One request body, and what its headers say of it."""

    body: bytes
    content_type: str | None
    content_encoding: str | None


class Uploads:
    """Bodies of this service that are being read or worked on: together they may hold so many bytes."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget_bytes = budget_bytes
        self._held_bytes = 0
        self._reading: set[asyncio.Task[object]] = set()
        self._stopped = False

    def stop(self) -> None:
        """Refuse bodies that are not whole yet: nobody waits for the rest. Safe in a signal handler."""
        self._stopped = True
        for task in tuple(self._reading):
            loop = task.get_loop()
            loop.call_soon_threadsafe(loop.call_later, LAST_MOMENT_S, self._interrupt, task)

    def _interrupt(self, task: "asyncio.Task[object]") -> None:
        if task in self._reading:  # else its body has become whole meanwhile
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
        """The whole body, counted as held until the block ends.

        BodyTooLargeError as soon as it is known to be over `limit_bytes`, MalformedBodyError for a Content-Length that
        is none, OverloadedError when all bodies together are over the budget, ClientDisconnect when it is cut off,
        NotReadyError when the service stops before it is whole.
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
        """Count more bytes of a body; one that is alone is taken whatever its size, up to its own limit."""
        others = self._held_bytes - own_bytes
        if others and self._held_bytes + n_bytes > self._budget_bytes:
            raise OverloadedError(f"other bodies of {others} bytes are being received; send again in a moment")
        self._held_bytes += n_bytes


def _check_announced(content_length: str | None, limit_bytes: int) -> None:
    if content_length is None:
        return
    if not content_length.isascii() or not content_length.isdigit():
        raise MalformedBodyError(f"Content-Length is {content_length[:40]!r}; send the number of bytes")
    if int(content_length) > limit_bytes:
        raise _too_large(limit_bytes)


def _stopping() -> NotReadyError:
    return NotReadyError("the service is stopping; send again when it runs")


def _too_large(limit_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is over {limit_bytes} bytes, the most that is taken; send smaller batches")
