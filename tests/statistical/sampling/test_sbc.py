"""Simulation-based calibration of the sampler, in the form that is exact for a Markov chain.

Labels and points from the model; the true labels are put at a random place of a chain, which is run forwards and
backwards from there. Each draw of a label is reversible, so the reverse of a sweep is the sweep over the points in
reverse order (Gandy and Scott 2020, "Unit testing for MCMC"). For a right sampler all places are alike, and the rank of
the truth among the chain's states, by any function of labels and points, is uniform: however slowly it mixes.
"""

from collections.abc import Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, norm

from shoal.families import AnyFamily
from shoal.sampling import component_stats, log_joint

N = 8
STATES = 16
FALSE_ALARM = 1e-4
"""Of a test of the right sampler, over all its functions, for another seed."""


def functions(world: SimpleNamespace, family: AnyFamily, labels: Any, x: Any) -> list[float]:
    """The log joint, the number of components, and the pairs together weighted by their distance."""
    compact = np.unique(labels, return_inverse=True)[1]
    joint = log_joint(family, world.concentration, component_stats(family, x, compact))
    distance = np.linalg.norm(x[:, None] - x[None, :], axis=2)
    return [joint, float(compact.max()), float(distance[labels[:, None] == labels[None, :]].sum())]


def chain_around(world: SimpleNamespace, family: AnyFamily, sweep: Any, rng: np.random.Generator) -> np.ndarray:
    """Ranks (3,) of the truth among STATES states of a chain that holds it at a random place."""
    truth = world.partition(N, rng)
    x = world.points(family, truth, rng)
    place = int(rng.integers(STATES))
    known: dict[bytes, list[float]] = {}  # a chain over so few points comes back to a partition often

    def values_of(labels: Any) -> list[float]:
        key = np.unique(labels, return_inverse=True)[1].tobytes()
        if key not in known:
            known[key] = functions(world, family, labels, x)
        return known[key]

    values = [values_of(truth)]
    backwards, labels = x[::-1].copy(), truth[::-1].copy()
    for _ in range(place):
        labels = sweep(family, labels, backwards, rng)
        values.append(values_of(labels[::-1]))
    labels = truth
    for _ in range(STATES - 1 - place):
        labels = sweep(family, labels, x, rng)
        values.append(values_of(labels))
    table = np.array(values)
    table[:, 0] = np.round(table[:, 0], 9)  # the same partition, summed in another order
    table[:, 2] = np.round(table[:, 2], 9)
    below = (table[1:] < table[0]).sum(axis=0)
    ties = (table[1:] == table[0]).sum(axis=0)
    return below + rng.integers(0, ties + 1)


def ranks_of(world: SimpleNamespace, family: AnyFamily, sweep: Any, seed: int) -> Iterator[np.ndarray]:
    """The ranks (3,) of one run after another, without end."""
    rng = np.random.default_rng(seed)
    while True:
        yield chain_around(world, family, sweep, rng)


def least_p_value(ranks: np.ndarray) -> float:
    """Of ranks (runs, 3), over the functions: of the mean rank (a shift), and of chi-squared against the uniform law;
    times their number.

    Sharper against a shift than chi-squared alone, which spreads its power over all shapes.
    """
    runs = len(ranks)
    counts = np.array([np.bincount(column, minlength=STATES) for column in ranks.T])
    expected = runs / STATES
    shapes = chi2.sf((((counts - expected) ** 2) / expected).sum(axis=1), STATES - 1)
    shift = (ranks.mean(axis=0) - (STATES - 1) / 2) / np.sqrt((STATES**2 - 1) / 12 / runs)
    return float(6 * min(shapes.min(), 2 * norm.sf(np.abs(shift)).min()))


@pytest.mark.parametrize("runs", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_ranks_of_the_truth_are_uniform(world: SimpleNamespace, family: AnyFamily, runs: int) -> None:
    ranks = islice(ranks_of(world, family, world.ours, seed=201), runs)
    assert least_p_value(np.array(list(ranks))) > FALSE_ALARM


@pytest.mark.parametrize("runs", [100, pytest.param(3_000, marks=pytest.mark.slow)])
def test_ranks_are_uniform_for_splits_and_merges(
    world: SimpleNamespace, family: AnyFamily, move: Any, runs: int
) -> None:
    ranks = islice(ranks_of(world, family, move, seed=204), runs)
    assert least_p_value(np.array(list(ranks))) > FALSE_ALARM


def test_broken_samplers_are_caught(world: SimpleNamespace, broken: Any) -> None:
    """At a hundredth of the false-alarm rate, within so many runs; looked for after an eighth of them, a quarter, a
    half and all."""
    ranks, drawn = ranks_of(world, world.spherical, broken.sweep, seed=202), []
    for part in (8, 4, 2, 1):
        drawn += islice(ranks, broken.runs // part - len(drawn))
        if least_p_value(np.array(drawn)) < FALSE_ALARM / 100:
            return
    pytest.fail(f"not caught within {broken.runs} runs")


def test_the_plain_sweep_without_a_fault_passes(world: SimpleNamespace) -> None:
    """So that what fails above fails by its fault."""
    ranks = islice(ranks_of(world, world.spherical, world.plain, seed=203), 400)
    assert least_p_value(np.array(list(ranks))) > FALSE_ALARM
