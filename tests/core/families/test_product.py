"""Products of families: which columns belong to whom, sums over independent blocks, fits of mixed columns."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_t, nbinom
from sklearn.metrics import adjusted_rand_score

from harness.short_form import longer
from shoal import DPMixture, StreamingDPMixture
from shoal.errors import OutsideDomainError, SettingError
from shoal.families import (
    FAMILIES,
    DirichletCategorical,
    GammaPoisson,
    KnownCovariance,
    NormalInverseGamma,
    NormalInverseWishart,
    known_family,
    log_marginal,
    shown_family,
)
from shoal.mixture import StreamSettings

SPEC = {"0": "gaussian", "1": "poisson", "2": "categorical", "3": "gaussian"}
TEXT = '{"0,3":"gaussian","1":"poisson","2":"categorical"}'


def mixed(n, seed=0):
    """Rows of four kinds that no block tells apart alone, and their kinds."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(4, size=n)
    reals = np.array([[0.0, 0.0], [0.0, 0.0], [6.0, -6.0], [6.0, -6.0]])[kind] + rng.normal(size=(n, 2))
    counts = rng.poisson(np.array([1.0, 30.0, 1.0, 30.0])[kind])
    levels = np.where(rng.random(n) < 0.9, np.array([0, 1, 1, 0])[kind], 2)
    return np.column_stack([100.0 * reals[:, 0], counts, levels, reals[:, 1]]), kind


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (SPEC, None),
        ({"3,0": "gaussian", 1: "poisson", "2": "categorical"}, None),
        ({"cpu": "gaussian", "mem": "gaussian", "errors": "poisson", "region": "categorical"}, None),
        (TEXT, None),
    ],
)
def test_all_ways_to_write_a_product_are_one(given, names):
    names = ("cpu", "errors", "region", "mem") if "cpu" in given else None
    settings = StreamSettings(n_features=4, family=given, feature_names=names)
    assert settings.family == TEXT
    assert StreamSettings.from_json(settings.to_json()) == settings
    shown = shown_family(TEXT, names)
    assert known_family(shown, names) == TEXT
    assert shown == (
        dict(zip(names, ("gaussian", "poisson", "categorical", "gaussian"), strict=True)) if names else shown
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "empty object"),
        ({"0": "gaussian", "2": "poisson"}, "column 1 has no family"),
        ({"0-2": "gaussian", "1": "poisson"}, "column 1 has two families"),
        ({"0": "gaussian"}, "names 1 columns, points have 3"),
        ({"0-3": "gaussian"}, "names 4 columns, points have 3"),
        ({"2-0": "gaussian"}, "names no columns"),
        ({"cpu": "gaussian"}, "names no columns"),
        ({"0-2": "gausian"}, "cannot be a family of columns"),
        ({"0-2": "student"}, "cannot be a family of columns"),
        ({"0-2": 3}, "give the name of a family"),
        ('{"0-2":', "not a JSON object"),
    ],
)
def test_products_that_name_nothing_are_refused(given, words):
    with pytest.raises(SettingError, match=words):
        StreamSettings(n_features=3, family=given)


def test_densities_and_evidences_are_those_of_the_blocks_by_scipy():
    """The predictive of a single component: Student t of two columns, negative binomial of one, frequencies of one."""
    x, _ = mixed(60)
    x[:, 0] /= 100.0
    gaussian = NormalInverseWishart([0.5, 0.0], 0.3, 5.0, [[2.0, 0.4], [0.4, 1.0]])
    prior = FAMILIES[TEXT](gaussian, GammaPoisson([1.5], [0.4]), DirichletCategorical([3], [0.5, 1.0, 1.5]))
    params = prior.posterior(prior.empty_stats(1))
    scale = np.array([[2.0, 0.4], [0.4, 1.0]]) * (1.3 / 0.3) / 4.0
    expected = multivariate_t([0.5, 0.0], scale, 4.0).logpdf(x[:, [0, 3]])
    expected = expected + nbinom(1.5, 0.4 / 1.4).logpmf(x[:, 1])
    expected += np.log(np.array([0.5, 1.0, 1.5]) / 3.0)[x[:, 2].astype(int)]
    assert_allclose(prior.log_predictive(params, x)[:, 0], expected, rtol=1e-10)
    ones = np.ones((len(x), 1))
    parts = zip(prior.blocks, ([0, 3], [1], [2]), strict=True)
    alone = sum(log_marginal(block, block.suffstats(x[:, columns], ones)) for block, columns in parts)
    assert_allclose(log_marginal(prior, prior.suffstats(x, ones)), alone, rtol=1e-12)


@pytest.mark.parametrize(
    ("columns", "family"), [([0, 3], "gaussian"), ([1], "poisson"), ([2], "categorical")], ids=lambda value: str(value)
)
def test_columns_of_one_kind_alone_do_not_tell_them_apart(columns, family):
    x, kind = mixed(400)
    part = StreamingDPMixture(family, refinement=None).fit(x[:, columns])
    assert adjusted_rand_score(kind, part.predict(x[:, columns])) < 0.6


@pytest.mark.parametrize("refinement", [None, "auto"])
def test_a_stream_of_mixed_columns_is_told_apart(refinement):
    x, kind = mixed(300)
    model = StreamingDPMixture(SPEC, refinement=refinement, warmup_points=100).fit(x)
    assert adjusted_rand_score(kind, model.predict(x)) > 0.9
    again = pickle.loads(pickle.dumps(model))
    assert again._fitted.to_bytes() == model._fitted.to_bytes()
    assert_array_equal(again.predict(x), model.predict(x))


