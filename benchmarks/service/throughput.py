"""Points per second that the durable service accepts and learns, compared with a service written in an afternoon.

    python benchmarks/service/throughput.py [--cases sqlite-msgpack sqlite-json ...] [--seconds 60] [--append]

The stream has family `diagonal`, ten components and batches of 1,000 x 16. Each case is its own service over a
temporary folder, under load from another process on the same machine (`load.py`). The first `--warmup` seconds include
the stream's warm-up and are not counted; the next `--seconds` are.

- Acknowledged: points answered with 202, so durable.
- Applied: the increase of the offset that readers see.
- Lag: acknowledged points that readers do not see yet, measured every second.
- CPU time: by process, in cores.

A case is STORE-FORMAT, with `-one-pass` for a stream without refinement. `afternoon-json` is the other service under
the same load. `memory` stores nothing, and shows the time without the disk. Before each case, the speed of the disk
alone is measured: 64 KiB, and 2 MiB, written and synced repeatedly.
"""

import argparse
import contextlib
import csv
import http.client
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from load import BATCH, HOST, N_BODIES, N_FEATURES, Counts, Load, batches, request

from harness.redis_server import RedisServer, running_redis
from harness.running_service import RunningService, free_port

CASES = (
    "sqlite-msgpack",
    "sqlite-msgpack-one-pass",
    "sqlite-json",
    "sqlite-json-one-pass",
    "afternoon-json",
    "redis-msgpack",
    "redis-json",
    "memory-msgpack-one-pass",
)
RESULTS = Path(__file__).parents[1] / "results"
CONNECTIONS = {"msgpack": 16, "json": 8}
TICK_S = 1.0


class Look(NamedTuple):
    """The state of the service at one moment, seen from outside."""

    counts: Counts
    applied: int
    """Log offset that readers see."""
    lag: int
    """Points of the log beyond that."""
    cpu_s: dict[str, float]
    """CPU time so far, by what a process does."""


# -- processes


def children_of(pid: int) -> list[int]:
    """Return the direct children of a process (Linux)."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def role_of(pid: int) -> str:
    """Return the role of a child process of the service."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return next(
        (
            role
            for part, role in (("decoder.child", "decoder"), ("refinement.child", "refiner"))
            if part in "".join(words)
        ),
        "other",
    )


def cpu_by_role(pid: int, store_pid: int | None) -> dict[str, float]:
    """Return the CPU seconds so far of a service, its children and its store's server."""
    found = {"service": cpu_of(pid)}
    for child in children_of(pid):
        with contextlib.suppress(FileNotFoundError):
            found[role_of(child)] = cpu_of(child)
    return found if store_pid is None else {**found, "redis": cpu_of(store_pid)}


# -- one case


def bodies(form: str) -> list[bytes]:
    """Return the requests of a case."""
    if form == "json":
        return [
            request("POST", "/ingest", json.dumps({"points": x.tolist()}).encode(), "application/json")
            for x in batches(N_BODIES)
        ]
    return [
        request(
            "POST",
            "/ingest",
            msgspec.msgpack.encode({"d": N_FEATURES, "x": x.astype("<f4").tobytes()}),
            "application/msgpack",
        )
        for x in batches(N_BODIES)
    ]


@contextlib.contextmanager
def shoal(store: str, one_pass: bool) -> Iterator["Target"]:
    """Start a service with an empty stream and its own store."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings: dict[str, object] = {}
        store_pid = None
        if store == "redis":
            (folder / "redis").mkdir()
            binary = shutil.which("redis-server")
            assert binary is not None, "no redis-server on PATH"
            server: RedisServer = stack.enter_context(running_redis(binary, folder / "redis"))
            assert server.process is not None
            settings, store_pid = {"store": "redis", "redis_url": server.url}, server.process.pid
        elif store == "memory":
            settings = {"store": "memory"}
        service = RunningService(folder / "data", settings, forked=False)
        stack.callback(service.kill)
        service.start()
        wanted: dict[str, object] = {"n_features": N_FEATURES, "family": "diagonal"}
        ask(service.port, "PUT", "/streams/default", {**wanted, **({"refinement": None} if one_pass else {})})
        assert service.process is not None
        yield Target(service.port, service.process.pid, store_pid, ours=True)


@contextlib.contextmanager
def afternoon(app: str) -> Iterator["Target"]:
    """Start the other service."""
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    script = Path(__file__).with_name("afternoon.py")
    process = subprocess.Popen([sys.executable, str(script), app, str(port)], env=environment)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection((HOST, port)):
                break
            time.sleep(0.05)
        yield Target(port, process.pid, None, ours=False)
    finally:
        process.terminate()
        process.wait()


def ask(port: int, method: str, target: str, body: object = None) -> Any:
    """Send one request and return its JSON answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=120.0)
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, target, text, {"Content-Type": "application/json"} if text else {})
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        assert reply.status < 300, answer
        return answer
    finally:
        connection.close()


class Target(NamedTuple):
    """A service under load."""

    port: int
    pid: int
    store_pid: int | None
    """Of its store's server, where it has one."""
    ours: bool


