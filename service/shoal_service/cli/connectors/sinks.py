"""Sinks of events: a Redis stream, a Kafka topic, a folder of Parquet files. Each knows the last event that it has.

A sink writes rows and then the position, or both in one step. So after a crash an event may come twice to Kafka, and is
never lost.
"""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from shoal_service.cli.connectors.steps import SourceAwayError, password_refused
from shoal_service.cli.exits import CommandError

TIMEOUT_S = 10.0
POLL_S = 0.1


class Row(NamedTuple):
    """An event, or the assignment of a record that changed."""

    id: str
    """Id of the event after which it was read."""
    kind: str
    data: dict[str, Any]

    def json(self) -> bytes:
        """All of it."""
        return msgspec.json.encode({"id": self.id, "kind": self.kind, **self.data})


class Sink(Protocol):
    """Receiver of rows. Methods raise SourceAwayError while it cannot be reached, and CommandError."""

    def position(self) -> str | None:
        """Return the id of the last event that it has and the name of its stream, with a space between, or None.

        Earlier versions wrote the id alone.
        """

    def write(self, rows: Sequence[Row], position: str) -> None:
        """Write rows durably, and the position behind them."""

    def close(self) -> None:
        """Release the sink."""


_ADD = """
for i = 2, #ARGV, 3 do
    redis.call('XADD', KEYS[1], '*', 'id', ARGV[i], 'kind', ARGV[i + 1], 'data', ARGV[i + 2])
end
if ARGV[1] ~= '' then
    redis.call('SET', KEYS[2], ARGV[1])
end
"""
"""Rows, and then the position. An error ends a script, while a transaction would go on and write the position."""
_MOST_ROWS = 100_000
"""Most rows of one step: before version 7, Redis refuses a command of more than 1,048,576 words."""


class RedisSink:
    """Redis stream with one entry for each row, fields `id`, `kind` and `data`. The position is the key `KEY:position`,
    which is written in the same step; with more than 100,000 rows in that of the last ones.
    """

    def __init__(self, url: str, key: str) -> None:
        import redis

        self._redis, self._key = redis, key
        try:
            self._client = redis.Redis.from_url(url, socket_timeout=TIMEOUT_S)
        except ValueError as error:
            raise CommandError(f"{error}; give the address of the sink as redis://host:port/database") from error

    def position(self) -> str | None:
        """See `Sink.position`."""
        position = self._do(lambda: self._client.get(f"{self._key}:position"))
        return None if position is None else position.decode()

    def write(self, rows: Sequence[Row], position: str) -> None:
        """See `Sink.write`."""
        for start in range(0, len(rows), _MOST_ROWS):
            part = rows[start : start + _MOST_ROWS]
            fields = [field for row in part for field in (row.id, row.kind, row.json())]
            self._add(position if start + len(part) == len(rows) else "", fields)

    def _add(self, position: str, fields: list[Any]) -> None:
        """Add rows, and set the position unless it is empty."""
        self._do(lambda: self._client.eval(_ADD, 2, self._key, f"{self._key}:position", position, *fields))

    def close(self) -> None:
        """See `Sink.close`."""
        self._client.close()

    def _do(self, work: Any) -> Any:
        try:
            return work()
        except self._redis.AuthenticationError as error:
            raise password_refused(error) from error
        except (self._redis.ConnectionError, self._redis.TimeoutError, self._redis.exceptions.ReadOnlyError) as error:
            raise SourceAwayError(f"redis: {error}") from error
        except self._redis.RedisError as error:
            raise CommandError(f"redis refused the events: {error}") from error


class KafkaSink:
    """Kafka topic with one message for each row, in JSON. The position is in a file, written once the brokers have the
    rows.
    """

    def __init__(self, brokers: str, topic: str, state: Path, settings: dict[str, str]) -> None:
        from shoal_service.cli.connectors.kafka import load_kafka

        self._kafka, self._topic, self._state = load_kafka(), topic, state
        if not state.parent.is_dir():
            raise CommandError(f"{state.parent} is no folder; give a file of an existing folder as --state")
        config = {"bootstrap.servers": brokers, "enable.idempotence": True, **settings}
        try:
            self._producer = self._kafka.Producer(config)
        except self._kafka.KafkaException as error:
            raise CommandError(f"the producer cannot be made: {error}") from error

    def position(self) -> str | None:
        """See `Sink.position`."""
        return self._state.read_text().strip() or None if self._state.exists() else None

    def write(self, rows: Sequence[Row], position: str) -> None:
        """See `Sink.write`."""
        failed: list[str] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error.str())

        queued = all(self._produce(row, delivered) for row in rows)
        if self._producer.flush(TIMEOUT_S) or failed or not queued:
            self._producer.purge()
            raise SourceAwayError(f"kafka: {failed[0] if failed else 'no answer'}")
        _replace(self._state, position.encode())

    def _produce(self, row: Row, delivered: Callable[[Any, Any], None]) -> bool:
        """Queue a row. The library's queue may be full, and has room again as the brokers get its rows. False when it
        stays full for `TIMEOUT_S`.
        """
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            try:
                self._producer.produce(self._topic, row.json(), key=row.data.get("key"), on_delivery=delivered)
            except BufferError:
                self._producer.poll(POLL_S)
            else:
                self._producer.poll(0)
                return True
        return False

    def close(self) -> None:
        """See `Sink.close`."""


class ParquetSink:
    """Folder of numbered Parquet files, one for each write. The position is that of the last row of the last file."""

    def __init__(self, folder: Path) -> None:
        from shoal_service.cli.readers.columnar import load_pyarrow

        self._pa, self._folder = load_pyarrow("Parquet"), folder
        folder.mkdir(parents=True, exist_ok=True)

    def position(self) -> str | None:
        """See `Sink.position`."""
        files = self._files()
        if not files:
            return None
        try:
            metadata = self._pa.parquet.read_schema(files[-1]).metadata or {}
        except self._pa.ArrowException as error:
            raise CommandError(
                f"{files[-1]} is no whole Parquet file ({str(error)[:100]}), so the position is not known; remove it, "
                "and its events are written again"
            ) from None
        if b"position" not in metadata:
            raise CommandError(
                f"{files[-1]} was not written by this command, so the position is not known; export to a folder of its "
                "own, or move the file away"
            )
        position: str = metadata[b"position"].decode()
        return position

    def write(self, rows: Sequence[Row], position: str) -> None:
        """See `Sink.write`."""
        pa, files = self._pa, self._files()
        number = 1 + (int(files[-1].stem) if files else 0)
        table = pa.table(
            {
                "id": [row.id for row in rows],
                "kind": [row.kind for row in rows],
                "log_offset": pa.array([row.data.get("log_offset") for row in rows], pa.int64()),
                "data": [msgspec.json.encode(row.data).decode() for row in rows],
            }
        ).replace_schema_metadata({"position": position})
        sink = pa.BufferOutputStream()
        pa.parquet.write_table(table, sink)
        _replace(self._folder / f"{number:012d}.parquet", sink.getvalue().to_pybytes())

    def close(self) -> None:
        """See `Sink.close`."""

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.parquet") if path.stem.isdecimal())


def _replace(path: Path, data: bytes) -> None:
    """Write a file, completely or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
