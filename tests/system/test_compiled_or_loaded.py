"""What a process learns does not depend on whether it compiled its kernels or found them compiled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

LEARN = """
import hashlib, sys
import numpy as np
from shoal import StreamingDPMixture

for name in sys.argv[1:]:
    rng = np.random.default_rng(0)
    x = 6.0 * rng.normal(size=(5, 2))[rng.integers(5, size=1_500)] + rng.normal(size=(1_500, 2))
    model = StreamingDPMixture(name).partial_fit(x)
    told = model.means_.tobytes() + model.weights_.tobytes() + model.score_samples(x).tobytes()
    print(name, hashlib.sha256(told).hexdigest())
"""
FAMILIES = ("known_covariance", "diagonal")


@pytest.mark.timeout(1800)  # compiling takes long on a busy machine
def test_compiled_or_loaded_kernels_learn_the_same_to_the_bit(tmp_path: Path) -> None:
    """With refinement. In two processes; the first finds an empty folder, the second what the first left."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = {**os.environ, **one_thread, "SHOAL_KERNEL_CACHE": str(tmp_path)}
    found = [
        subprocess.run(
            [sys.executable, "-c", LEARN, *FAMILIES], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert list(tmp_path.rglob("*sweep_few_features*.nbc")), "the second process had kernels to load"
    assert found[0].count("\n") == len(FAMILIES)
    assert found[0] == found[1]
