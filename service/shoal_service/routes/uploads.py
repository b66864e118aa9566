"""Reading of request bodies. A body over the limit is refused early, and a body that is cut off leaves nothing."""

import asyncio
from collections.abc import Coroutine
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request

from shoal_service.errors import (
    BodyTooLargeError,
    MalformedBodyError,
    NotReadyError,
    OverloadedError,
    UploadTooSlowError,
)
from shoal_service.routes.authorization import meter_of

LAST_MOMENT_S = 0.1
"""Seconds in which the rest of a body may still arrive when the service stops."""

GRACE_S = 20.0
"""Seconds that a body may be slower than the least rate."""
LEAST_BYTES_A_SECOND = 4096
"""Lowest rate at which a body may arrive."""
SMALL_BYTES = 65_536
"""Largest body that counts as small."""
SMALL_BODIES_BYTES = 16 << 20
"""Largest total size of small bodies."""


class Upload(NamedTuple):
    """One request body, with its content type and encoding."""

    body: bytes
    content_type: str | None
    content_encoding: str | None


class _Budget:
    """Bytes that bodies of one kind may have together."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0


class Uploads:
    """Bodies that are being received or processed, with limits on their total size.

    Small bodies have a budget of their own, so that large ones which arrive slowly cannot keep them out.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._large, self._small = _Budget(budget_bytes), _Budget(SMALL_BODIES_BYTES)
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

    def read(self, request: Request, limit_bytes: int) -> "_Reading":
        """Context whose value is the whole body. It counts against the budget until the block ends.

        It raises BodyTooLargeError as soon as the body is known to be over `limit_bytes`, MalformedBodyError for a bad
        Content-Length, OverloadedError if all bodies together are over the budget, RateLimitedError if those of the
        caller's key are over its limit, ClientDisconnect if the body is cut off, UploadTooSlowError, and NotReadyError
        if the service stops before the body is complete.
        """
        return _Reading(self, request, limit_bytes)

    async def until_stopped(self, reading: Coroutine[object, object, bytes]) -> bytes:
        """Wait for a body. NotReadyError if the service stops before it is complete."""
        task = asyncio.current_task()
        assert task is not None
        self._reading.add(task)
        try:
            if self._stopped:
                reading.close()
                raise _stopping()
            return await reading
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            task.uncancel()
            raise _stopping() from None
        finally:
            self._reading.discard(task)

    def count(self, before: int, now: int) -> None:
        """Count a body of `before` bytes as one of `now`. A large body that is alone may be over the budget."""
        budget, last = self._budget_of(now), self._budget_of(before)
        others = budget.held_bytes - (before if budget is last else 0)
        if others and others + now > budget.limit_bytes:
            raise OverloadedError(
                f"{others} bytes of other bodies are being received; send the request again in a moment"
            )
        last.held_bytes -= before
        budget.held_bytes += now

    def release(self, n_bytes: int) -> None:
        """Count a body no longer."""
        self._budget_of(n_bytes).held_bytes -= n_bytes

    def _budget_of(self, n_bytes: int) -> _Budget:
        return self._small if n_bytes <= SMALL_BYTES else self._large


class _Reading:
    """One body that is received, and then processed within the context."""

    def __init__(self, uploads: Uploads, request: Request, limit_bytes: int) -> None:
        self._uploads, self._request, self._limit_bytes = uploads, request, limit_bytes
        self._meter = meter_of(request.scope)
        self._size = self._metered = 0

    async def __aenter__(self) -> Upload:
        headers = self._request.headers
        _check_announced(headers.get("content-length"), self._limit_bytes)
        try:
            body = await self._uploads.until_stopped(self._body())
        except BaseException:
            self._release()
            raise
        return Upload(body, headers.get("content-type"), headers.get("content-encoding"))

    async def __aexit__(self, *error: object) -> None:
        self._release()

    def _release(self) -> None:
        self._uploads.release(self._size)
        if self._meter is not None:
            self._meter.release(self._metered)

    async def _body(self) -> bytes:
        chunks: list[bytes] = []
        try:
            async with asyncio.timeout(GRACE_S) as timeout:
                more = True
                while more:
                    chunk, more = await _next_chunk(self._request)
                    self._count(len(chunk))
                    chunks.append(chunk)
                    if more:
                        _extend(timeout, len(chunk))
        except TimeoutError:
            raise UploadTooSlowError(
                f"the body arrives too slowly; send at least {LEAST_BYTES_A_SECOND} bytes per second"
            ) from None
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _count(self, n_bytes: int) -> None:
        size = self._size + n_bytes
        if self._meter is not None:
            self._meter.hold(self._metered, size)
            self._metered = size
        self._uploads.count(self._size, size)
        self._size = size
        if size > self._limit_bytes:
            raise _too_large(self._limit_bytes)


async def _next_chunk(request: Request) -> tuple[bytes, bool]:
    """The next part of a body, and whether more follows. Raises ClientDisconnect.

    Most bodies have one part. The generator of `Request.stream` takes several times as long for it.
    """
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


def _extend(timeout: asyncio.Timeout, n_bytes: int) -> None:
    """Give a body more time for the bytes that have arrived."""
    when = timeout.when()
    assert when is not None
    latest = asyncio.get_running_loop().time() + GRACE_S  # so that a fast beginning buys no long pause
    timeout.reschedule(min(when + n_bytes / LEAST_BYTES_A_SECOND, latest))


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
