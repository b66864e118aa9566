"""The commands `shoal sources`: the sources that the server runs itself, and the positions of all sources."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.groups import grouped
from shoal_service.cli.output import for_people, print_json, print_line
from shoal_service.cli.tables import print_table

if TYPE_CHECKING:
    from shoal_service.client import ConfiguredSource

_COLUMNS = ("name", "kind", "state", "records", "skipped", "points", "lag", "error")

app = typer.Typer(
    no_args_is_help=True,
    help="Define sources that the server itself reads for a stream, and see how far sources are.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the source.")]


@app.command("list")
@grouped
def list_all(server: options.Server, as_json: options.Json = False) -> None:
    """List the sources that the server runs for a stream.

    In a terminal: a table. In a pipe: tab-separated lines with a header. With
    --json also the positions of connectors that run by themselves.
    """
    with server.connect() as client:
        found = client.configured_sources()
        positions = [vars(one) for one in client.sources()] if as_json else []
    if as_json:
        print_json({"sources": positions, "configured": [one.raw for one in found]})
        return
    rows = [_row(one) for one in found]
    if for_people():
        if rows:
            print_table(_COLUMNS, rows, numbers=(3, 4, 5))
        else:
            typer.echo("there are no sources that the server runs for this stream; define one with `shoal sources set`")
    else:
        print_line(*_COLUMNS)
        for row in rows:
            print_line(*row)


@app.command("show")
@grouped
def show(name: Name, server: options.Server, as_json: options.Json = False) -> None:
    """Show one source: whether it works, how far it is, and its settings without secrets."""
    with server.connect() as client:
        _show(client.configured_source(name), as_json)


@app.command("set")
@grouped
def set_one(
    name: Name,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="JSON with the kind and the settings; `-` reads standard input.")
    ],
    server: options.Server,
    as_json: options.Json = False,
) -> None:
    """Have the server read a source, or change the source of this name.

    The settings have the names of the options of shoal connect. Needs an admin
    key where keys are needed.

    Example:

      echo '{"kind": "redis-stream", "redis_url": "redis://example.org", "keys": ["k"]}' |
        shoal sources set readings - --stream sensors
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {file}: {getattr(error, 'strerror', error)}") from error
    try:
        body = json.loads(text)
    except ValueError as error:
        raise CommandError(f"{file} is not JSON: {error}") from error
    if not isinstance(body, dict) or not isinstance(body.get("kind"), str):
        raise CommandError(f'{file} is no JSON object with a kind; write {{"kind": "redis-stream", ...}}')
    kind, enabled = body.pop("kind"), body.pop("enabled", True)
    with server.connect() as client:
        _show(client.put_source(name, kind, body, enabled=enabled), as_json)


@app.command("pause")
@grouped
def pause(name: Name, server: options.Server, as_json: options.Json = False) -> None:
    """Pause a source. Its settings and its position stay."""
    with server.connect() as client:
        _show(client.enable_source(name, False), as_json)


@app.command("resume")
@grouped
def resume(name: Name, server: options.Server, as_json: options.Json = False) -> None:
    """Let a source go on from its position."""
    with server.connect() as client:
        _show(client.enable_source(name, True), as_json)


@app.command("delete")
@grouped
def delete(
    name: Name,
    server: options.Server,
    keep_positions: Annotated[
        bool, typer.Option("--keep-positions", help="Keep its positions, so that another connector may go on.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Delete a source. Its points stay. One that is created again begins again, unless positions are kept."""
    with server.connect() as client:
        client.delete_source(name, keep_positions=keep_positions)
    _print_done({"deleted": name, "kept_positions": keep_positions}, f"source {name} is deleted", as_json)


@app.command("forget")
@grouped
def forget(
    name: Name,
    server: options.Server,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="NAME", help="Only this partition. (default: all)")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Forget how far a source is, also one of shoal connect. It is then read again from its beginning."""
    with server.connect() as client:
        client.forget_source(name, partition=partition)
    _print_done({"forgotten": name, "partition": partition}, f"positions of source {name} are forgotten", as_json)


def _print_done(shown: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(shown)
    else:
        typer.echo(words)


def _show(found: "ConfiguredSource", as_json: bool) -> None:
    if as_json:
        print_json(found.raw)
        return
    state = found.state
    lines: list[tuple[str, Any]] = [("name", found.name), ("kind", found.kind), ("stream", found.stream)]
    lines += [(name, value) for name, value in state.items() if value is not None]
    lines += [(f"position of {one['partition']}", one["position"]) for one in found.positions]
    lines += [(name, json.dumps(value)) for name, value in found.settings.items() if value not in (None, {})]
    for name, value in lines:
        print_line(name, str(value))


def _row(found: "ConfiguredSource") -> Sequence[str]:
    state = found.state
    lag = "" if state["lag_records"] is None else f"{state['lag_records']}"
    if not lag and state["lag_s"] is not None:
        lag = f"{state['lag_s']:g} s"
    numbers = [str(state[name]) for name in ("records", "skipped", "points")]
    return [found.name, found.kind, state["state"], *numbers, lag, state["error"] or ""]
