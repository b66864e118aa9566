"""`missing` of the streaming estimator: refused by default, or taken through learning, refinement and predictions."""

import io

import numpy as np
import pytest
from sklearn.base import clone

from shoal import StreamingDPMixture
from shoal.errors import SettingError

RNG = np.random.default_rng(3)
X = 8.0 * np.eye(3)[RNG.integers(3, size=1_500)] + RNG.normal(size=(1_500, 3))
HOLED = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
HOLED[:, 0] = np.where(np.isnan(HOLED).all(axis=1), X[:, 0], HOLED[:, 0])


def test_a_missing_value_is_refused_unless_asked_for() -> None:
    with pytest.raises(ValueError, match="NaN"):
        StreamingDPMixture().fit(HOLED)
    fitted = StreamingDPMixture(warmup_points=300).fit(X[:400])
    with pytest.raises(ValueError, match="NaN"):
        fitted.partial_fit(HOLED[400:])
    with pytest.raises(ValueError, match="NaN"):
        fitted.predict(HOLED)


def test_holes_are_learnt_refined_saved_and_predicted() -> None:
    model = clone(StreamingDPMixture("gaussian", missing="marginal", warmup_points=300, window=1_000)).fit(HOLED)
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


def test_what_a_hole_means_is_part_of_the_stream() -> None:
    fitted = StreamingDPMixture(warmup_points=300).fit(X)
    fitted.missing = "marginal"
    with pytest.raises(SettingError, match="missing cannot change"):
        fitted.partial_fit(HOLED)
