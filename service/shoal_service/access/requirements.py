"""Requirements of endpoints, and the caller who meets them or not."""

import fnmatch
import re
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from shoal_service.access.grants import Grant, Scope
from shoal_service.access.meter import Meter
from shoal_service.errors import ForbiddenError


class Reach(Enum):
    """The streams on which an endpoint acts."""

    STREAM = "one stream, which the key must cover"
    LISTED = "all streams, of which the answer lists those that the key covers"
    SERVICE = "the whole service, so the key must cover all streams"


class Requirement(NamedTuple):
    """Rights that an endpoint needs from its caller."""

    scope: Scope | None
    """Least scope. None: the endpoint is open to everybody."""
    reach: Reach = Reach.STREAM
    audited: bool = False
    """Whether each use is in the log, as every use of the scope `admin` is."""


OPEN = Requirement(None)
READ, WRITE, ADMIN = (Requirement(scope) for scope in Scope)
WRITE_AUDITED = Requirement(Scope.WRITE, audited=True)
READ_LISTED = Requirement(Scope.READ, Reach.LISTED)
READ_SERVICE = Requirement(Scope.READ, Reach.SERVICE)
ADMIN_SERVICE = Requirement(Scope.ADMIN, Reach.SERVICE)


class Caller(NamedTuple):
    """Sender of a request: a key, or anyone where no key is needed."""

    key_id: str | None
    name: str
    grant: Grant
    meter: Meter | None = None
    """Use of the key in this process. None for a key without limits."""

    def covers(self, stream: str) -> bool:
        """Whether the key covers a stream of this name."""
        patterns = self.grant.streams
        return not patterns or _matcher(patterns).fullmatch(stream) is not None

    def check(self, requirement: Requirement, stream: str) -> None:
        """Raise ForbiddenError, which names what the key lacks. `stream`: the stream that the request names."""
        if requirement.scope is None:
            return
        if not self.grant.scope.includes(requirement.scope):
            raise ForbiddenError(
                f"this needs the scope {requirement.scope.value!r}, and the key {self.name!r} has"
                f" {self.grant.scope.value!r}; use a key of scope {requirement.scope.value!r}",
                scope=requirement.scope.value,
            )
        if requirement.reach is Reach.STREAM and not self.covers(stream):
            raise ForbiddenError(
                f"the key {self.name!r} does not cover the stream {stream!r}; it covers {self._covered()}"
            )
        if requirement.reach is Reach.SERVICE and self.grant.streams:
            raise ForbiddenError(
                f"this concerns all streams, and the key {self.name!r} covers only {self._covered()}; use a key without"
                " a pattern of streams"
            )

    def _covered(self) -> str:
        return ", ".join(self.grant.streams)


ANYONE = Caller(None, "anyone", Grant(Scope.ADMIN))
"""Caller of a service that needs no key."""


@lru_cache(4096)
def _matcher(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{fnmatch.translate(pattern)})" for pattern in patterns))
