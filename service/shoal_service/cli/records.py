"""The commands `shoal records get`, `lookup`, `list` and `delete`."""

import dataclasses
import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import CommandError
from shoal_service.cli.groups import grouped
from shoal_service.cli.output import for_people, print_json, print_line
from shoal_service.cli.tables import print_table

_COLUMNS = ("key", "component", "assigned", "resolved", "log_offset", "time", "novelty", "log_density", "payload")
_SHOWN = ("key", "component", "resolved", "time", "novelty", "payload")
"""Columns of the table for people, which fits in 80 columns."""
_MEMBER_COLUMNS = ("key", "log_offset", "time", "log_density", "payload")


class Order(StrEnum):
    """Order of the records of a component."""

    NEWEST = "newest"
    TYPICAL = "typical"
    ATYPICAL = "atypical"


app = typer.Typer(
    no_args_is_help=True,
    help="Read and forget records: points that were sent under keys.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

RecordKey = Annotated[str, typer.Argument(metavar="KEY", help="Key of the record.")]


@app.command("get")
@grouped
def get(key: RecordKey, server: options.Server, as_json: options.Json = False) -> None:
    """Show the record of a key: its component today, and what it carries.

    Example:  shoal records get host-7/2026-01-31 --stream logs
    """
    with server.connect() as client:
        found = dataclasses.asdict(client.record(key))
    if as_json:
        print_json(found)
    elif for_people():
        print_table(("", ""), [(name, _text(found[name])) for name in _COLUMNS])
    else:
        for name in _COLUMNS:
            print_line(name, _text(found[name]))


@app.command("lookup")
@grouped
def lookup(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="Keys; `-` reads one per line from stdin.")],
    server: options.Server,
    as_json: options.Json = False,
) -> None:
    """Show the records of many keys, in their order. Unknown keys have no component.

    Examples:

      shoal records lookup host-7 host-8
      cut -f1 table.tsv | shoal records lookup - --json
    """
    if keys == ["-"]:
        keys = [line.rstrip("\r\n") for line in sys.stdin if line.strip()]
    if not keys:
        raise CommandError("there are no keys; give one or more, or one per line on stdin")
    with server.connect() as client:
        found = client.lookup_records(keys)
    rows = [None if one is None else dataclasses.asdict(one) for one in found]
    if as_json:
        print_json({"records": rows})
    else:
        _print(_COLUMNS, _SHOWN, [row or {"key": key} for key, row in zip(keys, rows, strict=True)])


@app.command("list")
@grouped
def list_(
    component: Annotated[int, typer.Argument(metavar="COMPONENT", min=0, help="Id of the component.")],
    *,
    server: options.Server,
    order: Annotated[
        Order, typer.Option("--order", help="The newest first, or the most or the least typical of the mixture.")
    ] = Order.NEWEST,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Show N records. 0 shows all.")] = 100,
    min_offset: options.MinOffset = None,
    as_json: options.Json = False,
) -> None:
    """List the records that belong to a component today.

    In a terminal: a table. In a pipe: tab-separated lines with a header.

    Examples:

      shoal records list 3 --order typical -n 5
      shoal records list 3 --limit 0 | cut -f1
    """
    with server.connect() as client:
        offset = server.offset_to_await(client, min_offset)
        found = client.component_records(component, order=order.value, limit=limit or None, min_offset=offset)
    rows = [dataclasses.asdict(one) for one in found]
    if as_json:
        print_json({"component": component, "records": rows})
    else:
        _print(_MEMBER_COLUMNS, _MEMBER_COLUMNS, rows)


@app.command("delete")
@grouped
def delete(key: RecordKey, server: options.Server, as_json: options.Json = False) -> None:
    """Forget key, time and payload of a record. What was learnt from its point stays.

    Example:  shoal records delete host-7/2026-01-31
    """
    with server.connect() as client:
        done = client.delete_record(key)
    if as_json:
        print_json({"key": key, "forgotten": done})
    else:
        typer.echo(f"record {key} is forgotten" if done else f"record {key} will be forgotten; the wish is durable")


def _print(columns: tuple[str, ...], shown: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    if not for_people():
        print_line(*columns)
        for row in rows:
            print_line(*(_text(row.get(name)) for name in columns))
    elif rows:
        numbers = tuple(i for i, name in enumerate(shown) if name in ("component", "log_offset", "log_density"))
        print_table(
            [name.replace("_", " ") for name in shown],
            ([_short(row.get(name)) for name in shown] for row in rows),
            numbers=numbers,
            whole=tuple(i for i, name in enumerate(shown) if name == "time"),
        )
    else:
        typer.echo("there are no records")


def _text(value: Any) -> str:
    """The exact value. A payload is JSON."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 1e9 else _text(value)
