"""The picture of `shoal watch`: what it says, where lives begin and end, that it fits, and a lost connection."""

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from shoal.plotting import lives_of
from shoal_service.cli import watch
from shoal_service.cli.watch import events_for_ever
from shoal_service.cli.watch_picture import Course, Scene, life_cells, picture_of
from shoal_service.client import (
    Cluster,
    Clusters,
    Component,
    Components,
    NotFoundError,
    Refinement,
    StreamEvent,
    UnreachableError,
)

REFINEMENT = {
    "stream": "s", "incarnation": "i", "id": "r-1", "state": "adopted", "method": "vdp", "why": "asked",
    "created_at": "2026-01-01T00:00:00Z", "window": None, "attempts": 1, "progress": None, "points_seen": 900,
    "window_rows": 900, "bound_before": -5210.25, "bound_after": -4890.5, "components_before": 7,
    "components_after": 9, "tail_mass": None, "rounds": None, "seconds": 1.92, "adopted": True, "reason": None,
}  # fmt: skip


def event(at: int, kind: str, parents: tuple[int, ...], children: tuple[int, ...]) -> StreamEvent:
    return StreamEvent(f"i.{at}.0", kind, parents, children, at, at, None, None)


def scene(n: int = 3, **more: Any) -> Scene:
    """n components, the third of which has a label; the first was split at 500, and 99 was pruned at 750."""
    labels = {2: "a label that is long"}
    made = tuple(
        Component(k, 0.5 / 2**k, 1000.0 / 2**k, None, None, 0 if k else 500, 1000, label=labels.get(k))
        for k in range(n)
    )
    found = Components("sensors", "i", 1000, 1000, "live", 0.25, made)
    groups = (Cluster(0, 0.75, 750.0, tuple(range(n))),)
    events = [
        event(250, "born", (), (99,)), event(500, "split", (1,), (1, 0)), event(750, "pruned", (99,), ()),
    ]  # fmt: skip
    clusters = Clusters("sensors", "i", 1000, 1000, "live", "penalty", groups)
    return Scene(found, clusters, events, [Refinement.from_json(REFINEMENT, "s")])._replace(**more)


def course() -> Course:
    made = Course()
    for second, (end, offset) in enumerate([(0, 0), (500, 400), (1500, 1000)]):
        made.note(float(second), end, offset, -3.0 - second, None if second == 2 else 0.125)
    return made


def lines(width: int = 80, height: int = 23, limit: int = 20, last: int | None = None, **more: Any) -> list[str]:
    return picture_of(scene(**more), course(), width, height, limit, last).plain.splitlines()


def test_a_novelty_near_zero_is_drawn_near_zero() -> None:
    quiet = Course()
    for second in range(3):
        quiet.note(float(second), 10, 10, -3.0, 1e-9)
    text = picture_of(scene(), quiet, 80, 23, 20, None).plain.splitlines()
    assert re.match(r"novelty +0.0 % ▁▁▁ +score", text[2])


def test_the_picture_says_what_the_server_said() -> None:
    text = lines()
    assert text[0] == "sensors: 3 components in 1 cluster of 1,000 points"
    assert re.match(r"rate +1,000/s ▅█ +lag +500 ▁▂█", text[1])
    assert re.match(r"novelty +12.5 % ███ +score +-5.00 █▅▁", text[2])
    assert text[3].split() == ["0", "1,000", "points"]
    assert [line.split()[0] for line in text[4:8]] == ["0", "1", "2", "99"]
    assert text[4].split()[-2:] == ["50.0", "%"]
    assert text[6].endswith("12.5 % a label that…")
    assert text[7].endswith("retired")
    assert "weight of new components: 0.25" in text[8]
    assert text[10].split() == ["500", "split", "1", "→", "1,0"]
    assert text[-1] == "last refinement (asked): adopted, 7 components to 9, 1.9 s"


