"""The misfit monitor of one pass: how far a component's points fall short of what it used to predict them by."""

import math

from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled

MISFIT = 0.75
"""Level of a component's shortfall, in deviations of a point, above which it misfits."""

MISFIT_POINTS = 50
"""Points of a component that its level is averaged over (an exponential average)."""

LEAST_SHORTFALL, MOST_SHORTFALL = -3.0, 8.0
"""A point's shortfall is held within these, so that no single point makes an alarm."""

COLLECTED_POINTS, FIRST_MASS = 200, 30.0
"""A component that is not watched yet collects the scores of so many points, from that mass on."""

LEAST_SPREAD = 0.5
"""Nats; a spread below it (points that are all alike) is taken for it."""


@compiled()
def _collect(base: Array, spread: Array, level: Array, collected: Array, k: int, score: float) -> None:
    """Add a score to the moments of component k, far outliers held; enough of them, and it is watched."""
    n = collected[k]
    if n >= 20.0:
        score = max(score, base[k] - MOST_SHORTFALL * max(math.sqrt(level[k] / n), LEAST_SPREAD))
    collected[k] = n + 1.0
    delta = score - base[k]
    base[k] += delta / collected[k]
    level[k] += delta * (score - base[k])
    if collected[k] >= COLLECTED_POINTS:
        spread[k] = max(math.sqrt(level[k] / collected[k]), LEAST_SPREAD)
        level[k] = 0.0


@compiled()
def watch(k: int, score: float, mass: float, base: Array, spread: Array, level: Array, collected: Array) -> bool:
    """Move the level of the best component k by the shortfall of a point's log predictive density under it, `score`,
    from before it is taken in; whether k now misfits."""
    if spread[k] <= 0.0:
        if mass >= FIRST_MASS:
            _collect(base, spread, level, collected, k, score)
        return False
    shortfall = min(max((base[k] - score) / spread[k], LEAST_SHORTFALL), MOST_SHORTFALL)
    level[k] += (shortfall - level[k]) / MISFIT_POINTS
    return bool(level[k] > MISFIT)
