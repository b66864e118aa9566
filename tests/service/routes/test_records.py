"""Records over HTTP: a point under a key is found again, with the component that it belongs to."""

import io
import json
from itertools import product
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pytest

from harness.in_turn import in_turn

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])

JSON = {"Content-Type": "application/json"}


async def send(running: Any, points: Any, path: str = "/ingest", **fields: Any) -> Any:
    body = json.dumps({"points": np.asarray(points).tolist(), **fields}).encode()
    return await running.http.post(path, content=body, headers=JSON, params={"wait": "applied", "timeout": 30})


async def learnt(running: Any, points: Any, path: str = "/ingest", **fields: Any) -> dict[str, Any]:
    reply = await send(running, points, path, **fields)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def test_a_record_is_found_by_its_key_with_what_it_was_sent_with(running: Any, clusters: np.ndarray) -> None:
    keys = [f"host-{i}" for i in range(600)]
    payloads = [{"n": i} if i % 2 else None for i in range(600)]
    times = [1000.5 + i if i % 3 else None for i in range(600)]
    answer = await learnt(running, clusters, keys=keys, payloads=payloads, times=times)
    for i in (0, 299, 301, 599):
        record = await running.json(f"/records/host-{i}")
        assert set(record) == {
            "key", "component", "label", "assigned", "log_offset", "time", "payload", "novelty", "log_density",
            "resolved",
        }  # fmt: skip
        assert record["key"] == keys[i]
        assert record["component"] == record["assigned"] == answer["components"][i]
        assert record["log_offset"] == i + 1
        assert (record["time"], record["payload"]) == (times[i], payloads[i])
        assert record["resolved"] == "exact"
        assert 0.0 <= record["novelty"] <= 1.0
    assert (await running.json("/records/host-0"))["log_density"] is None
    assert (await running.json("/records/host-0"))["novelty"] == 1.0


@pytest.mark.parametrize("key", ["a/b/c", "a b", "ключ", "%", "?x=1#y", "..a", "lookup", "x" * 256, "🐟" * 64, "a\nb"])
@ON_MEMORY
async def test_a_key_may_be_any_text(running: Any, key: str) -> None:
    await learnt(running, [[1.0, 2.0]], keys=[key])
    assert (await running.json("/records/" + quote(key, safe="")))["key"] == key
    assert (await running.json("/streams/default/records/" + quote(key, safe="")))["key"] == key


async def test_an_unknown_key_is_a_problem_of_its_own(running: Any) -> None:
    await learnt(running, [[1.0, 2.0], [2.0, 3.0]], keys=["a", None])
    reply = await running.http.get("/records/b")
    assert (reply.status_code, reply.json()["type"]) == (404, "/problems/record-not-found")
    assert (await running.http.get("/streams/other/records/b")).json()["type"] == "/problems/unknown-stream"


async def test_a_stream_without_points_has_no_records(running: Any) -> None:
    assert (await running.http.get("/records/a")).json()["type"] == "/problems/record-not-found"
    assert (await running.http.delete("/records/a")).json()["type"] == "/problems/record-not-found"


async def test_a_known_key_moves_its_record_and_what_was_learnt_stays(running: Any, clusters: np.ndarray) -> None:
    first = await learnt(running, clusters, keys=[f"k{i}" for i in range(600)])
    again = await learnt(running, [clusters[1]], keys=["k0"], payloads=[{"moved": True}])
    record = await running.json("/records/k0")
    assert record["component"] == again["components"][0] == first["components"][1] != first["components"][0]
    assert record["log_offset"] == 601
    assert record["payload"] == {"moved": True}
    assert (await running.json("/components"))["points_seen"] == 601


async def test_the_last_of_equal_keys_in_a_batch_counts(running: Any) -> None:
    await learnt(running, [[1.0, 2.0], [2.0, 3.0]], keys=["a", "a"], payloads=[{"n": 1}, {"n": 2}])
    record = await running.json("/records/a")
    assert (record["log_offset"], record["payload"]) == (2, {"n": 2})


async def test_many_records_are_looked_up_in_the_order_of_the_keys(running: Any) -> None:
    await learnt(running, np.eye(4), keys=["a", "b", "c", "d"])
    reply = await running.http.post("/records/lookup", json={"keys": ["d", "nobody", "a"]})
    assert reply.status_code == 200, reply.text
    found = reply.json()["records"]
    assert [None if record is None else record["key"] for record in found] == ["d", None, "a"]
    assert found[0] == await running.json("/records/d")
    for body in ({"keys": []}, {"keys": [1]}, {"key": ["a"]}, []):
        assert (await running.http.post("/records/lookup", json=body)).status_code == 400