def test_a_life_begins_and_ends_in_its_columns() -> None:
    text = lines()
    room = len(text[4]) - len("      0 ") + 1 - len("  50.0 % ")
    begin = 7
    first, pruned = text[4][begin:], text[7][begin:]
    assert first.index("┝") == room // 2
    assert pruned.index("●") == room // 4
    assert pruned.index("╳") == 3 * room // 4


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("n", [0, 3, 400])
def test_the_picture_fits(width: int, n: int) -> None:
    for height in (14 if width >= 60 else 16, 23, 60):
        text = lines(width, height, limit=500, n=n, away="cannot reach " + 9 * "a long reason ")
        assert all(len(line) <= width for line in text)
        assert len(text) <= height
        assert text[-1].startswith("connection lost, trying again: cannot reach"[:width])
    if n == 400:
        assert ("smaller ones not shown" if width > 60 else " more; weight of") in "".join(text)


def test_sixty_columns_cut_no_number_off() -> None:
    """Shorter words stand for those that do not fit. An event without components has no arrow."""
    adopted, regrouped = event(999, "adopted", (), ()), event(999, "cluster-regrouped", (8,), (8, 3))
    large = {**REFINEMENT, "why": "doubled", "components_before": 1211, "components_after": 1207, "seconds": 123.4}
    text = lines(60, n=400, events=[adopted, regrouped], refinements=[Refinement.from_json(large, "s")])
    assert any(line.endswith(" more; weight of new components: 0.25") for line in text)
    assert text[-3:] == [
        "         999  adopted",
        "         999  cluster-regrouped  8 → 8,3",
        "refinement (doubled): adopted, 1,211 → 1,207, 123.4 s",
    ]


def test_cells_of_a_life() -> None:
    events = [
        event(0, "born", (), (1,)), event(20, "pruned", (1,), ()), event(60, "born", (), (2,)),
        event(60, "returned", (2,), (1,)), event(40, "split", (3,), (3, 4)), event(90, "merged", (3, 4), (3,)),
    ]  # fmt: skip
    lives = lives_of(events, {1: 0, 3: 0}, 100).lives
    assert life_cells(lives[1], 0, 100, 10) == "●━╳   ▲━━━"
    assert life_cells(lives[4], 0, 100, 10) == "    ┝────┷"
    assert life_cells(lives[3], 0, 100, 10) == "●━━━━━━━━━"
    assert life_cells(lives[3], 50, 100, 10) == "━━━━━━━━━━"
    assert life_cells(lives[4], 95, 100, 10) == " " * 10


def test_only_the_last_points_are_drawn_on_request() -> None:
    text = lines(last=100)
    assert text[3].split() == ["900", "1,000", "points"]
    assert [line.split()[0] for line in text[4:7]] == ["0", "1", "2"]
    assert "retired" not in "".join(text)


class Feed:
    """A client whose feed gives one list a connection, or raises."""

    def __init__(self, *turns: list[StreamEvent] | Exception) -> None:
        self.turns = list(turns)
        self.asked: list[str | None] = []

    def events(self, after: str | None, on_connect: Callable[[], None] | None = None) -> Any:
        self.asked.append(after)
        turn = self.turns.pop(0)
        if isinstance(turn, Exception):
            raise turn
        if on_connect is not None:
            on_connect()
        yield from turn


def test_events_go_on_after_the_last_one_when_the_server_comes_back() -> None:
    first, second = event(1, "born", (), (1,)), event(2, "born", (), (2,))
    feed = Feed([first], UnreachableError("away"), [second], NotFoundError("gone"))
    lost: list[str] = []
    events = events_for_ever(feed, "0", lambda error: lost.append(str(error)), sleep=lambda s: None)  # type: ignore[arg-type]
    assert [next(events), next(events)] == [first, second]
    with pytest.raises(NotFoundError):
        next(events)
    assert feed.asked == ["0", "i.1.0", "i.1.0", "i.2.0"]
    assert lost == ["away"]


def test_in_a_pipe_a_lost_connection_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = event(1, "born", (), (1,)), event(2, "born", (), (2,))
    away = [UnreachableError("away")] * 3
    feed = Feed([first], *away, [second], *away, NotFoundError("gone"))
    monkeypatch.setattr(watch, "RETRY_S", 0.0)
    with pytest.raises(NotFoundError):
        watch._print_events(feed, "web", "0", as_json=True)  # type: ignore[arg-type]
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert shown.err.count("connection lost (away)") == 2
    assert shown.err.count("following stream web") == 1
    assert shown.err.startswith("following stream web")


