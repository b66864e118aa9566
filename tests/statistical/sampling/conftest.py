"""Draws from the Dirichlet process mixture itself, the sweeps under test, and sweeps broken on purpose."""

from collections.abc import Callable
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
    """A chain at a partition, its statistics and working form in place."""
    chain = start_chain(family, labels)
    stats = component_stats(family, x, chain.labels)
    for field, rows in zip((*chain.stats, *chain.work), (*stats, *refresh(family, stats)), strict=True):
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
        known, prior = float(family.covariance), float(family.prior_covariance)
        z = labels.copy()
        for i in range(len(x)):
            others = np.arange(len(x)) != i
            used = np.unique(z[others])
            member = z == used[:, None]
            counts = (member & others).sum(axis=1)
            held = member if fault == "forgotten removal" else member & others
            n = np.append(held.sum(axis=1), 0)
            total = np.vstack([held @ x, np.zeros(x.shape[1])])
            variance = 1.0 / (1.0 / prior + n / known)
            mean = variance[:, None] * (family.mean / prior + total / known)
            spread = variance + known
            score = -0.5 * (((x[i] - mean) ** 2).sum(axis=1) / spread + x.shape[1] * np.log(spread))
            p = np.append(np.ones_like(counts) if fault == "no weights" else counts, CONCENTRATION)
            p = np.cumsum(p * np.exp(score - score.max()))
            z[i] = np.append(used, z.max() + 1)[np.searchsorted(p, rng.random() * p[-1], side="right")]
        return np.unique(z, return_inverse=True)[1]

    return sweep


class Broken(NamedTuple):
    """A wrong sweep, and how many runs of the calibration it takes to see it."""

    sweep: Sweep
    runs: int


MOVES: dict[str, Sweep] = {
    "split-merge": moves(Proposals("restricted", 2)),
    "sequential": moves(Proposals("sequential")),
}
BROKEN: dict[str, Broken] = {
    "density forgotten": Broken(density_forgotten, 400),
    "split-merge, alpha off by one": Broken(moves(Proposals("sequential"), CONCENTRATION + 1.0), 400),
    "alpha off by one": Broken(alpha_off_by_one, 200),
    "forgotten removal": Broken(_plain("forgotten removal"), 800),
    "no weights": Broken(_plain("no weights"), 200),
}


@pytest.fixture(params=PRIORS)
def family(request: pytest.FixtureRequest) -> AnyFamily:
    """A prior of each working form."""
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
