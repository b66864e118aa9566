"""The predictive density of a sampler: the average over its samples, as one mixture of their components.

The density of a sample is sum_k w_k t_k(x) + w_0 t_0(x), with the expected weights given its labels. They are
n_k / (alpha + N) and alpha / (alpha + N) under the Dirichlet process, and those of its sticks under truncation. The
average is a mixture of the components of all samples. A block of points that several samples share is kept once, with
the sum of its weights.
"""

import hashlib

import numpy as np

from shoal.families import AnyFamily, concatenated
from shoal.mixture import BatchFit, block_stats, blocks_of
from shoal.points.arrays import Array, IntArray

POOL_BYTES = 1 << 28
"""Most bytes of the statistics in a pool; beyond, only evenly spaced samples are used."""


def pool_samples(family: AnyFamily, x: Array, fit: BatchFit) -> BatchFit:
    """The average over the samples of a fit to x (N, D), as a mixture for `log_density`: M distinct blocks, by size.

    It is `fit` with `stats`, `log_weight` and `log_new_weight` of the M blocks, and no `resp`.
    """
    chosen = _thinned(family, np.asarray(fit.extra["samples"]))
    samples, weights = fit.extra["samples"][chosen], fit.extra["weight"][chosen]
    weight: dict[bytes, float] = {}
    members: dict[bytes, IntArray] = {}
    for labels, shares in zip(samples, weights, strict=True):
        for k, rows in enumerate(blocks_of(labels)):
            key = hashlib.blake2b(rows.tobytes(), digest_size=16).digest()
            weight[key] = weight.get(key, 0.0) + float(shares[k])
            members.setdefault(key, rows)
    order = sorted(members, key=lambda key: -members[key].size)
    stats = concatenated(*(block_stats(family, x, members[key]) for key in order))
    share = np.array([weight[key] for key in order]) / len(samples)
    with np.errstate(divide="ignore"):  # where every stick of every sample holds a point
        log_new_weight = float(np.log(fit.extra["new_weight"][chosen].mean()))
    return fit._replace(stats=stats, log_weight=np.log(share), log_new_weight=log_new_weight, resp=None)


def _thinned(family: AnyFamily, samples: IntArray) -> slice:
    """Evenly spaced samples, as many as fit the pool by an upper bound; at least one."""
    row_bytes = sum(field.nbytes for field in family.empty_stats(1))
    total = row_bytes * float((samples.max(axis=1) + 1).sum())
    return slice(None, None, max(1, int(np.ceil(total / POOL_BYTES))))
