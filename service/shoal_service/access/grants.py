"""Grants: what an access key allows, for which streams, until when, and how much of it."""

import re
from enum import StrEnum
from typing import NamedTuple

import msgspec

from shoal_service.errors import ParameterError


class Scope(StrEnum):
    """Scope of a key, and the least scope that an endpoint needs."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, other: "Scope") -> bool:
        """Whether a key of this scope may do what needs the other one."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {scope: place for place, scope in enumerate(Scope)}


MAX_PATTERNS = 100
MAX_NAME = 100
_PATTERN = re.compile(r"(?=.{1,128}\Z)(?:[a-z0-9_*?-]|\[!?[a-z0-9_-]+\])+")


class Limits(NamedTuple):
    """Limits of one key in one process. None: no limit but those of the service."""

    requests_per_s: float | None = None
    points_per_s: float | None = None
    bytes_in_flight: int | None = None
    """Largest total size of the bodies that are being received or processed at once."""
    streams: int | None = None
    """Number of streams that the key covers from which on it may create no further one."""


class Grant(NamedTuple):
    """Rights of a key."""

    scope: Scope
    streams: tuple[str, ...] = ()
    """Patterns of stream names, as a shell has them (`*`, `?`, `[a-f]`). Without any, the key covers all streams."""
    expires_at: float | None = None
    """Unix time from which on the key opens nothing. None: it does not expire."""
    limits: Limits = Limits()

    def to_body(self) -> bytes:
        """Encode the grant for the store."""
        limits = _LimitsBody(*self.limits)
        return msgspec.json.encode(_Body(self.scope.value, list(self.streams), self.expires_at, limits))

    @classmethod
    def from_body(cls, body: bytes) -> "Grant | None":
        """Decode a grant. None for a damaged one, and for one with restrictions that this version does not know."""
        try:
            found = msgspec.json.decode(body, type=_Body)
            limits = Limits(*msgspec.structs.astuple(found.limits))
            return cls(Scope(found.scope), tuple(found.streams), found.expires_at, limits)
        except (msgspec.MsgspecError, ValueError):
            return None

    def checked(self) -> "Grant":
        """Return the grant. Raises ParameterError for a pattern that matches no name, or a limit of zero or less."""
        if len(self.streams) > MAX_PATTERNS:
            raise ParameterError(f"{len(self.streams)} patterns of streams were given; use at most {MAX_PATTERNS}")
        for pattern in self.streams:
            if not _PATTERN.fullmatch(pattern):
                raise ParameterError(
                    f"the pattern {pattern[:80]!r} matches no stream; use a-z, 0-9, _, - and the wildcards *, ?, [a-f]"
                )
        for name, value in self.limits._asdict().items():
            if value is not None and not value > 0:
                raise ParameterError(f"the limit {name} is {value:g}; give a positive number, or leave it out")
        return self


def check_key_name(name: str) -> None:
    """Raise ParameterError unless the name has 1 to 100 printable characters."""
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise ParameterError(f"the name {name[:120]!r} is not usable; use 1 to {MAX_NAME} printable characters")


class _LimitsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Stored form of limits, in their order."""

    requests_per_s: float | None
    points_per_s: float | None
    bytes_in_flight: int | None
    streams: int | None


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """Stored form of a grant."""

    scope: str
    streams: list[str]
    expires_at: float | None
    limits: _LimitsBody
