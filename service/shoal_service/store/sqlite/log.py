"""The log in SQLite: appending entries with their idempotency answers, and reading them."""

import sqlite3
from collections.abc import Callable

from shoal_service.store import checksums, rules, source_positions
from shoal_service.store.contract import Appended, Entry, EntryKind, NewEntry, SourceStep
from shoal_service.store.rules import Answer, AnswerLimits, AppendFacts
from shoal_service.store.sqlite import blob_refs, chunks, documents, registry
from shoal_service.store.sqlite.stream_state import SELECT_ENTRIES, EntryRow, StreamState, find
from shoal_service.store.sqlite.writer import Transaction

_FORGET_EVERY = 64
"""Keys between two deletions of expired ones. Whether a key is known never depends on it."""


def append(
    tx: Transaction,
    *,
    stream: tuple[str, str],
    entry: NewEntry,
    budget_bytes: int,
    payload_crc: int,
    limits: AnswerLimits,
    clock: Callable[[], float],
) -> Appended:
    """Append one entry, or return the known answer to its key. `payload_crc` is the CRC-32 of the payload."""
    name, asked = stream[0], entry.idempotency
    state = find(tx.streams, *stream)
    now = clock() if asked is not None else 0.0
    if asked is not None:
        known = _answer(tx, state, asked.key)
        if known is not None and limits.known(known, state.answers_end, now):
            return rules.replay(known, asked)
    last = None
    if entry.source is not None:
        last = documents.read_one(tx, state, source_positions.KIND, source_positions.document_of(entry.source))
        if (answered := _known_step(name, entry.source, last)) is not None:
            return answered
        _check_definition(tx, state, name, entry.source)
    rules.check_end_known(name, state.damage)
    rules.check_append(name, entry, budget_bytes, _facts(tx, state, entry))
    if entry.source is not None and last is None:
        documents.check_room(tx, state, source_positions.KIND)

    end = state.end.after(entry.n_points, len(entry.payload))
    first_chunk = tx.ids.take(len(entry.payload))
    chunks.write_run(tx.db, first_chunk, entry.payload)
    fields = (*end, entry.n_points, entry.kind.value, len(entry.payload), first_chunk)
    checksum = checksums.row_checksum(payload_crc, *fields)
    tx.db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", (state.id, *fields, checksum))
    state = state._replace(end=end)
    if entry.references is not None:
        blob_refs.add_reference(tx, state, entry.references)
    if asked is not None:
        answer = Answer(asked.digest, end.seq, end.log_offset, entry.n_points, now, state.answers_end + 1)
        state = _remember(tx, state, asked.key, answer, limits)
    if entry.settings is not None:
        state = registry.write_settings(tx, state, entry.settings)
    appended = Appended(end.seq, end.log_offset, entry.n_points, replayed=False)
    if entry.source is not None:
        document, value = source_positions.document_of(entry.source), source_positions.encode(entry.source, appended)
        documents.replace(tx, state, source_positions.KIND, document, value)
    tx.put(state)
    return appended


def _known_step(stream: str, step: SourceStep, last: documents.Held | None) -> Appended | None:
    """Return the first answer to a step that is in the log. SourcePositionError unless it follows the last one."""
    if last is not None and last.value is None:
        raise source_positions.damaged(stream, step)
    name = source_positions.document_of(step)
    position = None if last is None or last.value is None else source_positions.decode(name, last.value)
    return source_positions.known_step(stream, step, position)


def _check_definition(tx: Transaction, state: StreamState, stream: str, step: SourceStep) -> None:
    if step.definition is None:
        return
    stored = documents.read_one(tx, state, source_positions.DEFINITION_KIND, step.source)
    value = None if stored is None else stored.value
    if value is None or source_positions.definition_digest(value) != step.definition:
        raise source_positions.changed(stream, step)


def _facts(tx: Transaction, state: StreamState, entry: NewEntry) -> AppendFacts:
    return AppendFacts(
        unapplied_bytes=tx.unapplied_bytes(state),
        settings_match=entry.expected_settings in (None, state.record.settings),
        floor_seq=state.floor.seq,
        end_seq=state.end.seq,
        has_blob=entry.references is None or blob_refs.has_blob(tx.db, state, entry.references.blob_key),
    )


def _answer(tx: Transaction, state: StreamState, key: str) -> Answer | None:
    row = tx.db.execute(
        "SELECT digest, seq, log_offset, n_points, at, ordinal FROM answers WHERE stream = ? AND key = ?",
        (state.id, key),
    ).fetchone()
    return Answer(*row) if row is not None else None


def _remember(tx: Transaction, state: StreamState, key: str, answer: Answer, limits: AnswerLimits) -> StreamState:
    """Store the answer, in place of an expired one of the same key, and delete expired answers now and then."""
    tx.db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (state.id, key, *answer))
    if answer.ordinal % _FORGET_EVERY == 0:
        tx.db.execute(
            "DELETE FROM answers WHERE stream = ?1 AND (ordinal <= ?3 OR at <= ?4) AND ordinal IN"
            " (SELECT ordinal FROM answers WHERE stream = ?1 ORDER BY ordinal LIMIT ?2)",
            (state.id, 2 * _FORGET_EVERY, answer.ordinal - limits.keys, answer.at - limits.age_s),
        )
    return state._replace(answers_end=answer.ordinal)


def read_entries(db: sqlite3.Connection, state: StreamState, after_seq: int, max_bytes: int) -> list[Entry]:
    """Return entries after `after_seq`, as `Store.read`. The caller has checked the two ends of the log."""
    found: list[Entry] = []
    select = f"{SELECT_ENTRIES} AND seq > ? AND seq <= ? ORDER BY seq"
    for values in db.execute(select, (state.id, after_seq, state.end.seq)):
        row = EntryRow(*values)
        payload = None
        if row.is_whole and row.seq == after_seq + 1 + len(found):
            max_bytes -= row.size
            if found and max_bytes < 0:
                return found
            payload = chunks.read_run(db, row.first_chunk, row.size)
        if payload is None or not checksums.is_payload_whole(row.checksum, payload):
            break
        found.append(Entry(row.seq, row.log_offset, row.n_points, EntryKind(row.kind), payload))
    if not found:
        raise rules.missing_entry(state.record.name, after_seq + 1)
    return found
