"""Exported mixtures: the JSON document computed by SciPy, and ONNX run by onnxruntime, against the estimators."""

import json
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from scipy import stats
from scipy.special import betaln, logsumexp
from sklearn.exceptions import NotFittedError

from shoal import DPMixture, NoPointsError, SettingError, StreamingDPMixture
from shoal.export import FORMULAS, to_json, to_onnx

ROOT = Path(__file__).parents[3]
FAMILIES = {
    "gaussian": "multivariate_t",
    "student": "multivariate_t",
    "known_covariance": "multivariate_normal",
    "diagonal": "independent_t",
    "bernoulli": "independent_bernoulli",
    "poisson": "independent_negative_binomial",
    "negative_binomial": "independent_beta_negative_binomial",
    "multinomial": "dirichlet_multinomial",
}


RATES = np.array([[9.0, 1.0, 0.1], [0.2, 30.0, 2.0], [3.0, 3.0, 300.0]])
SHARES = np.array([[0.9, 0.9, 0.1], [0.1, 0.1, 0.9], [0.5, 0.1, 0.5]])
CENTRES = np.array([[1000.0, 1000.0, 1000.0], [1050.0, 1000.0, 1005.0], [1000.0, 1060.0, 1005.0]])


def drawn(family: str) -> np.ndarray:
    rng = np.random.default_rng(11)
    z = rng.integers(3, size=300)
    if family == "bernoulli":
        return (rng.random((300, 3)) < SHARES[z]).astype(float)
    if family in ("poisson", "negative_binomial", "multinomial"):
        return rng.poisson(RATES[z]).astype(float) + np.eye(3)[2]
    return CENTRES[z] + rng.normal(size=(300, 3)) * [5.0, 1.0, 0.2]


@cache
def fitted(family: str) -> StreamingDPMixture:
    return StreamingDPMixture(family, warmup_points=100).fit(drawn(family))


def log_density_by_scipy(kind: str, row: dict[str, Any], z: np.ndarray) -> np.ndarray:
    """log p(z) (N,) of one component of a document. The constants of densities are SciPy's, not those of the file."""
    held = {name: np.array(value) for name, value in row.items()}
    d = z.shape[1]
    if kind in ("multivariate_t", "multivariate_normal"):
        precision = held["whitening"].T @ held["whitening"]
        if kind == "multivariate_normal":
            return stats.multivariate_normal(held["mean"], np.linalg.inv(precision)).logpdf(z)
        dof = 2 * held["power"] - d
        return stats.multivariate_t(held["mean"], np.linalg.inv(precision * dof), dof).logpdf(z)
    if kind == "independent_t":
        dof = 2 * held["power"] - 1
        return stats.t(dof, held["mean"], 1 / (held["inverse_width"] * np.sqrt(dof))).logpdf(z).sum(axis=1)
    if kind == "independent_bernoulli":
        return stats.bernoulli(1 / (1 + np.exp(-held["log_odds"]))).logpmf(z).sum(axis=1)
    if kind == "independent_negative_binomial":
        return stats.nbinom(held["shape"], -np.expm1(-held["log_rate"])).logpmf(z).sum(axis=1)
    if kind == "independent_beta_negative_binomial":
        a = held["sum"] - held["b"] - held["dispersion"]
        return stats.betanbinom(held["dispersion"], a, held["b"]).logpmf(z).sum(axis=1)
    alpha = held["pseudo_counts"]
    return np.array([stats.dirichlet_multinomial(alpha, int(row.sum())).logpmf(row.astype(int)) for row in z])


@pytest.mark.parametrize(("family", "kind"), FAMILIES.items())
def test_scipy_computes_the_document_as_the_model_does(family: str, kind: str) -> None:
    model, x = fitted(family), drawn(family)[:40]
    document = json.loads(to_json(model))
    assert (document["distribution"], document["formula"]) == (kind, FORMULAS[kind])
    z = (x - document["location"]) / document["scale"]
    rows = [*document["components"], document["new_component"]]
    joint = np.stack([np.log(row["weight"]) + log_density_by_scipy(kind, row, z) for row in rows], axis=1)
    log_density = logsumexp(joint, axis=1) - np.log(document["scale"]).sum()
    np.testing.assert_allclose(log_density, model.score_samples(x), rtol=1e-8, atol=1e-8)
    ids = np.array([row["id"] for row in document["components"]])
    np.testing.assert_array_equal(ids[joint[:, :-1].argmax(axis=1)], model.predict(x))
    assert sum(row["weight"] for row in rows) == pytest.approx(1.0)


