"""The default search: bursts of splits with joins between them, then single moves, each judged by the bound.

It ends where the paper's rule would: no single split of any component, by its principal component or by two means, and
no join of neighbours raises the bound by more than the threshold.
"""

import numpy as np

from shoal.families import take
from shoal.points.arrays import Array, IntArray
from shoal.variational.splits import (
    Split,
    Tested,
    apply_splits,
    best_start,
    test_splits,
)
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_moves import join, joins_of
from shoal.variational.vdp_paper import adopt, release
from shoal.variational.vdp_regroup import regroup
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import State, placed, round_of

FEW = 2000
_FEW_ELEMENTS = 1 << 23
"""Points, or elements of their statistics, up to which components are also released one by one, by the paper's rule, as
another start: a million points in the plane, 54,000 in 16-D, 6,300 in 50-D. With the same generator that is the very
run of the paper's rule, so the default cannot end below it. Above there is no such promise: there it starts on a tree
(`tree_search.start_on_tree`), unless it has a past. Where components overlap much it was seen to end below by one or
two hundredths of a nat a point (5,000 points in 16-D, 15,000 digits in 32-D) as well as above by two to five."""
_PASSES = 4
"""Rounds after a burst, before joins."""
_ATTEMPTS = 4
_JOIN_PASSES = 10
_JOIN_TRIALS = 3
_LEAST_MASS = 0.5
"""Points below which a component counts as empty."""
_SPLIT_TRIALS = 5
_HOPE = 30.0
"""Nats that a split may lose before anything else has settled and still be tried by itself."""
_SAME_MASS = 0.02
"""A component that could not be split is tried again once its mass has changed by more than this share."""


def are_many(cells: Cells) -> bool:
    """Whether there are too many to release components one by one as well."""
    return cells.n_points > FEW and cells.n_cells * cells.reach.size > _FEW_ELEMENTS


def improve(run: Run, cells: Cells, state: State) -> tuple[State, bool]:
    """The better of two searches where points are few, else (with a past, or on the nodes of a tree) by bursts."""
    if are_many(cells):
        return _by_bursts(run, cells, state)
    greedy, stopped = release(run, cells, state)
    by_one, both = polish(run, cells, greedy)
    first, ended = _by_bursts(run, cells, state)
    return (first, ended) if first.elbo > by_one.elbo else (by_one, both and stopped)


def _by_bursts(run: Run, cells: Cells, state: State) -> tuple[State, bool]:
    """Bursts until none helps, then moves."""
    return by_moves(run, cells, run.accept(_without_empty(run, cells, _in_bursts(run, cells, state))))


def by_moves(run: Run, cells: Cells, state: State) -> tuple[State, bool]:
    """Moves among neighbours, then single splits and joins, the paper's among them, until none helps.

    Where components overlap much, a split may lose hundreds of nats and win more while everything settles. Single moves
    are judged by less than that; so where they end, the paper's rule has its turn from there, its trials given up once
    they gain too slowly to come out above.
    """
    refused: dict[int, float] = {}
    while True:
        state = regroup(run, cells, state, refused)
        state, stopped = polish(run, cells, state, refused)
        if run.exhausted:
            return state, False
        released, _ = release(run, cells, state, give_up=True)
        if released.elbo - state.elbo <= run.threshold:
            return state, stopped and not run.exhausted
        state = released


def bursts(run: Run, cells: Cells, state: State) -> tuple[State, bool]:
    """Bursts until none helps, and one settling; the state, and whether it stopped by its rule."""
    state = run.settle(cells, _in_bursts(run, cells, state), "settling")
    return run.accept(_without_empty(run, cells, state)), not run.exhausted


def _in_bursts(run: Run, cells: Cells, state: State) -> State:
    refused: dict[int, float] = {}
    while not run.exhausted:
        better = _burst(run, cells, state, refused)
        if better is None:
            break
        state = better
    return state


def polish(run: Run, cells: Cells, state: State, refused: dict[int, float] | None = None) -> tuple[State, bool]:
    """Single splits and joins until none helps. `refused`: components by tag, and the mass at which none helped."""
    refused = {} if refused is None else refused
    while not run.exhausted:
        better = _single_split(run, cells, state, refused) or _single_join(run, cells, state)
        if better is None:
            return state, True
        state = better
    return state, False


