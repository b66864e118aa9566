"""Arguments and results of a pass of algorithm 1, common to the kernel and to its reference."""

from typing import Any, Literal, NamedTuple

import numpy as np

from shoal.families.base import AnyFamily
from shoal.families.predictive_cache import empty_cache
from shoal.mixture import MisfitMonitor, empty_monitor
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points

NO_MONITOR = empty_monitor(0)


class PassRules(NamedTuple):
    """The settings that algorithm 1 itself reads."""

    concentration: float
    """alpha > 0."""
    birth_threshold: float
    """Responsibility under the prior above which a point founds a component, in (0, 1)."""
    responsibility_floor: float
    """Smaller responsibilities are dropped and the rest renormalised, in [0, 0.1]; what is below 4e-18 always is."""
    pair_rule: Literal["none", "entropy", "overlap"]
    max_components: int
    """>= 1."""


class Components(NamedTuple):
    """The arrays that a pass reads and writes: C rows, writable and C-ordered, the first n_components in use."""

    stats: Any
    """The family's statistics."""
    cache: Any
    """The predictive cache, `families.predictive_cache`."""
    born_at: IntArray  # (C,) points seen at birth, the founding point included
    last_seen_at: IntArray  # (C,) points seen when the component last was the best of a point, that point included
    pairs: Array  # (C, C) symmetric pair sums, both triangles, diagonal zero; (0, 0) under the rule `none`
    monitor: MisfitMonitor = NO_MONITOR
    """How well components fit; no rows where nothing is watched."""


class Piece(NamedTuple):
    """Standardised points that one call absorbs in order, and the arrays that it writes for those absorbed."""

    x: Points
    """(N, D)."""
    labels: IntArray
    """(N,) written: the component (row) of largest final responsibility, a newborn counted, ties to the lowest."""
    log_density: Array
    """(N,) written: log(sum_k w_k p_k + alpha p_0) before the point was absorbed, nats. log(alpha + sum w) is still to
    be subtracted."""
    novelties: Array | None = None
    """(N,) written: the responsibility of the empty component then."""
    weights: Array | None = None
    """(N,) how many times each point's statistics and pair sums count; None: once."""


class PassResult(NamedTuple):
    """How far a pass came."""

    n_done: int
    """Rows of x absorbed: all, unless every row of the arrays is in use; then grow them and go on with x[n_done:]."""
    n_components: int
    n_refused: int
    """Births refused because there were `max_components`."""
    first_refused: int
    """Row of x whose birth was the first refused, -1 for none."""
    first_misfit: int = -1
    """Row of x at which the level of a watched component first stood above `kernel.MISFIT`, -1 for none."""


def new_components(family: AnyFamily, rows: int, pair_rule: str = "none") -> Components:
    """Arrays of `rows` rows with no component in use."""
    side = 0 if pair_rule == "none" else rows
    zeros = np.zeros(rows, dtype=np.int64)
    return Components(family.empty_stats(rows), empty_cache(family, rows), zeros, zeros.copy(), np.zeros((side, side)))
