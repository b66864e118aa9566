"""Splits and joins judged among neighbours: what a component and those next to it make of their points alone.

Where points are many and components far from most others a split concerns few of either: its effect is known, and
exactly, after rounds among those few (`vdp_near`), and a whole round is made only once all components have had their
turn.
"""

import numpy as np

from shoal.variational.splits import Split, best_start
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_moves import joins_of, pair_entropy
from shoal.variational.vdp_near import Held, held, join_held, settle_near, split_held, with_neighbours
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import State

_HOPE = 300.0
"""Nats that a split or a join may lose at first and still be tried with its neighbours. On 8,000 digits 30 ended lower
by .1 nats a point, 1,000 no higher."""
_SAME_MASS = 0.02
"""A component that could not be split is tried again once its mass has changed by more than this share."""
_JOINS = 3
"""Joins tried in a turn, times the number of components."""
_ROUNDS = 10
"""Whole rounds between turns that help."""


def regroup(run: Run, cells: Cells, state: State, refused: dict[int, float]) -> State:
    """Turns of all components, splits first, then joins, until none helps; a few whole rounds in between.

    `refused` has the mass at which a component, by its tag, could not be split: it is not tried again as it is.
    """
    settled = False
    while not run.exhausted:
        at = held(run, cells, state)
        before = at.state.elbo
        at = _joins(run, cells, _splits(run, cells, at, refused))
        helped = at.state.elbo - before > run.threshold
        if settled and not helped:
            return at.state
        settled = not helped
        state = run.settle(cells, run.accept(at.state), "settling", None if settled else _ROUNDS)
    return state


def _splits(run: Run, cells: Cells, at: Held, refused: dict[int, float]) -> Held:
    """One turn: each component divided where that gains more than the threshold."""
    for tag in at.state.tags.tolist():
        row = int(np.flatnonzero(at.state.tags == tag)[0])
        mass = float(at.state.mass[row])
        if run.exhausted or abs(refused.get(tag, np.inf) - mass) <= _SAME_MASS * mass:
            continue
        split = best_start(run, cells, at.state, at.resp[row], row, -_HOPE)
        tried = None if split is None else _split(run, cells, at, split)
        if tried is not None and tried.state.elbo - at.state.elbo > run.threshold:
            run.accept(tried.state)
            at = tried
        else:
            refused[tag] = mass
    return at


def _split(run: Run, cells: Cells, at: Held, split: Split) -> Held:
    """The split made, and settled among its neighbours."""
    tried, rows = split_held(run, cells, at, split)
    run.note(tried.state, "splitting", trial=True)
    near = with_neighbours(run.model, cells, tried, rows)
    return settle_near(run, cells, tried, near, goal=at.state.elbo + run.threshold)


def _joins(run: Run, cells: Cells, at: Held) -> Held:
    """One turn: the most promising pairs, each joined where that gains more than the threshold."""
    joins = joins_of(run.model, cells, at.state, np.stack(at.resp))
    best = np.argsort(-joins.gain, kind="stable")
    best = best[joins.gain[best] > -_HOPE][: _JOINS * at.state.n_components]
    pairs = [(int(at.state.tags[joins.first[p]]), int(at.state.tags[joins.second[p]])) for p in best]
    for first, second in pairs:
        rows = np.flatnonzero(np.isin(at.state.tags, (first, second)))
        if run.exhausted or rows.size < 2:  # one of them has been joined
            continue
        a, b = rows.tolist()
        tried, row = join_held(run, cells, at, a, b, pair_entropy(at.resp[a], at.resp[b], cells.mass))
        run.note(tried.state, "joining", trial=True)
        near = with_neighbours(run.model, cells, tried, row)
        tried = settle_near(run, cells, tried, near, goal=at.state.elbo + run.threshold)
        if tried.state.elbo - at.state.elbo > run.threshold:
            run.accept(tried.state)
            at = tried
    return at
