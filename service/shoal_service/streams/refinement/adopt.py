"""The log's entry of a refinement: which blob, made of which state, and what is to be done with it."""

import hashlib
from typing import Literal

import msgspec

from shoal_service.errors import StoreFormatError

MOST_SINCE_BYTES = 1 << 30
"""Payload bytes of batches since a refinement's base beyond which it is refused: they are held at once. A constant, for
a replay decides the same."""


class AdoptionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of an entry of kind `adoption`."""

    refinement: str
    """Its id."""
    verdict: Literal["adopt", "postpone"]
    """`postpone`: it is not worth adopting, which moves the schedule of the next ones on."""
    base_seq: int
    """The last entry that its state had applied."""
    base_offset: int
    """Points seen by that state."""
    blob: str
    """Key of the refinement's bytes in the store."""
    sha256: str


def to_payload(entry: AdoptionEntry) -> bytes:
    """As JSON."""
    return msgspec.json.encode(entry)


def from_payload(payload: bytes) -> AdoptionEntry:
    """Inverse of `to_payload`."""
    return msgspec.json.decode(payload, type=AdoptionEntry)


def check_blob(entry: AdoptionEntry, blob: bytes) -> bytes:
    """The blob. StoreFormatError when it is not the one that the entry names."""
    if hashlib.sha256(blob).hexdigest() != entry.sha256:
        raise StoreFormatError(f"the blob of refinement {entry.refinement} is not the one that the log names")
    return blob
