"""Streams that forget by time, over HTTP: masses beside weights worked out by hand, clocks that are wrong, restarts."""

import asyncio
import io
import json
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from shoal_service.refining import child
from shoal_service.streams import stream
from shoal_service.streams.refinement import process
from shoal_service.wire import time_text

pytestmark = pytest.mark.anyio
ON_MEMORY = pytest.mark.parametrize("store_kind", ["memory"])
HOUR = 3_600.0
START = 1_767_225_600.0
"""2026-01-01, a multiple of every step."""
NOW = START + 30 * 86_400.0
SETTINGS = {"family": "gaussian", "n_features": 2, "half_life": "1h", "warmup_points": 50, "refinement": None}


class Clock:
    """The clock of the service, as the test sets it."""

    def __init__(self) -> None:
        self.now = NOW


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(stream, "time", SimpleNamespace(time=lambda: made.now, monotonic=time.monotonic))
    return made


def weights(times: np.ndarray, half_life_s: float = HOUR) -> np.ndarray:
    """What is left of each point's weight, by the steps from its time to the newest one."""
    places = np.floor(np.asarray(times) / (half_life_s / 32))
    return np.asarray(2.0 ** ((places - places.max()) / 32))


def points(n: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(30.0 * np.eye(2)[rng.integers(2, size=n)] + rng.normal(size=(n, 2)))


async def created(running: Any, **more: Any) -> None:
    reply = await running.http.put("/streams/s", json={**SETTINGS, **more})
    assert reply.status_code == 201, reply.text


async def sent(running: Any, x: np.ndarray, times: Any = None, **more: Any) -> dict[str, Any]:
    body = {"points": x.tolist(), **({} if times is None else {"times": times}), **more}
    reply = await running.http.post("/streams/s/ingest", params={"wait": "applied", "timeout": 30}, json=body)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def mass(running: Any) -> float:
    """Of all live components."""
    return float(sum(one["mass"] for one in (await running.json("/streams/s/components"))["components"]))


async def test_masses_follow_the_times_of_the_records(start: Any) -> None:
    x = points(400)
    times = START + 20.0 * np.arange(400)
    async with start() as running:
        await created(running)
        assert (await running.json("/streams/s"))["newest_time"] is None
        await sent(running, x[:100], times[:100].tolist())
        await sent(running, x[100:200], [time_text(one) for one in times[100:200]], keys=[f"k{i}" for i in range(100)])
        lines = "\n".join(
            json.dumps({"point": row, "time": one})
            for row, one in zip(x[200:300].tolist(), times[200:300].tolist(), strict=True)
        )
        packed = {"d": 2, "t": "f8", "x": x[300:].astype("<f8").tobytes(), "tm": times[300:].tolist()}
        params = {"wait": "applied", "timeout": 30}
        for content, kind in (
            (lines.encode(), "application/x-ndjson"),
            (msgspec.msgpack.encode(packed), "application/msgpack"),
        ):
            reply = await running.http.post(
                "/streams/s/ingest", params=params, content=content, headers={"Content-Type": kind}
            )
            assert reply.status_code == 200, reply.text
        assert await mass(running) == pytest.approx(weights(times).sum(), rel=1e-9)
        shown = await running.json("/streams/s")
        assert (shown["newest_time"], shown["late_points"]) == (time_text(times[-1]), 0)
        assert shown["settings"]["half_life"] == "1h"
        assert shown["settings"]["lateness"] is None
        before = (await running.json("/streams/s/components"))["components"]
    async with start() as running:
        again = (await running.json("/streams/s/components", min_offset=400, timeout=60))["components"]
        assert again == before
        assert (await running.json("/streams/s"))["newest_time"] == time_text(times[-1])


async def test_the_order_of_arrival_changes_no_mass(running: Any) -> None:
    x, times = points(300), START + 60.0 * np.arange(300)
    order = np.random.default_rng(3).permutation(300)
    await created(running)
    await sent(running, x[order], times[order].tolist())
    shown = await running.json("/streams/s")
    assert shown["newest_time"] == time_text(times[-1])
    assert shown["late_points"] > 0
    # components of little mass are pruned on the way; what is left of all points is the mass and what was pruned
    _, checkpoint = await running.service.streams.snapshot("s", min_offset=300, timeout_s=30)
    from shoal.mixture import from_bytes

    state, _ = from_bytes(checkpoint.blob)
    assert state.decayed_count == pytest.approx(weights(times).sum(), rel=1e-9)


@ON_MEMORY
async def test_points_without_times_happen_when_they_are_accepted(running: Any, clock: Clock) -> None:
    """By a clock that jumps an hour ahead, and comes back: the hour passes once."""
    x = points(400)
    await created(running)
    await sent(running, x[:100])
    clock.now += HOUR
    await sent(running, x[100:200])
    assert await mass(running) == pytest.approx(150.0, rel=1e-9)
    clock.now -= HOUR
    await sent(running, x[200:300])
    await sent(running, x[300:400], [clock.now + 60.0 if i % 2 else None for i in range(100)])
    assert await mass(running) == pytest.approx(350.0, rel=1e-9)
    shown = await running.json("/streams/s")
    assert (shown["newest_time"], shown["late_points"]) == (time_text(NOW + HOUR), 0)


@ON_MEMORY
async def test_records_count_after_a_clock_that_was_ahead_for_a_while(
    running: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with times of their own counted almost nothing, were refused as late, and weighed so in refinements."""
    rng = np.random.default_rng(7)
    x = 3.5 * np.stack(np.divmod(rng.integers(9, size=1_500), 3), axis=1) + rng.normal(size=(1_500, 2))
    await created(running, lateness="2h", warmup_points=500)
    clock.now += 5 * HOUR
    await sent(running, x[:500])
    clock.now -= 5 * HOUR
    await sent(running, x[500:], (clock.now - np.where(np.arange(1_000) % 2, HOUR, 1.0)).tolist())
    assert await mass(running) == pytest.approx(1_250.0, rel=0.02)
    assert (await running.json("/streams/s"))["late_points"] == 0
    before = await mass(running)
    assert (await refined(running, "s", monkeypatch))[0] == "adopted"
    assert await mass(running) == pytest.approx(before, rel=1e-9)
    reply = await running.http.post("/streams/s/ingest", json={"points": [[0, 0]], "times": [clock.now - 3 * HOUR]})
    assert (reply.status_code, reply.json()["row"]) == (400, 0)


async def test_a_time_in_the_future_ages_nothing(running: Any, clock: Clock) -> None:
    x = points(300)
    await created(running)
    await sent(running, x[:100])
    hours_ahead = [clock.now + 20 * HOUR] * 100
    await sent(running, x[100:200], hours_ahead, keys=[f"k{i}" for i in range(100)])
    assert await mass(running) == pytest.approx(200.0, rel=1e-9)
    assert (await running.json("/streams/s/records/k3"))["time"] == hours_ahead[0]
    times: list[Any] = [None] * 100
    times[7] = "2100-01-01T00:00:00Z"
    reply = await running.http.post("/streams/s/ingest", json={"points": x[200:].tolist(), "times": times})
    assert (reply.status_code, reply.json()["type"], reply.json()["row"]) == (400, "/problems/record-field", 7)
    assert "2100-01-01T00:00:00Z, more than a day in the future" in reply.json()["detail"]
    assert running.tails()["s"][1] == 200
    plain = await running.http.post("/streams/t/ingest?create=true", json={"points": [[1.0]], "times": times[7:8]})
    assert plain.status_code == 202, "where nothing is forgotten by time, times are for people"


@ON_MEMORY
async def test_records_beyond_the_lateness_are_refused_by_row(running: Any) -> None:
    x = points(200)
    await created(running, lateness="10m")
    await sent(running, x[:100], [START + i for i in range(100)])
    late = [START + 99.0 - 600.0, START + 99.0 - 601.0]
    await sent(running, x[100:101], late[:1])
    reply = await running.http.post("/streams/s/ingest", json={"points": x[:3].tolist(), "times": [None, *late]})
    assert (reply.status_code, reply.json()["row"]) == (400, 1), "a point without a time is of today"
    reply = await running.http.post("/streams/s/ingest", json={"points": x[:2].tolist(), "times": late})
    assert (reply.status_code, reply.json()["type"], reply.json()["row"]) == (400, "/problems/record-field", 1)
    assert "by more than its lateness of 10m" in reply.json()["detail"]
    reply = await running.http.put("/streams/s", json={"lateness": None})
    assert reply.status_code == 200
    count = await mass(running)
    await sent(running, x[:1], [START + 99.0 - 2 * HOUR])
    assert await mass(running) == pytest.approx(count + 0.25, rel=0.022), "it has the weight that it would have left"


async def refined(running: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, int]:
    """Refine a stream, in this process, until it is adopted or known not to be. Its state, and rows of the window."""
    reports: list[dict[str, Any]] = []

    def refine(self: Any, task: process.Task, timeout_s: float, watch: Any) -> process.Outcome:
        paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
        answer = child._answer({**paths, "method": task.method, "window_rows": task.window_rows}, io.StringIO())
        reports.append(answer["report"])
        return process._outcome(answer)

    monkeypatch.setattr(process.RefinementProcess, "refine", refine)
    reply = await running.http.post(f"/streams/{name}/refine", json={"method": "vdp"})
    path, until = reply.headers["location"], time.monotonic() + 240
    while (found := await running.json(path))["state"] in ("queued", "running"):
        assert time.monotonic() < until
        await asyncio.sleep(0.02)
    return found["state"], reports[-1]["window_rows"]


@ON_MEMORY
async def test_a_refinement_weighs_late_records_as_the_stream_does(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the window are read from the log, or from the snapshot that was restored."""
    rng = np.random.default_rng(7)
    x = 3.5 * np.stack(np.divmod(rng.integers(9, size=3_000), 3), axis=1) + rng.normal(size=(3_000, 2))
    times = START + 10.0 * np.arange(3_000) - 5_000.0 * rng.random(3_000)
    await created(running, half_life="9h", warmup_points=500)
    for at in range(0, 3_000, 500):
        await sent(running, x[at : at + 500], times[at : at + 500].tolist())
    saved = await running.http.get("/streams/s/snapshot", params={"window": "true"})
    assert (await refined(running, "s", monkeypatch))[0] == "adopted"
    assert await mass(running) == pytest.approx(weights(times, 9 * HOUR).sum(), rel=1e-9)
    await running.http.put("/streams/t", json={**SETTINGS, "half_life": "9h", "warmup_points": 500})
    binary = {"Content-Type": "application/octet-stream"}
    reply = await running.http.put("/streams/t/snapshot", content=saved.content, headers=binary)
    assert reply.status_code in (200, 202), reply.text
    assert (await refined(running, "t", monkeypatch))[0] == "adopted"
    assert (await running.json("/streams/t"))["newest_time"] == time_text(times.max())
    masses = [one["mass"] for one in (await running.json("/streams/t/components"))["components"]]
    assert sum(masses) == pytest.approx(weights(times, 9 * HOUR).sum(), rel=1e-9)


@ON_MEMORY
async def test_a_window_ends_by_time(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a half-life: nothing is forgotten, and a refinement gets the rows of the last hours alone."""
    rng = np.random.default_rng(7)
    x = 3.5 * np.stack(np.divmod(rng.integers(9, size=3_000), 3), axis=1) + rng.normal(size=(3_000, 2))
    times = START + 30.0 * np.arange(3_000)  # 25 hours
    await created(running, half_life=None, window_age="6h", warmup_points=300)
    for at in range(0, 3_000, 250):
        await sent(running, x[at : at + 250], times[at : at + 250].tolist())
    shown = await running.json("/streams/s")
    assert (shown["settings"]["window_age"], shown["newest_time"]) == ("6h", time_text(times[-1]))
    _, n_rows = await refined(running, "s", monkeypatch)
    assert 0.5 * 720 - 12 <= n_rows <= 720 + 12, "between half and all of six hours, to a step"
    assert await mass(running) == pytest.approx(3_000.0, rel=1e-9)


@ON_MEMORY
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"half_life": "1 week"}, "half_life"),
        ({"half_life": "0.2s"}, "half_life"),
        ({"half_life": True}, "half_life"),
        ({"half_life": 50, "lateness": "1h"}, "lateness"),
        ({"lateness": "soon"}, "lateness"),
        ({"lateness": 60}, "lateness"),
        ({"window_age": "0s"}, "window_age"),
    ],
)
async def test_a_wrong_setting_is_refused_by_name(running: Any, change: dict[str, Any], words: str) -> None:
    reply = await running.http.put("/streams/s", json={"n_features": 2, "half_life": "1h", **change})
    assert (reply.status_code, reply.json()["type"]) == (400, "/problems/setting"), reply.text
    assert words in reply.json()["detail"]


@ON_MEMORY
async def test_a_live_stream_changes_to_time_and_back(running: Any) -> None:
    x = points(400)
    await created(running, half_life=None)
    await sent(running, x[:100])
    assert (await running.http.put("/streams/s", json={"half_life": "1h"})).status_code == 200
    await sent(running, x[100:200], [START] * 100)
    await sent(running, x[200:300], [START + HOUR] * 100)
    assert await mass(running) == pytest.approx(200.0, rel=1e-9)
    assert (await running.http.put("/streams/s", json={"half_life": "2h"})).status_code == 200
    assert (await running.json("/streams/s"))["newest_time"] == time_text(START + HOUR)
    await sent(running, x[300:400], [START - HOUR] * 100)
    assert await mass(running) == pytest.approx(250.0, rel=1e-9)
    assert (await running.http.put("/streams/s", json={"half_life": 1e6})).status_code == 200
    until = time.monotonic() + 120
    while (await running.json("/streams/s"))["newest_time"] is not None:
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
