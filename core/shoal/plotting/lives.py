"""Lives of components: from the events of a stream to segments, joins and lanes. Nothing is drawn here.

The same rules as those of the dashboard. Events are those of `StreamingDPMixture.events_`, or of a service's feed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

_GAP = 0.004
"""Share of the whole range that is free between two lives in one lane."""

MARKS = ("adopted", "drift", "novelty-rate", "rescaled", "restored", "capacity", "prior")
"""Kinds of events that are moments of the whole stream."""


class Segment(NamedTuple):
    """A time in which a component lived."""

    start: int
    """Points of the stream at its beginning."""
    end: int | None
    """At its end; None while it lives."""
    known: bool
    """Whether it began there. Otherwise it began earlier, before the first known event."""


class Join(NamedTuple):
    """Mass that went from one component to another."""

    at: int
    source: int
    target: int
    kind: str
    """Kind of the event, for example `merged` or `split`."""


class Mark(NamedTuple):
    """A moment of the whole stream."""

    at: int
    kind: str


@dataclass
class Life:
    """The life of one component."""

    id: int
    segments: list[Segment]
    """Ascending. A component that returned has several."""
    parents: tuple[int, ...] = ()
    """Components that it came from at its birth."""
    ended: str | None = None
    """Kind of the event that ended it; `unknown` where no event tells of it; None while it lives."""
    lane: int = 0
    """Number of its line in a picture, from 0."""

    @property
    def alive(self) -> bool:
        """Whether it lives at the end of the events."""
        return self.segments[-1].end is None


@dataclass
class Lives:
    """The lives of all components that events and the components of today name."""

    first: int
    """Offset of the earliest birth."""
    last: int
    """Number of points seen at the end."""
    lives: dict[int, Life] = field(default_factory=dict)
    joins: list[Join] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    lanes: int = 0
    """Number of lanes in use."""


def lives_of(events: Iterable[Any], born_at: Mapping[int, int] | None = None, points_seen: int | None = None) -> Lives:
    """The lives that events, oldest first, and the living components name.

    An event is an object or a mapping with `kind`, `parents`, `children` and `offset`, which a service's feed calls
    `points_seen`. `born_at`: of each living id the points at its birth; None where it is not known which live.
    `points_seen`: at the end; None: those of the last event.
    """
    told = [_told(event) for event in events]
    last = points_seen if points_seen is not None else max((at for at, *_ in told), default=0)
    found = Lives(first=last, last=last)
    born = {int(one): int(at) for one, at in (born_at or {}).items()}
    begins = told[0][0] if told else 0
    for at, kind, parents, children in told:
        if kind in MARKS:
            found.marks.append(Mark(at, kind))
        if not kind.startswith("cluster-") and (parents or children):  # the ids of the former are of clusters
            _happen(found, at, kind, parents, children, born, begins)
    for one, at in born.items():
        if one not in found.lives:
            found.lives[one] = Life(one, [Segment(at, None, True)])
        elif not found.lives[one].alive:
            _begin(found.lives[one], at)
    if born_at is not None:
        for life in found.lives.values():
            _close_unknown(life, born, last)
    found.first = min([last, *(life.segments[0].start for life in found.lives.values())])
    found.joins = list(dict.fromkeys(found.joins))  # one that replaces another is told of from both sides
    _lay_out(found)
    return found


def _told(event: Any) -> tuple[int, str, tuple[int, ...], tuple[int, ...]]:
    def read(name: str) -> Any:
        return event.get(name) if isinstance(event, Mapping) else getattr(event, name, None)

    at = read("offset")
    at = read("points_seen") if at is None else at
    parents, children = (tuple(int(one) for one in read(name) or ()) for name in ("parents", "children"))
    return int(at or 0), str(read("kind")), parents, children


def _happen(
    found: Lives,
    at: int,
    kind: str,
    parents: Sequence[int],
    children: Sequence[int],
    born: Mapping[int, int],
    begins: int,
) -> None:
    for one in parents:
        if one not in found.lives:
            found.lives[one] = Life(one, [Segment(born.get(one, begins), None, one in born)])
    for one in children:
        if one in parents:
            continue
        life = found.lives.get(one)
        if life is None:
            found.lives[one] = Life(one, [Segment(at, None, True)], tuple(parents))
        elif not life.alive:
            _begin(life, at)
        if parents:
            found.joins.append(Join(at, parents[0], one, kind))
    for one in parents:
        if one in children:
            continue
        life = found.lives[one]
        life.segments[-1] = life.segments[-1]._replace(end=at)
        life.ended = kind
        if children:
            found.joins.append(Join(at, one, children[0], kind))


def _begin(life: Life, at: int) -> None:
    life.segments.append(Segment(at, None, True))
    life.ended = None


def _close_unknown(life: Life, born: Mapping[int, int], last: int) -> None:
    """End a life that the components of today do not have, and of whose end no event tells."""
    if life.alive and life.id not in born and life.segments[-1].start < last:
        life.segments[-1] = life.segments[-1]._replace(end=last)
        life.ended = "unknown"


def _lay_out(found: Lives) -> None:
    """Give each life a lane: the free one nearest to its parent, else a new one."""
    gap = _GAP * max(found.last - found.first, 1)
    free: list[float] = []  # where each lane is free
    for life in sorted(found.lives.values(), key=lambda life: (life.segments[0].start, life.id)):
        start = life.segments[0].start
        parent = found.lives.get(life.parents[0]) if life.parents else None
        near = len(free) if parent is None else parent.lane
        usable = [lane for lane, at in enumerate(free) if at + gap < start]
        if usable:
            life.lane = min(usable, key=lambda lane: (abs(lane - near), lane))
        else:
            life.lane = len(free)
            free.append(0.0)
        end = life.segments[-1].end
        free[life.lane] = math.inf if end is None else end
    found.lanes = len(free)
