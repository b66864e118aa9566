"""One attempt to deliver one message: a signed POST to a checked address, bounded in time and in what is read."""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import time
from typing import NamedTuple

import httpx

from shoal_service import __version__
from shoal_service.addresses import RefusedAddressError, address_of
from shoal_service.errors import ParameterError
from shoal_service.retry_after import parse_retry_after
from shoal_service.streams.webhooks.definition import Webhook

ENCODED = "whsec_"
"""Beginning of a secret whose rest is the key in base64."""


def key_of_secret(secret: str) -> bytes:
    """Return the key of a secret: the bytes after `whsec_` decoded, or else the text itself. Raises ParameterError."""
    if not secret.startswith(ENCODED):
        return secret.encode()
    try:
        key = base64.b64decode(secret[len(ENCODED) :], validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ParameterError(f"secret begins with {ENCODED!r}, and the rest is not base64; send {ENCODED} and the key")
    return key


def signature_of(key: bytes, message_id: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`. `timestamp`: Unix time in whole seconds."""
    digest = hmac.new(key, b"%s.%d.%s" % (message_id.encode(), timestamp, body), hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode()


MAX_ANSWER_BYTES = 65_536
"""Most bytes that are read of an answer. Nothing of them is kept."""


class Message(NamedTuple):
    """Message to a receiver. Its id and its body are the same in every attempt."""

    id: str
    body: bytes


class Limits(NamedTuple):
    """Bounds of an attempt."""

    timeout_s: float
    """Longest time, the look-up of the name included."""
    allow_private: bool


def new_client() -> httpx.AsyncClient:
    """Return a client that follows no redirect, uses no proxy, and keeps no connection.

    A connection goes to an IP address, so one that is kept could serve another name on the same address.
    """
    return httpx.AsyncClient(
        follow_redirects=False, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0), timeout=None
    )


class Failure(NamedTuple):
    """Attempt that was not accepted."""

    reason: str
    """In one line."""
    gone: bool = False
    """Whether the receiver answered 410: it wants no message any more."""
    retry_after_s: float = 0.0
    """Shortest pause that the receiver asks for, by `Retry-After` of an answer 429 or 503."""


async def send(client: httpx.AsyncClient, webhook: Webhook, message: Message, limits: Limits) -> Failure | None:
    """Try once. Returns None when the receiver has answered 2xx. The status decides, whatever becomes of the rest."""
    status: int | None = None
    asked_s: float | None = None
    try:
        async with asyncio.timeout(limits.timeout_s):
            response = await client.send(await _request(client, webhook, message, limits), stream=True)
            status = response.status_code
            if status in (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE):
                asked_s = parse_retry_after(response.headers.get("Retry-After"))
            await _discard(response)
    except TimeoutError:
        if status is None:
            return Failure(f"no answer within {limits.timeout_s:g} s")
    except RefusedAddressError as error:
        return Failure(f"{error}; the server sends to public addresses only")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        return Failure(f"{type(error).__name__}: {error}"[:300])
    if httpx.codes.is_success(status):
        return None
    return Failure(f"the receiver answered {status}", status == httpx.codes.GONE, asked_s or 0.0)


async def _request(client: httpx.AsyncClient, webhook: Webhook, message: Message, limits: Limits) -> httpx.Request:
    url = httpx.URL(webhook.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    address = await address_of(url.host, port, allow_private=limits.allow_private)
    timestamp = int(time.time())
    headers = {
        "Host": url.netloc.decode("ascii"),
        "Content-Type": "application/json",
        "User-Agent": f"shoal/{__version__}",
        "webhook-id": message.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature_of(key_of_secret(webhook.secret), message.id, timestamp, message.body),
    }
    return client.build_request(
        "POST",
        url.copy_with(host=address),
        headers=headers,
        content=message.body,
        extensions={"sni_hostname": url.host},  # the certificate must be that of the name
    )


async def _discard(response: httpx.Response) -> None:
    """Read the rest of an answer, so that the receiver can finish it, and close the connection."""
    left = MAX_ANSWER_BYTES
    try:
        with contextlib.suppress(httpx.HTTPError):
            async for part in response.aiter_raw():
                left -= len(part)
                if left <= 0:
                    break
    finally:
        await response.aclose()
