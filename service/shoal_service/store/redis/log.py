"""The log in Redis: what an append sends, and the questions asked of it.

Entries never change once they are there, so counters, rows and payloads may be asked for one after the other; only a
trim or the end of the stream can come in between, and then the counters are looked at again. (Not in a MULTI: a server
whose memory is full refuses even questions in there, and the learner that would make room could not read.)
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from shoal_service.errors import LogGapError
from shoal_service.store import rules
from shoal_service.store.contract import Appended, Entry, EntryKind, IdempotencyKey, References
from shoal_service.store.redis.connection import Command, Links
from shoal_service.store.redis.keys import StreamKeys, pieces
from shoal_service.store.redis.requests import Job
from shoal_service.store.redis.scripts import script
from shoal_service.store.rules import Answer, AnswerLimits, LogMark

PAGE = 1000
"""Rows asked for at a time."""
SPAN_BYTES = 8 << 20
"""Payload bytes asked for at a time."""


class AppendRequest(NamedTuple):
    """The arguments of `Store.append`."""

    name: str
    incarnation: str
    kind: EntryKind
    payload: bytes
    n_points: int
    budget_bytes: int
    idempotency: IdempotencyKey | None
    settings: bytes | None
    expected_settings: bytes | None
    references: References | None


def append_job(
    keys: StreamKeys, channels: tuple[str, str], request: AppendRequest, limits: AnswerLimits, now: float
) -> Job[Appended]:
    """One append; of the `channels` the first hears of it, the second too where it brings settings.

    With an idempotency key it may be sent again after a lost reply; without, never.
    """
    name, incarnation, kind, payload, n_points, budget_bytes, asked, settings, expected, references = request
    command = script("append").command(
        (keys.meta, keys.log, keys.data, keys.answers, keys.order, keys.needs, keys.named),
        kind.value, n_points, len(payload), int(budget_bytes), channels[0], keys.tag,  # int: hiredis takes no subclass
        "" if settings is None else channels[1], settings or b"",
        *((1, asked.key, asked.digest) if asked is not None else (0, b"", b"")), repr(now), *limits,
        *((1, references.after_seq, references.blob_key) if references is not None else (0, 0, b"")),
        *((1, expected) if expected is not None else (0, b"")),
        *pieces(payload),
    )  # fmt: skip

    def parse(reply: list[Any], resent: bool) -> Appended:
        if reply[0] == b"known" and asked is not None:
            digest, seq, log_offset, n, of_this_moment = reply[1:]
            answer = rules.replay(Answer(digest, seq, log_offset, n, 0.0, 0), asked)
            # The reply to the first sending was lost: what is known is that sending's own answer.
            return answer._replace(replayed=not (resent and of_this_moment))
        if reply[0] == b"over":
            rules.check_budget(name, reply[1], budget_bytes)
        if reply[0] == b"moved":
            raise rules.settings_moved(name)
        if references is not None and reply[0] == b"blob":
            raise rules.missing_needs(name, f"the blob {references.blob_key!r}")
        if references is not None and reply[0] == b"entries":
            end, floor = (LogMark(seq, 0, 0) for seq in reply[1:])
            rules.check_entries_held(name, references.after_seq, floor, end)
        accept(reply, name, incarnation)
        return Appended(reply[1], reply[2], n_points, replayed=False)

    return Job(keys.tag, command, parse, len(payload), repeatable=asked is not None, grouped=True)


def accept(
    reply: list[Any], name: str, incarnation: str, epoch: int = 0, place: tuple[str, int] = ("", 0)
) -> list[Any]:
    """A script's reply where it says ok, else the error that it stands for."""
    match reply[0]:
        case b"ok":
            return reply
        case b"gone":
            raise rules.gone(name, incarnation)
        case b"stale":
            rules.check_epoch(name, epoch, reply[1])
        case b"beyond":
            rules.check_reached(name, *place, LogMark(reply[1], 0, 0))
    raise AssertionError(f"a script replied {reply!r}")


# -- questions


class Counters(NamedTuple):
    """Where a stream stands."""

    end: LogMark
    floor: LogMark
    applied_bytes: int
    epoch: int


class Row(NamedTuple):
    """An entry without its payload."""

    mark: LogMark
    n_points: int
    size: int
    kind: EntryKind


_COUNTERS = ("seq", "offset", "bytes", "floor_seq", "floor_offset", "floor_bytes", "applied", "epoch")


def counters(links: Links, keys: StreamKeys, name: str, incarnation: str) -> Counters:
    """Where the stream stands, or StreamGoneError."""
    return _counters(links.ask(_ask_counters(keys))[0], name, incarnation)


