"""A sweep against an E- and an M-step by the family's own methods; the compiled one among them."""

import warnings

import numpy as np
import pytest

from shoal.families import AnyFamily, BetaBernoulli, KnownCovariance, NormalInverseGamma, NormalInverseWishart, take
from shoal.families.capabilities import quadratic_form
from shoal.inference import (
    Model,
    PastStats,
    State,
    StickPrior,
    SweepStart,
    WindowData,
    no_past,
    normalized,
    sweep,
    swept_from,
)
from shoal.inference.sweep import FEW_FEATURES, LOG_FLOOR, nearest, window_log_weights
from shoal.inference.sweep_kernel import UNSCORED
from shoal.points.arrays import Array

STICKS = StickPrior(1.0, 1.0)
FAMILIES = ["gaussian", "diagonal", "known_covariance"]


def family_of(name: str, d: int) -> AnyFamily:
    return {
        "gaussian": lambda: NormalInverseWishart(np.zeros(d), 0.01, d + 2.0, 0.3 * np.eye(d)),
        "diagonal": lambda: NormalInverseGamma(np.zeros(d), 0.01, 1.5, np.full(d, 0.3)),
        "known_covariance": lambda: KnownCovariance(np.zeros(d), 100.0, 1.0),
    }[name]()


def clusters(d: int, t: int, apart: float, n: int = 600) -> tuple[Array, Array]:
    """(n, d) points of t clusters of uneven shapes, and the cluster of each."""
    rng = np.random.default_rng(d + t)
    z = rng.integers(t, size=n)
    shape = rng.normal(size=(t, d, d)) / np.sqrt(d)
    return apart * rng.normal(size=(t, d))[z] + np.einsum("nde,ne->nd", shape[z], rng.normal(size=(n, d))), z


def swept(family: AnyFamily, x: Array, weights: Array, params: object, mass: Array, past: PastStats) -> State:
    data = WindowData(x, weights)
    return swept_from(data, Model(family, STICKS), SweepStart(params, mass, past, np.arange(mass.size)))


def check(family: AnyFamily, x: Array, z: Array, weights: Array, rtol: float = 1e-7) -> None:
    t = int(z.max()) + 1
    stats = family.suffstats(x, np.eye(t)[z] * weights[:, None])
    params, rng = family.posterior(stats), np.random.default_rng(1)
    gone = family.suffstats(x[:40] + rng.normal(size=x.shape[1]), rng.uniform(size=(40, t)))
    past = no_past(family, t)._replace(stats=family.scale(gone, np.arange(t) % 3 > 0))  # some components have none
    found = swept(family, x, weights, params, stats[0], past)
    log_weight = window_log_weights(STICKS, stats[0], past.mass)
    data = WindowData(x, weights)
    expected = normalized(data, data.score_blocks(family, params), log_weight)
    resp = expected.resp.toarray()
    np.testing.assert_allclose(found.resp.toarray(), resp, rtol=rtol, atol=1e-12)
    assert found.resp.has_sorted_indices
    assert found.entropy == pytest.approx(expected.entropy, rel=1e-7, abs=1e-9)
    assert found.dropped == pytest.approx(expected.dropped, rel=1e-5, abs=len(x) * t * 1e-10)
    window = family.suffstats(x, resp * weights[:, None])
    np.testing.assert_allclose(found.window_mass, window[0], rtol=1e-9)
    for values, wanted in zip(found.stats, family.add(window, past.stats), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-6, atol=1e-9 * max(1.0, np.abs(wanted).max()))


def test_a_component_that_a_sweep_rules_out_stays_ruled_out_for_some_sweeps() -> None:
    """A bound that only just did was lost with the next change, and every sweep summed the distance again."""
    x, z = clusters(20, 12, 1.0)
    family, t = family_of("gaussian", 20), 12
    stats = family.suffstats(x, np.eye(t)[z])
    params, data = family.posterior(stats), WindowData(x, np.ones(len(x)))
    start = SweepStart(params, stats[0], no_past(family, t), np.arange(t))
    swept_from(data, Model(family, STICKS), start)
    assert data.distance_bounds is not None
    data.distance_bounds.least[:] = 0.0
    swept_from(data, Model(family, STICKS), start)
    form = quadratic_form(family, params)
    assert form is not None
    away = np.einsum("kde,nke->nkd", np.tril(form.root), x[:, None] - form.centre)
    square = np.square(away).sum(axis=2)
    constant = form.constant + window_log_weights(STICKS, stats[0], np.zeros(t))
    best = (constant - 0.5 * square).max(axis=1, keepdims=True)
    rules_out = 2.0 * (constant - best - LOG_FLOOR - UNSCORED)
    far = square > 2.0 * rules_out
    assert far.sum() > 100
    assert (np.square(data.distance_bounds.least)[far] > 1.99 * rules_out[far]).all()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(("d", "t", "apart"), [(1, 2, 1.0), (2, 5, 2.0), (4, 12, 1.0), (7, 3, 1.0), (20, 12, 4.0)])
