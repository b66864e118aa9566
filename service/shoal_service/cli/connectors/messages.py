"""Messages of a queue as points: JSON, MessagePack, or raw little-endian vectors."""

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers.bad_rows import BadRowError, BadRows, RowPlace
from shoal_service.cli.readers.categories import Categories
from shoal_service.cli.readers.chunk import Chunk, checked_chunk
from shoal_service.cli.readers.ndjson import NdjsonFile
from shoal_service.cli.readers.text import gather
from shoal_service.wire import RecordColumns

if TYPE_CHECKING:
    from shoal_service.client import Records

_UNIT = "message"


class MessageFormat(StrEnum):
    """Formats of one message."""

    JSON = "json"
    MSGPACK = "msgpack"
    FLOAT32 = "float32"
    FLOAT64 = "float64"


class Messages(NamedTuple):
    """Messages in order."""

    ids: Sequence[str]
    """What each is called in errors."""
    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None = None
    times: Sequence[float | None] | None = None
    """Unix times in seconds."""


class BadMessages(BadRows):
    """Messages that cannot be used: the first one is an error, or all are skipped, with a line in the log."""

    def __init__(
        self,
        source: str,
        *,
        stops: bool,
        takes_holes: Callable[[], bool],
        log: Any,
        categories: Callable[[], Categories] = Categories,
    ) -> None:
        super().__init__(source, stops=stops, takes_holes=takes_holes, categories=categories)
        self.ids: Sequence[str] = ()
        self._log = log

    def add(self, place: RowPlace, bad: BadRowError, row: Any) -> None:
        """Handle a message that cannot be used. Raises CommandError if the connector is to stop."""
        message = self.ids[place.number]
        if self.stops:
            advice = "fix the producer, or skip bad messages (--on-bad skip; in a definition on_bad)"
            raise CommandError(f"{self.file}, message {message}: {bad.text()}; {advice}")
        self.count += 1
        self._log.warning("bad_record", source=self.file, message=message, reason=bad.text())


class MessageDecoder:
    """Decoder of the messages of one source."""

    def __init__(
        self,
        form: MessageFormat,
        bad: BadMessages,
        *,
        columns: str | None = None,
        records: RecordColumns | None = None,
        n_features: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`columns` and `records` choose the fields of objects, as for files. `n_features` of the stream, for raw
        vectors; without it the first message has one vector.
        """
        if form in (MessageFormat.FLOAT32, MessageFormat.FLOAT64) and (columns or records):
            raise CommandError(f"a message of the format {form} is one vector, and has no fields to choose")
        self._form, self._bad, self._n_features = form, bad, n_features
        self._file = NdjsonFile((), bad, columns, records)
        self._width: int | None = None

    def decode(self, messages: Messages) -> "Records | None":
        """Return the points of the messages that can be used, or None when there are none."""
        from shoal_service.client import Records

        self._bad.ids = messages.ids
        chunk = self._vectors(messages) if self._form.startswith("float") else self._objects(messages)
        if chunk is None or not len(chunk.points):
            return None
        keys, times, payloads, weights = chunk.fields
        rows = chunk.numbers.tolist()
        if messages.keys is not None and keys is None:
            found = [messages.keys[i] for i in rows]
            keys = [None if key is None else key.decode("utf-8", "backslashreplace") for key in found]
        if messages.times is not None and times is None:
            times = [messages.times[i] for i in rows]
        return Records(chunk.points, keys, times, payloads, weights, feature_names=chunk.names)

    def _vectors(self, messages: Messages) -> Chunk | None:
        kind = np.dtype("<f4" if self._form is MessageFormat.FLOAT32 else "<f8")
        values = messages.values
        if self._width is None:
            first = next((value for value in values if value), b"")
            self._width = self._n_features() or len(first) // kind.itemsize or None
        if self._width is None:
            self._refuse_others(values, range(len(values)), 0)
            return None
        size = self._width * kind.itemsize
        good = [i for i, value in enumerate(values) if value is not None and len(value) == size]
        if len(good) < len(values):
            self._refuse_others(values, sorted(set(range(len(values))) - set(good)), size)
            values = [values[i] for i in good]
        x: npt.NDArray[Any] = np.frombuffer(b"".join(values), kind).reshape(-1, self._width)  # type: ignore[arg-type]
        return checked_chunk(x, _UNIT, np.array(good, np.int64), self._bad)

    def _refuse_others(self, values: Sequence[bytes | None], rows: Sequence[int], size: int) -> None:
        for i in rows:
            fault = BadRowError(f"has {len(values[i] or b'')} bytes, and one vector has {size}")
            self._bad.add(RowPlace(_UNIT, i), fault, None)

    def _objects(self, messages: Messages) -> Chunk | None:
        rows = self._file.rows_of(self._texts(messages.values))
        chunk = next(gather(rows, len(messages.values), self._bad, self._file.label), None)
        return None if chunk is None else chunk._replace(names=self._file.names)

    def _texts(self, values: Sequence[bytes | None]) -> Iterator[tuple[int, str]]:
        """Yield number and JSON text of each message."""
        for i, value in enumerate(values):
            try:
                if not value:
                    raise BadRowError("is empty")
                if self._form is MessageFormat.MSGPACK:
                    value = msgspec.json.encode(msgspec.msgpack.decode(value))
                yield i, value.decode()
            except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
                self._bad.add(RowPlace(_UNIT, i), BadRowError(f"is not {self._form} ({error})"), None)
            except BadRowError as fault:
                self._bad.add(RowPlace(_UNIT, i), fault, None)
