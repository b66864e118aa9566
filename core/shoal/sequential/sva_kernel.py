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
"""

import math
from typing import Any

import numpy as np

from shoal._numba import compiled, kernel
from shoal.arrays import Array, IntArray
from shoal.families import diagonal_kernel, gaussian_kernel, known_covariance_kernel
from shoal.families.api_kernel import absorb, clear_row, score_all
from shoal.families.math_kernel import REORDER, exp_negative

OVERLOADS = (diagonal_kernel, gaussian_kernel, known_covariance_kernel)
"""Imported for their overloads: the kernel finds them by the type of the working form."""

NO_PAIRS, ENTROPY, OVERLAP = 0, 1, 2
"""Rules of the running pair sums."""

NEGLIGIBLE = 4e-18
"""The least floor: a smaller responsibility changes no sum, and denormal ones cost time."""

SMALLEST_OVERLAP = 1e-12
"""Pairs whose smaller responsibility is not above this add nothing to the overlap."""


@compiled(forceinline=True)
def _add_largest(score: Array, log_mass: Array, n: int) -> float:
    """Add the log masses to the first n scores and return the largest, -inf for none.

    Four running maxima at a time: each would wait for itself.
    """
    for k in range(n):
        score[k] += log_mass[k]
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


@compiled(fastmath=REORDER, forceinline=True)
def _exponentials(score: Array, n: int, best: float) -> float:
    """Replace the first n scores by exp(score - best); their sum."""
    total = 0.0
    for k in range(n):
        score[k] = exp_negative(score[k] - best)
        total += score[k]
    return total


@compiled(forceinline=True)
def _gather(relative: Array, n: int, share: float, floor: float, born: bool, active: IntArray, resp: Array) -> int:
    """Rows whose responsibility, share * relative, reaches the floor, in order; how many.

    The largest (relative 1) is taken in any case, unless the point founds a component, which takes its place.
    """
    count = 0
    for k in range(n):
        r = relative[k]
        if r * share >= floor or (r == 1.0 and not born):
            active[count] = k
            resp[count] = r * share
            count += 1
    return count


@compiled(forceinline=True)
def _normalise(resp: Array, count: int) -> None:
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
    n: int,
    points_seen: int,
    concentration: float,
    birth_threshold: float,
    floor: float,
    pair_rule: int,
    max_components: int,
    labels: IntArray,
    log_density: Array,
) -> tuple[int, int, int, int]:
    """Take in rows of x (N, D) in order, until all are in or no row is left for the empty component.

    Components are rows 0 <= k < n of `stats`, `work`, `born_at`, `last_seen_at` (C rows) and `pairs` (C, C). Row n
    serves as the empty component and is written here, so C >= n + 1 is needed at each point. Writes labels[i] and
    log_density[i] of every row taken in. Returns rows taken in, components in use, births refused for `max_components`,
    the first row of these or -1.

    One function, long as it is: its local numbers stay in registers, and a step more would hand over a dozen arrays.
    """
    capacity = stats.mass.shape[0]
    score, resp, log_mass = np.empty(capacity), np.empty(capacity), np.empty(capacity)
    active = np.empty(capacity, dtype=np.int64)
    scratch = np.empty((3, x.shape[1]))
    log_concentration = math.log(concentration)
    floor = max(floor, NEGLIGIBLE)
    refused = 0
    first_refused = -1
    i = 0
    for k in range(n):
        log_mass[k] = math.log(stats.mass[k])
    if n < capacity:
        clear_row(work, stats, n, empty)
    while i < x.shape[0] and n < capacity:
        score_all(work, constants, x, i, n + 1, score, scratch)
        new = score[n] + log_concentration
        best = _add_largest(score, log_mass, n)
        total = _exponentials(score, n, best)
        old = best + math.log(total)
        far = math.exp(-abs(new - old))
        log_density[i] = max(new, old) + math.log1p(far)
        novelty = (1.0 if new >= old else far) / (1.0 + far)
        wanted = novelty > birth_threshold
        born = wanted and n < max_components
        if wanted and not born:
            first_refused = i if refused == 0 else first_refused
            refused += 1
        share = ((far if new >= old else 1.0) / (1.0 + far) if born else 1.0) / total
        count = _gather(score, n, share, floor, born, active, resp)
        if born:
            active[count] = n
            resp[count] = novelty
            count += 1
        _normalise(resp, count)
        if pair_rule != NO_PAIRS:
            if born:
                _clear_pairs(pairs, n)
            _add_pairs(pairs, pair_rule, active, resp, count)
        i += 1
        label, largest = active[0], resp[0]
        for a in range(count):
            k = active[a]
            absorb(work, stats, constants, x, i - 1, k, resp[a], scratch)
            log_mass[k] = math.log(stats.mass[k])
            if resp[a] > largest:
                label, largest = k, resp[a]
        labels[i - 1] = label
        last_seen_at[label] = points_seen + i
        if born:
            born_at[n] = points_seen + i
            last_seen_at[n] = points_seen + i
            n += 1
            if n < capacity:
                clear_row(work, stats, n, empty)
    return i, n, refused, first_refused
