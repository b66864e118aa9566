"""The base of the Gaussian families: points are anywhere in space, and components lie where their means do."""

from typing import Any, ClassVar

import numpy as np

from shoal.points.arrays import Array
from shoal.points.domains import REAL, Domain


class LocatedFamily:
    """Mixin of families whose components have a mean and a variance in each feature."""

    domain: ClassVar[Domain] = REAL
    stats_are_sums: ClassVar[bool] = True
    has_scatter: ClassVar[bool] = True
    predicts_by_kernel: ClassVar[bool] = True
    stand_in: ClassVar[str] = "diagonal"

    def positions(self: Any, stats: Any) -> Array:
        """Predictive means (K, D), centred, in units of the mass-weighted root mean within variance of each feature."""
        params = self.posterior(stats)
        means, variances = self.predictive_mean(params), self.predictive_variance(params)
        weight = np.where(np.isfinite(variances).all(axis=1), stats[0], 0.0)
        total = float(weight.sum())
        if total > 0.0:
            deviation = np.sqrt(weight @ np.where(weight[:, None] > 0.0, variances, 0.0) / total)
        else:
            deviation = np.ones(means.shape[1])
        centre = np.where(np.isfinite(means), means, 0.0).mean(axis=0)
        return np.asarray((np.where(np.isfinite(means), means, centre) - centre) / deviation)

    @staticmethod
    def coordinates(x: Array) -> Array:
        """The points themselves."""
        return x
