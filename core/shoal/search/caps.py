"""Upper bounds on a point's predictive density under a block that may still grow; they make a score admissible.

Daume (2007) bounds the rest of the evidence by 1 a point (eq. 7), which densities exceed (ERRATA 4.6). His other value,
the predictive after copies of the point (section 3.3), is no bound: other points can raise it more than copies, by
cancelling the points of the block (ERRATA 4.8). Here the bound on a point under block S and at most r further points is

    gaussian, diagonal    the peak of the Student t with S's own scale, mean_strength and dof raised by r: the scale
                          only grows with further points, and the peak falls with it
    known_covariance      the peak of the normal with the precision raised by r
    bernoulli             each feature at its odds with r more points on its side
    multinomial, poisson  the probability under the parameter that suits the point best

Each is exact algebra and holds for all possible points. A family declares its own. A family without a bound has no
admissible or trivial score.
"""

from typing import Any, Protocol, cast

import numpy as np

from shoal.errors import SettingError
from shoal.families import AnyFamily
from shoal.points.arrays import Array
from shoal.points.rows import Points


class HasCaps(Protocol):
    """A family with upper bounds on predictive densities."""

    def log_caps(self, stats: Any, x: Points, further: Array) -> Array:
        """Upper bounds as in the function `log_caps`."""


def log_caps(family: Any, stats: Any, x: Points, further: Array) -> Array:
    """(N, K): no less than log p(x_n | S_k and any points, at most further_n of them), nats.

    x (N, D), statistics of K blocks, further (N,) >= 0. Raises SettingError for a family that has no such bound.
    """
    if not hasattr(family, "log_caps"):
        name = getattr(family, "name", type(family).__name__)
        raise SettingError(f"family {name!r} has no bound for this score; choose search_score='inadmissible'")
    return cast(HasCaps, family).log_caps(stats, x, further)


def log_caps_alone(family: AnyFamily, x: Points) -> Array:
    """(N,): caps under any block that the points before each point may form."""
    return log_caps(family, family.empty_stats(1), x, np.arange(x.shape[0], dtype=np.float64))[:, 0]
