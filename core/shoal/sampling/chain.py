"""A chain of collapsed Gibbs sampling: its state and one sweep.

The caller gives the points, standardised or not, and the uniform numbers. A kernel does the sweep, or NumPy for a
family without kernels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.families import AnyFamily, take
from shoal.families.predictive_cache import AnyCache, empty_cache, has_sampling_kernels, kernel_points, kernel_prior
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.sampling.gibbs_kernel import Components, gibbs_sweep
from shoal.sampling.plain import sweep_plainly

SWEEPS_BETWEEN_REBUILDS = 16
"""Sweeps after which components are computed again from their points, so that rounding of removals does not add up."""

_SPARE_ROWS = 2
_FIRST_CAPACITY = 16


@dataclass
class Chain:
    """State of a chain, changed by `sweep_inplace`: components are rows 0 <= k < n_components of arrays of C rows."""

    labels: IntArray
    """(N,) row of each point's component; -1 for points in no component yet."""
    n_components: int
    stats: Any
    cache: AnyCache
    n_sweeps: int = 0


def start_chain(family: AnyFamily, labels: IntArray) -> Chain:
    """A chain that starts at the partition `labels` (N,), any integers >= 0; -1 marks points in no component yet.

    All -1 is the usual start: the first sweep then draws each point's component given the points before it.
    """
    known, rows = np.unique(labels, return_inverse=True)
    unassigned = int(known.size > 0 and known[0] < 0)
    n = known.size - unassigned
    capacity = max(_FIRST_CAPACITY, n + _SPARE_ROWS)
    compact = np.ascontiguousarray(rows - unassigned, dtype=np.int64)
    return Chain(compact, n, family.empty_stats(capacity), empty_cache(family, capacity))


def sweep_inplace(family: AnyFamily, concentration: float, chain: Chain, x: Points, uniforms: Array) -> None:
    """Draw every label of `chain` once given all others, for points x (N, D) in order; uniforms (N,) in [0, 1)."""
    rebuild = chain.n_sweeps % SWEEPS_BETWEEN_REBUILDS == 0
    row = 0
    while row < x.shape[0]:
        row = _swept(family, concentration, chain, x, uniforms, row, rebuild)
        rebuild = False
        grow_inplace(chain)
    chain.n_sweeps += 1


def _swept(
    family: AnyFamily, concentration: float, chain: Chain, x: Points, uniforms: Array, row: int, rebuild: bool
) -> int:
    """Draw labels from x[row] on until the arrays are full. Returns the next row."""
    if not has_sampling_kernels(family):
        given = (family, concentration, x, uniforms, chain.labels, chain.stats, chain.n_components, row, rebuild)
        row, chain.n_components = sweep_plainly(*given)
        return row
    prior = kernel_prior(family)
    row, chain.n_components = gibbs_sweep(
        kernel_points(family, x),
        uniforms,
        Components(chain.stats, chain.cache, prior.empty, prior.constants),
        np.log(np.maximum(np.arange(x.shape[0] + 1), 1)),
        float(np.log(concentration)),
        chain.labels,
        chain.n_components,
        row,
        rebuild,
    )
    return row


def grow_inplace(chain: Chain) -> None:
    """Double the arrays where there are no spare rows for a sweep."""
    if chain.n_components + _SPARE_ROWS > len(chain.stats[0]):
        chain.stats, chain.cache = _grown(chain.stats), _grown(chain.cache)


def live_stats(chain: Chain) -> Any:
    """Views of the statistics of the components in use."""
    return take(chain.stats, slice(0, chain.n_components))


def _grown(values: Any) -> Any:
    """The arrays with twice as many rows."""
    return type(values)(*(np.concatenate([field, np.zeros_like(field)]) for field in values))
