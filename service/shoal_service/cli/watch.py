"""The command `shoal watch`."""

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal_service.cli import options
from shoal_service.cli.output import count, for_people, print_json, print_line
from shoal_service.cli.tables import Row, component_table

if TYPE_CHECKING:
    from shoal_service.client import Client, Components, Refinement, StreamEvent

EVENTS_SHOWN = 8
ROWS_SHOWN = 20


def watch(
    server: options.Server,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Time between two updates of the table.")
    ] = 1.0,
    after: Annotated[
        str | None,
        typer.Option(
            "--after", metavar="ID", help="Begin after this event; 0: with the oldest stored one. (default: now)"
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of rows in the table.")
    ] = ROWS_SHOWN,
    as_json: options.Json = False,
) -> None:
    """Follow a stream live: its components and their changes, until interrupted.

    In a terminal: a table. In a pipe: one line per event, or one object with --json.

    Examples:

      shoal watch --stream sensors
      shoal watch --after 0 | grep -w split
      shoal watch --json | jq -c 'select(.kind == "born")'
    """
    with server.connect() as client:
        if as_json or not for_people():
            _print_events(client, after, as_json)
        else:
            with server.connect() as follower:
                _draw(client, _Follower(follower, after), every_s, limit)


def _print_events(client: "Client", after: str | None, as_json: bool) -> None:
    import sys

    if not as_json:
        print_line("id", "kind", "points_seen", "parents", "children", "reason")
    for event in client.events(after):
        if as_json:
            print_json({"id": event.id, **event.raw})
        else:
            print_line(
                event.id, event.kind, _text(event.points_seen), _ids(event.parents), _ids(event.children),
                event.reason or "",
            )  # fmt: skip
        sys.stdout.flush()


class _Follower:
    """Reads events in a thread, and keeps the last few."""

    def __init__(self, client: "Client", after: str | None) -> None:
        self.last: deque[StreamEvent] = deque(maxlen=EVENTS_SHOWN)
        self.failure: Exception | None = None
        self._client = client
        self._after = after
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for event in self._client.events(self._after):
                self.last.append(event)
        except Exception as error:  # noqa: BLE001 - raised in the thread that draws
            self.failure = error


def _draw(client: "Client", follower: _Follower, every_s: float, limit: int) -> None:
    from rich.console import Group
    from rich.live import Live

    with Live(auto_refresh=False, screen=False) as live:
        while True:
            if follower.failure is not None:
                raise follower.failure
            found, refinements = client.components(), client.refinements()
            live.update(
                Group(_table(found, limit), _events(list(follower.last)), _refinement(refinements)), refresh=True
            )
            time.sleep(every_s)


def _table(found: "Components", limit: int) -> Any:
    rows = [Row(c.id, c.weight, c.mass, c.mean, c.born_at, c.last_seen_at, c.label) for c in found]
    title = f"{found.stream}: {count(len(rows), 'component')} of {count(found.points_seen, 'point')}"
    title += "" if found.status == "live" else f", {found.status.replace('_', ' ')}"
    rest = f"{len(rows) - limit} smaller ones not shown; " if len(rows) > limit else ""
    return component_table(title, rows[:limit], f"{rest}weight of new components: {found.new_weight:.2g}")


def _events(last: "list[StreamEvent]") -> Any:
    from rich.text import Text

    lines = [
        f"{_text(event.points_seen):>12}  {event.kind:9} {_ids(event.parents)} → {_ids(event.children)}"
        f"{'  ' + event.reason if event.reason else ''}"
        for event in last
    ]
    return Text("\n".join(lines), style="dim")


def _refinement(refinements: "list[Refinement]") -> Any:
    from rich.text import Text

    if not refinements:
        return Text("")
    newest = refinements[0]
    words = f"last refinement ({newest.why}): {newest.state.replace('-', ' ')}"
    if newest.components_after is not None:
        words += f", {newest.components_before} components to {newest.components_after}"
    return Text(words if newest.seconds is None else f"{words}, {newest.seconds:.1f} s")


def _ids(ids: "tuple[int, ...]") -> str:
    return ",".join(map(str, ids)) or "-"


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)
