"""The setting `partitions` of a stream: shown, checked, changed while the stream goes on."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from harness.gradient_proportions import GradientProportions
from shoal.families import FAMILIES
from shoal.mixture import from_bytes
from shoal.partitions import assimilate_inplace

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["sqlite"])]


async def test_partitions_are_shown_checked_and_changed(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    own = GradientProportions.name
    monkeypatch.setitem(FAMILIES, own, GradientProportions)
    async with start() as running:
        made = await running.http.put("/streams/s", json={"n_features": 2, "partitions": 3})
        assert made.status_code == 201
        assert (await running.json("/streams/s"))["settings"]["partitions"] == 3
        changed = await running.http.put("/streams/s", json={"partitions": 2})
        assert changed.status_code == 200, changed.text
        assert (await running.json("/streams/s"))["settings"]["partitions"] == 2
        for wrong in ({"partitions": 0}, {"partitions": 2, "method": "sva"}, {"partitions": 2, "family": own}):
            refused = await running.http.put("/streams/t", json={"n_features": 2} | wrong)
            assert refused.status_code == 400, refused.text
            assert "partitions is" in refused.json()["detail"]


async def test_a_snapshot_from_the_middle_of_a_round_goes_on_in_a_stream_of_other_partitions(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the library goes on from it, with a round that begins at the first row after the restore."""
    monkeypatch.setattr("shoal.mixture.round.ROUND_ROWS", 1_024)
    rng = np.random.default_rng(1)
    x = 9.0 * rng.integers(4, size=(3_000, 1)) + rng.normal(size=(3_000, 2))
    given = {"n_features": 2, "family": "diagonal", "refinement": None, "window": 0}
    async with start() as running:
        for name, partitions, rows in (("from", 3, x[:1_700]), ("into", 5, x[:9])):
            await running.http.put(f"/streams/{name}", json={**given, "partitions": partitions})
            body = {"points": rows.tolist()}
            await running.http.post(f"/streams/{name}/ingest", json=body, params={"wait": "applied", "timeout": 60})
        asked = {"min_offset": 1_700, "timeout": 60}
        middle = (await running.http.get("/streams/from/snapshot", params=asked)).content
        kind = {"Content-Type": "application/octet-stream"}
        restored = await running.http.put("/streams/into/snapshot", content=middle, headers=kind)
        assert restored.status_code == 200, restored.text
        await running.http.post("/streams/into/ingest", json={"points": x[1_700:].tolist()})
        asked = {"min_offset": 9 + 1_300, "timeout": 60}
        found, _ = from_bytes((await running.http.get("/streams/into/snapshot", params=asked)).content)
    state, _ = from_bytes(middle)
    assert state.round is not None
    state, _ = assimilate_inplace(state._replace(round=None), x[1_700:])
    assert found.settings.partitions == 3
    assert found.round is not None
    assert found.points_seen == len(x)
    n = found.n_components
    for own, other in zip(found.stats, state.stats, strict=True):
        assert_array_equal(own[:n], other[:n])
