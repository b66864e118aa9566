"""Inspection of a store in Redis: every row and every piece is read and compared with its checksum.

Only commands that read are sent. Other processes may write meanwhile, so a finding counts when a second look has it
too.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from shoal.errors import SettingError
from shoal_service.errors import LogGapError, StoreFormatError
from shoal_service.store import checksums, inspection
from shoal_service.store.inspection import (
    AnswerFacts,
    BlobFacts,
    CheckpointFacts,
    EntryFacts,
    Finding,
    Inspection,
    Item,
    JobFacts,
    LetterFacts,
    ReferenceFacts,
    StreamFacts,
)
from shoal_service.store.redis import documents
from shoal_service.store.redis.access_keys import VERSION_FIELD, parse_access_key
from shoal_service.store.redis.blob_refs import UNFINISHED, read_blob
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.keys import FORMAT_VERSION, RegistryKeys, StreamKeys, registry_keys, stream_keys
from shoal_service.store.redis.log import parse_row
from shoal_service.store.redis.records import JOB_HEAD, parse_dead_letter, read_dead_letter
from shoal_service.store.redis.registry import CREATING, DELETING, parse_record
from shoal_service.store.redis.scripts import row_hash
from shoal_service.store.rules import START, LogPosition

PAGE, PIECES = 1000, 16
"""Rows, and pieces of up to a megabyte, that one question reads."""
_COUNTERS = ("seq", "offset", "bytes", "floor_seq", "floor_offset", "floor_bytes")
_ANSWER = struct.Struct(">ddddd")


def inspect_server(url: str, prefix: str = "shoal", timeout_s: float = 10.0) -> Inspection:
    """Inspect the store under a prefix of a server, which may be in use. Nothing is changed.

    SettingError for a wrong address, StoreUnavailableError when the server does not answer, StoreFormatError for a
    format of a newer shoal.
    """
    try:
        connections = Connections(url, timeout_s)
    except ValueError as error:
        raise SettingError(f"{error}; give the store's address as redis://host:port/database") from error
    try:
        keys = registry_keys(prefix)
        (version,) = connections.ask(("GET", keys.format))
        if version is not None and int(version) > FORMAT_VERSION:
            raise StoreFormatError(
                f"redis at {connections.where} holds format {int(version)}, this shoal reads formats up to "
                f"{FORMAT_VERSION}; use the shoal that wrote it"
            )
        look = _StoreLook(connections, keys, prefix)
        found = look.all()
        if found:
            found = [finding for finding in _StoreLook(connections, keys, prefix).all() if finding in found]
        (learners,) = connections.ask(("ZCARD", keys.learners))
        where = f"redis at {connections.where}, prefix {prefix!r}"
        return Inspection(where, int(version or FORMAT_VERSION), learners > 0, look.summaries, found, look.notes)
    finally:
        connections.close()


class _Look:
    """One look at a server."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def _ask(self, *command: Any) -> Any:
        """The reply to one command."""
        return self._connections.ask(command)[0]

    def _hash(self, key: str) -> dict[bytes, bytes]:
        """Fields and values of a hash."""
        flat = self._ask("HGETALL", key)
        return dict(zip(flat[::2], flat[1::2], strict=True))


