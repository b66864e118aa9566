"""The restaurant's law against its own story told one customer at a time, and against enumeration."""

from collections.abc import Iterator

import numpy as np
import pytest

from shoal.process import log_eppf, predictive_weights


def partitions(n: int) -> Iterator[list[int]]:
    """Every partition of n points as labels in order of appearance."""

    def extend(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == n:
            yield labels
            return
        for label in range(max(labels, default=-1) + 2):
            yield from extend([*labels, label])

    yield from extend([])


@pytest.mark.parametrize("concentration", [0.05, 1.0, 4.7])
@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_probabilities_of_all_partitions_sum_to_one(n: int, concentration: float) -> None:
    log_p = [log_eppf(np.bincount(labels).astype(float), concentration) for labels in partitions(n)]
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("concentration", [0.3, 2.5])
def test_partition_probability_is_the_product_of_the_customers_choices(concentration: float) -> None:
    labels = [0, 0, 1, 0, 2, 1, 3, 0, 2]
    told = 0.0
    mass = np.zeros(0)
    for label in labels:
        weights, new = predictive_weights(mass, concentration)
        assert weights.sum() + new == pytest.approx(1.0, abs=1e-15)
        told += np.log(new if label == mass.size else weights[label])
        mass = np.append(mass, 0.0) if label == mass.size else mass
        mass[label] += 1.0
    assert log_eppf(mass, concentration) == pytest.approx(told, abs=1e-12)


def test_nothing_seen_means_a_new_component_for_certain() -> None:
    weights, new = predictive_weights(np.zeros(0), 1.5)
    assert weights.size == 0
    assert new == 1.0
    assert log_eppf(np.zeros(0), 1.5) == 0.0
