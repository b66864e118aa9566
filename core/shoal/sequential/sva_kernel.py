"""One pass of sequential variational approximation over a chunk: Lin (2013), eq. 15-16 and algorithm 1, read as
ERRATA 5.4-5.8.

Compiled once for each working form (`families.api_kernel` gives the steps by its type). One point after another, each
from the state that the last one left: nothing depends on where a chunk ends, to the bit. `reference.py` is the same
in plain NumPy.

Of point x, with w_k the masses, p_k the predictive densities and p_0 the prior's:

    rho_k proportional to w_k p_k, rho_new to alpha p_0; all sum to one.
    rho_new > birth_threshold and room: all are taken in, rho_new as the start of a new component.
    Else rho_new is dropped and the others are renormalised.
    Then responsibilities below the floor are dropped and the rest renormalised, so that each point adds mass one. A
    newborn's is never dropped, nor, without one, the largest.

A component whose w_k p_k is far below the largest (`LEAST_CUT`) counts for nothing, in the sums either. So those that
a bound proves to be far below need no score (`families.bounds_kernel`): what is learnt is the same, to the bit.
"""

import math
from typing import Any, NamedTuple

import numpy as np

import shoal.families.every_kernel  # noqa: F401 - for its overloads
from shoal.families.bounds_kernel import FEWEST_BOUNDED
from shoal.families.log_sum_exp_kernel import exponentials, gather_near, largest_of, parted, rescored
from shoal.families.steps_kernel import (
    LIMIT_ROWS,
    SCRATCH_ROWS,
    Tracks,
    Waiting,
    absorb_tracked,
    ceilings,
    clear_row,
    freeze,
    limit,
    score_all,
    score_one,
    settle,
    waiting_rows,
)
from shoal.kernels.cholesky_update import MOST_WAITING
from shoal.kernels.math import log_not_negative, log_positive
from shoal.kernels.threshold import WORD, fill_up
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import compiled, kernel
from shoal.sequential.misfit_kernel import watch
from shoal.sequential.responsibilities_kernel import (
    NO_PAIRS,
    add_pairs,
    clear_pairs,
    gather_kept,
    normalise,
    place_of,
)

NEGLIGIBLE = 4e-18
"""The least floor: a smaller responsibility changes no sum, and denormal ones cost time."""

LEAST_CUT = 5.0
"""A component counts for nothing from LEAST_CUT - log(floor) nats below the best on: its responsibility, which the
floor drops, would be below 1/148 of the floor. Under a floor of 1e-3 that is 7e-6, and no more is missing of the
others'."""

LEAST_BOUNDED = 320
"""Least components x features for which any working form has bounds that are worth their cost."""

SPENT, SHORTEST_BLOCK = 0.25, 32
"""A block has at most SPENT (total mass) / D points, since each takes some D / w from the bounds of a component of mass
w; where these are fewer than the second, every component is scored."""

MOST_BOUNDS = 1 << 19
"""Most rows x components of a block of more than SHORTEST_BLOCK rows, which bounds its memory."""

MOST_NEWBORN = 8
"""Components born in a block, which have no bounds, before the next block begins."""


class Records(NamedTuple):
    """What is written down of components; C rows, those of the monitor (`watch`) or none."""

    born_at: IntArray  # (C,)
    last_seen_at: IntArray  # (C,)
    pairs: Array  # (C, C), or none
    base: Array  # (C,), as the next three
    spread: Array
    level: Array
    collected: Array


class Rules(NamedTuple):
    """The settings of a pass, as numbers."""

    concentration: float
    birth_threshold: float
    floor: float
    pair_rule: int
    max_components: int
    longest_block: int


class Scratch(NamedTuple):
    """What a pass writes for itself; C rows for components."""

    score: Array  # (C,)
    resp: Array  # (C,)
    log_mass: Array  # (C,)
    active: IntArray  # (C + 1,)
    ceiling: SingleArray  # (C,) and the rest of its last word
    limits: SingleArray  # (LIMIT_ROWS, C)
    reach: SingleArray  # (rows of the longest block, C), or none for too few components and features to be bounded
    step: Array  # (SCRATCH_ROWS, D), the family's own
    tracks: Tracks


