"""Comparison of shoal with other programs: speed, agreement, density and memory of every learner on every stream.

    make bench          (python benchmarks/peers/run.py)
    python benchmarks/peers/run.py --quick
    python benchmarks/peers/run.py --workload ten-16d --learner Birch

Every measurement is a process of its own with one thread for BLAS and one for Numba. Within a round, all learners take
turns on the same draw of a stream. Medians over three rounds go to benchmarks/results/peers.csv and replace older ones
of the same stream and learner. peers.png shows them. A learner that has used `--limit-s` seconds on a stream gets no
further round there. `--quick` is one round of 10,000 rows, into peers-quick.csv. A learner whose package is missing is
skipped with a message. shoal does not require `river`: `pip install river`.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "papers")]

from learners import MAKERS, SLOW  # noqa: E402
from record import Table  # noqa: E402
from workloads import REAL, WORKLOADS  # noqa: E402

RESULTS = HERE.parent / "results"
FIELDS = (
    "workload", "learner", "rounds", "rows", "features", "true_clusters", "clusters", "ari", "nmi", "ceiling",
    "window_ari_median", "window_ari_tenth", "log_density", "short_of_truth_nats", "learn_rows_per_cpu_s",
    "predict_rows_per_cpu_s", "memory_above_data_mib", "blas_product_rows_per_cpu_s", "e_step_rows_per_cpu_s",
)  # fmt: skip
TIME_LIMIT_S = 900
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def measured(workload: str, learner: str, rows: int, seed: int) -> dict[str, float] | None:
    """Return the figures of one process, or None, with the reason on the terminal."""
    command = [sys.executable, str(HERE / "one.py")]
    command += ["--workload", workload, "--learner", learner, "--rows", str(rows), "--seed", str(seed)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIME_LIMIT_S, env=os.environ | ONE_THREAD
        )
    except subprocess.TimeoutExpired:
        print(f"  {learner}: over {TIME_LIMIT_S} s", flush=True)
        return None
    if done.returncode:
        reason = done.stderr.strip() or f"ended with {done.returncode}"
        print(f"  {learner}: {reason.splitlines()[-1]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(f[name] for f in found) for name in found[0]}


def learners(only: list[str] | None) -> list[str]:
    names = ["floors", *MAKERS]
    if importlib.util.find_spec("river") is None:
        print("river is not installed: DBSTREAM, DenStream and CluStream are left out (pip install river)")
        names = [name for name in names if name not in SLOW]
    return [name for name in names if only is None or any(part in name for part in only)]


def compare(table: Table, workload: str, names: list[str], rows: int, rounds: int, limit_s: float) -> None:
    """Measure the learners on one stream and write their lines."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    spent: dict[str, float] = defaultdict(float)
    for seed in range(rounds):
        for name in names:
            if spent[name] > limit_s:
                continue
            began = time.monotonic()
            one = measured(workload, name, rows, seed)
            spent[name] += time.monotonic() - began if one is not None else float("inf")
            if one is not None:
                found[name].append(one)
                table.add(workload=workload, learner=name, rounds=len(found[name]), **medians(found[name]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, 10,000 rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=40.0, help="seconds on a stream, over which no further round")
    parser.add_argument("--rows", type=int, default=100_000, help="of a stream; some have a tenth, or ten times that")
    parser.add_argument("--workload", choices=list(WORKLOADS), action="append")
    parser.add_argument("--learner", action="append", help="only learners whose name holds this, or one of these")
    parser.add_argument("--out", type=Path, help="benchmarks/results/peers.csv, or peers-quick.csv")
    options = parser.parse_args()
    rows, rounds = (10_000, 1) if options.quick else (options.rows, options.rounds)
    chosen = options.workload or [w for w in WORKLOADS if w not in REAL or "SHOAL_DATA" in os.environ]
    path = options.out or RESULTS / f"peers{'-quick' if options.quick else ''}.csv"
    table = Table(path, FIELDS, ("workload", "learner"))
    for workload in chosen:
        print(workload, flush=True)
        compare(table, workload, learners(options.learner), rows, rounds, options.limit_s)
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: nothing is drawn (pip install matplotlib)")
        return
    from plot import draw

    draw(table.rows, path.with_suffix(".png"))
    print(path.with_suffix(".png"))


if __name__ == "__main__":
    main()
