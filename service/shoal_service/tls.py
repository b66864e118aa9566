"""TLS: the certificate and the key of the server, checked before the server listens."""

import ssl
from typing import Any

from shoal.errors import SettingError
from shoal_service.settings import Settings


def tls_options(settings: Settings) -> dict[str, Any]:
    """Options for uvicorn. Empty without TLS.

    Raises SettingError if one of the two files is missing, cannot be read, or does not belong to the other.
    """
    if settings.tls_cert is None and settings.tls_key is None:
        return {}
    if settings.tls_cert is None or settings.tls_key is None:
        given, missing = ("tls_key", "tls_cert") if settings.tls_cert is None else ("tls_cert", "tls_key")
        raise SettingError(f"{given} is given without {missing}; TLS needs both: --tls-cert FILE --tls-key FILE")
    for name, path in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        try:
            path.read_bytes()
        except OSError as error:
            raise SettingError(f"{name} {path} cannot be read ({error.strerror}); give a PEM file") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # The password is empty, so that a key with a password is refused instead of asked for.
        context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        raise SettingError(
            f"tls_cert {settings.tls_cert} and tls_key {settings.tls_key} cannot be used together ({reason}); give the"
            " certificate with its chain, and its key without password, both in PEM"
        ) from None
    return {"ssl_certfile": str(settings.tls_cert), "ssl_keyfile": str(settings.tls_key)}
