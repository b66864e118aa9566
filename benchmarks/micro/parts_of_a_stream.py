"""CPU milliseconds of the parts of a stream with refinement: medians of nine runs, on one thread.

    python benchmarks/micro/parts_of_a_stream.py [--workload "ten-16d, a tenth"] [--family gaussian] [--runs 9]
        [--one-pass] [--told]

`search` includes its passes and `features alone`. The remaining time is the pass itself, windows and checks. `--told`
gives the stream the prior that its search would find, so that there is no search (`gaussian` only).
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))

import numpy as np  # noqa: E402
from workloads import WORKLOADS  # noqa: E402

from shoal import StreamingDPMixture  # noqa: E402
from shoal.estimators import fitted  # noqa: E402
from shoal.families import NormalInverseWishart  # noqa: E402
from shoal.sequential import warmup  # noqa: E402
from shoal.sequential.prior import choose, race  # noqa: E402

PARTS = (
    (warmup, "choose_prior", "search"),
    (race, "one_pass_inplace", "passes of the search"),
    (choose, "univariate_deviation", "features alone"),
    (warmup, "learn_inplace", "fits of the warm-up"),
    (warmup, "compared", "matching of fits"),
    (fitted, "refine", "refinements"),
)
CHUNK = 1_000


def timed(module: Any, name: str, part: str, spent: dict[str, float]) -> None:
    """Make calls of a function add their time to `spent[part]`."""
    real = getattr(module, name)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        began = time.process_time()
        result = real(*arguments, **options)
        spent[part] += 1e3 * (time.process_time() - began)
        return result

    setattr(module, name, wrapped)


def found_prior(x: np.ndarray) -> NormalInverseWishart:
    """Return the prior that the search selects on a stream of full Gaussians, in the data's units, without jitter."""
    found, real = [], warmup.choose_prior

    def kept(*arguments: Any, **options: Any) -> Any:
        found.append(real(*arguments, **options))
        return found[-1]

    warmup.choose_prior = kept
    try:
        StreamingDPMixture("gaussian", refinement=None).partial_fit(x[:CHUNK])
    finally:
        warmup.choose_prior = real
    location, scale, _, prior = found[-1]
    units = np.outer(scale, scale)
    return NormalInverseWishart(
        prior.mean * scale + location, prior.mean_strength, prior.dof, prior.scale_matrix * units
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=list(WORKLOADS), default="ten-16d, a tenth")
    parser.add_argument("--family", default="gaussian")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--one-pass", action="store_true", help="without refinement")
    parser.add_argument("--told", action="store_true", help="the prior is given")
    options = parser.parse_args()
    if options.told and options.family != "gaussian":
        parser.error(f"--told is for the family gaussian alone, not {options.family}")
    stream = WORKLOADS[options.workload](100_000, np.random.default_rng(0))
    settings: dict[str, Any] = {"half_life": stream.half_life}
    settings |= {"refinement": None} if options.one_pass else {}
    settings |= {"prior": found_prior(stream.x)} if options.told else {}
    spent: dict[str, float] = {}
    for part in PARTS:
        timed(*part, spent)
    runs = []
    for _ in range(options.runs + 1):  # the first loads the kernels
        spent |= {part: 0.0 for *_, part in PARTS}
        model, began = StreamingDPMixture(options.family, **settings), time.process_time()
        for start in range(0, len(stream.x), CHUNK):
            model.partial_fit(stream.x[start : start + CHUNK])
        runs.append(spent | {"whole": 1e3 * (time.process_time() - began)})
    for part in runs[0]:
        print(f"{part:20} {statistics.median(run[part] for run in runs[1:]):8.1f} ms")


if __name__ == "__main__":
    main()
