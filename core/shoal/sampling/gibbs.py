"""Collapsed Gibbs sampling as a batch engine: chains, burn-in, thinning, and the best partition met.

Neal (2000), "Markov chain sampling methods for Dirichlet process mixture models", algorithm 3, points in the order
given. A chain starts with each point drawn given those before it, unless it is told otherwise. All randomness comes
from the generator passed in, chain after chain.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.arrays import Array, IntArray
from shoal.families import AnyFamily
from shoal.mixture.batch import BatchFit, Progress, ProgressCallback
from shoal.sampling.chain import Chain, live_stats, log_joint, start_chain, sweep_inplace
from shoal.sampling.pooling import component_stats


def fit_gibbs(
    family: AnyFamily,
    x: Array,
    *,
    concentration: float = 1.0,
    n_samples: int = 100,
    burn_in: int = 100,
    thinning: int = 1,
    n_chains: int = 1,
    resp_init: Array | None = None,
    rng: np.random.Generator,
    progress: ProgressCallback = None,
) -> BatchFit:
    """Sample partitions of points x (N, D) from the posterior.

    Each of `n_chains` >= 1 chains makes `burn_in` >= 0 sweeps that count for nothing, then keeps the state after every
    `thinning`-th sweep, `n_samples` >= 1 times. `resp_init` (N, T), rows summing to one: every chain starts at labels
    drawn from it. Cost a sweep: N times one score of every component.

    The fit holds the sample of largest log joint: `stats` its components, largest first, `elbo` its log p(x,
    partition), which is a lower bound on the log evidence; `elbo_history` the log joint of its chain after 0, 1, 2,
    ... sweeps (without `resp_init` the start is the first draw of all points). `converged` is False: a sampler cannot
    tell. `pool_samples` gives the density averaged over samples. In `extra`, with S = n_chains * n_samples:

    * samples (S, N) int64, labels 0..K-1 by decreasing size; chain after chain.
    * log_joint (S,) nats; chain (S,) int64, which chain; best () int64, the sample that the fit holds.
    * trace (n_chains, 1 + burn_in + n_samples * thinning): log joint after every sweep.
    """
    n_sweeps = burn_in + n_samples * thinning
    samples = np.empty((n_chains * n_samples, len(x)), dtype=np.int64)
    trace = np.empty((n_chains, 1 + n_sweeps))
    kept = np.arange(1, n_samples + 1) * thinning + burn_in
    for c in range(n_chains):
        chain = _first_state(family, concentration, x, resp_init, rng)
        trace[c, 0] = log_joint(family, concentration, live_stats(chain))
        for s in range(1, 1 + n_sweeps):
            sweep_inplace(family, concentration, chain, x, rng.random(len(x)))
            trace[c, s] = log_joint(family, concentration, live_stats(chain))
            if s > burn_in and (s - burn_in) % thinning == 0:
                samples[c * n_samples + (s - burn_in) // thinning - 1] = by_size(chain.labels)
            if progress is not None:
                done = (c * n_sweeps + s) / (n_chains * n_sweeps)
                message = f"chain {c + 1} of {n_chains}, {'burn-in' if s <= burn_in else 'sampling'}"
                progress(Progress(c * n_sweeps + s, float(trace[c, s]), chain.n_components, message, done))
    values = trace[:, kept].ravel()
    best = int(np.argmax(values))
    extra: dict[str, npt.NDArray[Any]] = {
        "samples": samples,
        "log_joint": values,
        "chain": np.repeat(np.arange(n_chains), n_samples),
        "best": np.array(best),
        "trace": trace,
    }
    stats = component_stats(family, x, samples[best])
    total = concentration + len(x)
    return BatchFit(
        stats=stats,
        resp=None,
        log_weight=np.log(stats[0] / total),
        log_new_weight=float(np.log(concentration / total)),
        elbo=float(values[best]),
        elbo_history=trace[best // n_samples],
        elbo_is_exact=True,
        n_rounds=n_sweeps,
        converged=False,
        extra=extra,
    )


def by_size(labels: IntArray) -> IntArray:
    """The same partition (N,) with labels 0..K-1 by decreasing size, equals in order of their first point."""
    _, first, inverse, counts = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -counts))
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    return rank[inverse]


def _first_state(
    family: AnyFamily, concentration: float, x: Array, resp_init: Array | None, rng: np.random.Generator
) -> Chain:
    """A chain whose statistics are in place: after the first draw of all points, or at labels drawn from resp_init."""
    if resp_init is None:
        chain = start_chain(family, np.full(len(x), -1))
        sweep_inplace(family, concentration, chain, x, rng.random(len(x)))
        return chain
    cumulative = np.cumsum(resp_init, axis=1)
    drawn = (rng.random((len(x), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)
    chain = start_chain(family, np.minimum(drawn, resp_init.shape[1] - 1))  # rounding may reach the upper end
    stats = component_stats(family, x, chain.labels)
    for field, rows in zip(chain.stats, stats, strict=True):
        field[: chain.n_components] = rows
    return chain
