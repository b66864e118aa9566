"""A prior in coordinates of its own: those of the data, shifted and scaled."""

from typing import Any, NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows


class PlacedPrior(NamedTuple):
    """A prior for points (x - location) / scale."""

    location: Array  # (D,)
    scale: Array  # (D,) > 0
    prior: AnyFamily
    learned: bool = False
    """Whether the prior was made from the data."""

    @property
    def log_volume(self) -> float:
        """log |d x / d standardised|, to be subtracted from the log density of each standardised point."""
        return float(np.log(self.scale).sum())

    def standardise(self, x: Points) -> Any:
        """Points in the prior's coordinates, (N, D) C-ordered; sparse rows are not standardised."""
        return x if isinstance(x, SparseRows) else np.ascontiguousarray((x - self.location) / self.scale)
