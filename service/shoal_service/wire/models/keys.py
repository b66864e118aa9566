"""Access keys: the body of `POST /keys`, and the answers about keys."""

from typing import Literal

from pydantic import ConfigDict, Field

from shoal_service.wire.models.base import WireModel, example, read_json
from shoal_service.wire.points import Body

ScopeName = Literal["read", "write", "admin"]

_KEY = {
    "id": "9f86d081884c7d65",
    "name": "gauge in the harbour",
    "scope": "write",
    "streams": ["sea-*"],
    "created_at": "2026-11-20T09:30:00Z",
    "expires_at": "2027-11-20T09:30:00Z",
    "last_used_at": None,
    "limits": {"requests_per_s": 50.0, "points_per_s": None, "bytes_in_flight": None, "streams": None},
}


class KeyLimitsIn(WireModel):
    """Limits of a key, in each process that answers requests. null: no limit but those of the service."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [{"requests_per_s": 50.0, "points_per_s": 100000.0}]},
    )

    requests_per_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    points_per_s: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Points sent and predicted."""
    bytes_in_flight: int | None = Field(None, ge=1)
    """Largest total size of the bodies that are received or processed at once."""
    streams: int | None = Field(None, ge=1)
    """Number of streams that the key covers from which on it may create no further one."""


class KeyIn(WireModel):
    """The key to create."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [{"name": "gauge in the harbour", "scope": "write", "streams": ["sea-*"], "expires": "365d"}]
        },
    )

    name: str = Field(min_length=1, max_length=100)
    """Name for people. Several keys may have the same one."""
    scope: ScopeName
    """`read`, `write` (which includes read) or `admin` (which includes both)."""
    streams: list[str] = Field(default_factory=list, max_length=100)
    """Patterns of the streams that the key covers, with the wildcards *, ? and [a-f]. All streams by default."""
    expires: str | None = None
    """Time from which on the key opens nothing: RFC 3339, or a duration such as `30d`. Never by default."""
    limits: KeyLimitsIn = KeyLimitsIn(requests_per_s=None, points_per_s=None, bytes_in_flight=None, streams=None)
    """Beyond a limit the answer is 429 `rate-limited`, with Retry-After."""


class KeyLimitsOut(KeyLimitsIn):
    """The same limits of an existing key."""


class KeyOut(WireModel):
    """An access key, without its secret."""

    model_config = example(**_KEY)

    id: str
    name: str
    scope: ScopeName | None
    """null for a key that is damaged in the store. It opens nothing."""
    streams: list[str]
    """Patterns of the streams that the key covers. Empty: all streams."""
    created_at: str | None
    """RFC 3339. null for the bootstrap key, which is a setting."""
    expires_at: str | None
    last_used_at: str | None
    """Time of the last known use. The use by another process may be shown a minute later."""
    limits: KeyLimitsOut


class NewKeyOut(KeyOut):
    """A new access key. Its secret is shown here and never again."""

    model_config = example(**_KEY, key="shoal_2vV4kq0cQyqgkzYbB0m7u3m5t1y9w8x6z4a2c0e8g6i")

    key: str
    """The secret, to be sent as `Authorization: Bearer KEY` or as `api-key: KEY`."""


class KeysOut(WireModel):
    """All access keys, oldest first."""

    model_config = example(keys=[_KEY])

    keys: list[KeyOut]


def decode_key(text: Body) -> KeyIn:
    """Read the key to create. Raises as `read_json`."""
    return read_json(KeyIn, text, nested=KeyLimitsIn)
