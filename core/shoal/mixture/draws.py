"""Points drawn from a mixture."""

from typing import Any

import numpy as np

from shoal.errors import NoPointsError, SettingError
from shoal.families import take
from shoal.mixture.snapshot import MixtureSnapshot
from shoal.points.arrays import Array, IntArray

_BLOCK_ELEMENTS = 1 << 21


def draw_points(snapshot: MixtureSnapshot, n: int, rng: np.random.Generator) -> tuple[Array, IntArray]:
    """n points (n, D) of existing components in the units of the data, and the id of the component of each.

    A point is drawn from the posterior predictive: it has a parameter of its own, drawn from the posterior of its
    component. Raises NoPointsError where there are no components, SettingError for a family that cannot draw.
    """
    prior: Any = snapshot.prior
    if prior is None or snapshot.n_components == 0:
        raise NoPointsError("there are no components yet; learn points first")
    if not hasattr(prior, "sample_parameters"):
        raise SettingError(f"points of family {snapshot.settings.family!r} cannot be drawn; use another family")
    rows = rng.choice(snapshot.n_components, size=n, p=snapshot.weights / snapshot.weights.sum())
    d = snapshot.location.size
    drawn = np.empty((n, d))
    step = max(1, _BLOCK_ELEMENTS // d**2)
    params = prior.posterior(snapshot.stats)
    for start in range(0, n, step):
        block = slice(start, start + step)
        parameters = prior.sample_parameters(take(params, rows[block]), rng)
        drawn[block] = prior.sample_points(parameters, 1, rng)[:, 0]
    return drawn * snapshot.scale + snapshot.location, snapshot.ids[rows]
