"""Gaussian mixtures of scikit-learn as the start of a stream, against SciPy's densities and against quadrature."""

import io

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import multivariate_t, norm
from scipy.stats import t as student_t
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from shoal import StreamingDPMixture
from shoal.errors import SettingError

RNG = np.random.default_rng(3)
CENTRES = np.array([[0.0, 0.0, 50.0], [9.0, 0.0, 50.0], [0.0, 80.0, 50.0], [9.0, 80.0, 58.0]])
X = np.repeat(CENTRES, 150, axis=0) + RNG.normal(size=(600, 3)) * [1.0, 10.0, 2.0]
ASKED = np.vstack([X[::40], [[4.0, 40.0, 50.0], [30.0, -90.0, 70.0]]])


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_a_stream_of_many_points_has_the_densities_of_the_mixture(covariance_type: str) -> None:
    """A Student t differs from its Gaussian by about r^4 / mass at r deviations, here up to 4; its log gammas are
    rounded to 2e-6."""
    mixture = GaussianMixture(4, covariance_type=covariance_type, means_init=CENTRES).fit(X)
    model = StreamingDPMixture.from_gaussian_mixture(mixture, 10**9)
    np.testing.assert_allclose(model.score_samples(X), mixture.score_samples(X), atol=1e-5)
    np.testing.assert_array_equal(model.predict(X), mixture.predict(X))
    np.testing.assert_allclose(model.weights_, mixture.weights_, rtol=1e-8)


def by_scipy(mixture: BayesianGaussianMixture, x: np.ndarray, alpha: float) -> np.ndarray:
    """Log predictive densities of the mixture's posterior (Bishop 2006, equation 10.81), with a new component."""

    def log_t(mean: np.ndarray, strength: float, dof: float, scale: np.ndarray) -> np.ndarray:
        widen = (strength + 1.0) / strength
        if scale.ndim == 1:
            spread = np.sqrt(scale * widen / dof)
            return np.sum(student_t.logpdf(x, dof, mean, spread), axis=1)
        left = dof + 1.0 - x.shape[1]
        return multivariate_t.logpdf(x, mean, scale * widen / left, left)

    mass = mixture.mean_precision_ - mixture.mean_precision_prior_
    dof = mixture.degrees_of_freedom_
    rows = [
        np.log(mass[k]) + log_t(mixture.means_[k], mixture.mean_precision_[k], dof[k], mixture.covariances_[k] * dof[k])
        for k in np.flatnonzero(mass >= 1.0)
    ]
    start = (mixture.mean_precision_prior_, mixture.degrees_of_freedom_prior_, mixture.covariance_prior_)
    rows.append(np.log(alpha) + log_t(mixture.mean_prior_, *start))
    return logsumexp(rows, axis=0) - np.log(mass[mass >= 1.0].sum() + alpha)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_bayesian_mixture_is_continued_exactly(covariance_type: str) -> None:
    given = {"covariance_type": covariance_type, "weight_concentration_prior": 0.7, "random_state": 0, "max_iter": 300}
    mixture = BayesianGaussianMixture(n_components=9, mean_precision_prior=0.05, **given).fit(X)
    model = StreamingDPMixture.from_gaussian_mixture(mixture)
    assert model.concentration == 0.7
    assert len(model.component_ids_) < 9
    assert model.masses_.sum() == pytest.approx(600.0, abs=1.0)
    np.testing.assert_allclose(model.score_samples(ASKED), by_scipy(mixture, ASKED, 0.7), rtol=1e-9)


def test_components_keep_their_numbers_where_others_are_left_out() -> None:
    mixture = GaussianMixture(4, means_init=CENTRES).fit(X)
    for name, empty in (("weights_", 0.0), ("means_", 900.0), ("covariances_", np.eye(3))):
        setattr(mixture, name, np.insert(getattr(mixture, name), 2, empty, axis=0))
    model = StreamingDPMixture.from_gaussian_mixture(mixture, 600)
    assert model.predict(CENTRES).tolist() == model.component_ids_.tolist() == [0, 1, 3, 4]
    fresh = np.full((400, 3), 300.0) + RNG.normal(size=(400, 3))
    assert min(model.partial_fit(fresh).predict(fresh)) >= 5
    bayesian = BayesianGaussianMixture(n_components=9, random_state=0, max_iter=300).fit(X)
    by_mass = np.flatnonzero(bayesian.mean_precision_ - bayesian.mean_precision_prior_ >= 1.0)
    assert by_mass.tolist() != list(range(len(by_mass)))
    assert StreamingDPMixture.from_gaussian_mixture(bayesian).component_ids_.tolist() == by_mass.tolist()


def test_components_that_overlap_stay_apart() -> None:
    """The entropies between them are those of quadrature, and so a check for merges joins none."""
    mixture = GaussianMixture(2, means_init=[[-1.1], [1.1]], max_iter=1)
    mixture.weights_, mixture.means_ = np.array([0.5, 0.5]), np.array([[-1.1], [1.1]])
    mixture.covariances_, mixture.precisions_cholesky_ = np.full((2, 1, 1), 1.0), np.full((2, 1, 1), 1.0)
    model = StreamingDPMixture.from_gaussian_mixture(mixture, 20_000, refinement=None)

    def entropy(x: float) -> float:
        parts = 0.5 * norm.pdf(x, [-1.1, 1.1])
        return float(parts.sum() * np.log(parts.sum()) - (parts * np.log(parts)).sum())

    by_quadrature = 20_000 * quad(entropy, -9.0, 9.0)[0]
    assert model._fitted.state.pairs[0, 1] == pytest.approx(by_quadrature, rel=0.05)  # 5 deviations of the mean
    side = RNG.choice([-1.1, 1.1], size=(9_000, 1))
    model.partial_fit(side + RNG.normal(size=(9_000, 1)))
    assert "merged" not in {event.kind for event in model.events_}
    np.testing.assert_allclose(model.means_[:2, 0], [-1.1, 1.1], atol=0.1)


def saved(model: StreamingDPMixture) -> bytes:
    file = io.BytesIO()
    model.save(file)
    return file.getvalue()


def test_the_stream_goes_on_after_a_save() -> None:
    mixture = GaussianMixture(4, means_init=CENTRES).fit(X)
    model = StreamingDPMixture.from_gaussian_mixture(mixture, 600, half_life=2_000, window=1_000)
    again = StreamingDPMixture.load(io.BytesIO(saved(model)))
    later = CENTRES[RNG.integers(4, size=600)] + RNG.normal(size=(600, 3)) * [1.0, 10.0, 2.0] + np.array([0, 0, 100])
    assert saved(model.partial_fit(later)) == saved(again.partial_fit(later))
    assert not set(model.predict(later)) & {0, 1, 2, 3}
    np.testing.assert_array_equal(model.predict(X), mixture.predict(X))


def test_what_cannot_be_the_start_is_refused() -> None:
    mixture, other = GaussianMixture(2).fit(X), BayesianGaussianMixture().fit(X)
    for given in ((mixture,), (mixture, 0), (other, 600), (StreamingDPMixture(),)):
        with pytest.raises(SettingError):
            StreamingDPMixture.from_gaussian_mixture(*given)
    with pytest.raises(SettingError, match="family follows from the mixture"):
        StreamingDPMixture.from_gaussian_mixture(mixture, 600, family="diagonal")
    with pytest.raises(SettingError, match="2 components of 1 point or more; this stream may have 1 to 1"):
        StreamingDPMixture.from_gaussian_mixture(mixture, 600, max_components=1)
