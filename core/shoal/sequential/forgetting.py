"""Forgetting: every point's weight halves in each half-life, and components that nothing feeds any more are retired.

The decay is a factor on all that is summed over points (statistics, pair sums, counts). It is applied every 32nd of a
half-life, at absolute offsets, instead of at each point: the weight of a point is then within 2.2 % of what it
would be, either way, and equal for all points of one step. The prior is not made of points and never decays.
"""

import numpy as np

from shoal.families import scale_inplace
from shoal.mixture import Event, MixtureState, prune_inplace
from shoal.mixture.marks import decay_mark_inplace
from shoal.sequential.schedule import decay_step, next_decay

LEAST_MASS = 0.5
"""Components of less decayed mass are retired."""

IDLE_HALF_LIVES = 2
"""So are those that have been the best of no point for so many half-lives."""

_FEW_POINTS = 256
"""Up to so many points Python adds ones sooner than NumPy does."""


def counted(decayed_count: float, n: int) -> float:
    """The count after n more points of weight one each, added one by one: the same to the bit for any cut of the
    stream."""
    if decayed_count.is_integer():
        return decayed_count + n
    if n <= _FEW_POINTS:
        for _ in range(n):
            decayed_count += 1.0
        return decayed_count
    return float(np.add.accumulate(np.concatenate([[decayed_count], np.ones(n)]))[-1])


def decay_inplace(state: MixtureState) -> tuple[MixtureState, tuple[Event, ...]]:
    """The decay that is due at `points_seen`, with the retirements that follow from it. Leaves `work` stale.

    Keeps the sum of masses plus `pruned_mass` equal to `decayed_count`; what is retired goes into `pruned_mass`.
    """
    half_life = state.settings.half_life
    assert half_life is not None, "only a stream with a half-life decays"
    assert state.prior is not None, "a decay comes after the first points"
    factor = 2.0 ** (-decay_step(half_life) / half_life)
    n = state.n_components
    scale_inplace(state.prior, state.stats, factor, n)
    pairs = state.pairs[:n, :n]  # (0, 0) where none are kept
    pairs *= factor
    past, mid = (
        None if mark is None else decay_mark_inplace(mark, state.prior, n, factor) for mark in (state.past, state.mid)
    )
    state = state._replace(
        decayed_count=state.decayed_count * factor,
        pruned_mass=state.pruned_mass * factor,
        next_decay=next_decay(state.points_seen, half_life),
        past=past,
        mid=mid,
    )
    idle = state.points_seen - state.last_seen_at[:n] > IDLE_HALF_LIVES * half_life
    return prune_inplace(state, (state.stats[0][:n] < LEAST_MASS) | idle)
