"""The picture of `shoal watch`: numbers with their course, and components as lines over the stream, in text."""

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal_service.cli.output import count, sparkline

if TYPE_CHECKING:
    from rich.text import Text

    from shoal.plotting import Life
    from shoal_service.client import Clusters, Components, Refinement, StreamEvent

TICKS_KEPT = 600
EVENTS_SHOWN = 4
FEWEST_ROWS = 3
_FIXED_LINES = 4
"""Lines that are neither numbers nor lives nor events."""
_CELL = 19
"""Columns of the name and the value of a number."""
_LEAST_COURSE = 4
"""Columns of its course, at least."""
_LABEL = 14
_EVENT = len("cluster-regrouped")
_LEFT = 7
_RIGHT = 8


class Tick(NamedTuple):
    """The numbers of one moment."""

    time_s: float
    end: int
    """Points in the log."""
    offset: int
    """Of these, the points that readers see."""
    score: float | None
    novelty: float | None


class Course:
    """The numbers of the last moments."""

    def __init__(self) -> None:
        self.ticks: deque[Tick] = deque(maxlen=TICKS_KEPT)

    @property
    def offset(self) -> int:
        """Points that readers saw at the last moment; -1 before the first."""
        return self.ticks[-1].offset if self.ticks else -1

    def note(self, time_s: float, end: int, offset: int, score: float | None, novelty: float | None) -> None:
        """Add a moment. Without new points the novelty stays."""
        if novelty is None and self.ticks:
            novelty = self.ticks[-1].novelty
        self.ticks.append(Tick(time_s, end, offset, score, novelty))

    def rates(self) -> list[float]:
        """Points that arrived in a second, between each two moments."""
        pairs = zip(self.ticks, list(self.ticks)[1:], strict=False)
        return [max(b.end - a.end, 0) / max(b.time_s - a.time_s, 1e-3) for a, b in pairs]


class Scene(NamedTuple):
    """Last answers of the server."""

    components: "Components"
    clusters: "Clusters | None"
    events: "list[StreamEvent]"
    refinements: "list[Refinement]"
    away: str | None = None
    """Why there is no newer answer."""


def picture_of(scene: Scene, course: Course, width: int, height: int, limit: int, last: int | None) -> "Text":
    """The picture, in at most `width` columns, and in `height` lines if there is room for three components."""
    from rich.text import Text

    events = scene.events[-EVENTS_SHOWN:]
    numbers = _numbers(course, width)
    rows = max(FEWEST_ROWS, min(limit, height - _FIXED_LINES - len(numbers) - len(events)))
    lines = [
        _head(scene, width),
        *numbers,
        *_lives(scene, width, rows, last),
        *(Text(_event_words(event)[:width], style="dim") for event in events),
        _foot(scene, width),
    ]
    return Text("\n").join(lines)


def _head(scene: Scene, width: int) -> "Text":
    from rich.text import Text

    found = scene.components
    groups = "" if scene.clusters is None else f" in {count(len(scene.clusters), 'cluster')}"
    status = "" if found.status == "live" else f", {found.status.replace('_', ' ')}"
    text = f"{found.stream}: {count(len(found), 'component')}{groups} of {count(found.points_seen, 'point')}{status}"
    return Text(text[:width], style="bold")


def _numbers(course: Course, width: int) -> "list[Text]":
    """Rate and lag, novelty and score, with their courses. Two in a line, if there is room."""
    newest = course.ticks[-1]
    rates = course.rates()
    lags = [float(tick.end - tick.offset) for tick in course.ticks]
    novelty = [math.nan if tick.novelty is None else tick.novelty for tick in course.ticks]
    scores = [math.nan if tick.score is None else tick.score for tick in course.ticks]
    cells = [
        ("rate", f"{rates[-1]:,.0f}/s" if rates else "-", rates, (0.0, 1.0)),
        ("lag", f"{lags[-1]:,.0f}", lags, (0.0, 1.0)),
        ("novelty", "-" if newest.novelty is None else f"{100.0 * newest.novelty:.1f} %", novelty, (0.0, 0.01)),
        ("score", "-" if newest.score is None else f"{newest.score:.2f}", scores, None),
    ]
    each = (width - 2) // 2
    if each < _CELL + _LEAST_COURSE:
        return [_cell(*one, width) for one in cells]
    return [_cell(*cells[i], each) + "  " + _cell(*cells[i + 1], each) for i in (0, 2)]


def _cell(name: str, value: str, values: Sequence[float], least: tuple[float, float] | None, width: int) -> "Text":
    """A name, a value and its course. `least`: where ticks begin, and the least value of a full one."""
    from rich.text import Text

    room = max(width - _CELL, _LEAST_COURSE)
    shown = list(values)[-room:]
    known = [one for one in shown if math.isfinite(one)]
    low, high = (min(known, default=0.0), max(known, default=0.0))
    if least is not None:
        low, high = least[0], max(high, least[1])
    ticks = sparkline(shown, [low] * len(shown), [high] * len(shown))
    if not high > low:
        ticks = "".join("▁" if math.isfinite(one) else " " for one in shown)
    return Text.assemble((f"{name:<8}", "dim"), f"{value:>10} ", (f"{ticks:<{room}}", "blue"))


