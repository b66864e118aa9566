"""CPU time per point for each tenth of a long stream: does a point cost more after more points?

    python benchmarks/micro/growth.py [--rows 1000000]

The stream has ten Gaussians with full covariances in 16-D (`benchmarks/peers/workloads.py`), in chunks of 1,000, on one
thread. It is learned by one pass alone and with refinement. Tenths with a refinement are slower. Writes
benchmarks/results/growth.csv.
"""

import argparse
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

BENCHMARKS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCHMARKS / "peers"), str(BENCHMARKS / "papers")]

from record import Table  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

from shoal import StreamingDPMixture  # noqa: E402

CHUNK, PARTS = 1_000, 10


def microseconds(model: StreamingDPMixture, x: np.ndarray) -> float:
    """Return the CPU time per point."""
    began = time.process_time()
    for start in range(0, len(x), CHUNK):
        model.partial_fit(x[start : start + CHUNK])
    return 1e6 * (time.process_time() - began) / len(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "results" / "growth.csv")
    options = parser.parse_args()
    x = WORKLOADS["ten-16d"](options.rows, np.random.default_rng(0)).x
    table = Table(options.out, "family refinement tenth rows components us_a_point", ("family", "refinement", "tenth"))
    with threadpool_limits(1):
        for family, refinement in product(("known_covariance", "diagonal", "gaussian"), (None, "auto")):
            model = StreamingDPMixture(family, refinement=refinement)
            for tenth, part in enumerate(np.array_split(x, PARTS)):
                cost = microseconds(model, part)
                row = {"rows": len(part), "components": len(model.component_ids_), "us_a_point": cost}
                table.add(family=family, refinement=refinement, tenth=tenth + 1, **row)


if __name__ == "__main__":
    main()
