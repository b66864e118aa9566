"""The predictive cache of components: what the one-pass kernel reads and updates beside the statistics.

It says nothing that prior and statistics do not say, in a form in which scoring a point is cheap and absorbing one is
a rank-one update. It is part of a stream's state all the same: computed again it would differ in the last bits, and a
stream cut elsewhere would no longer give the same result. So it is carried along and saved, and computed again
(`refresh`) at absolute offsets only.

A family declares its cache as in `HasPredictiveCache`. In every field the component axis is first, in C order. A family
without kernels declares `NoCache`, and NumPy learns its streams.
"""

from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from shoal.families.base import AnyFamily, take
from shoal.families.counts.rows import kernel_rows
from shoal.kernels.distances import row_blocks
from shoal.points.arrays import Array, read_only

_BLOCK = 1 << 22
"""Elements of caches that are computed at once: 32 MiB."""

_KERNEL_PRIOR = "_kernel_prior"
"""Attribute in which a prior keeps what `kernel_prior` has made of it."""

AnyCache: TypeAlias = Any
"""The cache of some family: its `cache_kind`."""

Call: TypeAlias = tuple[Any, tuple[Any, ...]]
"""A kernel, and the arguments to call it with."""


class NoCache(NamedTuple):
    """The cache of a family without a kernel."""


class KernelPrior(NamedTuple):
    """What kernels need of a prior beside the components."""

    empty: Any
    """Cache of one empty component (1 row)."""
    constants: Any
    """What the components share, as the family's `kernel_constants` lays it out."""


class HasPredictiveCache(Protocol):
    """A family with kernels for the one pass."""

    cache_kind: ClassVar[type[Any]]
    """The named tuple that the cache is. Kernels are resolved by it."""

    def cache_of(self, stats: Any) -> Any:
        """The cache of statistics, row by row."""

    def kernel_constants(self) -> Any:
        """What the components share: an array, or a named tuple of arrays and numbers."""


class ServesProducts(Protocol):
    """A family with kernels that a product can use: `score_all` scores every component exactly, however unlikely it is,
    and `absorb` adds what `suffstats` gives."""

    serves_products: ClassVar[bool]


class RenewsByKernel(Protocol):
    """A family with a kernel that computes its cache again in place."""

    def renewal(self, stats: Any, cache: Any, n: int) -> Call | None:
        """The kernel for the first n rows, which returns whether it could; None where NumPy is as fast."""


class BoundsJoins(Protocol):
    """A family with a kernel that bounds from above what any join of two components would gain."""

    @property
    def prior_points(self) -> float:
        """Points that the prior's log gammas count for: the rounding to allow for grows with them."""

    def join_ceiling(self, *given: Any) -> Call | None:
        """The kernel and its arguments; None for a prior that it does not serve."""

    def join_ceiling_is_quick(self, n_pairs: int, n_components: int) -> bool:
        """Whether the kernel takes less time than NumPy does to find candidates."""


class DefersScatter(Protocol):
    """A family whose scatter waits for several outer products, to be read and written once for all of them."""

    def deferred_rows(self, capacity: int) -> int:
        """Rows that `steps_kernel.Waiting` needs of `capacity`: all or none."""


class ReadsOwnRows(Protocol):
    """A family whose kernels read points in a form of its own."""

    def kernel_rows(self, x: Any) -> Any:
        """Points (N, D) as a named tuple whose `shape` (N, E) is that of the tables kernels make; read-only, row by
        row: what is said of a point does not depend on the others."""


class SeenByBlocks(Protocol):
    """A family that the one pass learns by the steps of others."""

    def kernel_views(self, stats: Any, cache: Any, empty: Any) -> tuple[Any, Any, Any]:
        """See the function of that name."""

    def cache_parts(self, stats: Any, cache: Any) -> list[tuple[AnyFamily, Any, Any]]:
        """See the function of that name."""


class CacheScales(NamedTuple):
    """How many digits to expect of a cache that absorbs points by rank-one updates."""

    resolution: Array  # (K,) about the least deviation of a component in any direction
    scatter_unit: Any  # deviation in which scatters are given: 1, or (K,)
    upright: Any  # (...) bool, whether variances are positive and factors triangular


class UpdatedByRankOne(Protocol):
    """A family whose cache loses digits between two renewals, where points lie far out."""

    def cache_scales(self, cache: Any) -> CacheScales:
        """Of a cache (K rows)."""


class InexactCache(Protocol):
    """A family whose cache is not exact to rounding for all statistics."""

    def cache_rounding(self, cache: Any) -> Array:
        """(K,) how far rounding may move a cache, as a part of its size; infinite where no digit of it is certain."""


def cache_rounding(family: AnyFamily, cache: AnyCache) -> Array:
    """(K,) how far rounding may move a cache that absorbs no rank-one updates, as a part of its size; zeros where
    nothing in it cancels, infinite where no digit of it is certain."""
    if not hasattr(family, "cache_rounding"):
        return np.zeros(len(cache[0]))
    return cast(InexactCache, family).cache_rounding(cache)


def has_kernels(family: AnyFamily) -> bool:
    """Whether kernels learn the streams of this family; else NumPy does."""
    return cache_type(family) is not NoCache


