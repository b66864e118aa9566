"""What a picture is drawn from: the newest points as they were sent, and the mixture in a plane."""

import json
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from harness.in_turn import in_turn
from shoal.mixture import from_bytes
from shoal_service.streams import recent_points
from shoal_service.wire import models

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])


async def batches(running: Any, clusters: np.ndarray, *sizes: int) -> None:
    """Learn the first points, in batches of these sizes."""
    for part in np.split(clusters[: sum(sizes)], np.cumsum(sizes)[:-1]):
        await running.learn(part)


async def test_a_sample_is_the_end_of_what_was_sent(running: Any, clusters: np.ndarray) -> None:
    await batches(running, clusters, 100, 1, 1, 1, 97, 200, 1, 199)
    for n in (1, 7, 150, 600, 20_000):
        found = await running.json("/sample", n=n)
        models.SampleOut.model_validate(found)
        expected = clusters[-n:]
        assert found["points"] == expected.tolist()
        assert found["log_offsets"] == list(range(601 - len(expected), 601))
        assert found["keys"] == [None] * len(expected)
        scores = (await running.http.post("/score", json={"points": expected.tolist()})).json()
        assert found["components"] == scores["components"]
        assert_allclose(found["novelty"], scores["novelty"], rtol=1e-9, atol=1e-300)


async def test_a_sample_continues_after_an_offset(running: Any, clusters: np.ndarray) -> None:
    await batches(running, clusters, 300, 200, 100)
    assert (await running.json("/sample", after=550))["points"] == clusters[550:].tolist()
    assert (await running.json("/sample", after=550, n=3))["points"] == clusters[597:].tolist()
    assert (await running.json("/sample", after=600))["points"] == []


async def test_an_empty_stream_has_an_empty_sample_and_no_plane(running: Any) -> None:
    assert (await running.json("/sample"))["points"] == []
    answer = (await running.http.post("/projection")).json()
    models.ProjectionOut.model_validate(answer)
    assert (answer["components"], answer["points"], answer["status"]) == (None, None, "empty")


@ON_MEMORY
async def test_a_key_is_shown_only_on_the_point_that_is_its_record(running: Any) -> None:
    points = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
    body = {"points": points, "keys": ["first", "again", None, "gone"]}
    assert (await running.http.post("/ingest?wait=applied&timeout=60", json=body)).status_code == 200
    body = {"points": [[9.0, 9.0]], "keys": ["again"]}
    assert (await running.http.post("/ingest?wait=applied&timeout=60", json=body)).status_code == 200
    assert (await running.http.delete("/records/gone")).status_code == 200
    assert (await running.json("/sample"))["keys"] == ["first", None, None, None, "again"]


