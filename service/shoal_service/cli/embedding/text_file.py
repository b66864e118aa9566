"""Files of texts, one a line, as points."""

import itertools
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

import numpy as np

from shoal_service.cli.connectors.messages import BadMessages
from shoal_service.cli.embedding.embedders import Embedder
from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, RowPlace
from shoal_service.cli.readers.chunk import Chunk, Fields

if TYPE_CHECKING:
    from shoal_service.client import Records

MAX_KEPT = 1000
"""Most characters of a text that its record keeps."""


class TextFile:
    """The texts of a file or of standard input as chunks of points, once from the beginning."""

    n_points: int | None = None
    format = "text"

    def __init__(
        self, path: str, embedder: Embedder, bad: BadRows, *, keep: bool = False, chunk_rows: int = 1000
    ) -> None:
        """`keep`: each point is a record, with a key of the file and the line, and the text as payload."""
        self.name = "stdin" if path == "-" else path
        self.bad = bad
        self._embedder, self._keep, self._chunk_rows = embedder, keep, chunk_rows
        self._stack = ExitStack()
        try:
            opened = nullcontext(sys.stdin.buffer) if path == "-" else Path(path).open("rb")  # noqa: SIM115
            self._lines: IO[bytes] = self._stack.enter_context(opened)
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror or error}") from error

    def chunks(self) -> Iterator[Chunk]:
        """Give the chunks that hold texts. An empty line is no text."""
        numbered = enumerate(self._lines, 1)
        while block := list(itertools.islice(numbered, self._chunk_rows)):
            texts = [(n, text) for n, line in block if (text := _text(line, n, self.bad))]
            if texts:
                numbers, embedded = np.array([n for n, _ in texts], np.int64), [text for _, text in texts]
                yield Chunk(self._embedder.embed(embedded), self._fields(texts), "line", numbers, texts=embedded)

    def _fields(self, texts: list[tuple[int, str]]) -> Fields:
        if not self._keep:
            return Fields()
        file = Path(self.name).name
        return Fields([f"{file}:{n}" for n, _ in texts], None, [{"text": text[:MAX_KEPT]} for _, text in texts])

    def progress(self, done: int) -> tuple[float, float | None]:
        """Progress after `done` points: (completed, total); the total is not known."""
        return done, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()


class TextLines:
    """Decoder of the texts of a file that grows, as `LineDecoder` is of its points."""

    def __init__(self, embedder: Embedder, bad: BadMessages, name: str, *, keep: bool = False) -> None:
        self.bad = bad
        self._embedder, self._name, self._keep = embedder, name, keep

    def begin(self, file: IO[bytes]) -> None:
        """Read lines of this file from now on."""

    def decode(self, lines: Sequence[tuple[int, bytes]]) -> "Records | None":
        """Return the points of lines, each with its offset, or None when there are none."""
        from shoal_service.client import Records

        self.bad.ids = [f"at byte {offset}" for offset, _ in lines]
        texts = [(at, text) for i, (at, line) in enumerate(lines) if (text := _text(line, i, self.bad))]
        if not texts:
            return None
        x = self._embedder.embed([text for _, text in texts])
        payloads = [{"text": text[:MAX_KEPT]} for _, text in texts] if self._keep else None
        keys = [f"{self._name}@{at}" for at, _ in texts] if self._keep else None
        return Records(x, keys, None, payloads)


def _text(line: bytes, number: int, bad: BadRows) -> str:
    """Return the text of a line. Empty for a blank line, and for one that is no text."""
    try:
        return line.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        bad.add(RowPlace("line", number), BadRowError(f"is not UTF-8 ({error.reason})"), None)
        return ""
