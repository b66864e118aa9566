"""The commands `shoal dead-letters list`, `show` and `requeue`."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.groups import grouped
from shoal_service.cli.output import count, print_json, print_line

if TYPE_CHECKING:
    from shoal_service.client import DeadLetter

SHOWN = 100
"""Largest number of points that `show` prints."""

app = typer.Typer(
    no_args_is_help=True,
    help="List, show and append again the batches that could not be learnt.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Seq = Annotated[int, typer.Argument(metavar="SEQ", min=1, help="Number of the entry, from `shoal dead-letters list`.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Read this folder of data, instead of asking a server."),
]


@app.command("list")
@grouped
def list_(server: options.Server, data: Data = None, as_json: options.Json = False) -> None:
    """List the dead letters of the stream, oldest first.

    Examples:

      shoal dead-letters list --stream sensors
      shoal dead-letters list --data /var/lib/shoal
    """
    found = _read(server, data)
    if as_json:
        print_json([_plain(letter) for letter in found])
        return
    print_line("seq", "log_offset", "n_points", "n_bytes", "reason")
    for letter in found:
        print_line(letter.seq, letter.log_offset, letter.n_points, letter.n_bytes, letter.reason)


@app.command("show")
@grouped
def show(seq: Seq, server: options.Server, data: Data = None, as_json: options.Json = False) -> None:
    """Show one dead letter, with its first points.

    Example:  shoal dead-letters show 17 --stream sensors
    """
    if data is None:
        with server.connect() as client:
            letter = client.dead_letter(seq, limit=SHOWN)
    else:
        letter = _of_entry(_read(server, data), seq)
    if as_json:
        print_json(dataclasses.asdict(letter))
        return
    typer.echo(f"entry {letter.seq} of stream {letter.stream}, {count(letter.n_points, 'point')}: {letter.reason}")
    for point in letter.points or ():
        print_line(*point) if isinstance(point, list) else print_json(point)
    if letter.points is None:
        typer.echo("its payload holds no points that can be read")


@app.command("requeue")
@grouped
def requeue(seq: Seq, server: options.Server, as_json: options.Json = False) -> None:
    """Append the points of a dead letter as a new batch. A repetition within a day adds nothing.

    Example:  shoal dead-letters requeue 17 --stream sensors
    """
    with server.connect() as client:
        answer = client.requeue_dead_letter(seq)
    if as_json:
        print_json(dataclasses.asdict(answer))
    else:
        done = "was appended before" if answer.replayed else "is appended"
        points = count(answer.accepted, "point")
        typer.echo(f"entry {seq} of stream {answer.stream} {done}: {points}, log offset {answer.log_offset:,}")


def _read(server: options.Server, data: Path | None) -> list["DeadLetter"]:
    if data is None:
        with server.connect() as client:
            return client.dead_letters()
    from shoal_service.client import DeadLetter
    from shoal_service.store import dead_letters_at_rest

    name = server.stream or "default"
    return [
        DeadLetter(name, one.seq, one.log_offset, one.n_points, len(one.payload), one.reason, _points(one.payload))
        for one in dead_letters_at_rest(data, name)
    ]


def _of_entry(found: list["DeadLetter"], seq: int) -> "DeadLetter":
    for letter in found:
        if letter.seq == seq:
            return letter
    raise CommandError(f"there is no dead letter of entry {seq}; list them for their numbers", ExitCode.REFUSED)


def _points(payload: bytes) -> list[Any] | None:
    """Return the first points of a payload. None where it holds none that can be read."""
    from shoal_service.errors import MalformedBodyError
    from shoal_service.wire import first_points, from_log

    try:
        return first_points(from_log(payload), SHOWN)
    except MalformedBodyError:
        return None


def _plain(letter: "DeadLetter") -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(letter).items() if name != "points"}