def test_a_sweep_is_the_two_steps(name: str, d: int, t: int, apart: float) -> None:
    x, z = clusters(d, t, apart)
    check(family_of(name, d), x, z, np.ones(len(x)))
    check(family_of(name, d), x, z, np.random.default_rng(0).uniform(0.1, 1.0, len(x)))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("d", [2, 8])
def test_far_from_the_origin_no_digits_are_lost(name: str, d: int) -> None:
    x, z = clusters(d, 4, 3.0)
    check(family_of(name, d), x + 1e6, z, np.ones(len(x)))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_component_far_from_its_rows_is_summed_again(name: str) -> None:
    """Sums about the centre of other parameters would lose the digits of the scatter about the rows' own mean."""
    x, z = clusters(3, 2, 1.0)
    family, rows = family_of(name, 3), 1e-4 * x
    stats = family.suffstats(1e3 + x, np.eye(2)[z])
    found = swept(family, rows, np.ones(len(x)), family.posterior(stats), np.ones(2), no_past(family, 2))
    window = family.suffstats(rows, found.resp.toarray())
    for values, wanted in zip(found.stats, window, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", ["diagonal", "known_covariance"])
@pytest.mark.parametrize("d", [3, 20])
def test_rows_that_repeat_have_no_scatter_below_nothing(name: str, d: int) -> None:
    rng = np.random.default_rng(0)
    places, z = 3.0 * rng.normal(size=(30, d)), np.arange(900) % 30
    family, weights = family_of(name, d), rng.uniform(0.1, 1.0, 900)
    stats = family.suffstats(places[z], np.eye(30)[z] * weights[:, None])
    found = swept(family, places[z], weights, family.posterior(stats), np.ones(30), no_past(family, 30))
    assert found.stats.scatter.min() >= 0.0
    assert found.stats.scatter.max() < 1e-20 or d == 3


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("d", [3, 6])
def test_a_component_without_a_row_has_empty_statistics(name: str, d: int) -> None:
    x, z = clusters(d, 2, 1.0)
    family = family_of(name, d)
    stats = family.suffstats(np.vstack([x, x[:5] + 1e4]), np.eye(3)[np.append(z, np.full(5, 2))])
    found = swept(family, x, np.ones(len(x)), family.posterior(stats), np.ones(3), no_past(family, 3))
    for values, wanted in zip(take(found.stats, [2]), family.empty_stats(1), strict=True):
        np.testing.assert_array_equal(values, wanted)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("far", [0.0, 1e9])
def test_a_component_whose_rows_have_left_the_window_keeps_its_past(name: str, far: float) -> None:
    """`far` from the origin of the others, sums of squares lose their digits: then all are summed again."""
    x, z = clusters(3, 2, 1.0)
    x[z == 1] += far
    family, gone = family_of(name, 3), np.random.default_rng(2).normal(size=(5, 3)) - 1e4
    old = family.suffstats(np.vstack([x[z == 0][:7], gone]), np.eye(3)[np.repeat([0, 2], [7, 5])])
    stats = family.add(family.suffstats(x, np.eye(3)[z]), old)
    past = no_past(family, 3)._replace(stats=old)
    found = swept(family, x, np.ones(len(x)), family.posterior(stats), np.ones(3), past)
    assert found.window_mass[2] == 0.0
    for values, wanted in zip(take(found.stats, [2]), take(old, [2]), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-12)


def test_families_without_a_quadratic_form_have_none() -> None:
    family = BetaBernoulli(np.ones(3), np.ones(3))
    assert quadratic_form(family, family.posterior(family.empty_stats(1))) is None
    turned = KnownCovariance(np.zeros(2), 10.0, np.array([[1.0, 0.5], [0.5, 1.0]]))
    assert quadratic_form(turned, turned.posterior(turned.empty_stats(1))) is None


def test_the_past_counts_for_a_hundred_points_in_the_weights() -> None:
    window, gone = np.array([60.0, 40.0]), np.array([100.0, 900.0])
    found = window_log_weights(STICKS, window, gone)
    np.testing.assert_allclose(found, window_log_weights(STICKS, window + np.array([10.0, 90.0]), np.zeros(2)))
    few = window_log_weights(STICKS, window, np.array([0.0, 5.0]))
    np.testing.assert_allclose(few, window_log_weights(STICKS, np.array([60.0, 45.0]), np.zeros(2)))
    assert FEW_FEATURES == 4


def test_points_beyond_single_precision_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nearest(np.zeros(2), np.array([[1e30, 1e10], [1.0, 2.0]], np.float32)).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["gaussian", "diagonal"])
@pytest.mark.parametrize("d", [3, FEW_FEATURES + 1])
def test_statistics_of_ordinary_points_are_those_of_the_compiled_pass(
    name: str, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong second moment looks like one that lost digits: it would be computed again, and only the time be lost."""
    monkeypatch.setattr(sweep, "m_step", None)
    x, z = clusters(d, 3, 6.0)
    check(family_of(name, d), x, z, np.random.default_rng(2).uniform(0.4, 1.0, len(x)))
