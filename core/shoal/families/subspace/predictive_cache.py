"""Predictive cache and kernels of a stream, as methods of `SubspaceGaussian`, by those of `gaussian`."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.families.gaussian import GaussianCache, GaussianStats
from shoal.families.predictive_cache import CacheScales, Call, as_kernels_read
from shoal.families.subspace.projection import project_into, row_width
from shoal.families.subspace.types import ProjectedRows, SubspaceCache, SubspaceStats
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.subspace.prior import SubspaceGaussian


def cache_of(family: "SubspaceGaussian", stats: SubspaceStats) -> SubspaceCache:
    """The cache of statistics, row by row."""
    return SubspaceCache(*family.inner.cache_of(GaussianStats(stats.mass, stats.mean, stats.scatter)))


def cache_scales(family: "SubspaceGaussian", cache: SubspaceCache) -> CacheScales:
    """Those of the coordinates."""
    return family.inner.cache_scales(GaussianCache(*cache))


def kernel_constants(family: "SubspaceGaussian") -> Any:
    """The prior of the coordinates."""
    return family.inner.kernel_constants()


def kernel_rows(family: "SubspaceGaussian", x: Array) -> ProjectedRows:
    """Points (N, D), or working rows, as kernels read them; each is projected for itself (`project_into`)."""
    r, n = family.rank, len(x)
    if x.shape[1] == row_width(family.n_features, r):
        y, square = family.seen(x)
    else:
        y, square = np.empty((n, r)), np.empty(n)
        project_into(as_kernels_read(x), *map(as_kernels_read, (family.center, family.directions)), y, square)
    held = map(as_kernels_read, (y, square, family.log_outside(square)))
    return ProjectedRows(next(held), next(held), next(held), (n, r))


def renewal(family: "SubspaceGaussian", stats: SubspaceStats, cache: SubspaceCache, n: int) -> Call | None:
    """The kernel that makes the first n rows of `cache` anew."""
    return family.inner.renewal(GaussianStats(stats.mass, stats.mean, stats.scatter), GaussianCache(*cache), n)


def deferred_rows(family: "SubspaceGaussian", capacity: int) -> int:
    """Rows, of `capacity`, whose outer products wait: all or none."""
    return family.inner.deferred_rows(capacity)


def join_ceiling(family: "SubspaceGaussian", stats: SubspaceStats, *given: Any) -> Call:
    """The kernel that bounds the gain of any join from above, to which the noise adds nothing."""
    return family.inner.join_ceiling(GaussianStats(stats.mass, stats.mean, stats.scatter), *given)


def join_ceiling_is_quick(family: "SubspaceGaussian", n_pairs: int, n_components: int) -> bool:
    """Whether the kernel takes less time than NumPy does to find candidates."""
    return family.inner.join_ceiling_is_quick(n_pairs, n_components)
