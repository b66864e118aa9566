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
