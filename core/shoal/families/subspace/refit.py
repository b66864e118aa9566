"""The subspace fitted again to later points, and statistics seen from it.

Principal components of points and past together: the points themselves, and of the past its second moment in the
present subspace, which stands for R points. The directions are found by subspace iteration from the present ones and a
few at random (Halko, Martinsson and Tropp 2011, algorithm 4.4). The center stays, so all moments are about it.

Of points that are gone, only the distance from the old subspace is known, not its direction. `restated` spreads it
evenly over all directions outside, which is its expectation under the model. Sums of squares over all features are
kept exactly.
"""

from typing import TYPE_CHECKING

import numpy as np

from shoal.families.gaussian import NormalInverseWishart
from shoal.families.subspace.types import SubspaceStats
from shoal.points.arrays import Array

if TYPE_CHECKING:
    from shoal.families.subspace.prior import SubspaceGaussian

_MOST_ROWS = 4_000
_OVERSAMPLING, _ITERATIONS = 8, 3
_LEAST_GAIN = 0.01
"""Share of what is outside the present subspace that another must take in."""


def refitted(family: "SubspaceGaussian", x: Array, weights: Array, past: SubspaceStats) -> "SubspaceGaussian":
    """The family over the principal directions of points x (N, D) with weights (N,) and of the past; itself where
    these would take in little more. Of many points, evenly spaced ones are read."""
    d, rank = family.directions.shape
    if rank == d or len(x) == 0:
        return family
    rows = slice(None, None, -(-len(x) // _MOST_ROWS))
    weight = weights[rows] * (weights.sum() / weights[rows].sum())
    points = np.empty((len(weight) + rank, d))  # tens of MiB: filled in place
    np.subtract(x[rows], family.center, out=points[:-rank])
    points[:-rank] *= np.sqrt(weight)[:, None]
    points[-rank:] = _points_of(family, past)
    before = float(np.square(points @ family.directions).sum())
    directions, inside = _principal(points, family.directions)
    outside = float(np.vdot(points, points)) - before
    if not inside - before > _LEAST_GAIN * outside:
        return family
    return _over(family, directions)


def _points_of(family: "SubspaceGaussian", past: SubspaceStats) -> Array:
    """R points (R, D) about the center with the past's second moment inside the subspace."""
    moment = past.scatter.sum(axis=0) + np.einsum("k,ka,kb->ab", past.mass, past.mean, past.mean)
    values, vectors = np.linalg.eigh(moment)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T @ family.directions.T)


def _principal(points: Array, start: Array) -> tuple[Array, float]:
    """Directions (D, R) of the largest sums of squares of points (N, D), and that sum over all of them."""
    d, rank = start.shape
    more = np.random.default_rng(0).standard_normal((d, min(_OVERSAMPLING, d - rank)))
    basis = np.linalg.qr(np.hstack([start, more]))[0]
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(points.T @ (points @ basis))[0]
    seen = points @ basis
    values, vectors = np.linalg.eigh(seen.T @ seen)
    directions = np.linalg.qr(basis @ vectors[:, ::-1][:, :rank])[0]
    return np.ascontiguousarray(directions), float(values[::-1][:rank].sum())


def _over(family: "SubspaceGaussian", directions: Array) -> "SubspaceGaussian":
    """The family over other directions; the prior of the coordinates is what it says of them, the noise included."""
    turn = directions.T @ family.directions
    lost = np.eye(len(turn)) - turn @ turn.T
    scale = turn @ family.scale_matrix @ turn.T + family.dof * family.noise_variance * lost
    inner = NormalInverseWishart(turn @ family.mean, family.mean_strength, family.dof, (scale + scale.T) / 2)
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