def look(load: Load, at: Target) -> Look:
    """Return the present counts, offsets and CPU times. The other service has learned all that it has answered."""
    if not at.ours:
        counts = load.counts()
        return Look(counts, counts.acknowledged * BATCH, 0, cpu_by_role(at.pid, None))
    stream = ask(at.port, "GET", "/streams/default")
    applied = stream["points_seen"]
    return Look(load.counts(), applied, stream["log_offset"] - applied, cpu_by_role(at.pid, at.store_pid))


def measure(case: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Measure one case, and return one line of results."""
    store, form, *rest = case.split("-", 2)
    n_connections = arguments.connections or CONNECTIONS[form]
    disk = {"disk_64k_per_s": round(disk_pace(1 << 16)), "disk_2m_per_s": round(disk_pace(1 << 21), 1)}
    service = afternoon("kmeans") if store == "afternoon" else shoal(store, one_pass=bool(rest))
    with service as at:
        with Load(bodies(form), at.port, n_connections) as load:
            watch(load, at, arguments.warmup)
            load.took_s()
            looks = watch(load, at, arguments.seconds)
            took_ms = 1e3 * load.took_s()
        return line(case, n_connections, looks, took_ms, {**disk, **(after(at.port) if at.ours else {})})


def watch(load: Load, at: Target, seconds: float) -> list[Look]:
    """Return the states at regular times within these seconds. The first is taken immediately."""
    looks = [look(load, at)]
    end = looks[0].counts.at + seconds
    while (left := end - time.perf_counter()) > 0:
        time.sleep(min(TICK_S, left))
        looks.append(look(load, at))
    return looks


def after(port: int) -> dict[str, object]:
    """Return the time to apply the rest of the log when no more points arrive, and the result."""
    began = time.perf_counter()
    end = ask(port, "GET", "/streams/default")["log_offset"]
    found = ask(port, "GET", f"/components?limit=1000&timeout=60&min_offset={end}")
    taken = time.perf_counter() - began
    return {"caught_up_s": round(taken, 2), "components": sum(c["weight"] > 0.001 for c in found["components"])}


def disk_pace(size: int, seconds: float = 1.0) -> float:
    """Return how often per second `size` bytes can be written and synced to the disk of temporary folders."""
    payload, n = os.urandom(size), 0
    with tempfile.NamedTemporaryFile() as file:
        began = time.perf_counter()
        while time.perf_counter() < began + seconds:
            os.pwrite(file.fileno(), payload, 0)
            os.fdatasync(file.fileno())
            n += 1
        return n / (time.perf_counter() - began)


def line(
    case: str, n_connections: int, looks: list[Look], took_ms: np.ndarray, ended: dict[str, object]
) -> dict[str, object]:
    """Return the figures of a case."""
    first, last = looks[0], looks[-1]
    seconds = last.counts.at - first.counts.at
    lags = [one.lag for one in looks]
    cpu = {role: (last.cpu_s[role] - first.cpu_s.get(role, 0.0)) / seconds for role in last.cpu_s}
    return {
        "case": case,
        "connections": n_connections,
        "batch": BATCH,
        "features": N_FEATURES,
        "seconds": round(seconds, 1),
        "acknowledged_points_per_s": round((last.counts.acknowledged - first.counts.acknowledged) * BATCH / seconds),
        "applied_points_per_s": round((last.applied - first.applied) / seconds),
        "lag_median": round(statistics.median(lags)),
        "lag_max": max(lags),
        "lag_end": lags[-1],
        "caught_up_s": ended.get("caught_up_s", ""),
        "refused_503": last.counts.refused - first.counts.refused,
        "ack_p50_ms": round(float(np.median(took_ms)), 1),
        "ack_p99_ms": round(float(np.percentile(took_ms, 99)), 1),
        **{f"cpu_{role}": round(cpu.get(role, 0.0), 2) for role in ("service", "decoder", "refiner", "redis")},
        "cpu_client": round((last.counts.cpu_s - first.counts.cpu_s) / seconds, 2),
        "components": ended.get("components", ""),
        "disk_64k_per_s": ended["disk_64k_per_s"],
        "disk_2m_per_s": ended["disk_2m_per_s"],
        **machine(),
    }


def machine() -> dict[str, object]:
    """Describe the machine."""
    return {
        "load_1min": round(os.getloadavg()[0], 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one BLAS thread",
    }


def write(rows: list[dict[str, object]], path: Path, append: bool) -> None:
    """Add to the results, or replace them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    append = append and path.exists()
    with path.open("a" if append else "w", newline="") as out:
        writer = csv.DictWriter(out, fieldnames=list(rows[0]), lineterminator="\n")
        if not append:
            writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warmup", type=float, default=10.0)
    parser.add_argument("--connections", type=int, help="instead of 16 (MessagePack) and 8 (JSON)")
    parser.add_argument("--append", action="store_true", help="keep the lines that the results hold")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    for case in arguments.cases:
        rows = [measure(case, arguments)]
        write(rows, arguments.out or RESULTS / "throughput.csv", arguments.append or case != arguments.cases[0])
        print(rows[0], flush=True)


if __name__ == "__main__":
    main()
