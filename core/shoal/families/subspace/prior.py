"""Embeddings and other points of many features: Gaussian components in a subspace that all share, noise outside it.

With W (D, R) orthonormal directions, c the center, y = W'(x - c) and r the distance of x from the subspace,

    log p(x | k) = log N(y | mu_k, S_k) - (D - R) / 2 log(2 pi v) - r^2 / (2 v)

a normalised density of x: the columns of W and those of a complement are a rotation of space (Tipping and Bishop 1999,
"Mixtures of probabilistic principal component analyzers", with one subspace and one noise for all components). mu_k and
S_k have a normal-inverse-Wishart prior. The part of the noise is the same for every component, so it is a carrier, and
evidence and predictive densities are exact. c, W and v belong to the prior.

The natural parameters are those of `gaussian` over the coordinates.
"""

from functools import cached_property
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from shoal.errors import SettingError
from shoal.families.base import RowsT
from shoal.families.capabilities import QuadraticForm, SplitPrior
from shoal.families.gaussian import (
    GaussianCache,
    GaussianDraw,
    GaussianParams,
    GaussianPredictive,
    GaussianStats,
    NormalInverseWishart,
    WithInnerGaussian,
)
from shoal.families.hyperparameters import Hyperparameters, as_mean, as_positive, as_real
from shoal.families.located.types import WeightedMoments
from shoal.families.natural_statistics import Origin, Statistics
from shoal.families.predictive_cache import CacheScales, Call, as_kernels_read
from shoal.families.prior_choices import LARGEST, SMALLEST, Choice
from shoal.families.subspace import candidates, refit
from shoal.families.subspace.outliers import absurd_components
from shoal.families.subspace.projection import project_into, projected, row_width
from shoal.families.subspace.types import ProjectedRows, SubspaceCache, SubspaceStats
from shoal.points.arrays import Array, BoolArray
from shoal.points.domains import Domain

MOST_DIRECTIONS = 32
"""Directions of an automatic subspace: at most so many, and half of the features."""

_LARGEST_FAULT = 1e-8
_LOG_2PI = float(np.log(2 * np.pi))


