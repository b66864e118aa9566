"""Points a second from files, a Redis stream and a Kafka topic, beside the wire alone.

    python benchmarks/service/sources.py [--points 1000000] [--features 16] [--batch 4000] [--turns 3] [--out FILE.csv]
        [--ways wire ingest ...]

Each way sends the same float32 points of ten Gaussians to a stream of its own, on one `shoal serve` over SQLite:

- `wire`: requests that are made before, one after the other on one connection, without a client library;
- `ingest`: `shoal ingest FILE.npy`, `ingest-source`: the same with `--source`, and `parquet`: `shoal ingest
  FILE.parquet`;
- `redis`: `shoal connect redis-stream` over entries of one raw vector each, from a redis-server on loopback;
- `configured`: the same entries, read by the service itself (`PUT /streams/{stream}/sources/{name}`); the sender is its
  child process;
- `kafka`: `shoal connect kafka` over messages of one raw vector each, from the mock cluster of librdkafka in this
  process. It keeps 5 MB of a partition, so a topic has as many partitions as the points need.

A row has the points a second until all are durable, by the clock, for files with the start of the command; the
processor seconds of the sending process, without its start and end, and of the server, which also learns, for a million
points; and the load of the machine. The ways take turns. Compare processor seconds where the machine is shared.

At the end comes a line for each way with medians of the turns. `of_wire` is the processor time of the wire alone,
sender and server, as a share of this one's. `two_cores` is the rate that two free cores allow: a million by the
processor seconds of the slower side.
"""

import argparse
import contextlib
import csv
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import psutil
import pyarrow
import pyarrow.parquet
import redis

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from harness.mock_kafka import MockKafka
from harness.redis_server import running_redis
from harness.running_service import RunningService

FIELDS = ("way", "turn", "points", "points_per_s", "sender_cpu_s_per_m", "server_cpu_s_per_m", "load")
CHILD = "shoal_service.cli.connectors.configured"
SHOAL = str(Path(sys.executable).with_name("shoal"))


def _cpu(process: psutil.Process) -> float:
    """Processor seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def _cpu_of_children() -> float:
    """Processor seconds of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def made_points(n: int, n_features: int) -> np.ndarray:
    """Ten Gaussians."""
    rng = np.random.default_rng(0)
    centres = np.sqrt(2.0) * rng.normal(size=(10, n_features))
    return (centres[rng.integers(10, size=n)] + rng.normal(size=(n, n_features))).astype("<f4")


class Bench:
    """One server, and the ways to it."""

    def __init__(self, service: RunningService, x: np.ndarray, batch: int, folder: Path) -> None:
        self._service, self._x, self._batch = service, x, batch
        self._folder = folder
        for size, part in (("one", x[:batch]), ("all", x)):
            np.save(folder / f"{size}.npy", part)
            table = pyarrow.table({f"x{i}": part[:, i] for i in range(x.shape[1])})
            pyarrow.parquet.write_table(table, folder / f"{size}.parquet")
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
        self._http.put(
            f"/streams/{name}",
            json={"n_features": self._x.shape[1], "family": "gaussian", "refinement": None, "window": 0},
        )
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

    def words(self, *arguments: str) -> tuple[str, list[str]]:
        """A new stream, and the words of a command that fills it."""
        stream = self.new_stream()
        return stream, [
            SHOAL,
            *arguments,
            "--stream",
            stream,
            "--url",
            self._service.url,
            "--batch-size",
            str(self._batch),
        ]

    def file(self, suffix: str, *arguments: str) -> dict[str, float]:
        """Send a file. The processor time that the same command takes for a file of one batch is subtracted."""
        sender = []
        for size in ("one", "all"):
            stream, words = self.words("ingest", str(self._folder / f"{size}.{suffix}"), *arguments)
            server = _cpu(self._server)
            used, began = _cpu_of_children(), time.perf_counter()
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            took = time.perf_counter() - began
            sender.append(_cpu_of_children() - used)
        rate = len(self._x) / took
        row = self._row(len(self._x) - self._batch, took, sender[1] - sender[0], stream, server)
        return {**row, "points": len(self._x), "points_per_s": round(rate)}

    def connector(self, *arguments: str) -> dict[str, float]:
        """Run a connector until all points are durable."""
        stream, words = self.words("connect", *arguments, "--format", "float32")
        server = _cpu(self._server)
        sender = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return self._watched(stream, lambda: psutil.Process(sender.pid), server)
        finally:
            sender.terminate()
            sender.wait()

    def configured(self, redis_url: str) -> dict[str, float]:
        """Have the service read the entries itself until all points are durable."""
        stream = self.new_stream()
        server = _cpu(self._server)
        body = {"kind": "redis-stream", "redis_url": redis_url, "keys": ["points"], "format": "float32"}
        path = f"/streams/{stream}/sources/points"
        self._http.put(path, json={**body, "batch_size": self._batch}).raise_for_status()

        def child() -> psutil.Process:
            return next(one for one in self._server.children() if CHILD in one.cmdline())

        row = self._watched(stream, child, server)
        self._http.delete(path).raise_for_status()
        return row

    def _watched(self, stream: str, sender: Callable[[], psutil.Process], server: float) -> dict[str, float]:
        """Measure a sender from its first stored batch on."""
        n = len(self._x)
        while (first := self.stored(stream)) == 0:
            time.sleep(0.05)
        process = sender()
        began, before = time.perf_counter(), _cpu(process)
        while self.stored(stream) < n:
            assert process.is_running(), "the sender has ended"
            time.sleep(0.1)
        took = time.perf_counter() - began
        return self._row(n - first, took, _cpu(process) - before, stream, server)

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

    def ways(self, redis_url: str, brokers: str) -> dict[str, Callable[[], dict[str, float]]]:
        """The ways by name."""
        return {
            "wire": self.wire,
            "ingest": lambda: self.file("npy"),
            "ingest-source": lambda: self.file("npy", "--source", "bench"),
            "parquet": lambda: self.file("parquet"),
            "redis": lambda: self.connector("redis-stream", redis_url, "points"),
            "configured": lambda: self.configured(redis_url),
            "kafka": lambda: self.connector("kafka", brokers, "points"),
        }


