"""The command `shoal watch`."""

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from shoal_service.cli import options
from shoal_service.cli.exits import ExitCode
from shoal_service.cli.output import for_people, print_json, print_line, stderr_console
from shoal_service.cli.watch_picture import Course, Scene, picture_of

if TYPE_CHECKING:
    from shoal_service.client import Client, ShoalClientError, StreamEvent

EVENTS_KEPT = 10_000
"""Most events behind the life lines."""
ROWS_SHOWN = 20
NOVELTY_POINTS = 200
RETRY_S = 2.0
"""Pause before a lost connection is tried again."""


def watch(
    server: options.Server,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, metavar="SECONDS", help="Time between two updates of the picture.")
    ] = 1.0,
    after: Annotated[
        str | None,
        typer.Option(
            "--after",
            metavar="ID",
            help="Begin after this event; 0: with the oldest stored one. (default: now; for the picture, 0)",
        ),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", min=1, metavar="POINTS", help="Draw the lives over so many points. (default: all)"),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Largest number of components in the picture.")
    ] = ROWS_SHOWN,
    as_json: options.Json = False,
) -> None:
    """Follow a stream live, until interrupted. A lost connection is made again.

    In a terminal: a picture. It has the rate, the lag, the novelty, the predictive score, and every component as a line
    from its birth to its end. In a pipe: one line per event, or one object with --json. A line on stderr says when the
    server has begun to send.

    Examples:

      shoal watch --stream sensors
      shoal watch --last 100000
      shoal watch --after 0 | grep -w split
      shoal watch --json | jq -c 'select(.kind == "born")'
    """
    try:
        with server.connect() as client:
            if as_json or not for_people():
                _print_events(client, server.stream or "default", after, as_json)
            else:
                course = Course()
                scene = _seen(client, [], course)  # by the patient client, which waits for a server that is starting
                follower = _Follower(client, "0" if after is None else after)
                with server.connect(retries=0) as poller:
                    _draw(poller, follower, scene, course, every_s, limit, last)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None  # the usual end, so without words


def _print_events(client: "Client", stream: str, after: str | None, as_json: bool) -> None:
    away, known = False, False

    def connected() -> None:
        nonlocal known
        if not known:
            if not as_json:
                print_line("id", "kind", "points_seen", "parents", "children", "reason")
            stderr_console().print(f"following stream {stream}", soft_wrap=True)
        known = True

    def lost(error: "ShoalClientError") -> None:
        nonlocal away
        if not away:
            stderr_console().print(f"connection lost ({error}); trying again", soft_wrap=True)
        away = True

    for event in events_for_ever(client, after, lost, on_connect=connected):
        away = False
        if as_json:
            print_json({"id": event.id, **event.raw})
        else:
            at = "-" if event.points_seen is None else event.points_seen
            parents, children = (",".join(map(str, ids)) or "-" for ids in (event.parents, event.children))
            print_line(event.id, event.kind, at, parents, children, event.reason or "")
        sys.stdout.flush()


def events_for_ever(
    client: "Client",
    after: str | None,
    lost: Callable[["ShoalClientError"], None],
    *,
    known: bool = False,
    on_connect: Callable[[], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> "Iterator[StreamEvent]":
    """Events, also after the server was away for longer than the client waits; `lost` is called each time it is.

    `known`: whether the server has answered already. Raises the client's error if it never did, and one for which a
    later try would not help.
    """
    from shoal_service.client import UnavailableError, UnreachableError

    while True:
        try:
            for event in client.events(after, on_connect=on_connect):
                known, after = True, event.id or after
                yield event
        except (UnreachableError, UnavailableError) as error:
            if not known:
                raise
            lost(error)
            sleep(RETRY_S)


class _Follower:
    """Reads events in a thread, and keeps them."""

    def __init__(self, client: "Client", after: str | None) -> None:
        self.events: deque[StreamEvent] = deque(maxlen=EVENTS_KEPT)
        self.failure: Exception | None = None
        self._client = client
        self._after = after
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            for event in events_for_ever(self._client, self._after, lambda error: None, known=True):
                self.events.append(event)
        except Exception as error:  # noqa: BLE001 - raised in the thread that draws
            self.failure = error


def _draw(
    client: "Client",
    follower: _Follower,
    scene: Scene,
    course: Course,
    every_s: float,
    limit: int,
    last: int | None,
) -> NoReturn:
    """Draw until interrupted. The last picture stays while the server is away, with words about it."""
    from rich.live import Live

    from shoal_service.client import UnavailableError, UnreachableError

    with Live(auto_refresh=False, screen=False, vertical_overflow="crop") as live:
        while True:
            size = live.console.size
            live.update(picture_of(scene, course, size.width, size.height - 1, limit, last), refresh=True)
            time.sleep(every_s)
            if follower.failure is not None:
                raise follower.failure
            try:
                scene = _seen(client, follower.events, course)
            except (UnreachableError, UnavailableError) as error:
                scene = scene._replace(away=str(error))


def _seen(client: "Client", events: "Iterable[StreamEvent]", course: Course) -> Scene:
    """Ask for everything that the picture shows, and note the numbers of this moment."""
    from shoal_service.client import NotFoundError

    components = client.components()
    clusters = client.clusters() if len(components) else None
    try:
        info = client.stream_info(components.stream)
    except NotFoundError:  # the stream `default` before its first points
        info = None
    novelty = None
    if info is not None and components.log_offset > max(course.offset, 0):
        sample = client.sample(NOVELTY_POINTS, after=max(course.offset, 0))
        novelty = float(sample.novelty.mean()) if len(sample.novelty) else None
    end = components.log_offset if info is None else info.log_offset
    score = None if info is None else info.raw.get("predictive_score")
    course.note(time.monotonic(), end, components.log_offset, score, novelty)
    return Scene(components, clusters, list(events), client.refinements())
