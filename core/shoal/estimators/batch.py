"""The scikit-learn face of the batch engines."""

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from shoal.arrays import Array, IntArray, as_points, check_finite
from shoal.errors import SettingError, ShapeError
from shoal.estimators.batch_engines import OWN_CHOICE, check_positive, check_whole, checked_settings, engine_of
from shoal.estimators.batch_fitted import FittedBatch, fit_batch
from shoal.families import AnyFamily
from shoal.mixture.batch import Progress


class DPMixture(DensityMixin, BaseEstimator):
    """A Dirichlet process mixture fitted to all points at once, by one of several engines.

    Components are numbered by decreasing mass; those that are the best of no training point, which a truncated model
    may have, come after all that are.

    Parameters
    ----------
    family : {"gaussian", "diagonal", "known_covariance"} or a prior of such a family from `shoal.families`
        A prior is taken as given, for the points as they are. A name asks for one made from the data: the columns are
        standardised, and the prior is chosen by how well it predicts up to 1,000 of the rows, as a stream does it.
        `elbo_` is in the units of the data in either case.
    method : {"vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd", "cfsd", "gibbs"}
        Variational inference without truncation, by points or by nodes of a tree (Kurihara, Welling and Vlassis 2006);
        truncated stick-breaking (Blei and Jordan 2004), and the finite symmetric Dirichlet, with reordering (o-) or
        weights integrated out (c) (Kurihara, Welling and Teh 2007); collapsed Gibbs sampling (Neal 2000, algorithm 3).
    concentration : float
        Concentration of the Dirichlet process, > 0.
    truncation : int or None
        Components of the truncated methods; None: enough for the number of points.
    n_init : int
        Fits from different random starts; the one with the best bound is kept. A sampler has `n_chains` instead.
    max_iter : int or None
        Most rounds; None: the method's own (10,000 for vdp and fast-vdp, 1,000 for the truncated methods).
    tol : float or None
        Gain of the bound, in nats a point, below which a fit ends; None: the method's own (1e-5).
    moves : {"default", "paper"}
        Of vdp and fast-vdp: splits, merges and deletions; or the splits of the paper alone.
    expectations : {"taylor", "exact"}
        Of the collapsed variational methods: to second order as in the paper, or by convolution, O(N^2) a round.
    n_samples, burn_in, thinning, n_chains : int
        Of gibbs: each chain makes `burn_in` sweeps, then keeps every `thinning`-th, `n_samples` times.
    callback : callable or None
        Called with a `Progress` (round, elbo, n_components, message, fraction) after every round; what it raises ends
        the fit.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None
        The source of all randomness.

    Attributes
    ----------
    labels_ : (N,) int64
        The best component of each training point: 0..K-1 by decreasing mass.
    weights_, means_, covariances_ : (T,), (T, D), (T, D, D)
        Expected weight, and the moments of the posterior predictive, in the units of the data; NaN or infinite where
        there are none. What the weights lack to one is the weight of components that hold no point.
    masses_ : (T,)
        Expected number of training points in each component; of gibbs, how many are in it.
    elbo_, elbo_history_ : float, (rounds + 1,)
        Lower bound on the log evidence in nats, every constant included, at the end and after each round: on that of
        the Dirichlet process for vdp and fast-vdp, on that of its own truncated model for the others. Of gibbs: log
        p(x, partition) of the best sample, a bound too, and of its chain after each sweep.
    elbo_is_exact_ : bool
        False where a Taylor value stands for the bound, which may then exceed the evidence.
    n_iter_, converged_ : int, bool
        Rounds made, and whether they ended by `tol`.
    samples_, sample_log_joint_ : (S, N) int64, (S,)
        Of gibbs: labels of every sample, 0..K-1 by decreasing size, and log p(x, partition) in nats.
    prior_, location_, scale_ :
        The prior used, and the standardisation before it: it is for points (x - location_) / scale_.
    """

    def __init__(
        self,
        family: str | AnyFamily = "gaussian",
        method: str = "vdp",
        concentration: float = 1.0,
        *,
        truncation: int | None = None,
        n_init: int = 1,
        max_iter: int | None = None,
        tol: float | None = None,
        moves: str = "default",
        expectations: str = "taylor",
        n_samples: int = 100,
        burn_in: int = 100,
        thinning: int = 1,
        n_chains: int = 1,
        callback: Callable[[Progress], None] | None = None,
        random_state: Any = None,
    ) -> None:
        self.family = family
        self.method = method
        self.concentration = concentration
        self.truncation = truncation
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.moves = moves
        self.expectations = expectations
        self.n_samples = n_samples
        self.burn_in = burn_in
        self.thinning = thinning
        self.n_chains = n_chains
        self.callback = callback
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, resp_init: Any = None) -> Self:
        """Fit rows X (N, D). `y` is ignored.

        With `resp_init` (N, T), rows summing to one, a variational method first fits the parameters to it; nothing
        splits, merges or is deleted; then rounds follow, each all q(z), then all parameters (collapsed methods: one
        q(z_n) after another), and `elbo_history_[s]` is the bound after s of them. Gibbs starts every chain at labels
        drawn from it. `fast-vdp` has no such start. There is one start then, whatever `n_init`.

        Raises SettingError, ShapeError, NotFiniteError.
        """
        x = self._checked(X, reset=True)
        engine = engine_of(self.method)
        n_init = check_whole("n_init", self.n_init, 1)
        if engine.is_sampler and n_init > 1:
            raise SettingError(f"n_init is {n_init}, but {self.method!r} is a sampler; set n_chains, which keeps all")
        start = None if resp_init is None else _checked_start(resp_init, len(x))
        own = {name: getattr(self, name) for name in OWN_CHOICE if name != "resp_init"}
        self._fitted = fit_batch(
            self.family,
            self.method,
            x,
            check_positive("concentration", self.concentration),
            checked_settings(self.method, {**own, "resp_init": start}),
            1 if start is not None else n_init,
            _generator(self.random_state),
            self.callback,
        )
        self._publish(self._fitted)
        return self

    def fit_predict(self, X: Any, y: Any = None) -> IntArray:
        """Fit rows X (N, D) and give `labels_`."""
        return self.fit(X).labels_

    def predict(self, X: Any) -> IntArray:
        """The component of largest posterior predictive probability of each row, (N,) int64.

        Of a training point this may differ from `labels_`, which are the engine's own, where two are near a tie.
        """
        return np.concatenate([joint[:, :-1].argmax(axis=1) for joint in self._scored(X)]).astype(np.int64)

    def predict_proba(self, X: Any) -> Array:
        """(N, T): probability that each row belongs to each component, by weight and posterior predictive density.

        What a row lacks to one is the probability that it belongs to a component that holds no training point.
        """
        joints = [joint - logsumexp(joint, axis=1, keepdims=True) for joint in self._scored(X)]
        return np.exp(np.concatenate(joints))[:, :-1]

    def score_samples(self, X: Any) -> Array:
        """(N,): log predictive density of each row in nats; of a sampler, of the density averaged over samples."""
        return self._of_fit().log_density(self._checked(X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log predictive density of the rows in nats. `y` is ignored."""
        return float(self.score_samples(X).mean())

    @property
    def means_(self) -> Array:
        """(T, D) means of the posterior predictives."""
        return self._of_fit().means

    @property
    def covariances_(self) -> Array:
        """(T, D, D) covariances of the posterior predictives, worked out at each access."""
        return self._of_fit().covariances()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def _publish(self, fitted: FittedBatch) -> None:
        fit, placed = fitted.fit, fitted.placed
        self.labels_ = fitted.labels
        self.weights_ = np.exp(fit.log_weight)
        self.masses_ = np.array(fit.stats[0])
        self.elbo_, self.elbo_history_, self.elbo_is_exact_ = fit.elbo, fit.elbo_history, fit.elbo_is_exact
        self.n_iter_, self.converged_ = fit.n_rounds, fit.converged
        self.prior_, self.location_, self.scale_ = placed.prior, placed.location, placed.scale
        for name in ("samples_", "sample_log_joint_"):
            self.__dict__.pop(name, None)
        if "samples" in fit.extra:
            self.samples_, self.sample_log_joint_ = fit.extra["samples"], fit.extra["log_joint"]

    def _of_fit(self) -> FittedBatch:
        check_is_fitted(self)
        return self._fitted

    def _scored(self, X: Any) -> Iterator[Array]:
        return self._of_fit().log_joints(self._checked(X, reset=False))

    def _checked(self, X: Any, *, reset: bool) -> Array:
        x: Array = validate_data(self, X, reset=reset, dtype=np.float64, order="C")
        check_finite(x)
        return x


def _checked_start(resp_init: Any, n_points: int) -> Array:
    resp = as_points(resp_init)
    if len(resp) != n_points:
        raise ShapeError(f"resp_init has {len(resp)} rows for {n_points} points; send one row a point")
    if resp.min() < 0.0 or np.abs(resp.sum(axis=1) - 1.0).max() > 1e-6:
        raise SettingError("rows of resp_init must be probabilities: not negative, summing to one")
    return resp


def _generator(random_state: Any) -> np.random.Generator:
    """A generator from what scikit-learn takes as `random_state`. Raises SettingError."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        raise SettingError(f"random_state is {random_state!r}; give an int, a Generator or None") from error
