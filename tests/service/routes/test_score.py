"""What is told of points as they are learnt, and of points that are not learnt."""

from typing import Any

import numpy as np
import pytest

from shoal.mixture import StreamSettings, snapshot_of
from shoal.sequential import assimilate_inplace, initial_state

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])


async def test_learning_tells_what_the_mixture_said_of_each_point_before(running: Any, clusters: np.ndarray) -> None:
    state = initial_state(StreamSettings(n_features=2))
    for part in np.split(clusters, [1, 300]):
        answer = await running.learn(part)
        state, info = assimilate_inplace(state, part)
        assert answer["components"] == info.labels.tolist()
        assert answer["novelty"] == info.scores.novelty.tolist()
        assert answer["log_density"] == [None if np.isnan(x) else x for x in info.scores.log_density.tolist()]
        assert answer["born"] == info.scores.born.tolist()
    born = [event for event in info.events if event.kind == "born"]
    far = await running.learn([[1000.0, 1000.0], clusters[0]])
    assert far["born"] == [True, False]
    assert far["novelty"][0] > 0.99 > 0.1 > far["novelty"][1]
    assert born is not None


async def test_a_score_is_a_prediction_and_changes_nothing(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    state, _ = assimilate_inplace(initial_state(StreamSettings(n_features=2)), clusters)
    points = [[0.0, 0.0], [20.0, 0.5], [1000.0, 1000.0]]
    before = await running.json("/components")
    reply = await running.http.post("/score", json={"points": points})
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    expected = snapshot_of(state).predict(points)
    assert answer["components"] == expected.component.tolist()
    np.testing.assert_allclose(answer["novelty"], expected.novelty, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(answer["log_density"], expected.log_density, rtol=1e-9)
    assert answer["born"] == [False, False, True]
    assert answer["log_offset"] == 600
    assert await running.json("/components") == before
    learnt = await running.learn([points[2]])
    assert (learnt["born"], learnt["novelty"]) == ([True], pytest.approx([answer["novelty"][2]]))


@ON_MEMORY
async def test_nothing_can_be_scored_before_the_first_point(running: Any) -> None:
    reply = await running.http.post("/score", json={"points": [[0.0]]})
    assert (reply.status_code, reply.json()["type"]) == (409, "/problems/no-points")
