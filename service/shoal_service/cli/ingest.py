"""The command `shoal ingest`."""

import itertools
import time
from collections import deque
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from shoal_service.cli import options
from shoal_service.cli.connect import Connecting, OnBadMessage
from shoal_service.cli.exits import CommandError
from shoal_service.cli.ingest_sources import TextOptions, ingest_source, open_rows, recorded
from shoal_service.cli.output import check_target, count, for_people, print_json, progress_bar, stderr_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shoal_service.cli.embedding import TextFile
    from shoal_service.cli.readers import BadRows, Categories, Chunk, PointFile, ReadOptions
    from shoal_service.client import Client, IngestResult

STREAM, SOURCE, TEXT = "Stream", "Source", "Text"


class OnBad(StrEnum):
    """Treatment of a row of the file that cannot be used."""

    STOP = "stop"
    SKIP = "skip"
    REPORT = "report"


class IngestCommand(TyperCommand):
    """Reads `--on-bad report FILE`: the word after `report` is the file of the report."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name that file by the option `--bad-rows`."""
        words = [word for arg in args for word in (arg.split("=", 1) if arg.startswith("--on-bad=") else [arg])]
        end = words.index("--") if "--" in words else len(words)
        for i in range(end - 1):
            if words[i : i + 2] == ["--on-bad", "report"] and words[i + 2 : i + 3] and words[i + 2][:1] != "-":
                words.insert(i + 2, "--bad-rows")
                break
        return super().parse_args(ctx, words)


def ingest(
    file: options.Points,
    *,
    server: options.Server,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Points per request.")] = 1000,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all points are learnt, not only durable.")] = False,
    idempotency_key: Annotated[
        str | None,
        typer.Option(
            "--idempotency-key",
            metavar="TEXT",
            help="Name of this upload. The same file with the same name and batch size is stored only once.",
        ),
    ] = None,
    create: Annotated[
        bool,
        typer.Option(
            "--create",
            help="Create the stream if needed, with the number of features of the file.",
            rich_help_panel=STREAM,
        ),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="With --create: a setting of the stream, such as half_life=50000. Repeatable.",
            rich_help_panel=STREAM,
        ),
    ] = None,
    on_bad: Annotated[
        OnBad,
        typer.Option(
            "--on-bad",
            help="A row that cannot be used: stop there; skip it; or skip it and write it with the reason to a file, "
            "which follows: --on-bad report bad.ndjson",
        ),
    ] = OnBad.STOP,
    bad_rows: Annotated[
        Path | None,
        typer.Option("--bad-rows", metavar="FILE", help="The file of --on-bad report, in NDJSON.", show_default=False),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            help="Store the position with the points, under this name. Run the command again to go on behind them.",
            rich_help_panel=SOURCE,
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            "-f",
            help="Wait for further lines of a csv or ndjson, also when the file is rotated or truncated. "
            "(--source: follow)",
            rich_help_panel=SOURCE,
        ),
    ] = False,
    text: Annotated[
        bool, typer.Option("--text", help="Each line of the file is a text.", rich_help_panel=TEXT)
    ] = False,
    embed: Annotated[
        str | None,
        typer.Option(
            "--embed",
            metavar="NAME",
            help="What makes points of texts: hashing, hashing:128, or wordllama (extra embed). It is recorded with "
            "the stream, and checked.",
            rich_help_panel=TEXT,
        ),
    ] = None,
    keep_text: Annotated[
        bool, typer.Option("--keep-text", help="Keep each text in a record FILE:LINE.", rich_help_panel=TEXT)
    ] = False,
    fields: options.FieldColumns,
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:
    """Send the points of a file in batches, until all are durable.

    A batch is sent again if its answer is lost, and is stored only once.
    Text may have any length. For a slow pipe choose a small --batch-size.
    Columns named as keys, times, payloads or weights are no features.

    Examples:

      shoal ingest points.csv --columns x,y,z
      shoal ingest hosts.csv --key-column host --time-column at
      shoal ingest raw.csv --on-bad report bad.ndjson
      shoal ingest mnist.npz --key train --stream mnist --create --wait
      generate | shoal ingest - --format ndjson
      shoal ingest /var/log/readings.ndjson --follow --source readings
      shoal ingest --text messages.txt --embed hashing --stream desk --create
    """
    if text is not (embed is not None) or (keep_text and not text):
        raise CommandError(
            "--text needs --embed, and --embed and --keep-text need --text; write --text --embed hashing"
        )
    texts = None if embed is None else TextOptions(embed, keep_text)
    if source is not None or follow:
        if wait or idempotency_key or settings or on_bad is OnBad.REPORT:
            raise CommandError(
                "--source and --follow do not go with --wait, --idempotency-key, --set and --on-bad report"
            )
        if follow and file == "-":
            raise CommandError("--follow needs the path of a file; for a pipe, use --source alone")
        connecting = Connecting(source, batch_size, create, OnBadMessage(on_bad))
        ingest_source(file, server, follow, connecting, fields, reading, texts)
        return
    if settings and not create:
        raise CommandError("--set needs --create; give both or neither")
    if (on_bad is OnBad.REPORT) is not (bad_rows is not None):
        raise CommandError("--on-bad report needs a file for the bad rows; write --on-bad report bad.ndjson")
    if bad_rows is not None:
        check_target(bad_rows, file)
    started = time.monotonic()
    with (
        server.connect() as client,
        recorded(client, server, texts, create, settings or []),
        _opened(
            file,
            reading.options(min(batch_size, 1000), lambda: server.n_features(client), fields.columns()),
            on_bad,
            bad_rows,
            lambda: "missing=marginal" in (settings or ()) or server.takes_holes(client),
            lambda: server.categories(client, dict(map(options.setting, settings or []))),
            texts,
        ) as points,
    ):
        rows = _Source(points, batch_size)
        chunks = iter(rows)
        if not create:
            server.expect_stream(client)
        else:
            chunks = _created(client, server.stream or "default", chunks, settings or [])
        result = _sent(client, rows, chunks, idempotency_key)
        if wait and result.log_offset is not None:
            client.wait(result.log_offset, timeout_s=server.deadline_s)
    _show(result, points.bad, time.monotonic() - started, as_json)


