"""Geweke's joint distribution test (2004) of the sampler: points are drawn again given labels between sweeps.

Sweep, points given labels, sweep, ...: if the sweep leaves p(labels | points) as it is, this chain leaves the joint
law as it is, and the labels keep the restaurant's law, which is known exactly. Every run starts with an exact draw and
makes a few rounds; runs are independent, so the Student t of a statistic's average over a run is exact, whatever the
sampler's mixing. A fault moves the chain away from the law, round by round.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import t

from shoal.families import AnyFamily

FORMS = ("gaussian", "diagonal", "spherical", "shared")
N = 6
ROUNDS = 8
FALSE_ALARM = 1e-4
"""Of a test of the right sampler, over all its statistics, for another seed."""


def statistics(labels: Any) -> np.ndarray:
    """Number of components; the largest; pairs together; first pair, last pair, first and last together."""
    counts = np.bincount(labels)
    together = labels[[0, N - 2, 0]] == labels[[1, N - 1, N - 1]]
    return np.array([counts.size, counts.max(), (counts * (counts - 1)).sum() / 2, *together])


def expectations(concentration: float) -> np.ndarray:
    """The restaurant's: sum alpha / (alpha + i); for the largest by enumeration below; pairs 1 / (1 + alpha) each."""
    pair = 1.0 / (1.0 + concentration)
    number = sum(concentration / (concentration + i) for i in range(N))
    return np.array([number, expected_largest(concentration), N * (N - 1) / 2 * pair, pair, pair, pair])


def expected_largest(concentration: float) -> float:
    """E of the largest block, by telling the restaurant's story over all multisets of sizes."""
    law = {(1,): 1.0}
    for i in range(1, N):
        following: dict[tuple[int, ...], float] = {}
        for sizes, p in law.items():
            choices = [((*sizes[:k], size + 1, *sizes[k + 1 :]), float(size)) for k, size in enumerate(sizes)]
            for grown, weight in [*choices, ((*sizes, 1), concentration)]:
                key = tuple(sorted(grown))
                following[key] = following.get(key, 0.0) + p * weight / (i + concentration)
        law = following
    return sum(p * max(sizes) for sizes, p in law.items())


def worst_score(world: SimpleNamespace, family: AnyFamily, sweep: Any, runs: int, seed: int) -> float:
    """The largest |Student t| of the statistics, each a mean over runs of an average over rounds."""
    rng = np.random.default_rng(seed)
    averages = np.empty((runs, statistics(np.zeros(N, dtype=np.int64)).size))
    for run in range(runs):
        labels = world.partition(N, rng)
        rounds = []
        for _ in range(ROUNDS):
            labels = sweep(family, labels, world.points(family, labels, rng), rng)
            rounds.append(statistics(labels))
        averages[run] = np.mean(rounds, axis=0)
    error = averages.mean(axis=0) - expectations(world.concentration)
    return float(np.abs(error / (averages.std(axis=0, ddof=1) / np.sqrt(runs))).max())


def limit(runs: int) -> float:
    return float(t.isf(FALSE_ALARM / 2 / 6, runs - 1))


@pytest.mark.parametrize("runs", [300, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.short_form("shared-300")
def test_sampler_keeps_the_joint_law(world: SimpleNamespace, family: AnyFamily, runs: int) -> None:
    assert worst_score(world, family, world.ours, runs, seed=101) < limit(runs)


@pytest.mark.parametrize(
    ("one_family", "runs"),
    [("gaussian", 100), *(pytest.param(form, 5_000, marks=pytest.mark.slow) for form in FORMS)],
    indirect=["one_family"],
)
@pytest.mark.short_form("split-merge-gaussian-100")
def test_splits_and_merges_keep_the_joint_law(
    world: SimpleNamespace, one_family: AnyFamily, move: Any, runs: int
) -> None:
    """The moves are the same for every family."""
    assert worst_score(world, one_family, move, runs, seed=104) < limit(runs)


@pytest.mark.short_form("density forgotten", "forgotten removal")
def test_broken_samplers_are_caught(world: SimpleNamespace, broken: Any) -> None:
    """As many runs as the short form, the same limit; measured scores are 7 and more, the limits are 4.4 and 4.5."""
    runs = broken.joint_runs
    assert worst_score(world, world.spherical, broken.sweep, runs, seed=102) > 1.5 * limit(runs)


def test_the_plain_sweep_without_a_fault_passes(world: SimpleNamespace) -> None:
    """So that what fails above fails by its fault."""
    assert worst_score(world, world.spherical, world.plain, 300, seed=103) < limit(300)
