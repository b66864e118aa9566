"""The working form of a component: what the one-pass kernel reads and updates beside the statistics.

It says nothing that prior and statistics do not say, in a form in which scoring a point is cheap and taking one in is
a rank-one update. It is part of a stream's state all the same: made anew it would differ in the last bits, and a
stream cut elsewhere would no longer give the same result. So it is carried along, saved, and made anew (`refresh`) at
absolute offsets only.

Plain NumPy; every field has the component axis first, C rows.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np

from shoal.families.base import AnyFamily, take
from shoal.families.counts import kernel_rows
from shoal.families.diagonal import DiagonalStats, NormalInverseGamma
from shoal.families.gaussian import FACTOR_BLOCK, GaussianStats, NormalInverseWishart
from shoal.families.known_covariance import KnownCovariance, KnownCovarianceStats
from shoal.kernels import linalg
from shoal.kernels.distances import row_blocks
from shoal.points.arrays import Array, read_only

_LOG_PI = float(np.log(np.pi))
_LOG_2PI = float(np.log(2 * np.pi))


class GaussianWork(NamedTuple):
    """log p(x) = log_norm - (dof + 1)/2 log1p(c |root (x - mean)|^2), c = mean_strength / (mean_strength + 1).

    `root` is the inverse of the Cholesky factor of the scale matrix Psi, so Psi^-1 = root' root. Against Psi^-1
    itself it halves the digits that a far outlier costs, its squared distances cannot turn negative, and scoring
    reads half the memory. An outlier beyond 1e16 deviations still takes every digit of the other directions with it.
    """

    mean: Array  # (C, D)
    mean_strength: Array  # (C,)
    dof: Array  # (C,)
    root: Array  # (C, D, D) lower triangular
    log_det: Array  # (C,) log |Psi|
    log_norm: Array  # (C,) nats


class DiagonalWork(NamedTuple):
    """log p(x) = log_norm - (shape + 1/2) log prod_d (1 + inverse_spread_d (x_d - mean_d)^2).

    inverse_spread = mean_strength / (2 (mean_strength + 1) rate).
    """

    mean: Array  # (C, D)
    mean_strength: Array  # (C,)
    shape: Array  # (C,)
    inverse_spread: Array  # (C, D)
    sum_log_rate: Array  # (C,)
    log_norm: Array  # (C,) nats


class SphericalWork(NamedTuple):
    """Known covariance s I: log p(x) = log_norm - half_precision |x - mean|^2.

    half_precision = 1 / (2 s (1 + 1 / precision)).
    """

    mean: Array  # (C, D)
    precision: Array  # (C,) of the mean, in units of 1/s
    half_precision: Array  # (C,)
    log_norm: Array  # (C,) nats


class SharedBasisWork(NamedTuple):
    """Known full covariance: log p(x) = log_norm - sum_d half_precision_d (y_d - mean_d)^2, y = basis (x - prior mean).

    half_precision = 1 / (2 (1 + 1 / precision)).
    """

    mean: Array  # (C, D) in the basis, from the prior's mean
    precision: Array  # (C, D) of the mean, in the basis
    half_precision: Array  # (C, D)
    log_norm: Array  # (C,) nats


AnyWork: TypeAlias = Any
"""One of the above, or the `work_kind` of a family that brings its own."""


class KernelPrior(NamedTuple):
    """What the kernel needs of a prior beside the components."""

    empty: Any
    """Work of one empty component (1 row)."""
    constants: Array
    """What the components share. Gaussian (D + 3, D): the prior's scale matrix, its mean, a row of its mean strength, a
    row of ones if the matrix is diagonal, else of zeros. Known covariance, spherical: the variance (1, 1); full
    (D + 2, D): the basis, the prior's mean, a row that begins with log |det basis|. Else nothing (0, 0), or the
    family's own."""


@runtime_checkable
class BringsWork(Protocol):
    """A family that makes its working form itself; its fields are (C,) or (C, D), and follow from the statistics."""

    work_kind: ClassVar[type[Any]]

    def work_of(self, stats: Any) -> Any:
        """The working form of statistics, row by row."""

    def kernel_constants(self) -> Array:
        """What the components share."""


