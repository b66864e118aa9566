"""Runs of any sampler: chains are started, swept and thinned, and their samples become a fit.

A sampler is a chain with `labels`, `sweep` and `log_joint`. This module has the parts that are the same for all:
burn-in, thinning, the trace, effective sample sizes and the best partition.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, NotRequired, Protocol, TypedDict

import numpy as np
import numpy.typing as npt

from shoal.families import AnyFamily
from shoal.mixture import BatchFit, Progress, ProgressCallback, by_size, component_stats
from shoal.points.arrays import Array, IntArray
from shoal.sampling.ess import effective_sample_size

FUNCTIONS = ("log_joint", "n_components", "largest")
"""Quantities with an effective sample size: the log joint, the number of components, the size of the largest."""


class ScheduleOptions(TypedDict):
    """Keywords that all samplers accept."""

    n_samples: NotRequired[int]
    burn_in: NotRequired[int]
    thinning: NotRequired[int]
    n_chains: NotRequired[int]


class Schedule(NamedTuple):
    """Sweeps of `n_chains` >= 1 chains: `burn_in` >= 0 sweeps without samples, then `n_samples` >= 1 samples, one after
    every `thinning`-th sweep."""

    n_samples: int = 100
    burn_in: int = 100
    thinning: int = 1
    n_chains: int = 1

    @property
    def n_sweeps(self) -> int:
        """Sweeps of each chain."""
        return self.burn_in + self.n_samples * self.thinning


class Sampler(Protocol):
    """One chain in some state."""

    @property
    def labels(self) -> IntArray:
        """(N,) component of each point, any integers >= 0."""

    def sweep(self) -> None:
        """Do one sweep."""

    def log_joint(self) -> float:
        """log p(x, labels) in nats, all else integrated out: a lower bound on the log evidence of its model."""

    def weights(self) -> tuple[Array, float]:
        """Expected weights (m,) of components 0..m-1 for the next point given labels, and the weight of empty ones."""


class Samples(NamedTuple):
    """Samples of all chains: S = n_chains * n_samples, chain after chain."""

    labels: IntArray  # (S, N) 0..K-1 by decreasing size
    weight: list[Array]  # S times (K,), expected weights in the order of the labels
    new_weight: Array  # (S,)
    trace: Array  # (C, 1 + n_sweeps) log joint after every sweep
    log_joint: Array  # (S,) nats


def run_chains(
    start: Callable[[], Sampler], n_points: int, schedule: Schedule, progress: ProgressCallback = None
) -> Samples:
    """Run chain after chain from `start`, with a call of `progress` after every sweep."""
    n_kept = schedule.n_chains * schedule.n_samples
    labels = np.empty((n_kept, n_points), dtype=np.int64)
    trace = np.empty((schedule.n_chains, 1 + schedule.n_sweeps))
    weights, new_weight, kept = [], np.empty(n_kept), 0
    for c in range(schedule.n_chains):
        sampler = start()
        trace[c, 0] = sampler.log_joint()
        for s in range(1, 1 + schedule.n_sweeps):
            sampler.sweep()
            trace[c, s] = sampler.log_joint()
            if s > schedule.burn_in and (s - schedule.burn_in) % schedule.thinning == 0:
                labels[kept] = by_size(sampler.labels)
                weight, new_weight[kept] = sampler.weights()
                weights.append(_in_order(weight, sampler.labels, labels[kept]))
                kept += 1
            if progress is not None:
                progress(_told(schedule, c, s, float(trace[c, s]), sampler.labels))
    ends = np.arange(1, schedule.n_samples + 1) * schedule.thinning + schedule.burn_in
    return Samples(labels, weights, new_weight, trace, trace[:, ends].ravel())


def as_fit(family: AnyFamily, x: Array, schedule: Schedule, samples: Samples) -> BatchFit:
    """The fit of a sampler; `pool_samples` gives the density averaged over samples.

    It is the sample of largest log joint: `stats` are its components, largest first, and `elbo` is its log joint, a
    lower bound on the log evidence of the sampler's model. `elbo_history` is the log joint of its chain after 0, 1, 2,
    ... sweeps. `converged` is False, as a sampler has no such test. In `extra`:

    * samples (S, N) int64, labels 0..K-1 by decreasing size; chain after chain.
    * log_joint (S,) nats; chain (S,) int64, which chain; best () int64, the sample that the fit holds.
    * trace (n_chains, 1 + sweeps): log joint after every sweep.
    * effective_sample_size (3,): of the functions in `FUNCTIONS`, over the samples kept.
    * weight (S, most components), padded with zeros, and new_weight (S,): expected weights given each sample.
    """
    best = int(np.argmax(samples.log_joint))
    widest = max(weight.size for weight in samples.weight)
    padded = np.zeros((len(samples.labels), widest))
    for row, weight in zip(padded, samples.weight, strict=True):
        row[: weight.size] = weight
    extra: dict[str, npt.NDArray[Any]] = {
        "samples": samples.labels,
        "log_joint": samples.log_joint,
        "chain": np.repeat(np.arange(schedule.n_chains), schedule.n_samples),
        "best": np.array(best),
        "trace": samples.trace,
        "effective_sample_size": _effective_sizes(samples, schedule),
        "weight": padded,
        "new_weight": samples.new_weight,
    }
    with np.errstate(divide="ignore"):  # in a truncated model where every component has a point no weight is left
        log_new_weight = float(np.log(samples.new_weight[best]))
    return BatchFit(
        stats=component_stats(family, x, samples.labels[best]),
        resp=None,
        log_weight=np.log(samples.weight[best]),
        log_new_weight=log_new_weight,
        elbo=float(samples.log_joint[best]),
        elbo_history=samples.trace[best // schedule.n_samples],
        elbo_is_exact=True,
        n_rounds=schedule.n_sweeps,
        converged=False,
        extra=extra,
    )


def drawn_labels(resp: Array, rng: np.random.Generator) -> IntArray:
    """A label drawn from each row of probabilities (N, T)."""
    cumulative = np.cumsum(resp, axis=1)
    drawn = (rng.random((len(resp), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)
    return np.asarray(np.minimum(drawn, resp.shape[1] - 1), dtype=np.int64)  # rounding may reach the upper end


def _in_order(weight: Array, labels: IntArray, ordered: IntArray) -> Array:
    """Weights (m,) by the numbers in `labels`, in the order of the numbers in `ordered`, (K,)."""
    result = np.empty(int(ordered.max()) + 1)
    result[ordered] = weight[labels]
    return result


def _effective_sizes(samples: Samples, schedule: Schedule) -> Array:
    sizes = np.array([np.bincount(labels).max() for labels in samples.labels])
    values = (samples.log_joint, samples.labels.max(axis=1) + 1, sizes)
    shape = (schedule.n_chains, schedule.n_samples)
    return np.array([effective_sample_size(np.asarray(v, dtype=np.float64).reshape(shape)) for v in values])


def _told(schedule: Schedule, c: int, s: int, value: float, labels: IntArray) -> Progress:
    done = c * schedule.n_sweeps + s
    message = f"chain {c + 1} of {schedule.n_chains}, {'burn-in' if s <= schedule.burn_in else 'sampling'}"
    used = int(np.count_nonzero(np.bincount(labels)))
    return Progress(done, value, used, message, done / (schedule.n_chains * schedule.n_sweeps))
