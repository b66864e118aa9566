"""Time until an API process shows a new snapshot, over a real redis-server.

There are one learner and two API processes. Batches go to the first. The script asks both for their view repeatedly,
without `min_offset`, so that no request speeds up a publication. `published` counts from the message about a view on
Redis, which the script receives as the API processes do. `durable` counts from the acknowledgement of the batch. The
times include one poll of this script (`poll_ms` in the results is its median).

    python benchmarks/service/snapshot_latency.py --seconds 20 --out benchmarks/results/snapshot_latency.csv
"""

import argparse
import csv
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import redis

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from harness.fleet import Fleet
from harness.redis_server import running_redis
from shoal_service.streams.shared.view_codec import head_from_bytes

Times = dict[int, float]
"""By log offset."""


def listen(url: str, published: Times, stop: threading.Event) -> None:
    """Record when each view was published."""
    client = redis.Redis.from_url(url)
    subscription = client.pubsub(ignore_subscribe_messages=True)
    subscription.subscribe("shoal:{registry}:shown")
    while not stop.is_set():
        message = subscription.get_message(timeout=0.2)
        if message is None:
            continue
        heard = time.perf_counter()
        head = client.hget(message["data"].decode() + ":view", "head")
        if head is not None:
            published.setdefault(head_from_bytes(head).log_offset, heard)


def watch(url: str, shown: Times, polls: list[float], stop: threading.Event) -> None:
    """Record when each view was first answered."""
    with httpx.Client(base_url=url, timeout=10.0) as client:
        while not stop.is_set():
            began = time.perf_counter()
            reply = client.get("/components", params={"limit": 1})
            now = time.perf_counter()
            polls.append(now - began)
            if reply.status_code == 200:
                shown.setdefault(reply.json()["log_offset"], now)
            time.sleep(0.002)


def ingest(url: str, seconds: float, rate: float, batch: int, n_features: int) -> Times:
    """Send batches at a constant rate, and record when each was acknowledged."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=6.0, size=(20, n_features))
    durable: Times = {}
    began = time.perf_counter()
    with httpx.Client(base_url=url, timeout=30.0) as client:
        n = 0
        while (now := time.perf_counter() - began) < seconds:
            if now < n / rate:
                time.sleep(n / rate - now)
            points = centres[rng.integers(20, size=batch)] + rng.normal(size=(batch, n_features))
            reply = client.post("/ingest", json={"points": points.tolist()})
            durable[reply.raise_for_status().json()["log_offset"]] = time.perf_counter()
            n += 1
    return durable


def first_at_or_after(times: Times, offset: int) -> float | None:
    """Return when a view with at least this many points was first seen."""
    return min((at for held, at in times.items() if held >= offset), default=None)


def delays_ms(since: Times, shown: Times) -> np.ndarray:
    """Return the delays from each moment to the first view that includes its points."""
    found = ((first_at_or_after(shown, offset), at) for offset, at in since.items())
    return 1e3 * np.array([max(0.0, seen - at) for seen, at in found if seen is not None])


def measure(arguments: argparse.Namespace, folder: Path) -> list[dict[str, object]]:
    """Make one run, with one row for each API process and starting point."""
    binary = shutil.which("redis-server")
    assert binary is not None, "no redis-server on PATH"
    (folder / "redis").mkdir()
    stop, published = threading.Event(), Times()
    shown: list[Times] = [{}, {}]
    polls: list[float] = []
    with running_redis(binary, folder / "redis") as server:
        fleet = Fleet(folder, server, apis=2, learners=1)
        try:
            fleet.start()
            ingest(fleet.apis[0].url, 2.0, arguments.rate, arguments.batch, arguments.features)  # first ones are slower
            threads = [threading.Thread(target=listen, args=(server.url, published, stop))]
            threads += [
                threading.Thread(target=watch, args=(api.url, seen, polls, stop))
                for api, seen in zip(fleet.apis, shown, strict=True)
            ]
            for thread in threads:
                thread.start()
            durable = ingest(fleet.apis[0].url, arguments.seconds, arguments.rate, arguments.batch, arguments.features)
            time.sleep(1.0)
            stop.set()
            for thread in threads:
                thread.join()
        finally:
            fleet.close()
    return [
        row(arguments, n, since, delays_ms(times, seen), polls)
        for n, seen in enumerate(shown)
        for since, times in (("published", published), ("durable", durable))
    ]


def row(
    arguments: argparse.Namespace, api: int, since: str, delays: np.ndarray, polls: list[float]
) -> dict[str, object]:
    """Return the figures of one API process."""
    p50, p90, p99 = np.percentile(delays, [50, 90, 99]).round(1)
    return {
        "api": api,
        "since": since,
        "n": len(delays),
        "p50_ms": p50,
        "p90_ms": p90,
        "p99_ms": p99,
        "max_ms": delays.max().round(1),
        "poll_ms": round(1e3 * float(np.median(polls)), 1),
        "rate": arguments.rate,
        "batch": arguments.batch,
        "features": arguments.features,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=10.0, help="batches a second")
    parser.add_argument("--batch", type=int, default=100, help="points a batch")
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/snapshot_latency.csv"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(arguments, Path(folder))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for line in rows:
        print(line)


if __name__ == "__main__":
    main()
