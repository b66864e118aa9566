"""Unit vectors, such as embeddings: von Mises-Fisher components of known concentration about an unknown direction.

Mardia and Jupp (2000), "Directional Statistics", section 9.3: F(x | m) = C_D(k) exp(k m'x) with respect to the surface
of the unit sphere. k is the family's, one for all components, and is not learnt in the stream: with it the integral of
a new component is closed, C(k) C(k0) / C(|k x + k0 m0|), and a component is its direction. `prior="auto"` chooses k by
how well it predicts the first rows; a wrong k shows in the number of components, as a wrong within-variance does.

Unconstrained: m = u / |u| for any u but 0; u is kept at length one, since the length changes no likelihood. Measure:
the prior, von Mises-Fisher too with direction `mean` and concentration k0 = `mean_concentration` (0: uniform), is a
density with respect to the surface of the sphere.

The estimate moves along the natural gradient: the Fisher information of the direction is k A(k) across it, A the mean
length. With k fixed the posterior of m has a closed form after all, proportional to exp((k0 m0 + k sum rho x)'m): this
family is where the stochastic gradient can be held to what it should converge to, and tests do.
"""

from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from shoal.errors import SettingError
from shoal.families.estimated import STEP_FIELDS, EstimatedFamily, EstimateStats, StepRule, checked_step
from shoal.families.hyperparameters import as_positive, as_real
from shoal.families.von_mises_fisher.bessel import log_normaliser, mean_length
from shoal.points.arrays import Array
from shoal.points.domains import UNIT, Domain

_N_NODES = 2_048
_STRENGTHS, _STRENGTHS_COARSE = range(9), range(0, 9, 2)
_MOST_OFFSET = 1e6


class VonMisesFisherCache(NamedTuple):
    """log F(x) = log C(k) + slope'x."""

    slope: Array  # (C, D) concentration * direction


