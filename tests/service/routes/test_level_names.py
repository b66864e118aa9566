"""Categories as texts: their levels get numbers in the order in which they come, and are told by their names."""

import asyncio
import io
import json
from typing import Any

import httpx
import numpy as np
import pytest

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]
NAMES = ["cpu", "region"]
REGIONS = ["eu-west", "us-east", "ap-south"]
SETTINGS = {"feature_names": NAMES, "family": {"cpu": "gaussian", "region": "categorical"}, "warmup_points": 40}


def rows(n: int = 60) -> list[list[Any]]:
    rng = np.random.default_rng(5)
    return [[20.0 * (i % 2) + float(rng.normal()), REGIONS[(i % 2) + (i % 4 == 3)]] for i in range(n)]


def body_of(kind: str, points: list[list[Any]]) -> tuple[bytes, str]:
    if kind == "json":
        return json.dumps({"points": points}).encode(), "application/json"
    if kind == "ndjson":
        return "\n".join(map(json.dumps, points)).encode(), "application/x-ndjson"
    if kind == "named":
        lines = ({"point": {"region": region, "cpu": cpu}} for cpu, region in points)
        return "\n".join(map(json.dumps, lines)).encode(), "application/x-ndjson"
    pa = pytest.importorskip("pyarrow")
    file = io.BytesIO()
    columns = [pa.array([region for _, region in points]), pa.array([cpu for cpu, _ in points])]
    batch = pa.record_batch(columns, NAMES[::-1])
    with pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch[:1])
        stream.write_batch(batch[1:])
    return file.getvalue(), "application/vnd.apache.arrow.stream"


async def post(running: Any, path: str, kind: str, points: list[list[Any]], **params: Any) -> httpx.Response:
    content, media_type = body_of(kind, points)
    return await running.http.post(path, content=content, headers={"Content-Type": media_type}, params=params)


async def learnt(running: Any, stream: str) -> list[dict[str, Any]]:
    answer = await running.json(f"/streams/{stream}/components", min_offset=60, timeout=30)
    return [{name: row[name] for name in ("id", "mass", "mean", "variance")} for row in answer["components"]]


@pytest.mark.parametrize("kind", ["json", "ndjson", "named", "arrow"])
async def test_texts_give_the_stream_of_their_level_numbers(running: Any, kind: str) -> None:
    numbers = [[cpu, float(list(dict.fromkeys(r for _, r in rows())).index(region))] for cpu, region in rows()]
    for name, sent in (("texts", rows()), ("numbers", numbers)):
        assert (await running.http.put(f"/streams/{name}", json=SETTINGS)).status_code == 201
        for part in (sent[:2], sent[2:]):  # the third region comes with the second batch
            answer = await post(running, f"/streams/{name}/ingest", kind if name == "texts" else "json", part)
            assert answer.status_code == 202, answer.text
    assert await learnt(running, "texts") == await learnt(running, "numbers")
    settings = (await running.json("/streams/texts"))["settings"]
    assert settings["level_names"] == {"1": REGIONS}
    told = (await running.json("/streams/texts/components"))["components"]
    assert "eu-west" in {feature.get("level") for row in told for feature in row["telling"]}
    shares = told[0]["levels"]["region"]
    assert set(shares) == set(REGIONS)
    assert 0.9 < sum(shares.values()) < 1.0, "the rest is of levels that nobody has seen"
    one = await running.json(f"/streams/texts/components/{told[0]['id']}")
    assert one["levels"] == told[0]["levels"]
    few = await running.json("/streams/texts/predict", x=["0.5,us-east", "0.5,moon"])
    many = await post(running, "/streams/texts/predict", "json", [[0.5, "us-east"], [0.5, "moon"]])
    assert few["predictions"] == many.json()["predictions"]
    asked = [
        await post(running, f"/streams/{name}/predict", "json", some)
        for name, some in (("texts", [*rows(4), [0.0, "moon"]]), ("numbers", [*numbers[:4], [0.0, 1_000.0]]))
    ]
    assert asked[0].json()["predictions"] == asked[1].json()["predictions"]
    assert (await running.json("/streams/texts"))["settings"]["level_names"] == {"1": REGIONS}


async def test_batches_at_once_name_each_level_once(running: Any) -> None:
    await running.http.put("/streams/many", json=SETTINGS)
    sent = [post(running, "/streams/many/ingest", "json", [[1.0, f"r{i % 4}"], [2.0, f"r{i}"]]) for i in range(70)]
    assert {answer.status_code for answer in await asyncio.gather(*sent)} == {202}
    named = (await running.json("/streams/many"))["settings"]["level_names"]["1"]
    assert sorted(named) == sorted(f"r{i}" for i in range(70))


async def test_what_is_refused_leaves_no_names(running: Any) -> None:
    await running.http.put("/streams/strict", json=SETTINGS)
    for points, words in (
        ([[0.5, "eu"], [0.5, 3.0]], "row 1 holds 3.0 in feature 'region', which holds texts too"),
        ([["fast", "eu"]], "column 'cpu', which is none of categories"),
        ([[0.5, "x" * 201]], "a text of 201 characters"),
        ([[0.5, "eu", 1.0]], "3 features"),
        ([[0.5, "eu", "west"]], "3 features"),
        ([["eu"]], "1 feature"),
    ):
        for path in ("ingest", "predict"):
            answer = await post(running, f"/streams/strict/{path}", "json", points)
            if path == "ingest" or "feature" in words:
                assert answer.status_code == 400, answer.text
                assert words in answer.json()["detail"]
    assert (await running.json("/streams/strict"))["settings"]["level_names"] is None
    await running.http.put("/streams/timed", json={**SETTINGS, "half_life": "1h"})
    early = {"points": [[0.5, "eu"]], "times": [4e9], "feature_names": NAMES}
    refused = await running.http.post("/streams/timed/ingest", json=early)
    assert "in the future" in refused.json()["detail"]
    assert (await running.json("/streams/timed"))["settings"]["level_names"] is None
    await running.http.put("/streams/plain", json={"n_features": 2})
    refused = await post(running, "/streams/plain/ingest", "json", [[0.5, "eu"]])
    assert "not a number" in refused.json()["detail"]


async def test_names_of_levels_can_be_added_and_not_changed(running: Any) -> None:
    given = {**SETTINGS, "level_names": {"region": ["us-east"]}}
    assert (await running.http.put("/streams/given", json=given)).status_code == 201
    assert (await post(running, "/streams/given/ingest", "json", rows(4))).status_code == 202
    names = (await running.json("/streams/given"))["settings"]["level_names"]["1"]
    assert names[0] == "us-east"
    more = await running.http.put("/streams/given", json={"level_names": {"region": [*names, "sa-east"]}})
    assert more.status_code == 200, more.text
    for other in ({"region": names[::-1]}, {"region": names[:1]}, None):
        refused = await running.http.put("/streams/given", json={"level_names": other})
        assert refused.status_code == 409, refused.text
