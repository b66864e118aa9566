"""The beam search over prefixes for scores whose rest is a sum over the points to come: trivial and inadmissible.

A hypothesis is a list of rows of one pool of components. Hypotheses share rows, so a row never changes. A point that
joins a block makes a new row, and a row is freed with the last hypothesis that lists it. An entry of the queue is a
parent and a choice; it becomes a hypothesis when it is removed from the queue. Each hypothesis costs one score of every
row of the pool, and one row written. Where most of the queue agrees on the past, the pool holds little more than the
blocks of one hypothesis.

Row 0 of the pool is the empty component. `plain.py` is the same search in plain NumPy.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import shoal.families.every_kernel  # noqa: F401 - for its overloads
from shoal.families.steps_kernel import SCRATCH_ROWS, absorb, clear_row, score_all
from shoal.kernels.copy_rows import copy_row
from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled, kernel

PAUSED, FOUND, NO_ROW, NO_BLOCK, NO_TRACE = 0, 1, 2, 3, 4
"""Why the kernel returned: limit met, done, or no room for rows, for blocks of a hypothesis, or for the path."""

N_FREE_ROWS, ROWS_USED, N_FREE_SLOTS, N_QUEUE, N_TRACE, HERE, N_EXPANDED = 0, 1, 2, 3, 4, 5, 6
"""Places in `Frontier.state`."""


class Frontier(NamedTuple):
    """State of a search: M > beam slots of hypotheses whose children are in the queue, and C rows."""

    state: IntArray  # (7,) by the places above
    row_uses: IntArray  # (C,) hypotheses that list a row
    free_rows: IntArray  # (C,) stack
    free_slots: IntArray  # (M,) stack
    length: IntArray  # (M,) points that a hypothesis holds
    n_blocks: IntArray  # (M,)
    largest: IntArray  # (M,) points of its largest block
    children: IntArray  # (M,) how many of them are in the queue
    trace: IntArray  # (M,) its place on the path
    log_joint: Array  # (M,)
    rows: npt.NDArray[np.int32]  # (M, B) its blocks' rows, in order of appearance
    queue_score: Array  # (beam,) worst first
    queue_length: IntArray  # (beam,)
    queue_slot: IntArray  # (beam,) the parent
    queue_choice: IntArray  # (beam,) the parent's block that the point joins, or its number of blocks
    queue_joint: Array  # (beam,) log joint of the child
    path_parent: npt.NDArray[np.int32]  # (P,) every hypothesis ever taken: the one before
    path_choice: npt.NDArray[np.int32]  # (P,) and the block that its last point joined


class Objective(NamedTuple):
    """Terms of the score of a hypothesis, for N points."""

    suffix: Array  # (N + 1,) the score of the points from n on
    log_gamma: Array  # (N + 2,) log G(m)
    log_count: Array  # (N + 1,) log m
    log_concentration: float


class Pool(NamedTuple):
    """Rows of components, and the constants of their family's prior."""

    stats: Any  # C rows
    cache: Any  # C rows of the predictive cache
    empty: Any  # the cache of a component without points
    constants: Array


@compiled()
def _drop_slot(f: Frontier, slot: int) -> None:
    """Free the slot of a hypothesis without children left, and its rows that no other hypothesis lists."""
    for k in range(f.n_blocks[slot]):
        row = f.rows[slot, k]
        f.row_uses[row] -= 1
        if f.row_uses[row] == 0:
            f.free_rows[f.state[N_FREE_ROWS]] = row
            f.state[N_FREE_ROWS] += 1
    f.free_slots[f.state[N_FREE_SLOTS]] = slot
    f.state[N_FREE_SLOTS] += 1


@compiled()
def _push(f: Frontier, beam: int, score: float, length: int, slot: int, choice: int, joint: float) -> None:
    """Insert into the queue, in its order, and drop the worst beyond the beam. Among equals the older is better."""
    n = f.state[N_QUEUE]
    place = 0  # how many are worse
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        worse = f.queue_score[middle] < score or (f.queue_score[middle] == score and f.queue_length[middle] < length)
        if worse:
            low = middle + 1
        else:
            high = middle
    place = low
    if n == beam:
        if place == 0:
            return
        loser = f.queue_slot[0]
        f.children[loser] -= 1
        if f.children[loser] == 0 and loser != slot:
            _drop_slot(f, loser)
        place -= 1
        for q in range(place):
            _shift(f, q + 1, q)
    else:
        for q in range(n, place, -1):
            _shift(f, q - 1, q)
        f.state[N_QUEUE] = n + 1
    f.queue_score[place] = score
    f.queue_length[place] = length
    f.queue_slot[place] = slot
    f.queue_choice[place] = choice
    f.queue_joint[place] = joint
    f.children[slot] += 1


