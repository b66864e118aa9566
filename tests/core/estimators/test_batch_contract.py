"""What every batch method promises through its scikit-learn face, one suite over all of them."""

import functools
import pickle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import trapezoid
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from harness.short_form import longer, short_form
from shoal import DPMixture
from shoal.estimators.batch_engines import ENGINES
from shoal.families import FAMILIES, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.families.capabilities import has_latent_variables

METHODS = tuple(ENGINES)
LOCATED = [name for name, kind in FAMILIES.items() if kind.domain.located]
SAMPLERS = ("gibbs", "blocked-gibbs", "split-merge")
SHORT = {name: {"n_samples": 20, "burn_in": 20} for name in SAMPLERS}


def model(method: str, family: Any = "gaussian", **settings: Any) -> DPMixture:
    return DPMixture(family, method, **{"random_state": 0, **SHORT.get(method, {}), **settings})


def three_groups(n: int = 150, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points of three groups, sizes about 5 : 3 : 2, far apart, in unlike units."""
    rng = np.random.default_rng(seed)
    z = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    return (np.array([[0, 0], [20, 0], [0, 20]])[z] + rng.normal(size=(n, 2))) * [1.0, 1e3] + [50.0, -7e4], z


@functools.cache
def fitted_once(method: str) -> DPMixture:
    """A fit that tests only read, to three groups of 50 points."""
    return model(method).fit(three_groups(50)[0])


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


CHECKED = ("search",)
"""In the checks of scikit-learn engines differ by what they make of a table alone, and `test_any_table_is_fitted` has
all of them."""


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("method", short_form(METHODS, CHECKED), indirect=True)
def test_check_estimator(method: str) -> None:
    check_estimator(DPMixture(method=method, **SHORT.get(method, {})))


def test_any_table_is_fitted(method: str) -> None:
    """One row, one column, equal rows, a constant column, single precision, no order of its own in memory."""
    x = np.random.default_rng(2).normal(size=(16, 2))
    for table in (x[:1], x[:, :1], np.ones((6, 2)), x * [1.0, 0.0], x.astype(np.float32), x.tolist(), x[::-2, ::-1]):
        fitted = model(method).fit(table)
        assert fitted.labels_.shape == (len(table),)
        assert np.all(np.isfinite(fitted.score_samples(table)))
        known = fitted.predict_proba(table).sum(axis=1)
        assert np.all((known > 0.0) & (known < 1.0 + 1e-9))


@pytest.mark.parametrize(
    ("method", "family"),
    short_form(
        [(m, f) for m in METHODS for f in LOCATED if ENGINES[m].fits_latent or not has_latent_variables(FAMILIES[f])],
        [
            *((m, "gaussian") for m in METHODS),
            *(("tsb", f) for f in LOCATED),
            ("gibbs", "diagonal"),
            ("fsd", "student"),
        ],
    ),
)
def test_finds_groups_that_are_there(method: str, family: str) -> None:
    """Whatever the units; labels by decreasing mass, and what a fit says of its own points is consistent."""
    x, z = three_groups()
    fitted = model(method, family).fit(x)
    labels = fitted.labels_
    assert labels.dtype == np.int64
    assert_array_equal(np.unique(labels), np.arange(labels.max() + 1))
    if family != "known_covariance":
        assert len(set(zip(labels.tolist(), z.tolist(), strict=True))) == labels.max() + 1  # none is mixed
    assert fitted.weights_[0] == fitted.weights_.max()
    assert fitted.weights_.sum() <= 1.0 + 1e-12
    used = fitted.weights_[: labels.max() + 1]
    assert np.all(np.diff(used) <= 1e-12)
    assert_array_equal(fitted.predict(x), fitted.predict_proba(x).argmax(axis=1))
    assert np.mean(fitted.predict(x) == labels) > 0.97
    approximate = method in ("ctsb", "o-ctsb", "cfsd")
    loose = 1e-2 if approximate and has_latent_variables(FAMILIES[family]) else 1e-6
    assert fitted.elbo_ == pytest.approx(fitted.elbo_history_.max(), abs=loose) or method in (*SAMPLERS, "tfv")
    assert fitted.elbo_is_exact_ is not approximate
    assert_allclose(fitted.means_[0], x[labels == 0].mean(axis=0), rtol=0.02, atol=x.std() * 0.05)
    assert fitted.covariances_.shape == (len(fitted.weights_), 2, 2)


EXPLICIT = (NormalInverseGamma([1.0], 0.1, 2.0, [1.0]), KnownCovariance([0.0], 9, 1))


@pytest.mark.parametrize(
    ("method", "family"),
    [
        *((method, "gaussian") for method in METHODS),
        *(("tsb", prior) for prior in EXPLICIT),
        *(longer(method, prior) for method in METHODS for prior in EXPLICIT if method != "tsb"),
    ],
)
def test_density_integrates_to_one(method: str, family: Any) -> None:
    x = np.random.default_rng(1).normal(size=(60, 1)) + np.repeat([[0.0], [6.0]], 30, axis=0)
    fitted = model(method, family).fit(x)
    y = np.linspace(-18.0, 18.0, 4001)  # the trapezoidal rule is exact to rounding on a smooth function that ends in 0
    total = trapezoid(np.exp(fitted.score_samples(np.sinh(y)[:, None])) * np.cosh(y), y)
    assert total == pytest.approx(1.0, abs=2e-3)  # what lies beyond 3e7 under the heaviest tail, 2 degrees of freedom
    assert fitted.score(x) == pytest.approx(fitted.score_samples(x).mean())


def test_bound_is_in_the_units_of_the_data(method: str) -> None:
    """Stretched by powers of two: the same fit, its bound and its log densities less the log of the stretch."""
    x, _ = three_groups(50)
    stretch = np.array([4.0, 0.125])
    one, other = fitted_once(method), model(method).fit(x * stretch)
    shift = np.log(stretch).sum()
    assert_array_equal(one.labels_, other.labels_)
    assert other.elbo_ == pytest.approx(one.elbo_ - len(x) * shift, rel=1e-9)
    assert_allclose(other.elbo_history_, one.elbo_history_ - len(x) * shift, rtol=1e-7)
    assert_allclose(other.score_samples(x * stretch), one.score_samples(x) - shift, rtol=1e-7)
    assert_allclose(other.means_, one.means_ * stretch, rtol=1e-7)
    assert_allclose(other.covariances_, one.covariances_ * np.outer(stretch, stretch), rtol=1e-7, atol=1e-7)


def test_explicit_prior_is_used_on_the_points_as_they_are(method: str) -> None:
    prior = NormalInverseWishart([50.0, -7e4], 0.01, 4.0, np.diag([1.0, 1e6]))
    x, z = three_groups()
    fitted = model(method, prior).fit(x)
    assert fitted.prior_ is prior
    assert_array_equal(fitted.location_, [0.0, 0.0])
    assert_array_equal(fitted.scale_, [1.0, 1.0])
    assert len(set(zip(fitted.labels_.tolist(), z.tolist(), strict=True))) == fitted.labels_.max() + 1  # none is mixed


@pytest.mark.parametrize(
    ("method", "how"), [*((name, "int") for name in METHODS), ("vdp", "generator"), ("gibbs", "legacy")]
)
def test_same_seed_same_fit(method: str, how: str) -> None:
    """What a seed is given as, no method sees."""
    x, _ = three_groups(40)
    make = {"int": lambda: 3, "generator": lambda: np.random.default_rng(3), "legacy": lambda: np.random.RandomState(3)}
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, other = (model(method, random_state=make[how]()).fit(x) for _ in range(2))
    assert_array_equal(one.labels_, other.labels_)
    assert one.elbo_ == other.elbo_
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_clone_and_pickle(method: str) -> None:
    x, _ = three_groups(50)
    fitted = fitted_once(method)
    again = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(again.score_samples(x), fitted.score_samples(x))
    assert not hasattr(clone(fitted), "labels_")


def test_callback_sees_rounds_in_the_units_of_the_data(method: str) -> None:
    x, _ = three_groups(50)
    seen: list[Any] = []
    fitted = model(method, callback=seen.append).fit(x)
    assert seen
    assert all(p.n_components >= 1 and p.message for p in seen)
    best = max(p.elbo for p in seen)
    assert abs(best - fitted.elbo_) < 1e-6 * abs(fitted.elbo_) + 30.0
    assert all(p.fraction is None or 0.0 <= p.fraction <= 1.0 for p in seen)


def test_what_the_callback_raises_ends_the_fit(method: str) -> None:
    def stop(progress: Any) -> None:
        raise KeyboardInterrupt

    x, _ = three_groups(80)
    with pytest.raises(KeyboardInterrupt):
        model(method, callback=stop).fit(x)


@pytest.mark.parametrize("method", [name for name, row in ENGINES.items() if "max_iter" in row.reads])
def test_best_of_several_starts(method: str) -> None:
    x = np.random.default_rng(5).normal(size=(40, 2)) * [1.0, 3.0]
    seen: list[Any] = []
    one = model(method).fit(x)
    many = model(method, n_init=3, callback=seen.append).fit(x)
    assert many.elbo_ >= one.elbo_ - 1e-9  # the first start is the same
    assert {p.message[:12] for p in seen} == {f"start {i} of 3" for i in (1, 2, 3)}
