"""Many streams in one process over SQLite: memory a stream, a restart, threads, and processor time.

    python benchmarks/service/many_streams.py [--streams 10000] [--points-per-s 2] [--batch-s 5 10 60] [--seconds 30]
        [--idle-s 5] [--out benchmarks/results/many_streams.csv]

Each figure comes from a process of its own on the same folder, with all parts of the service but the HTTP server:

- `fill` creates the streams and sends each 300 points of three clusters in the plane, as three batches;
- `restart` opens them again, says how long that took, and stays idle; then it uses some streams, one after another, and
  sends each stream its points, those of `--batch-s` seconds in one batch, as collectors do. A stream that was not used
  for `--idle-s` is at rest: with the default, between any two of its batches.

The machine may have other work. So the figure to compare is the CPU time of a batch, and `cores` says how much of the
machine the process got.
"""

import argparse
import asyncio
import csv
import io
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store import SqliteStore
from shoal_service.streams.engines import load_engines
from shoal_service.streams.runtime import Runtime
from shoal_service.streams.stream import Receipt
from shoal_service.wire import Points

CENTRES = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
AT_ONCE = 200
"""Requests in flight."""
SAMPLED = 10
"""Of so many batches, the lag of one is measured: a request that waits has its snapshot published at once."""
STREAM = {"n_features": 2, "family": "gaussian"}


def rows(n: int, rng: np.random.Generator) -> Points:
    return Points(CENTRES[rng.integers(3, size=n)] + rng.normal(size=(n, 2)))


def rss_kib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def opened(folder: str, idle_s: float, n: int) -> Runtime:
    settings = Settings(data_dir=Path(folder), stream_idle_s=idle_s, max_streams=n + 1)
    runtime = Runtime(SqliteStore(folder), settings, make_log("error", "json", io.StringIO()))
    runtime.start(answers=True)
    return runtime


def loaded(runtime: Runtime) -> int:
    return sum(not learner.resting for learner in runtime.learners.values())


def base_kib() -> float:
    """Memory of a process with one stream in use, all modules and kernels loaded."""
    from shoal.sequential import warm_kernels

    load_engines()
    warm_kernels()

    async def one() -> None:
        await runtime.streams.create("one", STREAM)
        await runtime.streams.wait_until_visible(
            await runtime.streams.ingest("one", rows(300, np.random.default_rng(0))), 60
        )

    with tempfile.TemporaryDirectory() as folder:
        runtime = opened(folder, 3600.0, 1)
        asyncio.run(one())
        runtime.close(60)
    return rss_kib()


async def each(n: int, work: Callable[[int], Awaitable[object]]) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(i: int) -> None:
        async with room:
            await work(i)

    await asyncio.gather(*(one(i) for i in range(n)))


async def fill(folder: str, n: int, base: float) -> None:
    runtime = opened(folder, 3600.0, n)
    rng = np.random.default_rng(1)
    began, cpu = time.perf_counter(), time.process_time()
    await each(n, lambda i: runtime.streams.create(f"s{i}", STREAM))

    async def send(i: int) -> None:
        for _ in range(3):
            receipt = await runtime.streams.ingest(f"s{i}", rows(100, rng))
        await runtime.streams.wait_until_visible(receipt, 60)

    await each(n, send)
    print(
        f"fill: {n:,} streams of 300 points in {time.perf_counter() - began:.0f} s, "
        f"{time.process_time() - cpu:.0f} s of CPU; {loaded(runtime):,} loaded with "
        f"{(rss_kib() - base) / n:.0f} KiB each, {threading.active_count()} threads"
    )
    await asyncio.to_thread(runtime.close, 600)


async def restart(asked: argparse.Namespace, base: float) -> None:
    n, idle_s = asked.streams, asked.idle_s
    began, cpu = time.perf_counter(), time.process_time()
    runtime = opened(asked.folder, idle_s, n)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(
        f"restart: ready after {took:.1f} s, {cpu:.1f} s of CPU; {loaded(runtime):,} streams loaded, "
        f"{(rss_kib() - base) / n:.1f} KiB a stream, {threading.active_count()} threads"
    )
    await asyncio.sleep(5.0)
    await idle(runtime, "idle")
    waits = []
    for i in np.random.default_rng(2).integers(n, size=100):
        at = time.perf_counter()
        await runtime.streams.view(f"s{i}", timeout_s=30)
        waits.append(time.perf_counter() - at)
    print(
        f"a request to a stream that is not in memory: {1e3 * np.median(waits):.1f} ms, {1e3 * max(waits):.1f} at most"
    )
    found = []
    for batch_s in asked.batch_s:
        found.append(await traffic(runtime, n, asked.points_per_s, batch_s, asked.seconds))
        print(f"traffic: {found[-1]}; {threading.active_count()} threads", flush=True)
    if asked.out is not None:
        write(asked.out, found)
    print(f"after the traffic: {loaded(runtime):,} loaded, {(rss_kib() - base) / n:.0f} KiB a stream")
    until = time.perf_counter() + 120.0
    while idle_s < 60.0 and loaded(runtime) and time.perf_counter() < until:
        await asyncio.sleep(1.0)
    await asyncio.sleep(6.0)
    print(f"later: {loaded(runtime):,} loaded, {(rss_kib() - base) / n:.0f} KiB a stream")
    await idle(runtime, "idle after the traffic")
    at = time.perf_counter()
    await asyncio.to_thread(runtime.close, 600)
    print(f"closed in {time.perf_counter() - at:.1f} s")


