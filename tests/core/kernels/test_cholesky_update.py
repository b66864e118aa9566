"""The inverse of a Cholesky factor, beside NumPy's of the whole matrix."""

import numpy as np
import pytest

from harness.compiled import from_python
from shoal.kernels import cholesky_update

whiten, update_root = from_python(cholesky_update.whiten), from_python(cholesky_update.update_root)
add_outer_products = from_python(cholesky_update.add_outer_products)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 8, 16, 33])
def test_a_root_after_many_points_is_that_of_the_matrix(d: int) -> None:
    """Each point whitened and added, with weights from 1e-6 to 1e3; of the rows of other components nothing changes."""
    rng = np.random.default_rng(d)
    half = rng.normal(size=(d, d))
    scale = half @ half.T + np.eye(d)
    root, scratch = rng.normal(size=(3, d, d)), np.empty((4, d))
    others = root[[0, 2]].copy()
    root[1] = np.tril(np.linalg.inv(np.linalg.cholesky(scale)))
    for c in 10.0 ** rng.uniform(-6.0, 3.0, size=50):
        e = rng.normal(size=d) * 10.0 ** rng.uniform(-2.0, 2.0)
        scratch[0] = e
        square = whiten(root, 1, d, scratch)
        assert square == pytest.approx(e @ np.linalg.solve(scale, e), rel=1e-8)
        np.testing.assert_allclose(scratch[1], root[1] @ e, rtol=1e-9, atol=1e-12)
        assert update_root(root, 1, d, c, scratch) == pytest.approx(c * square, rel=1e-9)
        scale += c * np.outer(e, e)
        expected = np.linalg.inv(np.linalg.cholesky(scale))
        np.testing.assert_allclose(root[1], expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_array_equal(np.triu(root[1], 1), 0.0)
    np.testing.assert_array_equal(root[[0, 2]], others)


@pytest.mark.parametrize("d", [1, 3, 8, 17, 64])
def test_outer_products_that_waited_are_added_in_whole_numbers_exactly(d: int) -> None:
    """Whole numbers leave no room for rounding; of other components nothing changes."""
    rng = np.random.default_rng(d)
    scatter = rng.integers(-100, 100, size=(3, d, d)).astype(np.float64)
    vectors = rng.integers(-100, 100, size=(3, cholesky_update.MOST_WAITING, d)).astype(np.float64)
    expected = scatter.copy()
    expected[1] += vectors[1].T @ vectors[1]
    add_outer_products(scatter, 1, vectors)
    np.testing.assert_array_equal(scatter, expected)
