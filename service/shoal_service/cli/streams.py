"""The commands `shoal streams list`, `show`, `create`, `set` and `delete`."""

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError, ExitCode
from shoal_service.cli.groups import grouped
from shoal_service.cli.output import for_people, print_json, print_line
from shoal_service.cli.tables import print_table

if TYPE_CHECKING:
    from shoal_service.client import StreamInfo

_COLUMNS = ("stream", "status", "points_seen", "n_components", "family", "n_features")

app = typer.Typer(
    no_args_is_help=True,
    help="List, show, create, change and delete streams.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the stream.")]


@app.command("list")
@grouped
def list_(
    pattern: Annotated[
        str | None,
        typer.Argument(metavar="[PATTERN]", help="Only streams of names such as 'sensors-*'. (default: all)"),
    ] = None,
    *,
    server: options.Address,
    as_json: options.Json = False,
) -> None:
    """List the streams, by name.

    In a terminal: a table. In a pipe: tab-separated lines with a header.

    Example:  shoal streams list 'sensors-*'
    """
    with server.connect() as client:
        found = client.streams(pattern)
    if as_json:
        print_json({"streams": [info.raw for info in found]})
    elif not for_people():
        print_line(*_COLUMNS)
        for info in found:
            print_line(*(_text(cell) if isinstance(cell, dict) else cell for cell in _cells(info)))
    elif found:
        rows = ([_for_people(cell) for cell in _cells(info)] for info in found)
        print_table(("stream", "status", "points", "components", "family", "features"), rows, numbers=(2, 3, 5))
    elif pattern is not None:
        typer.echo(f"no stream has a name that matches {pattern!r}")
    else:
        typer.echo("there are no streams yet; create one with `shoal streams create NAME --features N`")


@app.command("show")
@grouped
def show(name: Name, server: options.Address, as_json: options.Json = False) -> None:
    """Show one stream and its settings.

    Example:  shoal streams show sensors
    """
    with server.connect() as client:
        info = client.stream_info(name)
    if as_json:
        print_json(info.raw)
        return
    head = {name: getattr(info, name) for name in _COLUMNS[:4]} | {"log_offset": info.log_offset}
    if info.raw.get("newest_time") is not None:
        head["newest_time"] = info.raw["newest_time"]
    rows = [(key, _text(value)) for key, value in {**head, **info.settings}.items()]
    if for_people():
        print_table(("", ""), rows)
        return
    for row in rows:
        print_line(*row)


@app.command("create")
@grouped
def create(
    name: Name,
    *,
    server: options.Address,
    features: Annotated[int | None, typer.Option("--features", min=1, metavar="N", help="Number of features.")] = None,
    family: Annotated[
        str | None,
        typer.Option("--family", metavar="NAME", help="Family of distributions of the components. (default: auto)"),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, max=64, metavar="N", help="Parts of a round that are learnt side by side."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting, such as half_life=50000 or =1h. Repeatable."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Create a stream. A stream of this name must not exist.

    Examples:

      shoal streams create sensors --features 16 --set half_life=50000
      shoal streams create words --features 2000 --family multinomial
    """
    values = dict(map(options.setting, settings or []))
    named = {"n_features": features, "family": family, "partitions": partitions}
    values |= {key: value for key, value in named.items() if value is not None}
    with server.connect() as client:
        if any(info.stream == name for info in client.streams(name)):
            raise CommandError(
                f"there is a stream {name!r} already; change it with `shoal streams set {name} NAME=VALUE`",
                ExitCode.REFUSED,
            )
        _tell(client.create_stream(name, **values), "created", as_json)


@app.command("set")
@grouped
def set_(
    name: Name,
    settings: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Settings, such as half_life=50000; null removes one.")
    ],
    server: options.Address,
    as_json: options.Json = False,
) -> None:
    """Change settings of a stream, from the next entry of its log on. The others stay as they are.

    Example:  shoal streams set sensors half_life=50000 refinement=null
    """
    values = dict(map(options.setting, settings))
    with server.connect() as client:
        _tell(client.change_stream(name, **values), "changed", as_json)


@app.command("delete")
@grouped
def delete(
    name: Name,
    server: options.Address,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> None:
    """Delete a stream with its log, components and records. Only a snapshot can bring it back.

    Example:  shoal streams delete sensors --yes
    """
    with server.connect() as client:
        if not yes:
            points = client.stream_info(name).points_seen
            if not sys.stdin.isatty():
                raise CommandError(f"stream {name!r} has {points:,} points; add --yes to delete it")
            typer.confirm(f"delete stream {name} with its {points:,} points?", abort=True)
        client.delete_stream(name)
    if as_json:
        print_json({"stream": name, "deleted": True})
    else:
        typer.echo(f"stream {name} is deleted")


def _cells(info: "StreamInfo") -> tuple[object, ...]:
    about = {**info.settings, **info.raw}
    return tuple(about.get(column, "") for column in _COLUMNS)


def _for_people(cell: object) -> str:
    """`20,000` for a number, `warming up` for a status, `gaussian, poisson` for families by column."""
    if isinstance(cell, int):
        return f"{cell:,}"
    return ", ".join(dict.fromkeys(cell.values())) if isinstance(cell, dict) else str(cell).replace("_", " ")


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _tell(info: "StreamInfo", done: str, as_json: bool) -> None:
    if as_json:
        print_json(info.raw)
    else:
        about = info.settings
        family = _text(about.get("family"))
        typer.echo(f"stream {info.stream} is {done}: {family}, n_features {about.get('n_features')}")
