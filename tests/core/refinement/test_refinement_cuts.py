"""Refinements of an estimator's stream begin at the same rows however these are cut into calls."""

import numpy as np
import pytest

from harness.short_form import longer
from shoal import StreamingDPMixture
from shoal.points.arrays import Array

N = 2_000


def clusters_one_by_one(seed: int) -> Array:
    """Points of six clusters, of which one more begins every 300 points."""
    rng = np.random.default_rng(seed)
    newest = np.minimum(np.arange(N) // 300, 5)
    z = np.where(rng.random(N) < 0.5, newest, rng.integers(0, newest + 1))
    return 6.0 * np.stack(np.divmod(z, 3), axis=1) + rng.normal(size=(N, 2))


def learnt(x: Array, step: int) -> bytes:
    model = StreamingDPMixture("known_covariance", window=130, warmup_points=100)
    for start in range(0, N, step):
        model.partial_fit(x[start : start + step])
    return model._fitted.to_bytes()


@pytest.mark.parametrize("seed", [0, longer(3)])
def test_births_in_a_short_window_do_not_make_the_result_depend_on_the_cut(seed: int) -> None:
    """A birth took effect between two points of the grid where a call ended there."""
    x = clusters_one_by_one(seed)
    whole = learnt(x, N)
    for step in (30, 71, 333):
        assert learnt(x, step) == whole
