"""API processes and learners over one Redis, killed at random moments: what was acknowledged is there once, and the
state is that of the log, to the bit.
"""

import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from harness.fleet import Fleet
from harness.redis_server import running_redis
from harness.running_service import RunningService
from harness.waiting import LONGEST_WAIT_S, eventually
from harness.web import WEB
from shoal.mixture import StreamSettings, to_bytes
from shoal.sequential import assimilate_inplace, initial_state
from shoal_service.store import Entry, EntryKind
from shoal_service.store.redis import RedisStore
from shoal_service.wire import from_log

pytestmark = [pytest.mark.system, pytest.mark.redis]

N_FEATURES = 3
SETTINGS = {"n_features": N_FEATURES, "family": "gaussian", "warmup_points": 300}
ALONE = StreamSettings(n_features=N_FEATURES, warmup_points=300, refinement=None)
"""Nothing but what clients send is in the log: refinements come when they come."""

Open = Callable[..., Any]


@pytest.fixture
def fleet_of(redis_binary: str, tmp_path: Path) -> Iterator[Open]:
    """Start fleets; all are ended with the test."""
    with running_redis(redis_binary, tmp_path) as server:
        fleets: list[Fleet] = []

        def start(apis: int, learners: int, **settings: object) -> Fleet:
            fleets.append(Fleet(tmp_path, server, apis, learners, **settings))
            fleets[-1].start()
            return fleets[-1]

        yield start
        for fleet in fleets:
            fleet.close()


