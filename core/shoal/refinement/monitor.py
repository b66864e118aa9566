"""What a refinement tells the misfit monitor: how well each component predicts its own points, left out of it.

In the stream a point is scored before it is taken in. So the points of the window must be scored by their component
without them, or a young component, which predicts what it has seen better than what comes, would seem to misfit later
however stationary the stream: by about (free parameters / mass) / sqrt(D / 2) deviations.
"""

from functools import singledispatch
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart, take
from shoal.families.diagonal import DiagonalStats
from shoal.families.gaussian import GaussianStats
from shoal.families.known_covariance import LOG_2PI, KnownCovarianceStats
from shoal.kernels.distances import whitened_quadratic
from shoal.kernels.linalg import cholesky, inverse_lower, log_determinant, log_gamma_ratio
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import SparseRows
from shoal.refinement.entries_kernel import find_largest
from shoal.refinement.problem import Rows
from shoal.sequential.misfit_kernel import LEAST_SHORTFALL, LEAST_SPREAD, MOST_SHORTFALL
from shoal.variational.vdp_features import Origin, seen_from, statistics

FEWEST_POINTS = 30
"""A component with fewer points in the window is not watched."""

_MOST_POINTS = 200
_BLOCK_ELEMENTS = 1 << 19
_LEAST_REST = 1e-12
"""Least share of a scale matrix's determinant, or of a rate, that is left without a point: rounding would leave
nothing."""


def own_fit(family: AnyFamily, stats: Any, rows: Rows, weights: Array, resp: csr_matrix) -> tuple[Array, Array]:
    """Mean (T,) and deviation (T,) of the log predictive density, nats, of each component's own points; deviation 0
    where they are too few.

    stats (T rows) hold the rows (N, D) with responsibilities `resp` (N, T) times `weights` (N,).
    """
    t = len(stats[0])
    base, spread = np.zeros(t), np.zeros(t)
    best, share = best_entries(resp)
    order = np.argsort(best, kind="stable")
    ends = np.searchsorted(best[order], np.arange(t + 1))
    for k in range(t):
        own = order[ends[k] : ends[k + 1]]
        if own.size < FEWEST_POINTS:
            continue
        own = own[np.linspace(0, own.size - 1, min(_MOST_POINTS, own.size)).astype(np.int64)]
        scores = left_out(family, take(stats, [k]), rows[own], share[own] * weights[own])
        base[k], spread[k] = _moments(scores)
    return base, spread


def best_entries(resp: csr_matrix) -> tuple[IntArray, Array]:
    """Column (N,) and value (N,) of the largest entry of each row, the first of equals.

    Raises ValueError for a row without one.
    """
    if not np.diff(resp.indptr).all():
        raise ValueError("a row without a responsibility has no best component; scores that are NaN lead there")
    best, largest = np.empty(resp.shape[0], dtype=np.int64), np.empty(resp.shape[0])
    find_largest(resp.indptr, resp.indices, resp.data, best, largest)
    return best, largest


@singledispatch
def left_out(family: AnyFamily, component: Any, x: Rows, share: Array) -> Array:
    """log p(x | the component without it) (M,) of the points x (M, D), which are in it with weights `share` (M,).

    With A the log partition function of the conjugate prior and s the natural parameters of the posterior without a
    point, log p(x) = A(s + t(x)) - A(s) + log h(x): all points of a block at once.
    """
    located = "mean" in component._fields
    origin = Origin(component.mean[0] if located else np.zeros(x.shape[1]), located)
    whole = family.natural(seen_from(family, family.posterior(component), origin))
    scores = np.empty(len(share))
    step = max(1, _BLOCK_ELEMENTS // whole.size)
    for start in range(0, len(share), step):
        part = slice(start, start + step)
        rows, log_carrier = statistics(family, x[part], origin)
        rows = rows.toarray() if isinstance(rows, SparseRows) else rows
        rest = whole - share[part, None] * rows
        scores[part] = _log_partition(family, rest + rows) - _log_partition(family, rest) + log_carrier
    return scores


@left_out.register
def _(family: NormalInverseWishart, component: GaussianStats, x: Array, share: Array) -> Array:
    """By one factor of the component's scale matrix. With e = x - m, c = kappa u / (kappa - u) and q = e' Psi^-1 e,

        Psi without u points at x = Psi - c e e',    |..| = |Psi| (1 - c q),    e' (..)^-1 e = q / (1 - c q)

    (Sherman and Morrison 1950), and x is kappa / (kappa - u) times as far from the mean that is left.
    """
    params, d = family.posterior(component), family.n_features
    factor = cholesky(params.scale)
    strength, dof = params.mean_strength[0] - share, params.dof[0] - share
    away = params.mean_strength[0] / strength
    square = whitened_quadratic(x, params.mean, inverse_lower(factor))[:, 0]
    rest = np.maximum(1.0 - away * share * square, _LEAST_REST)
    shrink = strength / (strength + 1.0)
    constant = log_gamma_ratio((dof + 1.0 - d) / 2.0, d / 2.0) + 0.5 * d * np.log(shrink / np.pi)
    log_det = log_determinant(factor)[0] + np.log(rest)
    distance = shrink * away**2 * square / rest
    return np.asarray(constant - 0.5 * log_det - 0.5 * (dof + 1.0) * np.log1p(distance))


@left_out.register
def _(family: NormalInverseGamma, component: DiagonalStats, x: Array, share: Array) -> Array:
    """As under a full covariance, each feature by itself: psi_d without u points at x is psi_d - c e_d^2 / 2."""
    params = family.posterior(component)
    strength, shape = params.mean_strength[0] - share, params.shape[0] - 0.5 * share
    away, shrink = params.mean_strength[0] / strength, strength / (strength + 1.0)
    square = np.square(x - params.mean[0])
    rate = params.rate[0]
    rate = np.maximum(rate - 0.5 * (away * share)[:, None] * square, _LEAST_REST * rate)
    width = 2.0 * rate / shrink[:, None]
    constant = family.n_features * (log_gamma_ratio(shape, 0.5) - 0.5 * np.log(np.pi)) - 0.5 * np.log(width).sum(axis=1)
    distance = np.log1p(away[:, None] ** 2 * square / width).sum(axis=1)
    return np.asarray(constant - (shape + 0.5) * distance)


@left_out.register
def _(family: KnownCovariance, component: KnownCovarianceStats, x: Array, share: Array) -> Array:
    """In the basis: a coordinate is p / (p - u) times as far from the mean that is left as from the whole one."""
    params = family.posterior(component)
    whole = params.precision
    precision = whole - share[:, None]
    away = family.to_basis(x - params.mean) * (whole / precision)
    constant = -0.5 * family.n_features * LOG_2PI + family.log_det_basis - 0.5 * np.log1p(1.0 / precision).sum(axis=1)
    return np.asarray(constant - 0.5 * (np.square(away) * (precision / (precision + 1.0))).sum(axis=1))


def _log_partition(family: AnyFamily, natural: Array) -> Array:
    return np.asarray(family.log_partition(family.from_natural(natural)))


def _moments(scores: Array) -> tuple[float, float]:
    """Mean and deviation of scores, outliers held as the monitor holds them, so that its level is 0 on average."""
    middle, spread = float(np.mean(scores)), max(float(np.std(scores)), LEAST_SPREAD)
    held = np.clip((middle - scores) / spread, LEAST_SHORTFALL, MOST_SHORTFALL)
    return middle - spread * float(held.mean()), spread
