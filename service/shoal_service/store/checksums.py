"""Checksums of rows and payloads, so that a flipped byte is noticed before an entry is applied.

A checksum has two halves of 32 bits. The first one is that of the payload. The second one covers the fields of the row
and the first half, so a row can be checked without its payload. Rows of earlier versions have no checksum, and count as
whole.
"""

import struct
import zlib
from numbers import Integral

from shoal_service.store.contract import AccessKey

_HALVES = struct.Struct(">II")
_EXACT = (int, str, bytes, float, type(None))


def row_checksum(payload_crc: int, *fields: object) -> bytes:
    """Return the checksum of a row, from the CRC-32 of its payload and its fields."""
    plain = [field if type(field) in _EXACT else _plain(field) for field in fields]
    return _HALVES.pack(payload_crc, zlib.crc32(repr((payload_crc, plain)).encode("utf-8", "backslashreplace")))


def access_key_checksum(key: AccessKey) -> bytes:
    """Return the checksum of an access key, without the time of its last use."""
    return row_checksum(zlib.crc32(key.body), key.id, key.name, key.digest, key.created_at)


def _plain(field: object) -> object:
    """Convert a number of another type to the one that a store returns, and everything else to text."""
    return int(field) if isinstance(field, Integral) else str(field)


def is_row_whole(checksum: object, *fields: object) -> bool:
    """Return whether the fields match the checksum."""
    if checksum is None:
        return True
    if not isinstance(checksum, bytes) or len(checksum) != _HALVES.size:
        return False
    return row_checksum(_HALVES.unpack(checksum)[0], *fields) == checksum


def is_payload_whole(checksum: bytes | None, payload: bytes) -> bool:
    """Return whether the payload matches the checksum."""
    return checksum is None or bool(_HALVES.unpack(checksum)[0] == zlib.crc32(payload))


def is_page_whole(page: object) -> bool:
    """Return whether a page of records matches the checksum that it begins with: the CRC-32 of the rest."""
    return isinstance(page, bytes) and len(page) >= 4 and page[:4] == struct.pack("<I", zlib.crc32(page[4:]))
