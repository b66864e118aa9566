"""Points with holes under the normal-inverse-Wishart Gaussian: see `families.holes`."""

from typing import Any

import numpy as np

from shoal.families.gaussian.types import GaussianParams, GaussianStats
from shoal.families.holes import conditional, normal_draw, patterns
from shoal.kernels import linalg
from shoal.kernels.distances import whitened_quadratic
from shoal.points.arrays import Array


def marginal_log_predictive(family: Any, params: GaussianParams, x: Array) -> Array:
    """The Student t of the observed features, with the same dof - D + 1 degrees of freedom. Exact."""
    out = np.empty((len(x), params.dof.size))
    dof = params.dof - family.n_features + 1
    shrink = params.mean_strength / (params.mean_strength + 1.0)
    for rows, observed in patterns(x):
        seen = np.flatnonzero(observed)
        p = seen.size
        factors = linalg.cholesky(params.scale[:, seen[:, None], seen])
        constant = linalg.log_gamma_ratio(dof / 2, p / 2) + 0.5 * p * np.log(shrink / np.pi)
        constant -= 0.5 * linalg.log_determinant(factors)
        distance = whitened_quadratic(x[rows][:, seen], params.mean[:, seen], linalg.inverse_lower(factors))
        out[rows] = constant - 0.5 * (dof + p) * np.log1p(shrink * distance)
    return out


def _mean_covariance(family: Any, params: GaussianParams) -> Array:
    """E[S] (K, D, D); for a dof of at most D + 2, where it is large or infinite, the scale itfamily."""
    covariance: Array = params.scale / np.maximum(params.dof - family.n_features - 1, 1.0)[:, None, None]
    return covariance


def expected_stats(family: Any, params: GaussianParams, x: Array, resp: Array) -> GaussianStats:
    """Holes are filled by their conditional means, and add their conditional covariance to the scatter."""
    filled, spread = conditional(params.mean, _mean_covariance(family, params), x)
    return GaussianStats(resp.copy(), filled, resp[:, None, None] * spread)


def drawn_missing(family: Any, params: GaussianParams, x: Array, rng: np.random.Generator) -> Array:
    """The point (D,) with its holes drawn from the conditional normal."""
    filled, spread = conditional(params.mean, _mean_covariance(family, params), x)
    return normal_draw(filled[0], spread[0], rng)
