"""The command `shoal doctor`."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.output import count, print_json

if TYPE_CHECKING:
    from shoal_service.store import Finding, Inspection


def doctor(
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder of the data. (default: SHOAL_DATA_DIR, else ./shoal-data)"),
    ] = None,
    redis_url: Annotated[
        str | None,
        typer.Option("--redis", metavar="URL", help="Redis server, instead of --data. (SHOAL_REDIS_URL hides it)"),
    ] = None,
    prefix: Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Beginning of the keys in Redis.")] = "shoal",
    as_json: options.Json = False,
) -> None:
    """Check a store: every entry, payload, checkpoint, blob and record, and that they fit together.

    The store may be in use. Nothing is changed. Exit status: 0 when
    everything is whole, 1 when something was found, 6 when the store cannot
    be read at all.

    Examples:

      shoal doctor --data /var/lib/shoal
      shoal doctor --redis redis://127.0.0.1 --json
    """
    if data is not None and redis_url is not None:
        raise CommandError("both --data and --redis were given; remove one of them")
    from shoal_service.store import inspect_store

    place = redis_url if redis_url is not None else data or Path(os.environ.get("SHOAL_DATA_DIR") or "shoal-data")
    found = inspect_store(place, prefix=prefix)
    if as_json:
        print_json(_plain(found))
    else:
        typer.echo("\n".join(_lines(found)))
    if found.findings:
        raise typer.Exit(ExitCode.FOUND)


def _plain(found: "Inspection") -> dict[str, Any]:
    return found._asdict() | {
        "streams": [stream._asdict() for stream in found.streams],
        "findings": [finding._asdict() for finding in found.findings],
    }


def _lines(found: "Inspection") -> list[str]:
    used = "in use" if found.in_use else "at rest"
    lines = [f"{found.store}: format {found.format_version}, {used}, {count(len(found.streams), 'stream')}"]
    for stream in found.streams:
        in_log = (
            f"entries {stream.first_seq} to {stream.last_seq}" if stream.first_seq <= stream.last_seq else "no entries"
        )
        at = ", ".join(map(str, stream.checkpoints)) or "none"
        lines.append(
            f"  {stream.name}: {count(stream.log_offset, 'point')}, {in_log}, checkpoints at {at}, "
            f"{count(stream.dead_letters, 'dead letter')}"
        )
    for finding in found.findings:
        lines += ["", *_words(finding)]
    lines += [f"note: {note}" for note in found.notes]
    n = len(found.findings)
    return [*lines, "", f"{count(n, 'finding')}" if n else "everything is whole"]


def _words(finding: "Finding") -> list[str]:
    whose = "the store" if finding.stream is None else f"stream {finding.stream!r}"
    return [
        f"{whose}, {finding.part}, {finding.where}: {finding.problem}",
        f"  lost: {finding.loss}",
        f"  to do: {finding.remedy}",
    ]
