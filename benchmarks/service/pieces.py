"""One stream learnt by two processes over Redis: points a second against one learner.

    python benchmarks/service/pieces.py [--rounds 3] [--out FILE.csv]

Rows learnt after the warm-up, in calls of 65,536, without refinement: by one learner, and by two partitions of which
one is computed by a second process over a redis-server on loopback. The first process has one thread. Every piece but
the first is offered, whether that pays or not. Times are in microseconds a row.

- `one_us`: CPU time of a row with one learner.
- `learner_us`, `helper_us`, `redis_us`: CPU time of a row of each process, with two partitions; `own_us` is what the
  learner spends on its own pieces.
- `critical_us`: the longest path as if nothing but pieces overlapped: all of the learner, all of Redis, and what the
  helper takes longer for its pieces than the learner for its own. `gain` is the ratio `one_us / critical_us`.
- `wall_gain`: ratio of the times by the clock, as the machine was.
- `answered`: share of the offered pieces whose results came from the helper.
"""

import argparse
import csv
import dataclasses
import multiprocessing
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from harness.redis_server import running_redis
from shoal.mixture import StreamSettings
from shoal.mixture.round import ROUND_ROWS
from shoal.partitions import PieceResult, PieceTask, assimilate_inplace, in_threads, learnt_piece
from shoal.runtime.blas import one_blas_thread
from shoal.sequential import compile_kernels, initial_state
from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store.redis import RedisStore
from shoal_service.streams.shared import PieceSharing, pieces

ROWS, WARM, CALL = 294_912, 32_768, 65_536
STREAMS = (
    ("gaussian", 16, 10),
    ("gaussian", 16, 50),
    ("diagonal", 64, 10),
    ("diagonal", 64, 50),
    ("gaussian", 64, 10),
)
Row = dict[str, Any]


class Timed:
    """Computes pieces one after another and notes what each took."""

    def __init__(self) -> None:
        self.all = 0.0
        self.each: list[float] = []

    def __call__(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        results, took = [], []
        for task in tasks:
            began = time.thread_time()
            results.append(learnt_piece(task))
            took.append(time.thread_time() - began)
        self.each += took
        self.all += sum(took)
        return results


def learnt(x: np.ndarray, settings: StreamSettings, run: Any, clock: Callable[[], float]) -> float:
    """Time of the rows after the first `WARM`, in microseconds a row."""
    state = initial_state(settings)
    compile_kernels(state)
    with one_blas_thread:
        state, _ = assimilate_inplace(state, x[:WARM], run)
        began = clock()
        for start in range(WARM, len(x), CALL):
            state, _ = assimilate_inplace(state, x[start : start + CALL], run)
        return (clock() - began) / (len(x) - WARM) * 1e6


def clusters(d: int, k: int) -> np.ndarray:
    """Rows (ROWS, d) of k clusters."""
    rng = np.random.default_rng(0)
    means = rng.normal(size=(k, d)) * 2.0
    return means[rng.integers(k, size=ROWS)] + rng.normal(size=(ROWS, d))


def processes(rounds: int) -> list[Row]:
    """Two processes over Redis. Offers are made at any size of a piece."""
    binary = shutil.which("redis-server")
    assert binary is not None, "no redis-server on PATH"
    pieces.LEAST_WORK_S, pieces.LEAST_WAIT_S, pieces.PAUSE_S = -1.0, 60.0, 0.0
    rows = []
    with tempfile.TemporaryDirectory() as folder, running_redis(binary, Path(folder)) as server:
        here, there = multiprocessing.get_context("spawn").Pipe()
        helper = multiprocessing.get_context("spawn").Process(target=help_others, args=(server.url, there))
        helper.start()
        here.recv()
        store = RedisStore(server.url)
        sharing = PieceSharing(store.messages, Settings(store="redis", piece_threads=1), make_log("error", "json"))
        sharing.start()
        while sharing._messages.send(sharing._messages.everyone, "gone", "none") < 2:
            time.sleep(0.1)
        try:
            for family, d, k in STREAMS:
                x = clusters(d, k)
                one = StreamSettings(n_features=d, family=family, refinement=None, window=0)
                many = StreamSettings(n_features=d, family=family, refinement=None, window=0, partitions=2)
                found = [shared(x, one, many, sharing, here, psutil.Process(server.process.pid)) for _ in range(rounds)]
                row = {"family": family, "features": d, "components": k}
                rows.append(row | {name: round(statistics.median(f[name] for f in found), 2) for name in found[0]})
                print(rows[-1], flush=True)
        finally:
            here.send(None)
            helper.join()
            sharing.close(10.0)
            store.close()
    return rows


def shared(
    x: np.ndarray, one: StreamSettings, many: StreamSettings, sharing: PieceSharing, helper: Any, redis: psutil.Process
) -> dict[str, float]:
    """Columns of one stream, once by one learner and once by two processes."""
    single, single_wall = (learnt(x, one, in_threads, clock) for clock in (time.thread_time, time.perf_counter))
    runner = sharing.runner()
    learnt(x[: WARM + CALL], many, runner, time.thread_time)  # the helper loads its kernels
    before = dataclasses.replace(sharing.counters)
    own = Timed()
    runner._computed_here = own  # type: ignore[method-assign]
    sharing.take_back = claimed  # type: ignore[method-assign]
    helper.send("begin")
    helper.recv()
    redis_s, wall = -sum(redis.cpu_times()[:2]), -time.perf_counter()
    learner_us = learnt(x, many, runner, time.process_time)
    redis_s, wall = redis_s + sum(redis.cpu_times()[:2]), wall + time.perf_counter()
    helper.send("end")
    helper_s, n_helped = helper.recv()
    of_round = 1e6 / n_helped / ROUND_ROWS  # of each round, one process computes one piece
    helper_us, redis_us, own_us = helper_s * of_round, redis_s * of_round, own.all / len(own.each) / ROUND_ROWS * 1e6
    critical = learner_us + redis_us + max(0.0, helper_us - own_us)
    sent, answered = sharing.counters.sent - before.sent, sharing.counters.answered - before.answered
    return {
        "one_us": single,
        "learner_us": learner_us,
        "own_us": own_us,
        "helper_us": helper_us,
        "redis_us": redis_us,
        "critical_us": critical,
        "gain": single / critical,
        "wall_gain": single_wall / (wall / len(x) * 1e6),
        "answered": answered / sent,
    }


def claimed(offer: Any) -> bool:
    """Wait until the helper has claimed a piece; not taken back."""
    while offer.state == "offered":
        time.sleep(0.0002)
    return False


def help_others(url: str, pipe: Any) -> None:
    """A process that computes pieces. It answers with its CPU time, messages included, and the number of pieces."""
    store = RedisStore(url)
    sharing = PieceSharing(store.messages, Settings(store="redis", piece_threads=1), make_log("error", "json"))
    began = [0.0, 0.0]
    sharing.start()
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        now = [time.process_time(), float(sharing.counters.computed_for_others)]
        if asked == "begin":
            began = now
        pipe.send([b - a for a, b in zip(began, now, strict=True)])
    sharing.close(10.0)
    store.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    measured = processes(given.rounds)
    if given.out:
        with given.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(measured[0]))
            writer.writeheader()
            writer.writerows(measured)
