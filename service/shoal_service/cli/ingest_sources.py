"""`shoal ingest` with a stored position, and with texts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from shoal_service.cli import options
from shoal_service.cli.connect import Connecting, OnBadMessage, bad_messages_of, run_connector
from shoal_service.cli.output import count

if TYPE_CHECKING:
    from shoal_service.cli.connectors import SourceReader
    from shoal_service.cli.embedding import TextFile
    from shoal_service.cli.readers import BadRows, PointFile, ReadOptions
    from shoal_service.client import Client


def ingest_source(
    file: str,
    server: options.Server,
    follow: bool,
    connecting: Connecting,
    fields: options.FieldColumns,
    reading: options.Reading,
    texts: "TextOptions | None",
) -> None:
    """Send the points of a file with their positions."""

    def reader_of(client: "Client", log: Any) -> "SourceReader":
        with recorded(client, server, texts, connecting.create, []):
            return _reader_of(client, log)

    def _reader_of(client: "Client", log: Any) -> "SourceReader":
        from shoal_service.cli.connectors.follow import FileFollower
        from shoal_service.cli.connectors.lines import LineDecoder
        from shoal_service.cli.connectors.whole_file import WholeFileReader
        from shoal_service.cli.embedding import TextLines, embedder_of
        from shoal_service.cli.readers import BadRows

        rows = connecting.batch_size
        read = reading.options(min(rows, 1000), lambda: server.n_features(client), fields.columns())
        if follow:
            bad = bad_messages_of(server, client, file, connecting.on_bad, log)
            if texts is None:
                return FileFollower(Path(file), LineDecoder(file, read, bad), log, count=rows)
            lines = TextLines(embedder_of(texts.embed), bad, Path(file).name, keep=texts.keep)
            return FileFollower(Path(file), lines, log, count=rows)

        def opened() -> "PointFile | TextFile":
            bad = BadRows(
                "stdin" if file == "-" else file,
                stops=connecting.on_bad is OnBadMessage.STOP,
                takes_holes=lambda: server.takes_holes(client),
                categories=lambda: server.categories(client),
            )
            return open_rows(file, read, bad, texts)

        return WholeFileReader(file, opened, count=rows)

    stored = run_connector(server, connecting, "follow", reader_of)
    typer.echo(f"{count(stored, 'point')} stored in stream {server.stream or 'default'}")


def open_rows(file: str, reading: "ReadOptions", bad: "BadRows", texts: "TextOptions | None") -> "PointFile | TextFile":
    """Open a file of points, or of texts."""
    from shoal_service.cli.readers import open_points

    return open_points(file, reading, bad) if texts is None else texts.open(file, bad)


class TextOptions(NamedTuple):
    """Embedder of texts, and how it is called."""

    embed: str
    keep: bool

    def open(self, file: str, bad: "BadRows") -> "TextFile":
        """Open a file of texts."""
        from shoal_service.cli.embedding import TextFile, embedder_of

        return TextFile(file, embedder_of(self.embed), bad, keep=self.keep)


@contextmanager
def recorded(
    client: "Client", server: options.Server, texts: "TextOptions | None", create: bool, settings: list[str]
) -> Iterator[None]:
    """Record the embedder of the texts with the stream, and check it."""
    if texts is not None:
        from shoal_service.cli.embedding import embedder_of, record_embedder

        values = dict(map(options.setting, settings))
        record_embedder(client, server.stream or "default", embedder_of(texts.embed), create=create, settings=values)
    yield
