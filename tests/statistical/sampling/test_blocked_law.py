"""Blocked Gibbs sampling by Geweke's test (2004) and by simulation-based calibration, each beside broken samplers.

As for the other samplers, in the truncated model: labels by breaking sticks, their law told by the chain rule of one
label given those before it. The chain over labels is reversible (labels, then all else, then labels), so that a chain
can be run backwards by running it (Gandy and Scott 2020).
"""

import itertools
from collections.abc import Callable, Iterator
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2, norm, t

from shoal.families import AnyFamily, log_marginal
from shoal.points.arrays import IntArray
from shoal.process import log_truncated_label_prior
from shoal.sampling.blocked import BlockedSampler

FORMS = ("gaussian", "diagonal", "spherical", "shared")
N, T, ALPHA, ROUNDS, STATES = 6, 3, 1.2, 8, 16
FALSE_ALARM = 1e-4
"""Of a test of the right sampler, over all its statistics, for another seed."""


def draw_labels(rng: np.random.Generator, n: int = N) -> IntArray:
    """Labels (n,) of a draw of three sticks, the last of them one."""
    v = np.append(rng.beta(1.0, ALPHA, size=T - 1), 1.0)
    return rng.choice(T, size=n, p=v * np.append(1.0, np.cumprod(1.0 - v[:-1])))


def draw_points(family: AnyFamily, labels: IntArray, rng: np.random.Generator) -> Any:
    drawn = family.sample_parameters(family.posterior(family.empty_stats(T)), rng)
    return family.sample_points(drawn, len(labels), rng)[labels, np.arange(len(labels))]


Start = Callable[[AnyFamily, IntArray, Any, np.random.Generator], BlockedSampler]
"""(family, labels (N,), points (N, D), rng) -> a chain at these labels."""


def ours(family: AnyFamily, labels: IntArray, x: Any, rng: np.random.Generator) -> BlockedSampler:
    return BlockedSampler(family, ALPHA, x, labels, T, rng)


class _Broken(BlockedSampler):
    """The counts that feed the sticks have a fault; those of the log joint have none."""

    fault, sweeping = "", False

    @property
    def counts(self) -> Any:
        """The counts, with a fault."""
        counts = super().counts
        return (
            {"order reversed": counts[::-1], "counts forgotten": 0.0 * counts}[self.fault] if self.sweeping else counts
        )

    def sweep(self) -> None:
        self.sweeping = True
        super().sweep()
        self.sweeping = False


def broken(fault: str) -> Start:
    def start(family: AnyFamily, labels: IntArray, x: Any, rng: np.random.Generator) -> BlockedSampler:
        if fault == "alpha off by three":
            return BlockedSampler(family, ALPHA + 3.0, x, labels, T, rng)
        return type("Broken", (_Broken,), {"fault": fault})(family, ALPHA, x, labels, T, rng)

    return start


FAULTS = ("alpha off by three", "order reversed", "counts forgotten")


def statistics(labels: Any) -> np.ndarray:
    """Points of each stick; sticks used; first pair, first and last together."""
    counts = np.bincount(labels, minlength=T)
    return np.array([*counts, (counts > 0).sum(), labels[0] == labels[1], labels[0] == labels[-1]], dtype=float)


def expectations() -> np.ndarray:
    """By the chain rule over all 3^6 labellings (ERRATA 2.2)."""
    total, mass = np.zeros(6), 0.0
    for labels in itertools.product(range(T), repeat=N):
        p, counts = 1.0, np.zeros(T)
        for label in labels:
            for i in range(label + 1):
                above = counts[i + 1 :].sum()
                stop = 1.0 if i == T - 1 else (1.0 + counts[i]) / (1.0 + ALPHA + counts[i] + above)
                p *= stop if i == label else 1.0 - stop
            counts[label] += 1
        total += p * statistics(np.array(labels))
        mass += p
    assert abs(mass - 1.0) < 1e-12
    return total


def worst_score(family: AnyFamily, start: Start, runs: int, seed: int) -> float:
    """The largest |Student t| over the statistics: labels swept, points drawn again given them, from exact draws."""
    rng = np.random.default_rng(seed)
    averages = np.empty((runs, 6))
    for run in range(runs):
        labels, rounds = draw_labels(rng), []
        for _ in range(ROUNDS):
            chain = start(family, labels, draw_points(family, labels, rng), rng)
            chain.sweep()
            labels = chain.labels
            rounds.append(statistics(labels))
        averages[run] = np.mean(rounds, axis=0)
    error = averages.mean(axis=0) - expectations()
    return float(np.abs(error / (averages.std(axis=0, ddof=1) / np.sqrt(runs))).max())


def limit(runs: int) -> float:
    return float(t.isf(FALSE_ALARM / 2 / 6, runs - 1))


