"""A prior of each conjugate family, points drawn from it, and the most probable partition by another road."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoal.families import (
    BetaBernoulli,
    BetaNegativeBinomial,
    DirichletCategorical,
    DirichletMultinomial,
    GammaPoisson,
    KnownCovariance,
    NormalInverseGamma,
    NormalInverseWishart,
    SubspaceGaussian,
    VonMisesFisher,
    log_marginal,
)

PRIORS: dict[str, Any] = {
    "gaussian": NormalInverseWishart([0.3, -0.2], 0.2, 3.5, [[0.7, 0.1], [0.1, 0.6]]),
    "gaussian 1-D": NormalInverseWishart([0.3], 0.2, 1.5, [[0.7]]),
    "diagonal": NormalInverseGamma([0.3, -0.2], 0.2, 1.7, [0.5, 0.6]),
    "spherical": KnownCovariance([0.3, -0.2], 4.0, 0.5),
    "shared": KnownCovariance([0.3, -0.2], [[3.0, 0.4], [0.4, 2.0]], [[0.8, -0.2], [-0.2, 0.6]]),
    "tight": KnownCovariance([0.0], 0.04, 0.0025),
    "multinomial": DirichletMultinomial([0.5, 0.5, 0.5]),
    "bernoulli": BetaBernoulli([0.5] * 5, [0.7] * 5),
    "categorical": DirichletCategorical([2, 3], [0.5, 0.7, 0.6, 0.4, 0.8]),
    "poisson": GammaPoisson([1.0, 0.5], [0.3, 0.4]),
    "negative binomial": BetaNegativeBinomial([2.5, 1.5], [1.5, 2.0], 3.0),
    "subspace": SubspaceGaussian([0.1, 0.2], [[0.6], [0.8]], 0.3, [-0.1], 0.3, 2.5, [[0.6]]),
    "directions": VonMisesFisher([0.6, 0.8], 0.5, 8.0, 0.4),
}


def draw(name: str, n: int, seed: int) -> Any:
    """n points of three components drawn from the prior, in random order, as the family holds them."""
    family, rng = PRIORS[name], np.random.default_rng([seed, n, *name.encode()])
    parameters = family.sample_parameters(family.posterior(family.empty_stats(3)), rng)
    x = family.sample_points(parameters, n, rng)[rng.integers(3, size=n), np.arange(n)]
    return family.domain.convert(np.asarray(x.toarray() if hasattr(x, "toarray") else x))


def most_probable(family: Any, x: Any, concentration: float) -> float:
    """max over partitions of log p(x, partition), nats, by dynamic programming over subsets of the N <= 9 points.

    A partition is the block of its first point and a partition of the rest; blocks are worth log alpha + log (n - 1)!
    + log m, and all the alpha (alpha + 1) ... of the restaurant are multiplied out.
    """
    n = x.shape[0]
    member = (np.arange(1, 1 << n)[None, :] >> np.arange(n)[:, None]) & 1
    stats = family.suffstats(x, member.astype(np.float64))
    factorial = np.array([0.0, *np.cumsum(np.log(np.arange(1, n))), 0.0])[: n + 1]  # log (m - 1)! at place m - 1
    block = np.append(0.0, np.log(concentration) + factorial[member.sum(axis=0) - 1] + log_marginal(family, stats))
    best = np.zeros(1 << n)
    for points in range(1, 1 << n):
        first = points & -points
        others = points ^ first
        values, chosen = [], others
        while True:
            values.append(block[first | chosen] + best[others ^ chosen])
            if chosen == 0:
                break
            chosen = (chosen - 1) & others
        best[points] = max(values)
    return float(best[-1] - np.log(concentration + np.arange(n)).sum())


@pytest.fixture(params=PRIORS)
def prior_name(request: pytest.FixtureRequest) -> str:
    """Each conjugate family in turn."""
    return str(request.param)


@pytest.fixture
def searches() -> SimpleNamespace:
    """The helpers above: test modules cannot import one another."""
    return SimpleNamespace(priors=PRIORS, draw=draw, most_probable=most_probable)
