"""Proportions: Dirichlet components of known precision about an unknown mean, learnt by stochastic gradient.

Lin (2013), eq. 23: x ~ Dir(precision * theta), theta ~ Dirichlet(pseudo counts), as the paper learns it. `dirichlet`
learns the same clusters from sums, without a known precision and with merges and refinement. theta
stays in the simplex as theta = softmax(u) (ERRATA 5.17; Euclidean steps of theta leave it); u is kept as log theta.

Measure: the prior is taken as a density in u, the Jacobian prod_j theta_j included,

    log mu(u) = log G(sum c) - sum log G(c_j) + sum c_j log theta_j        with respect to du_1 ... du_(D-1), u_D fixed,

so its mode theta = c / sum c is always inside. As a density in theta it would be at the edge for any c_j < 1.

The estimate moves along the natural gradient (Amari 1998): the Fisher information of u is J diag(g^2 psi'(a)) J with
a = g theta and J = diag(theta) - theta theta', and its inverse has a closed form, O(D). Plain gradients, of size up to
g times as large in one feature as in another, need steps that are unstable here or idle there.

A share below `LEAST_SHARE` is taken as that, learning and asking alike: the log of zero says nothing.
"""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln, log_softmax, polygamma, psi

from shoal.families.dirichlet_gradient.proportion_integral import (
    LOWEST,
    SPACING,
    cumulant_table,
    log_sum_density,
    n_nodes,
)
from shoal.families.estimated import STEP_FIELDS, EstimatedFamily, EstimateStats, StepRule, checked_step
from shoal.families.feature_contrast import other_parts
from shoal.families.gamma_draws import log_gamma_draws
from shoal.families.hyperparameters import as_positive, as_pseudo_counts
from shoal.points.arrays import Array, IntArray
from shoal.points.domains import PROPORTIONS, Domain

LEAST_SHARE = 1e-12
"""Smaller shares are taken as this one."""

LOWEST_LOG = -300.0
"""log theta is kept above it: e^-300 times any precision is still a number whose log-gamma is one."""

_STRENGTHS, _STRENGTHS_COARSE = range(1, 9), range(1, 9, 2)


class DirichletGradientCache(NamedTuple):
    """log F(x) = log_norm + sum_d (alpha_d - 1) log x_d."""

    alpha: Array  # (C, D) precision * theta
    log_norm: Array  # (C,) nats


