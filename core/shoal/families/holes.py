"""Points with holes (NaN for a missing feature): what a family may declare to score and to learn them.

Let O be the features of a point that were observed, and M those that are missing, missing at random.

* A point is scored by the predictive of its component with x_M integrated out. That is exact.
* It is learnt by its expected statistics, as the E-step of EM does (Dempster, Laird and Rubin 1977): E[t(x) | x_O]
  under the posterior mean of the component's parameters, and the full weight of a point. The posterior of a component
  that has seen holes belongs to no conjugate family, so this is an approximation. The estimates for a missing feature
  stay where they were, or where the observed features move them. But the hole counts as if it had been seen, so that
  these estimates seem as sure as after a complete point.

Engines ask here and never name a family.
"""

from typing import Any, Protocol, cast

import numpy as np

from shoal.errors import SettingError
from shoal.families.base import AnyFamily
from shoal.kernels import linalg
from shoal.points.arrays import Array, BoolArray
from shoal.points.rows import SparseRows


class TakesHoles(Protocol):
    """A family that scores and learns points with holes."""

    def marginal_log_predictive(self, params: Any, x: Array) -> Array:
        """log p(x_O | posterior k) (N, K) of a table (N, D) with NaN at the missing features, carrier included."""

    def expected_stats(self, params: Any, x: Array, resp: Array) -> Any:
        """E[statistics of one point x (D,) with NaN | x_O] under K posteriors' mean parameters, times resp (K,)."""

    def drawn_missing(self, params: Any, x: Array, rng: np.random.Generator) -> Array:
        """One point x (D,) with each NaN drawn given x_O under the mean parameters of a posterior (one row)."""


def takes_holes(family: Any) -> bool:
    """Whether a family, or its class, takes points with holes."""
    return hasattr(family, "expected_stats")


def check_takes_holes(family: Any) -> None:
    """Raise SettingError for a family, or its class, that does not take points with holes."""
    if not takes_holes(family):
        raise SettingError(
            f"family {family.name!r} cannot learn points with missing values; choose one that can (gaussian, diagonal "
            "and others of docs/families.md), or missing='refuse'"
        )


def marginal_log_predictive(family: AnyFamily, params: Any, x: Any) -> Array:
    """log p(x_O | posterior k) (N, K) of points (N, D) with NaN at the missing features, carrier included."""
    return cast(TakesHoles, family).marginal_log_predictive(params, as_table(x))


def expected_stats(family: AnyFamily, params: Any, x: Any, resp: Array) -> Any:
    """Statistics (K) of one point (1, D) with holes, expected given what was observed, times resp (K,)."""
    return cast(TakesHoles, family).expected_stats(params, as_table(x)[0], resp)


def drawn_missing(family: AnyFamily, params: Any, x: Array, rng: np.random.Generator) -> Array:
    """One point (D,) with its missing features drawn given the others, under one posterior's mean parameters."""
    return cast(TakesHoles, family).drawn_missing(params, x, rng)


def as_table(x: Any) -> Array:
    """Rows as a table (N, D)."""
    return np.asarray(x.toarray() if isinstance(x, SparseRows) else x)


def rows_with_holes(x: Any) -> BoolArray:
    """True for rows (N,) of points with a missing feature."""
    if not isinstance(x, SparseRows):
        return np.asarray(np.isnan(x).any(axis=1))
    found = np.zeros(len(x), dtype=np.bool_)
    found[np.searchsorted(x.indptr, np.flatnonzero(np.isnan(x.data)), side="right") - 1] = True
    return found


# -- what families of independent features, and Gaussians, share


def observed_and_filled(x: Array, fill: Array) -> tuple[BoolArray, Array]:
    """Mask of the observed features of a point x (D,), and the point with each hole filled from rows `fill` (K, D)."""
    observed = ~np.isnan(x)
    return observed, np.where(observed, x, fill)


def conditional(mean: Array, covariance: Array, x: Array) -> tuple[Array, Array]:
    """Of K normals (mean (K, D), covariance (K, D, D)) given the observed features of one point x (D,) with NaN: the
    point with its holes filled by their conditional means (K, D), and their conditional covariance (K, D, D), which is
    zero where a feature was observed."""
    observed, filled = observed_and_filled(x, mean)
    spread = np.zeros(covariance.shape)
    missing = np.flatnonzero(~observed)
    seen = np.flatnonzero(observed)
    own = covariance[:, missing[:, None], missing]
    if seen.size:
        whitening = linalg.inverse_lower(linalg.cholesky(covariance[:, seen[:, None], seen]))
        across = np.matmul(covariance[:, missing[:, None], seen], whitening.transpose(0, 2, 1))
        whitened = np.einsum("kop,kp->ko", whitening, x[seen] - mean[:, seen])
        filled[:, missing] += np.einsum("kmo,ko->km", across, whitened)
        own = own - np.matmul(across, across.transpose(0, 2, 1))
    spread[:, missing[:, None], missing] = 0.5 * (own + own.transpose(0, 2, 1))
    return filled, spread


def patterns(x: Array) -> list[tuple[BoolArray, BoolArray]]:
    """The distinct patterns of a table (N, D) with holes: rows (N,) that share it, and its observed features (D,)."""
    observed = ~np.isnan(x)
    distinct, which = np.unique(observed, axis=0, return_inverse=True)
    return [(which.ravel() == i, pattern) for i, pattern in enumerate(distinct)]


def normal_draw(filled: Array, spread: Array, rng: np.random.Generator) -> Array:
    """A normal point (D,) of mean `filled` and covariance `spread` (D, D), which is zero where nothing is drawn."""
    missing = np.flatnonzero(np.diagonal(spread) > 0.0)
    drawn = filled.copy()
    if missing.size:
        values, vectors = np.linalg.eigh(spread[missing[:, None], missing])
        drawn[missing] += vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.standard_normal(missing.size))
    return drawn
