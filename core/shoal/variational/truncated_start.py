"""Where a fit with a fixed number of components starts: how many, and with which responsibilities."""

from collections.abc import Callable

import numpy as np

from shoal.errors import NoPointsError, SettingError, ShapeError
from shoal.families import AnyFamily
from shoal.inference.locations import locations_of
from shoal.mixture.batch import Past
from shoal.points.arrays import Array, as_points
from shoal.points.rows import Points
from shoal.process import default_truncation

_LLOYD_ROUNDS = 3
_ROW_SUM_ERROR = 1e-6
_NO_WIDTH = 1e-12
"""Squared distance left, in units of a feature's variance, below which every point is its own centre."""


def starting_resp(
    family: AnyFamily,
    x: Points,
    truncation: int | None,
    resp_init: Array | None,
    past: Past | None,
    concentration: float,
    rng: np.random.Generator,
    from_past: Callable[[int], Array],
) -> Array:
    """Responsibilities (N, T) to start from, the caller's to change: given, or from the past, or seeded.

    Raises NoPointsError, ShapeError, SettingError.
    """
    if len(x) == 0:
        raise NoPointsError("there are no points to fit; send at least one row")
    if not (np.isfinite(concentration) and concentration > 0.0):
        raise SettingError(f"concentration is {concentration}; it must be a positive number")
    held = 0 if past is None else len(past.stats[0])
    if resp_init is not None:
        return _checked(resp_init, len(x), truncation, held)
    if truncation is None:
        truncation = max(held, default_truncation(len(x), concentration))
    if truncation < max(held, 1):
        raise SettingError(f"truncation is {truncation}; it must be at least 1 and the past's {held} components")
    return from_past(truncation) if held else seeded_resp(locations_of(family, x), truncation, rng)


def seeded_resp(x: Array, truncation: int, rng: np.random.Generator) -> Array:
    """Soft responsibilities (N, T) around centres chosen as k-means++ does, each feature in units of its own spread.

    Points lie at x (N, E), see `inference.locations`. Far points are likely centres (Arthur and Vassilvitskii 2007); a
    few rounds of Lloyd's method follow, then each point is divided by a Gaussian about every centre, as wide as the
    distances that are left.
    """
    spread = x.std(axis=0)
    z = (x - x.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
    centres = _far_centres(z, truncation, rng)
    for _ in range(_LLOYD_ROUNDS):
        nearest = np.argmin(_squared_distances(z, centres), axis=1)
        counts = np.bincount(nearest, minlength=truncation)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, z)
        filled = counts > 0
        centres[filled] = sums[filled] / counts[filled, None]
    distances = _squared_distances(z, centres)
    least = distances.min(axis=1, keepdims=True)
    width = float(least.mean()) / z.shape[1]
    resp = np.exp((least - distances) / (2.0 * width if width > _NO_WIDTH else 2.0))
    resp /= resp.sum(axis=1, keepdims=True)
    return np.asarray(resp)


def _far_centres(z: Array, n_centres: int, rng: np.random.Generator) -> Array:
    """Points drawn one after another, each with probability proportional to its squared distance to those before."""
    chosen = [int(rng.integers(len(z)))]
    nearest = ((z - z[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < n_centres:
        total = float(nearest.sum())
        pick = int(rng.choice(len(z), p=nearest / total)) if total > 0.0 else int(rng.integers(len(z)))
        chosen.append(pick)
        np.minimum(nearest, ((z - z[pick]) ** 2).sum(axis=1), out=nearest)
    return np.array(z[chosen])


def _squared_distances(z: Array, centres: Array) -> Array:
    cross = z @ centres.T
    distances = (z**2).sum(axis=1)[:, None] - 2.0 * cross + (centres**2).sum(axis=1)
    return np.asarray(np.maximum(distances, 0.0))


def _checked(resp_init: Array, n_points: int, truncation: int | None, held: int) -> Array:
    resp = np.array(as_points(resp_init), order="C")
    if resp.shape[0] != n_points or resp.shape[1] < held or truncation not in (None, resp.shape[1]):
        want = f"({n_points}, {'T' if truncation is None else truncation})"
        raise ShapeError(f"resp_init has shape {resp.shape}; send {want}, T at least the past's {held} components")
    if resp.min() < 0.0 or np.abs(resp.sum(axis=1) - 1.0).max() > _ROW_SUM_ERROR:
        raise SettingError("resp_init has rows that are no probabilities; each must be >= 0 and sum to one")
    return resp
