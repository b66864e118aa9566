"""Pages and single components, straight from a published view."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoal.errors import UnknownComponentError
from shoal.mixture import MixtureSnapshot, StreamSettings, empty_lineage, retire, snapshot_of
from shoal.sequential import assimilate_inplace, initial_state
from shoal_service.errors import NoPointsYetError
from shoal_service.streams import PublishedView, component_of, page_of, predictions_of
from shoal_service.streams.shared.view_codec import ViewEncoder, decode, head_from_bytes, head_to_bytes
from shoal_service.streams.view import ancestors_of
from shoal_service.wire import decode_cursor


def view_of(snapshot: MixtureSnapshot | None) -> PublishedView:
    points = 0 if snapshot is None else snapshot.points_seen
    return PublishedView("s", "i", 1, points, points, "live", snapshot)


@pytest.fixture
def snapshot() -> MixtureSnapshot:
    """Eight clusters far apart on a line, their masses set to be all equal."""
    prior = {"mean": [0.0], "mean_strength": 1e-7, "dof": 5.0, "scale": [[5.0]]}
    state = initial_state(StreamSettings.from_dict({"n_features": 1, "prior": prior}))
    state, _ = assimilate_inplace(state, np.arange(8.0)[:, None] * 1000)
    found = snapshot_of(state)
    assert found.n_components == 8
    return replace(found, masses=np.ones(8))


def test_components_of_equal_mass_are_paged_by_id(snapshot: MixtureSnapshot) -> None:
    seen: list[int] = []
    after = None
    for _ in range(3):
        page, cursor = page_of(view_of(snapshot), 3, after, covariance=False)
        seen += page.ids.tolist()
        after = decode_cursor(cursor) if cursor else None
    assert after is None
    assert seen == list(range(8))


def test_the_last_full_page_has_no_next(snapshot: MixtureSnapshot) -> None:
    assert page_of(view_of(snapshot), 8, None, covariance=False)[1] is None
    assert page_of(view_of(snapshot), 7, None, covariance=False)[1] is not None


def test_a_cursor_past_the_end_gives_an_empty_page(snapshot: MixtureSnapshot) -> None:
    page, cursor = page_of(view_of(snapshot), 3, (1.0, 7), covariance=True)
    assert len(page.ids) == 0
    assert cursor is None


def test_nothing_is_known_of_a_stream_without_points() -> None:
    page, cursor = page_of(view_of(None), 3, None, covariance=False)
    assert len(page.ids) == 0
    assert cursor is None
    with pytest.raises(UnknownComponentError):
        component_of(view_of(None), 0)
    with pytest.raises(NoPointsYetError):
        predictions_of(view_of(None), np.zeros((1, 2)))


def test_a_live_component_is_told_with_its_birth(snapshot: MixtureSnapshot) -> None:
    one: dict[str, Any] = component_of(view_of(snapshot), 3)
    assert one["live"] is True
    assert one["born_at"] == 4
    assert one["lineage"] == []


def test_ancestors_are_found_through_generations() -> None:
    """1 and 2 joined 3, which joined 4; 9 was pruned; 5 joined 6."""
    lineage = empty_lineage()
    for retired_at, (component, successors) in enumerate(
        [(1, (3,)), (9, ()), (2, (3,)), (5, (6,)), (3, (4,))], start=100
    ):
        one = np.array([component])
        lineage = retire(
            lineage,
            ids=one,
            born_at=one,
            last_seen_at=one,
            retired_at=retired_at,
            successors=[successors],
            stats=None,
            budget_bytes=1 << 20,
        )
    assert [row["id"] for row in ancestors_of(lineage, 4)] == [1, 2, 3]
    assert [row["id"] for row in ancestors_of(lineage, 3)] == [1, 2]
    assert ancestors_of(lineage, 6) == [{"id": 5, "born_at": 5, "retired_at": 103}]
    assert ancestors_of(lineage, 9) == []


def test_a_view_tells_other_processes_when_it_was_made(snapshot: MixtureSnapshot) -> None:
    """And one that an older process sent, which does not tell, can still be read."""
    view = view_of(snapshot)._replace(made_at=1_700_000_000.25, late_points=3, newest_time=12.5)
    head, blobs = ViewEncoder(epoch=1).encode(view, whole=True)
    sent = head_to_bytes(head)
    data = {blob.id: blob.data for blob in blobs}
    read, _ = decode(head_from_bytes(sent), data, None, "s", "i")
    assert read._replace(snapshot=None) == view._replace(snapshot=None)
    old, _ = decode(head_from_bytes(b",".join(sent.split(b",")[:-1]) + b"]"), data, None, "s", "i")
    assert old._replace(snapshot=None) == view._replace(snapshot=None, made_at=None)
