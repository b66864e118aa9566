"""CPU milliseconds of the parts of a stream with refinement: medians of nine runs, on one thread.

    python benchmarks/micro/parts_of_a_stream.py [--workload "ten-16d, a tenth"] [--family gaussian] [--runs 9]
        [--one-pass] [--told]

Each moment counts for the innermost part that it lies in. `pass` is the rest: the one pass itself, decays and windows.
`--told` gives the stream the prior that its search would find, so that there is no search (`gaussian` only).
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
from shoal.inference.search import Search  # noqa: E402
from shoal.sequential import learn, warmup  # noqa: E402

PARTS = (
    (warmup, "choose_prior", "warm-up: search of the prior"),
    (warmup, "learn_inplace", "warm-up: fits"),
    (learn, "check_inplace", "checks for merges"),
    (fitted, "refine", "refinement: all else"),
    (Search, "live_start", "refinement: first sweeps"),
    (Search, "with_prior", "refinement: prior"),
    (Search, "proposals", "refinement: splits proposed"),
    (Search, "tried", "refinement: splits and joins tried in rounds"),
    (Search, "converge", "refinement: last sweeps"),
    (Search, "tried_join", "refinement: joins tried at the end"),
    (Search, "tried_split", "refinement: splits tried at the end"),
    (fitted, "adopt_inplace", "adoption"),
)
CHUNK = 1_000


class Clock:
    """CPU milliseconds by part, each moment counted once."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._within = ["pass"]
        self._since = 0.0

    def begin(self) -> None:
        """Forget what was counted."""
        self.spent = dict.fromkeys(["pass", *(part for *_, part in PARTS)], 0.0)
        self._since = time.process_time()

    def stop(self) -> None:
        """Count up to now."""
        now = time.process_time()
        self.spent[self._within[-1]] += 1e3 * (now - self._since)
        self._since = now

    def wrap(self, owner: Any, name: str, part: str) -> None:
        """Count the calls of a function as a part."""
        real = getattr(owner, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.stop()
            self._within.append(part)
            try:
                return real(*arguments, **options)
            finally:
                self.stop()
                self._within.pop()

        setattr(owner, name, wrapped)


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
    clock, runs = Clock(), []
    for part in PARTS:
        clock.wrap(*part)
    for run in range(options.runs + 1):  # the first loads the kernels, and needs fewer rows
        model = StreamingDPMixture(options.family, **settings)
        clock.begin()
        for start in range(0, len(stream.x) if run else min(20_000, len(stream.x)), CHUNK):
            model.partial_fit(stream.x[start : start + CHUNK])
        clock.stop()
        runs.append(clock.spent | {"whole": sum(clock.spent.values())})
    found = {part: statistics.median(run[part] for run in runs[1:]) for part in runs[0]}
    for part, spent in found.items():
        print(f"{part:45} {spent:9.1f} ms {100 * spent / found['whole']:5.1f} %")


if __name__ == "__main__":
    main()
