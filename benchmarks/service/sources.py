"""Points a second from a Redis stream, and from a file by `shoal ingest`, beside the wire alone.

    python benchmarks/service/sources.py [--points 1000000] [--features 16] [--batch 4000] [--turns 3] [--out FILE.csv]

Each way sends the same float32 points of ten Gaussians to a stream of its own, on one `shoal serve` over SQLite:

- `wire`: requests that are made before, one after the other on one connection, without a client library;
- `ingest`: `shoal ingest FILE.npy`, and `ingest-source`: the same with `--source`;
- `redis`: `shoal connect redis-stream` over entries of one raw vector each, from a redis-server on loopback.

A row has the points a second until all are durable, by the clock from the first stored batch on (starting a command is
not counted), the processor seconds of the sending process and of the server for a million points, and the load of the
machine. The ways take turns. Compare processor seconds where the machine is shared.
"""

import argparse
import contextlib
import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import numpy as np
import psutil
import redis

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from harness.redis_server import running_redis
from harness.running_service import RunningService

FIELDS = ("way", "turn", "points", "points_per_s", "sender_cpu_s_per_m", "server_cpu_s_per_m", "load")
SHOAL = str(Path(sys.executable).with_name("shoal"))


def _cpu(process: psutil.Process) -> float:
    """Processor seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def made_points(n: int, n_features: int) -> np.ndarray:
    """Ten Gaussians."""
    rng = np.random.default_rng(0)
    centres = np.sqrt(2.0) * rng.normal(size=(10, n_features))
    return (centres[rng.integers(10, size=n)] + rng.normal(size=(n, n_features))).astype("<f4")


class Bench:
    """One server, and the ways to it."""

    def __init__(self, service: RunningService, x: np.ndarray, batch: int, folder: Path) -> None:
        self._service, self._x, self._batch = service, x, batch
        self._file = folder / "points.npy"
        np.save(self._file, x)
        self._http = httpx.Client(base_url=service.url, timeout=60.0)
        assert service.process is not None
        self._server = psutil.Process(service.process.pid)
        self._streams = 0

    def stored(self, stream: str) -> int:
        """Points of a stream that are durable."""
        return int(self._http.get(f"/streams/{stream}").raise_for_status().json()["log_offset"])

    def new_stream(self) -> str:
        """A stream that learns in one pass."""
        self._streams += 1
        name = f"s{self._streams}"
        self._http.put(f"/streams/{name}", json={"n_features": self._x.shape[1], "refinement": None, "window": 0})
        return name

    def wire(self) -> dict[str, float]:
        """Send prepared requests."""
        stream, n = self.new_stream(), len(self._x)
        bodies = [
            msgspec.msgpack.encode({"d": self._x.shape[1], "t": "f4", "x": self._x[i : i + self._batch].tobytes()})
            for i in range(0, n, self._batch)
        ]
        path, headers = f"/streams/{stream}/ingest", {"Content-Type": "application/msgpack"}
        mine, before, server = psutil.Process(), _cpu(psutil.Process()), _cpu(self._server)
        began = time.perf_counter()
        for body in bodies:
            while (reply := self._http.post(path, content=body, headers=headers)).status_code == 503:
                time.sleep(0.05)
            reply.raise_for_status()
        took = time.perf_counter() - began
        return self._row(n, took, _cpu(mine) - before, stream, server)

    def command(self, *arguments: str, ends: bool) -> dict[str, float]:
        """Run a command until all points are durable."""
        stream, n = self.new_stream(), len(self._x)
        server = _cpu(self._server)
        words = [SHOAL, *arguments, "--stream", stream, "--url", self._service.url, "--batch-size", str(self._batch)]
        sender = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process = psutil.Process(sender.pid)
            while (first := self.stored(stream)) == 0:
                time.sleep(0.01)
            began, before = time.perf_counter(), _cpu(process)
            used = before
            while self.stored(stream) < n:
                with contextlib.suppress(psutil.Error):
                    used = max(used, _cpu(process))
                assert sender.poll() in (None, 0), f"{words} ended"
                time.sleep(0.02)
            took = time.perf_counter() - began
            return self._row(n - first, took, used - before, stream, server)
        finally:
            if not ends:
                sender.terminate()
            sender.wait()

    def _row(self, n: int, took: float, sender_cpu: float, stream: str, server_before: float) -> dict[str, float]:
        while True:  # the server also learns
            told = self._http.get(f"/streams/{stream}").raise_for_status().json()
            if told["points_seen"] == told["log_offset"]:
                break
            time.sleep(0.02)
        millions = n / 1e6
        return {
            "points": n,
            "points_per_s": round(n / took),
            "sender_cpu_s_per_m": round(sender_cpu / millions, 2),
            "server_cpu_s_per_m": round((_cpu(self._server) - server_before) / (len(self._x) / 1e6), 2),
            "load": round(os.getloadavg()[0], 1),
        }

    def ways(self, redis_url: str) -> Iterator[tuple[str, dict[str, float]]]:
        """Each way once."""
        yield "wire", self.wire()
        yield "ingest", self.command("ingest", str(self._file), ends=True)
        yield "ingest-source", self.command("ingest", str(self._file), "--source", "bench", ends=True)
        arguments = ("connect", "redis-stream", redis_url, "points", "--format", "float32")
        yield "redis", self.command(*arguments, ends=False)


def fill(url: str, x: np.ndarray) -> None:
    """Add each point as an entry."""
    with redis.Redis.from_url(url) as client:
        for start in range(0, len(x), 5000):
            pipe = client.pipeline(transaction=False)
            for row in x[start : start + 5000]:
                pipe.xadd("points", {"data": row.tobytes()})
            pipe.execute()


def main() -> None:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    x = made_points(arguments.points, arguments.features)
    rows = []
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        server = stack.enter_context(running_redis("redis-server", folder))
        fill(server.url, x)
        service = RunningService(folder / "data", {"log_budget_bytes": 1 << 30})
        service.start()
        stack.callback(service.kill)
        bench = Bench(service, x, arguments.batch, folder)
        for turn in range(arguments.turns):
            for way, row in bench.ways(server.url):
                rows.append({"way": way, "turn": turn, **row})
                print(*(f"{field} {rows[-1][field]}" for field in FIELDS), sep="  ", flush=True)
    if arguments.out is not None:
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