async def test_a_forgotten_record_is_gone_and_the_components_keep_what_they_learnt(running: Any) -> None:
    await learnt(running, np.eye(4), keys=["a", "b", "c", "d"], payloads=[{"secret": 1}] * 4)
    before = (await running.json("/components"))["components"]
    reply = await running.http.delete("/records/b")
    assert reply.status_code == 200, reply.text
    assert reply.json()["forgotten"] is True
    assert "stays" in reply.json()["detail"]
    assert (await running.http.get("/records/b")).status_code == 404
    assert (await running.http.delete("/records/b")).status_code == 404
    assert (await running.json("/records/a"))["payload"] == {"secret": 1}
    assert (await running.json("/components"))["components"] == before
    await learnt(running, [[1.0, 1.0, 1.0, 1.0]], keys=["b"])
    assert (await running.json("/records/b"))["log_offset"] == 5


TIMES = {
    "2026-01-31T12:00:00Z": "2026-01-31T12:00:00Z",
    "2026-01-31T12:00:00.25+02:00": "2026-01-31T10:00:00.250000Z",
    "1969-12-31T23:59:59Z": "1969-12-31T23:59:59Z",
}


@pytest.mark.parametrize("given", TIMES)
@ON_MEMORY
async def test_a_time_is_shown_as_it_was_sent_in_utc(running: Any, given: str) -> None:
    await learnt(running, np.eye(2), keys=["a", "b"], times=[given, 1.5])
    assert (await running.json("/records/a"))["time"] == TIMES[given]
    assert (await running.json("/records/b"))["time"] == 1.5


BAD: dict[str, tuple[dict[str, Any], int | None]] = {
    "too few keys": ({"keys": ["a"]}, 1),
    "too many keys": ({"keys": ["a", "b", "c"]}, 2),
    "a key that is no text": ({"keys": ["a", 7]}, 1),
    "an empty key": ({"keys": ["a", ""]}, 1),
    "a long key": ({"keys": ["x" * 257, "b"]}, 0),
    "keys that are no list": ({"keys": "ab"}, None),
    "a payload that is no object": ({"payloads": [{}, [1]]}, 1),
    "a long payload": ({"payloads": [{}, {"x": "y" * 4096}]}, 1),
    "a time that is no time": ({"times": [1.0, "yesterday"]}, 1),
    "a time without an offset": ({"times": ["2026-01-31T12:00:00", 1]}, 0),
    "a day that is not": ({"times": ["2026-02-30T12:00:00Z", 1]}, 0),
    "a time that is true": ({"times": [1, True]}, 1),
    "a weight of zero": ({"weights": [1, 0]}, 1),
    "a weight beyond a billion": ({"weights": [1, 2e9]}, 1),
}


@ON_MEMORY
@in_turn("case", BAD)
async def test_a_batch_with_a_bad_field_is_refused_whole_with_its_row(running: Any, case: str) -> None:
    fields, row = BAD[case]
    reply = await send(running, [[1.0, 2.0], [3.0, 4.0]], **fields)
    assert (reply.status_code, reply.json()["type"]) == (400, "/problems/record-field"), reply.text
    assert reply.json().get("row") == row
    assert (await running.json("/components"))["points_seen"] == 0


@ON_MEMORY
async def test_weights_of_one_are_accepted(running: Any) -> None:
    await learnt(running, [[1.0, 2.0], [3.0, 4.0]], weights=[1, None])


async def test_records_are_found_after_a_restart(start: Any, clusters: np.ndarray) -> None:
    keys = [f"k{i}" for i in range(600)]
    async with start() as running:
        for at in range(0, 600, 150):
            await learnt(running, clusters[at : at + 150], keys=keys[at : at + 150])
        await running.http.delete("/records/k7")
        before = [await running.json(f"/records/k{i}") for i in (0, 170, 599)]
    async with start() as running:
        params = {"min_offset": 600, "timeout": 60}
        assert [await running.json(f"/records/k{i}", **params) for i in (0, 170, 599)] == before
        assert (await running.http.get("/records/k7")).status_code == 404


async def pages(running: Any, path: str, **params: Any) -> list[dict[str, Any]]:
    found, cursor = [], None
    while True:
        page = await running.json(path, **params, **({} if cursor is None else {"cursor": cursor}))
        found += page["records"]
        cursor = page["next"]
        if cursor is None:
            return found
        assert page["records"]


