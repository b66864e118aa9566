"""Births, refusals, floors and reports."""

import numpy as np
import pytest

from harness.short_form import longer
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import PassResult, Piece, new_components
from shoal.sequential.reference import reference_pass


def call(prior, rules, components, n, seen, x):
    labels, log_density = np.full(len(x), -1), np.zeros(len(x))
    return one_pass_inplace(prior, rules, components, n, seen, Piece(x, labels, log_density)), labels


def test_first_point_always_founds_a_component(sva, form):
    prior = sva.prior(form, 2)
    components = new_components(prior, 2)
    result, labels = call(prior, sva.rules("none", birth_threshold=0.999), components, 0, 40, np.array([[50.0, -60.0]]))
    assert result == PassResult(1, 1, 0, -1)
    assert labels.tolist() == [0]
    assert components.born_at[0] == components.last_seen_at[0] == 41
    assert components.stats.mass.tolist() == [1.0, 0.0]
    np.testing.assert_array_equal(components.stats.mean[0], [50.0, -60.0])


def test_full_arrays_stop_the_pass_and_lose_nothing(sva, form):
    prior, rules = sva.prior(form, 1), sva.rules("none")
    x = np.array([[0.0], [1000.0], [-1000.0], [5.0]])
    components = new_components(prior, 2)
    result, labels = call(prior, rules, components, 0, 0, x)
    assert result == PassResult(2, 2, 0, -1)
    assert labels.tolist() == [0, 1, -1, -1]
    again, _ = call(prior, rules, components, 2, 2, x[2:])
    assert again == PassResult(0, 2, 0, -1)


def test_refused_births_are_shared_among_the_components_there_are(sva, form):
    threshold = 1e-4 if form == "student" else 0.05  # the tails of the second component reach far
    prior, rules = sva.prior(form, 2), sva.rules("entropy", max_components=2, birth_threshold=threshold)
    x = np.concatenate([[[0.0, 0.0], [40.0, 40.0]], np.full((5, 2), -40.0), [[39.0, 40.0]]])
    components = new_components(prior, 3, "entropy")
    result, labels = call(prior, rules, components, 0, 0, x)
    assert result.n_components == 2
    assert result.n_done == 8
    assert result.first_refused == 2
    assert 1 <= result.n_refused <= 5
    assert components.stats.mass[:2].sum() == pytest.approx(8.0, rel=1e-14)
    assert labels[-1] == 1
    assert np.isfinite(components.pairs[:2, :2]).all()


@pytest.mark.parametrize("threshold", [0.05, longer(0.5), 0.95])
def test_birth_threshold(sva, form, threshold):
    """The larger, the fewer; below one half a newborn need not be the best of its point."""
    prior, x, rules = sva.prior(form, 2), sva.clusters(150, 2, seed=1), sva.rules("none", birth_threshold=threshold)
    got, expected = sva.drive(prior, rules, x), reference_pass(prior, rules, x)
    np.testing.assert_array_equal(got.labels, expected.labels)
    np.testing.assert_array_equal(got.components.born_at, expected.born_at)
    np.testing.assert_array_equal(got.components.last_seen_at, expected.last_seen_at)
    assert (got.components.last_seen_at >= got.components.born_at).all()
    newborns = expected.resp[got.components.born_at - 1, np.arange(got.n_components)]
    assert (newborns > threshold * (1 - 1e-12)).all()


def test_floor(sva, form):
    """No responsibility below the floor survives but a newborn's, and dropping one keeps the point's mass whole."""
    prior, x = sva.prior(form, 2), sva.clusters(300, 2, seed=7)
    rules = sva.rules("overlap", floor=0.1, birth_threshold=0.02)
    got, expected = sva.drive(prior, rules, x), reference_pass(prior, rules, x)
    np.testing.assert_allclose(got.components.stats.mass, expected.stats.mass, rtol=1e-9)
    kept = expected.resp[expected.resp > 0]
    newborn = np.zeros_like(expected.resp, dtype=bool)
    newborn[expected.born_at - 1, np.arange(got.n_components)] = True
    assert (expected.resp[(expected.resp > 0) & ~newborn] >= 0.1).all()
    assert kept.min() < 0.1  # some newborn came in below the floor
    assert got.components.stats.mass.sum() == pytest.approx(len(x), rel=1e-12)


def test_zero_floor_is_no_floor_to_rounding(sva, form):
    prior, x = sva.prior(form, 1), sva.clusters(300, 1, seed=3)
    nothing, tiny = (sva.drive(prior, sva.rules("entropy", floor=floor), x) for floor in (0.0, 1e-15))
    np.testing.assert_allclose(nothing.components.stats.mass, tiny.components.stats.mass, rtol=1e-12)
    assert np.isfinite(nothing.components.pairs).all()


def test_pairs_of_a_row_used_before_start_at_zero(sva, form):
    """A newborn takes a row that may have been another component's."""
    prior, rules = sva.prior(form, 1), sva.rules("overlap")
    components = new_components(prior, 3, "overlap")
    components.pairs[:] = 9.0
    np.fill_diagonal(components.pairs, 0.0)
    call(prior, rules, components, 0, 0, np.array([[0.0], [100.0]]))
    assert components.pairs[0, 1] == components.pairs[1, 0] < 0.5


def test_newborn_and_old_share_the_founding_point(sva):
    """ERRATA 5.8: on a birth nothing is dropped and the responsibilities are not renormalised."""
    prior = sva.prior("spherical", 1)
    rules = sva.rules("none", birth_threshold=0.2)
    x = np.array([[0.0], [1.6]])
    got = sva.drive(prior, rules, x)
    assert got.n_components == 2
    log_joint = prior.log_predictive(prior.posterior(prior.suffstats(x[:1], np.ones((1, 1)))), x[1:])[0]
    log_new = prior.log_predictive(prior.posterior(prior.empty_stats(1)), x[1:])[0]
    new = 1 / (1 + np.exp(log_joint - log_new))
    np.testing.assert_allclose(got.components.stats.mass, [1 + 1 - new[0], new[0]], rtol=1e-12)
