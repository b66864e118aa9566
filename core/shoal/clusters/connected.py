"""Groups of components between which the density hardly falls: the pieces of a ring or of a crescent.

Two components are connected as far as their densities overlap, along the line that separates them best (Fisher's
discriminant). Seen there, with equal weights, they are two normal densities. Their overlap is the lowest value between
the two peaks, as a share of the lower peak: 1 for a single peak, near 0 for two apart. A line is used because in many
dimensions the density itself falls between any two components (Hennig 2010, "Methods for merging Gaussian mixture
components").
"""

from typing import NamedTuple

import numpy as np

from shoal.mixture import MixtureSnapshot
from shoal.points.arrays import Array, BoolArray, IntArray

_LEAST_OVERLAP = 0.3
"""Overlap within a group. Two equal normals 3.9 deviations apart have it."""

_LEAST_FALL = 4.0
"""The overlap within groups is at least so many times that between them."""

_FEWEST = 4
"""Components of a group. Of fewer, a bend cannot be told from neighbours that overlap."""

_NEIGHBOURS = 5
_SMALL_SHARE = 0.1
"""Components below this share of the mean mass neither connect nor separate others."""

_MOST_ELEMENTS = 1 << 18
"""Of the covariances: with 1,000 components 16 features, with 100 components 51. Beyond, the search costs more than the
tree."""

_NO_OVERLAP = 0.05
"""Less than this is as good as none."""

_STEPS = 33
_PAIRS_AT_ONCE = 2_048


class Connected(NamedTuple):
    """A division of K components into G >= 2 groups, by joins of overlapping pairs."""

    pairs: IntArray
    """(K - G, 2) rows of two components, in order of falling overlap; small components come last."""
    group: IntArray
    """(K,) from 0 to G - 1."""


def connected_groups(snapshot: MixtureSnapshot, places: Array, far: BoolArray) -> Connected | None:
    """Groups with much overlap within and little between them; None where the overlap shows no such gap.

    A group has one component or at least four, and one group must be bent or hollow: the density at its centre is low.
    Without this, neighbouring normal clusters would be joined because others are farther away. `places` (K, E) says
    which components are near, and so compared; `far` ones (K,) count as small. Looked for in real features, up to
    K D^2 = 262,144.
    """
    k, d = snapshot.n_components, snapshot.location.size
    family = snapshot.prior
    if family is None or not family.domain.located or k < 3 or k * d * d > _MOST_ELEMENTS:
        return None
    params = family.posterior(snapshot.stats)
    means, covariances = family.predictive_mean(params), family.predictive_covariance(params)
    good = np.isfinite(covariances).all(axis=(1, 2)) & np.isfinite(means).all(axis=1)
    large = np.flatnonzero(good & ~far & (snapshot.masses >= _SMALL_SHARE * snapshot.masses.mean()))
    if large.size < 3:
        return None
    unit = np.sqrt(np.einsum("kdd->d", covariances[large]) / large.size)
    if not (np.isfinite(unit).all() and unit.all()):
        return None
    try:
        found = _joins(means[large] / unit, covariances[large] / unit[:, None] / unit, places[large])
    except np.linalg.LinAlgError:  # a covariance that is singular to rounding has no line that separates best
        return None
    if found is None:
        return None
    return _with_small(large[found.pairs], found.group, large, places)


def _joins(means: Array, covariances: Array, places: Array) -> Connected | None:
    """Groups of the large components alone."""
    n = len(means)
    i, j = _nearest(places)
    overlap = _overlaps(means, covariances, i, j)
    tree, values = _spanning_tree(n, i, j, overlap)
    inside = values >= _LEAST_OVERLAP
    following = np.append(values, 0.0)[1:]
    gaps = np.flatnonzero(inside & (values >= _LEAST_FALL * following))
    for last in gaps[::-1].tolist():  # the most joins first
        group = _labels(n, tree[: last + 1])
        if group.max() == 0 or not _bent(group, means, covariances):
            continue
        other_i, other_j = _nearest_outside(places, group)
        between = _overlaps(means, covariances, other_i, other_j)
        if _LEAST_FALL * between.max(initial=0.0) <= values[last]:
            return Connected(tree[: last + 1], group)
    return None


def _bent(group: IntArray, means: Array, covariances: Array) -> bool:
    """Whether groups have one component or enough of them, and one of them is bent or hollow.

    Seen in the plane in which its means vary most, the density at the centre of such a group is below that between
    neighbours. In more dimensions the density falls between any components, and every group would look hollow.
    """
    sizes = np.bincount(group)
    if ((sizes > 1) & (sizes < _FEWEST)).any():
        return False
    for one in np.flatnonzero(sizes > 1):
        rows = np.flatnonzero(group == one)
        centred = means[rows] - means[rows].mean(axis=0)
        plane = np.linalg.svd(centred, full_matrices=False)[2][:2]
        root = np.linalg.cholesky(plane @ covariances[rows] @ plane.T)
        log_peak = -np.log(np.einsum("kdd->kd", root)).sum(axis=1)
        apart = np.linalg.solve(root, (centred @ plane.T)[..., None])[..., 0]
        log_density = log_peak - 0.5 * np.einsum("kd,kd->k", apart, apart)
        if np.exp(log_density - log_peak.min()).sum() < _LEAST_OVERLAP:
            return True
    return False