def test_a_server_that_never_answered_is_an_error() -> None:
    with pytest.raises(UnreachableError):
        next(events_for_ever(Feed(UnreachableError("away")), None, lambda error: None))  # type: ignore[arg-type]


COMPONENT = {
    "id": 4, "weight": 0.9, "mass": 900.0, "mean": [0.0], "variance": [1.0], "born_at": 3, "last_seen_at": 900,
}  # fmt: skip
CLUSTER = {"id": 4, "weight": 0.9, "mass": 900.0, "components": [4]}
HEAD = {"stream": "s", "incarnation": "i", "log_offset": 900, "points_seen": 900, "status": "live"}


class Server:
    """Answers what the picture asks for, but while it is `away`."""

    def __init__(self) -> None:
        self.away = False
        self.offset = 900

    def handle(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.rpartition("/")[2]
        head = HEAD | {"log_offset": self.offset, "points_seen": self.offset}
        if self.away:
            return httpx.Response(503, json={"type": "/problems/not-ready", "detail": "the server is being replaced"})
        if path == "events":
            told = 'id: i.3.0\nevent: born\ndata: {"points_seen": 3, "parents": [], "children": [4]}\n\n'
            return httpx.Response(200, text=told, headers={"content-type": "text/event-stream"})
        answers: dict[str, dict[str, Any]] = {
            "components": head | {"new_weight": 0.1, "components": [COMPONENT], "next": None},
            "clusters": head | {"rule": "penalty", "clusters": [CLUSTER]},
            "sample": head | {"points": [[0.0]], "components": [4], "novelty": [0.25], "log_density": [-1.0],
                              "log_offsets": [self.offset], "keys": [None]},
            "refinements": {"stream": "s", "refinements": []},
            "s": head | {"n_components": 1, "predictive_score": -1.5, "settings": {"n_features": 1}},
        }  # fmt: skip
        return httpx.Response(200, json=answers[path])


def test_in_a_terminal_the_picture_survives_a_lost_connection(
    process_parts: tuple[Callable[..., list[str]], Callable[[], dict[str, str]]], serve_on_loopback: Any
) -> None:
    """In a real terminal of 80 columns and 24 lines."""
    server = Server()
    url = serve_on_loopback(server.handle)
    command, environment = process_parts
    arguments = command("watch", "--url", url, "--stream", "s", "--every", "0.1")
    given = environment() | {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    terminal, inside = pty.openpty()
    process = subprocess.Popen(arguments, env=given, stdin=inside, stdout=inside, stderr=inside, start_new_session=True)
    os.close(inside)
    try:
        until(terminal, "of 900 points")
        server.away = True
        until(terminal, "being replaced")
        server.away, server.offset = False, 1200
        text = until(terminal, "of 1,200 points") + until(terminal, "weight of new")
        shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "").split("\n")
        assert max(map(len, shown)) <= 80
        assert any(re.match(r" +4 ●━+ +90.0 %", line) for line in shown)
        process.send_signal(signal.SIGINT)
        rest = read_to_the_end(terminal)  # a process whose output nobody reads waits for room in the terminal
        assert process.wait(120) == 130
        assert b"error" not in rest  # this is how a person ends it
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def read_to_the_end(terminal: int) -> bytes:
    """Read until the process has closed its end. Fails after two minutes."""
    end, seen = time.monotonic() + 120.0, b""
    with contextlib.suppress(OSError):  # what a terminal without a process gives
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                part = os.read(terminal, 1 << 16)
                if not part:
                    break
                seen += part
    return seen


def until(terminal: int, text: str) -> str:
    """What the terminal shows until a text is in it. Fails after two minutes."""
    seen, end = "", time.monotonic() + 120.0
    while text not in seen:
        assert time.monotonic() < end, seen[-3000:]
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                seen += os.read(terminal, 1 << 16).decode(errors="replace")
            except OSError:  # the process has ended
                pytest.fail(seen[-3000:])
    return seen