def _burst(run: Run, cells: Cells, state: State, refused: dict[int, float]) -> State | None:
    """All splits that gain, at once, a few rounds, joins; None where nothing gains."""
    state, resp = run.divided(cells, state)
    splits = _proposals(run, cells, state, resp, refused, run.threshold)
    if not splits:
        return None
    tested = test_splits(run.model, cells, state, splits)
    for split, gain in zip(splits, tested.gain, strict=True):
        if gain <= run.threshold:
            refused[int(state.tags[split.row])] = float(state.mass[split.row])
    chosen = np.flatnonzero(tested.gain > run.threshold)
    chosen = chosen[np.argsort(-tested.gain[chosen], kind="stable")]
    for _ in range(_ATTEMPTS):
        if chosen.size == 0:
            return None
        tried = _try_splits(run, cells, state, tested, chosen)
        if tried.elbo - state.elbo > run.threshold:
            return run.accept(tried)
        for c in chosen[chosen.size // 2 :]:
            refused[int(state.tags[splits[c].row])] = float(state.mass[splits[c].row])
        chosen = chosen[: chosen.size // 2]
    return None


def _try_splits(run: Run, cells: Cells, state: State, tested: Tested, chosen: IntArray) -> State:
    state = run.fitted(cells, *apply_splits(state, tested, chosen))
    run.note(state, "splitting", trial=True)
    state = run.settle(cells, state, "splitting", _PASSES, trial=True)
    return _join_all(run, cells, _without_empty(run, cells, state))


def _without_empty(run: Run, cells: Cells, state: State) -> State:
    """A round without the components that have lost their points, unless that lowers the bound."""
    alive = np.flatnonzero(state.mass >= _LEAST_MASS)
    if alive.size in (0, state.n_components):
        return state
    totals = state.totals._replace(
        natural=state.totals.natural[np.append(alive, -1)],
        mass=np.append(state.totals.mass[alive], state.totals.mass[-1]),
    )
    tied = placed(state.tied, alive)
    left = State(
        take(state.params, alive), state.natural[alive], totals, state.sticks[alive], tied, state.tags[alive], -np.inf
    )
    left, _ = round_of(run.model, cells, left)
    run.note(left, "deleting", trial=True)
    return left if left.elbo >= state.elbo else state


def _join_all(run: Run, cells: Cells, state: State) -> State:
    """Joins that gain by closed form, the best first, until there is none: each raises the bound."""
    while state.n_components > 1 and not run.exhausted:
        state, resp = run.divided(cells, state, trial=True)
        joins = joins_of(run.model, cells, state, resp)
        best = np.argsort(-joins.gain, kind="stable")
        joined = state
        for p in best[joins.gain[best] > 0.0]:
            tags = state.tags[[joins.first[p], joins.second[p]]]
            rows = np.flatnonzero(np.isin(joined.tags, tags))
            if rows.size == 2:  # neither has been joined in this turn: its entropy is still the one that was measured
                tried = run.fitted(cells, *join(joined, int(rows[0]), int(rows[1]), float(joins.entropy[p])))
                joined = tried if tried.elbo > joined.elbo else joined
        if joined is state:
            return state
        state = joined
    return state


def _proposals(
    run: Run, cells: Cells, state: State, resp: Array, refused: dict[int, float], least: float
) -> list[Split]:
    """The most promising split of every component that was not refused as it is, if it may gain more than `least`."""
    splits = []
    for row in range(state.n_components):
        mass = float(state.mass[row])
        if abs(refused.get(int(state.tags[row]), np.inf) - mass) <= _SAME_MASS * mass:
            continue
        found = best_start(run, cells, state, resp[row], row, least)
        if found is not None and found.gain > least:
            splits.append(found)
        else:
            refused[int(state.tags[row])] = mass
    return splits


def _single_split(run: Run, cells: Cells, state: State, refused: dict[int, float]) -> State | None:
    """The best of the splits that gain on all cells, settled, if that raises the bound by more than the threshold."""
    state, resp = run.divided(cells, state)
    splits = _proposals(run, cells, state, resp, refused, -_HOPE)
    if not splits:
        return None
    tested = test_splits(run.model, cells, state, splits)
    best = np.argsort(-tested.gain, kind="stable")
    for c in best[tested.gain[best] > -_HOPE][:_SPLIT_TRIALS]:
        if run.exhausted:
            return None
        row = splits[c].row
        tried = _without_empty(run, cells, adopt(run, cells, state, [splits[c]], goal=state.elbo))
        if tried.elbo - state.elbo > run.threshold:
            return run.accept(tried)
        refused[int(state.tags[row])] = float(state.mass[row])
    return None


def _single_join(run: Run, cells: Cells, state: State) -> State | None:
    """The least costly joins, tried with some rounds each; the first that ends higher by more than the threshold."""
    if state.n_components == 1:
        return None
    state, resp = run.divided(cells, state)
    joins = joins_of(run.model, cells, state, resp)
    for p in np.argsort(-joins.gain, kind="stable")[:_JOIN_TRIALS]:
        first, second = int(joins.first[p]), int(joins.second[p])
        tried = run.fitted(cells, *join(state, first, second, float(joins.entropy[p])))
        run.note(tried, "joining", trial=True)
        tried = run.settle(cells, tried, "joining", _JOIN_PASSES, trial=True, goal=state.elbo)
        if tried.elbo - state.elbo > run.threshold:
            tried = run.settle(cells, tried, "joining", trial=True)
            return run.accept(_without_empty(run, cells, tried))
    return None
