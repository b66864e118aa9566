"""`missing` of the streaming estimator: refused by default, or taken through learning, refinement and predictions."""

import io
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from harness.short_form import longer
from shoal import DPMixture, StreamingDPMixture
from shoal.errors import NotFiniteError, NotNumericError, SettingError

RNG = np.random.default_rng(3)
X = 8.0 * np.eye(3)[RNG.integers(3, size=1_500)] + RNG.normal(size=(1_500, 3))
HOLED = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
HOLED[:, 0] = np.where(np.isnan(HOLED).all(axis=1), X[:, 0], HOLED[:, 0])


def test_a_missing_value_is_refused_unless_asked_for() -> None:
    with pytest.raises(ValueError, match="NaN"):
        StreamingDPMixture().fit(HOLED)
    fitted = StreamingDPMixture(warmup_points=300, refinement=None).fit(X[:400])
    with pytest.raises(ValueError, match="NaN"):
        fitted.partial_fit(HOLED[400:])
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict(HOLED)


def test_holes_are_learnt_refined_saved_and_predicted() -> None:
    model = clone(StreamingDPMixture("gaussian", missing="marginal", warmup_points=300, window=1_000)).fit(HOLED[:900])
    assert model._fitted.state.schedule.refined_at > 0
    assert len(model.component_ids_) == 3
    report = model.refine()
    assert report.bound_after >= report.bound_before
    np.testing.assert_allclose(np.sort(model.means_.max(axis=1)), [8.0, 8.0, 8.0], atol=0.3)
    file = io.BytesIO()
    model.save(file)
    again = StreamingDPMixture.load(io.BytesIO(file.getvalue()))
    assert again.missing == "marginal"
    np.testing.assert_array_equal(again.predict(HOLED), model.predict(HOLED))
    assert (model.predict(HOLED) == model.predict(X)).mean() > 0.94
    assert np.isfinite(model.score_samples(HOLED)).all()
    np.testing.assert_allclose(model.predict_proba(HOLED).sum(axis=1) + model.novelty(HOLED), 1.0)