def default_rank(n_features: int) -> int:
    """Directions of an automatic subspace, before the rows are looked at."""
    return min(MOST_DIRECTIONS, (n_features + 1) // 2)


class SubspaceGaussian(WithInnerGaussian, Hyperparameters):
    """The prior mu | S ~ N(mean, S / mean_strength), S ~ IW(dof, scale) of the coordinates, as `NormalInverseWishart`.

    center (D,); directions (D, R), orthonormal columns, 1 <= R <= D; noise_variance > 0, of each direction outside;
    mean (R,), mean_strength > 0, dof > R - 1, scale (R, R) positive definite, kept as `scale_matrix`. Raises
    SettingError when one of them is out of range.
    """

    FIELDS: ClassVar[dict[str, str]] = {
        "center": "center",
        "directions": "directions",
        "noise_variance": "noise_variance",
        "mean": "mean",
        "mean_strength": "mean_strength",
        "dof": "dof",
        "scale": "scale_matrix",
    }
    name: ClassVar[str] = "subspace"
    description: ClassVar[str] = "Gaussians in a subspace of few directions, with noise outside it"
    cache_kind: ClassVar[type[Any]] = SubspaceCache
    domain: ClassVar[Domain] = Domain("real", "any finite numbers")
    stats_are_sums: ClassVar[bool] = True
    center: Array
    directions: Array
    noise_variance: float
    mean: Array
    mean_strength: float
    dof: float
    scale_matrix: Array

    def __init__(
        self,
        center: ArrayLike,
        directions: ArrayLike,
        noise_variance: ArrayLike,
        mean: ArrayLike,
        mean_strength: ArrayLike,
        dof: ArrayLike,
        scale: ArrayLike,
    ) -> None:
        middle = as_mean(center)
        axes = _as_directions(directions, middle.size)
        inner = NormalInverseWishart(mean, mean_strength, dof, scale)
        if inner.n_features != axes.shape[1]:
            raise SettingError(
                f"mean has {inner.n_features} numbers, but there are {axes.shape[1]} directions; give one a direction"
            )
        self._freeze(
            center=middle,
            directions=axes,
            noise_variance=as_positive("noise_variance", noise_variance),
            mean=inner.mean,
            mean_strength=inner.mean_strength,
            dof=inner.dof,
            scale_matrix=inner.scale_matrix,
        )

    @classmethod
    def weak(cls, n_features: int) -> Self:
        """The first half of the features as directions, at most 32; a precision of 10 on average, noise like it."""
        rank = default_rank(n_features)
        inner = NormalInverseWishart.weak(rank)
        return cls(np.zeros(n_features), np.eye(n_features, rank), 0.1, *inner.to_arrays().values())

    @classmethod
    def candidate_priors(cls, rows: Array, thorough: bool) -> list[Self]:
        """See `candidates`."""
        found = candidates.candidate_priors(rows, thorough, default_rank(rows.shape[1]))
        return [cls(*prior) for prior in found]

    @property
    def n_features(self) -> int:
        """D."""
        return self.center.size

    @property
    def rank(self) -> int:
        """R, the number of directions."""
        return self.mean.size

    @property
    def n_free_parameters(self) -> int:
        """Those of a Gaussian over the coordinates."""
        return self.inner.n_free_parameters

    @cached_property
    def inner(self) -> NormalInverseWishart:
        """The prior of the coordinates."""
        return NormalInverseWishart(self.mean, self.mean_strength, self.dof, self.scale_matrix)

    def with_inner(self, inner: NormalInverseWishart, noise_variance: float) -> Self:
        """The same subspace under another prior of the coordinates and another noise. What was checked is not again:
        a search makes hundreds."""
        made = object.__new__(type(self))
        made._freeze(
            center=self.center,
            directions=self.directions,
            noise_variance=as_positive("noise_variance", noise_variance),
            mean=inner.mean,
            mean_strength=inner.mean_strength,
            dof=inner.dof,
            scale_matrix=inner.scale_matrix,
        )
        return made

    # Points, and rows of coordinates in their place

    def working_rows(self, x: Array) -> Array:
        """Points x (N, D) as rows of coordinates and distance (`projection`); such rows as they are."""
        if x.shape[1] == row_width(self.n_features, self.rank):
            return x
        return projected(x, self.center, self.directions)

    def seen(self, x: Array) -> tuple[Array, Array]:
        """Coordinates (N, R) and squared distances (N,) from the subspace, of points (N, D) or working rows."""
        rows = self.working_rows(x)
        square = np.square(rows[:, self.rank]) if self.rank < self.n_features else np.zeros(len(rows))
        return np.ascontiguousarray(rows[:, : self.rank]), square

    def log_outside(self, square: Array, mass: float | Array = 1.0) -> Array:
        """The noise's log density, nats, of `mass` points whose squared distances sum to `square`."""
        n_outside = self.n_features - self.rank
        front = -0.5 * n_outside * (_LOG_2PI + np.log(self.noise_variance))
        return np.asarray(front * np.asarray(mass) - 0.5 / self.noise_variance * square)

    # Statistics

    def empty_stats(self, n_components: int) -> SubspaceStats:
        """Statistics of components that have seen nothing."""
        return SubspaceStats(*self.inner.empty_stats(n_components), np.zeros(n_components))

    def suffstats(self, x: Array, resp: Array) -> SubspaceStats:
        """Statistics of points x (N, D) under resp (N, K)."""
        y, square = self.seen(x)
        return SubspaceStats(*self.inner.suffstats(y, resp), resp.T @ square)

    def add(self, a: SubspaceStats, b: SubspaceStats) -> SubspaceStats:
        """Both together, row by row."""
        return SubspaceStats(*self.inner.add(inside(a), inside(b)), a.outside + b.outside)

    def subtract(self, a: SubspaceStats, b: SubspaceStats) -> SubspaceStats:
        """`a` without `b`."""
        left = self.inner.subtract(inside(a), inside(b))
        rest = np.where(left.mass > 0.0, np.maximum(a.outside - b.outside, 0.0), 0.0)
        return SubspaceStats(*left, rest)

    def scale(self, stats: SubspaceStats, factor: float | Array) -> SubspaceStats:
        """Every point's weight times `factor` (a scalar or (K,), >= 0)."""
        return SubspaceStats(*self.inner.scale(inside(stats), factor), stats.outside * factor)

    def posterior(self, stats: SubspaceStats) -> GaussianParams:
        """Parameters of the coordinates' Gaussians given the statistics."""
        return self.inner.posterior(inside(stats))

    # The exponential family

    def log_carrier(self, stats: SubspaceStats) -> Array:
        """The constant of the coordinates and the noise outside."""
        return self.inner.log_carrier(inside(stats)) + self.log_outside(stats.outside, stats.mass)

    def relative(self, values: RowsT, to: SubspaceStats | GaussianParams) -> RowsT:
        """`values` seen from the means of `to`, which may be those of working rows."""
        moved: Any = values
        seen: RowsT = moved._replace(mean=moved.mean - to.mean[:, : self.rank])
        return seen

    # Points

    def expected_log_likelihood(self, params: GaussianParams, x: Array) -> Array:
        """E_q[log p(x | mu, S)] (N, K)."""
        y, square = self.seen(x)
        return self.inner.expected_log_likelihood(params, y) + self.log_outside(square)[:, None]

    def predictive(self, params: GaussianParams) -> GaussianPredictive:
        """The Student t of the coordinates."""
        return self.inner.predictive(params)

    def log_predictive_from(self, predictive: GaussianPredictive, x: Array) -> Array:
        """log density (N, K)."""
        y, square = self.seen(x)
        return self.inner.log_predictive_from(predictive, y) + self.log_outside(square)[:, None]

    def log_predictive(self, params: GaussianParams, x: Array) -> Array:
        """log density (N, K)."""
        y, square = self.seen(x)
        return self.inner.log_predictive(params, y) + self.log_outside(square)[:, None]

    def log_likelihood(self, parameters: GaussianDraw, x: Array) -> Array:
        """log p(x | mean, covariance) (N, K)."""
        y, square = self.seen(x)
        return self.inner.log_likelihood(parameters, y) + self.log_outside(square)[:, None]

    def predictive_mean(self, params: GaussianParams) -> Array:
        """(K, D)."""
        return self.center + self.inner.predictive_mean(params) @ self.directions.T

    def predictive_variance(self, params: GaussianParams) -> Array:
        """(K, D); infinite where that of a coordinate is."""
        covariance, finite = self._inner_covariance(params)
        outside = self.noise_variance * (1.0 - np.square(self.directions).sum(axis=1))
        inner = np.einsum("da,kab,db->kd", self.directions, covariance, self.directions, optimize=True)
        return np.where(finite[:, None], inner + np.maximum(outside, 0.0), np.inf)

    def predictive_covariance(self, params: GaussianParams) -> Array:
        """(K, D, D); where that of the coordinates is infinite, infinite on the diagonal and NaN off it."""
        covariance, finite = self._inner_covariance(params)
        whole = np.matmul(np.matmul(self.directions, covariance), self.directions.T)
        whole += self.noise_variance * (np.eye(self.n_features) - self.directions @ self.directions.T)
        undefined = np.where(np.eye(self.n_features, dtype=bool), np.inf, np.nan)
        return np.where(finite[:, None, None], whole, undefined)

    def projected_covariance(self, params: GaussianParams, axes: Array) -> Array:
        """(K, A, A) predictive covariances of the products of `axes` (A, D) with a point; NaN where infinite."""
        covariance, finite = self._inner_covariance(params)
        inside = axes @ self.directions
        found = inside @ covariance @ inside.T + self.noise_variance * (axes @ axes.T - inside @ inside.T)
        return np.where(finite[:, None, None], found, np.nan)

    def _inner_covariance(self, params: GaussianParams) -> tuple[Array, BoolArray]:
        """Covariances of the coordinates (K, R, R), zeros where they are infinite, and where (K,) they are finite."""
        covariance = self.inner.predictive_covariance(params)
        finite: BoolArray = np.asarray(np.isfinite(covariance).all(axis=(1, 2)))
        return np.where(finite[:, None, None], covariance, 0.0), finite

    def sample_parameters(self, params: GaussianParams, rng: np.random.Generator) -> GaussianDraw:
        """A Gaussian of the coordinates."""
        return self.inner.sample_parameters(params, rng)

    def sample_points(self, parameters: GaussianDraw, n: int, rng: np.random.Generator) -> Array:
        """n points of each component (K, n, D)."""
        y = self.inner.sample_points(parameters, n, rng)
        noise = np.sqrt(self.noise_variance) * rng.standard_normal((*y.shape[:2], self.n_features))
        inside_noise = np.matmul(noise, self.directions)
        return np.asarray(self.center + noise + np.matmul(y - inside_noise, self.directions.T))

    # Where components and points lie

    def positions(self, stats: SubspaceStats) -> Array:
        """(K, R) as those of a full Gaussian over the coordinates."""
        return self.inner.positions(inside(stats))

    @staticmethod
    def coordinates(x: Array) -> Array:
        """The points, or the working rows, themselves."""
        return x

    # Abilities that engines ask for

    def natural_statistics(self, x: Array, origin: Origin) -> Statistics:
        """Those of the coordinates; the noise outside is part of the carrier."""
        y, square = self.seen(x)
        rows, log_carrier = self.inner.natural_statistics(y, Origin(origin.point[: self.rank], True))
        return Statistics(rows, log_carrier + self.log_outside(square))

    def quadratic_form(self, params: GaussianParams) -> QuadraticForm:
        """Quadratic forms of working rows: the distance is a last coordinate about zero, of the noise's deviation."""
        form, r = self.inner.quadratic_form(params), self.rank
        width = row_width(self.n_features, r)
        centre = np.zeros((len(form.constant), width))
        centre[:, :r] = form.centre
        root, inverse = (np.zeros((len(form.constant), width, width)) for _ in range(2))
        root[:, :r, :r], inverse[:, :r, :r] = form.root, form.inverse
        deviation = np.sqrt(self.noise_variance)
        beyond = np.arange(r, width)
        root[:, beyond, beyond], inverse[:, beyond, beyond] = 1.0 / deviation, deviation
        return QuadraticForm(form.constant + self.log_outside(np.zeros(1)), centre, root, inverse)

    def stats_of_moments(self, sums: WeightedMoments, most: float, past: SubspaceStats) -> SubspaceStats | None:
        """Statistics of moments of working rows about centres, joined with those of the past."""
        r = self.rank
        own = WeightedMoments(
            np.ascontiguousarray(sums.centre[:, :r]),
            sums.mass,
            np.ascontiguousarray(sums.first[:, :r]),
            np.ascontiguousarray(sums.second[:, :r, :r]),
        )
        stats = self.inner.stats_of_moments(own, most, GaussianStats(past.mass, past.mean, past.scatter))
        if stats is None:
            return None
        return SubspaceStats(*stats, sums.second[:, r, r] + past.outside)

    def fast_log_marginal(self, stats: SubspaceStats) -> Array | None:
        """log m(S_k) by the kernel of `gaussian`, up to its number of features."""
        value = self.inner.fast_log_marginal(GaussianStats(stats.mass, stats.mean, stats.scatter))
        return None if value is None else value + self.log_outside(stats.outside, stats.mass)

    def split_prior(self) -> SplitPrior | None:
        """The prior of the coordinates."""
        return self.inner.split_prior()

    def split_rows(self, x: Array) -> Array:
        """The coordinates: the noise outside says nothing of how to divide a component."""
        return self.seen(x)[0]

    def log_left_out(self, component: SubspaceStats, x: Array, share: Array) -> Array:
        """Scores of a component's own points without them."""
        y, square = self.seen(x)
        own = GaussianStats(component.mass, component.mean, component.scatter)
        return self.inner.log_left_out(own, y, share) + self.log_outside(square)

    def prior_choices(self, stats: SubspaceStats, n_components: int) -> Choice:
        """The choices of a Gaussian over the coordinates, with the noise that the points have outside the subspace."""
        choice = self.inner.prior_choices(GaussianStats(stats.mass, stats.mean, stats.scatter), n_components)
        noise, n_outside = self.noise_variance, self.n_features - self.rank
        if n_outside:
            near = ~absurd_components(stats)
            noise = float(stats.outside[near].sum()) / (float(stats.mass[near].sum()) * n_outside)
            noise = min(max(noise, SMALLEST), LARGEST)

        def build(*chosen: float) -> Any:
            return self.with_inner(cast("NormalInverseWishart", choice.build(*chosen)), noise)

        return choice._replace(build=build)

    def log_caps(self, stats: SubspaceStats, x: Array, further: Array) -> Array:
        """The cap of the coordinates' density, and the noise's density."""
        y, square = self.seen(x)
        own = GaussianStats(stats.mass, stats.mean, stats.scatter)
        return np.asarray(self.inner.log_caps(own, y, further) + self.log_outside(square)[:, None])

    def refitted(self, x: Array, weights: Array, past: SubspaceStats) -> "SubspaceGaussian":
        """The family over the principal directions of points x (N, D) with weights (N,) and of the past; itself where
        these would take in little more. There are more of them where the present ones lag behind."""
        return refit.refitted(self, x, weights, past)

    def restated(self, stats: SubspaceStats, before: "SubspaceGaussian") -> SubspaceStats:
        """Statistics of the subspace of `before`, as seen from this one."""
        return refit.restated(self, stats, before)

    def lags_behind(self, stats: SubspaceStats, past: SubspaceStats) -> bool:
        """Whether the points of components `stats`, without those of `past`, lie far outside the subspace."""
        return refit.lags_behind(self, stats, past)

    # Predictive cache and kernels of streams

    def cache_of(self, stats: SubspaceStats) -> SubspaceCache:
        """The cache of statistics, row by row."""
        return SubspaceCache(*self.inner.cache_of(GaussianStats(stats.mass, stats.mean, stats.scatter)))

    def cache_scales(self, cache: SubspaceCache) -> CacheScales:
        """Those of the coordinates."""
        return self.inner.cache_scales(GaussianCache(*cache))

    def kernel_constants(self) -> Any:
        """The prior of the coordinates."""
        return self.inner.kernel_constants()

    def kernel_rows(self, x: Array) -> ProjectedRows:
        """Points (N, D), or working rows, as kernels read them; each is projected for itself (`project_into`)."""
        r, n = self.rank, len(x)
        if x.shape[1] == row_width(self.n_features, r):
            y, square = self.seen(x)
        else:
            y, square = np.empty((n, r)), np.empty(n)
            project_into(as_kernels_read(x), *map(as_kernels_read, (self.center, self.directions)), y, square)
        arrays = map(as_kernels_read, (y, square, self.log_outside(square)))
        return ProjectedRows(next(arrays), next(arrays), next(arrays), (n, r))

    def renewal(self, stats: SubspaceStats, cache: SubspaceCache, n: int) -> Call | None:
        """The kernel that computes the first n rows of `cache`."""
        return self.inner.renewal(GaussianStats(stats.mass, stats.mean, stats.scatter), GaussianCache(*cache), n)

    def deferred_rows(self, capacity: int) -> int:
        """Rows, of `capacity`, whose outer products wait: all or none."""
        return self.inner.deferred_rows(capacity)

    def join_ceiling(self, stats: SubspaceStats, *given: Any) -> Call:
        """The kernel that bounds the gain of any join from above, to which the noise adds nothing."""
        return self.inner.join_ceiling(GaussianStats(stats.mass, stats.mean, stats.scatter), *given)

    def join_ceiling_is_quick(self, n_pairs: int, n_components: int) -> bool:
        """Whether the kernel takes less time than NumPy does to find candidates."""
        return self.inner.join_ceiling_is_quick(n_pairs, n_components)

    @property
    def prior_points(self) -> float:
        """Points that the prior's log gammas count for."""
        return self.dof


def inside(stats: SubspaceStats) -> GaussianStats:
    """The statistics of the coordinates."""
    return GaussianStats(stats.mass, stats.mean, stats.scatter)


def _as_directions(value: ArrayLike, n_features: int) -> Array:
    axes = as_real("directions", value)
    if axes.ndim != 2 or axes.shape[0] != n_features or not 1 <= axes.shape[1] <= n_features:
        raise SettingError(
            f"directions have shape {axes.shape}; the center has {n_features} features, give ({n_features}, R), "
            f"1 <= R <= {n_features}"
        )
    fault = float(np.abs(axes.T @ axes - np.eye(axes.shape[1])).max())
    if not fault < _LARGEST_FAULT:
        raise SettingError(f"directions are {fault:.3g} from orthonormal; give those of a QR decomposition")
    return np.ascontiguousarray(axes)
