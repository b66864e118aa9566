"""The scikit-learn face of a stream."""

from functools import cache
from typing import Any, BinaryIO, Literal, Self

from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from shoal.estimators.fitted import Fitted
from shoal.estimators.points import checked_points, domain_of
from shoal.estimators.refining import RefinementReport, seed_of
from shoal.families import DEFAULT_FAMILY, AnyFamily
from shoal.mixture import Event, MixtureSnapshot, StreamSettings
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.refinement import RefinementMethod
from shoal.runtime.blas import one_blas_thread
from shoal.runtime.files import FileName, read_whole, write_whole


class StreamingDPMixture(DensityMixin, BaseEstimator):
    """A Dirichlet process mixture learnt point after point, with as many components as the data ask for.

    One pass takes every point in as it comes; from time to time a refinement divides the last `window` rows anew, by
    batch inference, with what was learnt before them. With `refinement=None` there is one pass alone.

    The result depends on the points and their order alone, not on how they were cut into calls. Components have ids
    that stay with them for life: they are no positions, and need not be consecutive.

    Parameters
    ----------
    family : str
        Distribution of a component, by its name in `shoal.families.FAMILIES`; Gaussians with full covariance by
        default. Families of counts also accept SciPy's sparse matrices, at a cost by their non-zero elements. Families
        without a conjugate prior are learnt by stochastic gradient. They are not refined, and not merged under
        `method="default"`.
    concentration : float
        Concentration of the Dirichlet process, > 0: the mass of the component that does not exist yet.
    prior : "auto" or a prior of the family from `shoal.families`
        "auto" takes standardisation and prior from the first `warmup_points` rows; until then answers are provisional.
        Counts and binary features are not standardised.
        Features whose values repeat in those rows are learnt with a little noise, a floor under their variances, which
        include it. Ties that come later, or under a prior of your own, get no floor.
    method : {"default", "sva", "sva-pm"}
        Merges by the evidence bound; the plain algorithm of Lin (2013); the same with that paper's pruning and merging.
    birth_threshold : float in (0, 1)
        A point that belongs to a new component with more than this probability founds one.
    half_life : float or None
        Points after which a point counts half; None forgets nothing.
    window, window_bytes : int
        The last rows kept for refinement: so many, and in so many bytes, at most; with a half-life no more than 2.5 of
        it. 0 keeps none.
    refinement : {"auto", None}
        "auto" refines at the end of the warm-up, whenever the stream has doubled, then by period, all that more rarely
        where it changes nothing, and when a component is seen to misfit; None only when `refine` is called. With
        another `method` than "default" there is none.
    random_state : int, RandomState, Generator or None
        Of what refinements draw at random; None: 0.
    warmup_points : int
        Rows from which `prior="auto"` is taken.
    max_components, max_state_bytes : int
        Bounds on the mixture. At the bound births are refused, which an event `capacity` tells.
    responsibility_floor : float or None
        Smaller responsibilities are dropped; None: 1e-3 for `method="default"`, 1e-12 for the others.
    prune_threshold, merge_threshold : float
        Thresholds of `method="sva-pm"`.
    check_schedule : {"doubling", "paper"}
        When merges are looked for: at 1,024, 2,048, 4,096 points and then every 4,096, or at the paper's intervals.

    Attributes
    ----------
    component_ids_ : (K,) int64
        Ids of the live components, ascending. All attributes and the columns of `predict_proba` are in this order.
    masses_, weights_ : (K,)
        Points that each component stands for (decayed, with a half-life), and its share; the shares and that of a new
        component, concentration / (concentration + sum of masses), sum to one.
    means_, covariances_ : (K, D), (K, D, D)
        Moments of the posterior predictive, in the units of the data; NaN or infinite where there are none.
    events_ : tuple of Event
        The last 100,000 changes of identity since `fit`, or since the estimator was loaded.
    """

    _settled: tuple[Any, ...] | None = None
    """The parameters that hold already."""

    def __init__(
        self,
        family: str = DEFAULT_FAMILY,
        *,
        concentration: float = 1.0,
        prior: Literal["auto"] | AnyFamily = "auto",
        method: str = "default",
        birth_threshold: float = 0.5,
        half_life: float | None = None,
        window: int = 100_000,
        window_bytes: int = 256 << 20,
        refinement: Literal["auto"] | None = "auto",
        random_state: Any = None,
        warmup_points: int = 1_000,
        max_components: int = 4_096,
        max_state_bytes: int = 1 << 30,
        responsibility_floor: float | None = None,
        prune_threshold: float = 1e-3,
        merge_threshold: float = 1e-2,
        check_schedule: str = "doubling",
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
        self.responsibility_floor = responsibility_floor
        self.prune_threshold = prune_threshold
        self.merge_threshold = merge_threshold
        self.check_schedule = check_schedule

    @one_blas_thread
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn rows X (N, D) from nothing, forgetting what was learnt before. `y` is ignored.

        The first call on a machine compiles kernels (`partial_fit`).
        """
        return self._fit(X)

    def _fit(self, X: Any) -> Self:
        x = self._checked(X, reset=True)
        fitted = Fitted.empty(self._settings(x.shape[1]))
        fitted.learn(x)
        self._fitted, self._settled = fitted, None
        return self

    @one_blas_thread
    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn rows X (N, D) after all those before. `y` is ignored.

        Parameters changed since the last call hold from here on; those that give the stream its shape (family, prior,
        method, warmup_points) cannot change: SettingError.

        The first call on a machine compiles the kernels of the family, which takes some twenty seconds, and says so on
        stderr. They are kept on disk. `shoal.sequential.warm_kernels()` compiles those of every family beforehand.
        """
        if not self.__sklearn_is_fitted__():
            return self._fit(X)
        x = self._checked(X, reset=False)
        given = self._given()
        if self._settled is None or any(new is not old for new, old in zip(given, self._settled, strict=True)):
            self._fitted.settle(self._settings(x.shape[1], held=self._fitted.state.settings.seed))
            self._settled = given
        self._fitted.learn(x)
        return self

    @one_blas_thread
    def refine(self, method: RefinementMethod = "vdp") -> RefinementReport:
        """Divide the rows of the window anew, now, and adopt the result if the bound on the evidence rises by it.

        method: as of `DPMixture`, but for "gibbs". Raises RefinementError where no window is kept (`window=0`, another
        method than "default", or while warming up), SettingError for a method that there is not.
        """
        check_is_fitted(self)
        return self._fitted.refine(method)

    @one_blas_thread
    def predict(self, X: Any) -> IntArray:
        """Id of the best existing component of each row, (N,) int64."""
        x, snapshot = self._asked(X)
        return snapshot.predict(x, with_resp=False).component

    @one_blas_thread
    def predict_proba(self, X: Any) -> Array:
        """(N, K): probability that each row belongs to each existing component, columns as `component_ids_`.

        What a row lacks to one is its `novelty`: the probability that it belongs to none of them. Less than 9e-17 / K
        of a row's largest may be given as 0.
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
        """(N,): log predictive density of each row in nats, the component that does not exist yet included."""
        x, snapshot = self._asked(X)
        return snapshot.log_density(x)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log predictive density of the rows in nats. `y` is ignored."""
        return float(self.score_samples(X).mean())

    def save(self, file: FileName | BinaryIO) -> None:
        """Write the state and the kept rows as a versioned, checksummed snapshot, to a path or a binary file.

        A path is written beside under a name of its own, flushed to disk and moved into place: a crash, or another
        process that saves there too, leaves one whole file, old or new. Which of them, if the machine itself stops just
        then, is up to the file system.
        """
        check_is_fitted(self)
        write_whole(file, self._fitted.to_bytes())

    @classmethod
    def load(cls, file: FileName | BinaryIO) -> Self:
        """The estimator that was saved, ready to go on. Its events start anew.

        Raises SnapshotDamagedError for bytes that are no intact snapshot, SnapshotVersionError for a newer format.
        """
        fitted = Fitted.from_bytes(read_whole(file))
        settings = fitted.state.settings
        names = set(cls._get_param_names()) - {"random_state"}
        model = cls(random_state=settings.seed or None, **{name: getattr(settings, name) for name in names})
        model._fitted = fitted
        model.n_features_in_ = settings.n_features
        return model

    @property
    def component_ids_(self) -> IntArray:
        """(K,) ids of the live components, ascending."""
        return self._snapshot().ids

    @property
    def masses_(self) -> Array:
        """(K,) points that each component stands for."""
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
        """(K, D, D) covariances of the posterior predictives, worked out at each access."""
        return self._snapshot().covariances()

    @property
    def events_(self) -> tuple[Event, ...]:
        """Changes of identity, oldest first."""
        check_is_fitted(self)
        return self._fitted.events

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_fitted")

    def _given(self) -> tuple[Any, ...]:
        """The parameters as they stand, in one order."""
        return tuple(getattr(self, name) for name in _names())

    def _settings(self, n_features: int, held: int | None = None) -> StreamSettings:
        given = self.get_params(deep=False)
        seed = seed_of(given.pop("random_state"), held)
        return StreamSettings(n_features=n_features, seed=seed, **given)

    def _snapshot(self) -> MixtureSnapshot:
        check_is_fitted(self)
        return self._fitted.snapshot

    def _asked(self, X: Any) -> tuple[Points, MixtureSnapshot]:
        snapshot = self._snapshot()
        return self._checked(X, reset=False), snapshot

    def _checked(self, X: Any, *, reset: bool) -> Points:
        return checked_points(self, X, domain_of(self.family), reset=reset)


@cache
def _names() -> tuple[str, ...]:
    """Those of the parameters, which scikit-learn reads from the signature each time."""
    return tuple(StreamingDPMixture._get_param_names())
