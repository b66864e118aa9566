"""Durable appends per second of the SQLite and the Redis store, by payload size and by number of waiting callers.

Run: python benchmarks/micro/store.py [--seconds 1.0] [--data FOLDER]. Writes benchmarks/results/store.csv: one line per
measurement, with the machine. The first lines show the disk alone: repeated writes with fdatasync in one file. They are
repeated at the end, because shared disks change their speed within minutes. Compare only within a run. The benchmark
starts its own Redis on loopback, which syncs every append. It omits Redis if there is none on the PATH.
"""

import argparse
import csv
import os
import platform
import shutil
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from shoal_service.errors import StoreUnavailableError
from shoal_service.store import Checkpoint, EntryKind, NewEntry, SqliteStore
from shoal_service.store.redis import RedisStore

AnyStore = SqliteStore | RedisStore

RESULTS = Path(__file__).resolve().parents[1] / "results" / "store.csv"
SIZES = (100, 4 << 10, 64 << 10, 1 << 20)
CALLERS = (1, 8, 64)
PLENTY = 1 << 60


class Figure(NamedTuple):
    store: str
    what: str
    payload_bytes: int
    callers: int
    per_s: float
    mb_per_s: float
    per_commit: float
    median_ms: float
    p99_ms: float


def figure(what: str, size: int, callers: int, took_s: list[float], wall_s: float, commits: int) -> Figure:
    took_s.sort()
    n = len(took_s)
    median, p99 = took_s[n // 2] * 1e3, took_s[min(n - 1, int(n * 0.99))] * 1e3
    return Figure("", what, size, callers, n / wall_s, n * size / wall_s / 1e6, n / max(1, commits), median, p99)


def bare_disk(folder: Path, size: int, seconds: float) -> Figure:
    payload, took = os.urandom(size), []
    fd = os.open(folder / "bare", os.O_WRONLY | os.O_CREAT)
    began = time.perf_counter()
    while (start := time.perf_counter()) < began + seconds:
        os.write(fd, payload)
        os.fdatasync(fd)
        took.append(time.perf_counter() - start)
    wall = time.perf_counter() - began
    os.close(fd)
    os.unlink(folder / "bare")
    return figure("bare write and fdatasync", size, 1, took, wall, len(took))


def append_until(store: AnyStore, payload: bytes, stop: threading.Event, took: list[float]) -> None:
    while not stop.is_set():
        start = time.perf_counter()
        store.append("s", "i", NewEntry(EntryKind.BATCH, payload, 10), budget_bytes=PLENTY).result()
        took.append(time.perf_counter() - start)


def appends(store: AnyStore, size: int, callers: int, seconds: float, what: str = "append") -> Figure:
    payload, stop = os.urandom(size), threading.Event()
    took: list[list[float]] = [[] for _ in range(callers)]
    threads = [threading.Thread(target=append_until, args=(store, payload, stop, own)) for own in took]
    before, began = store.commits, time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    wall = time.perf_counter() - began
    return figure(what, size, callers, [t for own in took for t in own], wall, store.commits - before)


def reads(store: AnyStore) -> Figure:
    """Read the log as the learner does, in reads of a megabyte."""
    seq, n_bytes, took, began = 0, 0, [], time.perf_counter()
    while True:
        start = time.perf_counter()
        entries = store.read("s", "i", seq, max_bytes=1 << 20)
        if not entries:
            break
        took += [(time.perf_counter() - start) / len(entries)] * len(entries)
        seq, n_bytes = entries[-1].seq, n_bytes + sum(len(e.payload) for e in entries)
    wall = time.perf_counter() - began
    return figure("read", n_bytes // len(took), 1, took, wall, len(took))


def appends_beside_checkpoints(store: AnyStore, size: int, state_bytes: int, seconds: float) -> Figure:
    epoch, blob, stop = store.acquire_writer("s", "i"), os.urandom(state_bytes), threading.Event()

    def save() -> None:
        while not stop.is_set():
            seq = store.tail("s", "i").seq
            store.save_checkpoint("s", "i", epoch, Checkpoint(seq, 0, blob, max(0, seq - 1_000)))

    saving = threading.Thread(target=save)
    saving.start()
    measured = appends(store, size, 8, seconds, f"append, beside checkpoints of {state_bytes >> 20} MiB")
    stop.set()
    saving.join()
    return measured


def of_store(open_store: Callable[[int], AnyStore], seconds: float) -> Iterator[Figure]:
    for size in SIZES:
        store = open_store(size)
        name = "redis" if isinstance(store, RedisStore) else "sqlite"
        store.create_stream("s", "i", b"{}", max_streams=1)
        figures = [appends(store, size, callers, seconds) for callers in CALLERS]
        figures.append(reads(store))
        if size == 4 << 10:
            for state_bytes in (1 << 20, 64 << 20):
                figures.append(appends_beside_checkpoints(store, size, state_bytes, 2 * seconds))
        yield from (got._replace(store=name) for got in figures)
        store.delete_stream("s")
        store.close()


@contextmanager
def redis_address(folder: Path) -> Iterator[str | None]:
    """Start a server that syncs every append, or give None if there is no redis-server."""
    binary = shutil.which("redis-server")
    if binary is None:
        yield None
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    options = {"bind": "127.0.0.1", "port": port, "dir": str(folder), "appendonly": "yes", "appendfsync": "always"}
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    server = subprocess.Popen([binary, *arguments, "--save", ""], stdout=subprocess.DEVNULL)
    try:
        address = f"redis://127.0.0.1:{port}"
        wait_until_ready(address)
        yield address
    finally:
        server.terminate()
        server.wait()


def wait_until_ready(address: str) -> None:
    store = RedisStore(address)
    for _ in range(100):
        try:
            store.check()
            break
        except StoreUnavailableError:
            time.sleep(0.1)
    store.close()


def measure(folder: Path, seconds: float) -> Iterator[Figure]:
    for size in SIZES:
        yield bare_disk(folder, size, seconds)
    yield from of_store(lambda size: SqliteStore(folder / f"store-{size}"), seconds)
    (folder / "redis").mkdir()
    with redis_address(folder / "redis") as address:
        if address is not None:
            yield from of_store(lambda size: RedisStore(address, prefix=f"store-{size}"), seconds)
    for size in SIZES:
        yield bare_disk(folder, size, seconds)


def machine() -> str:
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"{platform.machine()}, {os.cpu_count()} CPUs, {versions}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds spent on each figure")
    parser.add_argument("--data", type=Path, help="where to write; a temporary folder by default")
    arguments = parser.parse_args()
    RESULTS.parent.mkdir(exist_ok=True)
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    with tempfile.TemporaryDirectory(dir=arguments.data) as folder, RESULTS.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "machine", *Figure._fields])
        for got in measure(Path(folder), arguments.seconds):
            print(
                f"{got.store:6} {got.what:38} {got.payload_bytes:8} B x{got.callers:3}: "
                f"{got.per_s:8.0f}/s {got.mb_per_s:7.1f} MB/s "
                f"{got.per_commit:5.1f} a commit, median {got.median_ms:7.2f} ms, p99 {got.p99_ms:7.2f} ms"
            )
            writer.writerow([when, machine(), *got[:4], *(f"{value:.4g}" for value in got[4:])])


if __name__ == "__main__":
    main()
