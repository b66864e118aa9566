"""Draws from the Dirichlet process mixture itself, the sweeps under test, and sweeps broken on purpose."""

import math
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.families.predictive_cache import refresh
from shoal.points.arrays import Array, IntArray
from shoal.sampling import Chain, component_stats, split_merge, start_chain, sweep_inplace
from shoal.sampling.split_merge import Proposals, propose_inplace

CONCENTRATION = 1.2
PRIORS: dict[str, AnyFamily] = {
    "gaussian": NormalInverseWishart([0.3, -0.2], 0.3, 6.0, [[2.0, 0.5], [0.5, 1.5]]),
    "diagonal": NormalInverseGamma([0.3, -0.2], 0.3, 3.0, [1.5, 0.8]),
    "spherical": KnownCovariance([0.3, -0.2], 3.0, 0.8),
    "shared": KnownCovariance([0.3, -0.2], [[3.0, 0.4], [0.4, 2.0]], [[0.8, -0.2], [-0.2, 0.6]]),
}
Sweep = Callable[[AnyFamily, IntArray, Array, np.random.Generator], IntArray]
"""(family, labels (N,), points (N, D), rng) -> labels after one sweep over the points in the order given."""


def draw_partition(n: int, rng: np.random.Generator) -> IntArray:
    """Labels (n,) of a draw from the Chinese restaurant, in order of appearance."""
    labels = np.zeros(n, dtype=np.int64)
    for i in range(1, n):
        other = rng.integers(0, i)  # sits with the i before it, each as likely, or alone with weight alpha
        alone = rng.random() * (i + CONCENTRATION) < CONCENTRATION
        labels[i] = labels[:i].max() + 1 if alone else labels[other]
    return labels


def draw_points(family: AnyFamily, labels: IntArray, rng: np.random.Generator) -> Array:
    """Points (N, D) of a partition: each component's parameters from the prior, each point from its component."""
    k = int(labels.max()) + 1
    drawn = family.sample_parameters(family.posterior(family.empty_stats(k)), rng)
    return family.sample_points(drawn, len(labels), rng)[labels, np.arange(len(labels))]


def ours(family: AnyFamily, labels: IntArray, x: Array, rng: np.random.Generator) -> IntArray:
    """The library's sweep."""
    chain = start_chain(family, labels)
    sweep_inplace(family, CONCENTRATION, chain, x, rng.random(len(x)))
    return chain.labels


def placed_chain(family: AnyFamily, labels: IntArray, x: Array) -> Chain:
    """A chain at a partition, its statistics and predictive cache in place."""
    chain = start_chain(family, labels)
    stats = component_stats(family, x, chain.labels)
    for field, rows in zip((*chain.stats, *chain.cache), (*stats, *refresh(family, stats)), strict=True):
        field[: chain.n_components] = rows
    return chain


def moves(how: Proposals, concentration: float = CONCENTRATION) -> Sweep:
    """Two proposals of splits or merges alone, without the sweep of Gibbs sampling that would hide a fault in them.

    Both points of a proposal are drawn at random, so that in any order of the points the move is the same, and its own
    reverse.
    """

    def sweep(family: AnyFamily, labels: IntArray, x: Array, rng: np.random.Generator) -> IntArray:
        chain = placed_chain(family, labels, x)
        for _ in range(2):
            propose_inplace(family, concentration, chain, x, rng, how)
        return chain.labels

    return sweep


def density_forgotten(family: AnyFamily, labels: IntArray, x: Array, rng: np.random.Generator) -> IntArray:
    """Splits and merges accepted as if every division had been certain."""
    honest = split_merge._divide
    try:
        split_merge._divide = lambda *given: honest(*given)._replace(log_probability=0.0)
        return moves(Proposals())(family, labels, x, rng)
    finally:
        split_merge._divide = honest


def alpha_off_by_one(family: AnyFamily, labels: IntArray, x: Array, rng: np.random.Generator) -> IntArray:
    """The library's sweep with concentration + 1."""
    chain = start_chain(family, labels)
    sweep_inplace(family, CONCENTRATION + 1.0, chain, x, rng.random(len(x)))
    return chain.labels


def _plain(fault: str) -> Sweep:
    """A sweep by the textbook formulas of the spherical Gaussian with known variance, with one fault in it, or none."""

    def sweep(family: AnyFamily, labels: IntArray, x: Array, rng: np.random.Generator) -> IntArray:
        assert isinstance(family, KnownCovariance)
        known, prior, mean = float(family.covariance), float(family.prior_covariance), family.mean.tolist()
        z, points = labels.tolist(), x.tolist()
        for i, point in enumerate(points):
            others: dict[int, list[list[float]]] = {}
            for j, label in enumerate(z):
                if j != i:
                    others.setdefault(label, []).append(points[j])
            weight, score = [], []
            for label, members in [*sorted(others.items()), (max(z) + 1, [])]:
                count = min(len(members), 1) if fault == "no weights" else len(members)
                weight.append(count or CONCENTRATION)
                held = [*members, point] if fault == "forgotten removal" and label == z[i] else members
                variance = 1.0 / (1.0 / prior + len(held) / known)
                spread = variance + known
                score.append(0.0)
                for d, (centre, value) in enumerate(zip(mean, point, strict=True)):
                    expected = variance * (centre / prior + sum(row[d] for row in held) / known)
                    score[-1] -= 0.5 * ((value - expected) ** 2 / spread + math.log(spread))
            best = max(score)
            p = list(accumulate(w * math.exp(value - best) for w, value in zip(weight, score, strict=True)))
            z[i] = [*sorted(others), max(z) + 1][bisect_right(p, rng.random() * p[-1])]
        return np.unique(z, return_inverse=True)[1]

    return sweep


class Broken(NamedTuple):
    """A wrong sweep, how many runs of the calibration it takes to see it, and how many of Geweke's test."""

    sweep: Sweep
    runs: int
    joint_runs: int


MOVES: dict[str, Sweep] = {
    "split-merge": moves(Proposals("restricted", 2)),
    "sequential": moves(Proposals("sequential")),
}
BROKEN: dict[str, Broken] = {
    "density forgotten": Broken(density_forgotten, 400, 100),
    "split-merge, alpha off by one": Broken(moves(Proposals("sequential"), CONCENTRATION + 1.0), 400, 100),
    "alpha off by one": Broken(alpha_off_by_one, 200, 300),
    "forgotten removal": Broken(_plain("forgotten removal"), 800, 300),
    "no weights": Broken(_plain("no weights"), 200, 300),
}


@pytest.fixture(params=PRIORS)
def family(request: pytest.FixtureRequest) -> AnyFamily:
    """A prior of each predictive cache."""
    return PRIORS[request.param]


@pytest.fixture
def one_family(request: pytest.FixtureRequest) -> AnyFamily:
    """The family that a test names."""
    return PRIORS[request.param]


@pytest.fixture(params=MOVES)
def move(request: pytest.FixtureRequest) -> Sweep:
    """Each kind of proposal."""
    return MOVES[request.param]


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest) -> Broken:
    """Each sweep that is wrong."""
    return BROKEN[request.param]


@pytest.fixture
def world() -> SimpleNamespace:
    """The helpers above: test modules cannot import one another."""
    return SimpleNamespace(
        partition=draw_partition,
        points=draw_points,
        ours=ours,
        plain=_plain(""),
        spherical=PRIORS["spherical"],
        concentration=CONCENTRATION,
    )
