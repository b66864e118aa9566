"""kill -9 in the middle of a stream: nothing acknowledged is lost, nothing is applied twice, not a bit differs."""

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import pytest

from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB

pytestmark = pytest.mark.system

N_BATCHES = 60
MOST_KILLS = 6
"""Spread over the batches. On a slow machine there would be many more, and each costs a start."""
N_FEATURES = 4


def batches(n: int = N_BATCHES, seed: int = 20) -> list[list[list[float]]]:
    """Batches of uneven size from six clusters, past the warm-up and several checks."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=6.0, size=(6, N_FEATURES))
    sizes = rng.integers(1, 160, size=n)
    return [(centres[rng.integers(6, size=k)] + rng.normal(size=(k, N_FEATURES))).tolist() for k in sizes]


def send(url: Callable[[], str], points: list[list[float]], key: str, deadline: float) -> dict[str, object]:
    """Post one batch until it is acknowledged, as a client with retries does."""
    while time.monotonic() < deadline:
        try:
            reply = WEB.post(url() + "/ingest", json={"points": points}, headers={"Idempotency-Key": key})
        except httpx.TransportError:
            time.sleep(0.02)
            continue
        if reply.status_code == 202:
            return dict(reply.json())
        assert reply.json()["retryable"], reply.text
        time.sleep(0.05)
    raise TimeoutError(f"batch {key} was not acknowledged")


def without_refinement(service: RunningService) -> None:
    """Make the stream such that its state is a function of its points: a refinement comes when the machine has time
    for it, and `test_kill_refinement` is about those."""
    reply = WEB.put(f"{service.url}/streams/default", json={"n_features": N_FEATURES, "refinement": None})
    assert reply.status_code == 201, reply.text


def final_state(service: RunningService, total: int) -> tuple[bytes, dict[str, object]]:
    """The snapshot file and the components once every point is applied."""
    asked = {"min_offset": total, "timeout": 60}
    view = WEB.get(f"{service.url}/components", params={**asked, "limit": 1000}, timeout=90.0).json()
    return WEB.get(f"{service.url}/snapshot", params=asked, timeout=90.0).content, view


def kills(service: RunningService, stop: threading.Event, rng: random.Random) -> Iterator[float]:
    """Kill and restart at random moments until told to stop; yields the seconds between."""
    while not stop.is_set():
        pause = rng.uniform(0.02, 0.9)
        if stop.wait(pause):
            return
        service.kill()
        service.start()
        yield pause


def test_killed_service_ends_bit_identical_to_an_uninterrupted_one(
    start_service: Callable[..., RunningService],
) -> None:
    work = batches()
    total = sum(map(len, work))

    calm = start_service("calm")
    without_refinement(calm)
    for n, points in enumerate(work):
        send(lambda: calm.url, points, f"batch-{n}", time.monotonic() + 240)
    expected, expected_view = final_state(calm, total)
    calm.kill()

    stormy = start_service("stormy", checkpoint_interval_s=0.3)
    without_refinement(stormy)
    stop, count, sent = threading.Event(), [0], [0]
    rng = random.Random(7)

    def storm() -> None:
        for _ in kills(stormy, stop, rng):
            count[0] += 1
            if count[0] == MOST_KILLS:
                return
            eventually(lambda: stop.is_set() or sent[0] >= count[0] * N_BATCHES // MOST_KILLS - 2)

    thread = threading.Thread(target=storm)
    thread.start()
    try:
        for n, points in enumerate(work):
            time.sleep(rng.uniform(0.0, 0.05))
            eventually(lambda n=n: count[0] >= 4 * n // N_BATCHES, "too few kills to mean anything")
            send(lambda: stormy.url, points, f"batch-{n}", time.monotonic() + 240)
            sent[0] = n + 1
    finally:
        stop.set()
        thread.join()
    got, got_view = final_state(stormy, total)
    assert got_view["log_offset"] == expected_view["log_offset"] == total
    assert got_view["components"] == expected_view["components"]
    assert got == expected


def test_several_clients_over_kills_store_every_batch_once(start_service: Callable[..., RunningService]) -> None:
    work = batches(60, seed=3)
    total = sum(map(len, work))
    service = start_service("several", checkpoint_interval_s=0.3)
    rng = random.Random(11)
    receipts: dict[int, dict[str, object]] = {}

    killed = [0]

    def client(mine: list[int]) -> None:
        for done, n in enumerate(mine):
            eventually(lambda: killed[0] >= done // 5)  # noqa: B023 - points are taken before a start is ready
            time.sleep(0.05)
            receipts[n] = send(lambda: service.url, work[n], f"batch-{n}", time.monotonic() + 240)

    threads = [threading.Thread(target=client, args=(list(range(start, 60, 3)),)) for start in range(3)]
    for thread in threads:
        thread.start()
    stop = threading.Event()
    for _ in kills_while(service, stop, rng, threads):
        killed[0] += 1
    for thread in threads:
        thread.join()
    assert killed[0] >= 3
    assert len(receipts) == 60
    ends = {int(str(r["log_offset"])) for r in receipts.values()}
    assert len(ends) == 60, "two batches were given the same place"
    starts = {int(str(receipts[n]["log_offset"])) - len(work[n]) for n in receipts}
    assert starts == {0, *ends} - {total}, "places overlap or leave a gap"
    _, view = final_state(service, total)
    assert view["points_seen"] == view["log_offset"] == total


def kills_while(
    service: RunningService, stop: threading.Event, rng: random.Random, threads: list[threading.Thread]
) -> Iterator[float]:
    """Kills for as long as a client still works."""
    for pause in kills(service, stop, rng):
        yield pause
        if not any(thread.is_alive() for thread in threads):
            stop.set()


def test_sigterm_applies_what_is_in_the_log_checkpoints_and_exits(start_service: Callable[..., RunningService]) -> None:
    service = start_service("term", checkpoint_interval_s=3600)
    work = batches(30, seed=5)
    total = sum(map(len, work))
    for n, points in enumerate(work):
        send(lambda: service.url, points, f"batch-{n}", time.monotonic() + 240)
    assert service.terminate() == 0
    service.start()
    _, view = final_state(service, total)
    assert view["points_seen"] == total
    assert "Traceback" not in service.tail()


def test_a_second_signal_while_the_service_ends_leaves_no_traceback_in_the_log(
    start_service: Callable[..., RunningService],
) -> None:
    service = start_service("twice")
    assert service.process is not None
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.02)  # two that come at once are one
    assert service.terminate() == 0
    assert '"drained":true' in service.tail()
    assert "Traceback" not in service.tail()


def test_a_second_service_on_the_same_folder_is_refused_by_name_of_the_first(
    start_service: Callable[..., RunningService],
) -> None:
    first = start_service("owned")
    second = RunningService(first.data)
    second.log = first.log.with_name("second.log")
    assert first.process is not None
    with pytest.raises(RuntimeError, match=str(first.process.pid)):
        second.start()


def test_a_second_start_compiles_nothing(start_service: Callable[..., RunningService]) -> None:
    service = start_service("twice")
    service.kill()
    service.start()
    assert "shoal_kernels_compiled_total 0.0" in WEB.get(f"{service.url}/metrics").text
