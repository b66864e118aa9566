"""Logarithms of sums of exponentials, as SciPy and as exact arithmetic give them."""

from fractions import Fraction
from math import log, log1p

import numpy as np
import pytest
from scipy.special import logsumexp

from shoal.kernels.log_sum_exp import log_sum_exp


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e3, 1e200])
@pytest.mark.parametrize("shape", [(1,), (25,), (2, 25), (4, 3, 7), (6, 1)])
def test_it_is_scipys_for_any_shape_and_size(shape: tuple[int, ...], size: float) -> None:
    values = size * np.random.default_rng(3).normal(size=shape)
    np.testing.assert_allclose(log_sum_exp(values), logsumexp(values, axis=-1, keepdims=True), rtol=1e-15, atol=1e-15)


def test_terms_that_are_equal_count_each() -> None:
    assert log_sum_exp(np.array([[700.0] * 8, [-900.0] * 8]))[:, 0] == pytest.approx([700 + log(8), log(8) - 900])


def test_what_is_small_beside_the_largest_is_kept() -> None:
    """Whose sum is below a rounding of one."""
    gap = 37.0
    small = float(3 * Fraction(np.exp(-gap)))
    assert log_sum_exp(np.array([0.0, -gap, -gap, -gap]))[0] == pytest.approx(log1p(small), rel=1e-14)
