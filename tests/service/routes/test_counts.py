"""Counts through the service: dense and sparse rows in, components and predictions out, what is no count refused."""

import json
import time
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]

JSON = {"Content-Type": "application/json"}
D = 12


def documents(n: int, seed: int = 0) -> np.ndarray:
    """Rows of three kinds in turn, each with its own four terms; the first is empty."""
    rng = np.random.default_rng(seed)
    x = rng.poisson(np.where(np.arange(D) % 3 == np.arange(n)[:, None] % 3, 3.0, 0.1))
    x[0] = 0
    return np.asarray(x)


def sparse(x: np.ndarray) -> list[dict[str, Any]]:
    return [{"indices": np.flatnonzero(row).tolist(), "values": row[row > 0].tolist()} for row in x]


async def create(running: Any, name: str, **settings: Any) -> Any:
    body = json.dumps({"n_features": D, "warmup_points": 60, **settings}).encode()
    return await running.http.put(f"/streams/{name}", content=body, headers=JSON)


async def send(running: Any, name: str, points: Any) -> Any:
    body = json.dumps({"points": points}).encode()
    reply = await running.http.post(f"/streams/{name}/ingest", content=body, headers=JSON)
    deadline = time.monotonic() + 300  # the first point of a family may wait for its kernel to be compiled
    while reply.status_code == 202 and time.monotonic() < deadline:
        params = {"min_offset": reply.json()["log_offset"], "timeout": 10}
        if (await running.http.get(f"/streams/{name}/components", params=params)).status_code == 200:
            break
    return reply


@pytest.mark.parametrize("family", ["multinomial", "bernoulli", "poisson"])
async def test_dense_and_sparse_rows_make_the_same_stream(running: Any, family: str) -> None:
    x = np.minimum(documents(150), 1) if family == "bernoulli" else documents(150)
    for name, first, second in (
        ("dense", x[:70].tolist(), x[70:].tolist()),
        ("sparse", sparse(x[:70]), sparse(x[70:])),
    ):
        assert (await create(running, name, family=family)).status_code == 201
        for points in (first, second):
            reply = await send(running, name, points)
            assert reply.status_code == 202, reply.text
    pages = [await running.json(f"/streams/{name}/components") for name in ("dense", "sparse")]
    assert pages[0]["components"] == pages[1]["components"]
    assert len(pages[0]["components"]) >= 3
    mean = np.array([component["mean"] for component in pages[0]["components"][:3]])
    if family == "multinomial":
        np.testing.assert_allclose(mean.sum(axis=1), 1.0)
    assert len({int(row.argmax()) % 3 for row in mean}) == 3
    body = json.dumps({"points": sparse(x[:5])}).encode()
    predicted = await running.http.post("/streams/sparse/predict", content=body, headers=JSON)
    assert predicted.status_code == 200, predicted.text
    assert all(row["log_density"] < 0 for row in predicted.json()["predictions"][1:])


@pytest.mark.parametrize(("family", "value"), [("multinomial", -1), ("poisson", 0.5), ("bernoulli", 2)])
async def test_what_is_no_count_is_refused_whole_with_its_row(running: Any, family: str, value: float) -> None:
    await create(running, "words", family=family)
    x = np.minimum(documents(5), 1).astype(float)
    x[3, 2] = value
    rows = [{"indices": [1], "values": [1]}] * 3 + [{"indices": [2], "values": [value]}]
    for points in (x.tolist(), rows):
        reply = await send(running, "words", points)
        assert reply.status_code == 400
        problem = reply.json()
        assert problem["type"].endswith("outside-domain")
        assert problem["row"] == 3
        assert "column 2" in problem["detail"]
        assert not problem["retryable"]
    assert (await running.json("/streams/words"))["log_offset"] == 0


async def test_gaussian_streams_refuse_sparse_rows(running: Any) -> None:
    await create(running, "real")
    reply = await send(running, "real", sparse(documents(3)))
    assert reply.status_code == 400
    assert "sparse" in reply.json()["detail"]


async def test_an_explicit_prior_of_counts(running: Any) -> None:
    reply = await create(running, "words", family="poisson", prior={"shape": [0.5] * D, "rate": [0.25] * D})
    assert reply.status_code == 201, reply.text
    reply = await send(running, "words", documents(60).tolist())
    assert reply.status_code == 202
    assert (await running.json("/streams/words"))["status"] == "live"


async def test_a_covariance_too_wide_to_show_is_not_shown(running: Any) -> None:
    body = json.dumps(
        {"n_features": 2_500, "family": "multinomial", "prior": {"pseudo_counts": [0.5] * 2_500}}
    ).encode()
    assert (await running.http.put("/streams/wide", content=body, headers=JSON)).status_code == 201
    reply = await send(running, "wide", [{"indices": [7], "values": [2]}])
    assert reply.status_code == 202, reply.text
    component = await running.json("/streams/wide/components/0")
    assert component["covariance"] is None
    assert len(component["mean"]) == 2_500
    refused = await running.http.get("/streams/wide/components", params={"fields": "covariance"})
    assert refused.status_code == 400
    assert refused.json()["type"].endswith("limit")
