"""Ceilings compared a block at a time give the rows that NumPy gives."""

import numba
import numpy as np
import pytest

from shoal.kernels.threshold import BLOCK, fill_up, place_of_largest, places_from
from shoal.points.arrays import Array


@numba.njit
def _looked_at(ceiling: Array, n: int, least: Array):
    active = np.empty(n + 1, np.uint64)
    fill_up(ceiling, n)
    return place_of_largest(ceiling, n), active[: places_from(ceiling, n, least[0], active)]


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200, 1_000])
def test_rows_as_numpy_has_them(n):
    rng = np.random.default_rng(n)
    for kind in range(20):
        ceiling = np.full(n + BLOCK, np.nan, np.float32)  # what was there before must not matter
        ceiling[n:] = rng.choice([np.inf, np.nan, 1e30], size=BLOCK)
        ceiling[:n] = rng.normal(size=n) * 10.0 ** rng.uniform(-3, 30) - 1e31 * (kind % 2)
        if kind % 5 == 0:
            ceiling[:n] = rng.choice(ceiling[:n], size=n)  # ties
        if kind % 7 == 0:
            ceiling[:n] = -1e38
        own = ceiling[:n].copy()
        for least in (np.float32(-1e38), *rng.choice(own, size=3), own.max(), np.float32(3e38)):
            place, rows = _looked_at(ceiling, n, np.array([least], np.float32))
            assert own[place] == own.max()
            np.testing.assert_array_equal(rows, np.flatnonzero(own >= least))
            np.testing.assert_array_equal(ceiling[:n], own)
