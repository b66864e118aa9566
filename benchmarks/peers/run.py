"""shoal beside its peers: speed, agreement, density and memory, every learner on every stream.

    make bench          (python benchmarks/peers/run.py)
    python benchmarks/peers/run.py --quick

Every measurement is a process of its own with one thread for BLAS and Numba; within a round all learners take their
turn on the same draw of a stream, round after round, and medians over the rounds are written to
benchmarks/results/peers.csv. `--quick` is one round of short streams. Learners whose package is missing are left out,
and said to be; `river` is not among shoal's own requirements: `pip install river`.
"""

import argparse
import csv
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from learners import MAKERS, SLOW
from workloads import REAL, WORKLOADS

RESULTS = Path(__file__).resolve().parents[1] / "results"
FIELDS = (
    "workload", "learner", "rounds", "rows", "features", "true_clusters", "clusters", "ari", "nmi", "ceiling",
    "window_ari_median", "window_ari_tenth", "log_density", "short_of_truth_nats", "learn_rows_per_cpu_s",
    "predict_rows_per_cpu_s", "memory_above_data_mib", "blas_product_rows_per_cpu_s", "e_step_rows_per_cpu_s",
)  # fmt: skip
TIME_LIMIT_S = 1_200
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def measured(workload: str, learner: str, rows: int, seed: int) -> dict[str, float] | None:
    """One process's figures, or None, with the reason on the terminal."""
    command = [sys.executable, str(Path(__file__).with_name("one.py"))]
    command += ["--workload", workload, "--learner", learner, "--rows", str(rows), "--seed", str(seed)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIME_LIMIT_S, env=os.environ | ONE_THREAD
        )
    except subprocess.TimeoutExpired:
        print(f"  {learner}: over {TIME_LIMIT_S} s", flush=True)
        return None
    if done.returncode:
        print(f"  {learner}: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(f[name] for f in found) for name in found[0]}


def learners(only: str | None) -> list[str]:
    names = ["floors", *MAKERS]
    if importlib.util.find_spec("river") is None:
        print("river is not installed: DBSTREAM, DenStream and CluStream are left out (pip install river)")
        names = [name for name in names if name not in SLOW]
    return [name for name in names if only is None or only in name]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, 10,000 rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workload", choices=list(WORKLOADS), action="append")
    parser.add_argument("--learner", help="only learners whose name holds this")
    parser.add_argument("--out", type=Path, default=RESULTS / "peers.csv")
    options = parser.parse_args()
    rows, rounds = (10_000, 1) if options.quick else (options.rows, options.rounds)
    chosen = options.workload or [w for w in WORKLOADS if w not in REAL or "SHOAL_DATA" in os.environ]
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, 1 thread used, Python {platform.python_version()}"
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, ("date", "machine", *FIELDS), restval="")
        writer.writeheader()
        for workload in chosen:
            print(workload, flush=True)
            found: dict[str, list[dict[str, float]]] = {}
            for seed in range(rounds):
                for learner in learners(options.learner):
                    one = measured(workload, learner, rows, seed)
                    if one is not None:
                        found.setdefault(learner, []).append(one)
            for learner, figures in found.items():
                line = {"workload": workload, "learner": learner, "rounds": len(figures), **medians(figures)}
                line = {k: f"{v:.5g}" if isinstance(v, float) else v for k, v in line.items()}
                writer.writerow({"date": datetime.now(UTC).date().isoformat(), "machine": machine, **line})
                file.flush()
                told = [f"{k} {line[k]}" for k in FIELDS[6:] if k in line]
                print(f"  {learner}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
