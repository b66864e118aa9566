"""Child process of the service that runs one configured source, until its standard input ends.

The service starts it as `python -m shoal_service.cli.connectors.configured` and writes one line of JSON, an `Order`.
Its answers are lines of JSON: reports of the progress, and an error that ended it. It speaks HTTP to the service
through a Unix socket, like a connector that runs by itself. When the service ends, for whatever reason, the pipe ends
too, and the child ends at once: what is not acknowledged is read again from the stored position.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import httpx
import msgspec

from shoal_service.cli import options
from shoal_service.cli.connect import Decoding, OnBadMessage, bad_messages_of, decoder_of
from shoal_service.cli.connectors.garbage import rare_collections
from shoal_service.cli.connectors.messages import BadMessages, MessageDecoder
from shoal_service.cli.connectors.progress import STARTING, Progress
from shoal_service.cli.connectors.steps import Connector, SourceReader
from shoal_service.cli.exits import CommandError
from shoal_service.client import Client, ShoalClientError
from shoal_service.logs import make_log

MAX_ERROR = 2000
"""Most characters of an error in a report. Errors of a source may have any length."""
REPORT_S = 0.25
"""Time between two looks for a report. One that says nothing new is not sent."""


class Order(msgspec.Struct):
    """What the service asks for."""

    socket: str
    """Path of the Unix socket of the service."""
    stream: str
    incarnation: str
    """Of the stream. Another one of its name is not sent to."""
    source: str
    definition: str
    """Digest of the definition. Batches are refused once it is changed."""
    kind: str
    known: dict[str, str]
    """Stored positions by partition. When one of them is forgotten, the child ends."""
    settings: dict[str, Any]
    """Under the names of the options of `shoal connect`, with secrets."""
    public_only: bool
    """Connect to public addresses only."""
    files_below: str | None
    """Folder of the files that may be read. None: no file."""
    log_level: str
    log_format: str


def main() -> None:
    """Run one source."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles a stop of the whole process group
    reports_fd = os.dup(1)
    os.dup2(2, 1)  # other output must not mix with the reports
    order = msgspec.json.decode(sys.stdin.readline(), type=Order)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(reports_fd, "w", buffering=1) as out:
        sys.exit(0 if run(order, out) else 1)


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(0)


def run(order: Order, out: IO[str]) -> bool:
    """Run a source until SIGTERM. Returns False after an error, which is reported."""
    log = make_log(order.log_level, order.log_format).bind(stream=order.stream, source=order.source)
    progress, ended = Progress(), threading.Event()
    reporter = threading.Thread(target=_report, args=(progress, ended, out), daemon=True)
    reporter.start()
    transport = httpx.HTTPTransport(uds=order.socket)
    failed: str | None = None
    try:
        with Client("http://localhost", order.stream, transport=transport, retries=0, api_key="") as client:
            reader = reader_of(order, client, log)
            try:
                connector = Connector(
                    client,
                    reader,
                    order.source,
                    progress,
                    log,
                    skip_bad=order.settings["on_bad"] == OnBadMessage.SKIP,
                    holes=True,  # the reader has refused those that may not be
                    known=order.known,
                    incarnation=order.incarnation,
                    definition=order.definition,
                )
                signal.signal(signal.SIGTERM, lambda *_: connector.stop())
                with rare_collections():
                    connector.run()
            finally:
                reader.close()
    except (CommandError, ShoalClientError) as error:
        failed = str(error)
    except Exception as error:  # an unexpected fault: reported, and the log has its place
        log.error("source_failed", exc_info=True)
        failed = f"{type(error).__name__}: {error}"
    ended.set()
    reporter.join()
    if failed is not None:
        _write(out, {"failed": failed[:MAX_ERROR]})
    return failed is None


def reader_of(order: Order, client: Client, log: Any) -> SourceReader:
    """Make the reader of a source. Raises CommandError."""
    make = _READERS.get(order.kind)
    if make is None:
        raise CommandError(f"this version has no source of the kind {order.kind!r}")
    return make(_ReaderParts(order, client, log))


