"""The command `shoal clusters`."""

from typing import Annotated

import typer

from shoal_service.cli import options
from shoal_service.cli.output import count, for_people, print_json, print_line, weight_bar
from shoal_service.cli.tables import not_shown, print_table

ROWS_FOR_PEOPLE = 40
MOST_IDS = 12
"""Largest number of component ids in a row for people."""

_RULES = {
    "number": "the number that you gave",
    "resolution": "by the resolution that you gave",
    "connected": "connected groups",
    "penalty": "as many as the points show",
    "components": "one per component",
}


def clusters(
    *,
    server: options.Server,
    n: Annotated[int | None, typer.Option("--number", "-n", min=1, help="Number of clusters.")] = None,
    resolution: Annotated[
        float | None, typer.Option("--resolution", help="More clusters for a higher value, above 0.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=0, help="Show the N largest. 0 shows all. (default: 40 in a terminal, else all)"),
    ] = None,
    min_offset: options.MinOffset = None,
    as_json: options.Json = False,
) -> None:
    """Show the clusters of the stream, largest first: groups of components.

    Without --number and --resolution the data choose how many.
    In a terminal: a table. In a pipe: tab-separated lines with a header.

    Examples:

      shoal clusters --stream sensors
      shoal clusters --number 10 | cut -f1,3
      shoal clusters --json | jq '.clusters[].components'
    """
    with server.connect() as client:
        found = client.clusters(n, resolution=resolution, min_offset=server.offset_to_await(client, min_offset))
    if as_json:
        head = ("stream", "log_offset", "points_seen", "status", "rule")
        rows = [one.raw for one in found.clusters[: limit or None]]
        print_json({**{name: getattr(found, name) for name in head}, "clusters": rows})
        return
    if not for_people():
        labelled = any(one.label is not None for one in found)
        print_line("id", "weight", "mass", "components", *["label"] * labelled)
        for one in found.clusters[: limit or None]:
            ids, label = ",".join(map(str, one.components)), [one.label or ""] * labelled
            print_line(one.id, repr(one.weight), repr(one.mass), ids, *label)
        return
    if not len(found):
        typer.echo(f"stream {found.stream} has no components yet; send points with `shoal ingest FILE`")
        return
    rule = _RULES.get(found.rule or "", found.rule)
    typer.echo(f"{found.stream}: {count(len(found), 'cluster')} of {count(found.points_seen, 'point')} ({rule})")
    heaviest = max(one.weight for one in found) or 1.0
    shown = found.clusters[: (ROWS_FOR_PEOPLE if limit is None else limit) or None]
    labelled = any(one.label is not None for one in shown)
    cells = []
    for one in shown:
        more = "" if len(one.components) <= MOST_IDS else f" and {len(one.components) - MOST_IDS} more"
        ids = " ".join(map(str, one.components[:MOST_IDS])) + more
        label = [one.label or ""] * labelled
        bar = weight_bar(one.weight / heaviest)
        cells.append((one.id, f"{one.weight:.4f}", bar, f"{one.mass:,.1f}", *label, ids))
    heads = ("cluster", "weight", "", "mass", *["label"] * labelled, "components")
    print_table(heads, cells, numbers=(0, 1, 3), whole=(2,))
    if len(shown) < len(found):
        typer.echo(not_shown(len(found) - len(shown)))
