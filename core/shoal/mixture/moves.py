"""Moves that change the set of components: the merge by the bound, and the paper's prune and merge.

All consume `state` (its arrays are rewritten), and keep the order of rows and the sum of masses plus pruned mass. They
return the new state with events at offset `points_seen`. `cache` is stale in the rows of survivors: the caller computes
it again from the statistics.
"""

import heapq

import numpy as np

from shoal.families import AnyFamily, collapsed_log_marginal, join_gain
from shoal.mixture.join_candidates import candidate_pairs, join_ceiling
from shoal.mixture.joins import Join, finish_joins_inplace, join_inplace, prune_inplace
from shoal.mixture.lineage import Event
from shoal.mixture.state import MixtureState, live_rows
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.process import join_label_ceiling, join_label_gain

LEAST_GAIN = 1e-6
"""Nats by which the bound must rise: rounding of the log marginals of 10^7 points reaches 10^-7."""

MOST_PARTNERS = 8
"""Most pairs of a survivor whose gains are computed again after a join. With all partners of both rows, a row that
absorbs K others would cost K^2 gains. Pairs left out are candidates again in the next sweep."""


def merge_gain(state: MixtureState, i: IntArray, j: IntArray) -> Array:
    """Change of the bound (P,) when rows i[p] and j[p] become one, in nats; needs pair rule `entropy`.

    It is log m(S_i + S_j) - log m(S_i) - log m(S_j) - E_ij plus the change of the free-stick label terms after sorting.
    It is the exact change until a join involves row i or j, and at most the exact change after, since E is then an
    upper bound.

    For families of counts log m is an estimate of its mean over hard assignments (`collapsed_log_marginal`). The gain
    is then an estimate too, too high or too low. One pass divides points by predictive densities, not by E log theta as
    mean field does. Rare words then have small shares in all components, which cost the mean-field bound thousands of
    nats: it would rise with every join.
    """
    mass = state.stats[0][: state.n_components]
    return _own_gain(state, i, j) + join_label_gain(mass, state.settings.concentration, i, j)


def _own_gain(state: MixtureState, i: IntArray, j: IntArray) -> Array:
    """The gain without the label terms, which depend on all masses. It is constant while neither row changes."""
    gain = join_gain(_family(state), live_rows(state.stats, state.n_components), i, j, collapsed_log_marginal)
    return np.asarray(gain - state.pairs[i, j])


def merge_by_bound_inplace(state: MixtureState) -> tuple[MixtureState, tuple[Event, ...]]:
    """Join pairs while the bound rises: best first, until no candidate pair gains (`candidate_pairs`).

    After a refinement only pairs with a component born later are candidates. The refinement has tested the others on
    the points of the window, while the stream has only one sum for each pair. Needs pair rule `entropy`. Each accepted
    join raises the exact bound by at least its computed gain; for families of counts, by about that. A kernel first
    tests whether any pair can gain.
    """
    events: list[Event] = []
    while state.n_components > 1:
        if join_ceiling(state, _fresh(state), LEAST_GAIN) < LEAST_GAIN:
            break
        state, found = _merge_sweep_inplace(state)
        if not found:
            break
        events.extend(found)
    return state, tuple(events)


def _merge_sweep_inplace(state: MixtureState) -> tuple[MixtureState, tuple[Event, ...]]:
    """One set of candidates, best first.

    After a join the gains of its pairs are computed again. Other pairs keep their own part, and their label part is
    computed again when they are next. So every accepted gain holds for the state at that time.
    """
    n = state.n_components
    return merge_pairs_inplace(
        state, *candidate_pairs(_family(state), live_rows(state.stats, n), state.pairs[:n, :n], _fresh(state))
    )


def merge_pairs_inplace(state: MixtureState, i: IntArray, j: IntArray) -> tuple[MixtureState, tuple[Event, ...]]:
    """Join the pairs of rows i, j (P,), i[p] < j[p], that gain, best first; after a join, the partners of both, too."""
    queue = _Queue(state, i, j)
    joins: list[Join] = []
    while (pair := queue.pop_best()) is not None:
        joins.append(join_inplace(state, *pair))
        queue.joined(joins[-1].survivor, joins[-1].absorbed)
    return finish_joins_inplace(state, joins)


def _fresh(state: MixtureState) -> BoolArray | None:
    """The components (K,) born since the last refinement, or None where there was none."""
    if state.monitor is None or state.schedule.adopted == 0:
        return None
    return np.asarray(state.monitor.settled_at[: state.n_components] == 0)


