"""Forgetting: every point's weight halves in each half-life, and components that nothing feeds any more are retired.

The decay is a factor on all that is summed over points (statistics, pair sums, counts). It is applied every 32nd of a
half-life, at absolute offsets, instead of at each point: the weight of a point is then within 2.2 % of what it
would be, either way, and equal for all points of one step. The prior is not made of points and never decays.
"""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from shoal.families import scale_inplace
from shoal.families.capabilities import has_scatter
from shoal.mixture import (
    STEPS,
    Event,
    MixtureState,
    decay_step,
    half_lives_ago,
    next_decay,
    prune_inplace,
    spared,
    stats_at_offsets,
    with_archived,
    with_weight_lost,
)
from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled, kernel

LEAST_MASS = 0.5
"""Components of less decayed mass are retired."""

IDLE_HALF_LIVES = 2
"""So are those that have been the best of no point for so many half-lives."""


class DecayedSums(NamedTuple):
    """Sums over points that decay, of C live components or of statistics at an earlier offset."""

    mass: Array  # (C,)
    others: Array  # (C, P) scatter
    pairs: Array  # (C, C) sums over pairs of components, or (0, 0) where none are kept


GivenSums: TypeAlias = tuple[Array, Array, Array]
"""The fields of `DecayedSums`: a plain tuple reaches a kernel in half the time of a named one (`kernel.sva_pass`)."""

_NOTHING: GivenSums = np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0))
"""Sums where no earlier statistics are kept."""


@compiled()
def _weaken(sums: DecayedSums, n: int, factor: float) -> bool:
    """Multiply the first n rows by `factor`. Returns whether some mass has become zero."""
    gone = False
    for k in range(min(n, sums.mass.size)):
        before = sums.mass[k]
        sums.mass[k] = before * factor
        gone = gone or (before > 0.0 and not sums.mass[k] > 0.0)
        for a in range(sums.others.shape[1]):
            sums.others[k, a] *= factor
    for k in range(min(n, sums.pairs.shape[0])):
        for j in range(n):
            sums.pairs[k, j] *= factor
    return bool(gone)


@kernel(makes_arrays=False)
def weaken_all(
    live: GivenSums,
    past: GivenSums,
    mid: GivenSums,
    last_seen_at: IntArray,
    n: int,
    factor: float,
    seen_before: int,
    least_mass: float,
) -> bool:
    """Multiply every point's weight by `factor` in the first n rows of live and earlier statistics, in place.

    Returns whether a component is light, or was last seen before `seen_before`, or has a mass that has become zero.
    """
    gone = _weaken(DecayedSums(*live), n, factor)
    gone = _weaken(DecayedSums(*past), n, factor) or gone
    gone = _weaken(DecayedSums(*mid), n, factor) or gone
    for k in range(n):
        gone = gone or live[0][k] < least_mass or last_seen_at[k] < seen_before
    return bool(gone)


def counted(decayed_count: float, n: int, weights: Array | None = None) -> float:
    """The count after n more points of weight one each, or of `weights` (n,), added one by one: the same to the bit for
    any cut of the stream."""
    if weights is None and _adds_exactly(decayed_count, n):
        return decayed_count + n
    return float(_added(decayed_count, n, weights)[-1])


def counts_before(decayed_count: float, n: int, weights: Array | None = None) -> Array:
    """The count (n,) before each of the points that `counted` adds."""
    if weights is None and _adds_exactly(decayed_count, n):
        return np.asarray(decayed_count + np.arange(n), dtype=np.float64)
    return _added(decayed_count, n, weights)[:-1]


def _adds_exactly(decayed_count: float, n: int) -> bool:
    """Whether a sum of n ones on top is not rounded: below the next power of two, or between integers."""
    return decayed_count.is_integer() or math.frexp(decayed_count + n)[1] == math.frexp(decayed_count)[1]


def _added(decayed_count: float, n: int, weights: Array | None) -> Array:
    """The count (n + 1,) before the first point, and after each."""
    added: Array = np.add.accumulate(np.concatenate([[decayed_count], np.ones(n) if weights is None else weights]))
    return added


def decay_inplace(
    state: MixtureState, steps: int = 1, *, retires: bool = True
) -> tuple[MixtureState, tuple[Event, ...]]:
    """The decay that is due at `points_seen`, with the retirements that follow from it. Leaves `cache` stale.

    Where the half-life is a time, the decay is by `steps` 32nds of it. Keeps the sum of masses plus `pruned_mass` equal
    to `decayed_count`; what is retired goes into `pruned_mass`.
    """
    half_life = state.settings.half_life_points
    assert state.prior is not None, "a decay comes after the first points"
    factor = 2.0 ** (-steps / STEPS if half_life is None else -decay_step(half_life) / half_life)
    idle_from = half_lives_ago(state, IDLE_HALF_LIVES)
    if has_scatter(state.prior):
        some = _weaken_by_kernel_inplace(state, factor, idle_from)
    else:
        some = True
        _weaken_inplace(state, factor)
    past, mid = (None if kept is None else with_weight_lost(kept, factor) for kept in (state.past, state.mid))
    state = state._replace(
        decayed_count=state.decayed_count * factor,
        pruned_mass=state.pruned_mass * factor,
        next_decay=next_decay(state.points_seen, half_life),
        past=past,
        mid=mid,
    )
    if not some or not retires:
        return state, ()
    return retire_forgotten_inplace(state)


def retire_forgotten_inplace(state: MixtureState) -> tuple[MixtureState, tuple[Event, ...]]:
    """The state without the components that have too little mass or are fed no more. Leaves `cache` stale."""
    n, idle_from = state.n_components, half_lives_ago(state, IDLE_HALF_LIVES)
    retiring = spared(state, (state.stats[0][:n] < LEAST_MASS) | (state.last_seen_at[:n] < idle_from))
    return prune_inplace(with_archived(state, retiring), retiring)


def _weaken_inplace(state: MixtureState, factor: float) -> None:
    """Every point's weight times `factor` in live and earlier statistics."""
    n, prior = state.n_components, state.prior
    assert prior is not None
    for stats, pairs in ((state.stats, state.pairs), *((kept.stats, kept.pairs) for kept in stats_at_offsets(state))):
        scale_inplace(prior, stats, factor, n)
        between = pairs[:n, :n]  # (0, 0) where none are kept
        between *= factor


def _weaken_by_kernel_inplace(state: MixtureState, factor: float, idle_from: float) -> bool:
    """The same, to the bit. Returns whether any component may have to go."""
    n = state.n_components
    earlier = [_NOTHING if kept is None else _sums(kept.stats, kept.pairs) for kept in (state.past, state.mid)]
    live = _sums(state.stats, state.pairs)
    some = bool(weaken_all(live, *earlier, state.last_seen_at, n, factor, math.ceil(idle_from), LEAST_MASS))
    if some:
        for stats in (state.stats, *(kept.stats for kept in stats_at_offsets(state))):
            stats.mean[:n][stats.mass[:n] == 0.0] = 0.0  # what was forgotten altogether
    return some


def _sums(stats: Any, pairs: Array) -> GivenSums:
    return stats.mass, stats.scatter.reshape(len(stats.mass), -1), pairs


def decay_call(stats: Any) -> tuple[Any, tuple[Any, ...]]:
    """The kernel, and arguments of the types that a stream of these statistics, of a Gaussian family, calls it with."""
    live = _sums(stats, np.zeros((0, 0)))
    return weaken_all, (live, _NOTHING, _NOTHING, np.zeros(1, dtype=np.int64), 1, 1.0, 0, 0.0)