class VonMisesFisher(EstimatedFamily):
    """x ~ vMF(m, concentration) with m ~ vMF(mean, mean_concentration): concentration > 0, mean (D,) a unit vector,
    D >= 2, mean_concentration >= 0 (0: all directions alike).

    `step`, `n_points` and `step_power` (kappa, in (1/2, 1]): see `estimated`. `step_offset` (t0): None is
    1 / (4 A(concentration)^2), about the points that it takes until their mean points somewhere. Raises SettingError.
    """

    FIELDS: ClassVar[dict[str, str]] = {
        "mean": "mean",
        "mean_concentration": "mean_concentration",
        "concentration": "concentration",
        **STEP_FIELDS,
    }
    name: ClassVar[str] = "von_mises_fisher"
    description: ClassVar[str] = "unit vectors"
    domain: ClassVar[Domain] = UNIT
    cache_kind: ClassVar[type[Any]] = VonMisesFisherCache
    mean: Array
    mean_concentration: float
    concentration: float

    def __init__(
        self,
        mean: ArrayLike,
        mean_concentration: ArrayLike,
        concentration: ArrayLike,
        step_offset: ArrayLike | None = None,
        step_power: ArrayLike = 1.0,
        n_points: ArrayLike | None = None,
        *,
        step: StepRule | None = None,
    ) -> None:
        checked_step(step or ("mass" if n_points is None else "paper"), n_points)
        strength = as_real("mean_concentration", mean_concentration)
        self._freeze(
            mean=_direction(mean),
            mean_concentration=0.0 if not strength.any() else as_positive("mean_concentration", strength),
            concentration=as_positive("concentration", concentration),
        )
        length = self._mean_length
        if step_offset is None:
            step_offset = min(0.25 / max(length * length, 1e-300), _MOST_OFFSET)
        self._freeze_step(step_offset, step_power, None if step == "mass" else n_points)

    @classmethod
    def examples(cls) -> list[Self]:
        """A prior of the fewest features."""
        return [cls.weak(2)]

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """All directions alike; a concentration of one a feature."""
        return cls(np.eye(1, n_features)[0], 0.0, float(n_features))

    @classmethod
    def candidate_priors(cls, rows: Array, thorough: bool) -> list[Self]:
        """Concentrations from that of all `rows` (N, D) as one component, or D / 4 if that is more, to 256 times it.

        Directions spread about the mean of the rows as the rows do (Banerjee et al. 2005, eq. 4.4).
        """
        d, mean = rows.shape[1], rows.mean(axis=0)
        own = float(np.linalg.norm(mean))
        centre = mean / own if own > 1e-9 else np.eye(1, d)[0]
        length = min(own, 1.0 - 1e-3)
        whole = length * (d - length**2) / (1.0 - length**2)
        least = max(whole, 0.25 * d)
        chosen = _STRENGTHS if thorough else _STRENGTHS_COARSE
        return [cls(centre, whole if length > 1e-9 else 0.0, least * 2.0**k) for k in chosen]

    @property
    def n_features(self) -> int:
        """D."""
        return self.mean.size

    @property
    def n_parameters(self) -> int:
        """D; the length of u changes nothing."""
        return self.mean.size

    @property
    def n_free_parameters(self) -> int:
        """D - 1."""
        return self.n_features - 1

    @property
    def _mean_length(self) -> float:
        return float(mean_length(self.n_features, self.concentration))

    # Prior, likelihood and their gradients

    def log_prior(self, u: Array) -> Array:
        """(K,) log density of the direction of u, on the sphere."""
        front = float(log_normaliser(self.n_features, self.mean_concentration))
        return np.asarray(front + self.mean_concentration * (_unit(u) @ self.mean))

    def log_prior_gradient(self, u: Array) -> Array:
        """(K, D)."""
        return self.mean_concentration * _across(u, self.mean)

    def log_likelihood(self, u: Array, x: Array) -> Array:
        """log F(x | u / |u|) (N, K)."""
        front = float(log_normaliser(self.n_features, self.concentration))
        return np.asarray(front + self.concentration * (x @ _unit(u).T))

    def log_likelihood_gradient(self, u: Array, point: Array) -> Array:
        """(K, D)."""
        return self.concentration * _across(u, point)

    def direction(self, u: Array, gradient: Array) -> Array:
        """The natural gradient, for u of length one: the gradient over k A(k)."""
        return gradient / (self.concentration * self._mean_length)

    def settled(self, u: Array) -> Array:
        """u at length one; a u of no length is the prior's direction."""
        length = float(np.linalg.norm(u))
        return u / length if length > 0.0 else self.mean.copy()

    def start(self, point: Array) -> Array:
        """The most probable direction given the point."""
        return self.settled(self.concentration * point + self.mean_concentration * self.mean)

    def log_new(self, x: Array) -> Array:
        """(N,): C(k) C(k0) / C(|k x + k0 m0|), in logs."""
        length = np.linalg.norm(self.concentration * x + self.mean_concentration * self.mean, axis=1)
        return np.asarray(self._log_new_front() - log_normaliser(self.n_features, length))

    def _log_new_front(self) -> float:
        d = self.n_features
        return float(log_normaliser(d, self.concentration) + log_normaliser(d, self.mean_concentration))

    # Moments

    def means(self, u: Array) -> Array:
        """A(k) m (K, D)."""
        return self._mean_length * _unit(u)

    def variances(self, u: Array) -> Array:
        """The diagonal of the covariance (K, D)."""
        across, along = self._spread
        return np.asarray(np.maximum(across + along * _unit(u) ** 2, 0.0))

    def covariances(self, u: Array) -> Array:
        """A / k I + (1 - D A / k - A^2) m m' (K, D, D)."""
        across, along = self._spread
        m = _unit(u)
        return across * np.eye(self.n_features) + along * m[:, :, None] * m[:, None, :]

    @property
    def _spread(self) -> tuple[float, float]:
        return _spread_of(self.n_features, self.concentration)

    def new_moments(self) -> tuple[Array, Array]:
        """The mean of component means; the covariance within components and that of their means."""
        d, a = self.n_features, self._mean_length
        m0, a0 = self.mean, float(mean_length(d, self.mean_concentration))
        across0, along0 = _spread_of(d, self.mean_concentration)
        spread = across0 * np.eye(d) + along0 * np.outer(m0, m0)  # of the direction
        across, along = self._spread
        second = spread + a0 * a0 * np.outer(m0, m0)
        return a * a0 * m0, across * np.eye(d) + along * second + a * a * spread

    # The kernel's form

    def cache_of(self, stats: EstimateStats) -> VonMisesFisherCache:
        """The predictive cache of the rows."""
        return VonMisesFisherCache(self.concentration * _unit(stats.estimate))

    def kernel_constants(self) -> Array:
        """(2 + 2 nodes / width, max(D, 10)): numbers; the prior's k0 m0; log C and its slope over lengths, flat."""
        d, k, k0 = self.n_features, self.concentration, self.mean_concentration
        low, high = abs(k - k0), k + k0
        lengths = np.linspace(low, high, _N_NODES)
        spacing = (high - low) / (_N_NODES - 1)
        flat = np.stack([log_normaliser(d, lengths), -mean_length(d, lengths) * spacing], axis=1).ravel()
        width = max(d, 10)
        constants = np.zeros((2 + -(-flat.size // width), width))
        steps = (self.step_offset, self.step_power, self.n_points)
        own = (float(log_normaliser(d, k)), self._log_new_front(), k, self._mean_length)
        constants[0, :10] = (*own, *steps, low, spacing, float(_N_NODES))
        constants[1, :d] = k0 * self.mean
        constants[2:].ravel()[: flat.size] = flat
        return constants


def _unit(u: Array) -> Array:
    """Directions (K, D); of a row of zeros, which no component has, zeros."""
    length = np.linalg.norm(u, axis=1, keepdims=True)
    unit: Array = np.divide(u, length, out=np.zeros_like(u), where=length > 0.0)
    return unit


def _across(u: Array, v: Array) -> Array:
    """Gradient (K, D) of v'u / |u|."""
    m = _unit(u)
    return np.asarray((v - (m @ v)[:, None] * m) / np.linalg.norm(u, axis=1, keepdims=True))


def _spread_of(d: int, k: float) -> tuple[float, float]:
    """(a, b) of the covariance a I + b m m'."""
    length = float(mean_length(d, k))
    across = length / k if k > 0.0 else 1.0 / d
    return across, 1.0 - d * across - length * length if k > 0.0 else 0.0


def _direction(value: ArrayLike) -> Array:
    mean = as_real("mean", value)
    if mean.ndim != 1 or mean.size < 2:
        raise SettingError(f"mean has shape {mean.shape}; give a vector of at least two numbers")
    length = float(np.linalg.norm(mean))
    if not abs(length - 1.0) < 1e-4:
        raise SettingError(f"mean has length {length!r}; give a unit vector")
    return np.asarray(mean if abs(length - 1.0) < 1e-12 else mean / length)
