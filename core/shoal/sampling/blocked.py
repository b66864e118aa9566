"""Blocked Gibbs sampling of truncated stick breaking: weights and parameters are drawn, then all labels at once.

Ishwaran and James (2001), "Gibbs sampling methods for stick-breaking priors", section 5: the "TDP Gibbs" of Blei and
Jordan (2004). Given the labels, each component's parameter is drawn from its posterior and each stick from its Beta.
Given these, the labels are independent. The chain is over the labels alone, since all else is drawn again from them,
and it is reversible. It samples the posterior of the model with v_T = 1, not of the Dirichlet process. It moves slowly
where a component must be emptied point by point under its own drawn parameter.
"""

from typing import Any, Unpack

import numpy as np

from shoal.errors import SettingError
from shoal.families import AnyFamily, log_marginal
from shoal.kernels.distances import row_blocks
from shoal.mixture import BatchFit, ProgressCallback, by_size, component_stats
from shoal.points.arrays import Array, IntArray
from shoal.process import (
    default_truncation,
    expected_stick_weights,
    log_truncated_label_prior,
    sample_log_weights,
)
from shoal.sampling.gibbs import first_state
from shoal.sampling.runs import Schedule, ScheduleOptions, as_fit, drawn_labels, run_chains

_BLOCK_ELEMENTS = 1 << 19


def fit_blocked_gibbs(
    family: AnyFamily,
    x: Array,
    *,
    concentration: float = 1.0,
    truncation: int | None = None,
    resp_init: Array | None = None,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
    **schedule: Unpack[ScheduleOptions],
) -> BatchFit:
    """Sample labels of points x (N, D) from the posterior under `truncation` T sticks, the last of them 1.

    T None: as many as `resp_init` has columns, else enough for N points (`process.default_truncation`). `schedule`:
    n_samples, burn_in, thinning, n_chains, as in `runs.Schedule`. The result is that of `runs.as_fit`. Its `elbo` is
    log p(x, labels) of the best sample, with sticks and parameters integrated out: a lower bound on the evidence of the
    truncated model, which is not that of the Dirichlet process (ERRATA 0.1). A chain starts at labels drawn for one
    point after another, largest component first, or at labels drawn from `resp_init` (N, T). `extra["truncation"]` ()
    is T.

    Cost a sweep: N times T likelihoods, by BLAS. Raises SettingError when T is less than 1, or than resp_init needs.
    """
    plan = Schedule(**schedule)
    n_labels = _truncation(truncation, resp_init, len(x), concentration)

    def start() -> BlockedSampler:
        if resp_init is None:
            labels = by_size(first_state(family, concentration, x, None, rng).labels)
        else:
            labels = drawn_labels(resp_init, rng)
        return BlockedSampler(family, concentration, x, np.minimum(labels, n_labels - 1), n_labels, rng)

    fit = as_fit(family, x, plan, run_chains(start, len(x), plan, progress))
    return fit._replace(extra={**fit.extra, "truncation": np.array(n_labels)})


class BlockedSampler:
    """A chain over labels 0..T-1 in the order of the sticks."""

    def __init__(
        self,
        family: AnyFamily,
        concentration: float,
        x: Array,
        labels: IntArray,
        truncation: int,
        rng: np.random.Generator,
    ) -> None:
        self.family, self.concentration, self.x, self.rng = family, concentration, x, rng
        self.truncation = truncation
        self._place(labels)

    @property
    def labels(self) -> IntArray:
        """(N,) stick of each point."""
        return self._labels

    @property
    def counts(self) -> Array:
        """(T,) points of each stick."""
        return np.asarray(self.stats[0])

    def sweep(self) -> None:
        """Draw parameters and sticks given the labels, then the labels given these."""
        parameters = self.family.sample_parameters(self.family.posterior(self.stats), self.rng)
        log_weight = sample_log_weights(self.counts, self.concentration, self.rng)
        uniforms = self.rng.random(len(self.x))
        labels = np.empty(len(self.x), dtype=np.int64)
        for rows in row_blocks(len(self.x), self.truncation, _BLOCK_ELEMENTS):
            heights = log_weight + self.family.log_likelihood(parameters, self.x[rows])
            heights -= heights.max(axis=1, keepdims=True)
            np.cumsum(np.exp(heights, out=heights), axis=1, out=heights)
            labels[rows] = (uniforms[rows, None] * heights[:, -1:] >= heights).sum(axis=1)
        self._place(np.minimum(labels, self.truncation - 1))

    def log_joint(self) -> float:
        """log p(x, labels) in nats, sticks and parameters integrated out."""
        evidence = float(log_marginal(self.family, self.stats).sum())
        return evidence + log_truncated_label_prior(self.counts, self.concentration)

    def weights(self) -> tuple[Array, float]:
        """E pi given the labels; the sticks without points share the prior's predictive."""
        weight = expected_stick_weights(self.counts, self.concentration)
        return weight, float(weight[self.counts == 0.0].sum())

    def _place(self, labels: IntArray) -> None:
        """Set the labels, and compute their statistics."""
        used, compact = np.unique(labels, return_inverse=True)
        stats: Any = self.family.empty_stats(self.truncation)
        for field, rows in zip(stats, component_stats(self.family, self.x, compact), strict=True):
            field[used] = rows
        self._labels, self.stats = labels, stats


def _truncation(truncation: int | None, resp_init: Array | None, n_points: int, concentration: float) -> int:
    columns = 1 if resp_init is None else resp_init.shape[1]
    if truncation is None:
        return default_truncation(n_points, concentration) if resp_init is None else columns
    if truncation < columns:
        raise SettingError(
            f"truncation is {truncation}; it must be at least 1, and at least the {columns} columns of resp_init"
        )
    return truncation
