"""Telling features of clusters, against a mixture whose components are the clusters from the start."""

import numpy as np
import pytest

from shoal import DPMixture
from shoal.clusters import telling_of_clusters
from shoal.estimators import mixture_of
from shoal.families import NormalInverseWishart


@pytest.mark.parametrize("family", ["gaussian", "multinomial"])
def test_clusters_tell_what_components_of_the_same_points_would(family: str) -> None:
    """Means by cluster of the training points, from labels; those of a posterior differ by what the prior adds."""
    rng = np.random.default_rng(4)
    group = rng.integers(3, size=600)
    if family == "gaussian":
        x = np.array([[0, 0, 0], [30, 0, 0], [34, 0, 9]])[group] + rng.normal(size=(600, 3))
        prior = NormalInverseWishart(mean=np.zeros(3), mean_strength=1e-3, dof=5, scale=np.eye(3))
        model = DPMixture(prior, random_state=0).fit(x)
    else:
        topics = np.array([[0.8, 0.1, 0.1, 0.0], [0.1, 0.8, 0.1, 0.0], [0.1, 0.6, 0.0, 0.3]])
        x = np.array([rng.multinomial(60, topics[one]) for one in group])
        model = DPMixture(family, random_state=0).fit(x)
    clusters = model.clusters(2)
    told = telling_of_clusters(mixture_of(model), clusters)
    assert list(told) == [one.id for one in clusters.clusters]
    cluster = clusters.of_components(model.labels_)
    table = x if family == "gaussian" else x / x.sum(axis=1, keepdims=True)
    for one, features in told.items():
        assert features
        for feature in features:
            inside, outside = (
                table[cluster == one, feature.feature].mean(),
                table[cluster != one, feature.feature].mean(),
            )
            assert feature.value == pytest.approx(inside, abs=0.02)
            assert feature.rest == pytest.approx(outside, abs=0.02)


def test_a_snapshot_of_a_batch_fit_predicts_as_the_estimator_does() -> None:
    rng = np.random.default_rng(7)
    x = np.array([[0.0, 0], [8, 0], [0, 8]])[rng.integers(3, size=300)] + rng.normal(size=(300, 2))
    model = DPMixture(random_state=0).fit(x)
    found = mixture_of(model).predict(x)
    assert found.component.tolist() == model.predict(x).tolist()
    assert found.log_density == pytest.approx(model.score_samples(x))
    assert found.resp == pytest.approx(model.predict_proba(x)[:, : len(found.resp[0])], abs=1e-12)
    assert mixture_of(model).telling() == model.telling_features()[: len(found.resp[0])]
