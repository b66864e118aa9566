"""Code that the kernels of families learnt by stochastic gradient share: the step counter and the length of a step.

The counter runs in every row of `seen` alike, that of the empty component too, so that a newborn has it, and so that it
survives cuts of the stream, merges and prunes (`estimated`: i of the rule `paper`).
"""

import math
from typing import Any

from shoal.points.arrays import Array
from shoal.runtime.kernels import compiled


@compiled()
def count_point(stats: Any, n: int) -> None:
    """One more point for the first n rows."""
    for k in range(n):
        stats.seen[k] += 1.0


@compiled()
def clear_estimate(stats: Any, k: int) -> None:
    """Row k is a component that has seen nothing, with the counter of the others."""
    stats.mass[k] = 0.0
    stats.seen[k] = stats.seen[k - 1] if k > 0 else 0.0
    for b in range(stats.estimate.shape[1]):
        stats.estimate[k, b] = 0.0


@compiled()
def step_length(start: float, power: float) -> float:
    """start^-power."""
    return 1.0 / start if power == 1.0 else math.exp(-power * math.log(start))


@compiled()
def bounded(move: float, most: float) -> float:
    """`move`, within -most and most."""
    return min(max(move, -most), most)


@compiled()
def hermite(table: Array, i: int, width: int, a: int, b: int, f: float, left: float, right: float) -> float:
    """Cubic between elements i and i + 1 of a flat table with rows of `width`: values in column a, their slopes in b,
    times left and right; 0 <= f < 1."""
    at = i * width
    g = 1.0 - f
    values = (1.0 + 2.0 * f) * g * g * table[at + a] + f * f * (3.0 - 2.0 * f) * table[at + width + a]
    slopes = f * g * g * left * table[at + b] - f * f * g * right * table[at + width + b]
    result: float = values + slopes
    return result
