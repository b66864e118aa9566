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

from shoal.families import AnyFamily, log_marginal
from shoal.points.arrays import Array, IntArray
from shoal.process import log_eppf
from shoal.sampling import component_stats, log_joint

FORMS = ("gaussian", "diagonal", "spherical", "shared")
N = 8
STATES = 16
FALSE_ALARM = 1e-4
"""Of a test of the right sampler, over all its functions, for another seed."""


def functions(world: SimpleNamespace, family: AnyFamily, labels: IntArray, x: Array) -> Array:
    """(S, 3) of states (S, N): the log joint, the number of components, and the pairs together weighted by distance.

    The evidence of a block is worked out once: states of one chain have most of their blocks in common.
    """
    bits = 1 << np.arange(N)
    blocks = (labels[:, None] == np.arange(N)[:, None]) @ bits  # (S, N) the points of each label
    distinct, which = np.unique(blocks, return_inverse=True)
    members = ((distinct & bits[:, None]) > 0).astype(float)
    evidence = log_marginal(family, family.suffstats(x, members))[which.reshape(blocks.shape)]
    sizes = members.sum(axis=0)[which.reshape(blocks.shape)]
    joint = evidence.sum(axis=1) + [log_eppf(row[row > 0.0], world.concentration) for row in sizes]
    distance = np.linalg.norm(x[:, None] - x[None, :], axis=2)
    together = labels[:, :, None] == labels[:, None, :]
    return np.stack([joint, (sizes > 0.0).sum(axis=1), (together * distance).sum(axis=(1, 2))], axis=1)


def test_the_log_joint_of_these_functions_is_the_library_s(world: SimpleNamespace, family: AnyFamily) -> None:
    rng = np.random.default_rng(205)
    labels = np.array([world.partition(N, rng) for _ in range(STATES)])
    x = world.points(family, labels[0], rng)
    joints = [log_joint(family, world.concentration, component_stats(family, x, row)) for row in labels]
    np.testing.assert_allclose(functions(world, family, labels, x)[:, 0], joints, rtol=1e-11)


def chain_around(world: SimpleNamespace, family: AnyFamily, sweep: Any, rng: np.random.Generator) -> Array:
    """Ranks (3,) of the truth among STATES states of a chain that holds it at a random place."""
    truth = world.partition(N, rng)
    x = world.points(family, truth, rng)
    place = int(rng.integers(STATES))
    states = [truth]
    backwards, labels = x[::-1].copy(), truth[::-1].copy()
    for _ in range(place):
        labels = sweep(family, labels, backwards, rng)
        states.append(labels[::-1])
    labels = truth
    for _ in range(STATES - 1 - place):
        labels = sweep(family, labels, x, rng)
        states.append(labels)
    table = np.round(functions(world, family, np.array(states), x), 9)  # a partition has one value, in any order
    below = (table[1:] < table[0]).sum(axis=0)
    ties = (table[1:] == table[0]).sum(axis=0)
    return below + rng.integers(0, ties + 1)


def ranks_of(world: SimpleNamespace, family: AnyFamily, sweep: Any, seed: int) -> Iterator[Array]:
    """The ranks (3,) of one run after another, without end."""
    rng = np.random.default_rng(seed)
    while True:
        yield chain_around(world, family, sweep, rng)


def least_p_value(ranks: Array) -> float:
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


@pytest.mark.parametrize("runs", [200, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.short_form("gaussian-200", "diagonal-200")
def test_ranks_of_the_truth_are_uniform(world: SimpleNamespace, family: AnyFamily, runs: int) -> None:
    ranks = islice(ranks_of(world, family, world.ours, seed=201), runs)
    assert least_p_value(np.array(list(ranks))) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("one_family", FORMS, indirect=True)
def test_ranks_are_uniform_for_splits_and_merges(world: SimpleNamespace, one_family: AnyFamily, move: Any) -> None:
    """`test_geweke.py` has a short form for the moves, and `tests/core/sampling/test_split_merge.py` another."""
    ranks = islice(ranks_of(world, one_family, move, seed=204), 3_000)
    assert least_p_value(np.array(list(ranks))) > FALSE_ALARM


@pytest.mark.short_form("alpha off by one", "no weights")
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
    ranks = islice(ranks_of(world, world.spherical, world.plain, seed=203), 100)
    assert least_p_value(np.array(list(ranks))) > FALSE_ALARM
