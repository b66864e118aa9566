"""GET and POST /predict: what the stream makes of points, without learning from them."""

import io
import json
from typing import Any

import msgspec
import numpy as np
import pytest

from harness.in_turn import in_turn
from shoal_service.routes import compute

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])


async def test_a_prediction_says_all_that_is_promised(running: Any, clusters: np.ndarray) -> None:
    ids = (await running.learn(clusters))["components"]
    answer = await running.json("/predict", x=["0,0", "20.5,-0.5", "500,500"])
    assert list(answer) == ["stream", "incarnation", "log_offset", "predictions"]
    assert answer["log_offset"] == 600
    first, second, novel = answer["predictions"]
    assert list(first) == ["component", "log_density", "novelty", "responsibilities"]
    assert first["component"] == ids[-3]
    assert second["component"] == ids[-2]
    for row in (first, second):
        assert row["novelty"] < 0.01
        assert row["responsibilities"][0]["id"] == row["component"]
        assert row["responsibilities"][0]["p"] + row["novelty"] == pytest.approx(1.0, abs=1e-3)
        assert -6 < row["log_density"] < 0
    assert novel["novelty"] > 0.5
    assert novel["component"] in ids, "the best existing one, never null"
    assert novel["log_density"] < first["log_density"]


async def test_predicting_changes_nothing(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    before, snapshot = running.tails(), (await running.http.get("/snapshot")).content
    for _ in range(3):
        await running.json("/predict", x="1,1")
        await running.http.post("/predict", json={"points": clusters.tolist()})
    assert running.tails() == before
    assert (await running.http.get("/snapshot")).content == snapshot


@ON_MEMORY
async def test_every_wire_format_gives_the_same_predictions(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    x = clusters[:7]
    npy = io.BytesIO()
    np.save(npy, x)
    bodies = {
        "application/json": json.dumps({"points": x.tolist()}).encode(),
        "application/msgpack": msgspec.msgpack.encode({"d": 2, "x": x.tobytes(), "t": "f8"}),
        "application/x-npy": npy.getvalue(),
    }
    query = [("x", ",".join(map(repr, row))) for row in x.tolist()]
    answers = [(await running.http.get("/predict", params=query)).json()]
    for kind, body in bodies.items():
        reply = await running.http.post("/predict", content=body, headers={"Content-Type": kind})
        answers.append(reply.json())
    assert all(answer == answers[0] for answer in answers)
    assert len(answers[0]["predictions"]) == 7


@ON_MEMORY
async def test_large_bodies_computed_in_a_thread_give_the_same(
    running: Any, clusters: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    await running.learn(clusters)
    body = {"points": clusters[:100].tolist()}
    inline = (await running.http.post("/predict", json=body)).json()
    monkeypatch.setattr(compute, "INLINE_COST", -1)
    assert (await running.http.post("/predict", json=body)).json() == inline


@ON_MEMORY
async def test_at_most_five_responsibilities_of_at_least_a_thousandth(running: Any) -> None:
    rng = np.random.default_rng(3)
    centres = np.array([[np.cos(a), np.sin(a)] for a in np.arange(8) * np.pi / 4]) * 12
    await running.http.put("/streams/default", json={"n_features": 2, "family": "gaussian", "refinement": None})
    await running.learn(centres[rng.integers(8, size=1600)] + rng.normal(size=(1600, 2)))
    predictions = (await running.json("/predict", x=["0,0", "12,0", "4,3"]))["predictions"]
    for row in predictions:
        p = [entry["p"] for entry in row["responsibilities"]]
        assert len(p) <= 5
        assert p == sorted(p, reverse=True)
        assert all(q >= 1e-3 for q in p)
        assert sum(p) + row["novelty"] <= 1 + 1e-9


async def test_predict_waits_for_an_offset(running: Any) -> None:
    receipt = (await running.ingest([[0.0, 0.0]])).json()
    answer = await running.json("/predict", x="0,0", min_offset=receipt["log_offset"])
    assert answer["log_offset"] == 1
    reply = await running.http.post("/predict", json={"points": [[0, 0]]}, params={"min_offset": 2})
    assert reply.json()["type"] == "/problems/offset-beyond-log"


@ON_MEMORY
@in_turn(
    ("query", "kind", "row"),
    [
        ([], "/problems/parameter", None),
        ([("x", "")], "/problems/not-numeric", 0),
        ([("x", "1,a")], "/problems/not-numeric", 0),
        ([("x", "1,2"), ("x", "true,1")], "/problems/not-numeric", 1),
        ([("x", "1,2"), ("x", "1")], "/problems/shape", 1),
        ([("x", "1,nan")], "/problems/not-finite", 0),
        ([("x", "1,1e400")], "/problems/not-finite", 0),
        ([("x", "1,2,3")], "/problems/shape", None),
        ([("x", "1,2")] * 101, "/problems/limit", None),
    ],
)
async def test_bad_points_in_a_query_are_problems(running: Any, query: Any, kind: str, row: int | None) -> None:
    await running.learn([[0.0, 0.0]])
    reply = await running.http.get("/predict", params=query)
    assert reply.status_code == 400
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.json()["type"], reply.json().get("row")) == (kind, row)


@ON_MEMORY
async def test_more_points_than_are_predicted_for_at_once_are_refused(start: Any) -> None:
    async with start(max_predict_rows=10) as running:
        await running.learn([[0.0, 0.0]])
        reply = await running.http.post("/predict", json={"points": [[0, 0]] * 11})
        assert reply.status_code == 400
        assert reply.json()["type"] == "/problems/limit"
        assert (await running.http.post("/predict", json={"points": [[0, 0]] * 10})).status_code == 200


@ON_MEMORY
async def test_the_hundred_points_of_a_query_are_all_answered(running: Any) -> None:
    await running.learn([[0.0, 0.0]])
    answer = await running.json("/predict", x=["0,0"] * 100)
    assert len(answer["predictions"]) == 100


@ON_MEMORY
async def test_both_paths_and_optional_parameters_give_the_same_answer(running: Any, clusters: np.ndarray) -> None:
    await running.learn(clusters)
    given = await running.json("/predict", x=["0,0", "1,2"])
    assert await running.json("/predict", x=["0,0", "1,2"], timeout=3) == given
    assert await running.json("/streams/default/predict", x=["0,0", "1,2"]) == given


@ON_MEMORY
async def test_a_question_without_a_point_or_with_a_bad_parameter_is_refused_as_ever(running: Any) -> None:
    for params in ({}, {"timeout": "never", "x": "0,0"}, {"min_offset": "-1", "x": "0,0"}):
        reply = await running.http.get("/predict", params=params)
        assert reply.status_code == 400, reply.text
        assert reply.headers["content-type"] == "application/problem+json"


async def test_a_stream_that_does_not_exist_is_named_before_a_fault_of_the_points(running: Any) -> None:
    refused = await running.http.get("/streams/nobody/predict", params={"x": "1,a"})
    assert refused.status_code == 404
    assert "'nobody'" in refused.json()["detail"]
