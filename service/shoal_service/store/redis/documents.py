"""Documents of a stream in Redis: fields `kind/name` of one hash, each the hash of field and value, and the value."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from shoal_service.store import rules
from shoal_service.store.contract import MAX_DOCUMENTS, MAX_DOCUMENTS_BYTES, DocumentName
from shoal_service.store.redis.connection import Connections, Word
from shoal_service.store.redis.keys import StreamKeys
from shoal_service.store.redis.scripts import accept, row_hash, script
from shoal_service.store.redis.writer import WriteRequest
from shoal_service.store.rules import HeldDocuments

CHECKSUM_BYTES = 8
_PAGE = 1000

_log = logging.getLogger("shoal_service.store")


def read(connections: Connections, keys: StreamKeys, stream: str, kind: str) -> Mapping[str, bytes]:
    """Return the documents of a kind, as `Store.documents`."""
    found: dict[str, bytes] = {}
    for field, stored in fields(connections, keys, f"{kind}/*"):
        _, name, value = parse(field, stored)
        if value is None:
            _log.warning("%s", rules.damaged_document(stream, kind, name))
        else:
            found[name] = value
    return dict(sorted(found.items()))


def names(connections: Connections, keys: StreamKeys, kind: str) -> list[str]:
    """Return the names of the documents of a kind, as `Store.document_names`."""
    return sorted({parse(field, stored)[1] for field, stored in fields(connections, keys, f"{kind}/*")})


def write_request(
    keys: StreamKeys, stream: tuple[str, str], kind: str, name: str, value: bytes | None
) -> WriteRequest[None]:
    """Return the request that writes or deletes a document."""
    field = f"{kind}/{name}".encode()
    if value is None:
        command = script("delete_document").command((keys.meta, keys.documents), kind, field, CHECKSUM_BYTES)
    else:
        stored = row_hash(field, value) + value
        limits = (CHECKSUM_BYTES, MAX_DOCUMENTS, MAX_DOCUMENTS_BYTES)
        command = script("set_document").command((keys.meta, keys.documents), kind, field, stored, *limits)

    def accepted(reply: list[Any], resent: bool) -> None:
        if reply[0] == b"full":
            written = rules.written_documents(kind, {(kind, name): value})
            rules.check_document_limits(stream[0], kind, HeldDocuments(reply[1], reply[2]), written)
        accept(reply, *stream)

    return WriteRequest(keys.tag, command, accepted, len(value or b""))


def change_request(
    keys: StreamKeys,
    stream: tuple[str, str],
    changes: Mapping[DocumentName, bytes | None],
    expected: Mapping[DocumentName, bytes | None],
    dropped: DocumentName | None,
    max_documents: int | None,
) -> WriteRequest[bool]:
    """Return the request that changes several documents if the store holds what is expected."""

    def words(documents: Mapping[DocumentName, bytes | None]) -> Iterator[Word]:
        yield len(documents)
        for (kind, name), value in documents.items():
            field = f"{kind}/{name}".encode()
            yield from (kind, field, b"" if value is None else row_hash(field, value) + value)

    limits = (CHECKSUM_BYTES, MAX_DOCUMENTS if max_documents is None else max_documents, MAX_DOCUMENTS_BYTES)
    begins = ("", "") if dropped is None else (dropped[0], "/".join(dropped))
    command = script("change_documents").command(
        (keys.meta, keys.documents), *limits, *begins, *words(expected), *words(changes)
    )

    def accepted(reply: list[Any], resent: bool) -> bool:
        if reply[0] == b"full":
            kind = reply[1].decode()
            written = rules.written_documents(kind, changes)
            rules.check_document_limits(stream[0], kind, HeldDocuments(reply[2], reply[3]), written, max_documents)
        done = accept(reply, *stream)[1]
        return done == 1 or (done == 2 and resent)  # after a lost reply, this very change is stored

    return WriteRequest(keys.tag, command, accepted, sum(len(value or b"") for value in changes.values()))


def fields(connections: Connections, keys: StreamKeys, pattern: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields of the hash that match, with their values. One may come twice while the hash changes."""
    cursor = b"0"
    while True:
        ((cursor, flat),) = connections.ask(("HSCAN", keys.documents, cursor, "MATCH", pattern, "COUNT", _PAGE))
        yield from zip(flat[::2], flat[1::2], strict=True)
        if cursor == b"0":
            return


def parse(field: bytes, stored: bytes) -> tuple[str, str, bytes | None]:
    """Return kind, name and value of a field. The value is None when it does not match its checksum."""
    kind, _, name = field.decode("utf-8", "backslashreplace").partition("/")
    checksum, value = stored[:CHECKSUM_BYTES], stored[CHECKSUM_BYTES:]
    return kind, name, value if row_hash(field, value) == checksum else None
