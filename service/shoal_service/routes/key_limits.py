"""Limits of the key that sends a request: its points, and the streams that it may create."""

import asyncio
from collections.abc import Collection

from starlette.requests import Request

from shoal_service.errors import RateLimitedError
from shoal_service.routes.authorization import caller_of
from shoal_service.routes.service import service_of
from shoal_service.store import MayCreate

STREAMS_RETRY_S = 60.0
"""Seconds after which a key at its number of streams may try again: somebody must delete one first."""


class KeyLimits:
    """Limits of one request. Without limits of the key, all methods return at once."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._caller = caller_of(request.scope)

    def check_points(self) -> None:
        """Raise RateLimitedError if no point would be accepted now. Call it before the body is read."""
        if self._caller.meter is not None:
            self._caller.meter.check_points()

    def count_points(self, n: int) -> None:
        """Count points that are about to be used. Raises RateLimitedError above the rate of the key."""
        if self._caller.meter is not None:
            self._caller.meter.count_points(n)

    async def check_may_create(self, name: str) -> None:
        """Raise RateLimitedError if the stream does not exist, and the key has as many streams as it may have.

        It saves the reading of a body. What creates the stream checks again, with `may_create`.
        """
        if self.may_create is not None:
            names = {record.name for record in await asyncio.to_thread(service_of(self._request).store.list_streams)}
            if name not in names:
                self.may_create(names)

    @property
    def may_create(self) -> MayCreate | None:
        """Check of the number of streams, for the transaction that creates one. None without that limit."""
        return None if self._caller.grant.limits.streams is None else self._check_number

    def _check_number(self, names: Collection[str]) -> None:
        limit = self._caller.grant.limits.streams
        covered = sum(map(self._caller.covers, names))
        if limit is not None and covered >= limit:
            raise RateLimitedError(
                f"the key {self._caller.name!r} covers {covered} streams, and may have {limit}; delete one, or use"
                " another key",
                retry_after_s=STREAMS_RETRY_S,
            )
