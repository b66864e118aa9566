"""One pass of sequential variational approximation over a chunk of points: Lin (2013), eq. 15-16 and algorithm 1, as
ERRATA 5.4-5.8 corrects them.

Numba compiles `sva_pass` once for each predictive cache; the steps of `families.steps_kernel` are found by its type.
Points are absorbed one after another, each into the state that the last one left. So the result does not depend on
where a chunk ends, to the bit. `reference.py` is the same algorithm in plain NumPy.

Let w_k be the masses, p_k the predictive densities of point x, and p_0 that of the prior:

    rho_k proportional to w_k p_k, rho_new to alpha p_0; all sum to one.
    If rho_new > birth_threshold and there is room, all are kept, and rho_new starts a new component.
    Else rho_new is dropped and the others are normalised.
    Then responsibilities below the floor are dropped and the rest normalised, so that each point adds mass one. A
    newborn's is never dropped; without a newborn the largest is never dropped.
    Statistics and pair sums grow by the point's responsibilities times its weight, one unless given. So a point of
    weight w counts as w copies that are learnt at once, with one responsibility. Its odds of being new do not depend
    on w.

A component whose w_k p_k is far below the largest (`LEAST_CUT`) counts for nothing, in the sums either. So a component
that a bound proves to be far below is not scored (`families.bounds_kernel`): what is learnt is the same, to the bit.

The functions of the pass itself are inlined by Numba before it infers types (`inline="always"`). Compiled each for
itself, every level of calls would be optimised once more for each level above it.
"""

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import shoal.families.every_kernel  # noqa: F401 - for its overloads
from shoal.families.bounds_kernel import FEWEST_BOUNDED
from shoal.families.log_sum_exp_kernel import Terms, exponentials, gather_near, largest_of, parted, rescored
from shoal.families.steps_kernel import (
    LIMIT_ROWS,
    SCRATCH_ROWS,
    Tracks,
    Waiting,
    absorb_tracked,
    ceilings,
    clear_row,
    freeze,
    lift,
    limit,
    score_all,
    score_one,
    settle,
)
from shoal.kernels.cholesky_update import MOST_WAITING
from shoal.kernels.math import log_not_negative, log_positive
from shoal.kernels.threshold import BLOCK, fill_up
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.runtime.kernels import compiled, kernel

NEGLIGIBLE = 4e-18
"""The least floor: a smaller responsibility changes no sum, and denormal ones cost time."""

LEAST_CUT = 5.0
"""A component counts for nothing from LEAST_CUT - log(floor) nats below the best on: its responsibility, which the
floor drops, would be below 1/148 of the floor. Under a floor of 1e-3 that is 7e-6, and no more is missing of the
others'."""

LEAST_BOUNDED = 320
"""Least components x features for which any predictive cache has bounds that are worth their cost."""

SPENT, SHORTEST_BLOCK = 0.25, 32
"""A block has at most SPENT (total mass) / D points, since each takes some D / w from the bounds of a component of mass
w; where these are fewer than the second, every component is scored."""

MOST_BOUNDS = 1 << 19
"""Most rows x components of a block of more than SHORTEST_BLOCK rows, which bounds its memory."""

MOST_NEWBORN = 8
"""Components born in a block, which have no bounds, before the next block begins."""


NO_PAIRS, ENTROPY, OVERLAP = 0, 1, 2
"""Rules of the running pair sums."""

SMALLEST_OVERLAP = 1e-12
"""Pairs whose smaller responsibility is not above this add nothing to the overlap."""

MISFIT = 0.75
"""Level of a component's shortfall, in deviations of a point, above which it misfits."""

MISFIT_POINTS = 50
"""Points of a component that its level is averaged over (an exponential average)."""

LEAST_SHORTFALL, MOST_SHORTFALL = -3.0, 8.0
"""Limits of a point's shortfall, so that no single point raises an alarm."""

COLLECTED_POINTS, FIRST_MASS = 200, 30.0
"""Before a component is watched, the scores of so many of its points are collected, from that mass on."""

LEAST_SPREAD = 0.5
"""Least deviation of the scores in nats; of points that are all alike it is less."""


