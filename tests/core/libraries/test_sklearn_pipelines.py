"""The estimators in pipelines of scikit-learn: metadata, output as tables, labels."""

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from shoal import DPMixture, StreamingDPMixture

RNG = np.random.default_rng(4)
GROUP = RNG.integers(3, size=900)
X = np.array([[0.0, 0.0], [300.0, 0.0], [0.0, 0.02]])[GROUP] + RNG.normal(size=(900, 2)) * [20.0, 0.001]
W = RNG.choice([0.5, 3.0], 900)


def pipeline(model: object) -> Pipeline:
    return make_pipeline(StandardScaler(), model)


def test_weights_reach_the_mixture_and_no_other_step() -> None:
    with config_context(enable_metadata_routing=True):
        model = StreamingDPMixture().set_fit_request(sample_weight=True).set_predict_request(level=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        fitted = make_pipeline(scaler, model).fit(X, sample_weight=W)
        clusters = fitted.predict(X, level="cluster")
    np.testing.assert_allclose(sorted(model.masses_), sorted(np.bincount(GROUP, W)), rtol=1e-6)
    np.testing.assert_array_equal(clusters, model.clusters().of_components(fitted.predict(X)))


def test_weights_of_a_partial_fit_are_asked_for() -> None:
    with config_context(enable_metadata_routing=True):
        model = StreamingDPMixture().set_partial_fit_request(sample_weight=True, times=False)
        requests = model.get_metadata_routing().partial_fit.requests
    assert (requests["sample_weight"], requests["times"]) == (True, False)


@pytest.mark.parametrize("kind", [StreamingDPMixture, DPMixture])
def test_the_responsibilities_are_named_features_of_the_next_step(kind: type) -> None:
    steps = pipeline(kind()).set_output(transform="pandas")
    table = steps.fit(X).transform(X)
    assert isinstance(table, pd.DataFrame)
    best = table.columns[table.to_numpy().argmax(axis=1)].str.removeprefix("component_").astype(int)
    np.testing.assert_array_equal(best, steps.predict(X))
    classifier = make_pipeline(steps, LogisticRegression()).fit(X, GROUP)
    assert classifier.score(X, GROUP) == 1.0


def test_labels_are_the_components_of_the_last_rows() -> None:
    """Over refinements and joins: the groups lie apart, so that every way to label them agrees."""
    model = StreamingDPMixture("diagonal", warmup_points=100, window=400)
    for start in range(0, 900, 75):
        model.partial_fit(X[start : start + 75])
        assert model.labels_.shape == (75,)
        np.testing.assert_array_equal(model.labels_, model.predict(X[start : start + 75]))
    assert {event.kind for event in model.events_} - {"born"}
    fresh = StreamingDPMixture("diagonal", warmup_points=100, window=400)
    np.testing.assert_array_equal(fresh.fit_predict(X), fresh.labels_)
    assert len(set(zip(fresh.labels_, GROUP, strict=True))) == 3
