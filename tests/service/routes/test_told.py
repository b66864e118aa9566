"""What the service tells of the scores of a stream: in /streams, /metrics and /events."""

import json
import time
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from shoal_service.routes import events

pytestmark = pytest.mark.anyio


async def test_the_score_of_a_stream_is_the_mean_of_what_its_answers_said(running: Any, clusters: np.ndarray) -> None:
    await running.http.put("/streams/s", json={"n_features": 2, "family": "gaussian", "refinement": None})
    assert (await running.json("/streams/s"))["predictive_score"] is None
    said: list[float | None] = []
    for part in np.split(np.tile(clusters, (3, 1)), [1, 200, 900]):
        said += (await running.learn(part, "/streams/s/ingest"))["log_density"]
    found = await running.json("/streams/s")
    known = [one for one in said if one is not None][-1_000:]
    assert found["predictive_score_points"] == len(known) == 1_000
    assert found["predictive_score"] == pytest.approx(np.mean(known), rel=1e-12)


async def test_the_age_of_the_snapshot_grows_until_something_is_learnt(
    running: Any, clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.http.put("/streams/s", json={"n_features": 2})
    await running.learn(clusters[:50], "/streams/s/ingest")
    now = time.time()
    monkeypatch.setattr("shoal_service.routes.streams.time.time", lambda: now + 90.0)
    (listed,) = (await running.json("/streams"))["streams"]
    shown = (await running.json("/streams/s"))["snapshot_age_s"]
    assert 90.0 <= shown < 90.0 + 60.0  # it was made within the last minute
    assert listed["snapshot_age_s"] == shown
    monkeypatch.undo()
    await running.learn(clusters[50:100], "/streams/s/ingest")
    assert (await running.json("/streams/s"))["snapshot_age_s"] < shown - 30.0


async def test_metrics_count_scores_in_buckets(start: Any, clusters: np.ndarray) -> None:
    async with start(role="all") as running:
        answers = [await running.learn(part) for part in np.split(clusters, [1, 200])]
        text = (await running.http.get("/metrics")).text
    samples = {
        (sample.name, sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("stream") == "default"
    }
    novelty = np.concatenate([answer["novelty"][::8] for answer in answers])
    densities = [one for answer in answers for one in answer["log_density"][::8] if one is not None]
    assert samples["shoal_point_novelty_count", None] == len(novelty)
    assert samples["shoal_point_novelty_bucket", "0.5"] == np.sum(novelty <= 0.5)
    assert samples["shoal_point_log_density_sum", None] == pytest.approx(sum(densities))
    for edge in ("-10.0", "-5.0", "0.0", "+Inf"):
        assert samples["shoal_point_log_density_bucket", edge] == sum(one <= float(edge) for one in densities), edge


async def test_a_drift_is_an_event_with_both_scores(running: Any) -> None:
    rng = np.random.default_rng(0)
    await running.http.put("/streams/s", json={"n_features": 2, "family": "gaussian", "refinement": None})
    x = rng.normal(size=(9_000, 2))
    x[6_000:] *= rng.uniform(1.0, 50.0, size=(3_000, 1))
    await running.learn(x, "/streams/s/ingest")
    tail = running.tails()["s"][1]
    await running.json("/streams/s/components", min_offset=tail, timeout=60)
    stream = await running.service.streams.get("s")
    (event,) = (one for one in stream.view_source.feed.all() if one.kind == "drift")
    block = events._event(stream, event, {}).decode()
    assert "\nevent: drift\n" in block
    drift = json.loads(block.partition("data: ")[2])
    assert drift["points_seen"] in (7_000, 8_000, 9_000)
    assert drift["before"] == pytest.approx(-1 - np.log(2 * np.pi), abs=0.2)
    assert drift["after"] < drift["before"] - 1.0
    assert (drift["parents"], drift["children"], drift["log_offset"]) == ([], [], 9_000)
