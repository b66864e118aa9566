"""Planes: a mixture and points in two coordinates, to be drawn.

A plane maps a point x to the coordinates A (x - o). It is data, so that whoever draws keeps it from picture to picture
while the mixture changes.
"""

from typing import NamedTuple

import numpy as np
import scipy.linalg

from shoal.errors import SettingError, ShapeError
from shoal.families import take
from shoal.families.capabilities import projected_covariance
from shoal.mixture.snapshot import MixtureSnapshot
from shoal.points.arrays import Array, BoolArray, IntArray

CHUNK_NUMBERS = 1 << 21
"""Most numbers in the covariances that are computed at a time."""
RANK_TOLERANCE = 1e-12
"""Share of the largest variance between means below which a direction holds no difference of means."""


class Plane(NamedTuple):
    """An affine map to two coordinates."""

    origin: Array  # (D,) o, in the units of the data
    axes: Array  # (2, D) A

    def coordinates(self, x: Array) -> Array:
        """Coordinates (N, 2) of points x (N, D)."""
        found: Array = (x - self.origin) @ self.axes.T
        return found


def principal_plane(snapshot: MixtureSnapshot) -> Plane:
    """The two directions in which the means of the components differ most, weighted by mass.

    They are the principal axes of the scatter between components in the standardised units of the snapshot, where each
    axis is orthonormal to the other. So a coordinate counts deviations of a feature. Where the means lie on a line or a
    point, the features of greatest variance within components complete the plane. The largest loading of an axis is
    positive. A mixture of one feature has a second axis of zeros. Raises ShapeError without components.
    """
    if snapshot.n_components == 0:
        raise ShapeError("a mixture without components has no plane; send points first")
    share = snapshot.masses / snapshot.masses.sum()
    z = (snapshot.means - snapshot.location) / snapshot.scale
    usable: BoolArray = np.asarray(np.isfinite(z).all(axis=1))
    share, z = share[usable], z[usable]
    centre = share @ z if z.size else np.zeros(snapshot.location.size)
    between = np.sqrt(share)[:, None] * (z - centre)
    directions = _completed(_leading(between), _variance_within(snapshot, usable))
    return Plane(centre * snapshot.scale + snapshot.location, directions / snapshot.scale)


def feature_plane(n_features: int, first: int, second: int) -> Plane:
    """Two features as coordinates, in the units of the data. Raises SettingError for a feature that does not exist."""
    for feature in (first, second):
        if not 0 <= feature < n_features:
            raise SettingError(f"feature {feature} does not exist; the stream has 0 to {n_features - 1}")
    axes = np.zeros((2, n_features))
    axes[0, first] = 1.0
    if n_features > 1:
        axes[1, second] = 1.0
    return Plane(np.zeros(n_features), axes)


def ellipses(snapshot: MixtureSnapshot, plane: Plane, rows: IntArray) -> Array:
    """Covariances (M, 2, 2) of the chosen components in a plane; NaN where one does not exist."""
    if snapshot.prior is not None:
        params = snapshot.prior.posterior(take(snapshot.stats, rows))
        projected = projected_covariance(snapshot.prior, params, plane.axes * snapshot.scale)
        if projected is not None:
            return projected
    d = plane.origin.size
    found = np.empty((rows.size, 2, 2))
    step = max(1, CHUNK_NUMBERS // (d * d))
    for start in range(0, rows.size, step):
        covariance = snapshot.covariances(rows[start : start + step])
        with np.errstate(invalid="ignore"):  # infinity times zero, which stands for no covariance
            found[start : start + step] = plane.axes @ covariance @ plane.axes.T
    found[~np.isfinite(found).all(axis=(1, 2))] = np.nan
    return found


def _leading(between: Array) -> Array:
    """Up to two orthonormal directions (R, D) of greatest variance of rows (K, D), where there is any."""
    k, d = between.shape
    if k == 0:
        return np.zeros((0, d))
    gram = between.T @ between if d <= k else between @ between.T
    n = gram.shape[0]
    values, vectors = scipy.linalg.eigh(gram, subset_by_index=(max(n - 2, 0), n - 1))
    vectors = (vectors if d <= k else between.T @ vectors)[:, ::-1].T
    values = values[::-1]
    kept = vectors[values > RANK_TOLERANCE * max(float(values[0]), 1e-300)]
    unit: Array = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    return unit


def _variance_within(snapshot: MixtureSnapshot, usable: BoolArray) -> Array:
    """Mean variance (D,) within components, standardised; 1 where it is infinite."""
    share = snapshot.masses[usable] / snapshot.masses[usable].sum() if usable.any() else snapshot.masses[usable]
    with np.errstate(invalid="ignore"):
        within = share @ (snapshot.variances[usable] / snapshot.scale**2)
    return np.where(np.isfinite(within), within, 1.0)


def _completed(directions: Array, within: Array) -> Array:
    """Two directions (2, D): those given, then features by falling variance, made orthogonal to them."""
    found = list(directions)
    for feature in np.argsort(-within, kind="stable"):
        if len(found) == 2:
            break
        rest = np.zeros(within.size)
        rest[feature] = 1.0
        for one in found:
            rest -= (rest @ one) * one
        length = float(np.linalg.norm(rest))
        if length > 0.5 / np.sqrt(within.size):
            found.append(rest / length)
    while len(found) < 2:
        found.append(np.zeros(within.size))
    axes = np.array(found)
    signs = np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])
    return axes * np.where(signs == 0.0, 1.0, signs)[:, None]
