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
from shoal._numba import compiled, kernel
from shoal.arrays import Array, IntArray, SingleArray
from shoal.families.api_kernel import (
    SCRATCH_ROWS,
    absorb_tracked,
    ceilings,
    clear_row,
    freeze,
    limit,
    score_all,
    score_one,
)
from shoal.families.bounds_kernel import FEWEST_BOUNDED, LOWEST, UNIT
from shoal.families.math_kernel import REORDER, exp_negative, log_positive
from shoal.sequential.misfit_kernel import watch
from shoal.sequential.near_kernel import WORD, fill_up, place_of_largest, places_from

NO_PAIRS, ENTROPY, OVERLAP = 0, 1, 2
"""Rules of the running pair sums."""

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
"""Most rows x components of a block, which bounds its memory."""

MOST_NEWBORN = 8
"""Components born in a block, which have no bounds, before the next block begins."""

SMALLEST_OVERLAP = 1e-12
"""Pairs whose smaller responsibility is not above this add nothing to the overlap."""

_NONE, _ONE = np.uint64(0), np.uint64(1)
_LEAST_NORMAL = 1e-300


@compiled(forceinline=True)
def _largest(score: Array, n: int) -> float:
    """The largest of the first n scores, -inf for none. Four running maxima: each would wait for itself."""
    a = b = c = d = -math.inf
    whole = n - n % 4
    for k in range(0, whole, 4):
        a = score[k] if score[k] > a else a
        b = score[k + 1] if score[k + 1] > b else b
        c = score[k + 2] if score[k + 2] > c else c
        d = score[k + 3] if score[k + 3] > d else d
    for k in range(whole, n):
        a = score[k] if score[k] > a else a
    return max(max(a, b), max(c, d))


@compiled(forceinline=True)
def _near(score: Array, n: int, least: float, active: IntArray, resp: Array) -> int:
    """Rows whose score is at least `least`, in order, and their scores; how many."""
    count = 0
    for k in range(n):
        active[count] = k
        resp[count] = score[k]
        count += 1 if score[k] >= least else 0
    return count


@compiled(forceinline=True)
def _rescored(
    work: Any,
    stats: Any,
    constants: Array,
    x: Array,
    i: int,
    n: int,
    bounded: int,
    log_mass: Array,
    cut: float,
    ceiling: SingleArray,
    active: IntArray,
    resp: Array,
    scratch: Array,
) -> tuple[int, float]:
    """Score the rows that may be within `cut` of the best, and give those that are as `_near` does; the best score.

    Rows k < bounded have ceilings, those up to n none. The row of the highest ceiling goes first: its score lets most
    others be left alone.
    """
    first = place_of_largest(ceiling, bounded)
    best = log_mass[first] + score_one(work, stats, constants, x, i, first, scratch)
    least = best - cut
    count = places_from(ceiling, bounded, np.float32(max(least - UNIT * abs(least), LOWEST)), active)
    for k in range(np.uint64(bounded), np.uint64(n)):
        active[count] = k
        count += _ONE
    if count == _ONE:  # `first` itself, whose ceiling is no less than its score
        resp[0] = best
        return 1, best
    for a in range(count):  # `first` once more: a branch to spare it would be guessed wrong, which costs more
        k = active[a]
        score = log_mass[k] + score_one(work, stats, constants, x, i, k, scratch)
        resp[a] = score
        best = score if score > best else best
    least = best - cut
    kept = _NONE
    for a in range(count):
        score = resp[a]
        active[kept], resp[kept] = active[a], score
        kept += _ONE if score >= least else _NONE
    found: Any = np.int64(kept)
    return found, best


@compiled(forceinline=True)
def _place_of(resp: Array, count: int, best: float, active: IntArray) -> Any:
    """The first row whose score is the best, -1 for none."""
    for a in range(count):
        if resp[a] == best:
            return np.int64(active[a])
    return -1


@compiled(fastmath=REORDER, forceinline=True)
def _exponentials(resp: Array, count: int, best: float) -> float:
    """Replace scores by exp(score - best); their sum. Most points of clusters that lie apart have one."""
    if count == 1:
        resp[0] = 1.0
        return 1.0
    total = 0.0
    for a in range(count):
        resp[a] = exp_negative(resp[a] - best)
        total += resp[a]
    return total


