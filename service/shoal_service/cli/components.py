"""The command `shoal components`."""

from typing import TYPE_CHECKING, Annotated

import typer

from shoal_service.cli import options
from shoal_service.cli.output import count, for_people, print_json
from shoal_service.cli.tables import Row, not_shown, print_component_table, print_plain_components

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shoal_service.client import Component, Components

ROWS_FOR_PEOPLE = 40


def components(
    server: options.Server,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", "-n", min=0, help="Show the N largest. 0 shows all. (default: 40 in a terminal, else all)"
        ),
    ] = None,
    min_offset: options.MinOffset = None,
    as_json: options.Json = False,
) -> None:
    """Show the components of the stream, largest first.

    In a terminal: a table. In a pipe: tab-separated lines with a header.
    With --json: everything, including variances.

    Examples:

      shoal components --stream sensors
      shoal components | sort -k2 -n | cut -f1,2
      shoal components --json | jq '.components[].id'
    """
    with server.connect() as client:
        found = client.components(min_offset=server.offset_to_await(client, min_offset))
    if as_json:
        print_json(_as_dict(found, limit))
        return
    names = found.feature_names
    rows = [Row(c.id, c.weight, c.mass, c.mean, c.born_at, c.last_seen_at, c.label, _levels(c, names)) for c in found]
    if not for_people():
        print_plain_components(rows[: limit or None], found.feature_names)
        return
    if not rows:
        typer.echo(f"stream {found.stream} has no components yet; send points with `shoal ingest FILE`")
        return
    shown = rows[: (ROWS_FOR_PEOPLE if limit is None else limit) or None]
    status = "" if found.status == "live" else f", {found.status.replace('_', ' ')}"
    title = f"{found.stream}: {count(len(rows), 'component')} of {count(found.points_seen, 'point')}{status}"
    rest = f"{not_shown(len(rows) - len(shown))}\n" if len(shown) < len(rows) else ""
    print_component_table(title, shown, f"{rest}weight of new components: {found.new_weight:.2g}", found.feature_names)


def _levels(component: "Component", names: "Sequence[str] | None") -> dict[int, str]:
    """The most frequent level of each feature of categories, by column."""
    shares = {(int(name) if names is None else names.index(name)): of for name, of in component.levels.items()}
    return {column: max(of, key=lambda level: of[level]) for column, of in shares.items() if of}


def _as_dict(found: "Components", limit: int | None) -> dict[str, object]:
    return {
        "stream": found.stream,
        "log_offset": found.log_offset,
        "points_seen": found.points_seen,
        "status": found.status,
        "feature_names": found.feature_names,
        "new_weight": found.new_weight,
        "components": [c.raw for c in found.components[: limit or None]],
    }
