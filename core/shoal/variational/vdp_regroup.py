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
"""What did not help is tried again once the mass has changed by more than this share."""
_JOINS = 2
"""Joins tried in a turn, times the number of components."""
_FEWEST = 12
"""Components up to which most are neighbours of any: a whole round costs hardly more than one among neighbours."""
_ROUNDS = 10
"""Whole rounds between turns that help."""


def regroup(run: Run, cells: Cells, state: State, refused: dict[int, float]) -> State:
    """Turns of all components, splits first, then joins, until none helps; a few whole rounds in between.

    `refused` has the mass at which a component, by its tag, could not be split: it is not tried again as it is. A state
    of a dozen components or fewer comes back as it is, settled.
    """
    if state.n_components <= _FEWEST:
        return run.settle(cells, state, "settling")
    settled, refused_pairs = False, dict[tuple[int, int], float]()
    while not run.exhausted:
        at = held(run, cells, state)
        before = at.state.elbo
        at = _joins(run, cells, _splits(run, cells, at, refused), refused_pairs)
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
        if run.exhausted or _as_it_was(refused.get(tag), mass):
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


def _joins(run: Run, cells: Cells, at: Held, refused: dict[tuple[int, int], float]) -> Held:
    """One turn: the most promising pairs, each joined where that gains more than the threshold."""
    joins = joins_of(run.model, cells, at.state, np.stack(at.resp))
    best = np.argsort(-joins.gain, kind="stable")
    best = best[joins.gain[best] > -_HOPE][: _JOINS * at.state.n_components]
    for pair in [(int(at.state.tags[joins.first[p]]), int(at.state.tags[joins.second[p]])) for p in best]:
        rows = np.flatnonzero(np.isin(at.state.tags, pair))
        if run.exhausted or rows.size < 2:  # one of them has been joined
            continue
        key, mass = (min(pair), max(pair)), float(at.state.mass[rows].sum())
        if _as_it_was(refused.get(key), mass):
            continue
        tried = _join(run, cells, at, *rows.tolist())
        if tried.state.elbo - at.state.elbo > run.threshold:
            run.accept(tried.state)
            at = tried
        else:
            refused[key] = mass
    return at


def _join(run: Run, cells: Cells, at: Held, first: int, second: int) -> Held:
    """The join made, and settled among its neighbours."""
    entropy = pair_entropy(at.resp[first], at.resp[second], cells.mass)
    tried, row = join_held(run, cells, at, first, second, entropy)
    run.note(tried.state, "joining", trial=True)
    near = with_neighbours(run.model, cells, tried, row)
    return settle_near(run, cells, tried, near, goal=at.state.elbo + run.threshold)


def _as_it_was(refused_at: float | None, mass: float) -> bool:
    return refused_at is not None and abs(refused_at - mass) <= _SAME_MASS * mass
