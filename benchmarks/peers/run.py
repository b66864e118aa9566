"""shoal beside its peers: speed, agreement, density and memory, every learner on every stream.

    make bench          (python benchmarks/peers/run.py)
    python benchmarks/peers/run.py --quick
    python benchmarks/peers/run.py --workload ten-16d --learner Birch

Every measurement is a process of its own with one thread for BLAS and Numba; within a round all learners take their
turn on the same draw of a stream, and medians over the rounds are written to benchmarks/results/peers.csv, where they
take the place of older ones of the same stream and learner; peers.png shows them. There are three rounds; a learner
that has used up `--patience` seconds on a stream has no further one there. `--quick` is one round of 10,000 rows, into
peers-quick.csv. Learners whose package is missing are left out, and said to be; `river` is not among shoal's own
requirements: `pip install river`.
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
    """One process's figures, or None, with the reason on the terminal."""
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


def compare(table: Table, workload: str, names: list[str], rows: int, rounds: int, patience: float) -> None:
    """Fill the lines of one stream."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    spent: dict[str, float] = defaultdict(float)
    for seed in range(rounds):
        for name in names:
            if spent[name] > patience:
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
    parser.add_argument("--patience", type=float, default=40.0, help="seconds on a stream, over which no further round")
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
        compare(table, workload, learners(options.learner), rows, rounds, options.patience)
    if importlib.util.find_spec("matplotlib") is None:
        print("matplotlib is not installed: nothing is drawn (pip install matplotlib)")
        return
    from plot import draw

    draw(table.rows, path.with_suffix(".png"))
    print(path.with_suffix(".png"))


if __name__ == "__main__":
    main()
