"""Versions of records as columns, the hash of their keys, and which version of a key counts."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.points.arrays import Array, IntArray
from shoal_service.wire import Texts, joined_columns, joined_texts

TEXT_TIME = 1
"""Flag: the time was sent as text."""
REASSIGNED = 2
"""Flag: the row only says which component a refinement gave the record of this key and offset."""

ROW_BYTES = 24
"""Of a row, roughly, without its key, its payload, a time and a reassignment."""

Hashes = npt.NDArray[np.uint64]

_HASHED_AT_ONCE = 16_384
"""Keys whose words fit in the cache of a processor."""
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


class RecordRows(NamedTuple):
    """N versions of records, oldest first where the order matters."""

    log_offset: IntArray
    """(N,) points of the log up to and including the record's point."""
    assigned: IntArray
    """(N,) component as the point was learnt. -1 in rows with REASSIGNED."""
    refined: IntArray
    """(N,) component that the last refinement assigned; -1 for none."""
    novelty: Array
    log_density: Array  # NaN where it is not known
    time: Array
    """(N,) Unix seconds, NaN for none."""
    arrived: Array
    """(N,) Unix seconds at which the batch was accepted."""
    flags: npt.NDArray[np.uint8]
    keys: Texts
    """UTF-8; empty for a record that was forgotten."""
    payloads: Texts
    """JSON objects; empty for none."""

    @classmethod
    def none(cls) -> "RecordRows":
        """No row."""
        whole, real = np.zeros(0, np.int64), np.zeros(0)
        return cls(
            whole, whole, whole, real, real, real, real, np.zeros(0, np.uint8), Texts.empty(0), Texts.empty(0)
        )  # fmt: skip

    @property
    def n(self) -> int:
        """N."""
        return len(self.keys)

    def take(self, rows: IntArray) -> "RecordRows":
        """The chosen rows, copied."""
        columns = [column[rows] for column in self.columns()]
        return RecordRows._make([*columns, self.keys.take(rows), self.payloads.take(rows)])

    def part(self, start: int, end: int) -> "RecordRows":
        """The rows from `start` to `end`, as views."""
        columns = [column[start:end] for column in self.columns()]
        return RecordRows._make([*columns, self.keys.part(start, end), self.payloads.part(start, end)])

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """The fields that are arrays, in order."""
        return self[:8]


class NewRun(NamedTuple):
    """The newest version of each key among some rows, in ascending order of hash."""

    rows: RecordRows
    places: IntArray
    """(N,) places of these versions among the rows, in order. Rows are moved once, when they are written."""
    hashes: Hashes
    """(N,) of their keys."""

    @property
    def n_rows(self) -> int:
        """N."""
        return len(self.places)

    @property
    def n_bytes(self) -> int:
        """Roughly."""
        texts = self.rows.keys.lengths_at(self.places).sum() + self.rows.payloads.lengths_at(self.places).sum()
        return int(texts) + 2 * ROW_BYTES * self.n_rows

    @property
    def last_arrival(self) -> float:
        """Largest arrival of a record."""
        return float(self.any_order(self.rows.arrived).max())

    @property
    def log_offset(self) -> IntArray:
        """(N,) of these versions."""
        return self.rows.log_offset[self.places]

    def any_order(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(N,) a column of these versions, in any order."""
        return column if len(self.places) == len(column) else column[self.places]

    def after(self, log_offset: int) -> "NewRun":
        """Those after a log offset."""
        kept = np.flatnonzero(self.log_offset > log_offset)
        return NewRun(self.rows, self.places[kept], self.hashes[kept])


def joined(parts: list[RecordRows]) -> RecordRows:
    """The rows of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    columns = [joined_columns(column) for column in zip(*(part.columns() for part in parts), strict=True)]
    keys = joined_texts([part.keys for part in parts])
    payloads = joined_texts([part.payloads for part in parts])
    return RecordRows._make([*columns, keys, payloads])


def hashes_of(keys: Texts) -> Hashes:
    """(N,) hash of each key: the same in every process and version, because it orders rows in the store."""
    hashed = keys.lengths.astype(np.uint64)
    for start in range(0, len(keys), _HASHED_AT_ONCE):
        end = min(start + _HASHED_AT_ONCE, len(keys))
        _hash_inplace(hashed[start:end], *keys.part(start, end).words())
    return hashed


def _hash_inplace(hashed: Hashes, words: Hashes, lengths: IntArray) -> None:
    """Mix the words of each key into its hash."""
    shortest = int(lengths.min())
    for word in range(words.shape[1]):
        if shortest > 8 * word:
            hashed ^= words[:, word]
            _mix_inplace(hashed)
            continue
        longer = np.flatnonzero(lengths > 8 * word)  # a hash is that of its own key, whatever keys are beside it
        some = hashed[longer] ^ words[longer, word]
        _mix_inplace(some)
        hashed[longer] = some


def _mix_inplace(h: Hashes) -> None:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood 2014), which maps 64 bits one to one."""
    shifted = h >> np.uint64(30)
    h ^= shifted
    h *= _M1
    h += np.uint64(1)
    h ^= np.right_shift(h, np.uint64(27), out=shifted)
    h *= _M2
    h ^= np.right_shift(h, np.uint64(31), out=shifted)


def _ascending(hashes: Hashes) -> IntArray:
    """Places in ascending order of hash; of one hash, the first place first.

    Sorts the upper bits of each hash with its place below them, in half the time of an indirect sort. Where two hashes
    differ in lower bits alone, that is not enough.
    """
    n = len(hashes)
    places = np.uint64((1 << n.bit_length()) - 1)
    order = (np.sort((hashes & ~places) | np.arange(n, dtype=np.uint64)) & places).astype(np.int64)
    ordered = hashes[order]
    if (ordered[1:] < ordered[:-1]).any():
        return np.argsort(hashes, kind="stable")
    return order


def newest(rows: RecordRows, hashes: Hashes) -> NewRun:
    """The last version of each key. `rows` are oldest first.

    A reassignment becomes part of the version that it is of, where that is among the rows.
    """
    order = _ascending(hashes)
    ordered = hashes[order]
    same = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not same.size:
        return NewRun(rows, order, ordered)
    refined = rows.refined.copy()
    keep = np.ones(len(order), dtype=np.bool_)
    at = 0
    while at < same.size:
        first = last = int(same[at])
        while at < same.size and same[at] == last:
            last, at = last + 1, at + 1
        _fold(rows, refined, order[first : last + 1], keep[first : last + 1])
    return NewRun(rows._replace(refined=refined), order[keep], ordered[keep])


def _fold(rows: RecordRows, refined: IntArray, group: IntArray, keep: npt.NDArray[np.bool_]) -> None:
    """Settle the rows of one hash, oldest first: write `refined`, and clear `keep` of those that no longer count."""
    whole: dict[bytes, int] = {}  # place in the group of the version that counts, by key
    later: dict[bytes, int] = {}  # and of the last reassignment after it, or without it
    for place, row in enumerate(group.tolist()):
        key = rows.keys[row]
        if not key:  # forgotten
            keep[place] = False
            continue
        if not rows.flags[row] & REASSIGNED:
            for old in (whole.pop(key, None), later.pop(key, None)):
                if old is not None:
                    keep[old] = False
            whole[key] = place
            continue
        base = whole.get(key)
        if base is not None:
            keep[place] = False
            if rows.log_offset[group[base]] == rows.log_offset[row]:
                refined[group[base]] = rows.refined[row]
            continue
        if (old := later.get(key)) is not None:
            keep[old] = False
        later[key] = place
