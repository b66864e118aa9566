"""Points with a weight each: rows that pass where points to learn from pass, and keep their weights when cut."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from shoal.errors import InputError, ShapeError, counted
from shoal.points.arrays import Array
from shoal.points.rows import Points, stacked

LEAST_WEIGHT, MOST_WEIGHT = 1e-9, 1e9
"""Limits of a weight. Sums of 10^12 points of them, and their squares, stay far from the limits of a float64."""


class WeightedRows:
    """Rows (N, D) with weights (N,)."""

    def __init__(self, points: Points, weights: Array) -> None:
        self.points, self.weights = points, weights

    def __len__(self) -> int:
        """N."""
        return int(self.points.shape[0])

    def __getitem__(self, rows: Any) -> "WeightedRows":
        return WeightedRows(self.points[rows], self.weights[rows])

    @property
    def shape(self) -> tuple[int, int]:
        """(N, D)."""
        return len(self), int(self.points.shape[1])


LearntPoints: TypeAlias = Points | WeightedRows
"""Rows to learn from. Where they are plain, each has weight one."""


def with_weights(x: Points, weights: Array | None) -> LearntPoints:
    """Rows (N, D) with weights (N,); the rows alone where all weights are one, or there are none."""
    return x if weights is None or bool(np.all(weights == 1.0)) else WeightedRows(x, weights)


def unweighted(x: Any) -> Any:
    """The rows alone."""
    return x.points if isinstance(x, WeightedRows) else x


def weights_of(x: Any) -> Array | None:
    """The weights (N,). None where each row has weight one."""
    return x.weights if isinstance(x, WeightedRows) else None


def stacked_weighted(parts: Sequence[Any]) -> LearntPoints:
    """Rows of the same kind and width with their weights, one part below the other; at least one part."""
    rows, weights = stacked([unweighted(part) for part in parts]), joined_weights(parts)
    return rows if weights is None else WeightedRows(rows, weights)


def joined_weights(parts: Sequence[Any]) -> Array | None:
    """The weights of some rows, one part after the other. None where each row has weight one."""
    found = [weights_of(part) for part in parts]
    if all(weights is None for weights in found):
        return None
    return np.concatenate([np.ones(p.shape[0]) if w is None else w for p, w in zip(parts, found, strict=True)])


def checked_weights(weights: Any, n: int) -> Array:
    """Weights (N,) as float64. Raises ShapeError, and InputError for the first that is out of range."""
    try:
        found = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"the weights are not numbers ({error}); give one number above 0 for each point") from error
    if found.shape != (n,):
        raise ShapeError(f"the weights have shape {found.shape} for {counted(n, 'point')}; give one for each point")
    with np.errstate(invalid="ignore"):
        bad = ~((found >= LEAST_WEIGHT) & (found <= MOST_WEIGHT))
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"row {row} has the weight {float(found[row])!r}, but weights are above zero; give a number from "
            f"{LEAST_WEIGHT:g} to {MOST_WEIGHT:g}",
            row=row,
        )
    return np.ascontiguousarray(found)
