"""Stability: high for groups that are there, low for groups that are not."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture
from shoal.errors import NoPointsError, SettingError


def four_groups(n: int = 1_200) -> np.ndarray:
    rng = np.random.default_rng(8)
    return 20.0 * np.eye(4)[rng.integers(4, size=n)] + rng.normal(size=(n, 4))


def test_groups_that_are_there_come_back() -> None:
    model = StreamingDPMixture(refinement=None).fit(four_groups())
    before = model._fitted.to_bytes()
    found = model.stability()
    assert (found.agreement, found.component_agreement) == (1.0, 1.0)
    assert (found.n_clusters, found.n_rows) == ((4, 4), 1_200)
    assert model._fitted.to_bytes() == before
    assert model.stability(4) == found


def test_it_is_the_agreement_of_two_models_of_alternate_rows() -> None:
    x = np.random.default_rng(9).uniform(size=(1_000, 2))
    model = StreamingDPMixture("diagonal", refinement=None, half_life=800.0, window=600).fit(x)
    rows = x[400:]
    halves = [StreamingDPMixture("diagonal", refinement=None, half_life=400.0).fit(rows[i::2]) for i in (0, 1)]
    labels = [half.predict(rows, level="cluster", n_clusters=3) for half in halves]
    found = model.stability(3)
    assert found.agreement == adjusted_rand_score(*labels)
    assert found.component_agreement == adjusted_rand_score(*(half.predict(rows) for half in halves))
    assert found.agreement < 0.9
    assert found.n_rows == 600


def test_too_few_rows_and_invalid_choices_are_refused() -> None:
    model = StreamingDPMixture(refinement=None).fit(four_groups(19))
    with pytest.raises(NoPointsError, match=r"19 rows.*at least 20"):
        model.stability()
    with pytest.raises(NoPointsError, match="no window is kept"):
        StreamingDPMixture(refinement=None, window=0).fit(four_groups()).stability()
    for choice in ({"n_clusters": 0}, {"resolution": -1.0}, {"n_clusters": 2, "resolution": 1.0}, {"n_clusters": 99}):
        with pytest.raises(SettingError):
            model.stability(**choice)


def test_a_half_with_fewer_components_than_clusters_has_these_as_clusters() -> None:
    rng = np.random.default_rng(10)
    x = rng.uniform(size=(400, 2)) * [30.0, 1.0]
    model = StreamingDPMixture("diagonal", refinement=None).fit(x)
    k = len(model.component_ids_)
    found = model.stability(k)
    assert max(found.n_clusters) <= k
    assert min(found.n_clusters) < k
