"""One sweep of collapsed Gibbs sampling over the labels of a Dirichlet process mixture: Neal (2000), algorithm 3.

Each point in turn leaves its component and draws another,

    p(z_i = k | rest) proportional to n_k p_k(x_i), and alpha p_0(x_i) for a new one,

n_k and the predictive density p_k without the point. Components are rows 0 <= k < n. Row n is kept empty, so that a
new component is a row like the others. The last row holds a copy of a component while its point is out. Most points
return to their component, and the copy then restores it without loss of digits. Compiled once for each form of the
predictive cache. `reference.py` is the same sweep in plain NumPy.
"""

from typing import Any, NamedTuple

import numpy as np

import shoal.families.every_kernel  # noqa: F401 - for its overloads
from shoal.families.steps_kernel import SCRATCH_ROWS, absorb, clear_row, release, score_all
from shoal.kernels.copy_rows import copy_row
from shoal.kernels.math import exp_negative
from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled, kernel


class Components(NamedTuple):
    """Rows of components, and the constants of their family's prior."""

    stats: Any  # C rows
    cache: Any  # C rows of the predictive cache
    empty: Any  # the cache of a component without points
    constants: Array


@compiled()
def _rebuild(components: Components, x: Array, i: int, k: int, labels: IntArray, s: Array) -> None:
    """Compute row k again from its points but i, in order. O(N) and one `absorb` a point."""
    stats, cache, empty, constants = components
    clear_row(cache, stats, k, empty)
    for j in range(x.shape[0]):
        if labels[j] == k and j != i:
            score_all(cache, stats, constants, x, j, 0, s[0], s)  # no scores: it leaves in s what `absorb` reads
            absorb(cache, stats, constants, x, j, k, 1.0, s)


@compiled()
def _rebuild_all(components: Components, x: Array, n: int, labels: IntArray, s: Array) -> None:
    stats, cache, empty, constants = components
    for k in range(n):
        clear_row(cache, stats, k, empty)
    for j in range(x.shape[0]):
        if labels[j] >= 0:
            score_all(cache, stats, constants, x, j, 0, s[0], s)
            absorb(cache, stats, constants, x, j, labels[j], 1.0, s)


@compiled()
def _draw(score: Array, mass: Array, log_count: Array, n: int, log_concentration: float, uniform: float) -> int:
    """A row 0..n drawn with probability proportional to n_k exp(score_k), alpha exp(score_n); by one uniform number."""
    score[n] += log_concentration
    best = score[n]
    for k in range(n):
        score[k] += log_count[int(mass[k])]
        best = max(best, score[k])
    total = 0.0
    for k in range(n + 1):
        total += exp_negative(score[k] - best)
        score[k] = total
    for k in range(n):
        if uniform * total < score[k]:
            return k
    return n


@kernel()
def gibbs_sweep(
    x: Array,
    uniforms: Array,
    components: Components,
    log_count: Array,
    log_concentration: float,
    labels: IntArray,
    n: int,
    start: int,
    rebuild: bool,
) -> tuple[int, int]:
    """Draw the labels of x[start:], one after another, x[i] by uniforms[i] in [0, 1); write `labels` and `components`.

    labels (N,): row of each point, -1 for a point in no component yet. `log_count[m]` = log m. `rebuild`: first compute
    all components again from `labels`. It ends early when fewer than two rows are left beside the n in use; the caller
    then grows the arrays and calls it again. Returns the next row of x (N: done) and the components in use.
    """
    stats, cache, empty, constants = components
    capacity = stats.mass.shape[0]
    spare = capacity - 1
    score = np.empty(capacity)
    scratch = np.empty((SCRATCH_ROWS, x.shape[1]))
    if rebuild:
        _rebuild_all(components, x, n, labels, scratch)
    if n + 2 > capacity:
        return start, n
    clear_row(cache, stats, n, empty)
    for i in range(start, x.shape[0]):
        k = labels[i]
        if k >= 0 and stats.mass[k] < 1.5:  # alone: its component goes, and the last one takes the row
            n -= 1
            labels[i] = -1
            if k != n:
                copy_row(cache, stats, n, k)
                for j in range(x.shape[0]):
                    if labels[j] == n:
                        labels[j] = k
            clear_row(cache, stats, n, empty)
            k = -1
        elif k >= 0:
            copy_row(cache, stats, k, spare)
            if not release(cache, stats, constants, x, i, k, scratch):
                _rebuild(components, x, i, k, labels, scratch)
        score_all(cache, stats, constants, x, i, n + 1, score, scratch)
        drawn = _draw(score, stats.mass, log_count, n, log_concentration, uniforms[i])
        if drawn == k:
            copy_row(cache, stats, spare, k)
            continue
        absorb(cache, stats, constants, x, i, drawn, 1.0, scratch)
        labels[i] = drawn
        if drawn == n:
            n += 1
            if n + 2 > capacity:
                return i + 1, n
            clear_row(cache, stats, n, empty)
    return x.shape[0], n
