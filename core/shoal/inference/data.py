"""Rows with weights, as a search reads them: a window of a stream, a whole data set, or the nodes of a tree."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily, concatenated, take
from shoal.families.capabilities import fitted_suffstats, suffstats_given
from shoal.inference.distance_bounds import DistanceBounds
from shoal.points.arrays import Array

Rows: TypeAlias = Any
"""(N, D) rows: an `Array`, or sparse rows for a family of counts."""
Observer: TypeAlias = Callable[[int, float, int, str], None]
"""Receives, after each pass: passes made, the bound in nats, the number of components, and a word for the step."""

_BLOCK_ELEMENTS = 1 << 19
"""Scores in a block: 4 MiB."""


class WindowData:
    """N rows with weights. It counts the passes over them, and carries distance bounds from one pass to the next."""

    def __init__(self, x: Rows, weights: Array, observer: Observer | None = None, most_passes: float = np.inf) -> None:
        self.x, self.weights, self.observer = x, np.ascontiguousarray(weights), observer
        self.unweighted = bool(np.all(weights == 1.0))
        self.total = float(weights.sum())
        self.passes, self.most_passes = 0, most_passes
        self.distance_bounds: DistanceBounds | None = None

    @property
    def n_rows(self) -> int:
        """N."""
        return int(self.x.shape[0])

    @property
    def exhausted(self) -> bool:
        """Whether no further pass is allowed."""
        return self.passes >= self.most_passes

    def count_pass(self, bound: float, n_components: int, message: str) -> None:
        """Count one pass, and report it to the observer."""
        self.passes += 1
        if self.observer is not None:
            self.observer(self.passes, bound, n_components, message)

    def score_blocks(self, family: AnyFamily, params: Any) -> Iterator[tuple[slice, Array]]:
        """Blocks (rows, E log p(x | k)), (n, T) each."""
        step = max(64, _BLOCK_ELEMENTS // len(params[0]))
        for start in range(0, self.n_rows, step):
            part = slice(start, min(start + step, self.n_rows))
            yield part, np.ascontiguousarray(family.expected_log_likelihood(params, self.x[part]))

    def suffstats(self, family: AnyFamily, rows: list[Any], resp: list[Array], params: Any = None) -> Any:
        """Statistics of T >= 1 components, each given by its rows and its responsibilities for them.

        Latent variables of the rows, if the family has any, are fitted to the components' posteriors `params` (T), or
        together with the components where these are not given.
        """
        found = []
        for k, (own, share) in enumerate(zip(rows, resp, strict=True)):
            x, weight = self.x[own], self.weighted(own, share)[:, None]
            if params is None:
                found.append(fitted_suffstats(family, x, weight))
            else:
                found.append(suffstats_given(family, take(params, [k]), x, weight))
        return concatenated(*found)

    def suffstats_under(self, family: AnyFamily, resp: csr_matrix, params: Any = None) -> Any:
        """Statistics of T >= 1 components under responsibilities (N, T); `params` as in `suffstats`."""
        columns = resp.tocsc()
        starts = columns.indptr
        spans = [slice(int(starts[k]), int(starts[k + 1])) for k in range(columns.shape[1])]
        return self.suffstats(family, [columns.indices[s] for s in spans], [columns.data[s] for s in spans], params)

    def weighted(self, rows: Any, resp: Array) -> Array:
        """resp times the weights of the rows."""
        return resp if self.unweighted else resp * self.weights[rows]
