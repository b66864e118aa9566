"""Which prior a batch fit uses: one given by the user, on the data as they are, or one made from the data."""

from typing import Any, NamedTuple

import numpy as np

from shoal.errors import SettingError
from shoal.families import FAMILIES, AnyFamily
from shoal.mixture import StreamSettings
from shoal.points.arrays import Array
from shoal.points.rows import Points, SparseRows
from shoal.sequential.prior import choose_prior

MOST_ROWS = 1_000
"""Rows, drawn at random, that an automatic prior is made from: as many as a stream takes."""


class PlacedPrior(NamedTuple):
    """A prior for points (x - location) / scale."""

    location: Array  # (D,)
    scale: Array  # (D,) > 0
    prior: AnyFamily

    @property
    def log_volume(self) -> float:
        """log |d x / d standardised|: to be taken from the log density of each standardised point."""
        return float(np.log(self.scale).sum())

    def standardise(self, x: Points) -> Any:
        """Points in the prior's coordinates, (N, D) C-ordered; sparse rows, which have no others, as they are."""
        return x if isinstance(x, SparseRows) else np.ascontiguousarray((x - self.location) / self.scale)


def place_prior(family: Any, x: Points, concentration: float, rng: np.random.Generator) -> PlacedPrior:
    """The prior for points x (N, D), N >= 1.

    A prior object is taken as it is, for the points as they are: location 0, scale 1. A family's name asks for one
    made from the data, as a stream makes it (`sequential.prior`): columns are standardised (a constant one gets
    the median deviation of the others), and within-component variance and its weight are those that best predict a
    random 1,000 of the rows, each from those before it in one pass. The evidence then is that of this prior, chosen
    with the data in sight: fair between methods and truncations under the same random_state, optimistic beside a prior
    that was chosen without. Raises SettingError.
    """
    if isinstance(family, str):
        if family not in FAMILIES:
            raise SettingError(f"family is {family!r}; choose one of {', '.join(FAMILIES)}, or give a prior object")
        rows = x[rng.permutation(len(x))[:MOST_ROWS]]
        settings = StreamSettings(family=family, n_features=x.shape[1], concentration=concentration)
        chosen = choose_prior(rows, settings)
        return PlacedPrior(chosen.location, chosen.scale, chosen.prior)
    if getattr(type(family), "name", None) not in FAMILIES:
        raise SettingError(f"family is {family!r}; give one of {', '.join(FAMILIES)}, or a prior from shoal.families")
    d = x.shape[1]
    if family.n_features != d:
        raise SettingError(f"family is a prior for {family.n_features} features, the points have {d}; make it for {d}")
    return PlacedPrior(np.zeros(d), np.ones(d), family)
