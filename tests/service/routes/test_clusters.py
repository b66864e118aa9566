"""GET /clusters, and clusters in the answers about points."""

from typing import Any

import numpy as np
import pytest

from shoal import StreamingDPMixture
from shoal.estimators.stability import stability_of
from shoal.mixture import StreamSettings
from shoal_service.streams.clusters import ClusterChoice, cluster_ids_of

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["memory"])]


@pytest.fixture
def columns() -> np.ndarray:
    """Three columns of three normal clusters: three far, nine near."""
    rng = np.random.default_rng(7)
    z = rng.integers(9, size=1_200)
    return np.stack([60.0 * (z % 3), 9.0 * (z // 3)], axis=1) + rng.normal(size=(1_200, 2))


async def learn(running: Any, columns: np.ndarray) -> None:
    """Learn the columns by a stream whose family is given and whose fits are not searched, which takes longer."""
    await running.http.put("/streams/default", json={"n_features": 2, "family": "gaussian", "refinement": None})
    await running.learn(columns)


async def test_clusters_are_those_of_the_library(running: Any, columns: np.ndarray) -> None:
    await running.http.put("/streams/s", json={"n_features": 2, "family": "gaussian", "refinement": None})
    await running.learn(columns, "/streams/s/ingest")
    model = StreamingDPMixture(refinement=None).fit(columns)
    for params, found in (
        ({}, model.clusters()),
        ({"n": 3}, model.clusters(3)),
        ({"resolution": 0.01}, model.clusters(resolution=0.01)),
    ):
        answer = await running.json("/streams/s/clusters", **params)
        assert (answer["stream"], answer["points_seen"], answer["status"]) == ("s", 1_200, "live")
        assert answer["rule"] == found.rule
        rows = [(row["id"], tuple(row["components"])) for row in answer["clusters"]]
        assert rows == [(one.id, one.components) for one in found.clusters]
        assert [row["mass"] for row in answer["clusters"]] == pytest.approx([one.mass for one in found.clusters])
        assert sum(row["weight"] for row in answer["clusters"]) == pytest.approx(1_200 / 1_201)


async def test_one_cluster_has_the_moments_of_its_points(running: Any, columns: np.ndarray) -> None:
    await learn(running, columns)
    rows = (await running.json("/clusters", n=3))["clusters"]
    middles = []
    for row in rows:
        one = await running.json(f"/clusters/{row['id']}", n=3)
        assert {name: one[name] for name in row} == row
        middle = round(one["mean"][0] / 60.0)
        own = columns[np.abs(columns[:, 0] - 60.0 * middle) < 20.0]
        assert one["mean"] == pytest.approx(own.mean(axis=0), abs=0.1)
        assert one["variance"] == pytest.approx(own.var(axis=0), rel=0.1)
        middles.append(middle)
    assert sorted(middles) == [0, 1, 2]


async def test_points_have_clusters_when_asked(running: Any, columns: np.ndarray) -> None:
    await running.http.put("/streams/default", json={"n_features": 2, "family": "gaussian", "refinement": None})
    reply = await running.ingest(columns, wait="applied", timeout=60, level="cluster")
    assert reply.status_code == 200
    applied = reply.json()
    assert len(applied["components"]) == len(applied["clusters"]) == len(columns)
    by_component = {c: row["id"] for row in (await running.json("/clusters"))["clusters"] for c in row["components"]}
    live = [(c, g) for c, g in zip(applied["components"], applied["clusters"], strict=True) if c in by_component]
    assert len(live) > 1_000
    assert all(by_component[component] == cluster for component, cluster in live)
    x = ["0,0", "0,9", "0,18", "60,0"]
    for answer in (
        await running.json("/predict", x=x, level="cluster", n=3),
        (
            await running.http.post("/predict?level=cluster&n=3", json={"points": [[0, 0], [0, 9], [0, 18], [60, 0]]})
        ).json(),
    ):
        found = [row["cluster"] for row in answer["predictions"]]
        assert found[0] == found[1] == found[2] != found[3]
        assert len({row["component"] for row in answer["predictions"]}) == 4
    many = await running.http.post("/predict?level=cluster", json={"points": columns[:50].tolist()})
    assert [row["cluster"] for row in many.json()["predictions"]] == [
        by_component[row["component"]] for row in many.json()["predictions"]
    ]
    assert "cluster" not in (await running.json("/predict", x=x))["predictions"][0]


async def test_what_cannot_be_asked_is_refused(running: Any, columns: np.ndarray) -> None:
    await learn(running, columns)
    rows = (await running.json("/clusters", n=1))["clusters"]
    member = next(component for component in rows[0]["components"] if component != rows[0]["id"])
    for path, status, words in (
        ("/clusters?n=1000", 400, "at most"),
        ("/clusters?n=2&resolution=1", 400, "one of them"),
        ("/clusters?resolution=0", 400, "resolution"),
        ("/clusters?resolution=nan", 400, "finite"),
        ("/clusters/999", 404, "not live"),
        (f"/clusters/{member}?n=1", 404, f"belongs to cluster {rows[0]['id']}"),
        ("/predict?x=1,2&n=3", 400, "level=cluster"),
        ("/predict?x=1,2&level=group", 400, "level"),
    ):
        reply = await running.http.get(path)
        assert (reply.status_code, words in reply.json()["detail"]) == (status, True), reply.text
    reply = await running.ingest(columns[:1], level="cluster")
    assert reply.status_code == 400
    assert "wait=applied" in reply.json()["detail"]


async def test_a_stream_without_points_has_no_clusters(running: Any) -> None:
    answer = await running.json("/clusters")
    assert (answer["rule"], answer["clusters"], answer["status"]) == (None, [], "empty")
    assert (await running.http.get("/clusters/0")).status_code == 404


async def test_an_unchanged_answer_has_its_tag(running: Any, columns: np.ndarray) -> None:
    await learn(running, columns)
    tag = (await running.http.get("/clusters")).headers["ETag"]
    assert (await running.http.get("/clusters", headers={"If-None-Match": tag})).status_code == 304


async def test_a_retired_component_counts_as_what_has_its_points(running: Any, columns: np.ndarray) -> None:
    """The first clusters of a stream may be merged later; the ids that were told before still lead somewhere."""
    told = []
    for start in range(0, 1_200, 40):
        told += (await running.learn(columns[start : start + 40]))["components"]
    view = await running.service.streams.view("default", min_offset=None, timeout_s=1.0)
    live = set(view.snapshot.ids.tolist())
    found = cluster_ids_of(view, np.array(told), ClusterChoice())
    assert {one for one in found if one is not None} <= live
    for component, cluster in zip(told, found, strict=True):
        if component not in live:
            successors = view.snapshot.past(component)[0].successors
            assert (cluster is None) == (not successors)


async def test_stability_is_that_of_the_library_on_the_points_of_the_window(running: Any) -> None:
    rng = np.random.default_rng(3)
    centres = np.array([[0.0, 0.0], [25.0, 0.0], [0.0, 25.0], [25.0, 25.0]])
    x = centres[rng.integers(4, size=1_500)] + rng.normal(size=(1_500, 2))
    settings = {"n_features": 2, "family": "gaussian", "refinement": None, "warmup_points": 200, "window": 600}
    await running.http.put("/streams/s", json=settings)
    await running.learn(x, "/streams/s/ingest")
    assert (await running.json("/streams/s/clusters"))["stability"] is None
    found = (await running.json("/streams/s/clusters", stability="true", n=4))["stability"]
    expected = stability_of(StreamSettings(**settings), x[-600:], 4)
    assert found == {
        "agreement": expected.agreement,
        "component_agreement": expected.component_agreement,
        "n_clusters": list(expected.n_clusters),
        "n_points": 600,
    }
    assert found["agreement"] > 0.9


async def test_stability_without_a_window_or_with_few_points_is_refused(running: Any) -> None:
    await running.http.put("/streams/s", json={"n_features": 2, "family": "gaussian", "window": 0})
    await running.learn(np.random.default_rng(0).normal(size=(30, 2)), "/streams/s/ingest")
    reply = await running.http.get("/streams/s/clusters", params={"stability": "true"})
    assert (reply.status_code, reply.json()["type"]) == (409, "/problems/not-refinable")
    assert "set its window above 0" in reply.json()["detail"]
    await running.learn(np.random.default_rng(0).normal(size=(19, 2)))
    reply = await running.http.get("/clusters", params={"stability": "true"})
    assert (reply.status_code, reply.json()["type"]) == (409, "/problems/no-points")