class DirichletByGradient(EstimatedFamily):
    """x ~ Dir(precision * theta) with theta ~ Dirichlet(pseudo_counts), both > 0; pseudo_counts (D,), D >= 2.

    `step`, `n_points`, `step_offset` (t0 >= 0) and `step_power` (kappa, in (1/2, 1]): see `estimated`. Raises
    SettingError.
    """

    FIELDS: ClassVar[dict[str, str]] = {"precision": "precision", "pseudo_counts": "pseudo_counts", **STEP_FIELDS}
    name: ClassVar[str] = "dirichlet_gradient"
    description: ClassVar[str] = "proportions that sum to one"
    domain: ClassVar[Domain] = PROPORTIONS
    fewest_features: ClassVar[int] = 2
    cache_kind: ClassVar[type[Any]] = DirichletGradientCache
    precision: float
    pseudo_counts: Array

    def __init__(
        self,
        precision: ArrayLike,
        pseudo_counts: ArrayLike,
        step_offset: ArrayLike = 1.0,
        step_power: ArrayLike = 1.0,
        n_points: ArrayLike | None = None,
        *,
        step: StepRule | None = None,
    ) -> None:
        checked_step(step or ("mass" if n_points is None else "paper"), n_points)
        self._freeze(
            precision=as_positive("precision", precision),
            pseudo_counts=as_pseudo_counts(pseudo_counts),
        )
        self._freeze_step(step_offset, step_power, None if step == "mass" else n_points)

    @classmethod
    def examples(cls) -> list[Self]:
        """A prior of the fewest features."""
        return [cls.weak(2)]

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """All means alike, precision ten a feature."""
        return cls(10.0 * n_features, np.ones(n_features))

    @classmethod
    def candidate_priors(cls, rows: Array, thorough: bool) -> list[Self]:
        """Precisions from twice to 256 times that of all `rows` (N, D) as one Dirichlet, by moments to a power of two.

        With each, pseudo counts that are alike: one each, or with that precision as their sum, so that means of
        components lie about as far apart as the rows.
        """
        x = np.maximum(rows, LEAST_SHARE)
        mean, variance = x.mean(axis=0), float(x.var(axis=0).sum())
        whole = float((mean * (1.0 - mean)).sum()) / max(variance, 1e-9) - 1.0
        whole = 2.0 ** np.round(np.log2(np.clip(whole, 0.5, 1e6)))
        d, strengths = rows.shape[1], _STRENGTHS if thorough else _STRENGTHS_COARSE
        counts = sorted({float(whole) / d, 1.0})
        return [cls(whole * 2.0**k, np.full(d, count)) for k in strengths for count in counts]

    @property
    def n_features(self) -> int:
        """D."""
        return self.pseudo_counts.size

    @property
    def n_parameters(self) -> int:
        """D; adding a number to all of u changes nothing."""
        return self.pseudo_counts.size

    @property
    def n_free_parameters(self) -> int:
        """D - 1."""
        return self.n_features - 1

    # Prior, likelihood and their gradients

    def log_prior(self, u: Array) -> Array:
        """(K,) log density in u."""
        c = self.pseudo_counts
        return np.asarray(gammaln(c.sum()) - gammaln(c).sum() + log_softmax(u, axis=1) @ c)

    def log_prior_gradient(self, u: Array) -> Array:
        """(K, D): c - theta sum c."""
        return np.asarray(self.pseudo_counts - np.exp(log_softmax(u, axis=1)) * self.pseudo_counts.sum())

    def log_likelihood(self, u: Array, x: Array) -> Array:
        """log Dir(x; precision softmax(u)) (N, K)."""
        cache = self.cache_of(EstimateStats(np.ones(len(u)), u, np.ones(len(u))))
        return np.asarray(_log_shares(x) @ (cache.alpha - 1.0).T + cache.log_norm)

    def log_likelihood_gradient(self, u: Array, point: Array) -> Array:
        """(K, D): theta_j (v_j - sum theta v), v = g (log x - psi(g theta))."""
        theta = np.exp(log_softmax(u, axis=1))
        v = self.precision * (_log_shares(point) - psi(self.precision * theta))
        return np.asarray(theta * (v - (theta * v).sum(axis=1, keepdims=True)))

    def direction(self, u: Array, gradient: Array) -> Array:
        """The natural gradient: with v = gradient / theta, (v + m) / (g^2 theta psi'(g theta)), m such that sum theta
        stays."""
        theta = np.exp(np.maximum(log_softmax(u), LOWEST_LOG))
        v, information = gradient / theta, self.precision**2 * polygamma(1, self.precision * theta)
        m = -(v / information).sum() / (1.0 / information).sum()
        return np.asarray((v + m) / (theta * information))

    def settled(self, u: Array) -> Array:
        """log theta."""
        return np.asarray(np.maximum(log_softmax(u), LOWEST_LOG))

    def start(self, point: Array) -> Array:
        """log of (pseudo counts + precision x), normalised: as if x had been drawn from a multinomial."""
        return np.asarray(self.settled(np.log(self.pseudo_counts + self.precision * np.maximum(point, LEAST_SHARE))))

    def draw_prior(self, n: int, rng: np.random.Generator) -> Array:
        """n draws of log theta (n, D), by gamma variables in logs: small counts give shares below any float."""
        c = np.broadcast_to(self.pseudo_counts, (n, self.n_features))
        log_gamma = log_gamma_draws(c, rng)
        return np.asarray(log_softmax(log_gamma, axis=1))

    def log_new(self, x: Array) -> Array:
        """(N,): one-dimensional quadratures and the saddlepoint of their sum, `proportion_integral`; not sampled."""
        log_x = _log_shares(x)
        which, tables = self._tables()
        density = log_sum_density(tables, which, log_x, self.precision)
        return np.asarray(self._log_front() - log_x.sum(axis=1) + density)

    def _tables(self) -> tuple[IntArray, list[Array]]:
        """Which table each feature has (D,), and the tables."""
        counts, which = np.unique(self.pseudo_counts, return_inverse=True)
        nodes = n_nodes(self.precision)
        return which, [cumulant_table(float(c), nodes) for c in counts]

    def _log_front(self) -> float:
        """What stands before the density of the sum, the factor prod 1 / x apart."""
        c, g = self.pseudo_counts, self.precision
        return float(gammaln(g) + gammaln(c.sum()) - gammaln(c).sum() + (1.0 - c.sum()) * np.log(g))

    # Moments

    def contrast(self, value: Array, rest: Array, deviation: Array) -> Array:
        """Parts that are larger, or smaller, than elsewhere."""
        return other_parts(value, rest)

    def means(self, u: Array) -> Array:
        """theta (K, D)."""
        return np.exp(log_softmax(u, axis=1))

    def variances(self, u: Array) -> Array:
        """theta (1 - theta) / (precision + 1) (K, D)."""
        theta = self.means(u)
        return theta * (1.0 - theta) / (self.precision + 1.0)

    def covariances(self, u: Array) -> Array:
        """(diag theta - theta theta') / (precision + 1) (K, D, D)."""
        return _spread(self.means(u)) / (self.precision + 1.0)

    def new_moments(self) -> tuple[Array, Array]:
        """Mean c / sum c; the covariance within components and that of their means."""
        total, g = float(self.pseudo_counts.sum()), self.precision
        mean = self.pseudo_counts / total
        return mean, _spread(mean[None])[0] * (total / (g + 1.0) + 1.0) / (total + 1.0)

    # The kernel's form

    def cache_of(self, stats: EstimateStats) -> DirichletGradientCache:
        """The predictive cache of the rows."""
        alpha = self.precision * np.exp(np.maximum(log_softmax(stats.estimate, axis=1), LOWEST_LOG))
        return DirichletGradientCache(alpha, gammaln(self.precision) - gammaln(alpha).sum(axis=1))

    def kernel_constants(self) -> Array:
        """(3 + ..., max(D, 9)): numbers; pseudo counts; the first element of each feature's table; the tables, flat."""
        d, nodes = self.n_features, n_nodes(self.precision)
        which, tables = self._tables()
        width = max(d, 9)
        flat = np.concatenate([table.ravel() for table in tables])
        constants = np.zeros((3 + -(-flat.size // width), width))
        numbers = (self.precision, float(gammaln(self.precision)), self._log_front(), self.pseudo_counts.sum())
        steps = (self.step_offset, self.step_power, self.n_points)
        constants[0, :9] = (*numbers, *steps, LOWEST + SPACING * (nodes - 1.001), float(nodes))
        constants[1, :d] = self.pseudo_counts
        constants[2, :d] = which * tables[0].size
        constants[3:].ravel()[: flat.size] = flat
        return constants


def _log_shares(x: Array) -> Array:
    return np.asarray(np.log(np.maximum(x, LEAST_SHARE)))


def _spread(mean: Array) -> Array:
    """diag m - m m' (K, D, D)."""
    out = -mean[:, :, None] * mean[:, None, :]
    d = mean.shape[1]
    out[:, np.arange(d), np.arange(d)] += mean
    return np.asarray(out)