Memory: TypeAlias = tuple[Array, SingleArray]
"""What the arrays of `Scratch` are parts of: numbers in double and in single precision."""

_DOUBLES, _SINGLES = 7, LIMIT_ROWS + 1
"""Arrays of a number a component, in double and in single precision."""


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
    """What a pass writes for itself. Arrays of C numbers have room for more."""

    score: Array  # (C,)
    resp: Array  # (C,)
    log_mass: Array  # (C,)
    active: IntArray  # (C + 1,)
    ceiling: SingleArray  # (C,) and the rest of its last block
    limits: SingleArray  # (LIMIT_ROWS, C)
    bounds: SingleArray  # (rows of the longest block, C), or none for too few components and features to be bounded
    step: Array  # (SCRATCH_ROWS, D), the family's own
    tracks: Tracks


def new_memory(capacity: int, d: int, longest_block: int, deferred_rows: int) -> Memory:
    """Memory for the scratch of a pass over points of d features, into at most `capacity` rows of which `deferred_rows`
    have outer products that wait (`Waiting`)."""
    rows = longest_block if capacity >= FEWEST_BOUNDED and capacity * d >= LEAST_BOUNDED else 0
    n_doubles = _DOUBLES * (capacity + 1) + (SCRATCH_ROWS + MOST_WAITING * deferred_rows) * d
    return np.empty(n_doubles), np.empty(_SINGLES * (capacity + BLOCK) + rows * capacity, np.float32)


@compiled(inline="always")
def _scratch_in(memory: Memory, capacity: int, d: int) -> Scratch:
    """Views of `new_memory`. No outer product waits."""
    width, single_width = capacity + 1, capacity + BLOCK
    doubles = memory[0][: _DOUBLES * width].reshape((_DOUBLES, width))
    singles = memory[1][: _SINGLES * single_width].reshape((_SINGLES, single_width))
    bounds = memory[1][_SINGLES * single_width :].reshape((-1, capacity))
    vectors = memory[0][_DOUBLES * width :].reshape((-1, d))
    waiting = vectors[SCRATCH_ROWS:].reshape((-1, MOST_WAITING, d))
    filled = doubles[6].view(np.int64)[: waiting.shape[0]]
    for k in range(filled.size):
        filled[k] = 0
    return Scratch(
        doubles[0],
        doubles[1],
        doubles[2],
        doubles[3].view(np.uint64),
        singles[LIMIT_ROWS],
        singles[:LIMIT_ROWS],
        bounds,
        vectors[:SCRATCH_ROWS],
        Tracks(doubles[4], doubles[5], Waiting(waiting, filled)),
    )


@compiled(inline="always")
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


@compiled(inline="always")
def _begin_block(
    cache: Any, stats: Any, constants: Array, x: Array, i: int, n: int, cut: float, longest: int, scratch: Scratch
) -> tuple[int, int]:
    """Where a block that begins at row i ends, and how many components have bounds in it: all n, or none."""
    end = min(i + longest, x.shape[0])
    rows = _block_rows(stats.mass, n, x.shape[1], end - i)
    if rows == 0:
        return end, 0
    bounded = 0
    tracks = scratch.tracks
    settle(cache, stats, tracks.waiting, n)
    if freeze(cache, stats, constants, scratch.log_mass, cut, x, i, rows, n, scratch.bounds):
        bounded = n
        fill_up(scratch.ceiling, n)
    for k in range(np.uint64(n)):
        tracks.drift[k], tracks.shrink[k] = 0.0, 1.0
        limit(cache, k, tracks.drift, tracks.shrink, scratch.log_mass, scratch.limits)
    return i + rows, bounded


