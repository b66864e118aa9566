"""Rows that were sent several times are one observation each for a refinement, and all count in the masses."""

import numpy as np
import pytest

from shoal import StreamingDPMixture
from shoal.refinement.copies import typical_copies


def test_rows_sent_four_times_do_not_become_more_components() -> None:
    """Two uniform squares, which several Gaussians fit ever better: with every copy as evidence they were 15."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0.0, 3.0, size=(1_000, 2)) + np.where(rng.random((1_000, 1)) < 0.5, 10.0, 0.0)
    model = StreamingDPMixture(warmup_points=400).fit(np.tile(x, (4, 1)))
    report = model.refine()
    assert len(model.component_ids_) <= 4
    assert model.masses_.sum() == pytest.approx(4_000)
    assert report.details["copies"] == 4
    assert "a typical row occurs 4 times in the window" in report.reason


def test_a_second_refinement_of_copies_changes_nothing() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(900, 2)) + np.array([(0, 0), (4, 0), (0, 4)])[rng.integers(3, size=900)]
    model = StreamingDPMixture(warmup_points=400, refinement=None).fit(np.tile(x, (2, 1)))
    first, second = model.refine(), model.refine()
    assert first.adopted
    assert not second.adopted
    assert second.bound_before == pytest.approx(first.bound_after, abs=1e-3)


def test_copies_in_a_subspace_are_one_observation() -> None:
    """With every copy as evidence, these five groups were six components."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(500, 12)) + 3.0 * rng.normal(size=(5, 12))[rng.integers(5, size=500)]
    model = StreamingDPMixture(family="subspace", warmup_points=400).fit(np.tile(x, (3, 1)))
    assert model.refine().details["copies"] == 3
    assert len(model.component_ids_) == 5


def test_states_of_a_cycle_are_no_copies() -> None:
    states = np.random.default_rng(0).normal(size=(24, 2))
    assert typical_copies(np.tile(states, (50, 1))) == 1
    assert typical_copies(np.tile(states[:1], (50, 1))) == 1


def test_rows_that_repeat_by_chance_are_evidence() -> None:
    rng = np.random.default_rng(0)
    rounded = rng.normal(size=(3_000, 2)).round(1)
    still = np.vstack([rng.normal(size=(500, 2)), np.zeros((2_500, 2))])
    few = np.repeat(rng.normal(size=(12, 5)), rng.poisson(80, size=12), axis=0)
    assert [typical_copies(rows) for rows in (rounded, still, few, rounded[:1])] == [1, 1, 1, 1]


def test_copies_of_part_of_the_rows_are_told_by_the_larger_part() -> None:
    x = np.random.default_rng(0).normal(size=(100, 2))
    assert [typical_copies(np.vstack([x, x, x[:n]])) for n in (0, 30, 70)] == [2, 2, 3]
    assert [typical_copies(np.vstack([x, x[:n]])) for n in (30, 70)] == [1, 2]
