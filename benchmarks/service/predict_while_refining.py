"""Latency of one-point predictions and rate of ingestion, while a refinement runs and while none does.

    python benchmarks/service/predict_while_refining.py [--seconds 15] [--repeats 3] [--out FILE.csv]

The script starts `shoal serve` over a temporary folder, with a full window of 100,000 x 16 points. It sends 50
one-point predictions per second over an open connection. Latencies are the client's wall-clock times. Another process
posts .npy batches of 1,000, one after another. Client, loader, service and refining process share the machine. Turns
without and with a refinement alternate and are repeated.
"""

import argparse
import csv
import io
import multiprocessing
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from load import latencies_ms

from harness.running_service import RunningService

N_FEATURES, BATCH, WINDOW = 16, 1_000, 100_000


def points(n: int, seed: int) -> np.ndarray:
    """Draw points (n, 16) of forty overlapping Gaussians with unequal weights, for which a refinement takes long."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=1.5, size=(40, N_FEATURES))
    weights = rng.dirichlet(np.full(40, 2.0))
    rng = np.random.default_rng(seed)
    return np.asarray(centres[rng.choice(40, p=weights, size=n)] + rng.normal(size=(n, N_FEATURES)))


def npy(x: np.ndarray) -> bytes:
    """Return the bytes of a .npy file of float32."""
    file = io.BytesIO()
    np.save(file, x.astype(np.float32))
    return file.getvalue()


def post(client: httpx.Client, url: str, body: bytes) -> None:
    while True:
        reply = client.post(f"{url}/ingest", content=body, headers={"content-type": "application/x-npy"})
        if reply.status_code == 202:
            return
        if reply.status_code != 503:
            raise RuntimeError(reply.text)
        time.sleep(float(reply.headers["retry-after"]))


def load(url: str, stop: Any, sent: Any) -> None:
    """Post batches until stopped."""
    bodies = [npy(points(BATCH, seed)) for seed in range(100, 120)]
    with httpx.Client(timeout=60.0) as client:
        while not stop.is_set():
            post(client, url, bodies[sent.value // BATCH % len(bodies)])
            sent.value += BATCH


class Refining:
    """Keeps a refinement running from `start` to the end of the block, and measures its share of the time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._asked: list[str] = []
        self.ran = 0
        self.looks = 0
        self.made = 0

    def _state(self, refinement_id: str) -> str:
        return str(httpx.get(f"{self._url}/refinements/{refinement_id}").json()["state"])

    def _keep_going(self) -> None:
        """Keep two refinements open, so that one follows the other. Check once a second, because checks cost time."""
        while not self._stop.is_set():
            states = {one: self._state(one) for one in self._asked}
            self.looks += 1
            self.ran += "running" in states.values()
            self.made += sum(state in ("adopted", "not-adopted") for state in states.values())
            self._asked = [one for one, state in states.items() if state in ("queued", "running")]
            while len(self._asked) < 2:
                self._asked.append(httpx.post(f"{self._url}/refine").json()["id"])
            self._stop.wait(1.0)

    @contextmanager
    def on(self) -> Iterator[None]:
        self.ran = self.looks = self.made = 0
        self._stop.clear()
        thread = threading.Thread(target=self._keep_going)
        thread.start()
        while self.ran == 0:
            time.sleep(0.05)
        yield
        self._stop.set()
        thread.join()

    def drain(self) -> None:
        """Wait until no refinement is open."""
        while any(self._state(one) in ("queued", "running") for one in self._asked):
            time.sleep(0.2)


def ingest_rate(url: str, seconds: float) -> float:
    """Return the acknowledged points per second of one client that posts one batch after another."""
    context = multiprocessing.get_context("spawn")
    stop, sent = context.Event(), context.Value("q", 0)
    loader = context.Process(target=load, args=(url, stop, sent))
    loader.start()
    while sent.value == 0:
        time.sleep(0.05)
    before, began = sent.value, time.perf_counter()
    time.sleep(seconds)
    rate = (sent.value - before) / (time.perf_counter() - began)
    stop.set()
    loader.join()
    return rate


def applied(url: str) -> None:
    offset = httpx.get(f"{url}/streams/default").json()["log_offset"]
    while True:
        reply = httpx.get(f"{url}/components", params={"min_offset": offset, "timeout": 60, "limit": 1}, timeout=90.0)
        if reply.status_code == 200:
            return


def measure(seconds: float, repeats: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        service = RunningService(Path(folder) / "data", forked=False)
        service.start(timeout_s=600)
        try:
            httpx.put(
                f"{service.url}/streams/default",
                json={"n_features": N_FEATURES, "family": "gaussian", "refinement": None},
            )
            with httpx.Client(timeout=60.0) as client:
                for seed in range(WINDOW // 10_000):
                    post(client, service.url, npy(points(10_000, seed)))
            applied(service.url)
            refining = Refining(service.url)
            latencies_ms(service.url, 1.0)
            for n in range(repeats):
                rows.append(
                    summary(n, "none", latencies_ms(service.url, seconds), ingest_rate(service.url, seconds), 0.0)
                )
                applied(service.url)
                with refining.on():
                    taken = latencies_ms(service.url, seconds)
                    rate = ingest_rate(service.url, seconds)
                share = refining.ran / max(refining.looks, 1)
                rows.append(summary(n, "running", taken, rate, share))
                refining.drain()
                applied(service.url)
        finally:
            service.kill()
    return rows


def summary(repeat: int, refinement: str, taken: np.ndarray, rate: float, share: float) -> dict[str, object]:
    median, p99 = np.percentile(taken, [50, 99])
    return {
        "repeat": repeat,
        "refinement": refinement,
        "share_of_time_running": round(share, 2),
        "predictions": taken.size,
        "median_ms": round(float(median), 2),
        "p99_ms": round(float(p99), 2),
        "max_ms": round(float(taken.max()), 2),
        "ingested_points_per_s": round(rate),
        "load_average_1_min": round(os.getloadavg()[0], 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one BLAS thread a process",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/predict_while_refining.csv"))
    arguments = parser.parse_args()
    rows = measure(arguments.seconds, arguments.repeats)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