@ON_MEMORY
async def test_points_of_a_dead_letter_are_not_shown(
    running: Any, clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    await batches(running, clusters, 300, 100, 200)
    monkeypatch.setattr(running.store, "dead_letter_reasons", lambda name, incarnation: {2: "cannot be learnt"})
    assert (await running.json("/sample"))["points"] == [*clusters[:300].tolist(), *clusters[400:].tolist()]


@ON_MEMORY
async def test_a_sample_ends_where_the_log_begins(
    running: Any, clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    await batches(running, clusters, 300, 100, 200)
    tail = running.store.tail
    monkeypatch.setattr(running.store, "tail", lambda *key: tail(*key)._replace(first_seq=2))
    assert (await running.json("/sample"))["points"] == clusters[300:].tolist()


async def test_points_of_a_restored_window_are_shown(running: Any, clusters: np.ndarray) -> None:
    settings = {"n_features": 2, "family": "gaussian", "warmup_points": 100, "refinement": None, "window": 400}
    await running.http.put("/streams/one", json=settings)
    for part in np.split(clusters, 6):
        await running.learn(part, "/streams/one/ingest")
    saved = (await running.http.get("/streams/one/snapshot?window=true")).content
    _, window = from_bytes(saved)
    kind = {"Content-Type": "application/octet-stream"}
    assert (await running.http.put("/streams/two/snapshot", content=saved, headers=kind)).status_code == 200
    await running.learn(clusters[:1], "/streams/two/ingest")
    found = await running.json("/streams/two/sample", n=20_000)
    assert window is not None
    assert found["points"] == [*window.tolist(), clusters[0].tolist()]
    assert found["log_offsets"] == [*[0] * len(window), 1]


@ON_MEMORY
async def test_sparse_points_come_back_as_they_were_sent(running: Any) -> None:
    await running.http.put("/streams/words", json={"n_features": 4, "family": "multinomial"})
    rows = [{"indices": [0, 2], "values": [3.0, 1.0]}, {"indices": [1], "values": [5.0]}]
    await running.http.post("/streams/words/ingest?wait=applied&timeout=60", json={"points": rows})
    found = await running.json("/streams/words/sample")
    assert found["points"] == rows
    answer = (await running.http.post("/streams/words/projection", json={"n": 10})).json()
    models.ProjectionOut.model_validate(answer)
    listed = (await running.json("/streams/words/components"))["components"]
    assert (answer["axes"], answer["points"]) == (None, None)
    assert answer["components"]["ids"] == [one["id"] for one in listed]
    assert answer["components"]["x"] == [None] * len(listed)


@ON_MEMORY
async def test_a_large_state_gets_fewer_points(
    running: Any, clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.learn(clusters)
    monkeypatch.setattr(recent_points, "MOST_NUMBERS", 400)
    assert len((await running.json("/sample", n=600))["points"]) == 200


async def test_a_projection_shows_components_and_points_in_its_plane(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    second = (await running.json("/components"))["components"][1]["id"]
    await running.http.patch(f"/components/{second}", json={"label": "the far one"})
    answer = (await running.http.post("/projection", json={"features": [1, 0], "n": 50})).json()
    models.ProjectionOut.model_validate(answer)
    listed = (await running.json("/components", fields="covariance"))["components"]
    shown = answer["components"]
    assert shown["ids"] == [one["id"] for one in listed]
    assert shown["label"] == [None, "the far one", *[None] * (len(listed) - 2)]
    for name, values in {
        "weight": [one["weight"] for one in listed],
        "x": [one["mean"][1] for one in listed],
        "y": [one["mean"][0] for one in listed],
        "xx": [one["variance"][1] for one in listed],
        "yy": [one["variance"][0] for one in listed],
        "xy": [one["covariance"][0][1] for one in listed],
    }.items():
        assert_allclose(shown[name], values, rtol=1e-9, atol=1e-12, err_msg=name)
    assert answer["points"]["x"] == clusters[-50:, 1].tolist()
    assert answer["points"]["log_offsets"] == list(range(551, 601))


@ON_MEMORY
async def test_a_plane_that_is_sent_back_stays_the_same(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters[:300])
    first = (await running.http.post("/projection")).json()
    await running.learn(clusters[300:] + 5.0)
    frozen = {"origin": first["origin"], "axes": first["axes"], "n": 5}
    second = (await running.http.post("/projection", json=frozen)).json()
    assert (second["origin"], second["axes"]) == (first["origin"], first["axes"])
    expected = (clusters[-5:] + 5.0 - np.array(first["origin"])) @ np.array(first["axes"]).T
    assert_allclose(np.column_stack([second["points"]["x"], second["points"]["y"]]), expected, rtol=1e-9)
    assert (await running.http.post("/projection")).json()["axes"] != first["axes"]


@ON_MEMORY
@in_turn(
    ("body", "status", "kind", "words"),
    [
        ({"features": [0, 2]}, 400, "setting", "feature 2 does not exist"),
        ({"origin": [0.0], "axes": [[1.0], [0.0]]}, 400, "shape", "send two axes of 2"),
        ({"axes": [[1.0, 0.0]]}, 400, "parameter", "axes"),
        ({"n": 20_001}, 400, "parameter", "n is"),
        ({"colour": 1}, 400, "parameter", "colour"),
    ],
)
async def test_a_plane_that_cannot_be_is_refused(
    running: Any, clusters: np.ndarray, body: dict[str, Any], status: int, kind: str, words: str
) -> None:
    if not running.tails():
        await running.learn(clusters)
    reply = await running.http.post("/projection", json=body)
    assert (reply.status_code, reply.json()["type"]) == (status, f"/problems/{kind}"), reply.text
    assert words in json.dumps(reply.json())