@compiled(inline="always")
def _scored(
    cache: Any,
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
        score_all(cache, stats, constants, x, i, n + 1, score, scratch.step)
        for k in range(n):
            score[k] += log_mass[k]
        best = largest_of(score, n)
        return gather_near(score, n, best - cut, scratch.active, scratch.resp), best, score[n], False
    ceiling = scratch.ceiling
    ceilings(cache, scratch.bounds, j, bounded, scratch.limits, ceiling)
    lift(cache, x, i, bounded, ceiling)
    # the new one first: `_absorbed` reads what the nearest leaves in scratch.step
    new = score_one(cache, stats, constants, x, i, np.uint64(n), scratch.step)
    terms = Terms(cache, stats, constants, log_mass)
    near = rescored(terms, x, i, n, bounded, cut, ceiling, scratch.active, scratch.resp, scratch.step)
    return near[0], near[1], new, near[2]


@compiled(inline="always")
def _absorbed(
    cache: Any,
    stats: Any,
    constants: Array,
    x: Array,
    i: int,
    count: int,
    bounded: int,
    just_scored: bool,
    weight: float,
    scratch: Scratch,
) -> Any:
    """Add row i, times its weight, to the components that share it; the one of the largest responsibility, the first of
    equals."""
    active, resp, tracks = scratch.active, scratch.resp, scratch.tracks
    label, largest = active[0], resp[0]
    for a in range(count):
        row = active[a]
        absorb_tracked(cache, stats, constants, x, i, row, weight * resp[a], scratch.step, tracks, just_scored)
        scratch.log_mass[row] = log_not_negative(stats.mass[row])
        if bounded > 0:
            limit(cache, row, tracks.drift, tracks.shrink, scratch.log_mass, scratch.limits)
        if resp[a] > largest:
            label, largest = row, resp[a]
    return label


@compiled(inline="always")
def place_of(resp: Array, count: int, best: float, active: IntArray) -> Any:
    """The first row whose score is the best, -1 for none."""
    for a in range(count):
        if resp[a] == best:
            return np.int64(active[a])
    return -1


@compiled(inline="always")
def gather_kept(count: int, share: float, floor: float, born: bool, active: IntArray, resp: Array) -> int:
    """Keep the rows whose responsibility, share * resp, reaches the floor, in order; how many.

    The largest (resp 1) is kept in any case, unless the point founds a component, which takes its place.
    """
    kept = 0
    for a in range(count):
        r = resp[a]
        active[kept], resp[kept] = active[a], r * share
        kept += 1 if r * share >= floor or (r == 1.0 and not born) else 0
    return kept


@compiled(inline="always")
def normalise(resp: Array, count: int) -> None:
    """Make the first `count` > 0 sum to one."""
    if count == 1:
        resp[0] = 1.0
        return
    total = 0.0
    for a in range(count):
        total += resp[a]
    for a in range(count):
        resp[a] /= total


@compiled(inline="always")
def clear_pairs(pairs: Array, k: int) -> None:
    """No sums for component k, those before it being in use."""
    for j in range(k + 1):
        pairs[k, j] = 0.0
        pairs[j, k] = 0.0


@compiled(inline="always")
def add_pairs(pairs: Array, rule: int, active: IntArray, resp: Array, count: int, weight: float) -> None:
    """Add one point to the pair sums of its active components, both triangles, times its weight.

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
            pairs[active[p], active[q]] += weight * amount
            pairs[active[q], active[p]] += weight * amount


@compiled(inline="always")
def _collect(records: Records, k: int, score: float) -> None:
    """Add a score to the moments of component k, far outliers cut off; enough of them, and it is watched."""
    n = records.collected[k]
    if n >= 20.0:
        deviation = max(math.sqrt(records.level[k] / n), LEAST_SPREAD)
        score = max(score, records.base[k] - MOST_SHORTFALL * deviation)
    records.collected[k] = n + 1.0
    delta = score - records.base[k]
    records.base[k] += delta / records.collected[k]
    records.level[k] += delta * (score - records.base[k])
    if records.collected[k] >= COLLECTED_POINTS:
        records.spread[k] = max(math.sqrt(records.level[k] / records.collected[k]), LEAST_SPREAD)
        records.level[k] = 0.0


@compiled(inline="always")
def watch(records: Records, k: int, score: float, mass: float) -> bool:
    """Move the level of the best component k by how far a point's log predictive density under it, `score`, falls short
    of what its points had; whether k now misfits. Both `score` and `mass` are from before the point is absorbed."""
    misfits = False
    if records.spread[k] > 0.0:
        shortfall = (records.base[k] - score) / records.spread[k]
        shortfall = min(max(shortfall, LEAST_SHORTFALL), MOST_SHORTFALL)
        records.level[k] += (shortfall - records.level[k]) / MISFIT_POINTS
        misfits = records.level[k] > MISFIT
    elif mass >= FIRST_MASS:
        _collect(records, k, score)
    return misfits


@kernel(makes_arrays=False)
def sva_pass(
    x: Array,
    weights: Array,
    prior: tuple[Any, Any],
    stats: Any,
    cache: Any,
    record_arrays: tuple[Any, ...],
    settings: tuple[Any, ...],
    n: int,
    points_seen: int,
    out: tuple[IntArray, Array, Array],
    memory: Memory,
) -> tuple[int, int, int, int, int]:
    """Absorb rows of x (N, D) in order, until all are absorbed or no row is left for the empty component.

    Components are rows 0 <= k < n of `stats`, `cache` and `records` (C rows). Row n serves as the empty component and
    is written here, so each point needs C >= n + 1. Writes into `out` the label, the log density and the novelty of
    rows absorbed, and the monitor's arrays as `watch` says. `weights` (N,) are those of the rows, or none (0,): all
    weigh one. Returns rows absorbed, components in use, births refused
    for `max_components`, the first row of these or -1, and the first row at which a component misfits or -1.

    `prior`, `record_arrays` and `settings` are the fields of a `KernelPrior`, `Records` and `Rules`, `memory` is
    `new_memory`. They are plain tuples, and two arrays instead of a dozen: at each call Numba reads the names of the
    fields of a named tuple, which takes half a microsecond a tuple, and a stream often learns a point a call.
    """
    empty, constants = prior
    labels, log_density, novelties = out
    records, rules = Records(*record_arrays), Rules(*settings)
    scratch = _scratch_in(memory, stats.mass.shape[0], x.shape[1])
    pairs = records.pairs
    capacity, floor, watching = stats.mass.shape[0], max(rules.floor, NEGLIGIBLE), records.spread.shape[0] > 0
    log_concentration, cut = math.log(rules.concentration), LEAST_CUT - math.log(floor)
    active, resp = scratch.active, scratch.resp
    block_start = block_end = bounded = refused = i = 0
    first_refused = first_misfit = -1
    for k in range(n):
        scratch.log_mass[k] = log_not_negative(stats.mass[k])
    if n < capacity:
        clear_row(cache, stats, n, empty)
    while i < x.shape[0] and n < capacity:
        if i == block_end or n - bounded > MOST_NEWBORN:
            block_start = i
            block_end, bounded = _begin_block(cache, stats, constants, x, i, n, cut, rules.longest_block, scratch)
        count, best, new, just_scored = _scored(
            cache, stats, constants, x, i, n, cut, bounded, i - block_start, scratch
        )
        weight = weights[i] if i < weights.shape[0] else 1.0
        nearest = place_of(resp, count, best, active) if watching else -1
        total = exponentials(resp, count, best)
        novelty, rest, surplus = parted(new + log_concentration - best, total)
        log_density[i], novelties[i] = max(new + log_concentration, best) + log_positive(surplus), novelty
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
        if rules.pair_rule != NO_PAIRS:
            if born:
                clear_pairs(pairs, n)
            add_pairs(pairs, rules.pair_rule, active, resp, count, weight)
        if watching and not born and nearest >= 0:
            misfits = watch(records, nearest, best - scratch.log_mass[nearest], stats.mass[nearest])
            first_misfit = i if misfits and first_misfit < 0 else first_misfit
        label = _absorbed(cache, stats, constants, x, i, count, bounded, just_scored and not born, weight, scratch)
        i += 1
        labels[i - 1] = label
        records.last_seen_at[label] = points_seen + i
        if born:
            records.born_at[n] = records.last_seen_at[n] = points_seen + i
            scratch.tracks.drift[n], scratch.tracks.shrink[n] = 0.0, 1.0
            n += 1
            if n < capacity:
                clear_row(cache, stats, n, empty)
    settle(cache, stats, scratch.tracks.waiting, n)
    return i, n, refused, first_refused, first_misfit
