"""Evidence, divergence, merge gain and bound: quantities that follow from the contract, written once for all families.

Everything is computed row by row in blocks of components, so that temporaries stay within some tens of MiB.
Differences of log partitions are taken about the location of the component itself (`relative`), where a shift of the
data costs them no digits.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from shoal.families.base import ConjugateFamily, ParamsT, StatsT, concatenated, take
from shoal.kernels.distances import row_blocks
from shoal.points.arrays import Array, IntArray, read_only

BLOCK_ELEMENTS = 1 << 20
"""Elements of the statistics handled at once: 8 MiB, and a few times that in temporaries."""

_FEW_ELEMENTS = 1 << 14
"""Of so few a call costs more than the work on rows that are not asked for."""


class EstimatesCollapsedEvidence(Protocol):
    """A family with an estimate of its own of the mean evidence over uncertain labels."""

    def collapsed_evidence(self, stats: Any) -> Array:
        """See `collapsed_log_marginal`; log m itself where statistics are those of whole points."""


def log_marginal(family: ConjugateFamily[StatsT, ParamsT], stats: StatsT) -> Array:
    """log m(S_k) (K,), nats: the evidence of a component's points under the prior, A(posterior) - A(prior) + carrier.

    For soft statistics it is the component's term of the bound at the optimal q (ERRATA 0.3). 0 where there is no mass.
    """
    out = np.empty(len(stats[0]))
    prior = _of_nothing(cast(Hashable, family))
    for rows in _blocks(stats):
        block = take(stats, rows)
        posterior = family.relative(family.posterior(block), to=block)
        gain = family.log_partition(posterior) - family.log_partition(family.relative(prior, to=block))
        out[rows] = gain + family.log_carrier(family.relative(block, to=block))
    return out


@lru_cache(maxsize=8)
def _of_nothing(key: Hashable) -> Any:
    """The prior's parameters, one row, read-only: a refinement of few rows asks some hundred times."""
    family = cast(ConjugateFamily[Any, Any], key)
    params = family.posterior(family.empty_stats(1))
    return type(params)(*map(read_only, params))


def collapsed_log_marginal(family: ConjugateFamily[StatsT, ParamsT], stats: StatsT) -> Array:
    """An estimate of the mean over q(z) of log m(S_k(z)) (K,), nats, from its mean statistics `stats` alone.

    It is the term of a component in the bound with the components' parameters integrated out, as Teh, Newman and
    Welling (2007, "A collapsed variational Bayesian inference algorithm for latent Dirichlet allocation", section 3)
    have it; the `collapsed` engines (Kurihara, Welling and Teh 2007) integrate out the weights alone. Log m is convex
    in the statistics, so the mean of it is more than it is of their mean. Of families of counts it is far more: under a
    pseudo count of .001 a share of .01 in a word costs 2.4 nats, a chance of .01 to hold it .07. They give an estimate
    of their own (`collapsed_evidence`), which makes up for counts below one, and hardly for larger ones
    or long rows; for the others this is `log_marginal`. Weights that have decayed are taken as chances, too: each
    observation is there whole or not at all.
    """
    if not hasattr(family, "collapsed_evidence"):
        return log_marginal(family, stats)
    own = cast(EstimatesCollapsedEvidence, family)
    return np.concatenate([own.collapsed_evidence(take(stats, rows)) for rows in _blocks(stats)] or [np.empty(0)])


def scale_inplace(family: ConjugateFamily[StatsT, ParamsT], stats: StatsT, factor: float, n: int) -> None:
    """Every point's weight times `factor` > 0 in the first n rows: equal to `family.scale`, written over them.

    A family whose statistics are sums over points, but for a mean, declares `stats_are_sums` and is scaled in place.
    """
    if n == 0:
        return
    if not getattr(family, "stats_are_sums", False):
        rows = take(stats, slice(0, n))
        for field, scaled in zip(rows, family.scale(rows, factor), strict=True):
            field[...] = scaled
        return
    sums: Any = stats
    for name, field in zip(sums._fields, sums, strict=True):
        if name != "mean":
            live = field[:n]
            live *= factor
    mean, mass = getattr(stats, "mean", None), sums.mass[:n]
    if mean is not None and not mass[mass.argmin()]:  # what was forgotten altogether
        mean[:n][mass == 0.0] = 0.0


def kl(family: ConjugateFamily[StatsT, ParamsT], p: ParamsT, q: ParamsT) -> Array:
    """KL(p_k || q_k) (K,), nats, between the distributions of the parameter: a Bregman divergence of the log partition.

    (natural p - natural q) . E_p[statistic] - A(p) + A(q) >= 0 (Banerjee et al. 2005, appendix A); rounding is clipped.
    """
    out = np.empty(len(p[0]))
    for rows in _blocks(p):
        here = take(p, rows)
        near, far = family.relative(here, to=here), family.relative(take(q, rows), to=here)
        slope = np.einsum("kp,kp->k", family.natural(near) - family.natural(far), family.mean_params(near))
        out[rows] = slope - family.log_partition(near) + family.log_partition(far)
    return np.maximum(out, 0.0, out=out)


def expected_bound(family: ConjugateFamily[StatsT, ParamsT], stats: StatsT, params: ParamsT) -> Array:
    """E_q[log p(points | parameter)] - KL(q || prior) (K,), nats, for any q = params: `log_marginal` at its optimum."""
    return log_marginal(family, stats) - kl(family, params, family.posterior(stats))


def join_gain(
    family: ConjugateFamily[StatsT, ParamsT],
    stats: StatsT,
    i: IntArray,
    j: IntArray,
    evidence: Callable[[ConjugateFamily[StatsT, ParamsT], StatsT], Array] = log_marginal,
) -> Array:
    """log m(S_i + S_j) - log m(S_i) - log m(S_j) (P,), nats, for pairs of rows i (P,) and j (P,); `evidence` stands for
    log m, and may be `collapsed_log_marginal`."""
    first, second = np.asarray(i, dtype=np.int64), np.asarray(j, dtype=np.int64)
    n = len(stats[0])
    if (n + first.size) * sum(math.prod(field.shape[1:]) for field in stats) <= _FEW_ELEMENTS:
        joined = family.add(take(stats, first), take(stats, second))
        both = concatenated(stats, joined)
        value = evidence(family, both)
        return np.asarray(value[n:] - value[first] - value[second])
    used, position = np.unique(np.concatenate([first, second]), return_inverse=True)
    alone = np.empty(used.size)
    for rows in _blocks(stats, used.size):
        alone[rows] = evidence(family, take(stats, used[rows]))
    together = np.empty(first.size)
    for rows in _blocks(stats, first.size):
        joined = family.add(take(stats, first[rows]), take(stats, second[rows]))
        together[rows] = evidence(family, joined)
    return together - alone[position[: first.size]] - alone[position[first.size :]]


def _blocks(values: tuple[Any, ...], n_rows: int | None = None) -> Iterator[slice]:
    """Slices over the rows of Stats or Params (or over `n_rows` rows of that size), of bounded size."""
    elements = sum(math.prod(field.shape[1:]) for field in values)
    return row_blocks(len(values[0]) if n_rows is None else n_rows, elements, BLOCK_ELEMENTS)