def counters_and_row(
    links: Links, keys: StreamKeys, name: str, incarnation: str, seq: int
) -> tuple[Counters, Row | None]:
    """Where the stream stands, and one entry of it where it is held."""
    at = f"{max(0, seq)}-0"
    found, rows = links.ask(_ask_counters(keys), ("XRANGE", keys.log, at, at))
    return _counters(found, name, incarnation), _row(rows[0]) if rows else None


def _ask_counters(keys: StreamKeys) -> Command:
    return ("HMGET", keys.meta, *_COUNTERS)


def _counters(found: list[bytes | None], name: str, incarnation: str) -> Counters:
    n = [int(value) for value in found if value is not None]
    if len(n) < len(_COUNTERS):
        raise rules.gone(name, incarnation)
    return Counters(LogMark(*n[0:3]), LogMark(*n[3:6]), n[6], n[7])


def _row(reply: list[Any]) -> Row:
    seq = int(reply[0].partition(b"-")[0])
    _, offset, _, n_bytes, _, n_points, _, size, _, kind = reply[1]
    return Row(LogMark(seq, int(offset), int(n_bytes)), int(n_points), int(size), EntryKind(kind.decode()))


def read(links: Links, keys: StreamKeys, name: str, incarnation: str, after_seq: int, max_bytes: int) -> list[Entry]:
    """As `Store.read`."""
    found, page = links.ask(_ask_counters(keys), _ask_rows(keys, after_seq))
    now = _counters(found, name, incarnation)
    rules.check_held(name, after_seq, now.floor, now.end)
    rows: list[Row] = []
    for row in _rows_from(links, keys, page):
        max_bytes -= row.size
        if rows and max_bytes < 0:
            break
        if row.mark.seq != after_seq + 1 + len(rows):
            raise _gap(links, keys, name, incarnation, after_seq, after_seq + 1 + len(rows))
        rows.append(row)
    else:
        if after_seq + len(rows) < now.end.seq:
            raise _gap(links, keys, name, incarnation, after_seq, after_seq + 1 + len(rows))
    entries: list[Entry] = []
    for row, payload in _with_payloads(links, keys, rows):
        if payload is None:
            raise _gap(links, keys, name, incarnation, after_seq, row.mark.seq)
        entries.append(_entry(row, payload))
    return entries


def _gap(links: Links, keys: StreamKeys, name: str, incarnation: str, after_seq: int, missing: int) -> LogGapError:
    """The error for a missing entry; raises another one when it was trimmed, or the stream ended, meanwhile."""
    now = counters(links, keys, name, incarnation)
    rules.check_held(name, after_seq, now.floor, now.end)
    return rules.gap(name, f"entry {missing} is missing or not whole")


def _ask_rows(keys: StreamKeys, after_seq: int) -> Command:
    return ("XRANGE", keys.log, f"{max(0, after_seq) + 1}-0", "+", "COUNT", PAGE)


def _rows_from(links: Links, keys: StreamKeys, page: list[Any]) -> Iterator[Row]:
    """The rows of a page, and of those after it."""
    while page:
        rows = [_row(reply) for reply in page]
        yield from rows
        page = links.ask(_ask_rows(keys, rows[-1].mark.seq))[0] if len(page) == PAGE else []


def _entry(row: Row, payload: bytes) -> Entry:
    return Entry(row.mark.seq, row.mark.log_offset, row.n_points, row.kind, payload)


def _with_payloads(links: Links, keys: StreamKeys, rows: list[Row]) -> Iterator[tuple[Row, bytes | None]]:
    """Each row with its payload, None where that is not whole; asked for in spans of a few megabytes."""
    for span in _spans(rows):
        (parts,) = links.ask(("XRANGE", keys.data, f"{span[0].mark.seq}-0", str(span[-1].mark.seq)))
        found: dict[int, list[bytes]] = {}
        for part_id, (_, part) in parts:
            found.setdefault(int(part_id.partition(b"-")[0]), []).append(part)
        for row in span:
            own = found.get(row.mark.seq, [])
            payload = own[0] if len(own) == 1 else b"".join(own)
            yield row, payload if own and len(payload) == row.size else None


def _spans(rows: Iterable[Row]) -> Iterator[list[Row]]:
    span: list[Row] = []
    n_bytes = 0
    for row in rows:
        if span and n_bytes + row.size > SPAN_BYTES:
            yield span
            span, n_bytes = [], 0
        span.append(row)
        n_bytes += row.size
    if span:
        yield span
