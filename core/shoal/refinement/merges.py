"""Joining components: the exact change of the bound, by closed form, and the joins worth a look.

The joined component has the sum of both responsibilities in every row; the change is

    log m(S_a + S_b) - log m(S_a) - log m(S_b) + label terms - E_ab(window) - E_ab(past).
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import join_gain, take
from shoal.families.capabilities import fast_log_marginal
from shoal.mixture.candidates import candidate_pairs
from shoal.points.arrays import Array, IntArray
from shoal.process import join_label_gain
from shoal.refinement.divide_kernel import pair_entropies
from shoal.refinement.ground import Ground
from shoal.refinement.held import joined as past_joined
from shoal.refinement.sweeps import Model, State, bound_of, regrouped

_LEAST_MASS = 1.0
"""Weighted window rows below which a component is no candidate: what is old and unseen is left alone."""


class Joins(NamedTuple):
    """Pairs of components and what joining each alone would change."""

    first: IntArray  # (P,)
    second: IntArray  # (P,)
    gain: Array  # (P,) nats
    entropies: Array  # (T, T) of the window, nats


def entropies_of(ground: Ground, state: State) -> Array:
    """E (T, T) of the window's responsibilities, nats."""
    return between_pairs(state.resp, ground.weights)


def between_pairs(resp: csr_matrix, weights: Array) -> Array:
    """E (T, T) of responsibilities (N, T) times `weights` (N,), nats."""
    found: Array = pair_entropies(resp.indptr, resp.indices, resp.data, weights, resp.shape[1])
    return found


def joins_of(ground: Ground, model: Model, state: State) -> Joins:
    """The pairs of every component with the two that overlap it most and the two nearest, and their gains."""
    entropies = entropies_of(ground, state)
    nothing = np.zeros(0, dtype=np.int64)
    if state.n_components < 2:
        return Joins(nothing, nothing, np.zeros(0), entropies)
    both = entropies + state.held.pairs
    first, second = candidate_pairs(model.family, state.stats, both)
    seen = (state.window_mass[first] > _LEAST_MASS) & (state.window_mass[second] > _LEAST_MASS)
    first, second = first[seen], second[seen]
    gain = join_gain(model.family, state.stats, first, second, fast_log_marginal)
    gain = gain + join_label_gain(state.mass, model.concentration, first, second) - both[first, second]
    return Joins(first, second, gain, entropies)


def join_all(ground: Ground, model: Model, state: State) -> tuple[State, list[tuple[int, int, int]], Joins]:
    """Joins that gain, the best first, until there is none; with them the tags (joined, joined, made) of each, and the
    joins that are left."""
    told: list[tuple[int, int, int]] = []
    while True:
        joins = joins_of(ground, model, state)
        chosen: list[int] = []
        taken: set[int] = set()
        for p in np.argsort(-joins.gain, kind="stable"):
            pair = {int(joins.first[p]), int(joins.second[p])}
            if joins.gain[p] > 0.0 and not pair & taken:
                chosen.append(int(p))
                taken |= pair
        before = state
        tags = state.tags
        for p in chosen:
            a, b = int(tags[joins.first[p]]), int(tags[joins.second[p]])
            i, j = int(np.flatnonzero(state.tags == a)[0]), int(np.flatnonzero(state.tags == b)[0])
            tried = join(model, state, i, j, float(joins.entropies[joins.first[p], joins.second[p]]))
            if tried.bound > state.bound:  # label terms of several joins do not quite add up
                state = tried
                told.append((a, b, int(tried.tags[min(i, j)])))
        if state is before:
            break
    return state, told, joins


def join(model: Model, state: State, i: int, j: int, entropy: float) -> State:
    """The state with two components made one, in the place of the first; `entropy` is E_ij of the window."""
    i, j = min(i, j), max(i, j)
    groups = np.arange(state.n_components)
    groups[j] = i
    groups[j + 1 :] -= 1
    both = model.family.add(take(state.stats, [i]), take(state.stats, [j]))
    keep = np.arange(state.n_components) != j
    stats = take(state.stats, keep)
    for field, value in zip(stats, both, strict=True):
        field[i] = value[0]
    mass = state.window_mass[keep]
    mass[i] += state.window_mass[j]
    held = past_joined(model.family, state.held, i, j)
    tags = state.tags[keep]
    tags[i] = state.tags.max() + 1
    left = max(state.entropy - entropy, 0.0)
    resp = regrouped(state, groups, state.n_components - 1)
    bound = bound_of(model, stats, left + held.entropy)
    return State(stats, resp, mass, held, left, state.dropped, tags, bound)
