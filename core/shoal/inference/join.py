"""Joins of components: the exact change of the bound, by closed form, and the joins worth valuing.

The joined component has the sum of both responsibilities in every row. The change is

    log m(S_a + S_b) - log m(S_a) - log m(S_b) + label terms - E_ab(window) - E_ab(past)

with E_ab the entropy of the responsibilities between the two.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import join_gain, take
from shoal.families.capabilities import fast_log_marginal
from shoal.inference.data import WindowData
from shoal.inference.label_terms import join_gains
from shoal.inference.past import join_past
from shoal.inference.sweep import Model, State, bound_of, regrouped
from shoal.mixture import candidate_pairs
from shoal.points.arrays import Array, IntArray

_LEAST_MASS = 1.0
"""Weighted window rows below which a component is no candidate: components that the window has not seen stay."""


class Joins(NamedTuple):
    """Pairs of components, and the change of the bound by joining each alone."""

    first: IntArray  # (P,)
    second: IntArray  # (P,)
    gain: Array  # (P,) nats
    entropies: Array  # (T, T) of the window, nats


class Joined(NamedTuple):
    """A join that was made, by tags."""

    first: int
    second: int
    made: int


def pair_entropies(resp: csr_matrix, weights: Array) -> Array:
    """E (T, T), symmetric, nats: sum_i w_i [(u + v) log(u + v) - u log u - v log v] over rows with entries u, v > 0."""
    from shoal.inference.pair_entropy_kernel import sum_pair_entropies

    found: Array = sum_pair_entropies(resp.indptr, resp.indices, resp.data, weights, resp.shape[1])
    return found


def joins_of(data: WindowData, model: Model, state: State) -> Joins:
    """The pairs of every component with the two that overlap it most and the two nearest, and their gains."""
    entropies = pair_entropies(state.resp, data.weights)
    none = np.zeros(0, dtype=np.int64)
    if state.n_components < 2:
        return Joins(none, none, np.zeros(0), entropies)
    both = entropies + state.past.pairs
    first, second = candidate_pairs(model.family, state.stats, both)
    seen = (state.window_mass[first] > _LEAST_MASS) & (state.window_mass[second] > _LEAST_MASS)
    first, second = first[seen], second[seen]
    gain = join_gain(model.family, state.stats, first, second, fast_log_marginal)
    gain = gain + join_gains(model.sticks, state.mass, first, second) - both[first, second]
    return Joins(first, second, gain, entropies)


def join_all(data: WindowData, model: Model, state: State) -> tuple[State, list[Joined], Joins]:
    """Joins that gain, the best first, until there is none; the joins made, and those that are left."""
    made: list[Joined] = []
    while True:
        joins = joins_of(data, model, state)
        chosen: list[int] = []
        taken: set[int] = set()
        for p in np.argsort(-joins.gain, kind="stable"):
            pair = {int(joins.first[p]), int(joins.second[p])}
            if joins.gain[p] > 0.0 and not pair & taken:
                chosen.append(int(p))
                taken |= pair
        before, tags = state, state.tags
        for p in chosen:
            a, b = int(tags[joins.first[p]]), int(tags[joins.second[p]])
            i, j = int(np.flatnonzero(state.tags == a)[0]), int(np.flatnonzero(state.tags == b)[0])
            tried = join(model, state, i, j, float(joins.entropies[joins.first[p], joins.second[p]]))
            if tried.bound > state.bound:  # label terms of several joins do not quite add up
                state = tried
                made.append(Joined(a, b, int(tried.tags[min(i, j)])))
        if state is before:
            return state, made, joins


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
    past = join_past(model.family, state.past, i, j)
    tags = state.tags[keep]
    tags[i] = state.tags.max() + 1
    left = max(state.entropy - entropy, 0.0)
    resp = regrouped(state.resp, groups, state.n_components - 1)
    bound = bound_of(model, stats, left + past.entropy)
    return State(stats, resp, mass, past, left, state.dropped, tags, bound)
