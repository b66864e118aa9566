"""Points drawn from a fitted mixture, and information criteria."""

import numpy as np
import pytest
from scipy import stats
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

from shoal import DPMixture, SettingError, StreamingDPMixture

N = 20_000


def two_clusters(n: int = 4_000) -> np.ndarray:
    rng = np.random.default_rng(3)
    z = rng.random(n) < 0.3
    return np.where(z[:, None], [50.0, 5.0], [0.0, 0.0]) + rng.normal(size=(n, 2)) * [3.0, 0.5]


@pytest.mark.parametrize("family", ["gaussian", "diagonal", "known_covariance", "student"])
@pytest.mark.parametrize("kind", [StreamingDPMixture, DPMixture])
@pytest.mark.short_form("StreamingDPMixture-gaussian", "DPMixture-*")
def test_drawn_points_have_the_moments_of_their_components(kind: type, family: str) -> None:
    model = kind(family, random_state=0).fit(two_clusters())
    x, component = model.sample(N, random_state=7)
    ids = getattr(model, "component_ids_", np.arange(len(model.weights_)))
    for row, one in enumerate(ids):
        own = x[component == one]
        if len(own) < 1_000:
            continue
        assert len(own) / N == pytest.approx(model.weights_[row], abs=0.015)  # four standard deviations
        deviation = np.sqrt(np.diag(model.covariances_[row]))
        np.testing.assert_allclose(own.mean(axis=0), model.means_[row], atol=4 * deviation.max() / np.sqrt(len(own)))
        np.testing.assert_allclose(own.std(axis=0) / deviation, 1.0, atol=0.1)


def test_drawn_points_have_the_density_that_is_reported() -> None:
    """P(log density) of drawn points and of a second draw are one distribution, and its mean is minus the entropy."""
    x = two_clusters()[:, :1]
    model = StreamingDPMixture().fit(x)
    drawn = model.sample(N, random_state=1)[0][:, 0]
    grid = np.linspace(-60.0, 110.0, 20_001)
    cumulative = np.cumsum(np.exp(model.score_samples(grid[:, None]))) * (grid[1] - grid[0])
    # The reported density has a new component of weight 1 / 4,001 in addition: far less than the test can see.
    found = stats.kstest(drawn, lambda v: np.interp(v, grid, cumulative / cumulative[-1]))
    assert found.pvalue > 1e-3


@pytest.mark.parametrize("family", ["poisson", "bernoulli", "negative_binomial"])
def test_drawn_counts_have_the_means_of_their_components(family: str) -> None:
    rng = np.random.default_rng(5)
    x = (rng.random((800, 3)) < [0.1, 0.5, 0.9]) if family == "bernoulli" else rng.poisson([1.0, 9.0, 30.0], (800, 3))
    model = StreamingDPMixture(family).fit(x.astype(float))
    drawn, _ = model.sample(N, random_state=2)
    assert (drawn == np.floor(drawn)).all()
    np.testing.assert_allclose(drawn.mean(axis=0), x.mean(axis=0), rtol=0.1)


def test_a_seed_gives_the_same_points() -> None:
    model = StreamingDPMixture().fit(two_clusters(200))
    np.testing.assert_array_equal(model.sample(5, random_state=3)[0], model.sample(5, random_state=3)[0])
    assert not np.array_equal(model.sample(5, random_state=3)[0], model.sample(5, random_state=4)[0])


def test_criteria_count_parameters_as_scikit_learn_does() -> None:
    x = two_clusters(1_000)
    model, peer = DPMixture().fit(x), GaussianMixture(2, random_state=0).fit(x)
    assert len(model.weights_) == 2
    fit = -2.0 * model.score_samples(x).sum()
    n_parameters = peer._n_parameters() + 1  # the weights need not sum to one: the rest is a new component's
    assert model.aic(x) - fit == pytest.approx(2 * n_parameters)
    assert model.bic(x) - fit == pytest.approx(n_parameters * np.log(1_000))
    assert model.bic(x) == pytest.approx(peer.bic(x), rel=0.01)


def test_what_cannot_be_drawn_says_why() -> None:
    with pytest.raises(NotFittedError):
        StreamingDPMixture().sample()
    model = StreamingDPMixture().fit(two_clusters(50))
    with pytest.raises(SettingError, match="n_samples is 0"):
        model.sample(0)
