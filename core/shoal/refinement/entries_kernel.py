"""What is read off responsibilities row by row: SciPy's ways make sparse matrices, and take several times as long."""

from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import kernel


@kernel(makes_arrays=False)
def add_common_mass(
    starts: IntArray,
    indices: IntArray,
    resp: Array,
    other_starts: IntArray,
    other_indices: IntArray,
    other_resp: Array,
    weights: Array,
    shared: Array,
) -> None:
    """Add sum_i w_i r_ik s_ij to shared[k, j], r and s being two divisions of the same rows, as CSR."""
    for i in range(weights.size):
        for e in range(starts[i], starts[i + 1]):
            k, counted = indices[e], weights[i] * resp[e]
            for f in range(other_starts[i], other_starts[i + 1]):
                shared[k, other_indices[f]] += counted * other_resp[f]


@kernel(makes_arrays=False)
def find_largest(starts: IntArray, indices: IntArray, resp: Array, best: IntArray, largest: Array) -> None:
    """Column and value of the largest entry of each row of a CSR matrix, the first of equals; 0, 0 of an empty row."""
    for i in range(best.size):
        first = starts[i]
        if first == starts[i + 1]:
            best[i], largest[i] = 0, 0.0
            continue
        for e in range(starts[i] + 1, starts[i + 1]):
            if resp[e] > resp[first]:
                first = e
        best[i], largest[i] = indices[first], resp[first]
