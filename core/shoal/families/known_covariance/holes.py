"""Points with holes under the Gaussian of known covariance: see `families.holes`."""

from typing import Any

import numpy as np

from shoal.families.holes import conditional, normal_draw, patterns
from shoal.families.known_covariance.types import KnownCovarianceParams, KnownCovarianceStats
from shoal.kernels import linalg
from shoal.kernels.distances import whitened_quadratic
from shoal.points.arrays import Array

LOG_2PI = float(np.log(2 * np.pi))


def marginal_log_predictive(family: Any, params: KnownCovarianceParams, x: Array) -> Array:
    """The normal of the observed features. Exact."""
    out = np.empty((len(x), len(params.mean)))
    covariance = family.predictive_covariance(params)
    for rows, observed in patterns(x):
        seen = np.flatnonzero(observed)
        factors = linalg.cholesky(covariance[:, seen[:, None], seen])
        constant = -0.5 * seen.size * LOG_2PI - 0.5 * linalg.log_determinant(factors)
        distance = whitened_quadratic(x[rows][:, seen], params.mean[:, seen], linalg.inverse_lower(factors))
        out[rows] = constant - 0.5 * distance
    return out


def _filled(family: Any, params: KnownCovarianceParams, x: Array) -> tuple[Array, Array]:
    axes = family.from_basis(np.eye(family.n_features))
    covariance = np.broadcast_to(axes.T @ axes, (len(params.mean), family.n_features, family.n_features))
    return conditional(params.mean, covariance, x)


def expected_stats(family: Any, params: KnownCovarianceParams, x: Array, resp: Array) -> KnownCovarianceStats:
    """Holes are filled by their conditional means. Their conditional covariance C adds tr(S^-1 C) to the scatter,
    which is the number of holes."""
    filled, _ = _filled(family, params, x)
    return KnownCovarianceStats(resp.copy(), filled, resp * float(np.isnan(x).sum()))


def drawn_missing(family: Any, params: KnownCovarianceParams, x: Array, rng: np.random.Generator) -> Array:
    """The point (D,) with its holes drawn from the conditional normal."""
    filled, spread = _filled(family, params, x)
    return normal_draw(filled[0], spread[0], rng)
