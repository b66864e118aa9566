"""Families without statistics that add: a component is one estimate of its parameter, improved point by point.

Lin (2013), section 5: where no posterior has a closed form, q(parameter) is a point u_k, and each point moves it along
the gradient of log prior + responsibility x log likelihood (eq. 21; ERRATA 5.16). A new family is one class over
`EstimatedFamily`: what it must give is the log prior and log likelihood of u, their gradients, a start value, and the
integral of a new component or draws from the prior to take it by. u is unconstrained: any vector (P,) of numbers.

Where sums over points are sufficient, they give the estimate without a lag, and merges and refinement beside
(`dirichlet.prior`). So this is for `dirichlet_gradient`, which is the paper's own example, and for families of one's
own.

Two rules for the step, sigma (gradient), rho being the point's responsibility:

    `mass`   sigma = (offset + w)^-power on rho (grad log F + grad log prior / w), w the component's own mass with the
             point. A component born late moves as freely as an early one, and the prior counts as in a posterior of w
             points. The gradient is first made a `direction`, and no coordinate moves by more than `most_move`.
    `paper`  sigma = i^-power on grad log prior / n + rho grad log F, i counting all points of the stream, n given: eq.
             21 as it stands, in the coordinates u.

Both meet the conditions of Robbins and Monro (1951) for 1/2 < power <= 1. Under decay the mass w falls, so that steps
stay long and the estimate follows a drift; the estimate itself does not decay.
"""

from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from scipy.special import logsumexp

from shoal.errors import SettingError
from shoal.families.hyperparameters import Hyperparameters, as_positive
from shoal.points.arrays import Array
from shoal.points.domains import Domain

StepRule: TypeAlias = Literal["mass", "paper"]

N_DRAWS = 1_024
"""Draws from the prior for the integral of a new component, where a family gives draws."""

MOST_MOVE = 1.0
"""Default of `EstimatedFamily.most_move`, in units of u: a factor e where u is a logarithm."""

_SEED = 5_016
_CHUNK_ELEMENTS = 1 << 20
_STEP_FIELDS = {"step_offset": "step_offset", "step_power": "step_power", "n_points": "n_points"}


class EstimateStats(NamedTuple):
    """What is known of K components. Not additive: `add` is a mean, and points cannot be taken out again."""

    mass: Array  # (K,) sum of responsibilities; 0: no component, and its estimate means nothing
    estimate: Array  # (K, P) unconstrained
    seen: Array  # (K,) the step counter: points of the stream when the component was last scored