def fill(url: str, x: np.ndarray) -> None:
    """Add each point as an entry."""
    with redis.Redis.from_url(url) as client:
        for start in range(0, len(x), 5000):
            pipe = client.pipeline(transaction=False)
            for row in x[start : start + 5000]:
                pipe.xadd("points", {"data": row.tobytes()})
            pipe.execute()


def fill_topic(cluster: MockKafka, x: np.ndarray) -> None:
    """Produce each point as a message, to partitions of at most 4 MB."""
    each = 4_000_000 // (x[0].nbytes + 16)
    cluster.create("points", -(-len(x) // each))
    for i, row in enumerate(x):
        cluster.produce("points", i // each, row.tobytes())
        if i % 50_000 == 0:
            cluster.flush()
    cluster.flush()


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line of medians for each way."""
    ways = list(dict.fromkeys(row["way"] for row in rows))
    median = {
        way: {field: statistics.median(row[field] for row in rows if row["way"] == way) for field in FIELDS[3:]}
        for way in ways
    }
    cpu = {way: found["sender_cpu_s_per_m"] + found["server_cpu_s_per_m"] for way, found in median.items()}
    for way, found in median.items():
        slower = max(found["sender_cpu_s_per_m"], found["server_cpu_s_per_m"])
        of_wire = f"{cpu['wire'] / cpu[way]:.2f}" if "wire" in cpu else "-"
        told = "  ".join(f"{field} {value:g}" for field, value in found.items())
        yield f"median {way}  {told}  of_wire {of_wire}  two_cores {1e6 / slower:,.0f}"


def main() -> None:
    """Measure and print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--ways", nargs="+")
    arguments = parser.parse_args()
    x = made_points(arguments.points, arguments.features)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        server = stack.enter_context(running_redis("redis-server", folder))
        fill(server.url, x)
        cluster = MockKafka(1)
        stack.callback(cluster.close)
        fill_topic(cluster, x)
        service = RunningService(
            folder / "data", {"log_budget_bytes": 1 << 30, "source_allow_private": True}, forked=False
        )
        service.start()
        stack.callback(service.kill)
        ways = Bench(service, x, arguments.batch, folder).ways(server.url, cluster.brokers)
        for turn in range(arguments.turns):
            for way in arguments.ways or ways:
                rows.append({"way": way, "turn": turn, **ways[way]()})
                print(*(f"{field} {rows[-1][field]}" for field in FIELDS), sep="  ", flush=True)
        print(*summary(rows), sep="\n")
    if arguments.out is not None:
        with arguments.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