class _StoreLook(_Look):
    """One reading of the whole store."""

    def __init__(self, connections: Connections, keys: RegistryKeys, prefix: str) -> None:
        super().__init__(connections)
        self._registry = keys
        self._prefix = prefix
        self.summaries: list[inspection.StreamSummary] = []
        self.notes: list[str] = []

    def all(self) -> list[Finding]:
        """Read everything, and return the findings."""
        found: list[Finding] = []
        tags = {self._registry.streams.removesuffix(":streams")}
        for raw, value in sorted(self._hash(self._registry.streams).items()):
            name = raw.decode("utf-8", "backslashreplace")
            try:
                state, record = parse_record(name, value)
            except StoreFormatError:
                said, loss = "its value in the registry cannot be read", "the stream"
                found.append(Finding(name, Item.RECORD, "record", said, loss, inspection.RESTORE))
                continue
            keys = stream_keys(self._prefix, name, record.incarnation)
            tags.add(keys.tag)
            if state in (CREATING, DELETING):
                self.notes.append(f"stream {name!r} is being {'created' if state == CREATING else 'deleted'}")
                continue
            facts = _StreamLook(self._connections, keys, name).facts()
            found += inspection.examine(facts)
            self.notes += inspection.notes_on(facts)
            self.summaries.append(inspection.summarise(facts))
        return [*found, *self._access_keys(), *self._orphan_keys(tags)]

    def _access_keys(self) -> Iterator[Finding]:
        for raw, value in sorted(self._hash(self._registry.access).items()):
            key_id = raw.decode("utf-8", "backslashreplace")
            if raw != VERSION_FIELD and not parse_access_key(key_id, value).digest:
                yield inspection.damaged_key(key_id)

    def _orphan_keys(self, tags: set[str]) -> Iterator[Finding]:
        """Find keys of streams that the registry does not have. Those that expire by themselves do not count."""
        pattern = "".join(f"\\{c}" if c in "*?[]\\^" else c for c in self._prefix) + ":{*"
        cursor, keys = b"0", set[str]()
        while True:
            cursor, page = self._ask("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
            keys.update(key.decode("utf-8", "backslashreplace") for key in page)
            if cursor == b"0":
                break
        for key in sorted(keys):
            if not key.startswith(tuple(f"{tag}:" for tag in tags)) and self._ask("PTTL", key) == -1:
                loss = "nothing but memory"
                yield Finding(
                    None, Item.ORPHAN, f"key {key}", "no stream of the registry has it", loss, "nothing is needed"
                )


class _StreamLook(_Look):
    """One reading of one stream."""

    def __init__(self, connections: Connections, keys: StreamKeys, name: str) -> None:
        super().__init__(connections)
        self._keys = keys
        self._name = name
        self._unreadable: list[str] = []
        self._orphans: list[str] = []
        self._runs: set[str] = set()  # blobs that something refers to

    def facts(self) -> StreamFacts:
        """Read everything that the stream holds."""
        meta = self._hash(self._keys.meta)
        damage, numbers = self._record(meta)
        self._runs.add(meta.get(b"staged", b"").decode("ascii", "replace").rpartition(":")[0])
        checkpoints, blobs = list(self._checkpoints()), list(self._blobs())
        letters = list(self._letters())
        return StreamFacts(
            name=self._name,
            record_damage=damage,
            floor=LogPosition(*numbers[3:6]) if numbers else START,
            floor_known=bool(numbers),
            counted_end=LogPosition(*numbers[0:3]) if numbers else None,
            acknowledged=None,
            entries=list(self._entries()),
            checkpoints=checkpoints,
            blobs=blobs,
            references=list(self._references()),
            letters=letters,
            jobs=[
                JobFacts(number.decode("utf-8", "replace"), body[JOB_HEAD.size :])
                for number, body in self._hash(self._keys.jobs).items()
                if number
            ],
            damaged_pages=list(self._damaged_pages()),
            damaged_documents=sorted(set(self._damaged_documents())),
            answers=list(self._answers()),
            orphans=[*self._orphans, *self._orphan_pieces()],
            unreadable=self._unreadable,
        )

    def _record(self, meta: dict[bytes, bytes]) -> tuple[str | None, list[int]]:
        """Return the damage of the record, and the counters. These are empty when they cannot be read."""
        try:
            numbers = [int(meta[name.encode()]) for name in _COUNTERS]
        except (KeyError, ValueError):
            return "its counters are missing or no numbers", []
        settings, found_hash = meta.get(b"settings"), meta.get(b"settings_hash")
        if settings is None or (found_hash is not None and row_hash(settings) != found_hash):
            return "its settings do not match their checksum", numbers
        return None, numbers

    def _entries(self) -> Iterator[EntryFacts]:
        payloads = self._payloads()
        found: list[EntryFacts] = []
        for element in self._elements(self._keys.log, PAGE):
            seq, row = int(element[0].partition(b"-")[0]), parse_row(element)
            size, crc = payloads.pop(seq, (-1, 0))
            if row is None:
                found.append(EntryFacts(seq, None, 0, 0, payload_whole=False))
            else:
                whole = size == row.size and row.payload_crc in (None, crc)
                found.append(EntryFacts(seq, row.position, row.n_points, row.size, whole))
        self._orphans += [f"payload of entry {seq}" for seq in sorted(payloads)]
        yield from found

    def _payloads(self) -> dict[int, tuple[int, int]]:
        """Return size and CRC-32 of each payload, by seq."""
        found: dict[int, tuple[int, int]] = {}
        for element_id, (_, piece, *_more) in self._elements(self._keys.data, PIECES):
            seq = int(element_id.partition(b"-")[0])
            size, crc = found.get(seq, (0, 0))
            found[seq] = size + len(piece), zlib.crc32(piece, crc)
        return found

    def _elements(self, key: str, count: int) -> Iterator[Any]:
        """Yield all elements of a stream of Redis."""
        first = "-"
        while page := self._ask("XRANGE", key, first, "+", "COUNT", count):
            yield from page
            if len(page) < count:
                return
            first = f"({page[-1][0].decode()}"

    def _checkpoints(self) -> Iterator[CheckpointFacts]:
        for raw, header in self._hash(self._keys.checkpoints).items():
            body, separator, found_hash = header.partition(b" h")
            try:
                seq = int(raw)
                log_offset, rest = body.split(b" ", 1)
                run, window = rest.rsplit(b" ", 1)
                self._runs.add(run.split(b" ")[-1].decode("ascii", "replace").rpartition(":")[0])
                row_whole = not separator or row_hash(raw, body) == found_hash
                blob = read_blob(self._connections, self._keys, run) if row_whole else None
                window_seq = None if window == b"-" else int(window)
                yield CheckpointFacts(seq, int(log_offset), window_seq, row_whole, blob is not None)
            except ValueError:
                seq = int(raw) if raw.isdigit() else -1
                yield CheckpointFacts(seq, 0, None, row_whole=False, blob_whole=False)

    def _blobs(self) -> Iterator[BlobFacts]:
        for key, header in sorted(self._hash(self._keys.named).items()):
            complete = not header.startswith(UNFINISHED)
            self._runs.add(header.split(b" ")[-1].decode("ascii", "replace").rpartition(":")[0])
            whole = complete and read_blob(self._connections, self._keys, header) is not None
            yield BlobFacts(key.decode("utf-8", "backslashreplace"), whole, complete)

    def _orphan_pieces(self) -> list[str]:
        fields = self._ask("HKEYS", self._keys.blobs)
        owners = {field.decode("ascii", "replace").rpartition("/")[0] for field in fields}
        return [f"pieces of the blob {owner}" for owner in sorted(owners - self._runs)]

    def _references(self) -> Iterator[ReferenceFacts]:
        for seq, value in self._hash(self._keys.needs).items():
            try:
                after, key = value.split(b" ", 1)
                yield ReferenceFacts(int(seq), int(after), key.decode())
            except ValueError:
                self._unreadable.append(f"reference of entry {seq!r}: it is {value!r}")

    def _damaged_pages(self) -> Iterator[str]:
        cursor = b"0"
        while True:
            cursor, flat = self._ask("HSCAN", self._keys.pages, cursor, "COUNT", PIECES)
            for i in range(0, len(flat), 2):
                if not checksums.is_page_whole(flat[i + 1]):
                    yield "run {}, page {}".format(*flat[i].decode("ascii", "replace").partition("/")[::2])
            if cursor == b"0":
                return

    def _damaged_documents(self) -> Iterator[str]:
        for field, stored in documents.fields(self._connections, self._keys, "*/*"):
            kind, name, value = documents.parse(field, stored)
            if value is None:
                yield f"{kind} {name!r}"

    def _letters(self) -> Iterator[LetterFacts]:
        fields = self._ask("HKEYS", self._keys.letters)
        headers = [field for field in fields if b"/" not in field]
        for field in sorted(headers):
            where = f"entry {field.decode('ascii', 'backslashreplace')}"
            header = self._ask("HGET", self._keys.letters, field)
            try:
                letter = parse_dead_letter(self._name, field, header)
                read_dead_letter(self._connections, self._keys, self._name, letter)
                yield LetterFacts(where, letter.seq, whole=True)
            except LogGapError:
                yield LetterFacts(where, 0, whole=False)
        owners = {field.partition(b"/")[0] for field in fields if b"/" in field} - set(headers)
        self._orphans += [
            f"payload of the dead letter of entry {one.decode('ascii', 'replace')}" for one in sorted(owners)
        ]

    def _answers(self) -> Iterator[AnswerFacts]:
        for key, value in self._hash(self._keys.answers).items():
            try:
                numbers = _ANSWER.unpack_from(value)[2:]
                seq, log_offset, n_points = (int(n) if n.is_integer() else -1 for n in numbers)
            except struct.error:
                seq = log_offset = n_points = -1
            name = key.decode("ascii", "backslashreplace")
            yield AnswerFacts(name, value[_ANSWER.size :], seq, log_offset, n_points)
