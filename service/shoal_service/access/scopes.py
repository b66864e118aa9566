"""Scopes of access keys: read, write and admin. Each includes those before it."""

from enum import StrEnum


class Scope(StrEnum):
    """Scope of a key, and the least scope that an endpoint needs."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def includes(self, other: "Scope") -> bool:
        """Whether a key of this scope may do what needs the other one."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {scope: place for place, scope in enumerate(Scope)}
