"""Lines of a file that grows as points: ndjson, or csv with one line a row."""

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from shoal_service.cli.connectors.messages import BadMessages
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.bad_rows import BadRowError, RowPlace
from shoal_service.cli.readers.files import ReadOptions
from shoal_service.cli.readers.ndjson import NdjsonFile
from shoal_service.cli.readers.text import CsvFile, gather

if TYPE_CHECKING:
    from shoal_service.client import Records

_CSV = (".csv", ".tsv", ".txt", ".dat")
_HEADER_BYTES = 1 << 20


class LineDecoder:
    """Decoder of the lines of one source, which may be several files one after the other."""

    def __init__(self, name: str, options: ReadOptions, bad: BadMessages) -> None:
        form = options.format or ("csv" if name.lower().endswith(_CSV) else "ndjson")
        if form not in ("csv", "ndjson"):
            raise CommandError(f"--follow reads lines of ndjson or csv; {form} is neither")
        self._options, self._form = options, form
        self.bad = self._bad = bad
        self._ndjson = NdjsonFile((), bad, options.columns, options.records)
        self._first: bytes | None = None
        self._file: IO[bytes] | None = None
        self._texts: frozenset[int] | None = None
        """The features of a csv that hold texts, by its first row."""

    def begin(self, file: IO[bytes]) -> None:
        """Read lines of this file from now on."""
        self._file, self._first = file, None

    def decode(self, lines: Sequence[tuple[int, bytes]]) -> "Records | None":
        """Return the points of lines, each with its offset, or None when there are none."""
        from shoal_service.client import Records

        self._bad.ids = ["", *(f"at byte {offset}" for offset, _ in lines)]
        texts: list[tuple[int, str]] = []
        for i, (_, line) in enumerate(lines, 1):
            try:
                texts.append((i, line.decode("utf-8-sig" if lines[i - 1][0] == 0 else "utf-8")))
            except UnicodeDecodeError as error:
                self._bad.add(RowPlace("line", i), BadRowError(f"is not UTF-8 ({error.reason})"), None)
        texts = [(i, text) for i, text in texts if text.strip()]
        if not texts:
            return None
        rows: Any
        if self._form == "csv":
            rows, names, label = self._csv(texts, at_beginning=lines[0][0] == 0)
        else:
            rows, names, label = self._ndjson.rows_of(texts), lambda: self._ndjson.names, self._ndjson.label
        chunk = next(gather(iter(rows), len(lines) + 1, self._bad, label), None)
        if chunk is None or not len(chunk.points):
            return None
        return Records(chunk.points, *chunk.fields, feature_names=names())

    def _csv(self, texts: list[tuple[int, str]], at_beginning: bool) -> Any:
        """Read lines of csv, after the first line of the file, which names or counts the columns."""
        options = self._options
        numbers = [i for i, _ in texts]
        lines = [text for _, text in texts]
        if not at_beginning:
            lines.insert(0, self._first_line())
            numbers.insert(0, 0)
        file: Any = CsvFile(
            iter(lines),  # type: ignore[arg-type]  # it is iterated only
            self._bad,
            options.columns,
            options.header,
            options.delimiter,
            options.records,
        )
        self._bad.ids = [self._bad.ids[i] for i in (0, *numbers)]
        file.texts = self._texts
        rows = [row for row in file.rows() if at_beginning or row[0] > 1]
        self._texts = file.texts
        return rows, lambda: file.names, file.label

    def _first_line(self) -> str:
        if self._first is None:
            assert self._file is not None
            self._file.seek(0)
            self._first = self._file.readline(_HEADER_BYTES)
        return self._first.decode("utf-8-sig", "replace")
