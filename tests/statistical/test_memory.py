"""Memory does not grow with the stream."""

import subprocess
import sys

import numpy as np
import pytest

from shoal import StreamingDPMixture

_CODE = """
import resource, sys
sys.path[:0] = {path!r}
import numpy as np
from shoal import StreamingDPMixture
rng, model = np.random.default_rng(0), StreamingDPMixture("gaussian")
for n in range(50_000, 10 * {few} + 1, 50_000):
    z = rng.integers(9, size=50_000)
    model.partial_fit(4.0 * np.stack([z % 3, z // 3], axis=1) + rng.normal(size=(50_000, 2)))
    if n in ({few}, 10 * {few}):
        print(model._fitted.state.points_seen, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("few", [200_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_peak_memory_of_ten_times_as_many_points_is_the_same(few: int) -> None:
    """Of one process, within 2 %: one that keeps the rows is 4 % above. It only loads kernels, as they are compiled
    here."""
    StreamingDPMixture("gaussian").partial_fit(4.0 * np.random.default_rng(0).normal(size=(20_000, 2)))
    code = _CODE.format(path=[entry for entry in sys.path if entry], few=few)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=500, check=True)
    (points_before, before), (points_after, after) = (map(int, line.split()) for line in found.stdout.splitlines())
    assert (points_before, points_after) == (few, 10 * few)
    assert after < 1.02 * before
