"""What a process learns does not depend on whether it compiled its kernels or found them compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LEARN = """
import hashlib, json, sys
import numpy as np
from numba.core import event
from shoal import StreamingDPMixture

rng = np.random.default_rng(0)
x = 6.0 * rng.normal(size=(5, 2))[rng.integers(5, size=1_500)] + rng.normal(size=(1_500, 2))
settings = json.loads(sys.argv[1])
if settings["family"] == "poisson":
    x = rng.poisson(np.exp(0.2 * x)).astype(float)
with event.install_recorder("numba:compile") as recorder:
    model = StreamingDPMixture(**settings).partial_fit(x)
    told = model.means_.tobytes() + model.weights_.tobytes() + model.score_samples(x).tobytes()
print(sum(one.is_start for _, one in recorder.buffer))
print(hashlib.sha256(told).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)  # compiling takes long on a busy machine
@pytest.mark.parametrize(
    "settings",
    [{"family": "poisson", "refinement": None}, {"family": "diagonal"}, {"family": "known_covariance"}],
    ids=lambda settings: settings["family"],
)
def test_a_second_process_compiles_nothing_and_learns_the_same_to_the_bit(
    settings: dict[str, str | None], tmp_path: Path
) -> None:
    """In two processes; the first finds an empty folder, the second what the first left. That a second process
    compiles nothing is in `test_cold_kernels` too."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    environment = {**os.environ, **one_thread, "SHOAL_KERNEL_CACHE": str(tmp_path)}
    (compiled, learnt), (compiled_again, learnt_again) = (
        subprocess.run(
            [sys.executable, "-c", LEARN, json.dumps(settings)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    )
    for kernel in ("sva_pass",) if "refinement" in settings else ("sva_pass", "sweep_few_features"):
        assert list(tmp_path.rglob(f"*{kernel}*.nbc")), "the second process had kernels to load"
    assert int(compiled) > 0
    assert int(compiled_again) == 0
    assert learnt_again == learnt