class EstimatedFamily(Hyperparameters):
    """A family learnt by stochastic gradient, together with its prior and its rule for steps.

    To be given: `name`, `domain`, `FIELDS`, `n_features`, `n_parameters`, `weak`, `log_prior`, `log_prior_gradient`,
    `log_likelihood`, `log_likelihood_gradient`, `start`, and `draw_prior` or `log_new`. The rest may be.
    """

    domain: ClassVar[Domain]
    most_move: ClassVar[float] = MOST_MOVE
    """Most that one point moves a coordinate under the rule `mass`; its steps fall below any bound, so this ends."""

    step_offset: float = 1.0
    step_power: float = 0.75
    n_points: float = 0.0
    """n of the rule `paper`; 0: the rule is `mass`."""

    # What a family gives

    @property
    def n_features(self) -> int:
        """D, the number of features of a point."""
        raise NotImplementedError

    @property
    def n_parameters(self) -> int:
        """P, the length of u."""
        raise NotImplementedError

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """A prior that says little."""
        raise NotImplementedError

    def log_prior(self, u: Array) -> Array:
        """log density of the prior at u (K, P) -> (K,). The family's docstring says with respect to which measure."""
        raise NotImplementedError

    def log_prior_gradient(self, u: Array) -> Array:
        """Its gradient (K, P)."""
        raise NotImplementedError

    def log_likelihood(self, u: Array, x: Array) -> Array:
        """log F(x | u) (N, K), every constant kept, of points x (N, D)."""
        raise NotImplementedError

    def log_likelihood_gradient(self, u: Array, point: Array) -> Array:
        """Its gradient by u (K, P) at one point (D,)."""
        raise NotImplementedError

    def start(self, point: Array) -> Array:
        """u (P,) of a component founded by a point (D,)."""
        raise NotImplementedError

    def draw_prior(self, n: int, rng: np.random.Generator) -> Array:
        """n draws of u (n, P) from the prior; only `log_new` asks for them."""
        raise NotImplementedError

    # What a family may give

    def log_new(self, x: Array) -> Array:
        """log of the integral of F(x | u) over the prior (N,): the score of a component that does not exist yet.

        By Monte Carlo over `N_DRAWS` draws from a fixed seed, the same for every point. Where the likelihood is far
        narrower than the prior few draws count, and the value falls below the integral: then give a closed form, a
        quadrature or a bound.
        """
        draws = _prior_draws(self)
        out = np.empty(len(x))
        step = max(1, _CHUNK_ELEMENTS // (len(draws) * self.n_features))
        for first in range(0, len(x), step):
            part = slice(first, first + step)
            out[part] = logsumexp(self.log_likelihood(draws, x[part]), axis=1) - np.log(len(draws))
        return out

    def direction(self, u: Array, gradient: Array) -> Array:
        """What to move u (P,) along for a gradient (P,): itself, unless the family knows its scale."""
        return gradient

    def settled(self, u: Array) -> Array:
        """u (P,) itself, or that of the vectors with the same likelihood that is kept."""
        return u

    def means(self, u: Array) -> Array:
        """Mean (K, D) of a point given u (K, P); NaN where it is not known."""
        return np.full((len(u), self.n_features), np.nan)

    def covariances(self, u: Array) -> Array:
        """Covariance (K, D, D) of a point given u (K, P); infinite where it is not known."""
        return np.full((len(u), self.n_features, self.n_features), np.inf)

    def variances(self, u: Array) -> Array:
        """Variance (K, D) of a point given u (K, P)."""
        return np.stack([np.diagonal(self.covariances(u[k : k + 1])[0]) for k in range(len(u))] or [np.zeros(0)])

    def new_moments(self) -> tuple[Array, Array]:
        """Mean (D,) and covariance (D, D) of a point of a component that does not exist yet."""
        d = self.n_features
        return np.full(d, np.nan), np.full((d, d), np.inf)

    # The step

    def moved(self, u: Array, point: Array, resp: float, mass: float, seen: float) -> Array:
        """The estimate (P,) after a point (D,) taken in with responsibility `resp`; `mass` and `seen` count it."""
        likelihood = self.log_likelihood_gradient(u[None, :], point)[0]
        prior = self.log_prior_gradient(u[None, :])[0]
        if self.n_points > 0.0:
            return self.settled(u + seen**-self.step_power * (prior / self.n_points + resp * likelihood))
        ascent = self.direction(u, resp * (likelihood + prior / mass))
        move = (self.step_offset + mass) ** -self.step_power * ascent
        return self.settled(u + np.clip(move, -self.most_move, self.most_move))

    # What follows

    @property
    def n_free_parameters(self) -> int:
        """Free parameters of one component's likelihood."""
        return self.n_parameters

    @property
    def step(self) -> StepRule:
        """The rule for steps."""
        return "paper" if self.n_points > 0.0 else "mass"

    def empty_stats(self, n_components: int) -> EstimateStats:
        """Rows for components that have seen nothing."""
        none = np.zeros(n_components)
        return EstimateStats(none, np.zeros((n_components, self.n_parameters)), none.copy())

    def add(self, a: EstimateStats, b: EstimateStats) -> EstimateStats:
        """Two components as one, row by row: masses add, the estimate is the mean by mass, in the coordinates u."""
        mass = a.mass + b.mass
        share = np.divide(b.mass, mass, out=np.zeros_like(mass), where=mass > 0.0)[:, None]
        mean = (1.0 - share) * a.estimate + share * b.estimate
        settled = np.array([self.settled(u) for u in mean]).reshape(mean.shape)
        return EstimateStats(mass, settled, np.maximum(a.seen, b.seen))

    def scale(self, stats: EstimateStats, factor: float | Array) -> EstimateStats:
        """Masses times `factor`; estimates and counters as they are."""
        return EstimateStats(stats.mass * factor, stats.estimate.copy(), stats.seen.copy())

    def posterior(self, stats: EstimateStats) -> EstimateStats:
        """The rows themselves: the estimate stands for the posterior, the prior where there is no mass."""
        return stats

    def predictive(self, params: EstimateStats) -> EstimateStats:
        """The rows themselves."""
        return params

    def log_predictive_from(self, predictive: EstimateStats, x: Array) -> Array:
        """log F(x | estimate) (N, K), and `log_new` where there is no mass."""
        out = np.asarray(self.log_likelihood(predictive.estimate, x))
        new = predictive.mass == 0.0
        if new.any():
            out[:, new] = self.log_new(x)[:, None]
        return out

    def log_predictive(self, params: EstimateStats, x: Array) -> Array:
        """The same."""
        return self.log_predictive_from(params, x)

    def predictive_mean(self, params: EstimateStats) -> Array:
        """Mean (K, D) of a point."""
        return _with_new(self.means(params.estimate), params, self.new_moments()[0])

    def predictive_variance(self, params: EstimateStats) -> Array:
        """Variance (K, D) of a point."""
        variances = self.variances(params.estimate).reshape(len(params.mass), self.n_features)
        return _with_new(variances, params, np.diagonal(self.new_moments()[1]))

    def predictive_covariance(self, params: EstimateStats) -> Array:
        """Covariance (K, D, D) of a point."""
        return _with_new(self.covariances(params.estimate), params, self.new_moments()[1])

    def positions(self, stats: EstimateStats) -> Array:
        """The estimates."""
        return stats.estimate

    @staticmethod
    def coordinates(x: Array) -> Array:
        """The points themselves."""
        return x

    @classmethod
    def candidate_priors(cls, rows: Array, thorough: bool) -> list[Self]:
        """Priors to choose among for `rows` (N, D)."""
        return [cls.weak(rows.shape[1])]

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array]) -> Self:
        """Inverse of `to_arrays`; what says how to step may be left out. Raises SettingError."""
        own = set(cls.FIELDS) - set(_STEP_FIELDS)
        if not own <= set(arrays) <= set(cls.FIELDS):
            raise SettingError(f"{cls.name} prior was given {sorted(arrays)}; give {sorted(cls.FIELDS)}")
        given: dict[str, Any] = dict(arrays)
        if "n_points" in given and not float(np.max(given["n_points"])) > 0.0:
            del given["n_points"]
        return cls(**given)

    def _freeze_step(self, step_offset: Any, step_power: Any, n_points: Any) -> None:
        """Take in the settings of the step. Raises SettingError for those that are out of range."""
        offset = 0.0 if np.ndim(step_offset) == 0 and step_offset == 0 else as_positive("step_offset", step_offset)
        power = as_positive("step_power", step_power)
        if not 0.5 < power <= 1.0:
            raise SettingError(f"step_power is {power!r}; give a number above 1/2 and at most 1")
        n = 0.0 if n_points is None else as_positive("n_points", n_points)
        self._freeze(step_offset=offset, step_power=power, n_points=n)


STEP_FIELDS = _STEP_FIELDS
"""For the `FIELDS` of a family that lets its user choose how to step."""


def checked_step(step: Any, n_points: Any) -> None:
    """Raise SettingError unless the rule is one, and n is given where it is `paper`, and only there (ERRATA 5.16)."""
    if step not in ("mass", "paper"):
        raise SettingError(f"step is {step!r}; choose 'mass' or 'paper'")
    if step == "paper" and n_points is None:
        raise SettingError("step is 'paper' without n_points; give the number of points that the stream will have")


def is_conjugate(family: Any) -> bool:
    """Whether a family (class or prior) has statistics that add, so that batch methods and refinement can take it."""
    kind = family if isinstance(family, type) else type(family)
    return not issubclass(kind, EstimatedFamily)


@lru_cache(maxsize=16)
def _prior_draws(family: EstimatedFamily) -> Array:
    return family.draw_prior(N_DRAWS, np.random.default_rng(_SEED))


def _with_new(values: Array, params: EstimateStats, new: Array) -> Array:
    out = np.array(values)
    out[params.mass == 0.0] = new
    return out