@compiled(forceinline=True)
def _gather(count: int, share: float, floor: float, born: bool, active: IntArray, resp: Array) -> int:
    """Keep the rows whose responsibility, share * resp, reaches the floor, in order; how many.

    The largest (resp 1) is kept in any case, unless the point founds a component, which takes its place.
    """
    kept = 0
    for a in range(count):
        r = resp[a]
        active[kept], resp[kept] = active[a], r * share
        kept += 1 if r * share >= floor or (r == 1.0 and not born) else 0
    return kept


@compiled(forceinline=True)
def _normalise(resp: Array, count: int) -> None:
    if count == 1:
        resp[0] = 1.0
        return
    total = 0.0
    for a in range(count):
        total += resp[a]
    for a in range(count):
        resp[a] /= total


@compiled()
def _clear_pairs(pairs: Array, k: int) -> None:
    for j in range(k + 1):
        pairs[k, j] = 0.0
        pairs[j, k] = 0.0


@compiled()
def _add_pairs(pairs: Array, rule: int, active: IntArray, resp: Array, count: int) -> None:
    """Add one point to the pair sums of its active components, both triangles.

    entropy: -[a log(a/(a+b)) + b log(b/(a+b))] = (a + b) log1p(s/l) - s log(s/l) with s <= l of a, b: no
    cancellation, never < 0. overlap: min(a, b).
    """
    for p in range(count):
        for q in range(p):
            small = min(resp[p], resp[q])
            large = max(resp[p], resp[q])
            if rule == ENTROPY:
                ratio = small / large
                amount = (small + large) * math.log1p(ratio) - small * math.log(ratio)
            else:
                amount = small if small > SMALLEST_OVERLAP else 0.0
            pairs[active[p], active[q]] += amount
            pairs[active[q], active[p]] += amount


@compiled(forceinline=True)
def _log_of(mass: float) -> float:
    return log_positive(mass) if mass > _LEAST_NORMAL else math.log(mass)


