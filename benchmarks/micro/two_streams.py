"""Rows per second of two streams on two threads, compared with one stream on one thread.

Run: python benchmarks/micro/two_streams.py [--repeats 7]. Writes benchmarks/results/two_streams.csv: one line per
family and batch size, medians over repeats, with the machine and its load. Kernels release Python's global lock. The
Python code around them, once per batch, does not. Streams have learned about ten thousand points when the clock starts
(ten components in 16 dimensions, no refinement), and BLAS has one thread. Times are wall-clock. If other work keeps the
second core busy, two threads cannot be faster than one.
"""

import argparse
import csv
import os
import platform
import statistics
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from shoal.mixture import MixtureState, StreamSettings
from shoal.sequential import assimilate_inplace, initial_state

RESULTS = Path(__file__).resolve().parents[1] / "results" / "two_streams.csv"
D, K = 16, 10
FAMILIES = ("diagonal", "gaussian")
BATCHES = (100, 1_000, 10_000)
ROWS = {"diagonal": 400_000, "gaussian": 150_000}


class Figure(NamedTuple):
    family: str
    batch: int
    one_rows_per_s: float
    two_rows_per_s: float
    times: float
    """Median over repeats of the ratio within a repeat."""


def begun(family: str, rows: np.ndarray) -> MixtureState:
    """Return a stream that has learned some rows."""
    settings = StreamSettings(n_features=D, family=family, refinement=None)
    return assimilate_inplace(initial_state(settings), rows)[0]


def learn(state: MixtureState, rows: np.ndarray, batch: int, start: threading.Barrier) -> None:
    """Learn the rows, batch by batch."""
    start.wait()
    for at in range(0, len(rows), batch):
        state, _ = assimilate_inplace(state, rows[at : at + batch])


def rows_per_s(family: str, rows: np.ndarray, batch: int, threads: int) -> float:
    """Return the rows per second of these streams together, each on its own thread."""
    start = threading.Barrier(threads + 1)
    states = [begun(family, rows[:10_000]) for _ in range(threads)]
    work = [threading.Thread(target=learn, args=(state, rows, batch, start)) for state in states]
    for thread in work:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in work:
        thread.join()
    return threads * len(rows) / (time.perf_counter() - began)


def measure(family: str, batch: int, repeats: int) -> Figure:
    """Measure one and two threads in turn."""
    rng = np.random.default_rng(0)
    rows = np.sqrt(2.0) * rng.normal(size=(K, D))[rng.integers(K, size=ROWS[family])]
    rows += rng.normal(size=rows.shape)
    turns = [(rows_per_s(family, rows, batch, 1), rows_per_s(family, rows, batch, 2)) for _ in range(repeats)]
    one, two = (statistics.median(column) for column in zip(*turns, strict=True))
    return Figure(family, batch, round(one), round(two), round(statistics.median(b / a for a, b in turns), 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    where = (platform.machine(), f"{os.cpu_count()} cores", datetime.now(UTC).date().isoformat())
    with threadpool_limits(1), arguments.out.open("w", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*Figure._fields, "load_1min", "machine", "cores", "date"])
        for family in FAMILIES:
            for batch in BATCHES:
                figure = measure(family, batch, arguments.repeats)
                writer.writerow([*figure, round(os.getloadavg()[0], 1), *where])
                print(figure, flush=True)


if __name__ == "__main__":
    main()
