"""How far the clusters that a feature shows by itself spread: the search of `auto_prior` over one dimension, compiled.

Some eight passes a feature, each over a few hundred points: called one by one from Python they take twice as long.
"""

import math
from typing import Any

import numpy as np

from shoal.families.steps_kernel import rows_between
from shoal.points.arrays import Array, IntArray
from shoal.runtime.kernels import compiled, kernel
from shoal.sequential.responsibilities_kernel import NO_PAIRS
from shoal.sequential.sva_kernel import Records, Rules, new_scratch, pass_over

_LONGEST_BLOCK = 1
"""Every component is scored: in one dimension bounds save nothing."""


@compiled()
def most_births(max_components: int, n: int) -> int:
    """How many components a trial over n rows may have; as `trials.Trials` has it."""
    return min(max_components, max(8, n // 4))


@compiled()
def _score(log_density: Array, end: int, concentration: float) -> float:
    """Log predictive density of the rows that are scored, all but the first quarter of `end`."""
    score = 0.0
    for i in range(end // 4, end):
        score += log_density[i] - math.log(concentration + i)
    return -math.inf if math.isnan(score) else score


@compiled()
def _first_of_the_best(score: Array, held: IntArray) -> int:
    """The trial of the highest score among those that are held, of equals the first."""
    best = -1
    for p in range(score.size):
        if held[p] != 0 and (best < 0 or score[p] > score[best]):
            best = p
    return best


@compiled()
def _keep_the_best(score: Array, n_kept: int, held: IntArray) -> None:
    """Mark the `n_kept` trials of the highest scores with 1, the others with 0."""
    held[:] = 2
    for _ in range(n_kept):
        best = -1
        for p in range(score.size):
            if held[p] == 2 and (best < 0 or score[p] > score[best]):
                best = p
        held[best] = 1
    for p in range(score.size):
        held[p] = held[p] % 2


@compiled()
def _variance_within(x: Array, labels: IntArray, n: int, count: Array, mean: Array) -> float:
    """Pooled variance of x (N, 1) within n groups, some of which may be empty."""
    count[:n], mean[:n] = 0.0, 0.0
    for i in range(labels.size):
        k = labels[i]
        count[k] += 1.0
        mean[k] += (x[i, 0] - mean[k]) / count[k]
    squares, groups = 0.0, 0
    for i in range(labels.size):
        e = x[i, 0] - mean[labels[i]]
        squares += e * e
    for k in range(n):
        groups += 1 if count[k] > 0.0 else 0
    return squares / max(1, labels.size - groups)


@kernel()
def variances_alone(
    columns: Array,
    empty: Any,
    stats: Any,
    work: Any,
    concentration: float,
    birth_threshold: float,
    floor: float,
    max_components: int,
    out: Array,
) -> None:
    """Write into out[b] the variance of columns[b] (D, N, 1) within the components that the best of its priors finds.

    Rows b P .. (b + 1) P - 1 of `empty` are the empty components of the P priors of column b; `stats` and `work` have
    room for the components of P trials. As `trials.best_of`
    has it of so few: all are tried over half of the points, the better third go on to the end.
    """
    points, n_priors = columns.shape[1], empty.log_norm.size // columns.shape[0]
    rows = stats.mass.size // n_priors
    count, mean = np.empty(rows), np.empty(rows)
    labels, log_density = np.empty((n_priors, points), dtype=np.int64), np.empty((n_priors, points))
    progress = np.zeros((3, n_priors), dtype=np.int64)
    done, n_found, held = progress[0], progress[1], progress[2]
    score, none = np.empty(n_priors), np.zeros((0, 0))
    scratch = new_scratch(rows_between(work, 0, rows), rows, 1, _LONGEST_BLOCK)
    seen = np.zeros(rows, dtype=np.int64)
    records = Records(seen, seen.copy(), none, none[:, 0], none[:, 0], none[:, 0], none[:, 0])
    for b in range(columns.shape[0]):
        held[:], done[:], n_found[:] = 1, 0, 0
        for end in (points // 2, points):
            most = most_births(max_components, end)
            rules = Rules(concentration, birth_threshold, floor, NO_PAIRS, most, _LONGEST_BLOCK)
            for p in range(n_priors):
                if held[p] == 0:
                    continue
                prior = rows_between(empty, b * n_priors + p, b * n_priors + p + 1)
                own = rows_between(stats, p * rows, (p + 1) * rows), rows_between(work, p * rows, (p + 1) * rows)
                given = (columns[b, done[p] : end], prior, none, *own)
                out_of = (labels[p, done[p] :], log_density[p, done[p] :], scratch)
                ended = pass_over(*given, records, rules, n_found[p], done[p], *out_of)
                score[p] = _score(log_density[p], end, concentration)
                n_found[p], done[p] = ended[1], end
                if ended[2] > 0 and end < points:  # so few rows had no room for its births: it begins anew
                    n_found[p] = done[p] = 0
            if end < points:
                _keep_the_best(score, -(-n_priors // 3), held)
        best = _first_of_the_best(score, held)
        out[b] = _variance_within(columns[b], labels[best], n_found[best], count, mean)
