"""Access keys: create, list and revoke them, with a key of scope admin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import json_of, segment


@dataclass(frozen=True)
class AccessKey:
    """An access key, without its secret."""

    id: str
    name: str
    scope: str | None
    """`read`, `write` or `admin`. None for a key that is damaged in the store and opens nothing."""
    streams: tuple[str, ...]
    """Patterns of the streams that the key covers. Empty: all streams."""
    created_at: str | None
    """RFC 3339. None for the bootstrap key of the settings."""
    expires_at: str | None
    last_used_at: str | None
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "AccessKey":
        """Read one key from an answer. A secret stays out of it."""
        raw = {name: value for name, value in body.items() if name != "key"}
        names = ("id", "name", "scope", "created_at", "expires_at", "last_used_at")
        return cls(streams=tuple(body.get("streams", ())), raw=raw, **{name: body.get(name) for name in names})  # type: ignore[arg-type]


@dataclass(frozen=True)
class NewAccessKey:
    """A new access key with its secret, which the server shows only once."""

    info: AccessKey
    key: str = field(repr=False)


def create_access_key(
    session: Session,
    /,
    name: str,
    scope: str,
    *,
    streams: Sequence[str] = (),
    expires: str | None = None,
    limits: Mapping[str, float] | None = None,
) -> Flow[NewAccessKey]:
    """Create a key of scope `read`, `write` or `admin`.

    `streams`: patterns such as `sensors-*`; all streams by default. `expires`: a duration such as `30d`, or a time of
    RFC 3339. `limits`: any of requests_per_s, points_per_s, bytes_in_flight and streams.

    There is no retry: after a lost answer the key may exist, and nobody knows its secret.
    """
    body: dict[str, Any] = {"name": name, "scope": scope, "streams": list(streams), "expires": expires}
    body["limits"] = dict(limits or {})
    request = Request(
        "POST",
        "/keys",
        headers={"Content-Type": "application/json"},
        content=msgspec.json.encode(body),
        repeatable=False,
    )
    answer = json_of((yield from exchange(session, request)), "id", "key")
    return NewAccessKey(AccessKey.from_json(answer), answer["key"])


def access_keys(session: Session) -> Flow[list[AccessKey]]:
    """List all keys, oldest first."""
    body = json_of((yield from exchange(session, Request("GET", "/keys"))), "keys")
    return [AccessKey.from_json(entry) for entry in body["keys"]]


def revoke_access_key(session: Session, /, key_id: str) -> Flow[None]:
    """Revoke a key by its id. Raises NotFoundError if there is none."""
    yield from exchange(session, Request("DELETE", f"/keys/{segment(key_id)}", repeatable=False))
