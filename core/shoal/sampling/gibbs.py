"""Collapsed Gibbs sampling as a batch engine.

Neal (2000), "Markov chain sampling methods for Dirichlet process mixture models", algorithm 3, with points in the given
order. By default a chain starts with each point drawn given the points before it. All randomness comes from the given
generator, chain after chain.
"""

from typing import Unpack

import numpy as np

from shoal.families import AnyFamily
from shoal.mixture import BatchFit, ProgressCallback, component_stats, log_joint
from shoal.points.arrays import Array, IntArray
from shoal.process import predictive_weights
from shoal.sampling.chain import Chain, live_stats, start_chain, sweep_inplace
from shoal.sampling.runs import Schedule, ScheduleOptions, as_fit, drawn_labels, run_chains


def fit_gibbs(
    family: AnyFamily,
    x: Array,
    *,
    concentration: float = 1.0,
    resp_init: Array | None = None,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
    **schedule: Unpack[ScheduleOptions],
) -> BatchFit:
    """Sample partitions of points x (N, D) from the posterior.

    `schedule`: n_samples, burn_in, thinning, n_chains, as in `runs.Schedule`. The result is that of `runs.as_fit`. Its
    `elbo` is log p(x, partition) of the best sample under the Dirichlet process. `resp_init` (N, T), rows summing to
    one: every chain starts at labels drawn from it. Without it `elbo_history` starts after the first draw of all
    points. Cost a sweep: N times one score of every component.
    """
    plan = Schedule(**schedule)

    def start() -> CollapsedSampler:
        return CollapsedSampler(family, concentration, x, first_state(family, concentration, x, resp_init, rng), rng)

    return as_fit(family, x, plan, run_chains(start, len(x), plan, progress))


class CollapsedSampler:
    """A chain over partitions, with weights and parameters integrated out; a sweep draws each label once."""

    def __init__(
        self, family: AnyFamily, concentration: float, x: Array, chain: Chain, rng: np.random.Generator
    ) -> None:
        self.family, self.concentration, self.x, self.chain, self.rng = family, concentration, x, chain, rng

    @property
    def labels(self) -> IntArray:
        """(N,) row of each point's component."""
        return self.chain.labels

    def sweep(self) -> None:
        """Draw every label once."""
        sweep_inplace(self.family, self.concentration, self.chain, self.x, self.rng.random(len(self.x)))

    def log_joint(self) -> float:
        """log p(x, partition) in nats."""
        return log_joint(self.family, self.concentration, live_stats(self.chain))

    def weights(self) -> tuple[Array, float]:
        """Weights of the Chinese restaurant process: n_k / (alpha + N), and alpha / (alpha + N) for a new component."""
        return predictive_weights(live_stats(self.chain)[0], self.concentration)


def first_state(
    family: AnyFamily, concentration: float, x: Array, resp_init: Array | None, rng: np.random.Generator
) -> Chain:
    """A chain with its statistics: after the first draw of all points, or at labels drawn from resp_init."""
    if resp_init is None:
        chain = start_chain(family, np.full(len(x), -1))
        sweep_inplace(family, concentration, chain, x, rng.random(len(x)))
        return chain
    chain = start_chain(family, drawn_labels(resp_init, rng))
    stats = component_stats(family, x, chain.labels)
    for field, rows in zip(chain.stats, stats, strict=True):
        field[: chain.n_components] = rows
    return chain