class _Queue:
    """Candidate pairs by gain. An entry is (-gain, i, j, own part, number of joins so far, versions of i and j)."""

    def __init__(self, state: MixtureState, i: IntArray, j: IntArray) -> None:
        self._state = state
        self._mass = state.stats[0][: state.n_components]  # a view; absorbed rows fall to 0, which adds nothing to L
        self._versions = [0] * state.n_components
        self._joins = 0
        self._partners: list[set[int]] = [set() for _ in range(state.n_components)]
        for a, b in zip(i.tolist(), j.tolist(), strict=True):
            self._partners[a].add(b)
            self._partners[b].add(a)
        self._heap: list[tuple[float, int, int, float, int, int, int]] = []
        self._queue(i, j, _own_gain(state, i, j))

    def _queue(self, i: IntArray, j: IntArray, own: Array) -> None:
        """Add the pairs that gain. A cheap upper bound on the label terms excludes most."""
        ceiling = join_label_ceiling(self._mass, self._state.settings.concentration, i, j)
        hopeful = np.flatnonzero(own + ceiling > LEAST_GAIN)
        if hopeful.size == 0:
            return
        gain = own[hopeful] + self._label_gain(i[hopeful], j[hopeful])
        for p, value in zip(hopeful.tolist(), gain.tolist(), strict=True):
            if value > LEAST_GAIN:
                self._push(value, int(i[p]), int(j[p]), float(own[p]))

    def _label_gain(self, i: IntArray, j: IntArray) -> Array:
        return join_label_gain(self._mass, self._state.settings.concentration, i, j)

    def _push(self, gain: float, a: int, b: int, own: float) -> None:
        heapq.heappush(self._heap, (-gain, a, b, own, self._joins, self._versions[a], self._versions[b]))

    def pop_best(self) -> tuple[int, int] | None:
        """The pair that gains most in the present state, or None when none gains."""
        while self._heap:
            _, a, b, own, joins, version_a, version_b = heapq.heappop(self._heap)
            if version_a != self._versions[a] or version_b != self._versions[b]:
                continue
            if joins == self._joins:
                return a, b
            gain = own + float(self._label_gain(np.array([a]), np.array([b]))[0])
            if gain > LEAST_GAIN:
                self._push(gain, a, b, own)
        return None

    def joined(self, survivor: int, absorbed: int) -> None:
        """Update after a join: the survivor inherits the best partners of both rows, with new gains."""
        self._joins += 1
        self._versions[survivor] += 1
        self._versions[absorbed] += 1
        union = (self._partners[survivor] | self._partners[absorbed]) - {survivor, absorbed}
        for other in union:
            self._partners[other] -= {survivor, absorbed}
        fresh = _fresh(self._state)
        if fresh is not None and not fresh[survivor]:
            union = {other for other in union if fresh[other]}
        others = np.array(sorted(union), dtype=np.int64)
        own = _own_gain(self._state, np.full(others.size, survivor), others)
        best = np.argsort(-own, kind="stable")[:MOST_PARTNERS]
        self._partners[survivor], self._partners[absorbed] = set(others[best].tolist()), set()
        for other in self._partners[survivor]:
            self._partners[other].add(survivor)
        self._queue(np.full(best.size, survivor), others[best], own[best])


def prune_and_merge_inplace(state: MixtureState) -> tuple[MixtureState, tuple[Event, ...]]:
    """Prune light components, then join the closest pairs: the rule of Lin (2013), section 3.3. Needs rule `overlap`.

    Pruned: relative weight w_k / sum of live w below `prune_threshold` (ERRATA 5.13). Joined, closest first: d(k, l) =
    (w_k + w_l - 2 M_kl) / i below `merge_threshold`, i being the (decayed) count of all points: the distance of ERRATA
    5.11 from running sums.
    See `joins` for M after a join. This is no distance between the components themselves (ERRATA 5.10).
    """
    n = state.n_components
    if n < 2:
        return state, ()
    mass = state.stats[0][:n]
    state, pruned = prune_inplace(state, mass < state.settings.prune_threshold * float(mass.sum()))
    closest = _Closest(state)
    joins: list[Join] = []
    while (pair := closest.pop(state.settings.merge_threshold)) is not None:
        joins.append(join_inplace(state, *pair))
        closest.joined(joins[-1].survivor, joins[-1].absorbed)
    state, merged = finish_joins_inplace(state, joins)
    return state, pruned + merged


class _Closest:
    """The closest pair under a matrix of distances in which one row changes at a time.

    A pair is in two rows. The row that changed last has its distance, and `_least` of that row never exceeds it. So the
    smallest of `_least` is never above the distance of the closest pair. Where its partner has changed, the row is
    searched again when it is next. Memory O(K^2), a join usually O(K).
    """

    def __init__(self, state: MixtureState) -> None:
        self._state = state
        n = state.n_components
        mass = state.stats[0][:n]
        self._distances = (mass[:, None] + mass[None, :] - 2.0 * state.pairs[:n, :n]) / state.decayed_count
        np.fill_diagonal(self._distances, np.inf)
        self._nearest = self._distances.argmin(axis=1)
        self._least = self._distances.min(axis=1)

    def pop(self, threshold: float) -> tuple[int, int] | None:
        """The closest pair below `threshold`, ties to the lowest rows, or None."""
        while True:
            row = int(np.argmin(self._least))
            if not self._least[row] < threshold:
                return None
            partner = int(self._nearest[row])
            if self._distances[row, partner] == self._least[row]:
                return row, partner
            self._nearest[row] = self._distances[row].argmin()
            self._least[row] = self._distances[row, self._nearest[row]]

    def joined(self, survivor: int, absorbed: int) -> None:
        """Update after a join: new distances of the survivor, none of the absorbed row."""
        state, n = self._state, self._least.size
        mass = state.stats[0][:n]
        row = (mass + mass[survivor] - 2.0 * state.pairs[survivor, :n]) / state.decayed_count
        row[np.isinf(self._distances[absorbed])] = np.inf  # rows absorbed before, and the absorbed itself
        row[survivor] = np.inf
        self._distances[survivor] = self._distances[:, survivor] = row
        self._distances[absorbed] = self._distances[:, absorbed] = np.inf
        self._least[absorbed] = np.inf
        self._nearest[survivor] = row.argmin()
        self._least[survivor] = row.min()


def _family(state: MixtureState) -> AnyFamily:
    assert state.prior is not None, "components exist before there is a prior"
    return state.prior
