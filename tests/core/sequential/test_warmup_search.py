"""Fits of a warm-up are searched: a data set with fewer rows than the warm-up ends with components like its classes."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.metrics import adjusted_rand_score

from shoal import StreamingDPMixture
from shoal.mixture import StreamSettings, to_bytes
from shoal.sequential.warmup_search import is_searched


def shuffled(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).permutation(len(y))
    return x[rows], y[rows]


def drawn(n: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    return rng.normal(size=(4, 5))[y] * 4.0 + rng.normal(size=(n, 5)), y


def test_a_few_hundred_rows_of_two_classes_are_not_dozens_of_mixed_clusters() -> None:
    x, y = shuffled(*load_breast_cancer(return_X_y=True))
    model = StreamingDPMixture().fit(x)
    assert adjusted_rand_score(y, model.predict(x)) > 0.5  # one pass alone: 56 components, .09
    assert adjusted_rand_score(y, model.predict(x, level="cluster")) > 0.6  # .10


def test_150_flowers_of_three_kinds_are_three_components() -> None:
    x, y = shuffled(*load_iris(return_X_y=True))
    model = StreamingDPMixture().fit(x)
    assert len(model.component_ids_) == 3
    assert adjusted_rand_score(y, model.predict(x)) > 0.85


def test_the_result_does_not_depend_on_how_rows_are_cut() -> None:
    x, _ = drawn(300)
    whole, parts = StreamingDPMixture().fit(x), StreamingDPMixture()
    for start, end in ((0, 1), (1, 63), (63, 64), (64, 130), (130, 256), (256, 300)):
        parts.partial_fit(x[start:end])
    assert to_bytes(whole._fitted.state) == to_bytes(parts._fitted.state)


@pytest.mark.parametrize("half_life", [None, 90.0])
@pytest.mark.parametrize("weights", [None, 2.5])
def test_no_mass_is_lost_or_won(half_life: float | None, weights: float | None) -> None:
    x, _ = drawn(200)
    given = None if weights is None else np.full(200, weights)
    state = StreamingDPMixture(half_life=half_life).fit(x, sample_weight=given)._fitted.state
    masses = state.stats[0][: state.n_components]
    assert masses.sum() + state.pruned_mass == pytest.approx(state.decayed_count, rel=1e-9)


def test_ids_last_from_fit_to_fit() -> None:
    x, _ = drawn(256)
    model = StreamingDPMixture().fit(x[:128])
    before = model.predict(x)
    model.partial_fit(x[128:])
    assert np.mean(model.predict(x) == before) > 0.95


@pytest.mark.parametrize(
    "change", [{"refinement": None}, {"window": 0, "refinement": None}, {"method": "sva", "refinement": None}]
)
def test_streams_that_are_not_refined_are_not_searched(change: dict[str, object]) -> None:
    assert is_searched(StreamSettings(n_features=5), 64)
    assert not is_searched(StreamSettings(n_features=5), 63)
    assert not is_searched(StreamSettings(n_features=5, **change), 64)  # type: ignore[arg-type]


def test_fits_of_a_long_warm_up_are_not_searched_when_rows_are_many() -> None:
    """The learner waited half a minute for the search of 32,768 rows in 10 features."""
    settings = StreamSettings(n_features=10, warmup_points=100_000)
    assert is_searched(settings, 1_024)
    assert not is_searched(settings, 2_048)