def batches(n: int, seed: int) -> list[list[list[float]]]:
    """Batches of uneven size from five clusters; no two points are alike."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=6.0, size=(5, N_FEATURES))
    sizes = rng.integers(1, 80, size=n)
    return [(centres[rng.integers(5, size=k)] + rng.normal(size=(k, N_FEATURES))).tolist() for k in sizes]


def insist(urls: list[str], method: str, path: str, rng: random.Random, **request: Any) -> httpx.Response:
    """Ask one process or another until one answers other than "not now", as a client with retries does."""
    until = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < until:
        try:
            reply = WEB.request(method, rng.choice(urls) + path, **request)
        except httpx.TransportError:
            time.sleep(0.02)
            continue
        if reply.status_code < 400 or not reply.json()["retryable"]:
            return reply
        time.sleep(0.05)
    raise TimeoutError(f"{method} {path} was not answered")


def send_all(
    fleet: Fleet,
    work: list[list[list[float]]],
    part: range | None = None,
    clients: int = 1,
    pause_s: float = 0.0,
    offsets: dict[int, int] | None = None,
) -> dict[int, int]:
    """Send the batches (of a part) from several clients; the log offset that each was acknowledged with (`offsets`)."""
    part = range(len(work)) if part is None else part
    urls, failures = [api.url for api in fleet.apis], []
    offsets = {} if offsets is None else offsets

    def client(mine: range) -> None:
        rng = random.Random(mine.start)
        try:
            for n in mine:
                time.sleep(rng.uniform(0, 2 * pause_s))
                reply = insist(
                    urls, "POST", "/ingest", rng, json={"points": work[n]}, headers={"Idempotency-Key": f"batch-{n}"}
                )
                assert reply.status_code == 202, reply.text
                offsets[n] = int(reply.json()["log_offset"])
        except Exception as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    threads = [threading.Thread(target=client, args=(part[n::clients],)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return offsets


@contextmanager
def storm(fleet: Fleet, seed: int, kills: int, sent: Callable[[], float]) -> Iterator[Counter[str]]:
    """While the block runs, kill -9 one process after another, and start it again without waiting for it.

    The kills are spread over the work, of which `sent` gives the part that is done, at random moments. So each falls
    into a stream that moves, however fast the machine is, and some fall on processes that are just starting.
    """
    rng, over, killed, failures = random.Random(seed), threading.Event(), Counter[str](), []
    kinds = [kind for _ in range(kills) for kind in rng.sample(["redis", "learner", "api"], 3)][:kills]
    moments = sorted(rng.uniform(0.02, 0.9) for _ in range(kills))

    def strike(kind: str) -> None:
        if kind == "redis":
            fleet.server.kill()
            time.sleep(rng.uniform(0, 0.3))
            fleet.server.start()
            return
        service = (fleet.leader() or rng.choice(fleet.learners)) if kind == "learner" else rng.choice(fleet.apis)
        service.kill()
        service.launch()

    def run() -> None:
        try:
            for kind, moment in zip(kinds, moments, strict=True):
                while sent() < moment:
                    if over.wait(0.005):
                        return
                strike(kind)
                killed[kind] += 1
        except Exception as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
    if failures:
        raise failures[0]


@contextmanager
def store_of(fleet: Fleet) -> Iterator[RedisStore]:
    """A look past the service."""
    store = RedisStore(fleet.server.url)
    try:
        yield store
    finally:
        store.close()


def create(fleet: Fleet) -> None:
    """The stream `default`, of the settings `ALONE`."""
    with store_of(fleet) as store:
        store.create_stream("default", str(uuid.uuid4()), ALONE.to_json().encode(), max_streams=9)


def log_of(fleet: Fleet, name: str = "default") -> list[Entry]:
    """Every entry, read by the store itself."""
    with store_of(fleet) as store:
        record = store.get_stream(name)
        return store.read(name, record.incarnation, 0, max_bytes=1 << 40)


def replayed(entries: list[Entry]) -> bytes:
    """The state that the library alone gives for these entries, without a stop."""
    state = initial_state(ALONE)
    for entry in entries:
        assert entry.kind is EntryKind.BATCH
        state, _ = assimilate_inplace(state, from_log(entry.payload))
    return to_bytes(state)


def check_whole(fleet: Fleet, work: list[list[list[float]]], offsets: dict[int, int]) -> None:
    """Every acknowledged batch is in the log once, where it was said to be, and the service's state is the log's."""
    total = sum(map(len, work))
    entries = log_of(fleet)
    held = {entry.log_offset: np.asarray(from_log(entry.payload)).tolist() for entry in entries}
    assert len(held) == len(entries) == len(work)
    assert {n: held[offset] for n, offset in offsets.items()} == dict(enumerate(work))
    expected = replayed(entries)
    rng = random.Random(0)
    for api in fleet.apis:
        view = insist([api.url], "GET", f"/components?min_offset={total}&timeout=60", rng).json()
        assert (view["log_offset"], view["points_seen"]) == (total, total)
        found = insist([api.url], "GET", f"/snapshot?min_offset={total}&timeout=60", rng)
        assert found.content == expected


def weather(fleet: Fleet, work: list[list[list[float]]], seed: int, kills: int) -> Counter[str]:
    create(fleet)
    offsets: dict[int, int] = {}
    with storm(fleet, seed, kills, lambda: len(offsets) / len(work)) as killed:
        send_all(fleet, work, clients=3, pause_s=0.05, offsets=offsets)
    check_whole(fleet, work, offsets)
    assert [s.log.stem for s in fleet.services if s.process is None or s.process.poll() is not None] == [], "all run"
    return killed


def test_kills_of_learners_apis_and_redis_lose_nothing_and_double_nothing(fleet_of: Open) -> None:
    fleet = fleet_of(apis=2, learners=2, checkpoint_interval_s=0.5)
    killed = weather(fleet, batches(160, seed=1), seed=5, kills=6)
    assert killed == {"redis": 2, "learner": 2, "api": 2}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_many_kills_of_learners_apis_and_redis(fleet_of: Open, seed: int) -> None:
    fleet = fleet_of(apis=2, learners=2, checkpoint_interval_s=0.5)
    killed = weather(fleet, batches(2_400, seed), seed=100 + seed, kills=60)
    assert killed == {"redis": 20, "learner": 20, "api": 20}


def until_leader_is(fleet: Fleet, wanted: RunningService | None, but: RunningService | None = None) -> RunningService:
    """Wait for a leader: the one wanted, or any but one."""
    until = time.monotonic() + LONGEST_WAIT_S
    while time.monotonic() < until:
        leader = fleet.leader()
        if leader is not None and leader is not but and wanted in (None, leader):
            return leader
        time.sleep(0.02)
    raise TimeoutError("nobody took the lead")


def test_a_learner_held_up_past_its_lease_is_refused_and_stands_by_again(fleet_of: Open) -> None:
    fleet = fleet_of(apis=1, learners=2, checkpoint_interval_s=0.3)
    rng, work = random.Random(1), batches(60, seed=2)
    urls = [fleet.apis[0].url]
    create(fleet)
    offsets = send_all(fleet, work, range(20))
    first = until_leader_is(fleet, None)
    assert first.process is not None
    first.process.send_signal(signal.SIGSTOP)
    try:
        second = until_leader_is(fleet, None, but=first)
        offsets |= send_all(fleet, work, range(20, 40))
        insist(urls, "GET", f"/components?min_offset={offsets[39]}&timeout=30", rng)
    finally:
        first.process.send_signal(signal.SIGCONT)
    eventually(lambda: "stepping_down" in first.tail() or "learner_superseded" in first.tail(), "it did not notice")
    offsets |= send_all(fleet, work, range(40, 60))
    assert until_leader_is(fleet, second) is second, "it was not disturbed"
    eventually(lambda: first.answers("/readyz"), "who stepped down is well, and stands by")
    second.kill()
    assert until_leader_is(fleet, None, but=second) is first
    check_whole(fleet, work, offsets)
    assert "Traceback" not in first.tail()


def test_what_one_process_changes_the_others_see(fleet_of: Open) -> None:
    fleet = fleet_of(apis=2, learners=1)
    here, there = (api.url for api in fleet.apis)
    points = batches(1, seed=3)[0]

    made = WEB.put(f"{here}/streams/s", json=SETTINGS)
    assert made.status_code == 201
    learnt = WEB.post(
        f"{there}/streams/s/ingest", json={"points": points}, params={"wait": "applied", "timeout": 30}, timeout=60.0
    )
    assert learnt.status_code == 200, learnt.text
    assert len(learnt.json()["components"]) == len(points)
    offset = learnt.json()["log_offset"]
    view = WEB.get(f"{here}/streams/s/components", params={"min_offset": offset})
    again = WEB.get(f"{there}/streams/s/components", params={"min_offset": offset})
    assert view.json() == again.json()
    assert view.headers["etag"] == again.headers["etag"]
    unchanged = WEB.get(f"{there}/streams/s/components", headers={"If-None-Match": view.headers["etag"]})
    assert unchanged.status_code == 304

    saved = WEB.get(f"{here}/streams/s/snapshot").content
    changed = WEB.put(f"{here}/streams/s", json={"concentration": 3.0})
    assert changed.status_code == 200
    assert WEB.get(f"{there}/streams/s").json()["settings"]["concentration"] == 3.0
    same = WEB.put(f"{there}/streams/s", json={"concentration": 3.0}, headers={"If-Match": changed.headers["etag"]})
    assert same.status_code == 200
    restored = WEB.put(
        f"{there}/streams/s/snapshot",
        content=saved,
        headers={"Content-Type": "application/octet-stream"},
        params={"timeout": 30},
        timeout=60.0,
    )
    assert restored.status_code == 200, restored.text
    eventually(lambda: WEB.get(f"{here}/streams/s").json()["settings"]["concentration"] == 1.0)
    eventually(lambda: WEB.get(f"{here}/streams/s/components").headers["etag"] != view.headers["etag"])

    assert WEB.delete(f"{there}/streams/s").status_code == 204
    eventually(lambda: WEB.get(f"{here}/streams/s/components").status_code == 404)
    assert WEB.put(f"{there}/streams/s", json={**SETTINGS, "n_features": 2}).status_code == 201
    shown = WEB.get(f"{here}/streams/s").json()
    assert (shown["settings"]["n_features"], shown["log_offset"]) == (2, 0)
    assert shown["incarnation"] != made.json()["incarnation"]


def test_changes_at_two_processes_in_the_same_instant_all_stand_and_if_match_lets_one_through(fleet_of: Open) -> None:
    fleet = fleet_of(apis=2, learners=1)
    here, there = (f"{api.url}/streams/s" for api in fleet.apis)
    assert WEB.put(here, json=SETTINGS).status_code == 201

    def at_once(*requests: tuple[str, dict[str, Any], dict[str, str]]) -> list[httpx.Response]:
        barrier = threading.Barrier(len(requests))

        def send(url: str, settings: dict[str, Any], headers: dict[str, str]) -> httpx.Response:
            barrier.wait()
            return WEB.put(url, json=settings, headers=headers)

        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(lambda request: send(*request), requests))

    for n in range(1, 21):
        changes = [(here, {"concentration": float(n)}, {}), (there, {"half_life": 1000.0 + n}, {})]
        assert [reply.status_code for reply in at_once(*changes)] == [200, 200]
        shown = WEB.get(here).json()["settings"]
        assert (shown["concentration"], shown["half_life"]) == (n, 1000.0 + n)
    for n in range(1, 21):
        tag = {"If-Match": WEB.get(here).headers["etag"]}
        replies = at_once((here, {"half_life": 5000.0 + n}, tag), (there, {"half_life": 6000.0 + n}, tag))
        assert sorted(reply.status_code for reply in replies) == [200, 412]
        won = replies[0] if replies[0].status_code == 200 else replies[1]
        assert WEB.get(there).json()["settings"]["half_life"] == won.json()["settings"]["half_life"]


def test_a_learner_says_how_it_is_and_ends_with_0_giving_its_lease_up(fleet_of: Open) -> None:
    fleet = fleet_of(apis=1, learners=1, lease_s=60.0)
    (api,), (learner,) = fleet.apis, fleet.learners
    assert WEB.put(f"{api.url}/streams/default", json=SETTINGS).status_code == 201
    send_all(fleet, batches(5, seed=4))
    assert 'shoal_points_applied_total{stream="default"}' in WEB.get(f"{learner.url}/metrics").text
    assert WEB.get(f"{learner.url}/components").status_code == 404
    assert learner.terminate() == 0
    assert fleet.leader() is None
    with fleet.server.client() as client:
        assert not list(client.scan_iter("*:lease"))
    learner.start()
    assert WEB.get(f"{api.url}/readyz").status_code == 200
    until_leader_is(fleet, learner)
    assert api.terminate() == 0
    assert "Traceback" not in api.tail() + learner.tail()