@contextmanager
def _opened(
    file: str,
    reading: "ReadOptions",
    on_bad: OnBad,
    report: Path | None,
    takes_holes: "Callable[[], bool]",
    categories: "Callable[[], Categories]",
    texts: "TextOptions | None",
) -> "Iterator[PointFile | TextFile]":
    from shoal_service.cli.readers import BadRows

    with ExitStack() as stack:
        written = None if report is None else stack.enter_context(report.open("w", encoding="utf-8"))
        bad = BadRows(
            "stdin" if file == "-" else file,
            stops=on_bad is OnBad.STOP,
            report=written,
            takes_holes=takes_holes,
            categories=categories,
        )
        rows = open_rows(file, reading, bad, texts)
        stack.enter_context(rows)
        yield rows


class _Source:
    """The points of a file as the client sends them, and the places of those that the server may still refuse."""

    def __init__(self, points: "PointFile | TextFile", batch_size: int) -> None:
        self.points, self.batch_size = points, batch_size
        self._chunks: deque[tuple[int, Chunk]] = deque()

    def __iter__(self) -> "Iterator[Any]":
        from shoal_service.client import Records

        done = 0
        for chunk in self.points.chunks():
            while self._chunks and done - self._chunks[0][0] - len(self._chunks[0][1].points) >= self.batch_size:
                self._chunks.popleft()  # its points are in batches that were sent
            self._chunks.append((done, chunk))
            done += len(chunk.points)
            yield Records(chunk.points, *chunk.fields, feature_names=chunk.names)

    def refused(self, row: int, error: Exception) -> bool:
        """Count a point that the server refuses among the bad rows."""
        from shoal_service.cli.readers import BadRowError

        first, chunk = next((first, chunk) for first, chunk in reversed(self._chunks) if first <= row)
        fault = BadRowError(f"refused by the server: {getattr(error, 'detail', None) or error}")
        self.points.bad.add(chunk.place(row - first), fault, chunk.shown(row - first))
        return True


def _sent(client: "Client", rows: _Source, chunks: "Iterator[Any]", idempotency_key: str | None) -> "IngestResult":
    """Send the points with a progress bar. Before an error is raised, a line says how many were stored."""
    points, sent = rows.points, 0
    with progress_bar("ingest", points) as advance:

        def note(done: int, total: int | None) -> None:
            nonlocal sent
            sent = done
            advance(done)

        try:
            return client.ingest(
                chunks,
                batch_size=rows.batch_size,
                progress=note,
                idempotency_key=idempotency_key,
                on_refused=None if points.bad.stops else rows.refused,
                holes=True,  # the reader has refused those that may not be
            )
        except BaseException:
            if sent:
                stderr_console().print(f"{count(sent, 'point')} of {points.name} were stored before this error:")
            raise


def _created(client: "Client", stream: str, chunks: "Iterator[Any]", settings: list[str]) -> "Iterator[Any]":
    """Create the stream for the first chunk, or change its settings. Gives the same chunks."""
    from shoal_service.client import NotFoundError
    from shoal_service.client.points import names_of

    first = next(chunks, None)
    if first is None:
        return iter(())
    values = {"n_features": first.points.shape[1], **dict(map(options.setting, settings))}
    try:
        known = client.stream_info(stream).settings
    except NotFoundError:
        known = {}
    names = names_of(first)
    if names is not None and known.get("feature_names") is None:
        values.setdefault("feature_names", names)
    client.create_stream(stream, **values)
    return itertools.chain([first], chunks)


def _show(result: "IngestResult", bad: "BadRows", took_s: float, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "stream": result.stream,
                "incarnation": result.incarnation,
                "accepted": result.accepted,
                "log_offset": result.log_offset,
                "batches": result.batches,
                "replayed_batches": result.replayed_batches,
                "bad_rows": bad.count,
                "seconds": round(took_s, 3),
            }
        )
        return
    if bad.count:
        stderr_console().print(f"{count(bad.count, 'bad row')} skipped")
    if not result.accepted:
        stderr_console().print(f"the file has no {'usable ' if bad.count else ''}points; nothing was sent")
    rate = f" ({result.accepted / took_s:,.0f} points/s)" if for_people() and result.accepted else ""
    again = f", {count(result.replayed_batches, 'batch', 'batches')} stored before" if result.replayed_batches else ""
    offset = "" if result.log_offset is None else f", log offset {result.log_offset:,}"
    typer.echo(f"{count(result.accepted, 'point')} sent to stream {result.stream}{offset}{again}{rate}")
