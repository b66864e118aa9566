"""Signatures of messages, as Standard Webhooks 1.0 defines them: HMAC-SHA256 over id, timestamp and body."""

import base64
import binascii
import hashlib
import hmac

from shoal_service.errors import ParameterError

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
