"""A cluster that leaves a stream of the service and returns: events, records, a restart and the setting."""

import json
from typing import Any

import numpy as np
import pytest

from shoal_service.routes import events
from shoal_service.wire.models import EventOut

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("store_kind", ["sqlite"])]
SETTINGS = {"n_features": 2, "family": "gaussian", "warmup_points": 200, "half_life": 200, "refinement": None}
CENTRES = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])


def drawn(n: int, which: list[int], seed: int) -> np.ndarray:
    """n points of the chosen clusters, in turn."""
    rng = np.random.default_rng(seed)
    return np.asarray(CENTRES[np.array(which)[np.arange(n) % len(which)]] + rng.normal(size=(n, 2)))


async def learn(running: Any, points: np.ndarray, prefix: str) -> dict[str, Any]:
    body = {"points": points.tolist(), "keys": [f"{prefix}{i}" for i in range(len(points))]}
    reply = await running.http.post("/streams/s/ingest", json=body, params={"wait": "applied", "timeout": 60})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def component_of(running: Any, key: str) -> tuple[int | None, str]:
    record = await running.json(f"/streams/s/records/{key}")
    return record["component"], record["resolved"]


def feed_of(running: Any) -> list[Any]:
    stream = next(stream for stream in running.service.streams.known.loaded if stream.name == "s")
    return list(stream.view_source.feed.all())


async def test_a_returned_cluster_tells_of_itself_and_its_records_follow(start: Any) -> None:
    async with start() as running:
        await running.http.put("/streams/s", json=SETTINGS)
        old = (await learn(running, drawn(600, [0, 1, 2], 1), "a"))["components"][-1]
        assert await component_of(running, "a599") == (old, "exact")
        await learn(running, drawn(1_200, [0, 1], 2), "b")
        assert (await component_of(running, "a599"))[0] is None
        last = [event for event in feed_of(running) if not event.kind.startswith("cluster-")][-1]
        assert (last.kind, last.data["parents"]) == ("pruned", [old])
        newborn = (await learn(running, drawn(30, [0, 1, 2], 3), "c"))["components"][-1]
        assert newborn != old
        incarnation = (await running.json("/streams/s"))["incarnation"]
    async with start() as running:  # what is archived outlives a restart
        await learn(running, drawn(300, [0, 1, 2], 4), "d")
        (event,) = [event for event in feed_of(running) if event.kind == "returned"]
        told = event.data
        assert (told["component"], told["was"], told["parents"], told["children"]) == (old, newborn, [newborn], [old])
        assert await component_of(running, "a599") == (old, "exact")
        assert await component_of(running, "c29") == (old, "inherited")
        assert await component_of(running, "d299") == (old, "exact")
        since = f"{incarnation}.{last.place.seq}.{last.place.nth}"
        moved = (await running.json("/streams/s/records", changed_since=since, limit=1000))["records"]
        assert {record["component"] for record in moved} == {old}
        assert {"a599", "c29"} <= {record["key"] for record in moved}
        stream = next(stream for stream in running.service.streams.known.loaded if stream.name == "s")
        data = events._event(stream, event, {}).decode().splitlines()[2].removeprefix("data: ")
        assert EventOut(**json.loads(data)).component == old
        assert json.loads(data)["was"] == newborn


async def test_none_returns_where_the_setting_is_zero(start: Any) -> None:
    async with start() as running:
        await running.http.put("/streams/s", json=SETTINGS | {"max_archived": 0})
        assert (await running.json("/streams/s"))["settings"]["max_archived"] == 0
        for seed, which in enumerate(([0, 1, 2], [0, 1], [0, 1, 2])):
            await learn(running, drawn(900, which, seed), f"{seed}-")
        assert all(event.kind != "returned" for event in feed_of(running))
