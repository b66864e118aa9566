"""A stream that a process learns on a Ray cluster of its own, saving after each call, until part of Ray is killed.

python -m harness.ray_stream FILE NAME     NAME of the process to kill after half of the calls: raylet, gcs_server
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from shoal import StreamingDPMixture

STEP, STEPS = 32_768, 6


def rows() -> np.ndarray:
    """(STEP * STEPS, 4) rows of eight clusters."""
    rng = np.random.default_rng(0)
    means = 4.0 * rng.normal(size=(8, 4))
    return means[rng.integers(8, size=STEP * STEPS)] + rng.normal(size=(STEP * STEPS, 4))


def model_on(executor: Any) -> StreamingDPMixture:
    """A model of three partitions."""
    return StreamingDPMixture("gaussian", partitions=3, executor=executor, n_jobs=2 if executor == "ray" else None)


def main(file: Path, name: str) -> None:
    """Learn and save, and kill the process `name` after half of the calls."""
    model = model_on("ray")
    for step, x in enumerate(np.split(rows(), STEPS)):
        if step == STEPS // 2:
            for process in psutil.Process().children(recursive=True):
                if process.name() == name:
                    os.kill(process.pid, signal.SIGKILL)
        model.partial_fit(x)
        model.save(file)
        print(f"saved {step}", flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
