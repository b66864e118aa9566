"""What the learner tells of the scores of a stream: in events, in the view, and the same after any restart."""

import random
from typing import Any

import numpy as np
import pytest

from shoal.mixture import StreamSettings
from shoal.sequential import assimilate_inplace, initial_state
from shoal_service.wire import Points

pytestmark = pytest.mark.anyio


def drifting() -> np.ndarray:
    """(20,000, 2) points of three clusters; in the second half one in three points is far from all of them."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [12.0, 0.0], [0.0, 12.0]])
    x = centres[rng.integers(3, size=20_000)] + rng.normal(size=(20_000, 2))
    away = np.flatnonzero(rng.random(10_000) < 1 / 3) + 10_000
    x[away] = rng.uniform(-500.0, 500.0, size=(len(away), 2))
    return x


async def told(registry: Any) -> list[tuple[Any, ...]]:
    stream = await registry.get("default")
    tail = await stream.tail()
    await stream.view(tail.log_offset, 30)
    kinds = ("drift", "novelty-rate")
    return [(*event.place, event.kind, event.data) for event in stream.view_source.feed.all() if event.kind in kinds]


async def test_a_change_is_told_once_and_a_replay_tells_the_same(running: Any) -> None:
    settings = {"n_features": 2, "family": "gaussian", "refinement": None, "novelty_rate": 0.005}
    running.begin(checkpoint_interval_s=3600)
    await running.registry.create("default", settings)
    x, rng = drifting(), random.Random(1)
    stops = sorted({*rng.sample(range(1, len(x)), 60), len(x)})
    for start, stop in zip([0, *stops], stops, strict=False):
        await running.registry.ingest("default", Points(x[start:stop]))
        if rng.random() < 0.1:
            running.drop()
            running.begin(checkpoint_interval_s=rng.choice([0.001, 3600]))
    found = await told(running.registry)
    assert [row[2] for row in found].count("drift") == 1
    assert {row[2] for row in found} == {"drift", "novelty-rate"}
    drift = next(row[3] for row in found if row[2] == "drift")
    assert 10_500 <= drift["offset"] <= 13_000
    assert drift["before"] > drift["after"] + 1.0
    rate = next(row[3] for row in found if row[2] == "novelty-rate")
    assert rate["before"] < 0.0025
    assert rate["after"] >= 0.005
    running.drop()
    running.begin()
    assert await told(running.registry) == found

    state, scores = initial_state(StreamSettings(**settings)), []
    for start, stop in zip([0, *stops], stops, strict=False):
        state, info = assimilate_inplace(state, x[start:stop])
        scores.append(info.scores.log_density)
    view = await running.registry.view("default", timeout_s=120)
    assert view.score.n_points == 1_000
    assert view.score.mean == pytest.approx(np.concatenate(scores)[-1_000:].mean(), rel=1e-12)
    running.close()


async def test_another_state_begins_its_scores_again(running: Any) -> None:
    running.begin()
    await running.registry.create("default", {"n_features": 2, "family": "gaussian", "refinement": None})
    x = drifting()[:3_000]
    await running.registry.ingest("default", Points(x))
    _, checkpoint = await running.registry.snapshot("default", min_offset=3_000, timeout_s=120)
    assert (await running.registry.view("default", timeout_s=120)).score.n_points == 1_000
    receipt = await running.registry.restore("default", checkpoint.blob)
    assert await running.registry.wait_until_visible(receipt, 120)
    assert (await running.registry.view("default", timeout_s=120)).score == (None, 0)
    running.close()
