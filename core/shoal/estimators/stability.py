"""Stability of a clustering: do two learners, each of half of the rows, find the same groups?

Rows that go together for one learner and not for the other are grouped by chance. The measure is that of Ben-Hur,
Elisseeff and Guyon (2002), with disjoint halves and the adjusted Rand index.
"""

from dataclasses import replace
from typing import NamedTuple

from shoal.clusters import cut
from shoal.errors import NoPointsError
from shoal.estimators.fitted import Fitted
from shoal.mixture import StreamSettings
from shoal.points.agreement import adjusted_rand_index
from shoal.points.arrays import IntArray
from shoal.points.weighted_rows import LearntPoints, unweighted

FEWEST_ROWS = 20
"""Fewest rows: ten for each learner."""


class Stability(NamedTuple):
    """Agreement of two learners of alternate rows. The adjusted Rand index is 1 for equal groups, about 0 by chance."""

    agreement: float
    """Of the clusters."""
    component_agreement: float
    """Of the components."""
    n_clusters: tuple[int, int]
    """Number of clusters that each of them has."""
    n_rows: int
    """Number of rows, of which each learnt half and both labelled all."""


def stability_of(
    settings: StreamSettings, rows: LearntPoints, n_clusters: int | None = None, resolution: float | None = None
) -> Stability:
    """Stability of the clusters of rows (N, D) in the order of their arrival; the choice is that of `clusters.cut`.

    Where a learner has fewer components than `n_clusters`, its clusters are these. Raises NoPointsError without
    a window or for fewer than twenty rows, SettingError for an invalid choice. Costs about as much as learning the
    rows.
    """
    if settings.window_rows == 0:
        raise NoPointsError(
            "stability is measured on the window, and no window is kept; it needs window > 0, method='default' and a "
            "family that is refined"
        )
    if len(rows) < FEWEST_ROWS:
        raise NoPointsError(
            f"the window has {len(rows)} rows, stability needs at least {FEWEST_ROWS}; send more points"
        )
    half_life = settings.half_life_points
    halves = replace(settings, half_life=None if half_life is None else max(1.0, half_life / 2.0))
    labels: list[tuple[IntArray, IntArray]] = []
    numbers: list[int] = []
    for first in (0, 1):
        learner = Fitted.empty(halves)
        learner.learn(rows[first::2])
        most = None if n_clusters is None else min(n_clusters, learner.snapshot.n_components)
        found = cut(learner.hierarchy, most, resolution)
        component = learner.snapshot.predict(unweighted(rows), with_resp=False).component
        labels.append((found.of_components(component), component))
        numbers.append(found.n_clusters)
    clusters, components = (adjusted_rand_index(*pair) for pair in zip(*labels, strict=True))
    return Stability(clusters, components, (numbers[0], numbers[1]), len(rows))
