"""The share of a new component in the kernel, against exact arithmetic on the exponentials."""

import math
from fractions import Fraction

import pytest

from harness.compiled import from_python
from shoal.families import log_sum_exp_kernel

parted = from_python(log_sum_exp_kernel.parted)


@pytest.mark.parametrize("total", [1.0, 1.7, 40.0])
@pytest.mark.parametrize("gap", [-700.0, -40.0, -3.0, -1e-9, 0.0, 1e-9, 3.0, 40.0, 700.0])
def test_shares_of_the_new_and_the_others(gap: float, total: float) -> None:
    novelty, rest, surplus = parted(gap, total)
    new, old = Fraction(math.exp(gap)), Fraction(total)
    assert novelty == pytest.approx(float(new / (new + old)), rel=1e-14)
    assert rest == pytest.approx(float(old / (new + old)), rel=1e-14)
    assert max(gap, 0.0) + math.log(surplus) == pytest.approx(math.log(new + old), rel=1e-14, abs=1e-14)


@pytest.mark.parametrize(("gap", "share"), [(-1e4, 0.0), (-math.inf, 0.0), (1e4, 1.0)])
def test_what_no_number_is_small_enough_for_is_nothing(gap: float, share: float) -> None:
    assert parted(gap, 2.0)[0] == share
