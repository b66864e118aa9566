"""Points about to be learnt are standardised to the bits that questions are."""

import numpy as np
import pytest

from shoal.points.rows import standardised
from shoal.sequential.one_pass import standardise_into


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-300, 1e300])
def test_the_kernel_gives_what_numpy_gives(scale: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 7)) * 10.0 ** rng.integers(-20, 20, size=(200, 7))
    x[0, :4] = 1e308, -1e308, 0.0, -0.0
    location, width = rng.normal(size=7), scale * rng.uniform(0.5, 2.0, size=7)
    location[0] = -1.7e308
    got = np.empty_like(x)
    standardise_into(x, location, width, got)
    with np.errstate(over="ignore"):
        wanted = standardised(x, location, width)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))