class _ReaderParts:
    """What readers of several kinds are made of, as an order names it."""

    def __init__(self, order: Order, client: Client, log: Any) -> None:
        self.order, self.log = order, log
        self.given = order.settings
        self.fields = options.FieldColumns(**{name: self.given[name] for name in options.FieldColumns._fields})
        self._server, self._client = options.Server(stream=order.stream), client
        self._on_bad = OnBadMessage(self.given["on_bad"])

    def decoder(self, name: str) -> MessageDecoder:
        """The decoder of the messages of a source."""
        decoding = Decoding(self.given["format"], self.given["columns"])
        return decoder_of(self._server, self._client, name, decoding, self.fields, self._on_bad, self.log)

    def bad_messages(self, name: str) -> BadMessages:
        """What treats the records that cannot be used."""
        return bad_messages_of(self._server, self._client, name, self._on_bad, self.log)

    def n_features(self) -> int | None:
        """The number of features of the stream. None where it is not known."""
        return self._server.n_features(self._client)


def _redis_stream(parts: _ReaderParts) -> SourceReader:
    from shoal_service.cli.connectors.redis_stream import RedisStreamReader

    given = parts.given
    return RedisStreamReader(
        given["redis_url"],
        given["keys"],
        parts.decoder("redis stream"),
        parts.log,
        field=given["field"],
        start=given["from"],
        count=given["batch_size"],
        group=given["group"],
        key_field=given["key_field"],
        entry_time=given["entry_time"],
        public_only=parts.order.public_only,
    )


def _kafka(parts: _ReaderParts) -> SourceReader:
    from shoal_service.cli.connectors.kafka import KafkaReader

    given = parts.given
    return KafkaReader(
        given["brokers"],
        given["topics"],
        parts.decoder("kafka"),
        parts.log,
        group=given["group"] or f"shoal-{parts.order.stream}",
        from_end=given["from_end"],
        count=given["batch_size"],
        message_key=given["message_key"],
        message_time=given["message_time"],
        settings=given["set"],
    )


def _parquet(parts: _ReaderParts) -> SourceReader:
    from shoal_service.cli.connectors.parquet_folder import ParquetFolderReader

    given, place = parts.given, _places(parts.order)
    return ParquetFolderReader(
        place(Path(given["folder"])),
        parts.bad_messages(given["folder"]),
        parts.log,
        columns=given["columns"],
        records=parts.fields.columns(),
        count=given["batch_size"],
        place=place,
    )


def _file(parts: _ReaderParts) -> SourceReader:
    from shoal_service.cli.connectors.follow import FileFollower
    from shoal_service.cli.connectors.lines import LineDecoder

    given = parts.given
    path, rows = given["path"], given["batch_size"]
    reading = options.Reading(given["format"], given["columns"], None, given["header"], given["delimiter"])
    read = reading.options(rows, parts.n_features, parts.fields.columns())
    lines = LineDecoder(path, read, parts.bad_messages(path))
    place = _places(parts.order)
    return FileFollower(place(Path(path)), lines, parts.log, count=rows, place=place)


_READERS: dict[str, Callable[[_ReaderParts], SourceReader]] = {
    "redis-stream": _redis_stream,
    "kafka": _kafka,
    "parquet": _parquet,
    "file": _file,
}


def _places(order: Order) -> Callable[[Path], Path]:
    """Return a function from a path to the place of its file or folder, without links. It raises CommandError where
    that is not below the allowed folder.
    """
    if order.files_below is None:
        raise CommandError("this server reads no files for sources; its setting source_files names a folder for them")
    root = Path(order.files_below).resolve()

    def place(path: Path) -> Path:
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise CommandError(f"{str(path)!r} leads out of the folder that this server allows (source_files)")
        return found

    return place


def _report(progress: Progress, ended: threading.Event, out: IO[str]) -> None:
    last: dict[str, Any] = {}
    while True:
        is_last = ended.wait(REPORT_S)
        lag = progress.lag
        report = {
            "records": progress.n_records,
            "skipped": progress.n_skipped,
            "points": progress.n_points,
            "starting": progress.trouble == STARTING,
            "trouble": None if progress.trouble is None else progress.trouble[:MAX_ERROR],
            "last_stored_at": progress.last_stored_at,
            "lag_records": None if lag is None else lag.records,
            "lag_s": None if lag is None else lag.seconds,
        }
        if report != last:
            _write(out, report)
            last = report
        if is_last:
            return


def _write(out: IO[str], report: dict[str, Any]) -> None:
    out.write(msgspec.json.encode(report).decode() + "\n")
    out.flush()


if __name__ == "__main__":
    main()
