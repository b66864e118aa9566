"""Limits of the key that sends a request: its points, and the streams that it may create."""

import asyncio

from starlette.requests import Request

from shoal_service.errors import RateLimitedError
from shoal_service.routes.authorization import caller_of
from shoal_service.routes.service import service_of

STREAMS_RETRY_S = 60.0
"""Seconds after which a key at its number of streams may try again: somebody must delete one first."""


class KeyLimits:
    """Limits of one request. Without limits of the key, all methods return at once."""

    def __init__(self, request: Request) -> None:
        self._caller = caller_of(request.scope)
        self._store = service_of(request).store

    def check_points(self) -> None:
        """Raise RateLimitedError if no point would be accepted now. Call it before the body is read."""
        if self._caller.meter is not None:
            self._caller.meter.check_points()

    def count_points(self, n: int) -> None:
        """Count points that are about to be used. Raises RateLimitedError above the rate of the key."""
        if self._caller.meter is not None:
            self._caller.meter.count_points(n)

    async def check_may_create(self, name: str) -> None:
        """Raise RateLimitedError if the stream does not exist, and the key has as many streams as it may have."""
        limit = self._caller.grant.limits.streams
        if limit is None:
            return
        names = {record.name for record in await asyncio.to_thread(self._store.list_streams)}
        covered = sum(map(self._caller.covers, names))
        if name not in names and covered >= limit:
            raise RateLimitedError(
                f"the key {self._caller.name!r} covers {covered} streams, and may have {limit}; delete one, or use"
                " another key",
                retry_after_s=STREAMS_RETRY_S,
            )