@pytest.mark.parametrize(
    ("one_family", "runs"),
    [
        *((form, 200) for form in ("gaussian", "shared")),
        *(pytest.param(form, 10_000, marks=pytest.mark.slow) for form in FORMS),
    ],
    indirect=["one_family"],
)
@pytest.mark.short_form("shared-200")
def test_sampler_keeps_the_joint_law(one_family: AnyFamily, runs: int) -> None:
    """The sampler is the same for every family."""
    assert worst_score(one_family, ours, runs, seed=301) < limit(runs)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.short_form("order reversed")
def test_broken_samplers_are_caught(world: SimpleNamespace, fault: str) -> None:
    """As many runs as the short form; measured scores are 8 and more, the limit is 4.4."""
    assert worst_score(world.spherical, broken(fault), 200, seed=302) > 1.5 * limit(200)


def functions(family: AnyFamily, labels: IntArray, x: Any) -> np.ndarray:
    """(S, 3) of states (S, N): the log joint, the points of the first stick, the pairs together weighted by distance.

    The evidence of a set of points is worked out once: states of one chain have most of their sets in common.
    """
    n = labels.shape[1]
    bits = 1 << np.arange(n)
    sets = (labels[:, None] == np.arange(T)[:, None]) @ bits  # (S, T) the points of each stick
    distinct, which = np.unique(sets, return_inverse=True)
    members = ((distinct & bits[:, None]) > 0).astype(float)
    evidence = log_marginal(family, family.suffstats(x, members))[which.reshape(sets.shape)].sum(axis=1)
    counts = members.sum(axis=0)[which.reshape(sets.shape)]
    prior = [log_truncated_label_prior(row, ALPHA) for row in counts]
    distance = np.linalg.norm(x[:, None] - x[None, :], axis=2)
    together = labels[:, :, None] == labels[:, None, :]
    return np.stack([evidence + prior, counts[:, 0], (together * distance).sum(axis=(1, 2))], axis=1)


def test_the_log_joint_of_these_functions_is_the_samplers(family: AnyFamily) -> None:
    rng = np.random.default_rng(305)
    labels = np.array([draw_labels(rng, 8) for _ in range(STATES)])
    x = draw_points(family, labels[0], rng)
    joints = [ours(family, row, x, rng).log_joint() for row in labels]
    np.testing.assert_allclose(functions(family, labels, x)[:, 0], joints, rtol=1e-11)


def ranks_of(family: AnyFamily, start: Start, seed: int) -> Iterator[np.ndarray]:
    """Ranks (3,) of the truth at a random place of a chain, by `functions`, of one run after another, without end."""
    rng = np.random.default_rng(seed)
    while True:
        truth = draw_labels(rng, 8)
        x, place = draw_points(family, truth, rng), int(rng.integers(STATES))
        states = [start(family, truth, x, rng).labels]
        for steps in (place, STATES - 1 - place):
            chain = start(family, truth, x, rng)
            for _ in range(steps):
                chain.sweep()
                states.append(chain.labels)
        rounded = np.round(functions(family, np.array(states), x), 9)
        below, ties = (rounded[1:] < rounded[0]).sum(axis=0), (rounded[1:] == rounded[0]).sum(axis=0)
        yield below + rng.integers(0, ties + 1)


def least_p_value(ranks: np.ndarray) -> float:
    """Of ranks (runs, 3): of their mean, and of chi-squared against the uniform law."""
    runs = len(ranks)
    counts = np.array([np.bincount(column.astype(int), minlength=STATES) for column in ranks.T])
    shapes = chi2.sf((((counts - runs / STATES) ** 2) / (runs / STATES)).sum(axis=1), STATES - 1)
    shift = (ranks.mean(axis=0) - (STATES - 1) / 2) / np.sqrt((STATES**2 - 1) / 12 / runs)
    return float(6 * min(shapes.min(), 2 * norm.sf(np.abs(shift)).min()))


@pytest.mark.slow
@pytest.mark.parametrize("one_family", FORMS, indirect=True)
def test_ranks_of_the_truth_are_uniform(one_family: AnyFamily) -> None:
    """The joint law above, and all labellings of six points in `tests/core/sampling/test_blocked.py`, have short
    forms."""
    assert least_p_value(np.array(list(islice(ranks_of(one_family, ours, seed=303), 5_000)))) > FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_broken_samplers_have_other_ranks(world: SimpleNamespace, fault: str) -> None:
    """At a hundredth of the false-alarm rate, within 400 runs; looked for after each fifty of the first, then twice."""
    ranks, drawn = ranks_of(world.spherical, broken(fault), seed=304), []
    for runs in (50, 100, 150, 200, 300, 400):
        drawn += islice(ranks, runs - len(drawn))
        if least_p_value(np.array(drawn)) < FALSE_ALARM / 100:
            return
    pytest.fail("not caught within 400 runs")