@compiled()
def _block_rows(mass: Array, n: int, d: int, longest: int) -> int:
    """Rows for which bounds may be worth their cost; 0: score every row of the coming points instead.

    A point moves the bounds of a component of mass w by some D / w of what they are.
    """
    if n < FEWEST_BOUNDED or n * d < LEAST_BOUNDED:
        return 0
    total = 0.0
    for k in range(n):
        total += mass[k]
    rows = min(longest, max(MOST_BOUNDS // n, SHORTEST_BLOCK), int(SPENT * total / d))
    return rows if rows >= SHORTEST_BLOCK else 0


class Scratch(NamedTuple):
    """What a pass writes for itself; C rows for components."""

    score: Array  # (C,)
    resp: Array  # (C,)
    log_mass: Array  # (C,)
    active: IntArray  # (C + 1,)
    ceiling: SingleArray  # (C,) and the rest of its last word
    drift: Array  # (C,)
    shrink: Array  # (C,)
    limits: SingleArray  # (2, C)
    reach: SingleArray  # (rows of a block, C), or none where nothing is bounded
    step: Array  # (SCRATCH_ROWS, D), the family's own


@compiled(makes_arrays=True)
def _scratch(capacity: int, d: int, longest_block: int) -> Scratch:
    rows = longest_block if capacity >= FEWEST_BOUNDED and capacity * d >= LEAST_BOUNDED else 0
    return Scratch(
        np.empty(capacity),
        np.empty(capacity),
        np.empty(capacity),
        np.empty(capacity + 1, dtype=np.uint64),
        np.empty(capacity + WORD, dtype=np.float32),
        np.empty(capacity),
        np.empty(capacity),
        np.empty((2, capacity), dtype=np.float32),
        np.empty((rows, capacity), dtype=np.float32),
        np.empty((SCRATCH_ROWS, d)),
    )


@compiled()
def _pass(
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
    scratch: Scratch,
) -> tuple[int, int, int, int, int]:
    """What `sva_pass` does, in a function that makes no array, so that references to arrays are not counted.

    One function, long as it is: its local numbers stay in registers, and a step more would hand over a dozen arrays.
    """
    score, resp, log_mass, active, ceiling, drift, shrink, limits, reach, step = scratch
    capacity = stats.mass.shape[0]
    block_start = block_end = bounded = 0
    log_concentration = math.log(concentration)
    floor = max(floor, NEGLIGIBLE)
    cut = LEAST_CUT - math.log(floor)
    refused = 0
    first_refused = -1
    first_misfit = -1
    watching = spread.shape[0] > 0
    i = 0
    for k in range(n):
        log_mass[k] = _log_of(stats.mass[k])
    if n < capacity:
        clear_row(work, stats, n, empty)
    while i < x.shape[0] and n < capacity:
        if i == block_end or n - bounded > MOST_NEWBORN:
            block_start, block_end = i, min(i + longest_block, x.shape[0])
            rows = _block_rows(stats.mass, n, x.shape[1], block_end - i)
            bounded = 0
            if rows > 0:
                block_end = i + rows
                if freeze(work, stats, constants, log_mass, cut, x, i, rows, n, reach):
                    bounded = n
                    fill_up(ceiling, n)
                for k in range(n):
                    drift[k], shrink[k] = 0.0, 1.0
                    limit(work, k, drift, log_mass, limits)
        if bounded == 0:
            score_all(work, stats, constants, x, i, n + 1, score, step)
            for k in range(n):
                score[k] += log_mass[k]
            best = _largest(score, n)
            count = _near(score, n, best - cut, active, resp)
            new = score[n] + log_concentration
        else:
            ceilings(work, reach, i - block_start, bounded, drift, shrink, log_mass, limits, ceiling)
            count, best = _rescored(
                work, stats, constants, x, i, n, bounded, log_mass, cut, ceiling, active, resp, step
            )
            new = score_one(work, stats, constants, x, i, n, step) + log_concentration
        nearest = _place_of(resp, count, best, active) if watching else -1
        total = _exponentials(resp, count, best)
        gap = new - best
        far = exp_negative(-abs(gap))
        start, old = (1.0, far * total) if gap > 0.0 else (far, total)
        novelty = start / (start + old)
        log_density[i] = max(new, best) + log_positive(start + old)
        wanted = novelty > birth_threshold
        born = wanted and n < max_components
        if wanted and not born:
            first_refused = i if refused == 0 else first_refused
            refused += 1
        share = (old / (start + old) if born else 1.0) / total
        count = _gather(count, share, floor, born, active, resp)
        if born:
            active[count] = n
            resp[count] = novelty
            count += 1
        _normalise(resp, count)
        if pair_rule != NO_PAIRS:
            if born:
                _clear_pairs(pairs, n)
            _add_pairs(pairs, pair_rule, active, resp, count)
        if watching and not born and nearest >= 0:
            fit = best - log_mass[nearest]
            if watch(nearest, fit, stats.mass[nearest], base, spread, level, collected):
                first_misfit = i if first_misfit < 0 else first_misfit
        i += 1
        label, largest = active[0], resp[0]
        for a in range(count):
            row = active[a]
            absorb_tracked(work, stats, constants, x, i - 1, row, resp[a], step, drift, shrink)
            log_mass[row] = _log_of(stats.mass[row])
            if bounded > 0:
                limit(work, row, drift, log_mass, limits)
            if resp[a] > largest:
                label, largest = row, resp[a]
        labels[i - 1] = label
        last_seen_at[label] = points_seen + i
        if born:
            born_at[n] = points_seen + i
            last_seen_at[n] = points_seen + i
            drift[n], shrink[n] = 0.0, 1.0
            n += 1
            if n < capacity:
                clear_row(work, stats, n, empty)
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
    scratch = _scratch(stats.mass.shape[0], x.shape[1], longest_block)
    taken: tuple[int, int, int, int, int] = _pass(
        x,
        empty,
        constants,
        stats,
        work,
        born_at,
        last_seen_at,
        pairs,
        base,
        spread,
        level,
        collected,
        n,
        points_seen,
        concentration,
        birth_threshold,
        floor,
        pair_rule,
        max_components,
        longest_block,
        labels,
        log_density,
        scratch,
    )
    return taken