@compiled()
def _shift(f: Frontier, source: int, target: int) -> None:
    f.queue_score[target] = f.queue_score[source]
    f.queue_length[target] = f.queue_length[source]
    f.queue_slot[target] = f.queue_slot[source]
    f.queue_choice[target] = f.queue_choice[source]
    f.queue_joint[target] = f.queue_joint[source]


@compiled()
def _expand(
    f: Frontier,
    beam: int,
    slot: int,
    n_points: int,
    mass: Array,
    score: Array,
    objective: Objective,
) -> None:
    """Queue the children of a hypothesis, given the `score` (rows) of its next point; drop it if none stays."""
    suffix, log_gamma, log_count, log_concentration = objective
    n = f.length[slot]
    left = n_points - n - 1
    alone = left * log_concentration
    for k in range(f.n_blocks[slot] + 1):
        new = k == f.n_blocks[slot]
        row = 0 if new else f.rows[slot, k]
        size = 0 if new else int(mass[row])
        joint = f.log_joint[slot] + score[row] + (log_concentration if new else log_count[size])
        largest = max(f.largest[slot], size + 1)
        completion = max(alone, log_gamma[largest + left] - log_gamma[largest]) if left > 0 else 0.0
        _push(f, beam, joint + completion + suffix[n + 1], n + 1, slot, k, joint)
    if f.children[slot] == 0:
        _drop_slot(f, slot)


@compiled()
def _take(f: Frontier, pool: Pool, x: Any, score: Array, scratch: Array) -> int:
    """Make the best entry of the queue a hypothesis, and return its slot."""
    stats, cache, empty, constants = pool
    q = f.state[N_QUEUE] - 1
    f.state[N_QUEUE] = q
    parent, choice = f.queue_slot[q], f.queue_choice[q]
    f.state[N_FREE_SLOTS] -= 1
    slot: int = f.free_slots[f.state[N_FREE_SLOTS]]
    f.state[N_FREE_ROWS] -= 1
    fresh = f.free_rows[f.state[N_FREE_ROWS]]
    f.state[ROWS_USED] = max(f.state[ROWS_USED], fresh + 1)
    n_blocks = f.n_blocks[parent]
    for k in range(n_blocks):
        f.rows[slot, k] = f.rows[parent, k]
        if k != choice:
            f.row_uses[f.rows[slot, k]] += 1
    if choice < n_blocks:
        copy_row(cache, stats, f.rows[parent, choice], fresh)
    else:
        clear_row(cache, stats, fresh, empty)
        n_blocks += 1
    point = f.length[parent]
    score_all(cache, stats, constants, x, point, 0, score, scratch)  # leaves in scratch what `absorb` reads
    absorb(cache, stats, constants, x, point, fresh, 1.0, scratch)
    f.rows[slot, choice] = fresh
    f.row_uses[fresh] = 1
    f.n_blocks[slot] = n_blocks
    f.length[slot] = point + 1
    f.largest[slot] = max(f.largest[parent], int(stats.mass[fresh]))
    f.log_joint[slot] = f.queue_joint[q]
    f.children[slot] = 0
    f.path_parent[f.state[N_TRACE]] = f.trace[parent]
    f.path_choice[f.state[N_TRACE]] = choice
    f.trace[slot] = f.state[N_TRACE]
    f.state[N_TRACE] += 1
    f.children[parent] -= 1
    if f.children[parent] == 0:
        _drop_slot(f, parent)
    return slot


@kernel()
def beam_search(x: Any, objective: Objective, pool: Pool, frontier: Frontier, beam: int, at_most: int) -> int:
    """Expand hypotheses until one that holds all points comes first, or `at_most` have been expanded.

    The search starts at the slot `state[HERE]`. Returns why it stopped. Where there was no room it can be called again
    with larger arrays: the search continues from `frontier`.
    """
    stats, cache, constants = pool.stats, pool.cache, pool.constants
    n_points = x.shape[0]
    score = np.empty(stats.mass.shape[0])
    scratch = np.empty((SCRATCH_ROWS, x.shape[1]))
    last = frontier.state[N_EXPANDED] + at_most
    while True:
        here = frontier.state[HERE]
        if here >= 0:
            if frontier.length[here] == n_points:
                return FOUND
            if frontier.state[N_EXPANDED] >= last:
                return PAUSED
            used = frontier.state[ROWS_USED]
            score_all(cache, stats, constants, x, frontier.length[here], used, score, scratch)
            _expand(frontier, beam, here, n_points, stats.mass, score, objective)
            frontier.state[N_EXPANDED] += 1
            frontier.state[HERE] = -1
        best = frontier.queue_slot[frontier.state[N_QUEUE] - 1]
        if frontier.state[N_FREE_ROWS] == 0:
            return NO_ROW
        if frontier.n_blocks[best] + 1 > frontier.rows.shape[1]:
            return NO_BLOCK
        if frontier.state[N_TRACE] == frontier.path_parent.shape[0]:
            return NO_TRACE
        frontier.state[HERE] = _take(frontier, pool, x, score, scratch)
