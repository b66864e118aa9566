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


async def test_missing_texts_and_numbers_of_mixed_columns(start: Any) -> None:
    """Features get their names from the family. All formats give the same, before and after a restart."""
    family = {"cpu": "gaussian", "errors": "poisson", "region": "categorical"}
    settings = {"family": family, "missing": "marginal", "warmup_points": 100}
    rng = np.random.default_rng(4)
    kinds = rng.integers(2, size=200)
    rows: list[list[Any]] = [
        [rng.normal(9.0 * k), int(rng.poisson(1 + 20 * k)), "eu" if k else "us"] for k in kinds.tolist()
    ]
    for i in range(0, 200, 5):
        rows[i][i // 5 % 3] = None
    async with start() as running:
        assert (await running.http.put("/streams/s", json=settings)).status_code == 201
        shown = (await running.json("/streams/s"))["settings"]
        assert (shown["feature_names"], shown["n_features"], shown["family"]) == ([*family], 3, family)
        wait = {"wait": "applied", "timeout": 60}
        reply = await running.http.post("/streams/s/ingest", params=wait, json={"points": rows})
        assert reply.status_code == 200, reply.text
        lines = "".join(json.dumps(dict(zip(family, row, strict=True))) + "\n" for row in rows)
        assert (await running.json("/streams/s"))["settings"]["level_names"] == {"2": ["eu", "us"]}
        components = (await running.json("/streams/s/components"))["components"]
        assert sum(one["mass"] for one in components) == pytest.approx(200)
        whole = (await running.http.post("/streams/s/score", json={"points": rows})).json()
        named = await running.http.post(
            "/streams/s/score", content=lines, headers={"Content-Type": "application/x-ndjson"}
        )
        assert named.json() == whole
        levels = {"eu": 0.0, "us": 1.0, None: np.nan}
        table = np.array([[*row[:2], levels[row[2]]] for row in rows], dtype="<f8")
        body = {"d": 3, "t": "f8", "x": table.tobytes(), "c": [[2, ["eu", "us"]]]}
        packed = {"content": msgspec.msgpack.encode(body), "headers": {"Content-Type": "application/msgpack"}}
        assert (await running.http.post("/streams/s/score", **packed)).json() == whole
        query = [",".join("" if value is None else str(value) for value in row) for row in rows[:9]]
        predicted = (await running.json("/streams/s/predict", x=query))["predictions"]
        assert [one["log_density"] for one in predicted] == pytest.approx(whole["log_density"][:9], rel=1e-12)
        plain = await running.http.put("/streams/t", json={"family": family})
        assert plain.status_code == 201
        reply = await running.http.post("/streams/t/ingest", json={"points": rows})
        assert (reply.status_code, reply.json()["row"]) == (400, 0)
    async with start() as running:
        again = (await running.json("/streams/s/components", min_offset=200, timeout=60))["components"]
        assert again == components


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