async def idle(runtime: Runtime, words: str) -> None:
    cpu, at = time.process_time(), time.perf_counter()
    await asyncio.sleep(10.0)
    share = (time.process_time() - cpu) / (time.perf_counter() - at)
    print(f"{words}: {100 * share:.1f} % of a processor, {threading.active_count()} threads")


class Traffic(NamedTuple):
    """What a process bore of a rate of batches."""

    streams: int
    points: int
    """Of a batch."""
    asked_per_s: float
    """Batches a second that the streams send in all."""
    seconds: float
    accepted_per_s: float
    learnt_per_s: float
    """Batches over the time until the last of them was seen."""
    cpu_ms: float
    """CPU time of a batch, of this process and its children."""
    cores: float
    """CPU time over time."""
    accept_ms: float
    """Until a batch was accepted: median."""
    lag_s: float
    """From then on until it was learnt and published: median of every `SAMPLED`th batch."""
    lag_95_s: float
    memory_mib: float
    """Of the process at the end, all that it loads included."""
    load: float
    """Of the machine, over the last minute."""


async def traffic(runtime: Runtime, n: int, points_per_s: float, batch_s: float, seconds: float) -> Traffic:
    """Send each stream its points in batches of `batch_s` seconds' worth, one stream after another."""
    rng, size = np.random.default_rng(3), max(1, round(points_per_s * batch_s))
    cpu, began, sent = processor_s(), time.perf_counter(), 0
    per_s, accepting, lags, watched = n / batch_s, [], [], []

    async def send(i: int) -> Receipt:
        at = time.perf_counter()
        receipt = await runtime.streams.ingest(f"s{i % n}", rows(size, rng))
        accepting.append(time.perf_counter() - at)
        if i % SAMPLED == 0:
            watched.append(asyncio.create_task(watch(receipt)))
        return receipt

    async def watch(receipt: Receipt) -> None:
        at = time.perf_counter()
        await runtime.streams.wait_until_visible(receipt, 600)
        lags.append(time.perf_counter() - at)

    while (now := time.perf_counter() - began) < seconds:
        parts = range(sent, min(int(now * per_s), sent + AT_ONCE))
        last = await asyncio.gather(*(send(i) for i in parts))
        sent += len(parts)
        if not parts:
            await asyncio.sleep(0.01)
    took = time.perf_counter() - began
    await asyncio.gather(*watched, *(runtime.streams.wait_until_visible(receipt, 600) for receipt in last))
    whole, spent = time.perf_counter() - began, processor_s() - cpu
    return Traffic(
        streams=n,
        points=size,
        asked_per_s=round(per_s, 1),
        seconds=round(took, 1),
        accepted_per_s=round(sent / took, 1),
        learnt_per_s=round(sent / whole, 1),
        cpu_ms=round(1e3 * spent / sent, 2),
        cores=round(spent / whole, 2),
        accept_ms=round(1e3 * float(np.median(accepting)), 1),
        lag_s=round(float(np.median(lags)), 2),
        lag_95_s=round(float(np.quantile(lags, 0.95)), 2),
        memory_mib=round(rss_kib() / 1024, 1),
        load=round(os.getloadavg()[0], 1),
    )


def processor_s() -> float:
    """CPU time of this process and its children that have ended, in seconds."""
    return sum(os.times()[:4])


def write(path: Path, found: list[Traffic]) -> None:
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(Traffic._fields)
        table.writerows(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--points-per-s", type=float, default=2.0)
    parser.add_argument("--batch-s", type=float, nargs="+", default=[10.0])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--idle-s", type=float, default=5.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", choices=["fill", "restart"])
    parser.add_argument("--folder")
    asked = parser.parse_args()
    if asked.part == "fill":
        asyncio.run(fill(asked.folder, asked.streams, base_kib()))
    elif asked.part == "restart":
        asyncio.run(restart(asked, base_kib()))
    else:
        with tempfile.TemporaryDirectory() as folder:
            for part in ("fill", "restart"):
                given = [*sys.argv[1:], "--part", part, "--folder", folder]
                subprocess.run([sys.executable, __file__, *given], check=True)


if __name__ == "__main__":
    main()