async def test_the_records_of_a_component_come_in_pages_in_order(running: Any, clusters: np.ndarray) -> None:
    answers = []
    for at in range(0, 600, 100):
        keys = [f"k{i}" for i in range(at, at + 100)]
        answers.append(await learnt(running, clusters[at : at + 100], keys=keys, payloads=[{"i": k} for k in keys]))
    await learnt(running, clusters[1:2], keys=["k0"])
    await running.http.delete("/records/k3")
    live = [component["id"] for component in (await running.json("/components"))["components"]]
    everyone = (await running.http.post("/records/lookup", json={"keys": [f"k{i}" for i in range(600)]})).json()
    kept = [record for record in everyone["records"] if record is not None]
    assert len(kept) == 599
    for component, order in product(live, ("newest", "typical", "atypical")):
        expected = [record for record in kept if record["component"] == component]
        found = await pages(running, f"/components/{component}/records", order=order, limit=37)
        assert sorted(row["key"] for row in found) == sorted(record["key"] for record in expected)
        by_key = {record["key"]: record for record in expected}
        for row in found:
            assert row == {name: by_key[row["key"]][name] for name in row}
            assert set(row) == {"key", "log_offset", "time", "payload", "log_density"}
        known = [row["log_density"] for row in found if row["log_density"] is not None]
        ranks = [-row["log_offset"] for row in found] if order == "newest" else np.float32(known).tolist()
        ranks = [-rank for rank in ranks] if order == "typical" else ranks
        assert ranks == sorted(ranks)


@ON_MEMORY
async def test_a_cursor_of_another_order_is_refused(running: Any, clusters: np.ndarray) -> None:
    await learnt(running, clusters, keys=[f"k{i}" for i in range(600)])
    largest = (await running.json("/components", limit=1))["components"][0]["id"]
    path = f"/components/{largest}/records"
    lists: list[tuple[str, dict[str, str]]] = [(path, {"order": name}) for name in ("newest", "typical", "atypical")]
    lists += [("/records", {}), ("/components", {})]
    for mine in lists:
        cursor = (await running.json(mine[0], limit=1, **mine[1]))["next"]
        for other in lists:
            reply = await running.http.get(other[0], params={**other[1], "cursor": cursor, "limit": "1"})
            assert reply.status_code == (200 if other == mine else 400), (mine, other, reply.text)
            assert other == mine or "not of this list in this order" in reply.json()["detail"]


async def test_an_unknown_component_has_no_records_and_a_retired_one_none(running: Any, clusters: np.ndarray) -> None:
    await learnt(running, clusters, keys=[f"k{i}" for i in range(600)])
    assert (await running.http.get("/components/999/records")).json()["type"] == "/problems/unknown-component"
    assert (await running.http.get("/components/0/records", params={"order": "oldest"})).status_code == 400
    assert (await running.http.get("/components/0/records", params={"cursor": "x"})).status_code == 400


@ON_MEMORY
async def test_columns_of_arrow_that_the_query_names_make_records(running: Any, clusters: np.ndarray) -> None:
    names = ["x", "id", "y", "seen", "host"]
    seen = pa.array([1_769_860_800_000] * 600, pa.timestamp("ms"))
    columns = [clusters[:, 0], [f"k{i}" for i in range(600)], clusters[:, 1], seen, ["web"] * 600]
    file = io.BytesIO()
    batch = pa.record_batch([pa.array(column) for column in columns], names)
    with pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    query = {"wait": "applied", "timeout": 30, "key_column": "id", "time_column": "seen"}
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    url = "/streams/arrow/ingest"
    await running.http.put("/streams/arrow", json={"n_features": 2})
    reply = await running.http.post(url, content=file.getvalue(), headers=headers, params=query)
    assert (reply.status_code, reply.json()["type"]) == (400, "/problems/not-numeric"), "host is a feature then"
    query |= {"payload_columns": "host"}
    reply = await running.http.post(url, content=file.getvalue(), headers=headers, params=query)
    assert reply.status_code == 200, reply.text
    record = await running.json("/streams/arrow/records/k299")
    assert (record["time"], record["payload"]) == ("2026-01-31T12:00:00Z", {"host": "web"})
    assert record["component"] == reply.json()["components"][299]
    query |= {"time_column": "sen"}
    wrong = await running.http.post(url, content=file.getvalue(), headers=headers, params=query)
    assert wrong.status_code == 400
    known = "the columns are x, id, y, seen, host"
    assert f"there is no column 'sen'; did you mean 'seen'? {known}" in wrong.json()["detail"]


async def test_a_stream_that_is_to_keep_no_records_loses_those_it_has(running: Any, clusters: np.ndarray) -> None:
    await learnt(running, clusters[:20], keys=[f"k{i}" for i in range(20)])
    for most in (5, 0):
        reply = await running.http.put("/streams/default", json={"max_records": most})
        assert reply.status_code == 200
        await learnt(running, clusters[20:21])  # without a key
        kept = (await running.json("/records"))["records"]
        assert [record["key"] for record in kept] == [f"k{i}" for i in range(20 - most, 20)]
