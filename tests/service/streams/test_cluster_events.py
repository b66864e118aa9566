"""Changes of clusters as events: who follows them knows the clusters, and a replay tells the same."""

import random
from typing import Any

import numpy as np
import pytest

from shoal import StreamingDPMixture
from shoal_service.streams import ClusterChoice, clusters_of
from shoal_service.streams.monitor.clusters import LONGEST_STEP, KnownClusters, check_clusters, next_check
from shoal_service.wire import Points

pytestmark = pytest.mark.anyio


def points() -> np.ndarray:
    """(8,192, 2) points: three groups, later a fourth and a bridge between the first two."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0], [30.0, 30.0]])
    x = centres[rng.integers(3, size=8_192)] + rng.normal(size=(8_192, 2))
    late = np.arange(2_048, 8_192)
    fourth = late[rng.random(len(late)) < 0.2]
    x[fourth] = centres[3] + rng.normal(size=(len(fourth), 2))
    bridge = late[rng.random(len(late)) < 0.4]
    x[bridge, 0], x[bridge, 1] = rng.uniform(0.0, 30.0, size=len(bridge)), rng.normal(size=len(bridge))
    return x


async def told(registry: Any) -> list[tuple[Any, ...]]:
    stream = await registry.get("default")
    await stream.view((await stream.tail()).log_offset, 30)
    return [
        (*event.place, event.kind, event.data)
        for event in stream.view_source.feed.all()
        if event.kind.startswith("cluster-")
    ]


def after(events: list[tuple[Any, ...]]) -> set[int]:
    """The clusters that are left, from the events alone."""
    left: set[int] = set()
    for _, _, kind, data in events:
        parents, children = set(data["parents"]), set(data["children"])
        assert parents <= left, kind
        assert not children & (left - parents), kind
        sizes = {"born": (0, 1), "gone": (1, 0), "renamed": (1, 1)}
        name = kind.removeprefix("cluster-")
        assert (len(parents), len(children)) == sizes.get(name, (len(parents), len(children)))
        assert name != "merged" or (len(parents) > 1 and len(children) == 1)
        assert name != "split" or (len(parents) == 1 and len(children) > 1)
        left = left - parents | children
    return left


async def test_events_of_clusters_lead_to_the_clusters_of_the_view(running: Any) -> None:
    running.begin(checkpoint_interval_s=3600)
    await running.registry.create("default", {"n_features": 2, "family": "gaussian", "refinement": None})
    x, rng, seen = points(), random.Random(1), []
    for start, stop in [(0, 700), (700, 1_024), (1_024, 2_048), (2_048, 4_096), (4_096, 5_000), (5_000, 8_192)]:
        await running.registry.ingest("default", Points(x[start:stop]))
        events = await told(running.registry)
        if stop in (1_024, 2_048, 4_096, 8_192):
            view = await running.registry.view("default", min_offset=stop, timeout_s=120)
            found = {one["id"] for one in clusters_of(view, ClusterChoice())["clusters"]}
            assert after(events) == found
            seen.append(found)
        else:
            assert not events or events[-1][3]["offset"] < stop, "not due"
        if rng.random() < 0.5:
            running.drop()
            running.begin(checkpoint_interval_s=rng.choice([0.001, 3600]))
    assert len({frozenset(one) for one in seen}) > 1, "the clusters have changed"
    running.drop()
    running.begin()
    assert await told(running.registry) == events
    running.close()


def test_looks_fall_at_doubling_offsets_and_then_regularly() -> None:
    offsets, at = [], 0
    while at < 3 * LONGEST_STEP:
        at = next_check(at)
        offsets.append(at)
    assert offsets == [1_024 << i for i in range(7)] + [2 * LONGEST_STEP, 3 * LONGEST_STEP]


def test_the_same_components_in_other_clusters_are_told_at_the_next_offset() -> None:
    x = np.random.default_rng(0).normal(size=(1_100, 2)) + 30.0 * np.repeat(
        [[0.0], [1.0], [2.0]], [400, 400, 300], axis=0
    )
    model = StreamingDPMixture(refinement=None).fit(x)
    state, ids = model._fitted.state, model.component_ids_
    one_cluster = KnownClusters(ids, np.full(len(ids), ids[0]), due=len(x))
    _, found = check_clusters(one_cluster, state, at_once=False)
    children = sorted(cluster.id for cluster in model.clusters().clusters)
    assert found == [("cluster-split", {"offset": len(x), "parents": [ids[0]], "children": children})]
    assert check_clusters(one_cluster._replace(due=2_048), state, at_once=True)[1] == [], "a refinement changed no ids"
