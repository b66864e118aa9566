"""Named tuples of Gaussians in a subspace: arrays with the component axis first, R coordinates in the subspace."""

from typing import NamedTuple

from shoal.points.arrays import Array


class SubspaceStats(NamedTuple):
    """Sufficient statistics of K components."""

    mass: Array  # (K,) sum of responsibilities
    mean: Array  # (K, R) weighted mean of the coordinates; 0 where the mass is 0
    scatter: Array  # (K, R, R) weighted sum of the outer products about it
    outside: Array  # (K,) weighted sum of the squared distances of points from the subspace


class SubspaceCache(NamedTuple):
    """Predictive cache: that of a full Gaussian (`GaussianCache`) over the coordinates."""

    mean: Array  # (C, R)
    mean_strength: Array  # (C,)
    dof: Array  # (C,)
    root: Array  # (C, R, R) lower triangular
    log_det: Array  # (C,)
    log_norm: Array  # (C,) nats


class ProjectedRows(NamedTuple):
    """Points as kernels read them."""

    coordinates: Array  # (N, R)
    square: Array  # (N,) squared distance from the subspace
    log_outside: Array  # (N,) log density of the noise outside, nats
    shape: tuple[int, int]  # N, R: as an array's
