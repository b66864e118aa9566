"""Reference scores for the misfit monitor: leave-one-out predictive densities of each component's own points.

In the stream a point is scored before it is learnt. So each point of the window must be scored by its component without
that point. A young component predicts its own points better than new ones. With points left in, it would seem to misfit
later even in a stationary stream, by about (free parameters / mass) / sqrt(D / 2) deviations.
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily, take
from shoal.families.capabilities import log_left_out
from shoal.inference import Rows
from shoal.inference.e_step import best_entries
from shoal.points.arrays import Array
from shoal.sequential.kernel import LEAST_SHORTFALL, LEAST_SPREAD, MOST_SHORTFALL

FEWEST_POINTS = 30
"""Fewest points in the window for a component to be monitored."""

_MOST_POINTS = 200


def own_fit(family: AnyFamily, stats: Any, rows: Rows, weights: Array, resp: csr_matrix) -> tuple[Array, Array]:
    """Mean (T,) and deviation (T,) of the log predictive density, nats, of each component's own points.

    The deviation is 0 where there are too few.

    stats (T rows) hold the rows (N, D) with responsibilities `resp` (N, T) times `weights` (N,).
    """
    t = len(stats[0])
    base, spread = np.zeros(t), np.zeros(t)
    best, share = best_entries(resp)
    order = np.argsort(best, kind="stable")
    ends = np.searchsorted(best[order], np.arange(t + 1))
    for k in range(t):
        own = order[ends[k] : ends[k + 1]]
        if own.size < FEWEST_POINTS:
            continue
        own = own[np.linspace(0, own.size - 1, min(_MOST_POINTS, own.size)).astype(np.int64)]
        scores = log_left_out(family, take(stats, [k]), rows[own], share[own] * weights[own])
        base[k], spread[k] = _moments(scores)
    return base, spread


def _moments(scores: Array) -> tuple[float, float]:
    """Mean and deviation of scores, with outliers clipped as the monitor clips them, so that its mean level is 0."""
    middle, spread = float(np.mean(scores)), max(float(np.std(scores)), LEAST_SPREAD)
    clipped = np.clip((middle - scores) / spread, LEAST_SHORTFALL, MOST_SHORTFALL)
    return middle - spread * float(clipped.mean()), spread
