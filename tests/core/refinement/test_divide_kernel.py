"""The compiled forms of dividing and of pair entropies against plain NumPy."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from shoal.refinement.divide_kernel import divide_block, pair_entropies

from shoal.refinement import reference


@pytest.mark.parametrize("n_components", [1, 2, 7, 40])
def test_division_agrees_with_numpy(n_components: int) -> None:
    rng = np.random.default_rng(n_components)
    score = 8.0 * rng.normal(size=(50, n_components))
    log_weight, weights = rng.normal(size=n_components), rng.random(50)
    indices, resp = np.empty(score.size, dtype=np.int64), np.empty(score.size)
    ends = np.empty(50, dtype=np.int64)
    filled, entropy, dropped = divide_block(score, log_weight, weights, np.log(1e-3), indices, resp, ends)
    rows = csr_matrix((resp[:filled], indices[:filled], np.append(0, ends)), shape=score.shape)
    expected, expected_entropy, expected_dropped = reference.divide_block(score, log_weight, weights, np.log(1e-3))
    np.testing.assert_allclose(rows.toarray(), expected, rtol=1e-12, atol=0.0)
    assert entropy == pytest.approx(expected_entropy, rel=1e-12, abs=1e-14)
    assert dropped == pytest.approx(expected_dropped, rel=1e-9, abs=1e-14)


def test_scores_far_apart_leave_one_component_and_no_entropy() -> None:
    score = np.array([[0.0, -1e6, -1e300], [-1e9, -1e9 + 800.0, -2e9]])
    indices, resp, ends = np.empty(6, dtype=np.int64), np.empty(6), np.empty(2, dtype=np.int64)
    filled, entropy, dropped = divide_block(score, np.zeros(3), np.ones(2), np.log(1e-6), indices, resp, ends)
    assert (filled, entropy, dropped) == (2, 0.0, 0.0)
    assert indices[:2].tolist() == [0, 1]


@pytest.mark.parametrize(("n", "floor"), [(1, 0.0), (80, 1e-2), (64, 2.0), (128, 0.0)])
def test_pair_entropies_agree_with_numpy(n: int, floor: float) -> None:
    """Fewer pairs than are worked out together, some tiles and a rest, none, and tiles alone (15 pairs a row)."""
    rng = np.random.default_rng(5)
    resp = rng.dirichlet(np.full(6, 0.3 if floor else 3.0), size=n)
    resp[resp < floor] = 0.0
    weights = rng.random(n)
    rows = csr_matrix(resp)
    found = pair_entropies(rows.indptr, rows.indices, rows.data, weights, 6)
    np.testing.assert_allclose(found, reference.pair_entropies(resp, weights), rtol=1e-10, atol=1e-12)
