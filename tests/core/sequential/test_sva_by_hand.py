"""Algorithm 1 worked by hand on three points, with SciPy's densities."""

import numpy as np
import pytest
from scipy import stats

from shoal.families.diagonal import NormalInverseGamma
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance

X = np.array([[0.0], [3.0], [1.0]])
ALPHA = 0.5


def test_known_covariance(sva):
    """N(theta, 1), theta ~ N(0, 4): posterior precision 1/4 + w."""

    def density(x, w, total):
        precision = 0.25 + w
        return stats.norm.pdf(x, total / precision, np.sqrt(1 + 1 / precision))

    born = np.array([1 * density(3.0, 1, 0.0), ALPHA * density(3.0, 0, 0.0)])
    rho = born / born.sum()
    assert rho[1] > 0.3  # the second point founds a component and is shared with the first
    w, total = np.array([1 + rho[0], rho[1]]), np.array([3 * rho[0], 3 * rho[1]])
    third = np.append(w * density(1.0, w, total), ALPHA * density(1.0, 0, 0.0))
    assert third[2] / third.sum() < 0.3  # the third does not: its share of the prior is dropped
    share = third[:2] / third[:2].sum()
    w, total = w + share, total + share

    result = sva.drive(KnownCovariance([0.0], 4.0, 1.0), sva.rules(birth_threshold=0.3, concentration=ALPHA), X)
    np.testing.assert_allclose(result.components.stats.mass, w, rtol=1e-12)
    np.testing.assert_allclose(result.components.stats.mean[:, 0], total / w, rtol=1e-12)
    expected = [ALPHA * density(0.0, 0, 0.0), born.sum(), third.sum()]
    np.testing.assert_allclose(result.log_density, np.log(expected), rtol=1e-12)
    assert result.labels.tolist() == [0, int(rho[1] > rho[0]), int(share[1] > share[0])]


@pytest.mark.parametrize("form", ["gaussian", "diagonal"])
def test_student_t(sva, form):
    """One feature: normal-inverse-Wishart with dof 2a, scale 2b is normal-inverse-gamma with shape a, rate b."""
    kappa, a, b = 0.5, 1.5, 0.8

    def density(x, w, mean, scatter):
        k, shape = kappa + w, a + w / 2
        centre = w * mean / k
        rate = b + 0.5 * (scatter + kappa * w / k * mean**2)
        return stats.t.pdf(x, 2 * shape, centre, np.sqrt(rate * (k + 1) / (shape * k)))

    first = np.array([1 * density(3.0, 1, 0.0, 0.0), ALPHA * density(3.0, 0, 0.0, 0.0)])
    rho = first / first.sum()
    mass = np.array([1 + rho[0], rho[1]])
    mean = np.array([3 * rho[0] / mass[0], 3.0])
    scatter = np.array([rho[0] / mass[0] * 9.0, 0.0])
    third = np.append(mass * density(1.0, mass, mean, scatter), ALPHA * density(1.0, 0, 0.0, 0.0))

    wishart, gamma = NormalInverseWishart([0.0], kappa, 2 * a, [[2 * b]]), NormalInverseGamma([0.0], kappa, a, [b])
    prior = wishart if form == "gaussian" else gamma
    result = sva.drive(prior, sva.rules(birth_threshold=0.3, concentration=ALPHA), X[:2])
    assert rho[1] > 0.3
    np.testing.assert_allclose(result.components.stats.mass, mass, rtol=1e-12)
    np.testing.assert_allclose(result.components.stats.mean[:, 0], mean, rtol=1e-12)
    np.testing.assert_allclose(result.components.stats.scatter.ravel(), scatter, rtol=1e-12)
    result = sva.drive(prior, sva.rules(birth_threshold=0.3, concentration=ALPHA), X)
    assert result.log_density[2] == pytest.approx(np.log(third.sum()), rel=1e-12)