def _lives(scene: Scene, width: int, rows: int, last: int | None) -> "list[Text]":
    """A scale, and a line for each component: the largest ones that live, then those that ended last."""
    from rich.text import Text

    from shoal.plotting import lives_of

    found = scene.components
    lives = lives_of(scene.events, {one.id: one.born_at for one in found}, found.points_seen)
    begin = lives.first if last is None else max(lives.first, found.points_seen - last)
    living = [one.id for one in found][:rows]
    seen = [one for one in lives.lives.values() if not one.alive and (one.segments[-1].end or 0) > begin]
    ended = sorted(seen, key=lambda life: (-(life.segments[-1].end or 0), life.id))[: rows - len(living)]
    room = width - _LEFT - _RIGHT - _LABEL
    labels = {one.id: one.label for one in found}
    weights = {one.id: one.weight for one in found}
    cluster_of = {one: cluster.id for cluster in scene.clusters or () for one in cluster.components}
    left, right = f"{begin:,}", f"{found.points_seen:,} points"
    scale = Text(" " * _LEFT + left + right.rjust(max(room - len(left), len(right) + 1)), style="dim")
    drawn = [
        _life(lives.lives[one], (begin, lives.last), room, f"{100.0 * weights[one]:.1f} %", labels[one], cluster_of)
        for one in living
    ]
    drawn += [_life(one, (begin, lives.last), room, "", _END.get(str(one.ended)), cluster_of) for one in ended]
    hidden = len(found) - len(living)
    weight = f"weight of new components: {found.new_weight:.2g}"
    rest = weight
    if hidden > 0:
        rest = _fitting(width - _LEFT, f"{hidden:,} smaller ones not shown; {weight}", f"{hidden:,} more; {weight}")
    return [scale, *drawn, Text(f"{' ' * _LEFT}{rest}"[:width], style="dim")]


def _fitting(width: int, words: str, shorter: str) -> str:
    """The words, or shorter ones where they do not fit."""
    return words if len(words) <= width else shorter


_END = {
    "pruned": "retired",
    "merged": "merged",
    "split": "split",
    "refined": "refined",
    "returned": "renamed",
    "unknown": "gone",
}


def _life(
    life: "Life", span: tuple[int, int], room: int, share: str, words: str | None, cluster_of: dict[int, int]
) -> "Text":
    """`id line share words`, in the colour of the cluster that the dashboard has on a dark page."""
    from rich.text import Text

    from shoal.plotting import colour_of

    style = colour_of(cluster_of.get(life.id, life.id), dark=True) if life.alive else "dim"
    shown = words or ""
    shown = shown if len(shown) < _LABEL else f"{shown[: _LABEL - 2]}…"
    cells = life_cells(life, *span, room)
    return Text.assemble((f"{life.id:>{_LEFT - 1}} ", "cyan"), (cells, style), f"{share:>{_RIGHT}} ", (shown, "dim"))


def life_cells(life: "Life", begin: int, end: int, width: int) -> str:
    """The life of a component in `width` characters for the points from `begin` to `end`.

    ● a birth, ┝ a birth of others, ▲ a return, ━ a life, ╳ a retirement, ┷ an end in another component.
    """
    cells = [" "] * width

    def column(at: int) -> int:
        return min(max(int(width * (at - begin) / max(end - begin, 1)), 0), width - 1)

    for number, segment in enumerate(life.segments):
        stop = end if segment.end is None else segment.end
        if stop < begin:
            continue
        first, past = column(segment.start), column(stop)
        for at in range(first, past + 1):
            cells[at] = "━" if life.alive or number < len(life.segments) - 1 else "─"
        if segment.start >= begin and segment.known:
            cells[first] = "▲" if number else "┝" if life.parents else "●"
        if segment.end is not None:
            cells[past] = "┷" if life.ended in ("merged", "split", "refined") else "╳"
    return "".join(cells)


def _event_words(event: "StreamEvent") -> str:
    at = "-" if event.points_seen is None else f"{event.points_seen:,}"
    parents, children = (",".join(map(str, ids)) or "-" for ids in (event.parents, event.children))
    change = f"{parents} → {children}" if event.parents or event.children else ""
    return "  ".join([f"{at:>12}", f"{event.kind:<{_EVENT}}", *filter(None, (change, event.reason))]).rstrip()


def _foot(scene: Scene, width: int) -> "Text":
    """What is wrong, or what the last refinement did."""
    from rich.text import Text

    if scene.away is not None:
        return Text(f"connection lost, trying again: {scene.away}"[:width], style="bold red")
    if not scene.refinements:
        return Text("")
    newest = scene.refinements[0]
    words = shorter = f"refinement ({newest.why}): {newest.state.replace('-', ' ')}"
    if newest.components_after is not None:
        words += f", {newest.components_before:,} components to {newest.components_after:,}"
        shorter += f", {newest.components_before:,} → {newest.components_after:,}"
    took = "" if newest.seconds is None else f", {newest.seconds:.1f} s"
    return Text(_fitting(width, f"last {words}{took}", f"{shorter}{took}")[:width])
