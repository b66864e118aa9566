"""Scikit-learn estimator of a stream."""

from copy import copy
from functools import cache
from typing import Any, BinaryIO, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from shoal.clusters import Clustering, Hierarchy, Level, check_level, cut
from shoal.errors import SettingError
from shoal.estimators.density import DensityMethods
from shoal.estimators.fitted import Fitted, RefinementReport
from shoal.estimators.level_numbers import with_level_numbers
from shoal.estimators.points import checked_for, checked_times, feature_names_of
from shoal.estimators.random_state import seed_of
from shoal.estimators.stability import Stability, stability_of
from shoal.families import DEFAULT_FAMILY, AnyFamily
from shoal.mixture import AUTO_FAMILY, MOST_TELLING, Event, MixtureSnapshot, StreamSettings, TellingFeature
from shoal.partitions import PieceRunner, Workers
from shoal.points.arrays import Array, IntArray
from shoal.points.levels import LevelNames
from shoal.points.rows import Points
from shoal.points.weighted_rows import LearntPoints, WeightedRows, checked_weights, with_weights
from shoal.refinement import RefinementMethod
from shoal.runtime.blas import one_blas_thread
from shoal.runtime.executors import executor_of
from shoal.runtime.files import FileName, read_whole, write_whole


class StreamingDPMixture(DensityMethods, DensityMixin, BaseEstimator):
    """A Dirichlet process mixture learnt point after point, with as many components as the data ask for.

    One pass learns each point as it arrives. From time to time a refinement divides the last `window` rows again by
    batch inference, together with the statistics of older points. With `refinement=None` there is only the one pass.

    The result depends on the points and their order alone, not on how they are cut into calls. Component ids are
    stable. They are not positions, and need not be consecutive.

    Parameters
    ----------
    family : str, or mapping from columns to str
        Distribution of a component, by its name in `shoal.families.FAMILIES`; Gaussians with full covariance by
        default. A mapping gives blocks of columns a family each, for mixed data: `{"0-3": "gaussian", "4": "poisson"}`,
        or by the names of a data frame's columns. All columns of one family are one block. Columns of "categorical" may
        hold texts, in a data frame or an array of objects (`level_names_`). "auto" chooses the family
        at the end of the warm-up (`family_`, `family_reason_`). Families of counts also
        accept SciPy's sparse matrices, at a cost by their non-zero elements. "dirichlet_gradient" and
        families of your own without statistics that add are learnt by stochastic gradient. They are not refined, and
        `method="default"` does not merge them.
    concentration : float
        Concentration of the Dirichlet process, > 0: the mass of a new component.
    prior : "auto", "hierarchical" or a prior of the family from `shoal.families`
        "auto" estimates standardisation and prior from the first `warmup_points` rows; results before are provisional.
        Counts and binary features are not standardised. Features with repeated values in those rows, and linear
        functions of others, are learnt with a little noise, which sets a floor for their variances. Later ties, and
        ties under your own prior, get no floor.
        "hierarchical" is the same, and refinements learn the whole prior of the components' covariances (`gaussian`,
        `student`, `diagonal`).
    method : {"default", "sva", "sva-pm"}
        Merges by the evidence bound; the plain algorithm of Lin (2013); the same with that paper's pruning and merging.
    birth_threshold : float in (0, 1)
        A point that belongs to a new component with more than this probability founds one.
    half_life : float, str or None
        Points after which a point counts half, or a time such as "30m", "1h" or "7d"; None forgets nothing.
    window, window_bytes : int
        Most rows, and most bytes of rows, that are kept for refinement; with a half-life at most 2.5 half-lives. 0
        keeps none.
    refinement : {"auto", None}
        "auto" refines at the end of the warm-up, each time the stream has doubled, then periodically, and when a
        component misfits. It refines less often where nothing changes. None refines only by `refine`. Other values of
        `method` than "default" have no refinement.
    random_state : int, RandomState, Generator or None
        Seed of the random numbers of refinements; None: 0.
    warmup_points : int
        Rows from which `prior="auto"` is estimated.
    max_components, max_state_bytes : int
        Limits of the mixture. At a limit births are refused, with an event `capacity`.
    max_archived : int
        With a half-life: most retired components that get their id back when their cluster returns; 0: none does.
    responsibility_floor : float or None
        Smaller responsibilities are dropped; None: 1e-3 for `method="default"`, 1e-12 for the others.
    prune_threshold, merge_threshold : float
        Thresholds of `method="sva-pm"`.
    check_schedule : {"doubling", "paper"}
        Offsets of checks for merges: at 1,024, 2,048, 4,096 points and then every 4,096, or at the paper's intervals.
    missing : {"refuse", "marginal"}
        A missing value (NaN) is an error, or the point is scored by its other features and learnt by its expected
        statistics. `gaussian`, `diagonal`, `known_covariance`, `bernoulli` and `poisson` can do the latter.
    partitions : int
        Parts of each round of 16,384 rows that are learnt side by side and then summed. It is part of the model: the
        result is the same on any number of cores. Calls with whole rounds gain by it. Needs `method="default"` and a
        conjugate family.
    executor : {"in-process", "processes", "ray"}, an executor of `shoal.runtime.executors`, or None
        Where partitions are learnt. None: in threads of this process. With others this process learns the first one,
        and workers the rest. They start with the first call, and end with this process. It is not saved.
    n_jobs : int or None
        Workers of "processes", or of a Ray cluster that this process starts; None: one fewer than partitions.

    Attributes
    ----------
    labels_ : (N,) int64
        Id of the component of each row of the last `fit` or `partial_fit`, as the row was learnt, followed through
        joins; of rows before an adopted refinement, the best one after it. `predict` tells those of today.
    component_ids_ : (K,) int64
        Ids of the live components, ascending. All attributes and the columns of `predict_proba` are in this order.
    masses_, weights_ : (K,)
        Number of points of each component (decayed, with a half-life), and its share. The shares sum to one with that
        of a new component, concentration / (concentration + sum of masses).
    means_, covariances_ : (K, D), (K, D, D)
        Moments of the posterior predictive, in the units of the data; NaN or infinite where there are none.
    hierarchy_ : Hierarchy
        Ward's tree over the components, weighted by their masses: `linkage` (K - 1, 4) as SciPy has it, `ids`, `masses`
        and `born_at` (K,). Made at first access after each change.
    feature_names_in_ : (D,) array of str
        Names of the columns, where `fit` was given a data frame. Saved with the state.
    events_ : tuple of Event
        The last 100,000 changes of identity since `fit`, or since the estimator was loaded.
    """

    _settled: tuple[Any, ...] | None = None
    """The parameters at the last call."""
    _runner: tuple[Any, Workers] | None = None
    """Who learns the partitions, and what was given to choose it."""

    def __init__(
        self,
        family: str = DEFAULT_FAMILY,
        *,
        concentration: float = 1.0,
        prior: Literal["auto", "hierarchical"] | AnyFamily = "auto",
        method: str = "default",
        birth_threshold: float = 0.5,
        half_life: float | str | None = None,
        window: int = 100_000,
        window_bytes: int = 256 << 20,
        refinement: Literal["auto"] | None = "auto",
        random_state: Any = None,
        warmup_points: int = 1_000,
        max_components: int = 4_096,
        max_state_bytes: int = 1 << 30,
        max_archived: int = 256,
        responsibility_floor: float | None = None,
        prune_threshold: float = 1e-3,
        merge_threshold: float = 1e-2,
        check_schedule: str = "doubling",
        missing: Literal["refuse", "marginal"] = "refuse",
        partitions: int = 1,
        executor: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.family = family
        self.concentration = concentration
        self.prior = prior
        self.method = method
        self.birth_threshold = birth_threshold
        self.half_life = half_life
        self.window = window
        self.window_bytes = window_bytes
        self.refinement = refinement
        self.random_state = random_state
        self.warmup_points = warmup_points
        self.max_components = max_components
        self.max_state_bytes = max_state_bytes
        self.max_archived = max_archived
        self.responsibility_floor = responsibility_floor
        self.prune_threshold = prune_threshold
        self.merge_threshold = merge_threshold
        self.check_schedule = check_schedule
        self.missing = missing
        self.partitions = partitions
        self.executor = executor
        self.n_jobs = n_jobs

    @one_blas_thread
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, times: Any = None) -> Self:
        """Learn rows X (N, D) from nothing, forgetting what was learnt before. `y` is ignored.

        `sample_weight` and `times` are those of `partial_fit`. The first call on a machine compiles kernels, too.
        """
        return self._fit(X, sample_weight, times)

    def _fit(self, X: Any, sample_weight: Any, times: Any) -> Self:
        holes, room = self.missing == "marginal", self.max_state_bytes
        X, level_names = with_level_numbers(X, self.family, {}, extend=True, max_state_bytes=room, holes=holes)
        x = self._weighted(self._checked(X, reset=True), sample_weight)
        settings = self._settings(x.shape[1], level_names=level_names)
        if isinstance(x, WeightedRows):
            settings.check_takes_weights()
        run = self._piece_runner()
        fitted = Fitted.empty(settings)
        labels = fitted.learn(x, None if times is None else checked_times(times, len(x)), run)
        self._fitted, self._settled, self.labels_ = fitted, None, labels
        return self

    @one_blas_thread
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, times: Any = None) -> Self:
        """Learn rows X (N, D) after all those before. `y` is ignored.

        `sample_weight` (N,), from 1e-9 to 1e9: how often each row counts, None once. A row of weight w adds w times its
        statistics, under the responsibilities of one row. So it is not the same as w rows, each of which would be
        divided among the components that the one before left. Conjugate families only: SettingError for others.

        `times` (N,), as seconds since 1970, `numpy.datetime64`, `datetime` with a zone, or a column of a data frame:
        when each row happened. They matter where `half_life` is a time. An array or a column without a zone is in UTC.
        Weights then decay before the first row of a later time. Rows may come out of order: a late one gets
        the weight that it would have left by now. Rows without times come at the newest time seen.

        Parameters changed since the last call apply from now on. Family, prior, method and warmup_points cannot change:
        SettingError.

        The first call on a machine compiles the kernels of the family, which takes some twenty seconds, and says so on
        stderr. They are kept on disk. `shoal.sequential.warm_kernels()` compiles those of every family beforehand.
        """
        if not self.__sklearn_is_fitted__():
            return self._fit(X, sample_weight, times)
        live = self._fitted.state.settings
        X, level_names = self._with_level_numbers(X, extend=True)
        x = self._weighted(self._checked(X, reset=False), sample_weight)
        if isinstance(x, WeightedRows):
            live.check_takes_weights()
        seconds = None if times is None else checked_times(times, len(x))
        run, given, known = self._piece_runner(), self._given(), live.level_names or {}
        same = self._settled is not None and all(new is old for new, old in zip(given, self._settled, strict=True))
        if not same or level_names != known:
            self._fitted.settle(self._settings(x.shape[1], live_seed=live.seed, level_names=level_names))
            self._settled = given
        self.labels_ = self._fitted.learn(x, seconds, run)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None, times: Any = None) -> IntArray:
        """Learn rows X (N, D) from nothing, and give the id of the best component of each. `y` is ignored."""
        return self.fit(X, None, sample_weight, times).predict(X)

    @one_blas_thread
    def refine(self, method: RefinementMethod = "vdp") -> RefinementReport:
        """Refine the mixture on the rows of the window now, and adopt the result if the bound on the evidence rises.

        method: "vdp", "fast-vdp", "tsb", "o-tsb", "ctsb", "o-ctsb", "fsd" or "cfsd". Raises RefinementError where no
        window is kept (`window=0`, another method than "default", or during the warm-up), and of "fast-vdp" for rows
        too far apart for its sums; SettingError for an unknown method.
        """
        check_is_fitted(self)
        return self._fitted.refine(method)

    @one_blas_thread
    def predict(
        self,
        X: Any,
        *,
        level: Level = "component",
        n_clusters: int | None = None,
        resolution: float | None = None,
    ) -> IntArray:
        """Id of the best existing component of each row, (N,) int64; at level "cluster", of the cluster that holds it.

        `n_clusters` and `resolution` are those of `clusters`. Raises SettingError for another level, and for either of
        them at the level of components.
        """
        check_level(level, n_clusters, resolution)
        x, snapshot = self._asked(X)
        ids = snapshot.predict(x, with_resp=False).component
        return ids if level == "component" else self.clusters(n_clusters, resolution=resolution).of_components(ids)

    @one_blas_thread
    def clusters(self, n_clusters: int | None = None, *, resolution: float | None = None) -> Clustering:
        """The components in groups, cut from `hierarchy_`: `n_clusters` of them (1 to K), or as many as `resolution`
        asks for (> 0, more for a higher one). The default is connected groups if there are any, else resolution 1.

        A cluster has the id of its oldest component, and keeps it as long as it keeps that component.
        Raises SettingError for values out of range, and if both are given.
        """
        return cut(self.hierarchy_, n_clusters, resolution)

    @one_blas_thread
    def stability(self, n_clusters: int | None = None, *, resolution: float | None = None) -> Stability:
        """Agreement of the clusters of two learners, each of every second row of the window. This model stays as it is.

        The choice of clusters is that of `clusters`. 1: both find the same groups. About 0: the groups are chance.
        Costs about as much as learning the window. Raises NoPointsError for a window of fewer than twenty rows,
        SettingError as `clusters`.
        """
        check_is_fitted(self)
        cut(self.hierarchy_, n_clusters, resolution)  # refuses a choice out of range before the work
        return stability_of(self._fitted.state.settings, self._fitted.window, n_clusters, resolution)

    @property
    @one_blas_thread
    def hierarchy_(self) -> Hierarchy:
        """Tree of the components, with a SciPy linkage matrix (K - 1, 4)."""
        check_is_fitted(self)
        return self._fitted.hierarchy

    @one_blas_thread
    def predict_proba(self, X: Any) -> Array:
        """(N, K): probability that each row belongs to each existing component, columns as `component_ids_`.

        One less the sum of a row is its `novelty`, the probability of a new component. Values below 9e-17 / K of a
        row's largest may be 0.
        """
        x, snapshot = self._asked(X)
        return snapshot.predict(x).resp

    @one_blas_thread
    def novelty(self, X: Any) -> Array:
        """(N,): posterior probability that each row belongs to no existing component."""
        x, snapshot = self._asked(X)
        return snapshot.predict(x, with_resp=False).novelty

    @one_blas_thread
    def score_samples(self, X: Any) -> Array:
        """(N,): log predictive density of each row in nats, with the term of a new component."""
        x, snapshot = self._asked(X)
        return snapshot.log_density(x)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log predictive density of the rows in nats. `y` is ignored."""
        return float(self.score_samples(X).mean())

    def save(self, file: FileName | BinaryIO) -> None:
        """Write the state and the kept rows as a versioned, checksummed snapshot, to a path or a binary file.

        A path is first written under a temporary name beside it, flushed to disk and moved into place. A crash, or
        another process that saves to the same path, leaves one complete file, old or new. After a stop of the machine
        itself the file system decides which.
        """
        check_is_fitted(self)
        write_whole(file, self._fitted.to_bytes())

    @classmethod
    def load(cls, file: FileName | BinaryIO) -> Self:
        """The saved estimator, ready to continue. Its list of events starts empty.

        Raises SnapshotDamagedError for bytes that are not an intact snapshot, SnapshotVersionError for a newer format.
        """
        return cls._continuing(Fitted.from_bytes(read_whole(file)))

    @classmethod
    @one_blas_thread
    def from_gaussian_mixture(cls, mixture: Any, n_points: int | None = None, **parameters: Any) -> Self:
        """A stream that begins with a fitted `GaussianMixture` or `BayesianGaussianMixture` of scikit-learn.

        `n_points` says how many points a `GaussianMixture` stands for, against those to come; the other knows its own.
        `parameters` are those of this class except family and prior. The concentration is by default the mixture's, or
        1. Components are numbered as in the mixture; those of less than one point are left out. Full or diagonal
        posteriors of a `BayesianGaussianMixture` are continued exactly. Otherwise the prior is estimated from the
        components. The result can be saved, and the file be restored in a service.

        Raises SettingError for another mixture, and where `n_points` is missing, out of range or not needed.
        """
        from shoal.estimators.imported import imported, state_of  # here: it loads scikit-learn's clusterers

        settled = {"family", "prior"} & set(parameters)
        if settled:
            raise SettingError(f"{sorted(settled)[0]} follows from the mixture; leave it out")
        found = imported(mixture, n_points)
        model = cls(found.prior.name, prior=found.prior if found.explicit else "auto", **parameters)
        if "concentration" not in parameters:
            model.concentration = found.concentration
        if hasattr(mixture, "feature_names_in_"):
            model.feature_names_in_ = mixture.feature_names_in_
        return cls._continuing(Fitted(state_of(found, model._settings(len(found.location)))))

    @classmethod
    def _continuing(cls, fitted: Fitted) -> Self:
        settings = fitted.state.settings
        names = set(cls._get_param_names()) - {"random_state", "family", "executor", "n_jobs"}
        family = settings.family_requested or settings.family
        model = cls(family, random_state=settings.seed or None, **{name: getattr(settings, name) for name in names})
        model._fitted = fitted
        model.n_features_in_ = settings.n_features
        if settings.feature_names is not None:
            model.feature_names_in_ = np.array(settings.feature_names, dtype=object)
        return model

    @property
    def component_ids_(self) -> IntArray:
        """(K,) ids of the live components, ascending."""
        return self._snapshot().ids

    @property
    def masses_(self) -> Array:
        """(K,) number of points of each component."""
        return self._snapshot().masses

    @property
    def weights_(self) -> Array:
        """(K,) mass / (concentration + sum of masses)."""
        return self._snapshot().weights

    @property
    def means_(self) -> Array:
        """(K, D) means of the posterior predictives."""
        return self._snapshot().means

    @property
    def covariances_(self) -> Array:
        """(K, D, D) covariances of the posterior predictives, computed at each access."""
        return self._snapshot().covariances()

    @one_blas_thread
    def telling_features(self, n: int = MOST_TELLING) -> dict[int, list[TellingFeature]]:
        """The features in which each component, by its id, differs most from the rest: at most `n`, most telling first.

        Numbers are compared by their difference in pooled deviations, rates and parts by their information. A component
        without a rest has none.
        """
        snapshot = self._snapshot()
        return dict(zip(snapshot.ids.tolist(), snapshot.telling(n=n), strict=True))

    @property
    def family_(self) -> str:
        """Name of the family in use; of `family="auto"` a provisional one until the warm-up ends."""
        check_is_fitted(self)
        return self._fitted.state.settings.family

    @property
    def family_reason_(self) -> str | None:
        """Why `family="auto"` chose the family, in words; None before the warm-up ends, and for a family by name."""
        check_is_fitted(self)
        return self._fitted.state.settings.family_reason

    @property
    def level_names_(self) -> dict[str | int, list[str]]:
        """Texts of categories by name or number of their column: that of level l is at place l."""
        check_is_fitted(self)
        settings = self._fitted.state.settings
        known, names = settings.level_names or {}, settings.feature_names
        return {column if names is None else names[column]: list(texts) for column, texts in known.items()}

    @property
    def events_(self) -> tuple[Event, ...]:
        """Changes of identity, oldest first."""
        check_is_fitted(self)
        return self._fitted.events

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def _given(self) -> tuple[Any, ...]:
        """The present parameters, in a fixed order."""
        return tuple(getattr(self, name) for name in _names())

    def _with_level_numbers(self, X: Any, *, extend: bool) -> tuple[Any, LevelNames]:
        """X with level numbers in the place of texts, and the names of the levels after it."""
        known, names = self._fitted.state.settings.level_names or {}, feature_names_of(self)
        holes, room = self.missing == "marginal", self.max_state_bytes
        return with_level_numbers(
            X, self.family, known, extend=extend, feature_names=names, max_state_bytes=room, holes=holes
        )

    def _piece_runner(self) -> PieceRunner:
        """Who learns the partitions. Raises SettingError where workers cannot be started."""
        if self.partitions == 1 and self.executor not in (None, "in-process"):
            raise SettingError(
                f"executor is {self.executor!r}, but one partition leaves workers nothing to do; give partitions=2 or "
                "more, or leave executor out"
            )
        given = (self.executor, self.n_jobs, self.partitions)
        if self._runner is None or self._runner[0] != given:
            by_name = self.n_jobs is None and self.executor in ("processes", "ray")
            n_workers = self.partitions - 1 if by_name else self.n_jobs
            self._runner = given, Workers(executor_of(self.executor, n_workers))
        return self._runner[1]

    def set_params(self, **params: Any) -> Self:
        """Set parameters for the next call. With `executor`, workers that were lost are tried again."""
        super().set_params(**params)
        if "executor" in params:
            self._runner = None
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_runner": None}

    def __copy__(self) -> Self:
        """An estimator with the same parameters that goes on from the same state by itself."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        if self.__sklearn_is_fitted__():
            twin._fitted = copy(self._fitted)  # learning changes it in place
        return twin

    def _settings(
        self, n_features: int, live_seed: int | None = None, level_names: LevelNames | None = None
    ) -> StreamSettings:
        given = self.get_params(deep=False)
        del given["executor"], given["n_jobs"]
        seed = seed_of(given.pop("random_state"), live_seed)
        names = feature_names_of(self)
        return StreamSettings(
            n_features=n_features, seed=seed, feature_names=names, level_names=level_names or None, **given
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "marginal"
        return tags

    def _snapshot(self) -> MixtureSnapshot:
        check_is_fitted(self)
        return self._fitted.snapshot

    def _asked(self, X: Any) -> tuple[Points, MixtureSnapshot]:
        snapshot = self._snapshot()
        return self._checked(self._with_level_numbers(X, extend=False)[0], reset=False), snapshot

    def _weighted(self, x: Points, sample_weight: Any) -> LearntPoints:
        return x if sample_weight is None else with_weights(x, checked_weights(sample_weight, len(x)))

    def _checked(self, X: Any, *, reset: bool) -> Points:
        x = checked_for(self, X, self.family, reset=reset, holes=self.missing == "marginal")
        if reset or self.family != AUTO_FAMILY or not self.__sklearn_is_fitted__():
            return x
        settings = self._fitted.state.settings
        settings.check_chosen_domain(x)
        return settings.domain.convert(x)


@cache
def _names() -> tuple[str, ...]:
    """Names of the parameters, cached because scikit-learn reads the signature each time."""
    return tuple(StreamingDPMixture._get_param_names())
