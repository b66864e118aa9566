"""The moment of an event, from which the changes of records are listed."""

from types import SimpleNamespace
from typing import Any

import pytest

from shoal_service.streams.events import EventPlace
from shoal_service.streams.record_service import since_event


@pytest.mark.parametrize(("adopted_at", "points_seen"), [(25, 24), (26, 25)])
def test_what_a_refinement_retires_without_a_point_since_the_event_counts(adopted_at: int, points_seen: int) -> None:
    """A component that retired at 25 points retired after 24 of them. After 25, its records were not listed."""
    kinds = [("merged", 25), ("adopted", adopted_at)]
    events = [
        SimpleNamespace(place=EventPlace(seq, 0), kind=kind, data={"offset": offset})
        for seq, (kind, offset) in enumerate(kinds, start=3)
    ]
    feed = SimpleNamespace(all=lambda: events, begins=EventPlace(0, 0), end=EventPlace(4, 1))
    stream: Any = SimpleNamespace(name="s", view_source=SimpleNamespace(feed=feed))
    view: Any = SimpleNamespace(seq=4, points_seen=adopted_at)
    since = since_event(stream, EventPlace(3, 0), view)
    assert since is not None
    assert (since.points_seen, since.refined) == (points_seen, True)
