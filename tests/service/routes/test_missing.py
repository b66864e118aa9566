"""Points with missing values over HTTP: learned, scored and predicted, and the same after a restart."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])
SETTINGS = {"n_features": 3, "missing": "marginal", "warmup_points": 200}


def holed(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = 8.0 * np.eye(3)[rng.integers(3, size=n)] + rng.normal(size=(n, 3))
    holes = rng.random(x.shape) < 0.2
    holes[holes.all(axis=1), 0] = False
    return np.where(holes, np.nan, x)


def packed(x: np.ndarray) -> dict[str, Any]:
    body = {"d": 3, "t": "f8", "x": x.astype("<f8").tobytes()}
    return {"content": msgspec.msgpack.encode(body), "headers": {"Content-Type": "application/msgpack"}}


async def test_holes_are_learned_scored_and_predicted(start: Any) -> None:
    x = holed(600)
    async with start() as running:
        assert (await running.http.put("/streams/s", json=SETTINGS)).status_code in (200, 201)
        assert (await running.json("/streams/s"))["settings"]["missing"] == "marginal"
        params = {"wait": "applied", "timeout": 60}
        reply = await running.http.post("/streams/s/ingest", params=params, **packed(x[:400]))
        assert reply.status_code == 200, reply.text
        rows = [[None if np.isnan(v) else v for v in row] for row in x[400:].tolist()]
        body = {"points": rows, "keys": [f"k{i}" for i in range(200)]}
        reply = await running.http.post("/streams/s/ingest", params=params, json=body)
        assert reply.status_code == 200, reply.text
        told = reply.json()
        assert np.isfinite(told["log_density"]).all()
        components = (await running.json("/streams/s/components"))["components"]
        assert sum(one["mass"] for one in components) == pytest.approx(600)
        scores = (await running.http.post("/streams/s/score", **packed(x[:50]))).json()
        predicted = (await running.http.post("/streams/s/predict", **packed(x[:50]))).json()["predictions"]
        assert scores["components"] == [one["component"] for one in predicted]
        assert len(set(scores["components"])) >= 3
        for missing in ("", "nan", "null"):
            query = [",".join(missing if np.isnan(v) else repr(v) for v in row) for row in x[:50].tolist()]
            assert (await running.json("/streams/s/predict", x=query))["predictions"] == predicted
        record = await running.json("/streams/s/records/k7")
        assert record["component"] is not None
        before = (await running.json("/streams/s/components"))["components"]
    async with start() as running:
        again = (await running.json("/streams/s/components", min_offset=600, timeout=60))["components"]
        assert again == before


@ON_MEMORY
async def test_a_stream_that_does_not_take_them_names_row_and_feature(running: Any) -> None:
    await running.http.put("/streams/s", json={"n_features": 2})
    reply = await running.http.post("/streams/s/ingest", json={"points": [[1.0, 2.0], [3.0, None]]})
    assert (reply.status_code, reply.json()["row"]) == (400, 1)
    assert "row 1 holds null in column 1" in reply.json()["detail"]
    reply = await running.http.get("/streams/s/predict", params={"x": ["1,2", "3,nan"]})
    assert (reply.status_code, reply.json()["row"]) == (400, 1)
    body = json.dumps({"n_features": 2, "family": "multinomial", "missing": "marginal"})
    refused = await running.http.put("/streams/t", content=body, headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.json()["type"]) == (400, "/problems/setting")
    assert "cannot learn points with missing values" in refused.json()["detail"]
