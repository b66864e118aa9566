"""Reading of records from a store, by any process: by key, and by the component that they belong to."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from shoal.points.arrays import IntArray
from shoal_service.errors import StoreUnavailableError
from shoal_service.store import PagePlace
from shoal_service.streams.record_index.pages import (
    HEAD,
    Columns,
    Directory,
    Head,
    Run,
    decode_columns,
    decode_directory,
    decode_head,
    decode_rows,
)
from shoal_service.streams.record_index.rows import REASSIGNED, TEXT_TIME, RecordRows, hashes_of
from shoal_service.wire import Texts

T = TypeVar("T")

ReadPages: TypeAlias = Callable[[Sequence[PagePlace]], list[bytes | None]]
"""As `Store.read_pages`, for one stream."""

_DIRECTORIES_KEPT = 128
_ATTEMPTS = 8
"""Attempts at a read while the learner joins runs."""


class Stored(NamedTuple):
    """A record as it is stored."""

    key: bytes
    log_offset: int
    assigned: int
    refined: int
    """-1 where no refinement assigned it again."""
    novelty: float
    log_density: float
    time: float
    time_is_text: bool
    arrived: float
    payload: bytes


class Bounds(NamedTuple):
    """Records that are shown: those that arrived at this Unix time or later."""

    arrived_from: float = -np.inf


class RecordReader:
    """The records of one stream. Any thread may call it."""

    def __init__(self, read: ReadPages) -> None:
        self._read = read
        self._directories: OrderedDict[int, Directory] = OrderedDict()

    def head(self) -> Head:
        """The head at this moment."""
        return decode_head(self._read([HEAD])[0])

    def holds_head(self, encoded: bytes) -> bool:
        """Whether these are the bytes of the head at this moment."""
        return self._read([HEAD])[0] == encoded

    def find(self, keys: Sequence[bytes], bounds: Bounds = Bounds()) -> list[Stored | None]:  # noqa: B008  immutable
        """The record of each key, None where there is none. Raises StoreError."""
        return retried(lambda: [_shown(record, bounds) for record in self.find_in(self.head(), list(keys))])

    def find_in(self, head: Head, keys: list[bytes]) -> list[Stored | None]:
        """The record of each key as of a head, whenever it came. Call it within `retried`."""
        hashes = hashes_of(Texts.of(keys)).tolist()
        found: list[Stored | None] = [None] * len(keys)
        reassigned: dict[int, tuple[int, int]] = {}  # offset and component, by place of the key
        open_ = list(range(len(keys)))
        for run in reversed(head.runs):
            if not open_:
                break
            directory = self._directory(run)
            wanted = {i: directory.pages_of(hashes[i]) for i in open_}
            numbers = sorted({page for pages in wanted.values() for page in pages})
            rows = dict(zip(numbers, map(decode_rows, self.pages(run, numbers)), strict=True))
            lookups = Counter(page for pages in wanted.values() for page in pages)
            places_of = {page: rows[page].keys.finder(n) for page, n in lookups.items()}
            for i, pages in wanted.items():
                for page in reversed(pages):
                    found[i] = found[i] or _newest_of(rows[page], places_of[page](keys[i]), i, reassigned)
            open_ = [i for i in open_ if found[i] is None]
        return found

    def _directory(self, run: Run) -> Directory:
        directory = self._directories.get(run.number)
        if directory is None:
            directory = decode_directory(self.pages(run, [0])[0])
            self._directories[run.number] = directory
            while len(self._directories) > _DIRECTORIES_KEPT:
                self._directories.popitem(last=False)
        return directory

    def pages(self, run: Run, numbers: Sequence[int]) -> list[bytes]:
        """Pages of a run by number. Raises RunMovedError."""
        found = self._read([(run.number, number) for number in numbers])
        whole = [page for page in found if page is not None]
        if len(whole) < len(found):
            raise RunMovedError
        return whole

    def columns(self, run: Run) -> Iterator[tuple[int, Columns]]:
        """The columns of a run, a page at a time, with the number of the first row of each."""
        first = 0
        for number in self._directory(run).column_pages:
            columns = decode_columns(self.pages(run, [number])[0])
            yield first, columns
            first += len(columns.log_offset)

    def keys_at(self, run: Run, rows: IntArray) -> list[bytes]:
        """The keys of rows of a run, by their numbers."""
        directory = self._directory(run)
        places = [directory.page_of_row(int(row)) for row in rows]
        numbers = sorted({page for page, _ in places})
        pages = dict(zip(numbers, map(decode_rows, self.pages(run, numbers)), strict=True))
        return [pages[page].keys[place] for page, place in places]

    def pages_below(self, run: Run, n_read: int, bound: "np.uint64 | None") -> range:
        """Numbers of the pages of rows, after the first `n_read`, whose first hash is below a bound; all for None."""
        first_hash = self._directory(run).first_hash
        return range(n_read + 1, 1 + (len(first_hash) if bound is None else int(np.searchsorted(first_hash, bound))))

    def places_of(self, run: Run, key: bytes) -> list[tuple[int, RecordRows, list[int]]]:
        """The pages of a run that hold a key: number, rows, and the places of the key among them."""
        numbers = self._directory(run).pages_of(int(hashes_of(Texts.of([key]))[0]))
        found = []
        for number, page in zip(numbers, self.pages(run, numbers), strict=True):
            rows = decode_rows(page)
            places = rows.keys.places_of(key)
            if places:
                found.append((number, rows, places))
        return found


class RunMovedError(Exception):
    """A run went while it was read, because its rows are in another now."""


def retried(ask: Callable[[], T]) -> T:
    """The answer, asked for again while runs move. Raises StoreError."""
    for _ in range(_ATTEMPTS):
        try:
            return ask()
        except RunMovedError:
            continue
    raise StoreUnavailableError("the records changed too often while they were read; ask again")


def _newest_of(
    rows: RecordRows, places: Sequence[int], i: int, reassigned: dict[int, tuple[int, int]]
) -> Stored | None:
    """The record at the places of a key in a page, and the note of a reassignment for those that follow."""
    for place in reversed(places):
        offset = int(rows.log_offset[place])
        if rows.flags[place] & REASSIGNED:
            reassigned.setdefault(i, (offset, int(rows.refined[place])))
            continue
        record = stored_of(rows, place)
        if reassigned.get(i, (-1, -1))[0] == offset:
            record = record._replace(refined=reassigned[i][1])
        return record
    return None


def stored_of(rows: RecordRows, place: int) -> Stored:
    """One row as a record."""
    return Stored(
        rows.keys[place],
        int(rows.log_offset[place]),
        int(rows.assigned[place]),
        int(rows.refined[place]),
        float(rows.novelty[place]),
        float(rows.log_density[place]),
        float(rows.time[place]),
        bool(rows.flags[place] & TEXT_TIME),
        float(rows.arrived[place]),
        rows.payloads[place],
    )


def _shown(record: Stored | None, bounds: Bounds) -> Stored | None:
    return record if record is not None and record.arrived >= bounds.arrived_from else None
