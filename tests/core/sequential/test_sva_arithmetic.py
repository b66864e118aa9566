"""The kernels' own logarithm, exponential and log-gamma difference against NumPy, SciPy and exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.special import gammaln

from shoal.kernels import math as kernels
from shoal.runtime.kernels import kernel

# Each of them is a kernel, so that it is compiled once and kept on disk. One that is handed a function is not.


@kernel()
def logs_positive(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = kernels.log_positive(x[i])
    return out


@kernel()
def logs_one_plus(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = kernels.log_one_plus(x[i])
    return out


@kernel()
def exps_negative(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = kernels.exp_negative(x[i])
    return out


@kernel()
def lgamma_step(a, step):
    return kernels.lgamma_step(a, step)


def ulps(got, expected):
    return np.max(np.abs(got - expected) / np.spacing(np.abs(expected)))


def test_log_positive():
    rng = np.random.default_rng(0)
    x = np.concatenate([np.exp(rng.uniform(-700, 700, 20_000)), 1 + rng.uniform(-1e-3, 1e-3, 10_000)])
    x = np.concatenate([x, [np.finfo(float).tiny, np.finfo(float).max, 0.5, 2.0]])
    assert ulps(logs_positive(x), np.log(x)) <= 2
    assert logs_positive(np.array([1.0, np.inf])).tolist() == [0.0, pytest.approx(709.78, rel=1e-4)]


def test_log_one_plus():
    u = np.concatenate([np.exp(np.random.default_rng(1).uniform(-300, 300, 20_000)), [0.0, 1e-17, 1e300]])
    np.testing.assert_allclose(logs_one_plus(u), np.log1p(u), rtol=1e-15)


def test_exp_negative():
    x = -np.exp(np.random.default_rng(2).uniform(-30, np.log(706), 20_000))
    assert ulps(exps_negative(x), np.exp(x)) <= 2
    assert exps_negative(np.zeros(1))[0] == 1.0
    floor = exps_negative(np.array([-708.0, -1e5, -1e300, -np.inf]))
    assert (floor == floor[0]).all()
    assert np.finfo(float).tiny < floor[0] < 1e-306


@pytest.mark.parametrize("step", [-1.0, -0.5, 0.3, 0.5, 1.0, 7.5, 8.0, 16.5, 64.0])
def test_lgamma_step(step):
    a = np.concatenate([np.linspace(1.1, 60, 200), np.geomspace(60, 1e5, 100)])
    got = np.array([lgamma_step(float(v), step) for v in a])
    np.testing.assert_allclose(got, gammaln(a + step) - gammaln(a), rtol=1e-12, atol=1e-9)


def test_lgamma_step_keeps_its_digits_where_the_difference_loses_them():
    """A whole step is a product, exact in rationals: G(a + 3) / G(a) = a (a + 1) (a + 2)."""
    for a in (24.0, 1e3, 1e9, 1e12):
        exact = Fraction(a) * (Fraction(a) + 1) * (Fraction(a) + 2)
        assert lgamma_step(a, 3.0) == pytest.approx(float(np.log(float(exact))), rel=1e-15)


def test_a_step_down_to_where_no_series_holds():
    for a, step in ((24.0, -23.5), (30.0, -29.5), (25.0, -1.0)):
        assert lgamma_step(a, step) == pytest.approx(gammaln(a + step) - gammaln(a), rel=1e-14)


def test_two_half_steps_are_a_whole_one():
    """G(a + 1/2) / G(a) is no rational, two of them in a row are: a. Each lies between sqrt(a - 1/4) and
    sqrt(a - 1/2 + 1/pi) (Watson 1959), which leaves it little room for an error that the other makes good."""
    for a in (24.0, 24.5, 31.7, 1e2, 1e4, 1e9, 1e15):
        half = lgamma_step(a, 0.5)
        assert half + lgamma_step(a + 0.5, 0.5) == pytest.approx(np.log(a), rel=4e-16, abs=0)
        assert 0.5 * np.log(a - 0.25) - 1e-15 <= half <= 0.5 * np.log(a - 0.5 + 1 / np.pi) + 1e-15
        steps = lgamma_step(a, 0.5) + np.log(float((Fraction(a) + Fraction(1, 2)) * (Fraction(a) + Fraction(3, 2))))
        assert lgamma_step(a, 2.5) == pytest.approx(steps, rel=1e-15)
