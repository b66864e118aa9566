"""A folder of Parquet files as a source, in the order of their names.

A position is `NAME:GROUP:ROW:FILE:FOLDER`: the file, the row group and the row in it that come next, a digest of the
footer of the file, and one of the path of the folder. So the files of another folder are not mistaken for those that
were read. A file is read once it has its name, so write it under another one (a dot before it) and rename it.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from shoal_service.cli.connectors.messages import BadMessages
from shoal_service.cli.connectors.progress import Lag
from shoal_service.cli.connectors.steps import OTHER_SOURCE, SourceAwayError, Step, not_a_position
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.columnar import ColumnReader, load_pyarrow, parquet_batches, parquet_file
from shoal_service.wire import RecordColumns

PARTITION = "files"
POLL_S = 1.0


class ParquetFolderReader:
    """Reader of the Parquet files of a folder."""

    lag = Lag()
    """Not known of files."""

    def __init__(
        self,
        folder: Path,
        bad: BadMessages,
        log: Any,
        *,
        columns: str | None = None,
        records: RecordColumns | None = None,
        count: int = 1000,
        once: bool = False,
        place: Callable[[Path], Path] = lambda path: path,
    ) -> None:
        """`once`: end behind the last file, and do not wait for others. `place` as for `FileFollower`."""
        if not folder.is_dir():
            raise CommandError(f"{folder} is no folder; give the folder of the Parquet files")
        self._pa = load_pyarrow("Parquet")
        self._folder, self._place, self._bad, self._log = folder, place, bad, log
        self._columns, self._records, self._count, self._once = columns, records, count, once
        self.ended = False
        self._name: str | None = None
        """File that is read, or was read last."""
        self._known: set[str] = set()
        self._steps: Iterator[Step] = iter(())
        self._folder_digest = _digest(str(folder.resolve()).encode())

    def begin(self, positions: Mapping[str, str]) -> None:
        """See `SourceReader.begin`."""
        self.ended, self._name, self._steps = False, None, iter(())
        stored = positions.get(PARTITION)
        if stored is None:
            return
        try:
            quoted, group, row, *digests = stored.split(":")
            name, place = unquote(quoted), (int(group), int(row))
            file, folder = digests or ("", "")
            if min(place) < 0:
                raise ValueError("negative")
        except ValueError:
            raise not_a_position(stored, "row of a Parquet file") from None
        names = self._names()
        is_same = not file or (name in names and self._file_digest(name) == file)
        if not is_same and folder != self._folder_digest:
            raise CommandError(
                f"the stored position is in the file {name} of another folder than {self._folder}; {OTHER_SOURCE}"
            )
        self._name, self._known = name, {known for known in names if known <= name}
        if name in names:
            self._steps = self._read_file(name, *place, is_same)

    def read(self) -> Step | None:
        """See `SourceReader.read`."""
        while (step := next(self._steps, None)) is None:
            following = self._next_name()
            if following is None:
                self.ended = self._once
                if not self._once:
                    time.sleep(POLL_S)
                return None
            self._name = following
            self._known.add(following)
            self._steps = self._read_file(following)
        return step

    def stored(self, step: Step) -> None:
        """See `SourceReader.stored`."""

    def close(self) -> None:
        """See `SourceReader.close`."""

    def _names(self) -> list[str]:
        try:
            found = [path.name for path in self._folder.iterdir() if path.suffix in (".parquet", ".pq")]
        except OSError as error:  # a network folder that is away for a while, for example
            raise SourceAwayError(f"{self._folder} cannot be read: {error.strerror or error}") from error
        return sorted(name for name in found if not name.startswith((".", "_")))

    def _file_digest(self, name: str) -> str:
        """Digest of the footer, which has the places and the least and greatest values of all columns."""
        path = self._place(self._folder / name)
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - 8))
                n_bytes = int.from_bytes(file.read(4), "little")
                file.seek(max(0, size - 8 - n_bytes))
                return _digest(file.read(n_bytes))
        except FileNotFoundError as error:  # removed since the names were read
            raise SourceAwayError(f"{path} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror or error}") from error

    def _next_name(self) -> str | None:
        names = self._names()
        for name in names:
            if self._name is not None and name < self._name and name not in self._known:
                self._known.add(name)
                self._log.warning("file_out_of_order", file=name, read=self._name)
        return next((name for name in names if self._name is None or name > self._name), None)

    def _read_file(self, name: str, first_group: int = 0, first_row: int = 0, is_same: bool = True) -> Iterator[Step]:
        """Yield the steps of a file from a place on. A row group is read in batches. `is_same`: whether it is the file
        to which the place belongs.
        """
        pa, path, digest = self._pa, self._place(self._folder / name), self._file_digest(name)
        try:
            with parquet_file(pa, path) as file:
                self._check_place(file.metadata, path, first_group, first_row, is_same)
                reader = ColumnReader(pa, file.schema_arrow, self._columns, self._records, self._bad)
                for group in range(first_group, file.metadata.num_row_groups):
                    n_rows = file.metadata.row_group(group).num_rows
                    done, skip = 0, first_row if group == first_group else 0
                    for batch in parquet_batches(file, self._count, reader.used, [group]):
                        rest = batch.slice(min(batch.num_rows, max(0, skip - done)))
                        done += batch.num_rows
                        if rest.num_rows:
                            yield self._step(reader, name, digest, rest, (group, done), n_rows)
        except (pa.ArrowException, OSError) as error:
            raise CommandError(f"{path} is not a usable Parquet file: {str(error).splitlines()[0]}") from error

    def _check_place(self, metadata: Any, path: Path, group: int, row: int, is_same: bool) -> None:
        """Raise CommandError where rows of another file than the one that was read would follow, and warn where there
        are none: the rows of a file that was replaced after it was read are not read.
        """
        n_groups = metadata.num_row_groups
        n_rows = metadata.row_group(group).num_rows if group < n_groups else 0
        is_end = (group, row) in ((n_groups, 0), (n_groups - 1, n_rows))
        if not is_end and (group >= n_groups or row > n_rows or not is_same):
            raise CommandError(
                f"{path} has been read up to row {row} of row group {group}, and is another file than the one that "
                "was read; give new rows a file of a new name, or forget the position (shoal sources forget SOURCE)"
            )
        if not is_same:
            self._log.warning("file_replaced", file=path.name)

    def _step(
        self, reader: ColumnReader, name: str, digest: str, batch: Any, place: tuple[int, int], n_rows: int
    ) -> Step:
        from shoal_service.client import Records

        group, done = place
        first = done - batch.num_rows
        self._bad.ids = _RowNames(name, group, n_rows)
        bad = self._bad.count
        chunk = reader.chunk(batch, first)
        points = Records(chunk.points, *chunk.fields, feature_names=chunk.names) if len(chunk.points) else None
        after = (group + 1, 0) if done == n_rows else (group, done)
        position = f"{quote(name, safe='._-')}:{after[0]}:{after[1]}:{digest}:{self._folder_digest}"
        return Step(PARTITION, position, points, batch.num_rows, self._bad.count - bad)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


class _RowNames(Sequence[str]):
    """What the rows of a row group are called in errors."""

    def __init__(self, name: str, group: int, n: int) -> None:
        self._n = n
        self._of = f"{name}, row group {group}, row"

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, row: Any) -> Any:
        return f"{self._of} {row}"