def _with_small(pairs: IntArray, group: IntArray, large: IntArray, places: Array) -> Connected:
    """The groups with each other component beside its nearest large one."""
    k = len(places)
    small = np.setdiff1d(np.arange(k), large)
    whole = np.empty(k, dtype=np.int64)
    whole[large] = group
    apart = np.array([np.argmin(((places[large] - places[one]) ** 2).sum(axis=1)) for one in small], dtype=np.int64)
    nearest = large[apart]
    whole[small] = whole[nearest]
    return Connected(np.concatenate([pairs, np.stack([small, nearest], axis=1)]), whole)


def _nearest(places: Array) -> tuple[IntArray, IntArray]:
    """Pairs i < j of each component and its nearest ones, each pair once."""
    from scipy.spatial import KDTree  # not needed at a start

    _, near = KDTree(places).query(places, min(_NEIGHBOURS + 1, len(places)))
    return _once(np.repeat(np.arange(len(places)), near.shape[1]), near.ravel(), len(places))


def _nearest_outside(places: Array, group: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs i < j of each component and its nearest ones of other groups, each pair once."""
    n = len(places)
    centred = places - places.mean(axis=0)
    norms = np.einsum("kd,kd->k", centred, centred)
    squares = norms[:, None] + norms - 2.0 * (centred @ centred.T)
    squares[group[:, None] == group] = np.inf
    m = min(_NEIGHBOURS, n - 1)
    near = np.argpartition(squares, m - 1, axis=1)[:, :m]
    rows, columns = np.repeat(np.arange(n), m), near.ravel()
    real = np.isfinite(squares[rows, columns])
    return _once(rows[real], columns[real], n)


def _once(rows: IntArray, columns: IntArray, n: int) -> tuple[IntArray, IntArray]:
    codes = np.unique(np.minimum(rows, columns) * n + np.maximum(rows, columns))
    first, second = codes // n, codes % n
    return first[first < second], second[first < second]


def _overlaps(means: Array, covariances: Array, i: IntArray, j: IntArray) -> Array:
    """(P,) overlap of pairs of components, 0 to 1."""
    out = np.empty(len(i))
    for start in range(0, len(i), _PAIRS_AT_ONCE):
        rows = slice(start, start + _PAIRS_AT_ONCE)
        out[rows] = _overlap_block(means, covariances, i[rows], j[rows])
    return out


def _overlap_block(means: Array, covariances: Array, i: IntArray, j: IntArray) -> Array:
    apart = means[j] - means[i]
    out = _along(apart, apart, covariances[i], covariances[j])
    close = np.flatnonzero(out >= _NO_OVERLAP)  # most pairs are apart along the line of their means already
    if close.size:
        first, second = covariances[i[close]], covariances[j[close]]
        direction = np.asarray(np.linalg.solve(first + second, apart[close, :, None])[..., 0], dtype=np.float64)
        out[close] = _along(direction, apart[close], first, second)
    return out


def _along(direction: Array, apart: Array, first: Array, second: Array) -> Array:
    """Overlap (P,) of normal densities with covariances `first` and `second` (P, D, D) along `direction` (P, D)."""
    distance = np.einsum("pd,pd->p", apart, direction)
    spread, other = ((direction[:, None, :] @ one @ direction[..., None])[:, 0, 0] for one in (first, second))
    least = np.finfo(np.float64).tiny
    spread, other = np.maximum(spread, least), np.maximum(other, least)
    place = distance[:, None] * np.linspace(0.0, 1.0, _STEPS)
    density = _normal(place, spread[:, None]) + _normal(distance[:, None] - place, other[:, None])
    lowest = density.argmin(axis=1)
    row = np.arange(len(distance))
    left = np.maximum.accumulate(density, axis=1)[row, lowest]
    right = np.maximum.accumulate(density[:, ::-1], axis=1)[row, _STEPS - 1 - lowest]
    return np.asarray(density[row, lowest] / np.minimum(left, right))


def _normal(x: Array, variance: Array) -> Array:
    """Normal densities at x from the mean, but for a common factor."""
    with np.errstate(over="ignore"):  # absurdly far from the mean, where the density is 0
        return np.asarray(np.exp(-0.5 * x * x / variance) / np.sqrt(variance))


def _spanning_tree(n: int, i: IntArray, j: IntArray, overlap: Array) -> tuple[IntArray, Array]:
    """Pairs (M, 2) that connect all that overlap, with the largest overlaps, and these, falling (Kruskal 1956)."""
    order = np.argsort(-overlap, kind="stable")[: np.count_nonzero(overlap >= _NO_OVERLAP)]
    root, pairs, values = list(range(n)), [], []
    for edge in order.tolist():
        a, b = _root(root, int(i[edge])), _root(root, int(j[edge]))
        if a != b:
            root[a] = b
            pairs.append((int(i[edge]), int(j[edge])))
            values.append(float(overlap[edge]))
    return np.array(pairs, dtype=np.int64).reshape(-1, 2), np.array(values)


def _labels(n: int, pairs: IntArray) -> IntArray:
    """(K,) number of the group of each component, in order of the first."""
    root = list(range(n))
    for a, b in pairs.tolist():
        first, second = _root(root, a), _root(root, b)
        root[max(first, second)] = min(first, second)
    labels: IntArray = np.unique([_root(root, one) for one in range(n)], return_inverse=True)[1]
    return labels


def _root(root: list[int], one: int) -> int:
    while root[one] != one:
        root[one] = root[root[one]]
        one = root[one]
    return one