def work_type(family: AnyFamily) -> type[Any]:
    """The working form that a family's components take. Raises TypeError for a family without a kernel."""
    match family:  # the protocol last: to look for its methods takes far longer than to look at a class
        case NormalInverseWishart():
            return GaussianWork
        case NormalInverseGamma():
            return DiagonalWork
        case KnownCovariance():
            return SphericalWork if family.spherical else SharedBasisWork
        case BringsWork():
            return family.work_kind
    raise TypeError(f"family {family.name!r} has no one-pass kernel")


def empty_work(family: AnyFamily, rows: int) -> AnyWork:
    """`rows` rows of zeros; the kernel writes a row before it reads it."""
    d, kind = family.n_features, work_type(family)
    if kind not in (GaussianWork, DiagonalWork, SphericalWork, SharedBasisWork):
        like = cast(BringsWork, family).work_of(family.empty_stats(1))
        return type(like)(*(np.zeros((rows, *field.shape[1:])) for field in like))
    shapes: dict[str, tuple[int, ...]] = {"mean": (rows, d), "inverse_spread": (rows, d), "root": (rows, d, d)}
    if kind is SharedBasisWork:
        shapes |= {"precision": (rows, d), "half_precision": (rows, d)}
    return kind(*(np.zeros(shapes.get(name, (rows,))) for name in kind._fields))


def refresh(family: AnyFamily, stats: Any, n: int | None = None) -> AnyWork:
    """Work made anew from statistics: fresh arrays with as many rows as `stats`, zero from row n on (default: none).

    Cost: a Cholesky factor and its inverse a component for `gaussian`, else O(D).
    """
    rows = stats.mass.shape[0]
    n = rows if n is None else n
    work = empty_work(family, rows)
    live = take(stats, slice(0, n))
    a_row = family.n_features**2 if isinstance(family, NormalInverseWishart) else 1
    for block in row_blocks(n, a_row, FACTOR_BLOCK):
        for target, source in zip(work, _made(family, take(live, block)), strict=True):
            target[block] = source
    return work


def _made(family: AnyFamily, stats: Any) -> AnyWork:
    match family:
        case NormalInverseWishart():
            return _gaussian(family, stats)
        case NormalInverseGamma():
            return _diagonal(family, stats)
        case KnownCovariance():
            return _spherical(family, stats) if family.spherical else _shared_basis(family, stats)
        case BringsWork():
            return family.work_of(stats)
    raise TypeError(f"family {family.name!r} has no one-pass kernel")


def kernel_prior(family: AnyFamily) -> KernelPrior:
    """What the kernel needs of this prior, read-only. Remembered: one-point calls would spend their time here."""
    return _kernel_prior(cast(Hashable, family))


@lru_cache(maxsize=64)
def _kernel_prior(key: Hashable) -> KernelPrior:
    family = cast(AnyFamily, key)
    if isinstance(family, NormalInverseWishart) and _is_diagonal(family.scale_matrix):
        empty = _empty_gaussian(family)
    else:
        empty = _made(family, family.empty_stats(1))
    return KernelPrior(type(empty)(*map(read_only, empty)), read_only(_constants(family)))


def kernel_points(family: AnyFamily, x: Any) -> Any:
    """Points (N, D) as the kernels of this family read them: read-only, of one type, so that each compiles once."""
    if family.domain.sparse:
        return kernel_rows(x)
    return as_kernels_read(x)


def as_kernels_read(x: Any) -> Array:
    """Numbers as float64 in C order, read-only; a copy only where it must be."""
    whole = np.asarray(x, dtype=np.float64, order="C")  # as `np.require` has it, in a tenth of its time
    view = whole.view() if whole.flags.aligned else whole.copy()
    view.flags.writeable = False
    return view


