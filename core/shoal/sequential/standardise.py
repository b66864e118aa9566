"""Points about to be learnt, standardised by a kernel: `points.standardised` to the bit, in one pass over them that
lets the interpreter's lock go."""

from typing import Any

import numpy as np

from shoal.families.predictive_cache import as_kernels_read
from shoal.points.arrays import LARGEST_COORDINATE, Array
from shoal.points.rows import Points, SparseRows
from shoal.runtime.kernels import kernel


@kernel()
def standardise_into(x: Array, location: Array, scale: Array, out: Array) -> None:
    """Write (x - location) / scale, x (N, D), of magnitude at most 1e100, into `out` (N, D)."""
    for i in range(x.shape[0]):
        for b in range(x.shape[1]):
            z = (x[i, b] - location[b]) / scale[b]
            out[i, b] = min(max(z, -LARGEST_COORDINATE), LARGEST_COORDINATE)


def standardised_by_kernel(x: Points, location: Array, scale: Array) -> Points:
    """(x - location) / scale, x (N, D), of magnitude at most 1e100; sparse rows, which are of no located domain, as
    they are."""
    if isinstance(x, SparseRows):
        return x
    z = np.empty(x.shape)
    standardise_into(*standardise_arguments(x, location, scale, z))
    return z


def standardise_arguments(x: Array, location: Array, scale: Array, out: Array) -> tuple[Any, ...]:
    """What the kernel is called with: of these types whatever the arrays."""
    return as_kernels_read(x), as_kernels_read(location), as_kernels_read(scale), out
