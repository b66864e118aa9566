"""The subspace fitted again to later points, and statistics seen from it.

Principal components of points and past together: the points themselves, and of the past its second moment in the
present subspace, which stands for R points. The directions are found by subspace iteration from the present ones and a
few at random (Halko, Martinsson and Tropp 2011, algorithm 4.4). The center stays, so all moments are about it.

New clusters may lie outside the subspace of the first rows, where all components look alike. The noise tells: it was
estimated from the points that the directions were fitted to, so later points of the same kind are as far from the
subspace, but for a few per cent, and points of new clusters are much further. Then the family lags behind. It asks for
a refinement (`refinement.schedule`), and is given more directions there.

Of points that are gone, only the distance from the old subspace is known, not its direction. `restated` spreads it
evenly over all directions outside, which is its expectation under the model. Sums of squares over all features are
kept exactly.
"""

from typing import TYPE_CHECKING

import numpy as np

from shoal.families.base import take
from shoal.families.gaussian import NormalInverseWishart
from shoal.families.subspace.outliers import absurd_components, limit_distances_inplace
from shoal.families.subspace.projection import squares
from shoal.families.subspace.types import SubspaceStats
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.subspace.prior import SubspaceGaussian

_MOST_ROWS = 4_000
_OVERSAMPLING, _ITERATIONS = 8, 3
_LEAST_GAIN = 0.01
"""Share of what is outside the present subspace that another must take in."""
_MOST_OUTSIDE = 1.2
"""Mean squared distance of points from the subspace, in units of what the noise expects, above which it lags behind."""
_MOST_COUNTED = 4.0
"""Most of that which a single point counts for where directions are added, so that a few outliers add none."""
_GROWTH, _MOST_DIRECTIONS = 2, 64
"""Factor by which the number of directions grows where the subspace lags behind, and the most directions after that. On
titles of news in time order, agreement was .37 to .40 in three streams, with 48 and then 64 directions .34 to .40."""


def lags_behind(family: "SubspaceGaussian", stats: SubspaceStats, past: SubspaceStats) -> bool:
    """Whether the points of components `stats`, without those of `past`, lie further outside than the noise expects."""
    outside, mass = stats.outside.sum() - past.outside.sum(), stats.mass.sum() - past.mass.sum()
    return _lags(family, float(outside), float(mass))


def _lags(family: "SubspaceGaussian", outside: float, mass: float) -> bool:
    """Whether squared distances `outside` of `mass` points from the subspace are too many for its noise."""
    expected = family.noise_variance * (family.n_features - family.rank) * mass
    return family.rank < family.n_features and outside > _MOST_OUTSIDE * expected


def refitted(family: "SubspaceGaussian", x: Array, weights: Array, past: SubspaceStats) -> "SubspaceGaussian":
    """The family over the principal directions of points x (N, D) with weights (N,) and of the past; itself where
    these would take in little more. There are more directions where the present ones lag behind (`_MOST_OUTSIDE`).
    Of many points, evenly spaced ones are read."""
    d, rank = family.directions.shape
    if rank == d or len(x) == 0:
        return family
    rows = slice(None, None, -(-len(x) // _MOST_ROWS))
    weight = weights[rows] * (weights.sum() / weights[rows].sum())
    points = np.empty((len(weight) + rank, d))  # tens of MiB: filled in place
    np.subtract(x[rows], family.center, out=points[:-rank])
    limit_distances_inplace(points[:-rank], weight)
    points[:-rank] *= np.sqrt(weight)[:, None]
    points[-rank:] = _points_of(family, take(past, ~absurd_components(past)))
    within = squares(points @ family.directions)
    beyond = np.maximum(squares(points) - within, 0.0)[:-rank]  # those of the past lie inside
    before, outside = float(within.sum()), float(beyond.sum())
    far = _MOST_COUNTED * family.noise_variance * (d - rank) * weight
    more = rank
    if _lags(family, float(np.minimum(beyond, far).sum()), float(weight.sum())):
        more = max(rank, min(_GROWTH * rank, _MOST_DIRECTIONS, (d + 1) // 2))
    directions, inside = _principal(points, family.directions, more)
    if not inside - before > _LEAST_GAIN * outside:
        return family
    return _over(family, directions)


def _points_of(family: "SubspaceGaussian", past: SubspaceStats) -> Array:
    """R points (R, D) about the center with the past's second moment inside the subspace."""
    moment = past.scatter.sum(axis=0) + np.einsum("k,ka,kb->ab", past.mass, past.mean, past.mean)
    values, vectors = np.linalg.eigh(moment)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T @ family.directions.T)


def _principal(points: Array, start: Array, rank: int) -> tuple[Array, float]:
    """Directions (D, `rank`) of the largest sums of squares of points (N, D), and that sum over all of them."""
    d, known = start.shape
    more = np.random.default_rng(0).standard_normal((d, min(_OVERSAMPLING + rank - known, d - known)))
    basis = np.linalg.qr(np.hstack([start, more]))[0]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(points.T @ (points @ basis))[0]
    seen = points @ basis
    values, vectors = np.linalg.eigh(seen.T @ seen)
    directions = np.linalg.qr(basis @ vectors[:, ::-1][:, :rank])[0]
    return np.ascontiguousarray(directions), float(values[::-1][:rank].sum())


def _over(family: "SubspaceGaussian", directions: Array) -> "SubspaceGaussian":
    """The family over other directions, or over more of them.

    What it says of the covariance along directions that stay is the same: a block of q of the p directions of
    IW(dof, scale) is IW(dof - p + q, block of the scale). Along new ones it expects the variance of the noise.
    """
    turn = directions.T @ family.directions
    lost = np.eye(len(turn)) - turn @ turn.T
    dof = family.dof + len(turn) - family.rank
    per_variance = max(family.dof - family.rank - 1.0, 1.0)  # of an expected variance, its share in the scale
    scale = turn @ family.scale_matrix @ turn.T + per_variance * family.noise_variance * lost
    inner = NormalInverseWishart(turn @ family.mean, family.mean_strength, dof, (scale + scale.T) / 2)
    return type(family)(family.center, directions, family.noise_variance, *inner.to_arrays().values())


def restated(family: "SubspaceGaussian", stats: SubspaceStats, before: "SubspaceGaussian") -> SubspaceStats:
    """Statistics under the subspace of `before`, seen from this family's."""
    if family.directions is before.directions or np.array_equal(family.directions, before.directions):
        return stats
    turn = family.directions.T @ before.directions
    n_outside = before.n_features - before.rank
    lost = (np.eye(len(turn)) - turn @ turn.T) / max(n_outside, 1)
    mean = stats.mean @ turn.T
    scatter = turn @ stats.scatter @ turn.T + stats.outside[:, None, None] * lost
    scatter = (scatter + scatter.transpose(0, 2, 1)) / 2
    total = stats.outside + _energy(stats.mass, stats.mean, stats.scatter)
    return SubspaceStats(stats.mass, mean, scatter, np.maximum(total - _energy(stats.mass, mean, scatter), 0.0))


def _energy(mass: Array, mean: Array, scatter: Array) -> Array:
    """Sums of squares (K,) about the center, inside the subspace."""
    return np.asarray(np.trace(scatter, axis1=1, axis2=2) + mass * np.square(mean).sum(axis=1))
