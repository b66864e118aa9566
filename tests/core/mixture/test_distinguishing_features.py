"""Telling features, beside sums over the other components, and SciPy's divergences."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats
from scipy.special import rel_entr

from shoal import DPMixture, StreamingDPMixture
from shoal.families import FAMILIES, KnownCovariance
from shoal.families.feature_contrast import higher_rates, other_parts, other_rates
from shoal.mixture import Moments, telling_features

GROUP = np.arange(240) % 3


def naive(masses: np.ndarray, values: np.ndarray, k: int) -> np.ndarray:
    """Mean of the others, weighted by mass, one after another."""
    others = [j for j in range(len(masses)) if j != k]
    total = math.fsum(masses[j] for j in others)
    return np.array([math.fsum(masses[j] * values[j, d] for j in others) / total for d in range(values.shape[1])])


def rows_of(family: str) -> np.ndarray:
    """Points of three groups, each of which stands out in one feature of six."""
    rng, high = np.random.default_rng(11), np.eye(3, 6)[GROUP]
    if family == "bernoulli":
        return (rng.random((240, 6)) < 0.1 + 0.8 * high).astype(float)
    if family in ("multinomial", "poisson", "negative_binomial"):
        return rng.poisson(1.0 + 12.0 * high).astype(float)
    if family in ("dirichlet", "dirichlet_gradient"):
        return np.clip(rng.dirichlet(np.full(6, 30.0), 240) + 0.6 * high, 1e-6, None)
    if family == "categorical":
        return np.where(high > 0, 2.0, (rng.random((240, 6)) < 0.5).astype(float))
    return rng.normal(size=(240, 6)) + 25.0 * high


@pytest.mark.parametrize("family", ["diagonal", "gaussian", "multinomial", "poisson", "bernoulli", "categorical"])
def test_the_feature_that_makes_a_group_is_the_first(family: str) -> None:
    x = rows_of(family)
    model = StreamingDPMixture(family, refinement=None).fit(x)
    labels = model.predict(x)
    told = model.telling_features()
    assert set(told) == set(model.component_ids_.tolist())
    rows = {int(k): i for i, k in enumerate(model.component_ids_)}
    for group in range(3):
        ids, counts = np.unique(labels[group == GROUP], return_counts=True)
        component = int(ids[counts.argmax()])
        features = told[component]
        assert 1 <= len(features) <= 5
        assert features[0].feature == group
        assert features[0].value > features[0].rest
        if family == "categorical":
            assert features[0].level == 2
            continue
        k = rows[component]
        rest = naive(model.masses_, model.means_, k)
        for one in features:
            assert one.level is None
            assert one.value == model.means_[k, one.feature]
            assert one.rest == pytest.approx(rest[int(one.feature)], rel=1e-9, abs=1e-9)


def test_numbers_are_ranked_by_their_difference_in_pooled_deviations() -> None:
    rng = np.random.default_rng(5)
    scale = np.array([100.0, 1.0, 0.01])
    x = (rng.normal(size=(300, 3)) + np.array([[0, 0, 0], [9.0, 20.0, 14.0]])[np.arange(300) % 2]) * scale
    model = StreamingDPMixture("diagonal", refinement=None).fit(x)
    snapshot = model._snapshot()
    pooled = np.sqrt(
        sum(m * v for m, v in zip(snapshot.masses, snapshot.variances, strict=True)) / snapshot.masses.sum()
    )
    for k, features in enumerate(snapshot.telling()):
        score = np.abs(snapshot.means[k] - naive(snapshot.masses, snapshot.means, k)) / pooled
        assert [one.feature for one in features] == np.argsort(-score)[: len(features)].tolist()
    assert [one.feature for one in snapshot.telling()[0]] == [1, 2, 0]
    assert [len(features) for features in snapshot.telling(n=2)] == [2] * snapshot.n_components


def test_names_take_the_place_of_numbers_and_the_batch_methods_tell_the_same_way() -> None:
    pa = pytest.importorskip("pyarrow")
    x = rows_of("diagonal")
    frame = pa.table({f"f{d}": x[:, d] for d in range(6)})
    told_by_stream = StreamingDPMixture("diagonal").fit(frame).telling_features()
    assert {features[0].feature for features in told_by_stream.values() if features} >= {"f0", "f1", "f2"}
    batch = DPMixture("diagonal", random_state=0).fit(frame)
    told = batch.telling_features()
    assert len(told) == len(batch.masses_)
    for group in range(3):
        k = int(np.bincount(batch.labels_[group == GROUP]).argmax())
        assert told[k][0].feature == f"f{group}"
        assert told[k][0].rest == pytest.approx(naive(batch.masses_, batch.means_, k)[group], rel=1e-6)


def test_one_component_alone_and_equal_features_tell_nothing() -> None:
    prior = KnownCovariance(np.zeros(2), np.eye(2) * 1e4, np.eye(2))
    x = np.array([[0.0, 3.0], [90.0, 3.0]])[np.arange(40) % 2]
    one_group = StreamingDPMixture("known_covariance", prior=prior, refinement=None).fit(x[::2]).telling_features()
    assert list(one_group.values()) == [[]]
    told = StreamingDPMixture("known_covariance", prior=prior, refinement=None).fit(x).telling_features()
    assert [[one.feature for one in features][:1] for features in told.values()] == [[0], [0]]


def test_the_rest_keeps_its_digits_far_from_zero() -> None:
    prior = KnownCovariance(np.full(1, 1e8), np.eye(1) * 1e8, np.eye(1) * 1e-6)
    x = 1e8 + np.array([[0.0], [1.0]])[np.arange(2000) % 2]
    snapshot = StreamingDPMixture("known_covariance", prior=prior, refinement=None).fit(x)._snapshot()
    for k, ((one,),) in enumerate(zip(snapshot.telling(), strict=True)):
        assert one.rest == pytest.approx(snapshot.means[1 - k, 0], abs=1e-7)


def test_contrasts_are_the_divergences_of_scipy() -> None:
    rng = np.random.default_rng(5)
    p, q = rng.random(50), rng.random(50)
    both = np.stack([p, 1.0 - p]), np.stack([q, 1.0 - q])
    np.testing.assert_allclose(other_rates(p, q), rel_entr(*both).sum(axis=0), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(other_parts(p, q), rel_entr(p, q) + rel_entr(q, p), rtol=1e-12, atol=1e-15)
    r, s = 6.0 * p + 1.0, 2.0 * q
    counts = np.arange(200)[:, None]
    log_ratio = scipy_stats.poisson.logpmf(counts, r) - scipy_stats.poisson.logpmf(counts, s)
    expected = (scipy_stats.poisson.pmf(counts, r) * log_ratio).sum(axis=0)
    np.testing.assert_allclose(higher_rates(r, s), np.where(r > s, expected, 0.0), rtol=1e-9, atol=1e-12)
    for function in (other_rates, other_parts, higher_rates):
        assert np.isfinite(function(np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0]))).all()
        assert (function(p, p) <= 1e-15).all()


@pytest.mark.parametrize("name", sorted(FAMILIES))
@pytest.mark.short_form("[!d]*", "diagonal", "dirichlet")
def test_every_family_tells_something_of_two_far_groups(name: str) -> None:
    rng = np.random.default_rng(5)
    domain = FAMILIES[name].domain
    x: Any = rows_of(name)
    if name in ("dirichlet", "dirichlet_gradient"):
        x = x / x.sum(axis=1, keepdims=True)
    if name == "von_mises_fisher":
        x = np.eye(6)[GROUP] + 0.05 * rng.normal(size=(240, 6))
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
    domain.check(x)
    told = StreamingDPMixture(name, refinement=None).fit(x).telling_features()
    found = [one for features in told.values() for one in features]
    assert all(math.isfinite(one.value) and math.isfinite(one.rest) for one in found)
    assert {one.feature for one in found} >= {0, 1, 2} or len(told) == 1


def test_columns_of_several_families_are_each_compared_by_their_own() -> None:
    rng = np.random.default_rng(5)
    group = np.array([0, 1, 1, 1, 1, 2, 2, 2, 2, 2])[np.arange(400) % 10]
    x = np.stack(
        [
            rng.normal(size=400) + 8.0 * (group == 0),
            rng.poisson(np.where(group == 1, 40.0, 2.0)).astype(float),
            np.where(group == 2, 2.0, rng.integers(0, 2, 400)),
            rng.normal(size=400),
        ],
        axis=1,
    )
    family = FAMILIES['{"0,3":"gaussian","1":"poisson","2":"categorical"}'].weak(4)
    stats = family.suffstats(x, np.eye(3)[group])
    params = family.posterior(stats)
    moments = Moments(stats, stats[0], family.predictive_mean(params), family.predictive_variance(params))
    told = telling_features(family, moments, ["a", "b", "c", "d"], np.arange(3))
    assert [(features[0].feature, features[0].level) for features in told] == [("a", None), ("b", None), ("c", 2)]
    assert told[1][0].value == pytest.approx(x[group == 1, 1].mean(), rel=0.05)
    assert told[2][0].value > 0.9 > 0.1 > told[2][0].rest


def test_a_level_that_no_point_has_is_not_telling() -> None:
    """Levels have shares above 0 a priori, which differ between components of unequal masses."""
    rng = np.random.default_rng(12)
    kind = (rng.random(1500) < 0.25).astype(int)
    region = np.where(rng.random(1500) < 0.9, kind, 1 - kind)
    x = np.column_stack([20.0 + 30.0 * kind + rng.normal(size=1500), region])
    model = StreamingDPMixture({"0": "gaussian", "1": "categorical"}, refinement=None).fit(x)
    told = [one for features in model.telling_features().values() for one in features]
    assert {one.level for one in told} == {None, 0, 1}
