"""Fitted models that several displays are drawn of; figures are closed after each test."""

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest

from shoal import DPMixture, StreamingDPMixture

mpl.use("Agg")
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def _closed_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


@pytest.fixture(scope="session")
def points() -> np.ndarray:
    """(1600, 3): four groups, two of which come in the second half."""
    rng = np.random.default_rng(5)
    centres = np.array([[0.0, 0, 0], [9, 0, 3], [0, 9, 0], [9, 9, -4]])
    group = np.concatenate([rng.integers(2, size=800), rng.integers(4, size=800)])
    return centres[group] + rng.normal(size=(1600, 3)) * [1.0, 0.5, 2.0]


@pytest.fixture(scope="session")
def stream(points: np.ndarray) -> StreamingDPMixture:
    return StreamingDPMixture(warmup_points=200).fit(points)


@pytest.fixture(scope="session")
def batch(points: np.ndarray) -> DPMixture:
    return DPMixture(random_state=0).fit(points[:600])
