"""Refinements over one Redis: made by processes of their own, adopted by learners, followed through any API process."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.fleet import Fleet
from harness.library_replay import replayed
from harness.redis_server import running_redis
from harness.waiting import eventually
from harness.web import WEB
from shoal_service.client import Client, ShoalClientError, StreamEvent
from shoal_service.store import EntryKind
from shoal_service.store.redis import RedisStore

pytestmark = [pytest.mark.system, pytest.mark.redis]

SMALL = {"n_features": 2, "family": "gaussian", "warmup_points": 300, "window": 100_000}
STEP = 300


@pytest.fixture
def fleet_of(redis_binary: str, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Start fleets; all are ended with the test."""
    with running_redis(redis_binary, tmp_path) as server:
        fleets: list[Fleet] = []

        def start(**settings: Any) -> Fleet:
            fleets.append(Fleet(tmp_path, server, **settings))
            fleets[-1].start()
            return fleets[-1]

        yield start
        for fleet in fleets:
            fleet.close()


def grid(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 4.0 * np.array([[i, j] for i in range(3) for j in range(3)])
    return np.asarray(centres[rng.integers(9, size=n)] + rng.normal(size=(n, 2)))


def final_state(fleet: Fleet, total: int) -> bytes:
    url = f"{fleet.apis[0].url}/streams/s"
    for _ in range(2000):
        found = WEB.get(f"{url}/refinements").json()["refinements"]
        if found and not any(one["adopted"] is None for one in found):
            break
        time.sleep(0.2)
    else:
        raise TimeoutError(str(found))
    return WEB.get(f"{url}/snapshot", params={"min_offset": total, "timeout": 60}).content


def library_state(fleet: Fleet) -> tuple[bytes, int]:
    store = RedisStore(fleet.server.url)
    try:
        record = store.get_stream("s")
        entries = store.read("s", record.incarnation, 0, max_bytes=1 << 40)
        adoptions = sum(entry.kind is EntryKind.ADOPTION for entry in entries)
        return replayed(SMALL, entries, lambda key: store.get_blob("s", record.incarnation, key)), adoptions
    finally:
        store.close()


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_whoever_is_killed_the_state_is_that_of_the_log_and_every_event_is_told_once(
    fleet_of: Callable[..., Fleet], kills: int
) -> None:
    settings = {"checkpoint_interval_s": 1.0, "refine_attempts": 50, "refine_nice": 0}  # or other work would starve it
    fleet = fleet_of(apis=2, learners=2, refiners=2, **settings)
    rng = random.Random(kills)
    x = grid(300 * 4 * kills, seed=kills)
    told: list[list[StreamEvent]] = [[], []]

    def follow(api: int) -> None:
        with Client(fleet.apis[api].url, "s") as client:
            try:
                for event in client.events("0"):
                    told[api].append(event)
            except ShoalClientError:  # the end of the test
                return

    sent = 0
    with Client(fleet.apis[0].url, "s", deadline_s=240.0) as client:
        client.create_stream("s", **SMALL)
        client.ingest(x[:STEP])
        sent += STEP
        for api in range(2):
            threading.Thread(target=follow, args=(api,), daemon=True).start()
        for n in range(kills):
            while sent < len(x) * (n + 1) // kills:
                client.ingest(x[sent : sent + STEP])
                sent += STEP
            client.refine()
            time.sleep(rng.uniform(0.0, 1.0))
            victim = rng.choice([fleet.leader() or fleet.learners[0], *fleet.refiners])
            victim.kill()
            victim.launch()
    state = final_state(fleet, len(x))
    expected, adoptions = library_state(fleet)
    assert adoptions > 0
    assert state == expected
    assert [s.log.stem for s in fleet.services if s.process is None or s.process.poll() is not None] == [], "all run"
    for events in told:
        ids = [event.id for event in events if event.kind != "gap"]
        assert len(ids) == len(set(ids)), "an event was told twice"
        places = [tuple(map(int, place.split(".")[1:])) for place in ids]
        assert places == sorted(places)
    with Client(fleet.apis[1].url, "s") as client:
        live = {int(component.id) for component in client.components()}
    for events in told:
        eventually(lambda events=events: _alive(list(events)) in (None, live), "the events lead to other components")


def _alive(events: list[StreamEvent]) -> set[int] | None:
    """The components that events lead to. None where some events were left out."""
    if any(event.kind == "gap" for event in events):
        return None
    alive: set[int] = set()
    for event in events:
        alive = (alive - set(event.parents)) | set(event.children)
    return alive


def test_refiners_make_what_is_asked_for_and_learners_do_not(fleet_of: Callable[..., Fleet]) -> None:
    fleet = fleet_of(apis=1, learners=1, refiners=1, refine_nice=0)
    x = grid(2000, seed=1)
    with Client(fleet.apis[0].url, "s") as client:
        client.create_stream("s", **SMALL, refinement=None)
        client.ingest(x)
        client.wait(len(x))
        done = client.refinement(client.refine().id, wait=True, timeout_s=240.0)
    assert done.state == "adopted"
    made = "shoal_refinements_made_total 1.0"
    assert made in WEB.get(f"{fleet.refiners[0].url}/metrics").text
    assert "shoal_refinements_made_total" not in WEB.get(f"{fleet.learners[0].url}/metrics").text
    assert WEB.get(f"{fleet.refiners[0].url}/components").status_code == 404
