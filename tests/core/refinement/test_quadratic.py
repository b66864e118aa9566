"""A sweep by kernel against an E- and an M-step by the family's own methods."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily, BetaBernoulli, KnownCovariance, NormalInverseGamma, NormalInverseWishart, take
from shoal.families.capabilities import quadratic_form
from shoal.refinement import quadratic
from shoal.refinement.forms import largest_eigenvalues
from shoal.refinement.ground import Ground
from shoal.refinement.quadratic import swept
from shoal.refinement.reach_kernel import UNIT
from shoal.refinement.reaches import bounds_of
from shoal.refinement.screens import screen_of, write_distances
from shoal.refinement.sweeps import divided, log_weights

LOG_FLOOR = float(np.log(1e-6))
FAMILIES = ["gaussian", "diagonal", "known_covariance"]


def family_of(name: str, d: int) -> AnyFamily:
    return {
        "gaussian": lambda: NormalInverseWishart(np.zeros(d), 0.01, d + 2.0, 0.3 * np.eye(d)),
        "diagonal": lambda: NormalInverseGamma(np.zeros(d), 0.01, 1.5, np.full(d, 0.3)),
        "known_covariance": lambda: KnownCovariance(np.zeros(d), 100.0, 1.0),
    }[name]()


def clusters(d: int, t: int, apart: float, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """(n, d) points of t clusters of uneven shapes, and the cluster of each."""
    rng = np.random.default_rng(d + t)
    z = rng.integers(t, size=n)
    shape = rng.normal(size=(t, d, d)) / np.sqrt(d)
    return apart * rng.normal(size=(t, d))[z] + np.einsum("nde,ne->nd", shape[z], rng.normal(size=(n, d))), z


def check(family: AnyFamily, x: np.ndarray, z: np.ndarray, weights: np.ndarray) -> None:
    t = int(z.max()) + 1
    ground = Ground(x, weights)
    stats = family.suffstats(x, np.eye(t)[z] * weights[:, None])
    params, log_weight = family.posterior(stats), log_weights(1.0, stats[0], np.zeros(t))
    rng = np.random.default_rng(1)
    past = family.suffstats(x[:40] + rng.normal(size=x.shape[1]), rng.uniform(size=(40, t)))
    past = family.scale(past, np.arange(t) % 3 > 0)  # some components have none
    near = csr_matrix((np.ones(len(x)), rng.integers(t, size=len(x)), np.arange(len(x) + 1)), shape=(len(x), t))
    found = swept(ground, family, params, log_weight, LOG_FLOOR, past)
    guided = swept(ground, family, params, log_weight, LOG_FLOOR, past, near)
    assert found is not None
    assert guided is not None
    np.testing.assert_array_equal(guided.resp.indices, found.resp.indices)
    np.testing.assert_array_equal(guided.resp.data, found.resp.data)
    for name in ("entropy", "dropped", "mass"):
        np.testing.assert_allclose(getattr(guided, name), getattr(found, name), rtol=1e-9, atol=1e-12)
    for values, wanted in zip(guided.stats, found.stats, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-11 * max(1.0, np.abs(wanted).max()))
    expected = divided(ground, family, params, log_weight)
    resp = expected.resp.toarray()
    np.testing.assert_allclose(found.resp.toarray(), resp, rtol=1e-7, atol=1e-12)
    assert found.resp.has_sorted_indices
    assert found.entropy == pytest.approx(expected.entropy, rel=1e-8, abs=1e-9)
    assert found.dropped == pytest.approx(expected.dropped, rel=1e-6, abs=len(x) * t * 1e-11)
    window = family.suffstats(x, resp * weights[:, None])
    np.testing.assert_allclose(found.mass, window[0], rtol=1e-9)
    for values, wanted in zip(found.stats, family.add(window, past), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-7, atol=1e-9 * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    ("d", "t", "apart"), [(1, 2, 1.0), (2, 5, 2.0), (7, 3, 1.0), (20, 12, 0.5), (20, 12, 4.0), (37, 30, 1.0)]
)
def test_a_sweep_is_the_two_steps(name: str, d: int, t: int, apart: float) -> None:
    x, z = clusters(d, t, apart)
    check(family_of(name, d), x, z, np.ones(len(x)))
    check(family_of(name, d), x, z, np.random.default_rng(0).uniform(0.1, 1.0, len(x)))


@pytest.mark.parametrize("name", FAMILIES)
def test_far_from_the_origin_no_digits_are_lost(name: str) -> None:
    x, z = clusters(8, 4, 3.0)
    check(family_of(name, 8), x + 1e6, z, np.ones(len(x)))


@pytest.mark.parametrize("name", FAMILIES)
def test_components_that_bounds_leave_out_would_have_counted_for_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, z = clusters(12, 9, 6.0)
    family, ground = family_of(name, 12), Ground(x, np.ones(len(x)))
    stats = family.suffstats(x, np.eye(9)[z])
    params, log_weight = family.posterior(stats), log_weights(1.0, stats[0], np.zeros(9))
    some = swept(ground, family, params, log_weight, LOG_FLOOR, family.empty_stats(len(params[0])))
    form = quadratic_form(family, params)
    assert form is not None
    reach = bounds_of(None, form, None, len(x)).of(x, slice(0, len(x)))
    scores = family.expected_log_likelihood(params, x) + log_weight
    upper = form.constant + log_weight - 0.5 * np.square(reach.levels * UNIT)
    assert np.all(upper >= scores - 1e-9 * np.abs(scores)), "an upper value that is none"
    assert np.mean(upper < scores.max(axis=1, keepdims=True) - 30.0) > 0.3, "nothing is left out"
    monkeypatch.setattr(quadratic, "_FEW_FEATURES", 12)
    every = swept(ground, family, params, log_weight, LOG_FLOOR, family.empty_stats(len(params[0])))
    assert some is not None
    assert every is not None
    np.testing.assert_array_equal(some.resp.indices, every.resp.indices)
    np.testing.assert_allclose(some.resp.data, every.resp.data, rtol=1e-9)
    for values, wanted in zip(some.stats, every.stats, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [1e-40, 1e-20, 1e-6, 1.0, 1e6, 1e14, 1e20, 1e60])
@pytest.mark.parametrize("tight", [1e-7, 1e-2, 1.0])
def test_bounds_hold_in_single_precision_too(size: float, tight: float) -> None:
    """Of points of any size, about centres far apart and nearly the same; and of clouds that it would blur, double
    precision is used."""
    rng, d = np.random.default_rng(3), 20
    centre = size * rng.normal(size=(40, d))
    centre[20:] = centre[:20] * (1.0 + 1e-8 * rng.normal(size=(20, d)))
    x = centre[rng.integers(40, size=300)] + tight * size * rng.normal(size=(300, d))
    x[0] = centre.mean(axis=0)
    width = np.full((40, d), 1.0 / (tight * size))
    screen = screen_of(centre, width[:, 0])
    assert (screen.single is not None) == (size < 1e16 and tight > 1e-4)
    levels = np.empty((300, 40), np.uint16)
    write_distances(x, screen, np.arange(40), levels)
    reach = levels * UNIT
    distance = np.sqrt(np.square((x[:, None] - centre) * width[0, 0]).sum(axis=2))
    assert np.all(reach <= distance)
    if size > 1e-12:
        assert np.mean(np.square(reach) >= np.minimum(0.9 * np.square(distance) - 40.0, 1e6)) > 0.9


@pytest.mark.parametrize("name", FAMILIES)
def test_a_component_far_from_its_prior_place_is_summed_anew(name: str) -> None:
    """Parameters from elsewhere: sums about their centre would lose the digits of what the rows are about their own."""
    x, z = clusters(3, 2, 1.0)
    family, ground = family_of(name, 3), Ground(1e-4 * x, np.ones(len(x)))
    stats = family.suffstats(1e3 + x, np.eye(2)[z])
    found = swept(ground, family, family.posterior(stats), np.zeros(2), LOG_FLOOR, family.empty_stats(len(stats[0])))
    assert found is not None
    window = family.suffstats(ground.x, found.resp.toarray())
    for values, wanted in zip(found.stats, window, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", ["diagonal", "known_covariance"])
def test_rows_that_repeat_have_no_scatter_below_nothing(name: str) -> None:
    rng = np.random.default_rng(0)
    places, z = 3.0 * rng.normal(size=(30, 20)), np.arange(900) % 30
    family, ground = family_of(name, 20), Ground(places[z], rng.uniform(0.1, 1.0, 900))
    stats = family.suffstats(ground.x, np.eye(30)[z] * ground.weights[:, None])
    found = swept(ground, family, family.posterior(stats), np.zeros(30), LOG_FLOOR, family.empty_stats(len(stats[0])))
    assert found is not None
    assert found.stats.scatter.min() >= 0.0
    assert found.stats.scatter.max() < 1e-20


@pytest.mark.parametrize("name", FAMILIES)
def test_a_component_without_a_row_has_empty_statistics(name: str) -> None:
    x, z = clusters(3, 2, 1.0)
    family = family_of(name, 3)
    stats = family.suffstats(np.vstack([x, x[:5] + 1e4]), np.eye(3)[np.append(z, np.full(5, 2))])
    found = swept(
        Ground(x, np.ones(len(x))), family, family.posterior(stats), np.zeros(3), LOG_FLOOR, family.empty_stats(3)
    )
    assert found is not None
    for values, wanted in zip(take(found.stats, [2]), family.empty_stats(1), strict=True):
        np.testing.assert_array_equal(values, wanted)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("far", [0.0, 1e9])
def test_a_component_whose_rows_have_left_the_window_keeps_its_past(name: str, far: float) -> None:
    """`far` from the origin of the others, sums of squares lose their digits: then all are added up anew."""
    x, z = clusters(3, 2, 1.0)
    x[z == 1] += far
    family, gone = family_of(name, 3), np.random.default_rng(2).normal(size=(5, 3)) - 1e4
    past = family.suffstats(np.vstack([x[z == 0][:7], gone]), np.eye(3)[np.repeat([0, 2], [7, 5])])
    stats = family.add(family.suffstats(x, np.eye(3)[z]), past)
    found = swept(Ground(x, np.ones(len(x))), family, family.posterior(stats), np.zeros(3), LOG_FLOOR, past)
    assert found is not None
    assert found.mass[2] == 0.0
    for values, wanted in zip(take(found.stats, [2]), take(past, [2]), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-12)
    window = family.suffstats(x, found.resp.toarray())
    for values, wanted in zip(found.stats, family.add(window, past), strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-6, atol=1e-8 * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("d", [5, 20, 64])
def test_no_eigenvalue_is_larger_than_the_bound(d: int) -> None:
    """Round, of one direction, of half of them, and what rows come to."""
    rng = np.random.default_rng(d)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    spectra = [np.ones(d), np.geomspace(1.0, 1e-12, d), np.where(np.arange(d) < d // 2, 1.0, 1e-3)]
    spectra += [rng.uniform(0.1, 1.0, d) for _ in range(3)]
    matrices = np.array([turn * spectrum @ turn.T for spectrum in spectra] + [1e80 * turn @ turn.T, 1e-80 * np.eye(d)])
    matrices = np.concatenate([matrices, [np.cov(rng.normal(size=(d, 3 * d))) for _ in range(3)]])
    bound, largest = largest_eigenvalues(matrices), np.linalg.eigvalsh(matrices)[:, -1]
    assert np.all(bound * (1.0 + 1e-6) >= largest)
    assert np.all(bound <= 1.5 * largest)


def test_families_whose_scores_are_no_quadratic_form_are_left_to_the_two_steps() -> None:
    family = BetaBernoulli(np.ones(3), np.ones(3))
    assert quadratic_form(family, family.posterior(family.empty_stats(1))) is None
    turned = KnownCovariance(np.zeros(2), 10.0, np.array([[1.0, 0.5], [0.5, 1.0]]))
    assert quadratic_form(turned, turned.posterior(turned.empty_stats(1))) is None


def test_a_guess_that_is_no_component_is_none() -> None:
    """Responsibilities of a row are none where all its scores were -inf, and of more components than there are."""
    family = family_of("gaussian", 7)
    x, z = clusters(7, 3, 1.0, n=20)
    ground, stats = Ground(x, np.ones(20)), family.suffstats(x, np.eye(3)[z])
    given = ground, family, family.posterior(stats), log_weights(1.0, stats[0], np.zeros(3)), LOG_FLOOR
    near = csr_matrix((np.ones(2), np.array([9, 9]), np.minimum(np.arange(21), 2)), shape=(20, 10))
    found, guided = swept(*given, family.empty_stats(3)), swept(*given, family.empty_stats(3), near)
    assert found is not None
    assert guided is not None
    np.testing.assert_array_equal(guided.resp.toarray(), found.resp.toarray())
