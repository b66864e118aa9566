"""Partitions of a stream: points a second against one learner, in the library and in the service, and quality.

    python benchmarks/partitions.py speed [--rounds 7] [--partitions 2] [--out FILE.csv]
    python benchmarks/partitions.py backlog [--rounds 3] [--partitions 2] [--out FILE.csv]
    python benchmarks/partitions.py workers [--rounds 5] [--only processes ray] [--out FILE.csv]
    python benchmarks/partitions.py quality [--seeds 3] [--partitions 2] [--out FILE.csv]

Speed: rows learnt after the warm-up, in calls of 65,536, without refinement. One learner and two partitions take turns.

- `one_us`: CPU time of a row with one learner, microseconds.
- `critical_us`: CPU time of a row on the longest path with partitions: all that one core does, and of each round the
  partition that takes longest. `gain` is the ratio: points a second on as many free cores, against one.
- `total_us`: CPU time of a row of all threads together.
- `wall_gain`: ratio of the times by the clock, with threads, as the machine was.

Backlog: the learner of the service, over a store in memory, learns a log of batches of equal size that waits for it.
Times are of all that the learner does: reads of the log, decoding, learning, the monitor, labels, views. Columns are
`cpu_us`, CPU time of a row of all threads together, and `critical_us` as above.

Workers: the rows of "speed", and more costly ones, with two partitions of which a worker of an executor learns the
second. Times of a row, in microseconds.

- `here_us`: CPU time of the process that learns the stream, all threads. It includes its own piece, of `piece_ms`.
- `worker_us`: CPU time of the worker.
- `critical_us`: the longer of the two ways through a round: here, or here without its own piece but with the worker's.
- `overhead_ms`: what a round costs more here than with threads, where the other core learns the second piece.
- `gain`: of the critical path over one learner. `wall_gain`: by the clock, as the machine was.

Quality: the streams of `stream_quality.py` with refinement, by one learner and by partitions.
"""

import argparse
import csv
import io
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from sklearn.metrics import adjusted_rand_score
from stream_workloads import drift, grid, separated

import shoal.partitions
from shoal import StreamingDPMixture
from shoal.mixture import StreamSettings
from shoal.partitions import PieceResult, PieceTask, Workers, assimilate_inplace, in_threads, in_turn, learnt_piece
from shoal.runtime.blas import one_blas_thread
from shoal.runtime.executors import executor_of
from shoal.sequential import compile_kernels, initial_state
from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store import EntryKind, NewEntry, SqliteStore
from shoal_service.streams.board import Board
from shoal_service.streams.learner import Learner
from shoal_service.wire import Points, to_log

ROWS, WARM, CALL = 294_912, 32_768, 65_536
Row = dict[str, Any]


