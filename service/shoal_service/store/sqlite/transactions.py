"""The durable changes, one function each: check and refuse, write, put the new state. All run in a transaction.

They are jobs of `GroupWriter`: a refusal is raised before the first write, since the rest of the group goes on.
"""

from collections.abc import Callable
from typing import NamedTuple

from shoal_service.store import rules
from shoal_service.store.contract import Appended, DeadLetter, EntryKind, IdempotencyKey, References, StreamRecord
from shoal_service.store.rules import START, Answer, AnswerLimits
from shoal_service.store.sqlite import blob_refs, chunks
from shoal_service.store.sqlite.stream_state import StreamState, find
from shoal_service.store.sqlite.writer import Transaction

_FORGET_EVERY = 64
"""Keys between two clean-ups of expired ones; what counts as known never depends on it."""


def create_stream(tx: Transaction, record: StreamRecord, max_streams: int) -> tuple[StreamRecord, bool]:
    """The new stream, or the one that there is."""
    if (known := tx.streams.get(record.name)) is not None:
        return known.record, False
    rules.check_room(record.name, len(tx.streams), max_streams)
    row = tx.db.execute("INSERT INTO streams VALUES (NULL, ?, ?, ?, ?, 0, 0, 0, 0)", record)
    assert row.lastrowid is not None
    tx.put(StreamState(row.lastrowid, record, 0, START, START, 0))
    return record, True


def delete_stream(tx: Transaction, name: str) -> None:
    """The stream and all its rows go; its payloads become garbage."""
    if name not in tx.streams:
        raise rules.unknown(name)
    stream = tx.streams[name].id
    for table in ("entries", "checkpoints", "dead_letters", "blobs"):
        tx.db.execute(f"INSERT INTO garbage SELECT first_chunk, size FROM {table} WHERE stream = ?", (stream,))
    for table in ("entries", "checkpoints", "dead_letters", "blobs", "needs", "jobs", "answers"):
        tx.db.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))
    tx.db.execute("DELETE FROM streams WHERE id = ?", (stream,))
    tx.leaves_garbage = True
    tx.remove(name)


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


def append(tx: Transaction, request: AppendRequest, limits: AnswerLimits, clock: Callable[[], float]) -> Appended:
    """One entry more, or the answer that its key was given before."""
    name, incarnation, kind, payload, n_points, budget_bytes, asked, settings, expected, references = request
    state = find(tx.streams, name, incarnation)
    now = clock() if asked is not None else 0.0
    if asked is not None:
        known = _answer(tx, state, asked.key)
        if known is not None and limits.known(known, state.answers_end, now):
            return rules.replay(known, asked)
    rules.check_budget(name, tx.unapplied_bytes(state), budget_bytes)
    rules.check_settings(name, expected, state.record.settings)
    if references is not None:
        blob_refs.note(tx, state, references)

    end = state.end.after(n_points, len(payload))
    first_chunk = tx.ids.take(len(payload))
    chunks.write_run(tx.db, first_chunk, payload)
    tx.db.execute(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (state.id, end.seq, end.log_offset, end.payload_bytes, n_points, kind.value, len(payload), first_chunk),
    )
    state = state._replace(end=end)
    if asked is not None:
        answer = Answer(asked.digest, end.seq, end.log_offset, n_points, now, state.answers_end + 1)
        state = _remember(tx, state, asked.key, answer, limits)
    if settings is not None:
        tx.db.execute("UPDATE streams SET settings = ? WHERE id = ?", (settings, state.id))
        state = state._replace(record=state.record._replace(settings=settings))
    tx.put(state)
    return Appended(end.seq, end.log_offset, n_points, replayed=False)


def _answer(tx: Transaction, state: StreamState, key: str) -> Answer | None:
    row = tx.db.execute(
        "SELECT digest, seq, log_offset, n_points, at, ordinal FROM answers WHERE stream = ? AND key = ?",
        (state.id, key),
    ).fetchone()
    return Answer(*row) if row is not None else None


def _remember(tx: Transaction, state: StreamState, key: str, answer: Answer, limits: AnswerLimits) -> StreamState:
    """Keep the answer, in the place of an expired one of the same key, and now and then forget the expired."""
    tx.db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (state.id, key, *answer))
    if answer.ordinal % _FORGET_EVERY == 0:
        tx.db.execute(
            "DELETE FROM answers WHERE stream = ?1 AND (ordinal <= ?3 OR at <= ?4) AND ordinal IN"
            " (SELECT ordinal FROM answers WHERE stream = ?1 ORDER BY ordinal LIMIT ?2)",
            (state.id, 2 * _FORGET_EVERY, answer.ordinal - limits.keys, answer.at - limits.age_s),
        )
    return state._replace(answers_end=answer.ordinal)


def acquire_writer(tx: Transaction, name: str, incarnation: str) -> int:
    """The next epoch."""
    state = find(tx.streams, name, incarnation)
    tx.db.execute("UPDATE streams SET epoch = ? WHERE id = ?", (state.epoch + 1, state.id))
    blob_refs.drop_unnamed(tx, state)
    tx.put(state._replace(epoch=state.epoch + 1))
    return state.epoch + 1


def add_dead_letter(tx: Transaction, name: str, incarnation: str, epoch: int, letter: DeadLetter) -> None:
    """One letter more, unless its seq is there."""
    state = find(tx.streams, name, incarnation)
    rules.check_epoch(name, epoch, state.epoch)
    there = "SELECT 1 FROM dead_letters WHERE stream = ? AND seq = ?"
    if tx.db.execute(there, (state.id, letter.seq)).fetchone() is not None:
        return
    size = len(letter.payload)
    first_chunk = tx.ids.take(size)
    chunks.write_run(tx.db, first_chunk, letter.payload)
    tx.db.execute(
        "INSERT INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?)",
        (state.id, letter.seq, letter.log_offset, letter.n_points, letter.reason, size, first_chunk),
    )


def replace_settings(
    tx: Transaction, name: str, incarnation: str, epoch: int, expected: bytes, settings: bytes
) -> None:
    """The record's settings put right, unless they are others by now."""
    state = find(tx.streams, name, incarnation)
    rules.check_epoch(name, epoch, state.epoch)
    if state.record.settings == expected:
        tx.db.execute("UPDATE streams SET settings = ? WHERE id = ?", (settings, state.id))
        tx.put(state._replace(record=state.record._replace(settings=settings)))


def probe(tx: Transaction) -> None:
    """A write that changes nothing of value."""
    tx.db.execute("UPDATE shoal_format SET probes = probes + 1")
