"""The kernels of the count families: against the plain twin, across cuts, at extremes, and by words present."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from harness.short_form import short_form
from shoal.families import BetaBernoulli, BetaNegativeBinomial, DirichletCategorical, DirichletMultinomial, GammaPoisson
from shoal.families.predictive_cache import refresh
from shoal.points.rows import SparseRows
from shoal.sequential.reference import reference_pass

FORMS = ("multinomial", "bernoulli", "poisson", "negative_binomial", "categorical")


def counted(form, d, n=900, seed=0):
    """A prior, and n rows of six components in random order, empty ones among them."""
    rng = np.random.default_rng([seed, d])
    prior = {
        "multinomial": DirichletMultinomial(rng.uniform(0.2, 0.9, d)),
        "bernoulli": BetaBernoulli(rng.uniform(0.3, 0.9, d), rng.uniform(0.3, 0.9, d)),
        "poisson": GammaPoisson(rng.uniform(0.3, 2.0, d), rng.uniform(0.2, 0.6, d)),
        "negative_binomial": BetaNegativeBinomial(rng.uniform(1.5, 3.0, d), rng.uniform(0.5, 4.0, d), 3.0),
        "categorical": DirichletCategorical(np.full(d, 4), rng.uniform(0.1, 0.4, 4 * d)),
    }[form]
    each = n // 6
    of_length = {"length": rng.integers(0, 25, each)} if form == "multinomial" else {}
    draw = prior.sample_parameters(prior.posterior(prior.empty_stats(6)), rng)
    x = prior.sample_points(draw, each, rng, **of_length).reshape(-1, d)
    return prior, x[rng.permutation(len(x))]


@pytest.fixture(params=FORMS)
def case(request):
    return SimpleNamespace(form=request.param, make=lambda d, **k: counted(request.param, d, **k))


RULES = (("entropy", 1e-3), ("overlap", 1e-12))
SHORT = [(2, *RULES[1]), (40, *RULES[0])]


@pytest.mark.parametrize(
    ("d", "pair_rule", "floor"), short_form([(d, *rules) for d in (2, 5, 40) for rules in RULES], SHORT)
)
def test_kernel_equals_the_reference(sva, case, d, pair_rule, floor):
    prior, x = case.make(d, n=300 if d == 2 else 120)
    rules = sva.rules(pair_rule, floor)
    expected, got = reference_pass(prior, rules, x), sva.drive(prior, rules, x)
    assert got.n_components == len(expected.born_at) > 1
    assert_array_equal(got.labels, expected.labels)
    assert_allclose(got.log_density, expected.log_density, rtol=1e-9, atol=1e-9)
    for field, twin in zip(got.components.stats, expected.stats, strict=True):
        assert_allclose(field, twin, rtol=1e-9, atol=1e-9 * np.abs(twin).max())
    assert_allclose(got.components.pairs, expected.pairs, rtol=1e-9, atol=1e-9)


def test_cuts_growth_and_form_leave_the_bits(sva, case):
    prior, x = case.make(6, n=450)
    rules = sva.rules()
    whole = sva.drive(prior, rules, x)
    for step in (1, 7):
        assert sva.same_bits(whole, sva.drive(prior, rules, x, cuts=range(step, len(x), step)))
    assert sva.same_bits(whole, sva.drive(prior, rules, x, rows=1))
    assert sva.same_bits(whole, sva.drive(prior, rules, SparseRows.of(x)))


def test_work_made_again_is_the_work_carried_along(sva, case):
    prior, x = case.make(30, n=3_000)
    components = sva.drive(prior, sva.rules(), x).components
    fresh = refresh(prior, components.stats)
    for carried, rebuilt in zip(components.cache, fresh, strict=True):
        assert_allclose(carried, rebuilt, rtol=1e-11)


def test_unused_terms_change_nothing(sva):
    """A vocabulary fifty times as long, of terms that nobody uses and the prior gives no weight: the same mixture."""
    prior, x = counted("multinomial", 20)
    wide = DirichletMultinomial(np.concatenate([prior.pseudo_counts, np.full(980, 1e-30)]))
    rows = SparseRows.of(np.hstack([x, np.zeros((len(x), 980))]))
    narrow, long = sva.drive(prior, sva.rules(), x), sva.drive(wide, sva.rules(), rows)
    assert_array_equal(narrow.labels, long.labels)
    assert_allclose(narrow.log_density, long.log_density, rtol=1e-12)


@pytest.mark.parametrize("prior", [1e-100, 1e-3, 1.0, 1e100])
def test_extreme_priors_and_counts_stay_finite(sva, prior):
    """Products of words' factors leave the range of a float many times over."""
    x = np.zeros((6, 300))
    x[0] = 1.0
    x[1] = 7.0
    x[2, :5] = [2.0**52, 1.0, 9.0, 2.0**24 + 1, 63.0]
    x[3:5, ::2] = 40.0
    ones = np.minimum(x, 1.0)
    for family, points in (
        (DirichletMultinomial(np.full(300, prior)), x),
        (GammaPoisson(np.full(300, prior), 1.0), x),
        (GammaPoisson(np.ones(300), prior), x),
        (BetaBernoulli(np.full(300, prior), 1.0), ones),
        (BetaBernoulli(np.ones(300), prior), ones),
    ):
        rules = sva.rules("none")._replace(concentration=0.7)  # at 1 two equal values decide on a birth: rounding does
        got, expected = sva.drive(family, rules, points), reference_pass(family, rules, points)
        assert np.isfinite(got.log_density).all()
        assert_allclose(got.log_density, expected.log_density, rtol=1e-9, atol=1e-6)
