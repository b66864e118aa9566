"""The command `shoal ingest`."""

import itertools
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.output import count, for_people, print_json, progress_bar, stderr_console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shoal_service.client import Client, IngestResult

STREAM = "Stream"


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
    reading: options.Reading,
    as_json: options.Json = False,
) -> None:
    """Send the points of a file in batches, until all are durable.

    A batch is sent again if its answer is lost, and is stored only once.
    Text may have any length. For a slow pipe choose a small --batch-size.

    Examples:

      shoal ingest points.csv --columns x,y,z
      shoal ingest mnist.npz --key train --stream mnist --create --wait
      generate | shoal ingest - --format ndjson
    """
    from shoal_service.cli.readers import open_points

    if settings and not create:
        raise CommandError("--set needs --create; give both or neither")
    sent = 0
    started = time.monotonic()
    with (
        server.connect() as client,
        open_points(file, reading.options(min(batch_size, 1000), lambda: server.n_features(client))) as points,
    ):
        chunks = iter(points)
        if create:
            chunks = _created(client, server.stream or "default", chunks, settings or [])
        with progress_bar("ingest", points) as advance:

            def note(done: int, total: int | None) -> None:
                nonlocal sent
                sent = done
                advance(done)

            try:
                result = client.ingest(chunks, batch_size=batch_size, progress=note, idempotency_key=idempotency_key)
            except BaseException as error:
                if sent:
                    stderr_console().print(f"{count(sent, 'point')} of {points.name} were stored before this error:")
                if getattr(error, "type", None) == "unknown-stream":
                    stderr_console().print("add --create to create the stream")
                raise
        if wait and result.log_offset is not None:
            client.wait(result.log_offset, timeout_s=server.deadline_s)
    _show(result, time.monotonic() - started, as_json)


def _created(client: "Client", stream: str, chunks: "Iterator[Any]", settings: list[str]) -> "Iterator[Any]":
    """Create the stream for the first chunk, or change its settings. Gives the same chunks."""
    first = next(chunks, None)
    if first is None:
        return iter(())
    client.create_stream(stream, n_features=first.shape[1], **dict(map(options.setting, settings)))
    return itertools.chain([first], chunks)


def _show(result: "IngestResult", took_s: float, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "stream": result.stream,
                "incarnation": result.incarnation,
                "accepted": result.accepted,
                "log_offset": result.log_offset,
                "batches": result.batches,
                "replayed_batches": result.replayed_batches,
                "seconds": round(took_s, 3),
            }
        )
        return
    if not result.accepted:
        stderr_console().print("the file has no points; nothing was sent")
    rate = f" ({result.accepted / took_s:,.0f} points/s)" if for_people() and result.accepted else ""
    again = f", {count(result.replayed_batches, 'batch', 'batches')} stored before" if result.replayed_batches else ""
    offset = "" if result.log_offset is None else f", log offset {result.log_offset:,}"
    typer.echo(f"{count(result.accepted, 'point')} in stream {result.stream}{offset}{again}{rate}")
