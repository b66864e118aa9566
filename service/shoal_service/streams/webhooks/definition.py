"""Webhook: what an admin has asked for."""

from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from shoal_service.addresses import is_private_name
from shoal_service.errors import ParameterError


class Webhook(NamedTuple):
    """Address that gets some events of a stream."""

    id: str
    """UUID of its creation. A webhook that is deleted and created again gets another one."""
    name: str
    url: str
    events: tuple[str, ...]
    secret: str
    created_at: float
    """Unix time."""
    begins: tuple[int, int]
    """Place of the first event that it gets."""
    revision: int = 0
    """Number of changes since its creation."""


def encode_webhook(webhook: Webhook) -> bytes:
    """As JSON."""
    return msgspec.json.encode(webhook)


def decode_webhook(data: bytes) -> Webhook:
    """Inverse of `encode_webhook`."""
    return msgspec.json.decode(data, type=Webhook)


def check_url(url: str, *, allow_private: bool) -> None:
    """Raise ParameterError for an address that cannot be sent to. A name is looked up only when something is sent."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
        (host or "").encode("idna")  # as a look-up does; a UnicodeError is a ValueError
    except ValueError as error:
        raise ParameterError(
            f"url is {url[:80]!r}: {error}; send an address such as https://example.org/hook"
        ) from None
    if parts.scheme not in ("http", "https") or not host or not url.isascii() or any(c <= " " for c in url):
        raise ParameterError(f"url is {url[:80]!r}; send an address such as https://example.org/hook")
    if parts.username is not None or parts.password is not None:
        raise ParameterError("url has a user or a password, which every reader would see; use the secret instead")
    if not allow_private and is_private_name(host):
        raise ParameterError(
            f"url leads to {host!r}, a private address; use a public one, or start the server with "
            "--webhook-allow-private"
        )
