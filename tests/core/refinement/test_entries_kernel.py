"""What is read off sparse responsibilities, against the dense tables."""

import numpy as np
from scipy.sparse import csr_matrix
from shoal.refinement.entries_kernel import add_common_mass, find_largest


def division(n: int, t: int, rng: np.random.Generator) -> csr_matrix:
    """Responsibilities (n, t), most of them none; every row has one."""
    dense = rng.random((n, t)) * (rng.random((n, t)) < 0.3)
    dense[np.arange(n), rng.integers(t, size=n)] += 0.1
    return csr_matrix(dense / dense.sum(axis=1, keepdims=True))


def test_common_mass_is_the_weighted_product() -> None:
    rng = np.random.default_rng(0)
    first, second, weights = division(200, 7, rng), division(200, 4, rng), rng.random(200)
    shared = np.full((7, 4), 0.25)
    divisions = (first.indptr, first.indices, first.data, second.indptr, second.indices, second.data)
    add_common_mass(*divisions, weights, shared)
    expected = np.einsum("n,nk,nj->kj", weights, first.toarray(), second.toarray())
    np.testing.assert_allclose(shared - 0.25, expected, rtol=1e-12)
    np.testing.assert_allclose((shared - 0.25).sum(), weights.sum(), rtol=1e-12)


def test_the_largest_entry_of_each_row_is_that_of_the_dense_table() -> None:
    rng = np.random.default_rng(1)
    resp = division(300, 9, rng)
    best, largest = np.empty(300, dtype=np.int64), np.empty(300)
    find_largest(resp.indptr, resp.indices, resp.data, best, largest)
    assert (best == resp.toarray().argmax(axis=1)).all()
    assert (largest == resp.toarray().max(axis=1)).all()


def test_of_a_row_without_entries_nothing_is_read() -> None:
    """The last one's would lie behind the end."""
    resp = csr_matrix((np.array([0.3, 0.7]), np.array([0, 2]), np.array([0, 0, 2, 2])), shape=(3, 3))
    best, largest = np.full(3, -1), np.full(3, np.nan)
    find_largest(resp.indptr, resp.indices, resp.data, best, largest)
    assert best.tolist() == [0, 2, 0]
    assert largest.tolist() == [0.0, 0.7, 0.0]


def test_of_no_rows_nothing_is_read() -> None:
    none = csr_matrix((0, 3))
    shared = np.zeros((3, 3))
    add_common_mass(none.indptr, none.indices, none.data, none.indptr, none.indices, none.data, np.zeros(0), shared)
    find_largest(none.indptr, none.indices, none.data, np.empty(0, dtype=np.int64), np.empty(0))
    assert not shared.any()
