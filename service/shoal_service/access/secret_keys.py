"""Secrets of access keys: making them, their digests, and the bootstrap key from the settings.

A secret has 256 random bits. So a plain SHA-256 of it is safe to store: nobody can try all secrets.
"""

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from shoal.errors import SettingError
from shoal_service.settings import Settings

PREFIX = "shoal_"
"""First characters of every secret that shoal makes, so that scanners for leaked secrets can find them."""
SECRET_BYTES = 32
LONGEST_SECRET = 512
LEAST_ADMIN_KEY = 20
"""Least length of a bootstrap key, in characters."""


def new_secret() -> str:
    """Make a secret of 256 random bits."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> bytes:
    """SHA-256 of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def admin_key_of(settings: Settings) -> str | None:
    """The bootstrap key that the settings give, from `admin_key` or from the file `admin_key_file`.

    A file that is missing is created with a new key, for its owner only. Raises SettingError for a file that cannot be
    read, and for a key that is too short or has other characters than printable ASCII. The error does not show the key.
    """
    path = settings.admin_key_file
    if settings.admin_key is not None:
        if path is not None:
            raise SettingError("both admin_key and admin_key_file are given; give one of them")
        return _checked(settings.admin_key.get_secret_value(), "admin_key")
    return None if path is None else _checked(_read(path), f"the key in admin_key_file {path}")


def _read(path: Path) -> str:
    try:
        if not path.exists():
            _create(path)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingError(
            f"admin_key_file {path} cannot be read or created ({reason}); give a file that holds one key"
        ) from None


def _create(path: Path) -> None:
    """Create the file with a new key. If another process is faster, its key stays."""
    whole = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{new_secret()}\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(whole, path)
    finally:
        whole.unlink()


def _checked(text: str, what: str) -> str:
    key = text.strip()
    plain = key.isascii() and key.isprintable() and " " not in key
    if not plain or not LEAST_ADMIN_KEY <= len(key) <= LONGEST_SECRET:
        raise SettingError(
            f"{what} has {len(key)} characters; use {LEAST_ADMIN_KEY} to {LONGEST_SECRET} random ones, printable ASCII"
            " without blanks, for example those of `openssl rand -hex 32`"
        )
    return key
