"""Time of a single point: to learn it, to predict it, and to learn it and score the next one.

    python benchmarks/micro/one_at_a_time.py [--workload ten-16d ten-64d] [--family gaussian diagonal] [--points 300]

Wall-clock microseconds, medians of five turns, on one thread, in streams that have learned 10,000 points, without
refinement.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import numpy as np  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

from shoal import StreamingDPMixture  # noqa: E402

LEARNT, TURNS = 10_000, 5


def microseconds(step: Callable[[int], object], points: int) -> float:
    """Return the time of a step per point, the median over turns."""
    turns = []
    for turn in range(TURNS):
        began = time.perf_counter()
        for i in range(turn * points, (turn + 1) * points):
            step(i)
        turns.append(1e6 * (time.perf_counter() - began) / points)
    return statistics.median(turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", nargs="+", choices=list(WORKLOADS), default=["grid-2d", "ten-16d", "ten-64d"])
    parser.add_argument("--family", nargs="+", default=["known_covariance", "diagonal", "gaussian"])
    parser.add_argument("--points", type=int, default=300, help="a turn")
    options = parser.parse_args()
    print(f"{'stream':18} {'family':18} {'components':>10} {'learn':>8} {'ask':>8} {'learn, ask':>10}")
    for workload in options.workload:
        stream = WORKLOADS[workload](100_000, np.random.default_rng(0))
        for family in options.family:
            model = StreamingDPMixture(family, half_life=stream.half_life, refinement=None)
            n_rows = min(LEARNT, len(stream.x) // 2)
            for start in range(0, n_rows, 1_000):
                model.partial_fit(stream.x[start : start + 1_000])
            rest = [row[None] for row in stream.x[n_rows : n_rows + TURNS * options.points + 1]]
            model.predict(rest[0])
            asked = microseconds(lambda i, model=model, rest=rest: model.predict(rest[i]), options.points)
            learnt = microseconds(lambda i, model=model, rest=rest: model.partial_fit(rest[i]), options.points)
            both = microseconds(
                lambda i, model=model, rest=rest: model.partial_fit(rest[i]).score_samples(rest[i + 1]), options.points
            )
            k = model.weights_.size
            print(f"{workload:18} {family:18} {k:10} {learnt:8.0f} {asked:8.0f} {both:10.0f}", flush=True)


if __name__ == "__main__":
    main()
