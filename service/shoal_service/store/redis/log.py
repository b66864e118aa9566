"""The log in Redis: the request of an append, and reading entries.

Entries never change, so the counters, the rows and the payloads may be read one after the other. Only a trim or the
deletion of the stream can happen in between. Then the counters are read again. MULTI would not help: a server with full
memory refuses even reads inside it, and the learner that would free memory could not read.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from shoal_service.errors import LogGapError
from shoal_service.store import rules, source_positions
from shoal_service.store.contract import MAX_DOCUMENTS, Appended, Entry, EntryKind, NewEntry, SourceStep
from shoal_service.store.redis import documents
from shoal_service.store.redis.connection import Command, Connections, Word
from shoal_service.store.redis.high_water import AcknowledgedEntries
from shoal_service.store.redis.keys import StreamKeys, pieces
from shoal_service.store.redis.scripts import accept, row_hash, script
from shoal_service.store.redis.writer import WriteRequest
from shoal_service.store.rules import Answer, AnswerLimits, AppendFacts, HeldDocuments, LogPosition

PAGE = 1000
"""Rows read at a time."""
SPAN_BYTES = 8 << 20
"""Payload bytes read at a time."""


def append_request(
    keys: StreamKeys,
    channels: tuple[str, str],
    stream: tuple[str, str],
    entry: NewEntry,
    *,
    budget_bytes: int,
    limits: AnswerLimits,
    now: float,
    acknowledged: AcknowledgedEntries,
) -> WriteRequest[Appended]:
    """Return the request of one append. With settings, the second of the `channels` gets a message as well.

    With an idempotency key or the step of a source it is repeatable after a lost reply, without them it is not.
    """
    name, incarnation = stream
    asked, references, step = entry.idempotency, entry.references, entry.source
    last_acknowledged = acknowledged.last(keys.tag)
    settings, expected = entry.settings, entry.expected_settings
    command = script("append").command(
        (keys.meta, keys.log, keys.data, keys.answers, keys.order, keys.needs, keys.named, keys.documents),
        entry.kind.value, entry.n_points, len(entry.payload), int(budget_bytes),  # hiredis needs an int
        channels[0], keys.tag, "" if settings is None else channels[1], settings or b"",
        *((1, asked.key, asked.digest) if asked is not None else (0, b"", b"")), repr(now), *limits,
        *((1, references.after_seq, references.blob_key) if references is not None else (0, 0, b"")),
        *((1, expected) if expected is not None else (0, b"")), zlib.crc32(entry.payload), last_acknowledged,
        *_step_words(step, entry.n_points),
        *pieces(entry.payload),
    )  # fmt: skip

    def parse(reply: list[Any], resent: bool) -> Appended:
        if reply[0] == b"known" and asked is not None:
            digest, seq, log_offset, n, of_this_moment = reply[1:]
            answer = rules.replay(Answer(digest, seq, log_offset, n, 0.0, 0), asked)
            # When the reply to the first sending was lost, the known answer is the one of that sending.
            return answer._replace(replayed=not (resent and of_this_moment))
        if reply[0] == b"step" and step is not None:
            known = _known_step(name, step, reply[1])
            return known._replace(replayed=not resent)
        if reply[0] == b"changed" and step is not None:
            raise source_positions.changed(name, step)
        if reply[0] == b"full":
            there, added = HeldDocuments(reply[1], reply[2]), HeldDocuments(1, 0)
            rules.check_document_limits(name, source_positions.KIND, there, added)
        if reply[0] == b"refused":
            unapplied, settings_match, floor_seq, end_seq, has_blob = reply[1:]
            facts = AppendFacts(unapplied, bool(settings_match), floor_seq, end_seq, bool(has_blob))
            rules.check_append(name, entry, budget_bytes, facts)
        if reply[0] == b"lost":
            acknowledged.check(name, reply[1], last_acknowledged)
        if reply[0] == b"damaged":
            raise rules.gap(name, f"its counters do not match the last entry, {reply[1]}")
        accept(reply, name, incarnation)
        acknowledged.note(keys.tag, reply[1])
        return Appended(reply[1], reply[2], entry.n_points, replayed=False)

    repeatable = asked is not None or step is not None
    return WriteRequest(keys.tag, command, parse, len(entry.payload), repeatable=repeatable, grouped=True)


def _step_words(step: SourceStep | None, n_points: int) -> tuple[Word, ...]:
    """Return what the script gets of a step: whether there is one, field, position before, document, the limit, and
    field and digest of its definition.
    """
    if step is None:
        return (0, b"", b"", b"", 0, b"", b"")
    field = f"{source_positions.KIND}/{source_positions.document_of(step)}"
    defined = "" if step.definition is None else f"{source_positions.DEFINITION_KIND}/{step.source}"
    head = source_positions.encode_head(step, n_points)
    return (1, field, step.before or "", head, MAX_DOCUMENTS, defined, step.definition or "")


def _known_step(stream: str, step: SourceStep, stored: bytes | None) -> Appended:
    """Return the first answer to a step that is in the log. SourcePositionError for one that does not follow."""
    last = None
    if stored is not None:
        document = source_positions.document_of(step)
        _, _, value = documents.parse(f"{source_positions.KIND}/{document}".encode(), stored)
        if value is None:
            raise source_positions.damaged(stream, step)
        last = source_positions.decode(document, value)
    known = source_positions.known_step(stream, step, last)
    assert known is not None, f"the script refused a step that follows {stored!r}"
    return known


# -- the counters


class Counters(NamedTuple):
    """Counters of a stream."""

    end: LogPosition
    floor: LogPosition
    applied_bytes: int
    epoch: int


_COUNTERS = ("seq", "offset", "bytes", "floor_seq", "floor_offset", "floor_bytes", "applied", "epoch")


class LogReader:
    """Reads the log and the counters of one stream."""

    def __init__(
        self,
        connections: Connections,
        keys: StreamKeys,
        name: str,
        incarnation: str,
        acknowledged: AcknowledgedEntries,
    ) -> None:
        self._connections = connections
        self._keys = keys
        self._name = name
        self._incarnation = incarnation
        self._acknowledged = acknowledged

    def counters(self) -> Counters:
        """Return the counters. StreamGoneError when the stream was deleted."""
        acknowledged = self._acknowledged.last(self._keys.tag)
        return self._counters(self._connections.ask(self._ask_counters())[0], acknowledged)

    def counters_and_position(self, seq: int) -> tuple[Counters, LogPosition | None]:
        """Return the counters, and the position behind entry `seq` if the log holds it."""
        at, acknowledged = f"{max(0, seq)}-0", self._acknowledged.last(self._keys.tag)
        found, rows = self._connections.ask(self._ask_counters(), ("XRANGE", self._keys.log, at, at))
        row = parse_row(rows[0]) if rows else None
        return self._counters(found, acknowledged), row.position if row is not None else None

    def read(self, after_seq: int, max_bytes: int) -> list[Entry]:
        """Return entries after `after_seq`, as `Store.read`."""
        acknowledged = self._acknowledged.last(self._keys.tag)
        before = max(0, after_seq)  # the row before the first one shows whether that one follows it
        found, page = self._connections.ask(self._ask_counters(), self._ask_rows(before))
        now = self._counters(found, acknowledged)
        rules.check_readable(self._name, after_seq, now.floor, now.end)
        previous = now.floor if before == now.floor.seq else None
        rows: list[_Row] = []
        for seq, row in self._rows(page):
            if seq == before:
                previous = row.position if row is not None else None
                continue
            if row is None or row.position.seq != after_seq + 1 + len(rows) or not row.follows(previous):
                break
            max_bytes -= row.size
            if rows and max_bytes < 0:
                break
            previous = row.position
            rows.append(row)
        if not rows and after_seq < now.end.seq:
            raise self._gap(after_seq)
        entries: list[Entry] = []
        for row, payload in self._payloads(rows):
            if payload is None:
                break
            entries.append(Entry(row.position.seq, row.position.log_offset, row.n_points, row.kind, payload))
        if rows and not entries:
            raise self._gap(after_seq)
        return entries

    def _gap(self, after_seq: int) -> LogGapError:
        """Return the error for the entry after `after_seq`. Raises another one if it was trimmed or deleted."""
        now = self.counters()
        rules.check_readable(self._name, after_seq, now.floor, now.end)
        return rules.missing_entry(self._name, after_seq + 1)

    def _ask_counters(self) -> Command:
        return ("HMGET", self._keys.meta, *_COUNTERS)

    def _counters(self, found: list[bytes | None], acknowledged: int) -> Counters:
        n = [int(value) for value in found if value is not None]
        if len(n) < len(_COUNTERS):
            raise rules.gone(self._name, self._incarnation)
        self._acknowledged.check(self._name, n[0], acknowledged)
        return Counters(LogPosition(*n[0:3]), LogPosition(*n[3:6]), n[6], n[7])

    def _ask_rows(self, first: int) -> Command:
        return ("XRANGE", self._keys.log, f"{first}-0", "+", "COUNT", PAGE)

    def _rows(self, page: list[Any]) -> Iterator[tuple[int, "_Row | None"]]:
        """Yield seq and row of each entry from a page on. The row is None when it is damaged."""
        while page:
            seq = 0
            for reply in page:
                seq = int(reply[0].partition(b"-")[0])
                yield seq, parse_row(reply)
            page = self._connections.ask(self._ask_rows(seq + 1))[0] if len(page) == PAGE else []

    def _payloads(self, rows: list["_Row"]) -> Iterator[tuple["_Row", bytes | None]]:
        """Yield each row with its payload, or None when that is damaged. Reads spans of a few megabytes."""
        for span in _spans(rows):
            first, last = span[0].position.seq, span[-1].position.seq
            (parts,) = self._connections.ask(("XRANGE", self._keys.data, f"{first}-0", str(last)))
            found: dict[int, list[bytes]] = {}
            for part_id, (_, part) in parts:
                found.setdefault(int(part_id.partition(b"-")[0]), []).append(part)
            for row in span:
                own = found.get(row.position.seq, [])
                payload = own[0] if len(own) == 1 else b"".join(own)
                yield row, payload if own and row.is_payload_whole(payload) else None


class _Row(NamedTuple):
    """Entry without its payload."""

    position: LogPosition
    n_points: int
    size: int
    kind: EntryKind
    payload_crc: int | None
    """None for an entry of format 1."""

    def follows(self, previous: LogPosition | None) -> bool:
        """Return whether the entry continues the previous one, if that is known."""
        return previous is None or self.position == previous.after(self.n_points, self.size)

    def is_payload_whole(self, payload: bytes) -> bool:
        """Return whether the payload is the one of this entry."""
        return len(payload) == self.size and self.payload_crc in (None, zlib.crc32(payload))


def parse_row(reply: list[Any]) -> _Row | None:
    """Return the row of a reply, or None when it is damaged."""
    seq, values = reply[0].partition(b"-")[0], reply[1][1::2]
    try:
        offset, n_bytes, n_points, size, kind, *checks = values
        if checks and (len(checks) != 2 or row_hash(seq, *values[:6]) != checks[1]):
            return None
        position = LogPosition(int(seq), int(offset), int(n_bytes))
        crc = int(checks[0]) if checks else None
        return _Row(position, int(n_points), int(size), EntryKind(kind.decode()), crc)
    except ValueError:
        return None


def _spans(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    span: list[_Row] = []
    n_bytes = 0
    for row in rows:
        if span and n_bytes + row.size > SPAN_BYTES:
            yield span
            span, n_bytes = [], 0
        span.append(row)
        n_bytes += row.size
    if span:
        yield span
