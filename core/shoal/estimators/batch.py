"""Scikit-learn estimator of the batch engines."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from shoal.clusters import Clustering, Hierarchy, Level, check_level, cut, hierarchy_of
from shoal.errors import SettingError, ShapeError
from shoal.estimators.batch_engines import OWN_CHOICE, check_positive, check_starts, checked_settings, engine_of
from shoal.estimators.batch_fit import FittedBatch, fit_batch
from shoal.estimators.dataset_fit import check_dataset_method, fit_batch_dataset, write_batch_predictions
from shoal.estimators.density import DensityMethods
from shoal.estimators.level_numbers import with_level_numbers
from shoal.estimators.points import checked_for, feature_names_of
from shoal.estimators.random_state import generator_of
from shoal.families import DEFAULT_FAMILY, AnyFamily, known_family
from shoal.mixture import MOST_TELLING, MixtureSnapshot, Progress, TellingFeature
from shoal.offline import Dataset, is_dataset, open_dataset, open_dataset_like
from shoal.points.arrays import Array, IntArray, as_points
from shoal.points.rows import Points
from shoal.runtime.executors import executor_of
from shoal.sampling import FUNCTIONS


class DPMixture(DensityMethods, DensityMixin, BaseEstimator):
    """A Dirichlet process mixture fitted to all points at once, by one of several engines.

    Components are numbered by decreasing mass. Components without an assigned training point, which a truncated model
    may have, come after all others.

    Parameters
    ----------
    family : name of a conjugate family, or a prior of one from `shoal.families`
        Gaussians with full covariance by default. A prior applies to the points as they are. With a name the prior is
        made from the data: columns of real numbers are standardised, and the prior is chosen by its predictions of up
        to 1,000 rows, as in a stream. Families of counts also accept sparse matrices. A mapping from columns to names
        gives blocks of columns a family each, as for `StreamingDPMixture`.
        `elbo_` is in the units of the data in either case.
    method : {"vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd", "cfsd", "tfv", "gibbs", "blocked-gibbs", \
"split-merge", "search"}
        Variational inference without truncation, by points or by nodes of a tree (Kurihara, Welling and Vlassis 2006);
        truncated stick-breaking (Blei and Jordan 2004), and the finite symmetric Dirichlet, with reordering (o-) or
        weights integrated out (c) (Kurihara, Welling and Teh 2007); truncation-free, by a stochastic gradient (Wang and
        Blei 2012); collapsed Gibbs sampling (Neal 2000, algorithm 3), blocked (Ishwaran and James 2001), with splits
        and merges (Jain and Neal 2004; Dahl 2005); search for the most probable partition (Daume 2007).
    concentration : float
        Concentration of the Dirichlet process, > 0.
    truncation : int or None
        Components of the truncated methods, blocked-gibbs among them; None: enough for the number of points.
    n_init : int
        Fits from different random starts; the one with the best bound is kept. A sampler has `n_chains` instead.
    max_iter : int or None
        Most rounds; None: the method's own (10,000 for vdp and fast-vdp, 1,000 for the truncated methods). For tfv:
        passes over the points (20). For search: most hypotheses expanded before it continues greedily (no limit).
    tol : float or None
        Gain of the bound, in nats a point, below which a fit ends; None: the method's own (1e-5).
    moves : {"default", "paper"}
        Of vdp and fast-vdp: splits, merges and deletions; or the splits of the paper alone.
    sticks : (float, float) or None
        Of vdp and fast-vdp: parameters of the sticks' Beta prior in place of Beta(1, concentration).
    leaf_points : float or None
        Of fast-vdp: points in a leaf of the tree, which share responsibilities; None: N / 500, at least 1.
    point_rounds : int
        Of fast-vdp: rounds on single points at the end; they help in many dimensions.
    expectations : {"taylor", "exact"}
        Of the collapsed variational methods: to second order as in the paper, or by convolution, O(N^2) a round.
    n_samples, burn_in, thinning, n_chains : int
        Of the samplers: each chain makes `burn_in` sweeps, then keeps every `thinning`-th, `n_samples` times.
    allocation : {"restricted", "sequential"}
        Of split-merge, how a division is proposed: by restricted Gibbs scans, or one point after another.
    restricted_scans, proposals : int
        Of split-merge: scans before the last, and proposals before each sweep.
    batch_size : int
        Of tfv: points a step.
    search_score : {"inadmissible", "admissible", "trivial"}
        Of search, the estimate for the points after a prefix. The last two are bounds: with an infinite beam the
        partition is the most probable one, at a cost exponential in the points.
    search_order : {"ascending", "descending", "given", "random"}
        Of search: points are placed by increasing or decreasing density under the prior alone, as given, or at random.
    beam : int, float("inf") or None
        Of search: hypotheses kept; None: 10.
    executor : {"in-process", "processes", "ray"}, an executor of `shoal.runtime.executors`, or None
        Where the blocks of a data set on disk are worked on. None: in this process. Points in memory do not use it.
    n_jobs : int or None
        Workers of the executor; None: one a core.
    callback : callable or None
        Called with a `Progress` (round, elbo, n_components, message, fraction) after every round. An exception from it
        ends the fit.
    random_state : int, numpy.random.Generator, numpy.random.RandomState or None
        The source of all randomness.

    Attributes
    ----------
    labels_ : (N,) int64
        The best component of each training point: 0..K-1 by decreasing mass. Not set by a data set on disk.
    sizes_ : (T,) int64
        Training points whose best component each is.
    weights_, means_, covariances_ : (T,), (T, D), (T, D, D)
        Expected weight, and the moments of the posterior predictive, in the units of the data; NaN or infinite where
        there are none. One less the sum of the weights is the weight of components without points.
    masses_ : (T,)
        Expected number of training points in each component; for samplers and search, their number.
    hierarchy_ : Hierarchy
        Ward's tree over the components with points, as that of `StreamingDPMixture`. `clusters` cuts it.
    feature_names_in_ : (D,) array of str
        Names of the columns, where `fit` was given a data frame or files with names of columns.
    elbo_, elbo_history_ : float, (rounds + 1,)
        Lower bound on the log evidence in nats, every constant included, at the end and after each round: on that of
        the Dirichlet process for vdp, fast-vdp and tfv, on that of its own truncated model for the others. With tfv it
        need not rise. Of samplers and search: log p(x, partition) of the best sample or the partition found, also a
        bound (of blocked-gibbs log p(x, labels) in the truncated model), and of a sampler's chain after each sweep.
    elbo_is_exact_ : bool
        False where a Taylor value stands for the bound, which may then exceed the evidence.
    exact_elbo_ : float
        Of ctsb, o-ctsb and cfsd: the exact bound of the final responsibilities, by convolution; NaN above four million
        responsibilities, where it would take long.
    n_iter_, converged_ : int, bool
        Number of rounds (search: of hypotheses expanded), and whether they ended by `tol` (search: within `max_iter`).
    samples_, sample_log_joint_ : (S, N) int64, (S,)
        Of samplers: labels of every sample, 0..K-1 by decreasing size, and log p(x, partition) in nats, as `elbo_`.
    effective_sample_size_ : dict
        Of samplers: effective sample sizes of "log_joint", "n_components" and "largest", the size of the largest
        component. NaN for a value that never changed.
    truncation_ : int
        Of the truncated methods and blocked-gibbs: number of components of the model; some may be empty.
    log_joint_ : float
        Of search: log p(x, partition) in nats, as `elbo_`.
    prior_, location_, scale_ :
        The prior used, and the standardisation before it: it is for points (x - location_) / scale_.
    """

    def __init__(
        self,
        family: str | AnyFamily = DEFAULT_FAMILY,
        method: str = "vdp",
        concentration: float = 1.0,
        *,
        truncation: int | None = None,
        n_init: int = 1,
        max_iter: int | None = None,
        tol: float | None = None,
        moves: str = "default",
        sticks: tuple[float, float] | None = None,
        leaf_points: float | None = None,
        point_rounds: int = 0,
        expectations: str = "taylor",
        n_samples: int = 100,
        burn_in: int = 100,
        thinning: int = 1,
        n_chains: int = 1,
        allocation: str = "restricted",
        restricted_scans: int = 5,
        proposals: int = 1,
        batch_size: int = 256,
        search_score: str = "inadmissible",
        search_order: str = "ascending",
        beam: float | None = None,
        executor: Any = None,
        n_jobs: int | None = None,
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
        self.sticks = sticks
        self.leaf_points = leaf_points
        self.point_rounds = point_rounds
        self.expectations = expectations
        self.n_samples = n_samples
        self.burn_in = burn_in
        self.thinning = thinning
        self.n_chains = n_chains
        self.allocation = allocation
        self.restricted_scans = restricted_scans
        self.proposals = proposals
        self.batch_size = batch_size
        self.search_score = search_score
        self.search_order = search_order
        self.beam = beam
        self.executor = executor
        self.n_jobs = n_jobs
        self.callback = callback
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, resp_init: Any = None) -> Self:
        """Fit rows X (N, D). `y` is ignored.

        With `resp_init` (N, T), rows summing to one, a variational method first fits the parameters to it, and nothing
        splits, merges or is deleted. Rounds follow: all q(z), then all parameters (collapsed methods: one q(z_n) after
        another). `elbo_history_[s]` is the bound after s rounds. `tfv` starts from its components. Samplers start every
        chain at labels drawn from it. `fast-vdp` and `search` have no such start. With `resp_init` there is one start
        for any `n_init`.

        For vdp and fast-vdp, X may also be a data set on disk, which need not fit in memory: the name of a Parquet,
        Arrow or npy file, of a folder or a glob of them, a list of names, or a `pyarrow.dataset.Dataset`. `labels_` is
        not set then; `write_predictions` writes labels and log densities.

        Raises SettingError, ShapeError, NotFiniteError; of data sets also InputError, NoPointsError, WorkersLostError.
        """
        if is_dataset(X):
            return self._fit_dataset(open_dataset(X), resp_init)
        X, self._level_names = with_level_numbers(X, self.family, {}, extend=True)
        x = self._checked(X, reset=True)
        n_init = check_starts(self.method, self.n_init)
        start = None if resp_init is None else _checked_start(resp_init, len(x))
        self._fitted = fit_batch(
            known_family(self.family, feature_names_of(self)),
            self.method,
            x,
            concentration=check_positive("concentration", self.concentration),
            settings=checked_settings(self.method, {**self._own_choices, "resp_init": start}),
            n_init=1 if start is not None else n_init,
            rng=generator_of(self.random_state),
            callback=self.callback,
        )
        self._publish(self._fitted)
        return self

    def _fit_dataset(self, dataset: Dataset, resp_init: Any) -> Self:
        check_dataset_method(self.method, check_starts(self.method, self.n_init))
        if resp_init is not None:
            raise SettingError("resp_init is for points in memory; leave it out for a data set on disk")
        self._fitted = fit_batch_dataset(
            known_family(self.family, dataset.names),
            self.method,
            dataset,
            concentration=check_positive("concentration", self.concentration),
            settings=checked_settings(self.method, self._own_choices),
            executor=executor_of(self.executor, self.n_jobs),
            rng=generator_of(self.random_state),
            callback=self.callback,
        )
        self.n_features_in_ = dataset.n_features
        self.__dict__.pop("feature_names_in_", None)
        if dataset.names is not None:
            self.feature_names_in_ = np.array(dataset.names, dtype=object)
        self._level_names = {}
        self._publish(self._fitted)
        return self

    def write_predictions(self, X: Any, folder: Any) -> list[str]:
        """Predict the rows of a data set on disk, as `fit` reads it, and write a Parquet file for each of its files.

        Where the fit had names of columns, columns are read by these. Those written are `label`, as from `predict`, and
        `log_density`, as from `score_samples`, in the order of the rows. Returns the names of the files within the
        folder. Raises InputError, ShapeError.
        """
        fitted, names = self._of_fit(), getattr(self, "feature_names_in_", None)
        dataset = open_dataset_like(X, names)
        if dataset.n_features != self.n_features_in_:
            raise ShapeError(
                f"the data set has {dataset.n_features} features, the fit {self.n_features_in_}; give others"
            )
        executor = executor_of(self.executor, self.n_jobs)
        return write_batch_predictions(fitted, dataset, folder, executor, self.callback)

    def fit_predict(self, X: Any, y: Any = None) -> IntArray:
        """Fit rows X (N, D) and return `labels_`."""
        self.fit(X)
        if not hasattr(self, "labels_"):
            raise SettingError(
                "labels of a data set on disk are written, not returned; use fit, then write_predictions"
            )
        return self.labels_

    def predict(
        self,
        X: Any,
        *,
        level: Level = "component",
        n_clusters: int | None = None,
        resolution: float | None = None,
    ) -> IntArray:
        """The component of largest posterior predictive probability of each row, (N,) int64; at level "cluster", the
        cluster that holds the best component with training points.

        For a training point near a tie it may differ from `labels_`, which come from the engine. `n_clusters` and
        `resolution` are those of `clusters`. Raises SettingError for another level, and for either of them at the level
        of components.
        """
        check_level(level, n_clusters, resolution)
        fitted, x = self._of_fit(), self._checked(X, reset=False)
        if level == "component":
            return fitted.predict(x, with_resp=False).row
        ids = self._snapshot().predict(x, with_resp=False).component
        return self.clusters(n_clusters, resolution=resolution).of_components(ids)

    def predict_proba(self, X: Any) -> Array:
        """(N, T): probability that each row belongs to each component, by weight and posterior predictive density.

        One less the sum of a row is the probability of a component without training points.
        """
        return self._of_fit().predict(self._checked(X, reset=False), with_resp=True).resp

    def score_samples(self, X: Any) -> Array:
        """(N,): log predictive density of each row in nats; for samplers, averaged over the samples."""
        return self._of_fit().log_density(self._checked(X, reset=False))

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log predictive density of the rows in nats. `y` is ignored."""
        return float(self.score_samples(X).mean())

    def telling_features(self, n: int = MOST_TELLING) -> list[list[TellingFeature]]:
        """The features in which each component (T) differs most from the rest: at most `n` each, most telling first.

        As `StreamingDPMixture.telling_features`.
        """
        return self._of_fit().telling(feature_names_of(self), n, getattr(self, "_level_names", {}))

    def clusters(self, n_clusters: int | None = None, *, resolution: float | None = None) -> Clustering:
        """The components with points in groups, cut from `hierarchy_`. As `StreamingDPMixture.clusters`.

        A cluster has the number of its heaviest component.
        """
        return cut(self.hierarchy_, n_clusters, resolution)

    @property
    def hierarchy_(self) -> Hierarchy:
        """Tree of the components with an assigned training point, with a SciPy linkage matrix; made at each access."""
        return hierarchy_of(self._snapshot())

    @property
    def means_(self) -> Array:
        """(T, D) means of the posterior predictives."""
        return self._of_fit().means

    @property
    def covariances_(self) -> Array:
        """(T, D, D) covariances of the posterior predictives, computed at each access."""
        return self._of_fit().covariances()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    @property
    def _own_choices(self) -> dict[str, Any]:
        """The parameters that only some methods read."""
        return {name: getattr(self, name) for name in OWN_CHOICE if name != "resp_init"}

    def _publish(self, fitted: FittedBatch) -> None:
        fit, placed = fitted.fit, fitted.placed
        self.__dict__.pop("labels_", None)
        if fitted.labels is not None:
            self.labels_ = fitted.labels
        self.sizes_ = fitted.sizes
        self.weights_ = np.exp(fit.log_weight)
        self.masses_ = np.array(fit.stats[0])
        self.elbo_, self.elbo_history_, self.elbo_is_exact_ = fit.elbo, fit.elbo_history, fit.elbo_is_exact
        self.n_iter_, self.converged_ = fit.n_rounds, fit.converged
        self.prior_, self.location_, self.scale_ = placed.prior, placed.location, placed.scale
        for name in (
            "exact_elbo_",
            "samples_",
            "sample_log_joint_",
            "effective_sample_size_",
            "log_joint_",
            "truncation_",
        ):
            self.__dict__.pop(name, None)
        if "samples" in fit.extra:
            self.samples_, self.sample_log_joint_ = fit.extra["samples"], fit.extra["log_joint"]
            sizes = fit.extra["effective_sample_size"].tolist()
            self.effective_sample_size_ = dict(zip(FUNCTIONS, sizes, strict=True))
        elif "log_joint" in fit.extra:
            self.log_joint_ = float(fit.extra["log_joint"])
        if "expectations" in engine_of(self.method).reads:
            exact = fit.elbo if fit.elbo_is_exact else fit.extra.get("exact_elbo", np.nan)
            self.exact_elbo_ = float(np.squeeze(exact))
        if "truncation" in engine_of(self.method).reads:
            self.truncation_ = int(fit.extra.get("truncation", len(fit.log_weight)))

    def _snapshot(self, *, with_unused: bool = False) -> MixtureSnapshot:
        levels = getattr(self, "_level_names", None) or None
        names = feature_names_of(self)
        return self._of_fit().snapshot(self.concentration, names, levels, with_unused=with_unused)

    def _of_fit(self) -> FittedBatch:
        check_is_fitted(self)
        return self._fitted

    def _checked(self, X: Any, *, reset: bool) -> Points:
        if not reset:
            known, names = getattr(self, "_level_names", {}), feature_names_of(self)
            X, _ = with_level_numbers(X, self.family, known, extend=False, feature_names=names)
        return checked_for(self, X, self.family, reset=reset)


def _checked_start(resp_init: Any, n_points: int) -> Array:
    resp = as_points(resp_init)
    if len(resp) != n_points:
        raise ShapeError(f"resp_init has {len(resp)} rows for {n_points} points; send one row a point")
    if resp.min() < 0.0 or np.abs(resp.sum(axis=1) - 1.0).max() > 1e-6:
        raise SettingError("rows of resp_init must be probabilities: not negative, summing to one")
    return resp
