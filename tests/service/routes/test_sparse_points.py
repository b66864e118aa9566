"""Sparse rows over HTTP: to a stream of counts, and to those that cannot take them."""

import itertools
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.sparse import csr_array

from shoal_service.wire import from_log

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
MSGPACK = {"Content-Type": "application/msgpack"}
D = 30


def documents(n: int) -> csr_array:
    """(n, 30) counts of two kinds of documents in turn, with hardly a word in common."""
    rng = np.random.default_rng(7)
    rate = np.where(np.arange(D) < 15, 1.2, 0.02)
    return csr_array(np.stack([rng.poisson(rate if i % 2 else rate[::-1]) for i in range(n)]).astype(float))


def rows_of(m: csr_array) -> list[dict[str, Any]]:
    bounds = itertools.pairwise(m.indptr)
    return [{"indices": m.indices[a:b].tolist(), "values": m.data[a:b].tolist()} for a, b in bounds]


def bodies(m: csr_array) -> list[tuple[bytes, dict[str, str]]]:
    rows = rows_of(m)
    fields = {"d": m.shape[1], "indptr": m.indptr.astype("<i8").tobytes(), "values": m.data.astype("<f8").tobytes()}
    return [
        (json.dumps({"points": rows}).encode(), JSON),
        ("\n".join(map(json.dumps, rows)).encode(), NDJSON),
        (msgspec.msgpack.encode(fields | {"indices": m.indices.astype("<i4").tobytes()}), MSGPACK),
    ]


@ON_MEMORY
async def test_every_format_gives_the_log_the_same_rows(running: Any) -> None:
    m = documents(20)
    made = await running.http.put("/streams/words", json={"n_features": D, "family": "multinomial"})
    assert made.status_code == 201, made.text
    for content, headers in bodies(m):
        reply = await running.http.post("/streams/words/ingest", content=content, headers=headers)
        assert reply.status_code == 202, reply.text
    (record,) = running.store.list_streams()
    entries = running.store.read(record.name, record.incarnation, 0, max_bytes=1 << 20)
    assert len(entries) == 3
    assert len({bytes(entry.payload) for entry in entries}) == 1
    assert (from_log(entries[0].payload) != m).nnz == 0


async def test_sparse_rows_with_weights_are_learnt(running: Any) -> None:
    await running.http.put("/streams/words", json={"n_features": D, "family": "multinomial"})
    body = {"points": rows_of(documents(50)), "weights": [2.0] * 50}
    reply = await running.http.post("/streams/words/ingest?wait=applied&timeout=60", json=body)
    assert reply.status_code == 200, reply.text
    components = (await running.json("/streams/words/components"))["components"]
    assert sum(one["mass"] for one in components) == pytest.approx(100.0)


async def test_sparse_and_dense_rows_are_learnt_and_predicted_alike(running: Any) -> None:
    m = documents(400)
    for name in ("sparse", "dense"):
        await running.http.put(f"/streams/{name}", json={"n_features": D, "family": "multinomial"})
    (content, headers), *_ = bodies(m)
    await running.learn(m.toarray(), "/streams/dense/ingest")
    reply = await running.http.post(
        "/streams/sparse/ingest", content=content, headers=headers, params={"wait": "applied", "timeout": 30}
    )
    assert reply.status_code == 200, reply.text
    ids = reply.json()["components"]
    assert len(set(ids[200::2])) == len(set(ids[201::2])) == 1
    assert ids[200] != ids[201]
    dense, sparse = [(await running.json(f"/streams/{name}/components"))["components"] for name in ("dense", "sparse")]
    assert dense == sparse
    answers = []
    for body, kind in [*bodies(m[:50]), (json.dumps({"points": m[:50].toarray().tolist()}).encode(), JSON)]:
        answer = await running.http.post("/streams/sparse/predict", content=body, headers=kind)
        assert answer.status_code == 200, answer.text
        answers.append(answer.json()["predictions"])
    assert answers[0] == answers[1] == answers[2] == answers[3]


@ON_MEMORY
async def test_the_default_stream_is_not_made_by_sparse_rows(running: Any) -> None:
    for content, headers in bodies(documents(2)):
        reply = await running.http.post("/ingest", content=content, headers=headers)
        assert (reply.status_code, reply.json()["type"]) == (400, "/problems/shape")
        assert "PUT" in reply.json()["detail"]
    assert running.tails() == {}
    await running.http.put("/streams/default", json={"n_features": D, "family": "poisson"})
    for content, headers in bodies(documents(2)):
        assert (await running.http.post("/ingest", content=content, headers=headers)).status_code == 202


@pytest.mark.parametrize("path", ["ingest", "predict"])
@ON_MEMORY
async def test_dense_families_refuse_sparse_rows_by_name(running: Any, path: str) -> None:
    await running.learn(documents(40).toarray())
    before = running.tails()
    for content, headers in bodies(documents(2)):
        reply = await running.http.post(f"/{path}", content=content, headers=headers)
        assert (reply.status_code, reply.json()["type"]) == (400, "/problems/shape"), reply.text
        assert "sparse" in reply.json()["detail"]
    assert running.tails() == before


@pytest.mark.parametrize(("family", "row", "column"), [("multinomial", [0, -1], 1), ("bernoulli", [2, 0], 0)])
@ON_MEMORY
async def test_what_is_no_count_is_refused_at_the_door(
    running: Any, family: str, row: list[float], column: int
) -> None:
    await running.http.put("/streams/c", json={"n_features": 2, "family": family})
    for points in ([[1, 1], row], [{"indices": [0, 1], "values": [1, 1]}, {"indices": [0, 1], "values": row}]):
        body = json.dumps({"points": points})
        reply = await running.http.post("/streams/c/ingest", content=body, headers=JSON)
        problem = reply.json()
        assert (reply.status_code, problem["type"], problem["row"]) == (400, "/problems/outside-domain", 1)
        assert f"column {column}" in problem["detail"]
    assert running.tails() == {"c": (0, 0)}
