"""The estimators on counts: sparse rows and tables are the same, wherever they are cut; real points stay dense."""

import io
import pickle
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_matrix, csr_array, csr_matrix

from harness.short_form import longer, short_form
from shoal import DPMixture, InputError, OutsideDomainError, StreamingDPMixture, families
from shoal.estimators.batch_engines import ENGINES

FAMILIES = ("multinomial", "bernoulli", "poisson")
D = 40


def counted(family, n=600, seed=0):
    """Rows of four well separated components, in random order, and which is whose."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    rate = np.where(np.arange(D) % 4 == y[:, None], 2.0, 0.1)
    x = rng.poisson(rate)
    x[rng.integers(n, size=5)] = 0
    return (np.minimum(x, 1) if family == "bernoulli" else x), y


@pytest.fixture(params=short_form(FAMILIES, ("multinomial", "poisson")))
def family(request):
    return request.param


def fitted(family, parts, refinement=None):
    model = StreamingDPMixture(family, warmup_points=200, window=100, refinement=refinement)
    for part in parts:
        model.partial_fit(part)
    return model


def same(a, b, x):
    assert_array_equal(a.component_ids_, b.component_ids_)
    assert_array_equal(a.masses_, b.masses_)
    assert_array_equal(a.means_, b.means_)
    assert_array_equal(a.score_samples(x), b.score_samples(x))


def test_forms_and_cuts_give_the_same_bits(family):
    x, _ = counted(family)
    whole = fitted(family, [x])
    rows = csr_matrix(x)
    same(whole, fitted(family, [rows]), x)
    same(whole, fitted(family, [csc_matrix(x).astype(float)]), rows)
    same(whole, fitted(family, [rows[:1], rows[1:150], rows[150:202], rows[202:]]), x)


@pytest.mark.parametrize(
    ("family", "at", "refinement"),
    short_form(
        [(family, at, refinement) for family in FAMILIES for at in (1, 120, 450) for refinement in (None, "auto")],
        [("multinomial", 120, "auto"), ("bernoulli", 1, None), ("poisson", 450, None)],
    ),
)
def test_saved_and_loaded_it_goes_on_to_the_bit(family, at, refinement):
    """During the warm-up, whose rows are in the snapshot, and after it; with the window's rows."""
    x, _ = counted(family)
    whole, model = (fitted(family, [part], refinement) for part in (x, x[:at]))
    file = io.BytesIO()
    model.save(file)
    loaded = StreamingDPMixture.load(io.BytesIO(file.getvalue()))
    same(whole, loaded.partial_fit(x[at:]), x)
    same(whole, pickle.loads(pickle.dumps(model)).partial_fit(csr_array(x[at:])), x)


def test_the_automatic_prior_finds_what_is_there(family):
    x, y = counted(family, 3_000)
    model = fitted(family, [x[:2_500]])
    assert_array_equal(model._fitted.state.scale, 1.0)
    assert not model._fitted.state.jitter.any()
    labels = model.predict(x[2_500:])
    for component in np.unique(y):
        counts = np.unique(labels[y[2_500:] == component], return_counts=True)[1]
        assert counts.max() > 0.9 * counts.sum()
    assert len(np.unique(labels)) >= 4
    one = StreamingDPMixture(family, prior=model._fitted.state.prior, max_components=1).fit(x[:2_500])
    assert len(one.component_ids_) == 1
    assert model.score(x[2_500:]) > one.score(x[2_500:]) + 1.0


def test_probabilities_and_means(family):
    x, _ = counted(family)
    model = fitted(family, [x])
    total = model.predict_proba(x).sum(axis=1) + model.novelty(x)
    assert_allclose(total, 1.0, rtol=1e-12)
    mean = model.weights_ @ model.means_ / model.weights_.sum()
    data = x.sum(axis=0) / x.sum() if family == "multinomial" else x.mean(axis=0)
    assert_allclose(mean, data, atol=0.15 * data.max())
    if family == "multinomial":
        assert_allclose(model.means_.sum(axis=1), 1.0, rtol=1e-12)


def test_what_is_no_count_is_refused(family):
    x, _ = counted(family, 20)
    model = fitted(family, [x])
    for value in (-1.0, 0.5):
        bad = x.astype(float)
        bad[7, 3] = value
        for form in (np.array, csr_array):
            with pytest.raises(OutsideDomainError, match=r"row 7 holds .* in column 3") as caught:
                model.partial_fit(form(bad))
            assert caught.value.row == 7
            with pytest.raises(OutsideDomainError):
                model.predict(form(bad))
    assert model.masses_.sum() == pytest.approx(20)


@pytest.mark.parametrize("estimator", [StreamingDPMixture("diagonal"), DPMixture("diagonal")])
def test_gaussians_refuse_sparse_rows(estimator):
    with pytest.raises(InputError, match=r"sparse.*toarray.*family of counts"):
        estimator.fit(csr_array(counted("poisson", 10)[0]))


@pytest.mark.parametrize("family", ["multinomial", longer("bernoulli"), longer("poisson")])
def test_a_long_vocabulary_needs_memory_by_the_words(family):
    """20,000 features: the rows alone would take 64 MB as a table. A refinement over them stays below half of that."""
    rng = np.random.default_rng(0)
    n, d, words = 400, 20_000, 12
    columns = np.sort(rng.integers(0, d // words, (n, words)) + np.arange(words) * (d // words), axis=1)
    x = csr_array((np.ones(n * words), columns.ravel(), np.arange(n + 1) * words), shape=(n, d))
    prior = {
        "multinomial": families.DirichletMultinomial(np.full(d, 0.5)),
        "bernoulli": families.BetaBernoulli(np.full(d, 0.01), 1.0),
        "poisson": families.GammaPoisson(np.full(d, 0.01), 1.0),
    }[family]
    tracemalloc.start()
    model = StreamingDPMixture(family, prior=prior, max_components=8, warmup_points=400).fit(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32e6
    assert model.masses_.sum() == pytest.approx(n)
    assert model._fitted.window.nnz == len(model._fitted.window) * words
    assert np.isfinite(model.score(x[:50]))


@pytest.mark.parametrize(
    ("family", "method"),
    short_form(
        [(family, method) for family in FAMILIES for method in ENGINES],
        [
            *(("poisson", method) for method in ENGINES),
            ("multinomial", "tsb"),
            ("bernoulli", "fsd"),
            ("bernoulli", "gibbs"),
        ],
    ),
)
def test_every_batch_engine_takes_counts(family, method):
    x, y = counted(family, 80)
    settings = {"n_samples": 20, "burn_in": 20} if ENGINES[method].is_sampler else {}
    dense, sparse = (DPMixture(family, method, random_state=0, **settings).fit(form) for form in (x, csr_matrix(x)))
    assert_array_equal(dense.labels_, sparse.labels_)
    assert dense.elbo_ == sparse.elbo_
    assert_array_equal(dense.score_samples(x), sparse.score_samples(csr_matrix(x)))
    hits = sum(np.unique(dense.labels_[y == k], return_counts=True)[1].max() for k in range(4))
    assert hits > 0.6 * len(x)
    one = DPMixture(dense.prior_, "vdp", max_iter=0).fit(x)
    assert dense.score(x) > one.score(x)


def test_the_largest_counts_have_a_fit():
    """All mass went to components to come, and then none was left to divide."""
    model = DPMixture(method="vdp", family="negative_binomial", random_state=0).fit(np.full((50, 2), 2**53 - 1))
    assert np.isfinite(model.elbo_)
    assert model.masses_.sum() == pytest.approx(50.0, abs=0.1)
