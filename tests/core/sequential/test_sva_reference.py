"""The kernel against its plain NumPy twin, and both against what the algorithm promises."""

import itertools

import numpy as np
import pytest

from harness.short_form import short_form
from shoal.families.capabilities import has_latent_variables
from shoal.sequential.reference import pair_sums, reference_pass

RELATIVE = 1e-9


FORMS = ("gaussian", "student", "diagonal", "spherical", "shared")
RULES = ((("entropy",), 1e-3), (("overlap", "none"), 1e-12))
CASES = [(form, d, *rules) for form in FORMS for d in (1, 2, 16) for rules in RULES]
SHORT = [
    *((form, 2, *RULES[1]) for form in FORMS),
    ("diagonal", 1, *RULES[0]),
    ("student", 2, *RULES[0]),
    ("gaussian", 16, *RULES[1]),
    ("shared", 16, *RULES[1]),
]


@pytest.mark.parametrize(("form", "d", "pair_rules", "floor"), short_form(CASES, SHORT))
def test_kernel_equals_the_reference(sva, form, d, pair_rules, floor):
    """In 16 dimensions a bound spares scores only from a mass of some 2,000 on."""
    prior, x = sva.prior(form, d), sva.clusters(2_500 if d == 16 and floor == 1e-3 else 250, d, seed=d)
    expected = reference_pass(prior, sva.rules(pair_rules[0], floor), x)
    for pair_rule in pair_rules:
        got = sva.drive(prior, sva.rules(pair_rule, floor), x)
        assert got.n_components == len(expected.born_at) > 1
        np.testing.assert_array_equal(got.labels, expected.labels)
        np.testing.assert_array_equal(got.components.born_at, expected.born_at)
        np.testing.assert_array_equal(got.components.last_seen_at, expected.last_seen_at)
        np.testing.assert_allclose(got.log_density, expected.log_density, rtol=RELATIVE, atol=RELATIVE)
        for name, field, twin in zip(expected.stats._fields, got.components.stats, expected.stats, strict=True):
            np.testing.assert_allclose(field, twin, rtol=RELATIVE, atol=RELATIVE * np.abs(twin).max(), err_msg=name)
        if pair_rule != "none":
            scale = max(1.0, expected.pairs.max())
            np.testing.assert_allclose(got.components.pairs, expected.pairs, rtol=RELATIVE, atol=RELATIVE * scale)


def test_many_components_at_once(sva, form):
    """Enough components for every width of vector loop and its remainder, and refusals at the limit."""
    limit = 13 if form in ("gaussian", "student") else 35
    prior, rules = sva.prior(form, 5), sva.rules("overlap", 1e-6, max_components=limit)
    x = sva.clusters(300 if limit == 13 else 600, 5, seed=3, n_clusters=80, spread=6.0)
    expected = reference_pass(prior, rules, x)
    got = sva.drive(prior, rules, x)
    assert len(expected.born_at) == got.n_components == limit
    assert got.n_refused == expected.n_refused > 0
    np.testing.assert_array_equal(got.labels, expected.labels)
    np.testing.assert_allclose(got.components.stats.mass, expected.stats.mass, rtol=RELATIVE)
    np.testing.assert_allclose(got.components.pairs, expected.pairs, rtol=RELATIVE, atol=RELATIVE)


def test_statistics_are_the_weighted_sums_of_all_points(sva, form):
    prior, x, rules = sva.prior(form, 3), sva.clusters(150, 3, seed=11), sva.rules()
    resp = reference_pass(prior, rules, x).resp
    stats = sva.drive(prior, rules, x).components.stats
    np.testing.assert_allclose(resp.sum(axis=1), 1.0, rtol=1e-12)
    assert stats.mass.sum() == pytest.approx(len(x), rel=1e-12)
    if has_latent_variables(prior):  # then moments depend on when each point was learnt
        stats, whole_stats = stats[:1], prior.suffstats(x, resp)[:1]
    else:
        whole_stats = prior.suffstats(x, resp)
    for field, whole in zip(stats, whole_stats, strict=True):
        np.testing.assert_allclose(field, whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


@pytest.mark.parametrize("pair_rule", ["entropy", "overlap"])
def test_pair_sums_by_brute_force(sva, form, pair_rule):
    """Point by point, pair by pair, in plain Python numbers."""
    prior, x, rules = sva.prior(form, 2), sva.clusters(120, 2, seed=5), sva.rules(pair_rule, 1e-6)
    resp = reference_pass(prior, rules, x).resp
    got = sva.drive(prior, rules, x).components.pairs
    expected = np.zeros_like(got)
    for row in resp.tolist():
        for k, j in itertools.permutations(range(len(row)), 2):
            p, q = row[k], row[j]
            if min(p, q) > 0:
                entropy = -(p * np.log(p / (p + q)) + q * np.log(q / (p + q)))
                expected[k, j] += entropy if pair_rule == "entropy" else min(p, q)
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
    assert np.array_equal(got, got.T)
    assert not got.diagonal().any()
    assert got.max() > 0.1


def test_entropy_of_twins_is_ln_2_a_point():
    resp = np.full((10, 2), 0.5)
    np.testing.assert_allclose(pair_sums(resp, "entropy")[0, 1], 10 * np.log(2))
    np.testing.assert_allclose(pair_sums(resp, "overlap")[0, 1], 5.0)