class Timed:
    """Computes pieces one after another and adds up what each took, and what the longest of each set took."""

    def __init__(self) -> None:
        self.all = self.longest = 0.0

    def __call__(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        results, took = [], []
        for task in tasks:
            began = time.thread_time()
            results.append(learnt_piece(task))
            took.append(time.thread_time() - began)
        self.all += sum(took)
        self.longest += max(took)
        return results


def learnt(x: np.ndarray, settings: StreamSettings, run: Any, clock: Callable[[], float]) -> float:
    """Time of the rows after the first `WARM`, in microseconds a row."""
    state = initial_state(settings)
    compile_kernels(state)
    with one_blas_thread:
        state, _ = assimilate_inplace(state, x[:WARM], run)
        if isinstance(run, Timed):
            run.all = run.longest = 0.0
        began = clock()
        for start in range(WARM, len(x), CALL):
            state, _ = assimilate_inplace(state, x[start : start + CALL], run)
        return (clock() - began) / (len(x) - WARM) * 1e6


def speed(rounds: int, partitions: int) -> list[Row]:
    rows = []
    for family, d, k in (("gaussian", 16, 10), ("gaussian", 16, 50), ("diagonal", 64, 10), ("diagonal", 64, 50)):
        rng = np.random.default_rng(0)
        means = rng.normal(size=(k, d)) * 2.0
        x = means[rng.integers(k, size=ROWS)] + rng.normal(size=(ROWS, d))
        one = StreamSettings(n_features=d, family=family, refinement=None, window=0)
        many = StreamSettings(n_features=d, family=family, refinement=None, window=0, partitions=partitions)
        single, critical, total, wall = [], [], [], []
        for _ in range(rounds):
            single.append(learnt(x, one, in_threads, time.thread_time))
            timed = Timed()
            total.append(learnt(x, many, timed, time.thread_time))
            critical.append(total[-1] - (timed.all - timed.longest) / (ROWS - WARM) * 1e6)
            clocks = [learnt(x, settings, in_threads, time.perf_counter) for settings in (one, many)]
            wall.append(clocks[0] / clocks[1])
        rows.append(
            {
                "family": family,
                "features": d,
                "components": k,
                "partitions": partitions,
                "one_us": round(statistics.median(single), 3),
                "critical_us": round(statistics.median(critical), 3),
                "total_us": round(statistics.median(total), 3),
                "gain": round(statistics.median(a / b for a, b in zip(single, critical, strict=True)), 2),
                "wall_gain": round(statistics.median(wall), 2),
            }
        )
        print(rows[-1], flush=True)
    return rows


WORKLOADS = (
    *((family, d, k) for family, d in (("gaussian", 16), ("diagonal", 64)) for k in (10, 50)),
    ("gaussian", 64, 50),
)


def workers(rounds: int, executors: Sequence[str]) -> list[Row]:
    rows = []
    n_rounds = (ROWS - WARM) / 16_384
    for family, d, k in WORKLOADS:
        rng = np.random.default_rng(0)
        means = rng.normal(size=(k, d)) * 2.0
        x = means[rng.integers(k, size=ROWS)] + rng.normal(size=(ROWS, d))
        one = StreamSettings(n_features=d, family=family, refinement=None, window=0)
        two = StreamSettings(n_features=d, family=family, refinement=None, window=0, partitions=2)
        for executor in executors:
            run, found = Workers(executor_of(executor, 1)), []
            learnt(x, two, run, time.perf_counter)  # loads the kernels in the worker
            for _ in range(rounds):
                single, clock = learnt(x, one, in_turn, time.process_time), learnt(x, one, in_turn, time.perf_counter)
                timed = Timed()
                total = learnt(x, two, timed, time.process_time)
                threads, own = total - (timed.all - timed.longest) / (ROWS - WARM) * 1e6, timed.all / 2 / n_rounds
                before = worker_cpu()
                here = learnt(x, two, run, time.process_time)
                worker = (worker_cpu() - before) / (ROWS - 16_384) * 1e6
                wall = learnt(x, two, run, time.perf_counter)
                own_us = own * n_rounds / (ROWS - WARM) * 1e6
                critical = max(here, here - own_us + worker)
                found.append(
                    {
                        "one_us": single,
                        "here_us": here,
                        "worker_us": worker,
                        "critical_us": critical,
                        "piece_ms": own * 1e3,
                        "overhead_ms": (here - threads) * 16_384 / 1e3,
                        "gain": single / critical,
                        "wall_gain": clock / wall,
                    }
                )
            row: Row = {"executor": executor, "family": family, "features": d, "components": k}
            rows.append(row | {name: round(statistics.median(each[name] for each in found), 3) for name in found[0]})
            print(rows[-1], flush=True)
    return rows


def worker_cpu() -> float:
    """CPU time of the workers of this process, in seconds. Ray calls its own by what they do."""
    used = 0.0
    for process in psutil.Process().children(recursive=True):
        command = " ".join(process.cmdline())
        if "spawn_main" in command or command.startswith(("ray::IDLE", "ray::_call")):
            used += sum(process.cpu_times()[:2])
    return used


BACKLOG_ROWS = 163_840
BATCHES = (100, 1_000, 8_192)


def backlog(rounds: int, partitions: int) -> list[Row]:
    rows = []
    for family, d in (("gaussian", 16), ("diagonal", 64)):
        rng = np.random.default_rng(0)
        means = rng.normal(size=(10, d)) * 2.0
        x = means[rng.integers(10, size=WARM + BACKLOG_ROWS)] + rng.normal(size=(WARM + BACKLOG_ROWS, d))
        for batch in BATCHES:
            for p in (1, partitions):
                settings = StreamSettings(n_features=d, family=family, refinement=None, window=0, partitions=p)
                found = [backlog_learnt(x, settings, batch) for _ in range(rounds)]
                cpu, critical = (statistics.median(times) for times in zip(*found, strict=True))
                rows.append(
                    {
                        "family": family,
                        "features": d,
                        "batch": batch,
                        "partitions": p,
                        "cpu_us": round(cpu, 2),
                        "critical_us": round(critical, 2),
                    }
                )
                print(rows[-1], flush=True)
    return rows


def backlog_learnt(x: np.ndarray, settings: StreamSettings, batch: int) -> tuple[float, float]:
    """CPU time of a row, of all threads and on the longest path, in microseconds."""
    store = SqliteStore(None)
    record, _ = store.create_stream("s", "1", settings.to_json().encode(), max_streams=1)
    append(store, x[:WARM], WARM // 2)
    learn_log(store, record)
    append(store, x[WARM:], batch)
    timed = Timed()
    shoal.partitions.in_threads = timed  # type: ignore[assignment]
    try:
        began = time.process_time()
        learn_log(store, record)
        spent = time.process_time() - began
    finally:
        shoal.partitions.in_threads = in_threads
        store.close()
    n_rows = len(x) - WARM
    return spent / n_rows * 1e6, (spent - timed.all + timed.longest) / n_rows * 1e6


def append(store: SqliteStore, x: np.ndarray, batch: int) -> None:
    appended = []
    for start in range(0, len(x), batch):
        rows = x[start : start + batch]
        payload = to_log(Points(rows))
        appended.append(store.append("s", "1", NewEntry(EntryKind.BATCH, payload, len(rows)), budget_bytes=1 << 40))
    for one in appended:
        one.result()


def learn_log(store: SqliteStore, record: Any) -> None:
    """All that the log holds, as a service that starts does it."""
    settings = Settings(checkpoint_interval_s=3600.0, checkpoint_points=1 << 40)
    learner = Learner(store, record, settings, make_log("error", "json", io.StringIO()), sink=Board())
    learner.start()
    learner.finish(time.monotonic() + 3600.0)
    assert learner.join(3600.0)
    assert learner.drained, learner.failure


def stationary(make: Callable[..., Any], family: str, n: int, seed: int, **settings: Any) -> Row:
    rng = np.random.default_rng(seed)
    truth = make(rng)
    x, _ = truth.draw(n, rng)
    test, z = truth.draw(20_000, rng)
    model = StreamingDPMixture(family, **settings)
    for start in range(0, n, 10_000):
        model.partial_fit(x[start : start + 10_000])
    gap = float(truth.log_density(test).mean() - model.score(test))
    return {"ari": adjusted_rand_score(z, model.predict(test)), "components": len(model.component_ids_), "gap": gap}


def drifting(d: int, family: str, n: int, half_life: float, seed: int, **settings: Any) -> Row:
    rng = np.random.default_rng(seed)
    x, z = drift(rng, d, n)
    model, labels, scores = StreamingDPMixture(family, half_life=half_life, **settings), [], []
    step = 500
    for start in range(0, n, step):
        part = x[start : start + step]
        if start >= 2_000:
            scores.append(model.score(part))  # before they are learnt
        model.partial_fit(part)
        labels.append(model.predict(part))
    found = np.concatenate(labels)
    windows = [adjusted_rand_score(z[i : i + 2_000], found[i : i + 2_000]) for i in range(0, n, 2_000)]
    return {
        "ari": adjusted_rand_score(z, found),
        "worst_window": min(windows),
        "components": len(model.component_ids_),
        "gap": -float(np.mean(scores)),
    }


STREAMS: dict[str, Callable[..., Row]] = {
    "grid-2d": lambda seed, **s: stationary(lambda rng: grid(4.0), "diagonal", 100_000, seed, **s),
    "separated-16d": lambda seed, **s: stationary(lambda rng: separated(rng, 16, 2.0), "gaussian", 100_000, seed, **s),
    "drift-2d, half-life 5,000": lambda seed, **s: drifting(2, "diagonal", 100_000, 5_000.0, seed, **s),
    "drift-16d, half-life 5,000": lambda seed, **s: drifting(16, "gaussian", 100_000, 5_000.0, seed, **s),
}


def quality(seeds: int, partitions: int, only: list[str]) -> list[Row]:
    rows = []
    for name, measure in STREAMS.items():
        if only and name.split(",")[0] not in only:
            continue
        for seed in range(seeds):
            for p in (1, partitions):
                rows.append({"stream": name, "seed": seed, "partitions": p} | measure(seed, partitions=p))
                print({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("speed", "workers", "backlog", "quality"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "quality":
        measured = quality(given.seeds, given.partitions, given.only)
    elif given.what == "workers":
        measured = workers(given.rounds, given.only or ["processes"])
    else:
        measured = (speed if given.what == "speed" else backlog)(given.rounds, given.partitions)
    if given.out:
        names = list(dict.fromkeys(name for row in measured for name in row))
        with given.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(measured)
