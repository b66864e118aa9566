"""Latency of one-point predictions while large JSON batches are ingested, compared with the same service idle.

    python benchmarks/service/predict_while_ingesting.py [--seconds 20] [--out FILE.csv]

The script starts `shoal serve` over a temporary folder. One process posts 10,000 x 16 JSON batches without a pause.
This one sends 50 one-point predictions per second over an open connection. Latencies are the client's wall-clock times.
Client, loader and service share the machine.
"""

import argparse
import csv
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from load import latencies_ms

from harness.running_service import RunningService

N_FEATURES, BATCH = 16, 10_000


def bodies(n: int = 4) -> list[bytes]:
    """Make a few batches of ten well separated clusters, as JSON."""
    rng = np.random.default_rng(0)
    centres = rng.normal(scale=5.0, size=(10, N_FEATURES))
    return [
        json.dumps(
            {"points": (centres[rng.integers(10, size=BATCH)] + rng.normal(size=(BATCH, N_FEATURES))).tolist()}
        ).encode()
        for _ in range(n)
    ]


def load(
    url: str, stop: "multiprocessing.synchronize.Event", sent: "multiprocessing.sharedctypes.Synchronized[int]"
) -> None:
    """Post batches until stopped. Wait as long as an overloaded service asks for."""
    work = bodies()
    with httpx.Client(timeout=60.0) as client:
        n = 0
        while not stop.is_set():
            reply = client.post(
                f"{url}/ingest", content=work[n % len(work)], headers={"content-type": "application/json"}
            )
            if reply.status_code == 202:
                n += 1
                sent.value = n * BATCH
            elif reply.status_code == 503:
                time.sleep(float(reply.headers["retry-after"]))
            else:
                raise RuntimeError(reply.text)


def measure(seconds: float) -> list[dict[str, object]]:
    """Measure the idle service, and then the service under load."""
    with tempfile.TemporaryDirectory() as folder:
        service = RunningService(Path(folder) / "data", forked=False)
        service.start()
        try:
            httpx.post(
                f"{service.url}/ingest", content=bodies(1)[0], headers={"content-type": "application/json"}
            ).raise_for_status()
            httpx.get(f"{service.url}/components", params={"min_offset": BATCH}, timeout=60.0).raise_for_status()
            latencies_ms(service.url, 1.0)
            rows = [summary("idle", latencies_ms(service.url, seconds), 0, seconds)]
            context = multiprocessing.get_context("spawn")
            stop, sent = context.Event(), context.Value("q", 0)
            loader = context.Process(target=load, args=(service.url, stop, sent))
            loader.start()
            while sent.value == 0:
                time.sleep(0.1)
            before = sent.value
            taken = latencies_ms(service.url, seconds)
            rows.append(summary("ingesting 10,000 x 16 JSON", taken, sent.value - before, seconds))
            stop.set()
            loader.join()
        finally:
            service.kill()
    return rows


def summary(load_name: str, taken: np.ndarray, points: int, seconds: float) -> dict[str, object]:
    """Return one row of the result."""
    median, p99 = np.percentile(taken, [50, 99])
    return {
        "load": load_name,
        "predictions": taken.size,
        "median_ms": round(float(median), 2),
        "p99_ms": round(float(p99), 2),
        "max_ms": round(float(taken.max()), 2),
        "ingested_points_per_s": round(points / seconds),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one BLAS thread",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/predict_while_ingesting.csv"))
    arguments = parser.parse_args()
    rows = measure(arguments.seconds)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with arguments.out.open("w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
