"""A family of one's own that is learnt by stochastic gradient: Dirichlet components of one known precision.

Lin (2013), eq. 23: x ~ Dir(precision * theta), theta ~ Dirichlet(pseudo counts), theta = softmax(u) (ERRATA 5.17), u
kept as log theta. The prior is taken as a density in u, the Jacobian prod theta included. The estimate moves along the
natural gradient: the Fisher information of u is J diag(g^2 psi'(g theta)) J with J = diag(theta) - theta theta'.
"""

from typing import Any, ClassVar

import numpy as np
from scipy.special import gammaln, log_softmax, polygamma, psi

from shoal.families.estimated import STEP_FIELDS, EstimatedFamily, StepRule, checked_step
from shoal.families.hyperparameters import as_positive, as_positive_vector
from shoal.points.domains import PROPORTIONS, Domain

LOWEST_LOG = -300.0


class GradientProportions(EstimatedFamily):
    FIELDS: ClassVar[dict[str, str]] = {"precision": "precision", "pseudo_counts": "pseudo_counts", **STEP_FIELDS}
    name: ClassVar[str] = "gradient_proportions"
    description: ClassVar[str] = "proportions, learnt by stochastic gradient"
    domain: ClassVar[Domain] = PROPORTIONS
    precision: float
    pseudo_counts: np.ndarray

    def __init__(
        self,
        precision: Any,
        pseudo_counts: Any,
        step_offset: Any = 1.0,
        step_power: Any = 1.0,
        n_points: Any = None,
        *,
        step: StepRule | None = None,
    ) -> None:
        checked_step(step or ("mass" if n_points is None else "paper"), n_points)
        counts = np.asarray(pseudo_counts, dtype=float)
        self._freeze(
            precision=as_positive("precision", precision),
            pseudo_counts=as_positive_vector("pseudo_counts", counts, counts.size),
        )
        self._freeze_step(step_offset, step_power, None if step == "mass" else n_points)

    @classmethod
    def weak(cls, n_features: int) -> "GradientProportions":
        return cls(10.0 * n_features, np.ones(n_features))

    @property
    def n_features(self) -> int:
        return int(self.pseudo_counts.size)

    @property
    def n_parameters(self) -> int:
        return self.n_features

    @property
    def n_free_parameters(self) -> int:
        return self.n_features - 1

    def log_prior(self, u: np.ndarray) -> np.ndarray:
        c = self.pseudo_counts
        return np.asarray(gammaln(c.sum()) - gammaln(c).sum() + log_softmax(u, axis=1) @ c)

    def log_prior_gradient(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(self.pseudo_counts - np.exp(log_softmax(u, axis=1)) * self.pseudo_counts.sum())

    def log_likelihood(self, u: np.ndarray, x: np.ndarray) -> np.ndarray:
        alpha = self.precision * np.exp(np.maximum(log_softmax(u, axis=1), LOWEST_LOG))
        norm = gammaln(self.precision) - gammaln(alpha).sum(axis=1)
        return np.asarray(_logs(x) @ (alpha - 1.0).T + norm)

    def log_likelihood_gradient(self, u: np.ndarray, point: np.ndarray) -> np.ndarray:
        theta = np.exp(log_softmax(u, axis=1))
        v = self.precision * (_logs(point) - psi(self.precision * theta))
        return np.asarray(theta * (v - (theta * v).sum(axis=1, keepdims=True)))

    def direction(self, u: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        theta = np.exp(np.maximum(log_softmax(u), LOWEST_LOG))
        v, information = gradient / theta, self.precision**2 * polygamma(1, self.precision * theta)
        m = -(v / information).sum() / (1.0 / information).sum()
        return np.asarray((v + m) / (theta * information))

    def settled(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(np.maximum(log_softmax(u), LOWEST_LOG))

    def start(self, point: np.ndarray) -> np.ndarray:
        return self.settled(np.log(self.pseudo_counts + self.precision * np.maximum(point, 1e-12)))

    def draw_prior(self, n: int, rng: np.random.Generator) -> np.ndarray:
        c = np.broadcast_to(self.pseudo_counts, (n, self.n_features))
        log_gamma = np.log(rng.standard_gamma(c + 1.0)) + np.log(rng.random(c.shape)) / c
        return np.asarray(log_softmax(log_gamma, axis=1))

    def means(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(log_softmax(u, axis=1)))

    def covariances(self, u: np.ndarray) -> np.ndarray:
        theta = self.means(u)
        spread = theta[:, :, None] * (np.eye(self.n_features) - theta[:, None, :])
        return np.asarray(spread / (self.precision + 1.0))


def _logs(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.log(np.maximum(x, 1e-12)))