@pytest.mark.parametrize(
    ("kind", "n"), [("category", 300), *(longer(kind, 600) for kind in ("object", "string", "category", "rows"))]
)
def test_holes_in_mixed_columns_are_learnt_refined_and_predicted(kind: str, n: int) -> None:
    rng = np.random.default_rng(8)
    labels = rng.integers(3, size=n)
    columns = {
        "cpu": np.array([20.0, 60.0, 90.0])[labels] + rng.normal(scale=4.0, size=n),
        "errors": rng.poisson(np.array([0.3, 0.5, 12.0])[labels]).astype(float),
        "region": np.array(["eu", "asia", "us"])[labels],
    }
    whole = pd.DataFrame(columns)
    holes = rng.random(whole.shape) < 0.1
    holes[0] = [False, False, True]
    holes[:, 0] &= ~holes.all(axis=1)
    holed: Any = whole.mask(holes)
    family: dict[Any, str] = {"cpu": "gaussian", "errors": "poisson", "region": "categorical"}
    if kind == "rows":
        holed, whole = holed.to_numpy(dtype=object).tolist(), whole.to_numpy(dtype=object).tolist()
        family = dict(enumerate(family.values()))
    else:
        holed = holed.astype({"region": kind})
    model = StreamingDPMixture(family, missing="marginal", warmup_points=n // 2).fit(holed)
    assert sum(model.weights_ > 0.05) == 3  # a refinement may draw a rare level for a hole, and set it apart
    assert set(model.level_names_["region" if kind != "rows" else 2]) == {"eu", "asia", "us"}
    report = model.refine()
    assert report.bound_after >= report.bound_before
    assert adjusted_rand_score(labels, model.predict(whole)) > 0.99
    assert adjusted_rand_score(labels, model.predict(holed)) > 0.95
    np.testing.assert_allclose(model.predict_proba(holed).sum(axis=1) + model.novelty(holed), 1.0)


def test_mixed_columns_without_marginals_name_the_row() -> None:
    rows = [[0.5, "eu"], [1.5, None], [0.7, "us"]]
    with pytest.raises(ValueError, match="row 1 holds None in column 1"):
        StreamingDPMixture({0: "gaussian", 1: "categorical"}).fit(rows)
    with pytest.raises(SettingError, match="cannot learn points with missing values"):
        StreamingDPMixture({0: "gaussian", "1-2": "dirichlet"}, missing="marginal").fit([[0.5, 0.5, 0.5]])


def test_what_a_hole_means_is_part_of_the_stream() -> None:
    fitted = StreamingDPMixture(warmup_points=300, refinement=None).fit(X)
    fitted.missing = "marginal"
    with pytest.raises(SettingError, match="missing cannot change"):
        fitted.partial_fit(HOLED)


def test_a_missing_value_is_refused_by_its_row_and_feature() -> None:
    table = pd.DataFrame({"cpu": [1.0, 2.0, 3.0], "mem": [1.0, 2.0, np.nan]})
    with pytest.raises(NotFiniteError, match=r"row 2 holds NaN in feature 'mem'; .*missing='marginal'") as caught:
        StreamingDPMixture().partial_fit(table)
    assert caught.value.row == 2
    for other in (table.convert_dtypes(), pa.Table.from_pandas(table)):  # a missing value of pandas, and names of Arrow
        with pytest.raises(NotFiniteError, match="row 2 holds NaN in feature 'mem'"):
            StreamingDPMixture().fit(other)
    model = StreamingDPMixture().partial_fit([[1.0, 2.0], [3.0, 4.0]])
    with pytest.raises(NotFiniteError, match="row 0 holds NaN in column 1"):
        model.predict([[1.0, np.nan]])


def test_an_infinity_is_refused_by_its_row_and_feature() -> None:
    table = pd.DataFrame({"cpu": [1.0, 2.0, 3.0], "mem": [1.0, -np.inf, 3.0]})
    for missing in ("refuse", "marginal"):
        with pytest.raises(NotFiniteError, match=r"row 1 holds -inf in feature 'mem'; send finite numbers$"):
            StreamingDPMixture(missing=missing).fit(table)
    with pytest.raises(NotFiniteError, match="row 2 holds nan in column 1"):
        StreamingDPMixture("poisson").fit(csr_array([[1.0, 2.0], [3.0, 4.0], [0.0, np.nan]]))


def test_a_masked_value_is_a_missing_one() -> None:
    """NumPy reads the numbers behind a mask, so they were learnt."""
    masked = np.ma.masked_array(np.where(np.isnan(HOLED), 1e6, HOLED), mask=np.isnan(HOLED))
    row = int(np.isnan(HOLED).any(axis=1).argmax())
    for model in (StreamingDPMixture(), DPMixture()):
        with pytest.raises(NotFiniteError, match=f"row {row} holds NaN"):
            model.fit(masked[:300])
    settings = {"missing": "marginal", "warmup_points": 60, "refinement": None}
    model, same = (StreamingDPMixture(**settings).fit(x[:120]) for x in (masked, HOLED))
    np.testing.assert_array_equal(model.score_samples(masked[300:400]), same.score_samples(HOLED[300:400]))


def test_a_masked_text_is_a_missing_one() -> None:
    rows = np.ma.masked_array([["eu", "a"], ["us", "secret"], ["eu", "b"]], mask=[[0, 0], [0, 1], [0, 0]])
    with pytest.raises(NotNumericError, match="row 1 holds None in column 1"):
        StreamingDPMixture("categorical").fit(rows)
    model = StreamingDPMixture("categorical", missing="marginal").fit(rows)
    assert model.level_names_ == {0: ["eu", "us"], 1: ["a", "b"]}