@compiled(makes_arrays=True)
def new_scratch(work: Any, capacity: int, d: int, longest_block: int) -> Scratch:
    """Scratch for passes over points of d features, into at most `capacity` rows."""
    rows = longest_block if capacity >= FEWEST_BOUNDED and capacity * d >= LEAST_BOUNDED else 0
    deferring = waiting_rows(work, capacity)
    waiting = Waiting(np.empty((deferring, MOST_WAITING, d)), np.zeros(deferring, dtype=np.int64))
    return Scratch(
        np.empty(capacity),
        np.empty(capacity),
        np.empty(capacity),
        np.empty(capacity + 1, dtype=np.uint64),
        np.empty(capacity + WORD, dtype=np.float32),
        np.empty((LIMIT_ROWS, capacity), dtype=np.float32),
        np.empty((rows, capacity), dtype=np.float32),
        np.empty((SCRATCH_ROWS, d)),
        Tracks(np.empty(capacity), np.empty(capacity), waiting),
    )


@compiled()
def _block_rows(mass: Array, n: int, d: int, longest: int) -> int:
    """Rows for which bounds may be worth their cost; 0: score every row of the coming points instead.

    A point moves the bounds of a component of mass w by some D / w of what they are: hence SPENT. MOST_BOUNDS is for
    memory.
    """
    if n < FEWEST_BOUNDED or n * d < LEAST_BOUNDED:
        return 0
    total = 0.0
    for k in range(n):
        total += mass[k]
    rows = min(longest, max(MOST_BOUNDS // n, SHORTEST_BLOCK), int(SPENT * total / d))
    return rows if rows >= SHORTEST_BLOCK else 0


@compiled()
def _begin_block(
    work: Any, stats: Any, constants: Array, x: Array, i: int, n: int, cut: float, longest: int, scratch: Scratch
) -> tuple[int, int]:
    """Where a block that begins at row i ends, and how many components have bounds in it: all n, or none."""
    end = min(i + longest, x.shape[0])
    rows = _block_rows(stats.mass, n, x.shape[1], end - i)
    if rows == 0:
        return end, 0
    bounded = 0
    tracks = scratch.tracks
    settle(work, stats, tracks.waiting, n)
    if freeze(work, stats, constants, scratch.log_mass, cut, x, i, rows, n, scratch.reach):
        bounded = n
        fill_up(scratch.ceiling, n)
    for k in range(n):
        tracks.drift[k], tracks.shrink[k] = 0.0, 1.0
        limit(work, k, tracks.drift, tracks.shrink, scratch.log_mass, scratch.limits)
    return i + rows, bounded


@compiled()
def _scored(
    work: Any,
    stats: Any,
    constants: Array,
    x: Array,
    i: int,
    n: int,
    cut: float,
    bounded: int,
    j: int,
    scratch: Scratch,
) -> tuple[int, float, float, bool]:
    """How many components are near row i, the j-th of its block, the best score of them, the empty one's without its
    mass, and whether the one that is near was scored last. Rows and scores of those that are near go to scratch.active
    and scratch.resp."""
    score, log_mass = scratch.score, scratch.log_mass
    if bounded == 0:
        score_all(work, stats, constants, x, i, n + 1, score, scratch.step)
        for k in range(n):
            score[k] += log_mass[k]
        best = largest_of(score, n)
        return gather_near(score, n, best - cut, scratch.active, scratch.resp), best, score[n], False
    ceiling = scratch.ceiling
    ceilings(work, scratch.reach, j, bounded, scratch.limits, ceiling)
    given = (work, stats, constants, x, i)
    new = score_one(*given, n, scratch.step)  # first: what the nearest leaves in scratch.step is used again
    near = rescored(*given, n, bounded, log_mass, cut, ceiling, scratch.active, scratch.resp, scratch.step)
    return near[0], near[1], new, near[2]


@compiled()
def _absorbed(
    work: Any,
    stats: Any,
    constants: Array,
    x: Array,
    i: int,
    count: int,
    bounded: int,
    just_scored: bool,
    scratch: Scratch,
) -> Any:
    """Add row i to the components that share it; the one of the largest responsibility, the first of equals."""
    active, resp, tracks = scratch.active, scratch.resp, scratch.tracks
    label, largest = active[0], resp[0]
    for a in range(count):
        row = active[a]
        absorb_tracked(work, stats, constants, x, i, row, resp[a], scratch.step, tracks, just_scored)
        scratch.log_mass[row] = log_not_negative(stats.mass[row])
        if bounded > 0:
            limit(work, row, tracks.drift, tracks.shrink, scratch.log_mass, scratch.limits)
        if resp[a] > largest:
            label, largest = row, resp[a]
    return label


@compiled()
def _note_pairs(records: Records, rule: int, n: int, born: bool, active: IntArray, resp: Array, count: int) -> None:
    """Add one point to the pair sums, if there are any; row n is new where one is born."""
    if rule == NO_PAIRS:
        return
    if born:
        clear_pairs(records.pairs, n)
    add_pairs(records.pairs, rule, active, resp, count)


@compiled()
def _misfits(records: Records, k: int, fit: float, mass: float) -> Any:
    """What the monitor says of component k after a point of this log density under it."""
    return watch(k, fit, mass, records.base, records.spread, records.level, records.collected)


@compiled()
def pass_over(
    x: Array,
    empty: Any,
    constants: Array,
    stats: Any,
    work: Any,
    records: Records,
    rules: Rules,
    n: int,
    points_seen: int,
    labels: IntArray,
    log_density: Array,
    scratch: Scratch,
) -> tuple[int, int, int, int, int]:
    """What `sva_pass` does, for other kernels too; it makes no array, so that references to arrays are not counted."""
    capacity, floor, watching = stats.mass.shape[0], max(rules.floor, NEGLIGIBLE), records.spread.shape[0] > 0
    log_concentration, cut = math.log(rules.concentration), LEAST_CUT - math.log(floor)
    active, resp = scratch.active, scratch.resp
    block_start = block_end = bounded = refused = i = 0
    first_refused = first_misfit = -1
    for k in range(n):
        scratch.log_mass[k] = log_not_negative(stats.mass[k])
    if n < capacity:
        clear_row(work, stats, n, empty)
    while i < x.shape[0] and n < capacity:
        if i == block_end or n - bounded > MOST_NEWBORN:
            block_start = i
            block_end, bounded = _begin_block(work, stats, constants, x, i, n, cut, rules.longest_block, scratch)
        count, best, new, just_scored = _scored(work, stats, constants, x, i, n, cut, bounded, i - block_start, scratch)
        nearest = place_of(resp, count, best, active) if watching else -1
        total = exponentials(resp, count, best)
        novelty, rest, surplus = parted(new + log_concentration - best, total)
        log_density[i] = max(new + log_concentration, best) + log_positive(surplus)
        wanted = novelty > rules.birth_threshold
        born = wanted and n < rules.max_components
        if wanted and not born:
            first_refused = i if refused == 0 else first_refused
            refused += 1
        count = gather_kept(count, (rest if born else 1.0) / total, floor, born, active, resp)
        if born:
            active[count] = n
            resp[count] = novelty
            count += 1
        normalise(resp, count)
        _note_pairs(records, rules.pair_rule, n, born, active, resp, count)
        if watching and not born and nearest >= 0:
            misfits = _misfits(records, nearest, best - scratch.log_mass[nearest], stats.mass[nearest])
            first_misfit = i if misfits and first_misfit < 0 else first_misfit
        label = _absorbed(work, stats, constants, x, i, count, bounded, just_scored and not born, scratch)
        i += 1
        labels[i - 1] = label
        records.last_seen_at[label] = points_seen + i
        if born:
            records.born_at[n] = records.last_seen_at[n] = points_seen + i
            scratch.tracks.drift[n], scratch.tracks.shrink[n] = 0.0, 1.0
            n += 1
            if n < capacity:
                clear_row(work, stats, n, empty)
    settle(work, stats, scratch.tracks.waiting, n)
    return i, n, refused, first_refused, first_misfit


@kernel()
def sva_pass(
    x: Array,
    empty: Any,
    constants: Array,
    stats: Any,
    work: Any,
    born_at: IntArray,
    last_seen_at: IntArray,
    pairs: Array,
    base: Array,
    spread: Array,
    level: Array,
    collected: Array,
    n: int,
    points_seen: int,
    concentration: float,
    birth_threshold: float,
    floor: float,
    pair_rule: int,
    max_components: int,
    longest_block: int,
    labels: IntArray,
    log_density: Array,
) -> tuple[int, int, int, int, int]:
    """Take in rows of x (N, D) in order, until all are in or no row is left for the empty component.

    Components are rows 0 <= k < n of `stats`, `work`, `born_at`, `last_seen_at` (C rows) and `pairs` (C, C). Row n
    serves as the empty component and is written here, so C >= n + 1 is needed at each point. Writes labels[i] and
    log_density[i] of every row taken in, and the monitor's arrays as `watch` has them; these have C rows or none.
    Returns rows taken in, components in use, births refused for `max_components`, the first row of these or -1, and the
    first row at which a component misfits or -1.
    """
    scratch = new_scratch(work, stats.mass.shape[0], x.shape[1], min(longest_block, x.shape[0]))
    records = Records(born_at, last_seen_at, pairs, base, spread, level, collected)
    rules = Rules(concentration, birth_threshold, floor, pair_rule, max_components, longest_block)
    given = (x, empty, constants, stats, work, records, rules, n, points_seen, labels, log_density, scratch)
    taken: tuple[int, int, int, int, int] = pass_over(*given)
    return taken
