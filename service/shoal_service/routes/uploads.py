"""Reading of request bodies. A body over the limit is refused early, and a body that is cut off leaves nothing."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import NamedTuple

from starlette.requests import Request

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
        Content-Length, OverloadedError if all bodies together are over the budget, RateLimitedError if those of the
        caller's key are over its limit, ClientDisconnect if the body is cut off, UploadTooSlowError, and NotReadyError
        if the service stops before the body is complete.
        """
        _check_announced(request.headers.get("content-length"), limit_bytes)
        chunks: list[bytes] = []
        size = metered = 0
        meter = meter_of(request.scope)
        try:
            with self._until_stopped():
                async with _least_rate() as deadline, aclosing(request.stream()) as stream:
                    async for chunk in stream:
                        if meter is not None:
                            meter.hold(metered, size + len(chunk))
                            metered = size + len(chunk)
                        self._count(size, size + len(chunk))
                        size += len(chunk)
                        if size > limit_bytes:
                            raise _too_large(limit_bytes)
                        chunks.append(chunk)
                        deadline.extend(len(chunk))
            headers = request.headers
            body = chunks[0] if len(chunks) == 2 and not chunks[1] else b"".join(chunks)
            chunks.clear()
            yield Upload(body, headers.get("content-type"), headers.get("content-encoding"))
        finally:
            self._budget_of(size).held_bytes -= size
            if meter is not None:
                meter.release(metered)

    def _count(self, before: int, now: int) -> None:
        """Count a body of `before` bytes as one of `now`. A large body that is alone may be over the budget."""
        budget, last = self._budget_of(now), self._budget_of(before)
        others = budget.held_bytes - (before if budget is last else 0)
        if others and others + now > budget.limit_bytes:
            raise OverloadedError(
                f"{others} bytes of other bodies are being received; send the request again in a moment"
            )
        last.held_bytes -= before
        budget.held_bytes += now

    def _budget_of(self, n_bytes: int) -> _Budget:
        return self._small if n_bytes <= SMALL_BYTES else self._large


class _Deadline:
    """Time by which more of a body must arrive."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout

    def extend(self, n_bytes: int) -> None:
        """Give the body more time for the bytes that have arrived."""
        when = self._timeout.when()
        assert when is not None
        latest = asyncio.get_running_loop().time() + GRACE_S  # so that a fast beginning buys no long pause
        self._timeout.reschedule(min(when + n_bytes / LEAST_BYTES_A_SECOND, latest))


@asynccontextmanager
async def _least_rate() -> AsyncIterator[_Deadline]:
    """Raise UploadTooSlowError if a body is slower than the least rate for `GRACE_S`."""
    try:
        async with asyncio.timeout(GRACE_S) as timeout:
            yield _Deadline(timeout)
    except TimeoutError:
        raise UploadTooSlowError(
            f"the body arrives too slowly; send at least {LEAST_BYTES_A_SECOND} bytes per second"
        ) from None


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
