"""Features with names: learnt from the first named points, checked by name, and columns put in order."""

import asyncio
import io
import json
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])
NDJSON = {"Content-Type": "application/x-ndjson"}
NAMES = ["cpu", "mem", "net"]


def three_groups(n: int = 60) -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.array([[0.0, 0.0, 0.0], [40.0, 0.0, 10.0], [0.0, 80.0, 20.0]])[np.arange(n) % 3] + rng.normal(size=(n, 3))


def body_of(kind: str, x: np.ndarray, names: list[str]) -> tuple[bytes, str]:
    """The points in a format that can hold names."""
    if kind == "json":
        return json.dumps({"feature_names": names, "points": x.tolist()}).encode(), "application/json"
    objects = [dict(zip(names, row, strict=True)) for row in x.tolist()]
    if kind == "json objects":
        return json.dumps({"points": objects}).encode(), "application/json"
    if kind == "ndjson objects":
        return "\n".join(map(json.dumps, objects)).encode(), "application/x-ndjson"
    if kind == "ndjson":
        lines = (json.dumps({"key": f"k{i}", "point": row}) for i, row in enumerate(objects))
        return "\n".join(lines).encode(), "application/x-ndjson"
    if kind == "msgpack":
        fields = {"d": x.shape[1], "t": "f8", "x": x.astype("<f8").tobytes(), "f": names}
        return msgspec.msgpack.encode(fields), "application/msgpack"
    pa = pytest.importorskip("pyarrow")
    batch = pa.record_batch([pa.array(column) for column in x.T], names)
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.schema) as stream:
        stream.write_batch(batch)
    return file.getvalue(), "application/vnd.apache.arrow.stream"


async def send(running: Any, path: str, kind: str, x: np.ndarray, names: list[str], **params: Any) -> httpx.Response:
    content, media_type = body_of(kind, x, names)
    return await running.http.post(path, content=content, headers={"Content-Type": media_type}, params=params)


