"""Many short byte strings in one array, so that a hundred thousand of them are moved at once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

MANY_LOOKUPS = 8
"""Lookups from which a table of the strings costs less than a scan for each."""


class Texts:
    """N byte strings. Immutable."""

    __slots__ = ("_ends", "_table", "data", "lengths")

    def __init__(self, data: npt.NDArray[np.uint8], lengths: npt.NDArray[Any]) -> None:
        """data: all bytes, one string after another; lengths (N,)."""
        self.data = data
        self.lengths: IntArray = lengths.astype(np.int64, copy=False)
        self._ends: IntArray | None = None
        self._table = _table_of(data, self.lengths)

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> "Texts":
        """The strings of an iterable."""
        strings = list(texts)
        return cls(np.frombuffer(b"".join(strings), np.uint8), np.fromiter(map(len, strings), np.int64, len(strings)))

    @classmethod
    def empty(cls, n: int) -> "Texts":
        """n empty strings."""
        return cls(np.zeros(0, dtype=np.uint8), np.broadcast_to(np.int64(0), n))

    @property
    def ends(self) -> IntArray:
        """(N,) where each string ends in the data."""
        if self._ends is None:
            self._ends = np.cumsum(self.lengths)
        return self._ends

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, i: int) -> bytes:
        end = int(self.ends[i])
        return self.data[end - int(self.lengths[i]) : end].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        data, start = self.data.tobytes(), 0
        for end in self.ends.tolist():
            yield data[start:end]
            start = end

    def data_at(self, rows: IntArray) -> npt.NDArray[np.uint8]:
        """The bytes of the chosen strings, one string after another."""
        if self._table is not None:
            return np.take(self._table, rows, axis=0).reshape(-1)
        return self.take(rows).data if self.data.size else self.data

    def lengths_at(self, rows: IntArray) -> IntArray:
        """Their lengths."""
        if self._table is not None or not self.data.size:
            return np.broadcast_to(self.lengths[:1], len(rows))
        return self.lengths[rows]

    def part(self, start: int, end: int) -> "Texts":
        """The strings from `start` to `end`, as a view."""
        return Texts(self._data(start, end), self.lengths[start:end])

    def _data(self, start: int, end: int) -> npt.NDArray[np.uint8]:
        if self._table is not None:
            return self._table[start:end].reshape(-1)
        first = int(self.ends[start - 1]) if start else 0
        return self.data[first : int(self.ends[end - 1]) if end else 0]

    def take(self, rows: IntArray) -> "Texts":
        """The chosen strings."""
        lengths = self.lengths_at(rows)
        if self._table is not None or not self.data.size:
            return Texts(self.data_at(rows), lengths)
        ends = np.cumsum(lengths)
        shift = self.ends[rows] - ends  # from a byte's new place to its old one
        return Texts(self.data[np.repeat(shift, lengths) + np.arange(int(ends[-1]) if ends.size else 0)], lengths)

    def places_of(self, text: bytes) -> list[int]:
        """Places of a string among these, ascending."""
        table = self._table
        if table is not None and table.shape[1] == len(text):
            return np.flatnonzero((table == np.frombuffer(text, np.uint8)).all(axis=1)).tolist()
        as_long = np.flatnonzero(self.lengths == len(text))
        starts = self.ends[as_long] - len(text)
        equal = self.data[starts[:, None] + np.arange(len(text))] == np.frombuffer(text, np.uint8)
        places: list[int] = as_long[equal.all(axis=1)].tolist()
        return places

    def finder(self, n_lookups: int) -> Callable[[bytes], Sequence[int]]:
        """A function like `places_of`, for so many lookups: a scan for each of a few, and a table for many."""
        if n_lookups < MANY_LOOKUPS:
            return self.places_of
        places: dict[bytes, list[int]] = {}
        for place, text in enumerate(self):
            places.setdefault(text, []).append(place)
        return lambda text: places.get(text, ())

    def words(self) -> tuple[npt.NDArray[np.uint64], IntArray]:
        """(N, W) the strings as 64-bit words, filled up with zeros; and their lengths."""
        table = self._table
        if table is not None and table.shape[1] % 8 == 0:
            return table.view("<u8"), self.lengths
        longest = int(self.lengths.max(initial=1))
        padded = np.zeros((len(self), 8 * -(-longest // 8)), dtype=np.uint8)
        if table is not None:
            padded[:, : table.shape[1]] = table
        else:
            padded[np.arange(padded.shape[1]) < self.lengths[:, None]] = self.data
        return padded.view("<u8"), self.lengths


def _table_of(data: npt.NDArray[np.uint8], lengths: IntArray) -> npt.NDArray[np.uint8] | None:
    """(N, L) the strings as a view, if all have the same length L > 0."""
    n = len(lengths)
    length = int(lengths[0]) if n else 0
    if length == 0 or n * length != data.size:
        return None
    same = lengths.strides == (0,) or bool((lengths == length).all())
    return data.reshape(n, length) if same else None


def joined_texts(parts: list[Texts]) -> Texts:
    """The strings of all parts, in order."""
    return Texts(np.concatenate([part.data for part in parts]), joined_columns([part.lengths for part in parts]))


def joined_columns(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The values of all parts, in order. Parts that repeat one value without storing it are joined to such an array."""
    first = parts[0]
    if all(part.strides == (0,) and part[:1].tobytes() == first[:1].tobytes() for part in parts):
        return np.broadcast_to(first[:1], sum(map(len, parts)))
    return np.concatenate(parts)
