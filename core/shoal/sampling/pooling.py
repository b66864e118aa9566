"""From sampled partitions to one predictive density: the average over samples, as one mixture of their components.

Each sample predicts by (sum_k n_k t_k(x) + alpha t_0(x)) / (alpha + N); the average of these is a mixture of all the
samples' components. Samples share many blocks of points, and a block that several share is kept once with its weight.
"""

import hashlib
from typing import Any

import numpy as np

from shoal.arrays import Array, IntArray
from shoal.families import AnyFamily
from shoal.mixture.batch import BatchFit

POOL_BYTES = 1 << 28
"""Most memory of the statistics in a pool; beyond it, samples are left out evenly."""


def component_stats(family: AnyFamily, x: Array, labels: IntArray) -> Any:
    """Statistics of the blocks 0..K-1 of a partition `labels` (N,) of points x (N, D): K rows."""
    blocks = _blocks(labels)
    return _stack(family, [_block_stats(family, x, rows) for rows in blocks])


def pool_samples(family: AnyFamily, x: Array, fit: BatchFit, concentration: float) -> BatchFit:
    """The average over the samples of a sampler's fit, as a mixture for `log_density`: M distinct blocks, by size.

    `fit` with `stats` and `log_weight` of the M blocks in place of those of one sample, and no `resp`.
    """
    samples = _thinned(family, np.asarray(fit.extra["samples"]))
    weight: dict[bytes, float] = {}
    members: dict[bytes, IntArray] = {}
    for labels in samples:
        for rows in _blocks(labels):
            key = hashlib.blake2b(rows.tobytes(), digest_size=16).digest()
            weight[key] = weight.get(key, 0.0) + rows.size
            members.setdefault(key, rows)
    order = sorted(members, key=lambda key: -members[key].size)
    stats = _stack(family, [_block_stats(family, x, members[key]) for key in order])
    share = np.array([weight[key] for key in order]) / (len(samples) * (concentration + len(x)))
    return fit._replace(stats=stats, log_weight=np.log(share), resp=None)


def _thinned(family: AnyFamily, samples: IntArray) -> IntArray:
    """As many samples, evenly spaced, as surely fit the pool; at least one."""
    row_bytes = sum(field.nbytes for field in family.empty_stats(1))
    total = row_bytes * float((samples.max(axis=1) + 1).sum())
    stride = max(1, int(np.ceil(total / POOL_BYTES)))
    return samples[::stride]


def _blocks(labels: IntArray) -> list[IntArray]:
    """The points of each block, ascending, by label 0..K-1."""
    order = np.argsort(labels, kind="stable")
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])


def _block_stats(family: AnyFamily, x: Array, rows: IntArray) -> Any:
    return family.suffstats(x[rows], np.ones((rows.size, 1)))


def _stack(family: AnyFamily, single: list[Any]) -> Any:
    kind = type(family.empty_stats(0))
    return kind(*(np.concatenate(field) for field in zip(*single, strict=True)))