def untold(components: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The components without their telling features, which have names here and numbers there."""
    return [{name: value for name, value in row.items() if name != "telling"} for row in components]


async def settings_of(running: Any, stream: str) -> dict[str, Any]:
    return dict((await running.json(f"/streams/{stream}"))["settings"])


@pytest.mark.parametrize("kind", ["json", "json objects", "ndjson", "ndjson objects", "msgpack", "arrow"])
@ON_MEMORY
async def test_names_are_learnt_and_reordered_columns_give_the_same_stream(running: Any, kind: str) -> None:
    x, order = three_groups(), [2, 0, 1]
    names = [NAMES[i] for i in order]
    wait = {"wait": "applied", "timeout": 30}
    await running.ingest(x[:30], "/streams/plain/ingest", create="true", **wait)
    await running.ingest(x[30:], "/streams/plain/ingest", **wait)
    first = await send(running, "/streams/named/ingest", kind, x[:30], NAMES, create="true", **wait)
    assert first.status_code == 200, first.text
    assert (await settings_of(running, "named"))["feature_names"] == NAMES
    second = await send(running, "/streams/named/ingest", kind, x[30:][:, order], names, **wait)
    assert second.status_code == 200, second.text
    plain, named = await running.json("/streams/plain/components"), await running.json("/streams/named/components")
    assert (plain["feature_names"], named["feature_names"]) == (None, NAMES)
    assert untold(named["components"]) == untold(plain["components"]), "the same points, to the last bit"
    one = await running.json(f"/streams/named/components/{named['components'][0]['id']}")
    assert one["feature_names"] == NAMES
    for path in ("predict", "score"):
        asked = await send(running, f"/streams/named/{path}", kind, x[:, order], names)
        expected = await running.ingest(x, f"/streams/plain/{path}")
        head = {"stream", "incarnation", "log_offset"}
        left, right = ({k: v for k, v in reply.json().items() if k not in head} for reply in (asked, expected))
        assert left == right


@pytest.mark.parametrize("kind", ["json", "ndjson", "msgpack", "arrow"])
@ON_MEMORY
async def test_unknown_and_missing_names_are_refused_by_name(running: Any, kind: str) -> None:
    await running.http.put("/streams/s", json={"feature_names": NAMES})
    for names, words in (
        (["cpu", "mme", "net"], ["no feature 'mem'", "unknown feature 'mme'", "did you mean 'mem'?"]),
        (["cpu", "net"], ["no feature 'mem'", "stream 's' has the features 'cpu', 'mem', 'net'"]),
        ([*NAMES, "disk"], ["the unknown feature 'disk'"]),
    ):
        for path in ("ingest", "predict", "score"):
            reply = await send(running, f"/streams/s/{path}", kind, np.ones((2, len(names))), names)
            problem = reply.json()
            assert (reply.status_code, problem["type"]) == (422, "/problems/feature-names"), reply.text
            assert reply.headers["content-type"] == "application/problem+json"
            assert all(word in problem["detail"] for word in words), problem["detail"]
    assert running.tails()["s"][1] == 0


@ON_MEMORY
async def test_a_row_with_other_names_than_the_first_is_named(running: Any) -> None:
    lines = [{"cpu": 1, "mem": 2}, {"mem": 3, "cpu": 4.5}, {"cpu": 5}]
    body = "\n".join(json.dumps({"point": point}) for point in lines)
    reply = await running.http.post("/ingest", content=body, headers=NDJSON)
    assert (reply.status_code, reply.json()["row"]) == (422, 2)
    assert "row 2 has no feature 'mem'" in reply.json()["detail"]
    good = "\n".join(json.dumps({"point": point}) for point in lines[:2])
    assert (await running.http.post("/ingest?wait=applied&timeout=60", content=good, headers=NDJSON)).status_code == 200
    await running.ingest([[1, 2], [4.5, 3]], "/streams/plain/ingest", create="true", wait="applied", timeout=60)
    found = [(await running.json(path))["components"] for path in ("/components", "/streams/plain/components")]
    assert untold(found[0]) == untold(found[1])
    for bad, kind, row in (
        ('{"point": {"cpu": "high", "mem": 1}}', "not-numeric", 0),
        ('{"point": {"cpu": 1, "mem": 1}}\n{"point": {"cpu": 1e999, "mem": 1}}', "not-finite", 1),
        ('{"point": {"cpu": 1, "mem": 1}}\n{"point": [1, 2]}', "record-field", 1),
        ('{"point": [1, 2]}\n{"point": {"cpu": 1, "mem": 1}}', "record-field", 1),
    ):
        reply = await running.http.post("/ingest", content=bad, headers=NDJSON)
        assert (reply.json()["type"], reply.json().get("row")) == (f"/problems/{kind}", row), reply.text


@ON_MEMORY
async def test_names_of_a_json_body_are_checked_themselves(running: Any) -> None:
    for names, words in (
        (["a"], "1 name for 2 columns"), (["a", "a"], "two columns have the name 'a'"), ("ab", "not a list of texts"),
        ([1, 2], "not a list of texts"), (["a", ""], "1 to 200 characters"), (["a", "b" * 201], "1 to 200 characters"),
    ):  # fmt: skip
        reply = await running.http.post("/ingest", json={"points": [[1.0, 2.0]], "feature_names": names})
        assert (reply.status_code, reply.json()["type"]) == (422, "/problems/feature-names"), reply.text
        assert words in reply.json()["detail"]
    assert running.tails() == {}


async def test_names_are_given_renamed_and_not_removed(running: Any) -> None:
    x = three_groups()
    await running.learn(x)
    put = running.http.put
    assert (await put("/streams/default", json={"feature_names": NAMES[:2]})).json()["type"] == "/problems/setting"
    assert (await put("/streams/default", json={"feature_names": ["a", "a", "b"]})).status_code == 400
    assert (await put("/streams/default", json={"feature_names": NAMES})).status_code == 200
    assert (await put("/streams/default", json={"feature_names": None})).status_code == 409
    renamed = ["load", "memory", "network"]
    assert (await put("/streams/default", json={"feature_names": renamed})).json()["settings"][
        "feature_names"
    ] == renamed
    offset = running.tails()["default"][1]
    for _ in range(200):
        found = await running.json("/components", min_offset=offset)
        if found["feature_names"] == renamed:
            break
        await asyncio.sleep(0.02)
    assert found["feature_names"] == renamed
    assert (await send(running, "/ingest", "json", x[:2], NAMES)).status_code == 422
    assert (await send(running, "/ingest", "json", x[:2][:, ::-1], renamed[::-1])).status_code == 202


@ON_MEMORY
async def test_a_refused_batch_leaves_no_names(running: Any) -> None:
    await running.http.put("/streams/s", json={"n_features": 3})
    assert (await send(running, "/streams/s/ingest", "json", np.ones((1, 2)), ["a", "b"])).status_code == 400
    assert (await settings_of(running, "s"))["feature_names"] is None


@ON_MEMORY
async def test_two_first_batches_at_once_agree_on_one_order(running: Any) -> None:
    await running.http.put("/streams/s", json={"n_features": 3})
    x, order = three_groups(), [2, 1, 0]
    replies = await asyncio.gather(
        *(send(running, "/streams/s/ingest", "json", x, NAMES) for _ in range(3)),
        *(send(running, "/streams/s/ingest", "json", x[:, order], NAMES[::-1]) for _ in range(3)),
    )
    assert {reply.status_code for reply in replies} == {202}
    names = (await settings_of(running, "s"))["feature_names"]
    offset = running.tails()["s"][1]
    found = await running.json("/streams/s/components", min_offset=offset, timeout=60)
    by_name = {
        tuple(round(dict(zip(names, c["mean"], strict=True))[name], -1) for name in NAMES) for c in found["components"]
    }
    assert by_name == {(0, 0, 0), (40, 0, 10), (0, 80, 20)}


@ON_MEMORY
async def test_names_go_with_a_snapshot(running: Any) -> None:
    await send(
        running, "/streams/from/ingest", "json", three_groups(), NAMES, create="true", wait="applied", timeout=60
    )
    blob = (await running.http.get("/streams/from/snapshot")).content
    kind = {"Content-Type": "application/octet-stream"}
    assert (await running.http.put("/streams/to/snapshot", content=blob, headers=kind)).status_code in (200, 202)
    assert (await settings_of(running, "to"))["feature_names"] == NAMES
    assert (await running.json("/streams/to/components"))["feature_names"] == NAMES


@ON_MEMORY
async def test_telling_features_are_named_and_the_same_in_both_answers(running: Any) -> None:
    await send(running, "/ingest", "json", three_groups(), NAMES, wait="applied", timeout=60)
    for row in (await running.json("/components"))["components"]:
        told = row["telling"]
        assert (await running.json(f"/components/{row['id']}"))["telling"] == told
        assert 1 <= len(told) <= 3
        assert all(set(one) == {"feature", "value", "rest"} for one in told)
        means = dict(zip(NAMES, row["mean"], strict=True))
        assert {one["feature"]: one["value"] for one in told} == {one["feature"]: means[one["feature"]] for one in told}
        if means["cpu"] > 20:
            assert told[0]["feature"] in ("cpu", "mem")
    await running.http.put("/streams/plain", json={"n_features": 3})
    await running.ingest(three_groups(), "/streams/plain/ingest", wait="applied", timeout=60)
    (first, *_) = (await running.json("/streams/plain/components"))["components"]
    assert {type(one["feature"]) for one in first["telling"]} == {int}


@ON_MEMORY
async def test_sparse_rows_are_put_in_order(running: Any) -> None:
    await running.http.put("/streams/c", json={"feature_names": NAMES, "family": "multinomial"})
    rows = [{"indices": [0, 2], "values": [1, 5]}, {"indices": [1], "values": [7]}]
    body = {"points": rows, "feature_names": ["net", "mem", "cpu"]}
    assert (await running.http.post("/streams/c/ingest?wait=applied&timeout=60", json=body)).status_code == 200
    dense = await running.ingest([[5, 0, 1], [0, 7, 0]], "/streams/c/predict")
    sparse = await running.http.post("/streams/c/predict", json=body)
    assert dense.json() == sparse.json()


@ON_MEMORY
async def test_names_that_columns_of_arrow_share_are_no_names(running: Any) -> None:
    assert (await send(running, "/ingest", "arrow", np.ones((2, 2)), ["a", "a"])).status_code == 202
    assert (await settings_of(running, "default"))["feature_names"] is None


@ON_MEMORY
@pytest.mark.parametrize(
    "kind", ["json", "json objects", "ndjson objects", "msgpack", "arrow", "arrays", "msgpack arrays"]
)
async def test_a_missing_value_is_refused_by_the_name_of_its_feature(running: Any, kind: str) -> None:
    await running.http.put("/streams/s", json={"n_features": 3, "feature_names": NAMES})
    x = three_groups(4)
    x[2, 1] = np.nan
    turned = (
        NAMES[::-1] if "arrays" not in kind else NAMES
    )  # a name of the body counts, not that of the stream's column
    if kind == "arrays":
        content, media_type = json.dumps({"points": x.tolist()}).encode(), "application/json"
    elif kind == "msgpack arrays":
        content = msgspec.msgpack.encode({"d": 3, "t": "f8", "x": x.astype("<f8").tobytes()})
        media_type = "application/msgpack"
    else:
        x[2] = [np.nan, 1.0, 1.0]
        content, media_type = body_of(kind, x, turned)
    for text in (content, content.replace(b"NaN", b"null")):
        reply = await running.http.post("/streams/s/ingest", content=text, headers={"Content-Type": media_type})
        assert reply.status_code == 400
        assert reply.json()["row"] == 2
        assert f"feature {(turned[0] if turned != NAMES else NAMES[1])!r}" in reply.json()["detail"]


@ON_MEMORY
async def test_a_large_body_is_refused_by_the_name_of_the_feature_too(running: Any) -> None:
    await running.http.put("/streams/s", json={"n_features": 3, "feature_names": NAMES})
    rows: list[list[float | None]] = three_groups(3_000).tolist()
    rows[2_999][2] = None
    reply = await running.http.post("/streams/s/ingest", json={"points": rows})
    assert (reply.status_code, reply.json()["row"]) == (400, 2_999)
    assert "feature 'net'" in reply.json()["detail"]
