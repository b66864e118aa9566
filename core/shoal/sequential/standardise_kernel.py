"""`mixture.standardise` for points about to be learnt, compiled."""

from shoal.points.arrays import LARGEST_COORDINATE, Array
from shoal.runtime.kernels import kernel


@kernel()
def standardise_into(x: Array, location: Array, scale: Array, out: Array) -> None:
    """Write (x - location) / scale, x (N, D), of magnitude at most 1e100, into `out` (N, D)."""
    for i in range(x.shape[0]):
        for b in range(x.shape[1]):
            z = (x[i, b] - location[b]) / scale[b]
            out[i, b] = min(max(z, -LARGEST_COORDINATE), LARGEST_COORDINATE)