def test_columns_of_a_data_frame_are_named():
    x, kind = mixed(160)
    frame = pytest.importorskip("pyarrow").table(dict(zip(["cpu", "errors", "region", "mem"], x.T, strict=True)))
    given = {"cpu": "gaussian", "mem": "gaussian", "errors": "poisson", "region": "categorical"}
    model = StreamingDPMixture(given, refinement=None).fit(frame)
    plain = StreamingDPMixture(SPEC, refinement=None).fit(x)
    assert_array_equal(model.predict(frame), plain.predict(x))
    batch = DPMixture(given, random_state=0).fit(frame)
    assert adjusted_rand_score(kind, batch.predict(frame)) > 0.9


def test_the_first_bad_row_is_named_with_its_column():
    x, _ = mixed(20)
    x[7, 1], x[5, 2] = -1.0, 0.5
    with pytest.raises(OutsideDomainError, match=r"row 5 holds 0\.5 in column 2; categories are level numbers"):
        StreamingDPMixture(SPEC).fit(x)


def test_prior_of_another_block_is_refused():
    kind = FAMILIES[TEXT]
    with pytest.raises(SettingError, match="of family 'poisson' with 1 features"):
        kind(
            NormalInverseWishart([0.0, 0.0], 1.0, 5.0, np.eye(2)),
            GammaPoisson([1.0, 1.0], 1.0),
            DirichletCategorical([3], 1.0),
        )


def test_density_of_a_row_with_a_hole_is_the_integral_over_it():
    """The scale of the missing real column stayed in the density."""
    x, _ = mixed(400)
    x = x[:, :2]
    x[::7, 0] = np.nan
    model = StreamingDPMixture({"0": "gaussian", "1": "poisson"}, missing="marginal", warmup_points=200)
    model.set_params(refinement=None).fit(x)
    step = np.linspace(-30.0, 30.0, 20_001)
    grid, width = 300.0 + np.sinh(step), np.cosh(step) * (step[1] - step[0])
    for count in (0.0, 12.0, 31.0):
        rows = np.column_stack([grid, np.full_like(grid, count)])
        integral = np.log(np.exp(model.score_samples(rows)) @ width)
        assert_allclose(model.score_samples([[np.nan, count]]), integral, atol=1e-4)


@pytest.mark.parametrize("real", ["gaussian", "diagonal", "known_covariance"])
@pytest.mark.parametrize("method", ["vdp", "fast-vdp"])
@pytest.mark.short_form("vdp-gaussian", "fast-vdp-diagonal", "fast-vdp-known_covariance")
def test_rows_far_from_zero_are_divided_as_near_ones(method, real):
    """Raw squares about zero lost all digits under a prior of one's own: a matrix was not positive definite."""
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=90)
    near = np.array([[0.0, 5.0], [8.0, 0.0], [-8.0, -5.0]])[kind] + rng.normal(size=(90, 2))
    counts = rng.poisson(np.array([2.0, 20.0, 60.0])[kind])
    fits = []
    for shift in (0.0, 2.0**27):
        middle = np.full(2, shift)
        block = {
            "gaussian": NormalInverseWishart(mean=middle, mean_strength=0.05, dof=5.0, scale=2.0 * np.eye(2)),
            "diagonal": NormalInverseGamma(mean=middle, mean_strength=0.05, shape=3.0, rate=np.full(2, 2.0)),
            "known_covariance": KnownCovariance(mean=middle, prior_covariance=30.0 * np.eye(2), covariance=np.eye(2)),
        }[real]
        prior = FAMILIES[f'{{"0-1":"{real}","2":"poisson"}}'](block, GammaPoisson(shape=np.ones(1), rate=np.ones(1)))
        x = np.column_stack([near + shift, counts])
        fits.append((DPMixture(prior, method=method, random_state=0).fit(x), x))
    (first, x), (second, far) = fits
    assert second.elbo_ == pytest.approx(first.elbo_, abs=1e-4)
    assert_allclose(second.score_samples(far), first.score_samples(x), atol=1e-5)
    assert adjusted_rand_score(kind, second.labels_) > 0.9


@pytest.mark.parametrize("constant", [slice(None), slice(0, 2)])
def test_constant_first_rows_of_real_columns_do_not_spoil_the_scale(constant):
    rng = np.random.default_rng(0)
    kind = rng.integers(4, size=2_400)
    reals = 8.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[kind] + rng.normal(size=(2_400, 2))
    x = np.column_stack([1e3 * reals, rng.poisson(np.array([2.0, 20.0, 60.0, 5.0])[kind])])
    x[:500, constant] = x[0, constant]
    family = {"0-1": "gaussian", "2": "poisson"}
    model = StreamingDPMixture(family, warmup_points=300, refinement=None).fit(x)
    assert adjusted_rand_score(kind[500:], model.predict(x[500:])) > 0.8


@pytest.mark.parametrize(
    ("other", "n", "warmup"), [("diagonal", 220, 50), longer("diagonal", 600, 200), longer("poisson", 600, 200)]
)
def test_refinement_states_the_statistics_of_blocks_under_their_new_prior(other, n, warmup):
    """Scatters in units of a known covariance kept the old unit, so that each refinement took it for smaller."""
    rng = np.random.default_rng(0)
    kind = rng.integers(4, size=n)
    known = 8.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])[kind] + rng.normal(size=(n, 2))
    rest = rng.poisson(np.array([5, 50])[kind // 2]) + (0.0 if other == "poisson" else rng.normal(size=n))
    model = StreamingDPMixture({"0-1": "known_covariance", "2": other}, warmup_points=warmup)
    model.fit(np.column_stack([known, rest]))
    assert model._fitted.state.schedule.adopted == 2
    assert adjusted_rand_score(kind, model.predict(np.column_stack([known, rest]))) > 0.95
    assert len(model.component_ids_) <= 8