def test_a_document_of_heavy_counts_keeps_its_digits_as_the_page_computes_it() -> None:
    """By a difference of log gammas it was wrong in the third digit."""
    x = np.random.default_rng(2).poisson(30.0, size=(100, 1)).astype(float)
    model = StreamingDPMixture("poisson").fit(x, sample_weight=np.full(100, 1e9))
    document = json.loads(to_json(model))
    rows = [*document["components"], document["new_component"]]
    a, rate, zeros, weight = np.array(
        [[row["shape"][0], row["log_rate"][0], row["log_zeros"], row["weight"]] for row in rows]
    ).T
    assert a.max() > 1e11
    joint = np.log(weight) + zeros - np.log(a + x) - betaln(a, x + 1.0) - rate * x
    np.testing.assert_allclose(logsumexp(joint, axis=1), model.score_samples(x), rtol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_onnxruntime_computes_what_the_model_does(family: str) -> None:
    model, x = fitted(family), drawn(family)
    x = np.concatenate([x, x[:50] * 3.0 if family not in ("bernoulli",) else x[:50]])  # some far from all components
    component, log_density, novelty, resp = run(to_onnx(model), x)
    np.testing.assert_allclose(log_density, model.score_samples(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(novelty, model.novelty(x), atol=1e-9)
    np.testing.assert_allclose(resp, model.predict_proba(x), atol=1e-9)
    np.testing.assert_array_equal(component, model.predict(x))


def run(made: Any, x: np.ndarray) -> Any:
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["component", "log_density", "novelty", "responsibilities"], {"x": x})


def test_large_counts_keep_their_digits() -> None:
    x = np.random.default_rng(2).poisson([3.0, 2e6], size=(200, 2)).astype(float)
    model = StreamingDPMixture("poisson", warmup_points=100).fit(x)
    # log n! of 2e6 is 3e7: its last digit is worth 4e-9.
    np.testing.assert_allclose(run(to_onnx(model), x)[1], model.score_samples(x), atol=1e-7)


@pytest.mark.parametrize("family", ["poisson", "negative_binomial", "multinomial"])
def test_heavy_components_of_counts_keep_their_digits(family: str) -> None:
    """Pseudo counts of 1e12: log G of them is 3e13, whose last digit is worth .004."""
    x = drawn(family)[:130]
    model = StreamingDPMixture(family, warmup_points=60).fit(x, sample_weight=np.full(len(x), 1e9))
    _, log_density, novelty, resp = run(to_onnx(model), x)
    np.testing.assert_allclose(log_density, model.score_samples(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(novelty, model.novelty(x), atol=1e-9)
    np.testing.assert_allclose(resp, model.predict_proba(x), atol=1e-9)


def test_a_batch_fit_is_exported_with_its_numbers() -> None:
    x = drawn("gaussian")
    model = DPMixture(random_state=0).fit(x)
    component, log_density, _, _ = run(to_onnx(model), x)
    np.testing.assert_allclose(log_density, model.score_samples(x), rtol=1e-9)
    np.testing.assert_array_equal(component, model.predict(x))


def test_components_that_are_the_best_of_no_point_are_exported() -> None:
    """They hold half of this fit, and were left out: log densities were off by .06."""
    x = np.random.default_rng(3).poisson([[4.0, 30.0]], size=(60, 2)).astype(float)
    model = DPMixture("negative_binomial", method="tfv", random_state=0).fit(x)
    assert len(np.unique(model.labels_)) < model.predict_proba(x).shape[1]
    component, log_density, _, resp = run(to_onnx(model), x)
    np.testing.assert_allclose(log_density, model.score_samples(x), rtol=1e-9)
    np.testing.assert_allclose(resp, model.predict_proba(x), atol=1e-9)
    np.testing.assert_array_equal(component, model.predict(x))
    document = json.loads(to_json(model))
    assert sum(row["weight"] for row in (*document["components"], document["new_component"])) == pytest.approx(1.0)


def test_names_and_ids_travel_along() -> None:
    pd = pytest.importorskip("pandas")
    model = StreamingDPMixture(warmup_points=100).fit(pd.DataFrame(drawn("gaussian"), columns=["a", "b", "c"]))
    about = {each.key: each.value for each in to_onnx(model).metadata_props}
    assert about["feature_names"].split("\n") == ["a", "b", "c"]
    assert [*map(int, about["component_ids"].split())] == model.component_ids_.tolist()
    assert json.loads(to_json(model))["feature_names"] == ["a", "b", "c"]


def test_what_cannot_be_exported_says_why() -> None:
    with pytest.raises(SettingError, match="family 'subspace' cannot be exported; these can: gaussian"):
        to_json(StreamingDPMixture("subspace", warmup_points=50).fit(np.random.default_rng(0).normal(size=(80, 12))))
    with pytest.raises(SettingError, match="average many mixtures"):
        to_json(DPMixture(method="gibbs", n_samples=3, burn_in=1, random_state=0).fit(drawn("gaussian")[:30]))
    snapshot = fitted("gaussian")._snapshot()
    with pytest.raises(NoPointsError, match="no components yet"):
        to_json(replace(snapshot, ids=snapshot.ids[:0]))
    with pytest.raises(NotFittedError):
        to_json(StreamingDPMixture())
    with pytest.raises(SettingError, match="give a fitted"):
        to_json("mixture.npz")  # type: ignore[arg-type]


def test_without_onnx_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SettingError, match=r"pip install 'shoal\[onnx\]'"):
        to_onnx(DPMixture().fit(np.zeros((3, 1))))


def test_the_documents_print_every_formula() -> None:
    page = (ROOT / "docs" / "export.md").read_text()
    for name, formula in FORMULAS.items():
        assert f"| `{name}` | `{formula.replace('|', chr(92) + '|')}` |" in page
