"""Responsibilities against dense softmax, whatever bounds, guesses and blocks; and pair entropies."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from scipy.special import entr, softmax

from harness.refinement_problems import pair_entropies as dense_pair_entropies
from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.inference import WindowData, best_entries, normalized, pair_entropies, reference
from shoal.inference.sweep import LOG_FLOOR
from shoal.points.arrays import Array


def plain(score: Array, log_weight: Array, weights: Array) -> tuple[Array, float, float]:
    """Responsibilities (n, T), their entropy, and the share that dropped entries had, both summed times `weights`."""
    value = score + log_weight
    whole = softmax(value, axis=1)
    kept = np.where(value - value.max(axis=1, keepdims=True) >= LOG_FLOOR, whole, 0.0)
    total = kept.sum(axis=1)
    resp: Array = kept / total[:, None]
    return resp, float(weights @ entr(resp).sum(axis=1)), float(weights @ (1.0 - total))


@pytest.mark.parametrize("n_components", [1, 2, 7, 40])
def test_scores_are_normalized_as_softmax_does(n_components: int) -> None:
    rng = np.random.default_rng(n_components)
    score = 8.0 * rng.normal(size=(50, n_components))
    log_weight, weights = rng.normal(size=n_components), rng.random(50)
    data = WindowData(np.zeros((50, 1)), weights)
    blocks = ((slice(a, b), score[a:b]) for a, b in ((0, 20), (20, 50)))
    found = normalized(data, blocks, log_weight)
    resp, entropy, dropped = plain(score, log_weight, weights)
    np.testing.assert_allclose(found.resp.toarray(), resp, rtol=1e-12, atol=0.0)
    assert found.entropy == pytest.approx(entropy, rel=1e-12, abs=1e-14)
    assert found.dropped == pytest.approx(dropped, rel=1e-9, abs=1e-14)


def test_scores_far_apart_leave_one_component_and_no_entropy() -> None:
    score = np.array([[0.0, -1e6, -1e300], [-1e9, -1e9 + 800.0, -2e9]])
    found = normalized(WindowData(np.zeros((2, 1)), np.ones(2)), [(slice(0, 2), score)], np.zeros(3))
    assert found.resp.nnz == 2
    assert (found.entropy, found.dropped) == (0.0, 0.0)
    assert found.resp.indices.tolist() == [0, 1]


def test_a_row_that_no_component_explains_is_divided_evenly() -> None:
    score = np.array([[-np.inf, -np.inf], [0.0, -np.inf]])
    found = normalized(WindowData(np.zeros((2, 1)), np.ones(2)), [(slice(0, 2), score)], np.zeros(2))
    np.testing.assert_allclose(found.resp.toarray(), [[0.5, 0.5], [1.0, 0.0]])


def family_of(name: str, d: int) -> AnyFamily:
    return {
        "gaussian": lambda: NormalInverseWishart(np.zeros(d), 0.01, d + 2.0, 0.3 * np.eye(d)),
        "diagonal": lambda: NormalInverseGamma(np.zeros(d), 0.01, 1.5, np.full(d, 0.3)),
        "known_covariance": lambda: KnownCovariance(np.zeros(d), 100.0, 1.0),
    }[name]()


@pytest.mark.parametrize("name", ["gaussian", "diagonal", "known_covariance"])
@pytest.mark.parametrize(("d", "t", "apart"), [(5, 3, 1.0), (20, 12, 0.5), (20, 12, 4.0), (37, 30, 1.0)])
def test_bounds_guesses_and_blocks_change_no_responsibility(
    name: str, d: int, t: int, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(d + t)
    z = rng.integers(t, size=600)
    shape = rng.normal(size=(t, d, d)) / np.sqrt(d)
    x = apart * rng.normal(size=(t, d))[z] + np.einsum("nde,ne->nd", shape[z], rng.normal(size=(600, d)))
    family, data = family_of(name, d), WindowData(x, rng.uniform(0.1, 1.0, 600))
    params = family.posterior(family.suffstats(x, np.eye(t)[z]))
    log_weight = np.log(rng.dirichlet(np.ones(t)))
    resp, entropy, dropped = plain(family.expected_log_likelihood(params, x), log_weight, data.weights)
    guess = csr_matrix((np.ones(600), rng.integers(t, size=600), np.arange(601)), shape=(600, t))
    more = csr_matrix((np.ones(600), np.full(600, t + 3), np.arange(601)), shape=(600, t + 4))
    for block in (1 << 20, 100 * max(d, t)):
        monkeypatch.setattr(reference, "_BLOCK_ELEMENTS", block)
        for before in (None, guess, more):
            for _ in range(2):  # the second pass has the bounds of the first
                found = reference.e_step(data, family, params, log_weight, before, np.arange(t))
                np.testing.assert_allclose(found.resp.toarray(), resp, rtol=1e-7, atol=1e-12)
                assert found.resp.has_sorted_indices
                assert found.entropy == pytest.approx(entropy, rel=1e-8, abs=1e-9)
                assert found.dropped == pytest.approx(dropped, rel=1e-5, abs=600 * t * 1e-10)


def test_components_far_from_a_row_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, scored = np.random.default_rng(0), []
    z = np.arange(900) % 9
    x = 40.0 * rng.normal(size=(9, 12))[z] + rng.normal(size=(900, 12))
    family, data, real = family_of("gaussian", 12), WindowData(x, np.ones(900)), reference._score
    params = family.posterior(family.suffstats(x, np.eye(9)[z]))

    def counted(*given: object) -> None:
        scored.append(given[3])
        real(*given)  # type: ignore[arg-type]  # handed on as it came

    monkeypatch.setattr(reference, "_score", counted)
    reference.e_step(data, family, params, np.zeros(9), csr_matrix(np.eye(9)[z]), np.arange(9))
    assert sum(len(rows) for rows in scored) < 1_000


def test_the_largest_entry_of_each_row_is_that_of_the_dense_table() -> None:
    rng = np.random.default_rng(1)
    dense = rng.random((300, 9)) * (rng.random((300, 9)) < 0.3)
    dense[np.arange(300), rng.integers(9, size=300)] += 0.1
    best, largest = best_entries(csr_matrix(dense))
    assert (best == dense.argmax(axis=1)).all()
    assert (largest == dense.max(axis=1)).all()
    tied, _ = best_entries(csr_matrix(np.full((2, 3), 1.0 / 3.0)))
    assert tied.tolist() == [0, 0]
    with pytest.raises(ValueError, match="no best component"):
        best_entries(csr_matrix((2, 3)))


@pytest.mark.parametrize(("n", "floor"), [(1, 0.0), (80, 1e-2), (64, 2.0), (128, 0.0)])
def test_pair_entropies_agree_with_dense_ones(n: int, floor: float) -> None:
    rng = np.random.default_rng(5)
    resp = rng.dirichlet(np.full(6, 0.3 if floor else 3.0), size=n)
    resp[resp < floor] = 0.0
    weights = rng.random(n)
    found = pair_entropies(csr_matrix(resp), weights)
    np.testing.assert_allclose(found, dense_pair_entropies(resp, weights), rtol=1e-10, atol=1e-12)
