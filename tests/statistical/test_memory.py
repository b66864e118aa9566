"""Memory does not grow with the stream."""

import subprocess
import sys

import pytest

_CODE = """
import resource, sys
sys.path[:0] = {path!r}
import numpy as np
from shoal import StreamingDPMixture
from shoal.sequential import warm_kernels
warm_kernels()
rng, model = np.random.default_rng(0), StreamingDPMixture({family!r})
for _ in range({points} // 50_000):
    z = rng.integers(9, size=50_000)
    model.partial_fit(4.0 * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(50_000, 2)))
assert model._fitted.state.points_seen == {points}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def _peak(points: int, family: str) -> int:
    code = _CODE.format(path=[entry for entry in sys.path if entry], points=points, family=family)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=True)
    return int(found.stdout)


@pytest.mark.parametrize("few", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_peak_memory_of_ten_times_as_many_points_is_the_same(few: int) -> None:
    """Within 5 %. The first process also fills the kernel cache, so that the two that count only read it."""
    _peak(50_000, "gaussian")
    less, more = (_peak(points, "gaussian") for points in (few, 10 * few))
    assert more < 1.05 * less