def has_sampling_kernels(family: AnyFamily) -> bool:
    """Whether kernels sample and search partitions under this family; else NumPy does."""
    return has_kernels(family) and not hasattr(family, "kernel_views")


def kernel_views(family: AnyFamily, stats: Any, cache: AnyCache, empty: AnyCache) -> tuple[Any, Any, Any]:
    """Statistics, cache, and the cache of an empty component as the one pass reads them. It writes into `stats` and
    `cache`."""
    if not hasattr(family, "kernel_views"):
        return stats, cache, empty
    return cast(SeenByBlocks, family).kernel_views(stats, cache, empty)


def cache_parts(family: AnyFamily, stats: Any, cache: AnyCache) -> list[tuple[AnyFamily, Any, AnyCache]]:
    """The families that a cache is made by, each with its statistics and its part of the cache."""
    if not hasattr(family, "cache_parts"):
        return [(family, stats, cache)]
    return cast(SeenByBlocks, family).cache_parts(stats, cache)


def cache_type(family: AnyFamily) -> type[Any]:
    """The named tuple that the family's cache is; `NoCache` for a family without kernels."""
    return getattr(family, "cache_kind", NoCache)


def empty_cache(family: AnyFamily, rows: int) -> AnyCache:
    """`rows` rows of zeros; the kernel writes a row before it reads it."""
    like = kernel_prior(family).empty
    return type(like)(*(np.zeros((rows, *field.shape[1:])) for field in like))


def refresh(family: AnyFamily, stats: Any, n: int | None = None) -> AnyCache:
    """The cache of statistics: fresh arrays with as many rows as `stats`, zero from row n on (default: none).

    Cost: a Cholesky factor and its inverse a component where the family has full covariances, else O(D).
    """
    rows = stats[0].shape[0]
    n = rows if n is None else n
    cache = empty_cache(family, rows)
    live = take(stats, slice(0, n))
    for block in row_blocks(n, max(1, sum(field[:1].size for field in cache)), _BLOCK):
        for target, source in zip(cache, _made(family, take(live, block)), strict=True):
            target[block] = source
    return cache


def renewal(family: AnyFamily, stats: Any, cache: Any, n: int) -> Call | None:
    """The kernel that computes the first n rows of a cache again in place; None where `refresh` does."""
    return cast(RenewsByKernel, family).renewal(stats, cache, n) if hasattr(family, "renewal") else None


def deferred_rows(family: AnyFamily, capacity: int) -> int:
    """Rows, of `capacity`, whose outer products wait: all or none."""
    return cast(DefersScatter, family).deferred_rows(capacity) if hasattr(family, "deferred_rows") else 0


def example_priors(kind: type[AnyFamily]) -> list[AnyFamily]:
    """Small priors of a family that between them use every kernel that it has, for compiling beforehand."""
    examples: list[AnyFamily] = cast(Any, kind).examples() if hasattr(kind, "examples") else [kind.weak(1)]
    return examples


def predicts_by_kernel(family: AnyFamily | type[AnyFamily]) -> bool:
    """Whether a kernel answers for a family (a prior or its class).

    Of counts NumPy looks each pair of term and count up once for many points, which is faster than a kernel that walks
    through all of them.
    """
    return bool(getattr(family, "predicts_by_kernel", False))


def kernel_prior(family: AnyFamily) -> KernelPrior:
    """What kernels need of this prior, read-only. The prior keeps it, for the sake of calls with few points."""
    own = vars(family)
    if _KERNEL_PRIOR not in own:
        own[_KERNEL_PRIOR] = _kernel_prior(family)
    return cast(KernelPrior, own[_KERNEL_PRIOR])


def _kernel_prior(family: AnyFamily) -> KernelPrior:
    empty = _made(family, family.empty_stats(1))
    constants = cast(HasPredictiveCache, family).kernel_constants() if empty else np.zeros((0, 0))
    return KernelPrior(_frozen(empty), _frozen(constants))


def _frozen(values: Any) -> Any:
    """An array, or the arrays of a named tuple, read-only."""
    if not isinstance(values, tuple):
        return read_only(values) if isinstance(values, np.ndarray) else values
    frozen = map(_frozen, values)
    return type(values)(*frozen) if hasattr(values, "_fields") else tuple(frozen)


def _made(family: AnyFamily, stats: Any) -> AnyCache:
    return cast(HasPredictiveCache, family).cache_of(stats) if has_kernels(family) else NoCache()


def kernel_points(family: AnyFamily, x: Any) -> Any:
    """Points (N, D) as the kernels of this family read them: read-only, of one type, so that each compiles once."""
    if hasattr(family, "kernel_rows"):
        return cast(ReadsOwnRows, family).kernel_rows(x)
    if family.domain.sparse:
        return kernel_rows(x)
    return as_kernels_read(x)


def as_kernels_read(x: Any) -> Array:
    """Numbers as float64 in C order, read-only; a copy only where it must be."""
    whole = np.asarray(x, dtype=np.float64, order="C")  # as `np.require` has it, in a tenth of its time
    view = whole.view() if whole.flags.aligned else whole.copy()
    view.setflags(write=False)
    return view
