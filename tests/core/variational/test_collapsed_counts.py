"""Distributions of counts, and one sweep over q(z), against enumeration of every outcome."""

from itertools import product

import numpy as np
import pytest
from scipy.special import gammaln

from shoal.points.arrays import Array
from shoal.variational.collapsed import Collapsed, taylor_sweep_reference_inplace
from shoal.variational.label_priors import Labels, LabelTerms, Sticks, Symmetric, plugged_in
from shoal.variational.poisson_binomial import count_moments, count_pmf, exact_value, taylor_value

MODELS = (Sticks, Symmetric)


def some_resp(n: int, t: int, seed: int = 0, sharpness: float = 1.0) -> Array:
    score = sharpness * np.random.default_rng(seed).normal(size=(n, t))
    weights = np.exp(score - score.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def enumerated(resp: Array, value: "dict[tuple[int, ...], float]") -> float:
    """Sum over all label vectors of q(z) times a value that depends on the counts alone."""
    total = 0.0
    for z in product(range(resp.shape[1]), repeat=len(resp)):
        q = np.prod(resp[np.arange(len(resp)), list(z)])
        total += float(q) * value[tuple(np.bincount(z, minlength=resp.shape[1]))]
    return total


def log_joints(labels: Labels, n: int, t: int) -> dict[tuple[int, ...], float]:
    """log p(z) of every vector of counts of n points."""
    terms = labels.terms(np.zeros(t), n)
    every = (c for c in product(range(n + 1), repeat=t) if sum(c) == n)
    return {c: plugged_in(terms, np.array(c, dtype=float)) for c in every}


def test_pmf_against_all_outcomes() -> None:
    p = np.random.default_rng(3).random((9, 2))
    want = np.zeros((2, 10))
    for flips in product([0, 1], repeat=9):
        hit = np.array(flips)[:, None] == 1
        want[:, sum(flips)] += np.where(hit, p, 1 - p).prod(axis=0)
    np.testing.assert_allclose(count_pmf(p), want, atol=1e-15, rtol=1e-13)


@pytest.mark.parametrize("n", [257, 1500])
def test_long_pmf_against_the_plain_recursion(n: int) -> None:
    p = np.random.default_rng(n).random((n, 3)) ** np.array([1.0, 8.0, 0.1])
    want = np.zeros((3, n + 1))
    want[:, 0] = 1.0
    for row in p:
        want[:, 1:] = want[:, 1:] * (1 - row[:, None]) + want[:, :-1] * row[:, None]
        want[:, 0] *= 1 - row
    np.testing.assert_allclose(count_pmf(p), want, atol=1e-15)


def test_certain_flips_leave_one_outcome() -> None:
    p = np.repeat([[1.0, 0.0], [0.0, 1.0]], [300, 20], axis=0)
    np.testing.assert_allclose(count_pmf(p)[[0, 1], [300, 20]], 1.0, atol=1e-14)


@pytest.mark.parametrize(
    ("c", "p", "exact", "taylor", "plug_in"), [(0.05, 0.01, -2.788, -4.527, -2.120), (1.0, 0.5, 1.4539, 1.4609, 1.504)]
)
def test_taylor_is_poor_where_the_offset_is_small(
    c: float, p: float, exact: float, taylor: float, plug_in: float
) -> None:
    """ERRATA 2.6: E log(c + m) for seven flips, taken as a tail of its own (minus log)."""
    resp = np.stack([np.full(7, 1.0 - p), np.full(7, p / 2), np.full(7, p / 2)], axis=1)
    terms = LabelTerms(np.ones(3), np.array([c]), 0.0)
    flat = LabelTerms(np.ones(3), np.zeros(0), 0.0)
    moments, bare = count_moments(resp, 1), count_moments(resp, 0)
    assert exact_value(flat, resp) - exact_value(terms, resp) == pytest.approx(exact, abs=6e-4)
    assert taylor_value(flat, bare) - taylor_value(terms, moments) == pytest.approx(taylor, abs=6e-4)
    assert plugged_in(flat, resp.sum(axis=0)) - plugged_in(terms, resp.sum(axis=0)) == pytest.approx(plug_in, abs=6e-4)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("t", [1, 2, 3, 4])
def test_exact_value_against_all_label_vectors(model: type[Labels], t: int, alpha: float) -> None:
    resp = some_resp(6, t)
    want = enumerated(resp, log_joints(model(alpha), 6, t))
    assert exact_value(model(alpha).terms(np.zeros(t), 6), resp) == pytest.approx(want, abs=1e-11)


@pytest.mark.parametrize("model", MODELS)
def test_exact_value_of_many_points_keeps_its_digits(model: type[Labels]) -> None:
    """Plain recursion and plain sums on one side, transforms and centred functions on the other."""
    n, t = 2000, 5
    resp = some_resp(n, t, sharpness=3.0)
    terms = model(1.0).terms(np.zeros(t), n)
    above = 1.0 - np.cumsum(resp, axis=1)[:, : terms.tail.size]
    pmf = np.zeros((t + terms.tail.size, n + 1))
    pmf[:, 0] = 1.0
    for row in np.concatenate([resp, above], axis=1):
        pmf[:, 1:] = pmf[:, 1:] * (1 - row[:, None]) + pmf[:, :-1] * row[:, None]
        pmf[:, 0] *= 1 - row
    m = np.arange(n + 1.0)
    want = terms.constant + (pmf[:t] * gammaln(terms.own[:, None] + m)).sum()
    want -= (pmf[t:] * np.log(terms.tail[:, None] + m)).sum()
    assert exact_value(terms, resp) == pytest.approx(want, abs=1e-8)
    assert taylor_value(terms, count_moments(resp, terms.tail.size)) == pytest.approx(want, abs=1e-3)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("alpha", [0.3, 4.0])
@pytest.mark.parametrize("t", [1, 2, 4])
@pytest.mark.short_form("4-4.0-Sticks", "4-0.3-Symmetric", "[12]-*")
def test_exact_sweep_against_all_label_vectors(model: type[Labels], alpha: float, t: int) -> None:
    n = 5
    rng = np.random.default_rng(8)
    resp, scores = some_resp(n, t), rng.normal(size=(n, t))
    joints = log_joints(model(alpha), n, t)
    want = resp.copy()
    for i in range(n):
        expected = []
        for k in range(t):
            fixed = want.copy()
            fixed[i] = np.eye(t)[k]
            expected.append(enumerated(fixed, joints) + scores[i, k])
        weights = np.exp(np.array(expected) - max(expected))
        want[i] = weights / weights.sum()
    Collapsed(model(alpha), "exact").divide_inplace(resp, np.zeros(t), lambda rows: scores[rows])
    np.testing.assert_allclose(resp, want, atol=1e-12)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("t", [1, 2, 3, 7])
@pytest.mark.parametrize("sharpness", [0.5, 20.0])
def test_taylor_kernel_is_the_reference(model: type[Labels], t: int, sharpness: float) -> None:
    n = 60
    scores = 2.0 * np.random.default_rng(2).normal(size=(n, t))
    resp = some_resp(n, t, sharpness=sharpness)
    want = resp.copy()
    base = np.linspace(0.0, 2.0, t)
    for _ in range(3):
        Collapsed(model(0.7), "taylor").divide_inplace(resp, base, lambda rows: scores[rows])
        taylor_sweep_reference_inplace(want, scores, model(0.7).terms(base, n))
    np.testing.assert_allclose(resp, want, atol=1e-9)


def test_sweeps_of_certain_points_agree_whatever_the_expectations() -> None:
    """Where every other point is certain no count varies, and second order is exact (ERRATA 0.2)."""
    scores = 40.0 * np.eye(4)[np.random.default_rng(4).integers(4, size=50)]
    resp = (scores > 0.0).astype(float)
    other = resp.copy()
    for model in MODELS:
        Collapsed(model(1.0), "exact").divide_inplace(resp, np.zeros(4), lambda rows: scores[rows])
        Collapsed(model(1.0), "taylor").divide_inplace(other, np.zeros(4), lambda rows: scores[rows])
        np.testing.assert_allclose(resp, other, atol=1e-12)
