"""The adjusted Rand index, by scikit-learn and by the definition over all pairs."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from shoal.points.agreement import adjusted_rand_index


def by_pairs(first: np.ndarray, second: np.ndarray) -> float:
    """(index - expected) / (largest - expected), with the counts of pairs that are together."""
    together = [(first[a] == first[b], second[a] == second[b]) for a, b in combinations(range(len(first)), 2)]
    both, one, other = (sum(map(of, together)) for of in (all, lambda t: t[0], lambda t: t[1]))
    expected = one * other / len(together)
    return (both - expected) / ((one + other) / 2 - expected)


def test_the_adjusted_rand_index_is_that_of_the_definition_and_of_scikit_learn_to_the_bit() -> None:
    rng = np.random.default_rng(0)
    for n, groups in ((2, 2), (7, 3), (60, 5), (60, 1), (60, 60), (3_000, 40)):
        first, second = rng.integers(-1, groups, size=(2, n))
        second = np.where(rng.random(n) < 0.5, first, second)
        found = adjusted_rand_index(first, second)
        assert found == adjusted_rand_score(first, second) == adjusted_rand_index(second, first * 7 + 3)
        if n == 60:
            assert found == pytest.approx(by_pairs(first, second), abs=1e-12)
    alone, together = np.arange(10), np.zeros(10, dtype=int)
    assert (adjusted_rand_index(alone, alone), adjusted_rand_index(together, together)) == (1.0, 1.0)
    assert adjusted_rand_index(alone, together) == adjusted_rand_score(alone, together) == 0.0
    assert adjusted_rand_index(alone[:0], alone[:0]) == 1.0
    with pytest.raises(ValueError, match=r"shapes \(10,\) and \(9,\)"):
        adjusted_rand_index(alone, together[:9])
