"""Meters: how much of its limits a key has used in this process.

Requests and points are counted by token buckets. A bucket holds what a second gives, and at least one token. A request
for more than the bucket holds waits for a full one and leaves a debt, so that no rate is exceeded in the long run.
"""

from collections.abc import Callable

from shoal_service.access.grants import Limits
from shoal_service.errors import BodyTooLargeError, RateLimitedError

_ROUNDING = 1e-6
"""Part of a token that may be missing. Otherwise a rounding error could refuse whoever waits exactly as told."""


class TokenBucket:
    """Tokens that come at `rate` per second."""

    def __init__(self, rate: float, clock: Callable[[], float]) -> None:
        """`clock`: seconds that never go back."""
        self._rate = rate
        self._size = max(1.0, rate)
        self._level = self._size
        self._clock = clock
        self._at = clock()

    def wait_s(self, n: float) -> float:
        """Seconds until `n` tokens can be taken. 0 if they can be taken now."""
        now = self._clock()
        self._level = min(self._size, self._level + (now - self._at) * self._rate)
        self._at = now
        missing = min(n, self._size) - self._level
        return missing / self._rate if missing > _ROUNDING else 0.0

    def take(self, n: float) -> float:
        """Take `n` tokens. Returns 0, or the seconds to wait before they can be taken."""
        wait_s = self.wait_s(n)
        if wait_s == 0.0:
            self._level -= n
        return wait_s


class Meter:
    """Use of one key. All methods are called in the event loop."""

    def __init__(self, name: str, limits: Limits, clock: Callable[[], float]) -> None:
        self.limits = limits
        self._name = name
        self._requests = None if limits.requests_per_s is None else TokenBucket(limits.requests_per_s, clock)
        self._points = None if limits.points_per_s is None else TokenBucket(limits.points_per_s, clock)
        self._bytes = 0

    def count_request(self) -> None:
        """Count one request. Raises RateLimitedError above the rate."""
        if self._requests is not None and (wait_s := self._requests.take(1.0)):
            raise self._refusal(f"{self.limits.requests_per_s:g} requests a second", wait_s)

    def check_points(self) -> None:
        """Raise RateLimitedError if no point would be accepted now, before a body is read."""
        if self._points is not None and (wait_s := self._points.wait_s(0.0)):
            raise self._refusal(f"{self.limits.points_per_s:g} points a second", wait_s)

    def count_points(self, n: int) -> None:
        """Count the points of one request. Raises RateLimitedError above the rate, and counts nothing then."""
        if self._points is not None and (wait_s := self._points.take(float(n))):
            raise self._refusal(f"{self.limits.points_per_s:g} points a second", wait_s)

    def hold(self, before: int, now: int) -> None:
        """Count a body of `before` bytes as one of `now` bytes.

        Raises RateLimitedError while other bodies of the key leave no room, BodyTooLargeError if it never fits.
        """
        limit = self.limits.bytes_in_flight
        if limit is not None:
            if now > limit:
                raise BodyTooLargeError(
                    f"the body is larger than the {limit} bytes that the key {self._name!r} may have in flight; send"
                    " smaller batches"
                )
            if self._bytes - before + now > limit:
                raise self._refusal(f"{limit} bytes in flight", 1.0)
        self._bytes += now - before

    def release(self, n_bytes: int) -> None:
        """Count a body as done."""
        self._bytes -= n_bytes

    def _refusal(self, limit: str, wait_s: float) -> RateLimitedError:
        return RateLimitedError(
            f"the key {self._name!r} is at its limit of {limit}; send the request again in {wait_s:.3g} s",
            retry_after_s=wait_s,
        )
