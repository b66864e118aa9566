"""The setting `partitions` of a stream: shown, checked, changed while the stream goes on."""

from typing import Any

import pytest

from harness.gradient_proportions import GradientProportions
from shoal.families import FAMILIES

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
