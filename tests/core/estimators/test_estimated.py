"""The scikit-learn face of proportions, unit vectors, and a family of one's own learnt by stochastic gradient: what
works, and what is refused by name."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from harness.gradient_proportions import GradientProportions
from shoal import DPMixture, OutsideDomainError, ShapeError, StreamingDPMixture
from shoal.errors import RefinementError, SettingError
from shoal.estimators.batch_engines import ENGINES
from shoal.families import FAMILIES, DirichletObservations, EstimatedFamily, register

D = 4
OWN = GradientProportions.name


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, OWN, GradientProportions)


def rows(family: str, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """n points of two components, and their labels."""
    rng = np.random.default_rng(2)
    labels = rng.integers(2, size=n)
    if family != "von_mises_fisher":
        x = rng.standard_gamma(60.0 * np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6]])[labels])
        return x / x.sum(axis=1, keepdims=True), labels
    x = np.eye(D)[labels] + 0.1 * rng.standard_normal((n, D))
    return x / np.linalg.norm(x, axis=1, keepdims=True), labels


@pytest.fixture(params=["dirichlet", "von_mises_fisher", OWN])
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


NOT_CONJUGATE = pytest.mark.parametrize("family", [OWN], indirect=True)


def test_two_components_are_found_and_kept_through_a_file(family: str, tmp_path: Any) -> None:
    x, labels = rows(family, 140)
    model = StreamingDPMixture(family, warmup_points=64).partial_fit(x[:90]).partial_fit(x[90:])
    first, second = np.argsort(-model.masses_)[:2]
    assert model.masses_[[first, second]].sum() > 0.97 * len(x)
    ids = model.predict(x)
    agree = np.mean((ids == ids[0]) == (labels == labels[0]))
    assert agree > 0.98
    assert_allclose(model.predict_proba(x).sum(axis=1) + model.novelty(x), 1.0, rtol=1e-10)
    for k in (first, second):
        label = labels[ids == model.component_ids_[k]][0]
        assert_allclose(model.means_[k], x[labels == label].mean(axis=0), atol=0.02)
        assert_allclose(np.diag(model.covariances_[k]), x[labels == label].var(axis=0), rtol=0.6, atol=2e-3)
    model.save(tmp_path / "state.shoal")
    again = StreamingDPMixture.load(tmp_path / "state.shoal")
    assert_array_equal(again.score_samples(x), model.score_samples(x))
    again.partial_fit(x[:50])
    model.partial_fit(x[:50])
    assert_array_equal(again.means_, model.means_)


@pytest.mark.parametrize("family", ["dirichlet", "von_mises_fisher"], indirect=True)
def test_a_refined_stream_with_a_half_life_is_the_same_for_any_cut(family: str) -> None:
    """Refined in the middle, and whenever it is due."""
    x, _ = rows(family, 450)

    def learned(cut: int) -> bytes:
        model = StreamingDPMixture(family, half_life=300.0, warmup_points=100)
        for part in (x[:300], x[300:]):
            for start in range(0, len(part), cut):
                model.partial_fit(part[start : start + cut])
            if len(part) == 300:
                assert model.refine().bound_after > -np.inf
        return model._fitted.to_bytes()

    whole = learned(300)
    assert learned(61) == whole


@NOT_CONJUGATE
def test_nothing_is_refined_and_asking_for_it_says_why(family: str) -> None:
    x, _ = rows(family, 100)
    model = StreamingDPMixture(family, warmup_points=64, refinement="auto").fit(x)
    assert all(event.kind in ("born", "refined", "pruned") for event in model.events_)
    assert not [event for event in model.events_ if event.kind == "refined" and event.offset > 64]
    with pytest.raises(RefinementError, match=rf"{family}.*not conjugate.*default, sva, sva-pm"):
        model.refine()


@NOT_CONJUGATE
@pytest.mark.parametrize("method", ENGINES)
def test_every_batch_method_refuses_by_name(family: str, method: str) -> None:
    x, _ = rows(family, 20)
    for given in (family, FAMILIES[family].weak(D)):
        with pytest.raises(SettingError, match=rf"{method}.*{family}.*StreamingDPMixture"):
            DPMixture(given, method).fit(x)


def test_rows_outside_the_domain_are_refused_with_their_number(family: str) -> None:
    x, _ = rows(family, 20)
    x[7] *= 1.01
    model = StreamingDPMixture(family)
    with pytest.raises(OutsideDomainError, match="row 7 is outside the domain of") as caught:
        model.fit(x)
    assert caught.value.row == 7
    x[7] /= 1.01
    model.fit(x)
    with pytest.raises(OutsideDomainError, match="row 1"):
        model.predict(np.vstack([x[:1], np.full((1, D), 0.3)]))
    with pytest.raises((ShapeError, TypeError, ValueError)):
        model.predict(x[:, :2])


def test_negative_shares_are_refused_and_zeros_are_the_least_share() -> None:
    x, _ = rows("dirichlet", 30)
    bad = x.copy()
    bad[3, :2] = -0.1, bad[3, :2].sum() + 0.1
    with pytest.raises(OutsideDomainError, match=r"row 3 holds -0\.1 in column 0"):
        StreamingDPMixture("dirichlet").fit(bad)
    x[5] = [0.0, 0.0, 0.0, 1.0]
    model = StreamingDPMixture("dirichlet", prior=DirichletObservations(20.0, np.ones(D))).fit(x)
    assert np.isfinite(model.score_samples(x)).all()
    raised = np.array([[1e-12, 1e-12, 1e-12, 1.0]])
    assert_array_equal(model.score_samples(x[5:6]), model.score_samples(raised))


def test_a_name_that_is_taken_is_not_given_again() -> None:
    class Other(EstimatedFamily):
        name = "gaussian"

    with pytest.raises(SettingError, match="already"):
        register(Other)
    assert FAMILIES["gaussian"].__name__ == "NormalInverseWishart"
