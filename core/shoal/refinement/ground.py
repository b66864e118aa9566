"""The window as a search sees it: rows with weights, which the family scores and sums up in blocks."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from shoal.families import AnyFamily
from shoal.mixture.batch import Progress, ProgressCallback
from shoal.points.arrays import Array
from shoal.refinement.problem import Rows
from shoal.refinement.reaches import Reaches

_BLOCK_ELEMENTS = 1 << 19
"""Scores in a block: 4 MiB."""


class Ground:
    """N rows and their weights, and how many passes were made over them."""

    def __init__(self, x: Rows, weights: Array, progress: ProgressCallback = None) -> None:
        self.x, self.weights, self.progress = x, np.ascontiguousarray(weights), progress
        self.even = bool(np.all(weights == 1.0))
        self.total = float(weights.sum())
        self.passes = 0
        self.reaches: Reaches | None = None

    @property
    def n_rows(self) -> int:
        """N."""
        return int(self.x.shape[0])

    def tell(self, bound: float, n_components: int, message: str) -> None:
        """One pass more; for observers only."""
        self.passes += 1
        if self.progress is not None:
            self.progress(Progress(self.passes, bound, n_components, message, None))

    def scores(self, family: AnyFamily, params: Any) -> Iterator[tuple[slice, Array]]:
        """Blocks (rows, E log p(x | k)), (n, T) each."""
        step = max(64, _BLOCK_ELEMENTS // len(params[0]))
        for start in range(0, self.n_rows, step):
            part = slice(start, min(start + step, self.n_rows))
            yield part, np.ascontiguousarray(family.expected_log_likelihood(params, self.x[part]))

    def suffstats(self, family: AnyFamily, rows: list[Any], resp: list[Array]) -> Any:
        """Statistics (T) of components, T >= 1, given by the rows each has and its responsibilities for them."""
        found = [family.suffstats(self.x[r], self.weighted(r, q)[:, None]) for r, q in zip(rows, resp, strict=True)]
        return type(found[0])(*(np.concatenate(fields) for fields in zip(*found, strict=True)))

    def weighted(self, rows: Any, resp: Array) -> Array:
        """resp times the weights of the rows."""
        return resp if self.even else resp * self.weights[rows]
