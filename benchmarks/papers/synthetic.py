"""Ten Gaussians with a given separation, for the simulated data of both papers of Kurihara and others.

c-separation is that of Dasgupta (1999): |m_i - m_j| >= c sqrt(D max(l_i, l_j)), where l is the largest eigenvalue of a
component's covariance. The papers say no more about means, covariances and weights. Here, covariances have eigenvalues
uniform in 0.1..1 along random axes. Means are normal and as close as the separation allows: the spread grows by a
thousandth until one fits. Weights are Dirichlet(5, ..., 5).
"""

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from shoal.families import NormalInverseWishart

COMPONENTS = 10


class Gaussians(NamedTuple):
    """A mixture to draw from."""

    means: np.ndarray  # (K, D)
    roots: np.ndarray  # (K, D, D) lower
    weights: np.ndarray  # (K,)

    def draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Draw n points (n, D), in random order."""
        x = rng.normal(size=(n, self.means.shape[1]))
        labels = rng.choice(len(self.weights), size=n, p=self.weights)
        for k in range(len(self.weights)):
            mine = labels == k
            x[mine] = self.means[k] + x[mine] @ self.roots[k].T
        return x

    def log_density(self, x: np.ndarray) -> np.ndarray:
        """(N,) the truth's own, nats."""
        parts = []
        for mean, root, weight in zip(*self, strict=True):
            z = np.linalg.solve(root, (x - mean).T)
            log_det = np.log(np.diagonal(root)).sum()
            parts.append(np.log(weight) - log_det - 0.5 * np.square(z).sum(axis=0))
        found: np.ndarray = logsumexp(parts, axis=0) - 0.5 * x.shape[1] * np.log(2 * np.pi)
        return found


def ten_gaussians(n_features: int, separation: float, rng: np.random.Generator) -> Gaussians:
    """A mixture of ten, c-separated."""
    k, d = COMPONENTS, n_features
    turns = np.linalg.qr(rng.normal(size=(k, d, d)))[0]
    covariances = turns @ (rng.uniform(0.1, 1.0, size=(k, d, 1)) * turns.transpose(0, 2, 1))
    largest = np.linalg.eigvalsh(covariances)[:, -1]
    means: list[np.ndarray] = []
    spread = 0.5 * separation
    while len(means) < k:
        spread *= 1.001
        mean, i = spread * rng.normal(size=d), len(means)
        apart = [np.linalg.norm(mean - other) for other in means]
        if all(gap >= separation * np.sqrt(d * max(largest[i], largest[j])) for j, gap in enumerate(apart)):
            means.append(mean)
    return Gaussians(np.array(means), np.linalg.cholesky(covariances), rng.dirichlet(np.full(k, 5.0)))


def prior_for(n_features: int) -> NormalInverseWishart:
    """Normal-inverse-Wishart with mean 0, mean_strength 0.01, dof D + 2 and a within-variance of 0.5."""
    return NormalInverseWishart.weak(n_features, 0.5)
