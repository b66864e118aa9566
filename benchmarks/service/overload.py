"""A service past its capacity: what ten clients are answered, memory and lag, and the latency of predictions.

    python benchmarks/service/overload.py [--seconds 600] [--clients 10] [--features 64] [--out FILE.csv]

The script starts `shoal serve` over a temporary folder. Ten connections post batches of 1,000 points without a pause,
faster than they can be learned. A batch that is refused with 503 is sent again after the pause that the answer asks
for. Another connection sends 50 one-point predictions per second. Every ten seconds one row is written. At the end the
script waits until everything is learned, and compares the points with those that were acknowledged.
"""

import argparse
import csv
import sys
import tempfile
import time
from pathlib import Path

import httpx
import msgspec
import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from load import BATCH, Load, latencies_ms, request

from harness.running_service import RunningService

STEP_S = 10.0
FIELDS = ("at_s", "acknowledged", "refused", "lag_points", "rss_mb", "predict_p50_ms", "predict_p99_ms")


def requests(n_features: int, n: int = 100) -> list[bytes]:
    """Batches of ten Gaussians in MessagePack, as whole requests."""
    rng = np.random.default_rng(0)
    centres = np.sqrt(2.0) * rng.normal(size=(10, n_features))
    made = []
    for _ in range(n):
        x = centres[rng.integers(10, size=BATCH)] + rng.normal(size=(BATCH, n_features))
        body = msgspec.msgpack.encode({"d": n_features, "x": x.astype("<f4").tobytes()})
        made.append(request("POST", "/ingest", body, "application/msgpack"))
    return made


def measure(seconds: float, n_clients: int, n_features: int) -> list[dict[str, float]]:
    """Rows of `FIELDS`, one for each ten seconds; raises RuntimeError where a point is missing at the end."""
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        service = RunningService(Path(folder) / "data", forked=False)
        service.start()
        try:
            assert service.process is not None
            process = psutil.Process(service.process.pid)
            with Load(requests(n_features), service.port, n_clients) as load:
                time.sleep(STEP_S)  # the stream is there, and its kernels are compiled
                began = time.perf_counter()
                while time.perf_counter() - began < seconds:
                    taken = latencies_ms(service.url, STEP_S, n_features)
                    counts = load.counts()
                    stream = httpx.get(f"{service.url}/streams/default", timeout=30.0).raise_for_status().json()
                    rows.append(
                        {
                            "at_s": round(time.perf_counter() - began, 1),
                            "acknowledged": counts.acknowledged * BATCH,
                            "refused": counts.refused,
                            "lag_points": stream["log_offset"] - stream["points_seen"],
                            "rss_mb": round(process.memory_info().rss / 2**20),
                            "predict_p50_ms": round(float(np.quantile(taken, 0.5)), 2),
                            "predict_p99_ms": round(float(np.quantile(taken, 0.99)), 2),
                        }
                    )
                    print(*(f"{name} {rows[-1][name]}" for name in FIELDS), sep="  ", flush=True)
                acknowledged = load.counts().acknowledged * BATCH
            _check_all_learned(service.url, acknowledged, n_clients)
        finally:
            service.kill()
    return rows


def _check_all_learned(url: str, acknowledged: int, n_clients: int) -> None:
    while True:
        stream = httpx.get(f"{url}/streams/default", timeout=30.0).raise_for_status().json()
        if stream["points_seen"] == stream["log_offset"]:
            break
        time.sleep(0.5)
    learned = stream["log_offset"]
    # a batch may have been accepted whose answer came after the last count
    if not acknowledged <= learned <= acknowledged + n_clients * BATCH:
        raise RuntimeError(f"{acknowledged} points were acknowledged, and {learned} are in the stream")
    print(f"acknowledged {acknowledged}, learned {learned}")


def main() -> None:
    """Measure and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = measure(arguments.seconds, arguments.clients, arguments.features)
    if arguments.out is not None:
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
