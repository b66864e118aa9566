"""A file that does not change, or standard input, as a source. A position is `line:1200:DIGEST`: the number of the last
row, and a digest of the first one, which tells another file of the same name.

Standard input that begins again counts as the same one: the rows up to the stored position are skipped.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from shoal_service.cli.connectors.progress import Lag
from shoal_service.cli.connectors.steps import OTHER_SOURCE, Step, not_a_position
from shoal_service.cli.exits import CommandError

if TYPE_CHECKING:
    from shoal_service.cli.embedding import TextFile
    from shoal_service.cli.readers import PointFile
    from shoal_service.cli.readers.chunk import Chunk


class WholeFileReader:
    """Reader of the rows of a file, once from the beginning."""

    lag = Lag()
    """Not known of files."""

    def __init__(self, name: str, open_file: "Callable[[], PointFile | TextFile]", *, count: int) -> None:
        """`open_file` opens the file again; standard input can be opened once. `count`: most rows in a step."""
        self._open = open_file
        self._count = count
        self._file: PointFile | TextFile | None = None
        self._may_open_again = name != "-"
        self._partition = "stdin" if name == "-" else quote(name.rpartition("/")[2], safe=".:_-")[:150]
        self.ended = False
        self._steps: Iterator[Step] = iter(())

    def begin(self, positions: Mapping[str, str]) -> None:
        """See `SourceReader.begin`."""
        if self._file is not None and not self._may_open_again:
            raise CommandError("standard input cannot be read again from the stored position; start the command again")
        self.close()
        self._file = self._open()
        self.ended = False
        stored = positions.get(self._partition)
        self._steps = self._read(*((-1, "") if stored is None else _place(stored)))

    def read(self) -> Step | None:
        """See `SourceReader.read`."""
        step = next(self._steps, None)
        self.ended = step is None
        return step

    def stored(self, step: Step) -> None:
        """See `SourceReader.stored`."""

    def close(self) -> None:
        """See `SourceReader.close`."""
        if self._file is not None:
            self._file.__exit__(None, None, None)

    def _read(self, last: int, expected: str) -> Iterator[Step]:
        """Yield the steps behind the row `last`. `expected`: digest of the first row, empty where it is not known."""
        from shoal_service.client import Records

        assert self._file is not None
        digest = ""
        for chunk in self._file.chunks():
            if not digest and len(chunk.numbers):
                digest = _digest(chunk)
                if expected not in ("", digest):
                    raise CommandError(
                        f"{self._partition} begins with another row than the one that was read up to {chunk.unit} "
                        f"{last}: it is another file; {OTHER_SOURCE}"
                    )
            first = int(np.searchsorted(chunk.numbers, last, side="right"))
            for start in range(first, len(chunk.numbers), self._count):
                rows = slice(start, start + self._count)
                numbers = chunk.numbers[rows]
                fields = (None if values is None else values[rows] for values in chunk.fields)
                keys, times, payloads, weights = fields
                records = Records(chunk.points[rows], keys, times, payloads, weights, feature_names=chunk.names)
                yield Step(self._partition, f"{chunk.unit}:{int(numbers[-1])}:{digest}", records, len(numbers))


def _place(position: str) -> tuple[int, str]:
    """Read a position: the number of the last row, and the digest, which earlier versions did not store."""
    unit, _, rest = position.partition(":")
    number, _, digest = rest.partition(":")
    if unit not in ("line", "row") or not number.isdecimal():
        raise not_a_position(position, "row of a file")
    return int(number), digest


def _digest(chunk: "Chunk") -> str:
    """Digest of the first row of a file. Of an embedded text: its numbers depend on the texts beside it."""
    if chunk.texts is not None:
        row: list[Any] = [chunk.texts[0]]
    else:
        first = chunk.points[:1]
        row = np.asarray(first.toarray() if hasattr(first, "toarray") else first).ravel().tolist()
    text = " ".join(value if isinstance(value, str) else f"{np.float64(value):.17g}" for value in row)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