def _constants(family: AnyFamily) -> Array:
    match family:
        case NormalInverseWishart():
            whole, d = family.scale_matrix, family.n_features
            shared = np.empty((d + 3, d))
            shared[:d], shared[d], shared[d + 1], shared[d + 2] = (
                whole,
                family.mean,
                family.mean_strength,
                _is_diagonal(whole),
            )
            return shared
        case KnownCovariance():
            if family.spherical:
                return np.full((1, 1), float(family.covariance))
            return np.vstack([family.basis, family.mean, np.full(family.n_features, family.log_det_basis)])
        case BringsWork() if not isinstance(family, NormalInverseGamma):  # the protocol last, and not at all for most
            return family.kernel_constants()
    return np.zeros((0, 0))


def _is_diagonal(matrix: Array) -> bool:
    return bool(np.count_nonzero(matrix) == np.count_nonzero(matrix.diagonal()))


def _empty_gaussian(family: NormalInverseWishart) -> GaussianWork:
    """As `_gaussian` of one component without points, to the bit, where the scale matrix is diagonal: a search tries
    hundreds of such priors."""
    d, deviation = family.n_features, np.sqrt(family.scale_matrix.diagonal())
    root = np.zeros((1, d, d))
    root.reshape(-1)[:: d + 1] = 1.0 / deviation
    strength, log_det = np.array([family.mean_strength]), np.array([2.0 * np.log(deviation).sum()])
    log_shrink = -np.log1p(1.0 / strength)
    log_norm = _gamma_ratio(family.dof, d) + 0.5 * (d * (log_shrink - _LOG_PI) - log_det)
    return GaussianWork(family.mean[None].copy(), strength, np.array([family.dof]), root, log_det, log_norm)


@lru_cache(maxsize=256)
def _gamma_ratio(dof: float, d: int) -> Array:
    return read_only(linalg.log_gamma_ratio(np.array([(dof - d + 1) / 2]), d / 2))


def _gaussian(family: NormalInverseWishart, stats: GaussianStats) -> GaussianWork:
    d = family.n_features
    params = family.posterior(stats)
    factors = linalg.cholesky(params.scale)
    log_det = linalg.log_determinant(factors)
    log_shrink = -np.log1p(1.0 / params.mean_strength)
    log_norm = linalg.log_gamma_ratio((params.dof - d + 1) / 2, d / 2) + 0.5 * (d * (log_shrink - _LOG_PI) - log_det)
    return GaussianWork(params.mean, params.mean_strength, params.dof, linalg.inverse_lower(factors), log_det, log_norm)


def _diagonal(family: NormalInverseGamma, stats: DiagonalStats) -> DiagonalWork:
    params = family.posterior(stats)
    strength, shape = params.mean_strength, params.shape
    spread = 0.5 * (strength / (strength + 1.0))[:, None] / params.rate
    sum_log_rate = np.log(params.rate).sum(axis=1)
    per_feature = linalg.log_gamma_ratio(shape, 0.5) - 0.5 * (_LOG_2PI + np.log1p(1.0 / strength))
    log_norm = family.n_features * per_feature - 0.5 * sum_log_rate
    return DiagonalWork(params.mean, strength, shape, spread, sum_log_rate, log_norm)


def _spherical(family: KnownCovariance, stats: KnownCovarianceStats) -> SphericalWork:
    params = family.posterior(stats)
    precision = params.precision[:, 0]
    variance = float(family.covariance)
    half_precision = 0.5 * precision / (variance * (precision + 1.0))
    log_norm = -0.5 * family.n_features * (_LOG_2PI + np.log(variance) + np.log1p(1.0 / precision))
    return SphericalWork(params.mean, precision, half_precision, log_norm)


def _shared_basis(family: KnownCovariance, stats: KnownCovarianceStats) -> SharedBasisWork:
    params = family.posterior(stats)
    mean = family.to_basis(params.mean - family.mean)
    half_precision = 0.5 * params.precision / (params.precision + 1.0)
    log_norm = family.log_det_basis - 0.5 * (_LOG_2PI + np.log1p(1.0 / params.precision)).sum(axis=1)
    return SharedBasisWork(mean, params.precision, half_precision, log_norm)
