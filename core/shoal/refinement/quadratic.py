"""Families whose log densities are quadratic, for a sweep in one pass over the rows.

Where components lie apart most scores are never worked out: bounds say that they would count for nothing (`screens`,
`reaches`).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily
from shoal.families.capabilities import QuadraticForm, quadratic_form, scatter_in_layout, stats_of_moments
from shoal.families.located.types import WeightedMoments
from shoal.families.steps_kernel import Waiting
from shoal.kernels.cholesky_update import MOST_WAITING
from shoal.kernels.moments import DIRECT_ABOVE, ratio
from shoal.points.arrays import Array, IntArray
from shoal.refinement.entries_kernel import find_largest
from shoal.refinement.few_features_kernel import sweep_few_features
from shoal.refinement.ground import Ground
from shoal.refinement.lanes_kernel import in_fours, width_of
from shoal.refinement.quadratic_kernel import add_again, sweep_block
from shoal.refinement.reach_kernel import Reach
from shoal.refinement.reaches import Bounds, bounds_of
from shoal.refinement.tile_kernel import sweep_tiles

_BLOCK_ELEMENTS = 1 << 18
_ENTRIES_A_ROW = 4
"""Responsibilities of a row that there is room for at first."""
_FEW_FEATURES = 4
"""Up to so many features a distance costs no more than its bound."""


class Tiles(NamedTuple):
    """What a sweep in tiles reads, beside."""

    centre: Array  # (T, W), zero from D on
    fours: Array  # (T, W / 4, W, 4) the roots as `lanes_kernel` has them
    waiting: Waiting
    """Room for outer products that wait to be added up."""


class _Given(NamedTuple):
    """What all blocks of a sweep have in common."""

    form: QuadraticForm
    constant: Array  # (T,) of scores and log weights
    log_floor: float
    bounds: Bounds | None
    tiles: Tiles | None
    likely: IntArray | None  # (N,)


class Sums(NamedTuple):
    """What the rows of each component come to, about its centre."""

    mass: Array  # (T,)
    first: Array  # (T, D)
    second: Array  # (T, D, D), the lower triangle, or (T, D)


class Swept(NamedTuple):
    """What a sweep gives."""

    resp: csr_matrix  # (N, T)
    entropy: float  # weighted, nats
    dropped: float  # weighted points that the floor moved
    mass: Array  # (T,) of the rows, weighted
    stats: Any
    """Statistics of the rows and of the past together, T rows."""


def swept(
    ground: Ground,
    family: AnyFamily,
    params: Any,
    log_weight: Array,
    log_floor: float,
    past: Any,
    near: csr_matrix | None = None,
    tags: IntArray | None = None,
) -> Swept | None:
    """An E- and an M-step with the past's statistics `past` (T rows); None for a family whose scores are not
    quadratic. What `near` (N, T or fewer), responsibilities of a time before, are largest at is where a row is likely
    to belong: that changes no responsibility, but the time, and last digits of sums, which are in another order. `tags`
    (T,) name components from sweep to sweep on one ground, so that bounds are carried on: no digit depends on them."""
    form = quadratic_form(family, params)
    if form is None:
        return None
    t, step = len(log_weight), min(max(64, _BLOCK_ELEMENTS // max(form.centre.shape)), ground.n_rows)
    given = _given(ground, form, form.constant + log_weight, log_floor, near, tags)
    sums = Sums(np.zeros(t), np.zeros(form.centre.shape), np.zeros(form.root.shape))
    ends = np.zeros(ground.n_rows + 1, dtype=np.int64)
    filled, entropy, dropped = 0, 0.0, 0.0
    most = step * t + 1
    indices = np.empty(most + _ENTRIES_A_ROW * ground.n_rows, dtype=np.int32)
    resp = np.empty(indices.size)
    for start in range(0, ground.n_rows, step):
        part = slice(start, min(start + step, ground.n_rows))
        if filled + most > indices.size:
            indices, resp = _longer(indices, filled + most), _longer(resp, filled + most)
        n, h, lost = _sweep(ground, given, part, (indices[filled:], resp[filled:], ends[1:][part]), sums)
        ends[1:][part] += filled
        filled, entropy, dropped = filled + n, entropy + h, dropped + lost
    if given.bounds is not None:
        ground.reaches = given.bounds.left(form, tags)
    if given.tiles is not None:
        _add_waiting(sums, given.tiles.waiting)
    shares = csr_matrix((resp[:filled], indices[:filled], ends), shape=(ground.n_rows, t))
    return Swept(shares, entropy, dropped, sums.mass, _together(ground, family, form, sums, shares, past))


def _given(
    ground: Ground,
    form: QuadraticForm,
    constant: Array,
    log_floor: float,
    near: csr_matrix | None,
    tags: IntArray | None,
) -> _Given:
    if form.centre.shape[1] <= _FEW_FEATURES:
        return _Given(form, constant, log_floor, None, None, None)
    known, ground.reaches = ground.reaches, None  # it may be written over, and is nothing if that is not finished
    likely = None if near is None else np.minimum(_likely(near), len(constant) - 1)
    if likely is None:
        known = None  # then bounds choose the guesses, and with these the order of the sums
    return _Given(form, constant, log_floor, bounds_of(known, form, tags, ground.n_rows), _tiles_of(form), likely)


def _sweep(
    ground: Ground, given: _Given, part: slice, entries: tuple[Any, ...], sums: Sums
) -> tuple[int, float, float]:
    """A block of rows divided and added up, by the kernel that suits their features."""
    x, form, constant = np.ascontiguousarray(ground.x[part]), given.form, given.constant
    what = (ground.weights[part], given.log_floor, *entries, *sums)
    if given.bounds is None:
        n, entropy, dropped = sweep_few_features(x, constant, form.centre, form.root, *what)
        return n, entropy, dropped
    reach = given.bounds.of(x, part)
    guess = _nearest(constant, reach) if given.likely is None else given.likely[part]
    if given.tiles is None:
        done = sweep_block(x, reach, guess, constant, form.centre, form.root, *what)
    else:
        done = sweep_tiles(x, reach, guess, given.tiles.waiting, constant, given.tiles.centre, given.tiles.fours, *what)
    n, entropy, dropped = done
    return n, entropy, dropped


def _nearest(constant: Array, reach: Reach) -> IntArray:
    """(n,) the components that the bounds let score best."""
    apart = np.maximum(reach.levels * reach.unit - reach.moved, np.float32(0.0)).astype(np.float64)
    best: IntArray = (constant - 0.5 * np.square(apart)).argmax(axis=1)
    return best


def _tiles_of(form: QuadraticForm) -> Tiles | None:
    """What a sweep in tiles reads; None where it is another kernel's."""
    t, d = form.centre.shape
    if form.root.ndim == 2:
        return None
    centre = np.zeros((t, width_of(d)))
    centre[:, :d] = form.centre
    return Tiles(centre, in_fours(form.root), Waiting(np.empty((t, MOST_WAITING, d)), np.zeros(t, dtype=np.int64)))


def _likely(near: csr_matrix) -> IntArray:
    """(N,) the component that each row had most of; the first for a row that had none, all its scores being -inf."""
    best, largest = np.empty(near.shape[0], dtype=np.int64), np.empty(near.shape[0])
    find_largest(near.indptr, near.indices, near.data, best, largest)
    return best


def _add_waiting(sums: Sums, waiting: Waiting) -> None:
    """Add up the outer products that still wait."""
    left = np.flatnonzero(waiting.filled)
    waits = np.arange(MOST_WAITING) < waiting.filled[left, None]
    vectors = np.where(waits[:, :, None], waiting.vectors[left], 0.0)
    sums.second[left] += vectors.transpose(0, 2, 1) @ vectors


def _longer(values: Any, least: int) -> Any:
    """A copy with room for half as many again, and for `least`."""
    longer = np.empty(max(least, values.size + values.size // 2), dtype=values.dtype)
    longer[: values.size] = values
    return longer


def _together(ground: Ground, family: AnyFamily, form: QuadraticForm, sums: Sums, shares: csr_matrix, past: Any) -> Any:
    """Statistics of the rows and of the past."""
    stats = stats_of_moments(family, WeightedMoments(form.centre, *sums), DIRECT_ABOVE, past)
    return family.add(_statistics(ground, family, form, sums, shares), past) if stats is None else stats


def _statistics(ground: Ground, family: AnyFamily, form: QuadraticForm, sums: Sums, shares: csr_matrix) -> Any:
    """Statistics about each component's own mean; added up about it once more where the centre was too far away."""
    mean, scatter, raw, left = _centred(form.centre, sums)
    lost = np.flatnonzero(np.any(raw > DIRECT_ABOVE * left, axis=1))
    if lost.size:
        place = np.full(len(sums.mass), -1)
        place[lost] = np.arange(lost.size)
        again = Sums(sums.mass[lost], np.zeros(mean[lost].shape), np.zeros(sums.second[lost].shape))
        entries = (shares.indptr, shares.indices, shares.data)
        add_again(np.ascontiguousarray(ground.x), *entries, ground.weights, place, mean[lost], *again[1:])
        mean[lost], scatter[lost], _, _ = _centred(mean[lost], again)
        if scatter.ndim == 2:
            np.maximum(scatter, 0.0, out=scatter)
    return family.empty_stats(len(sums.mass))._replace(
        mass=sums.mass, mean=mean, scatter=scatter_in_layout(family, scatter)
    )


def _centred(centre: Array, sums: Sums) -> tuple[Array, Array, Array, Array]:
    """Means (T, D) and scatter about them, of sums about other centres; and of every feature the two sums of squares,
    about those and about the means."""
    shift = ratio(sums.first, sums.mass[:, None])
    mean = np.where(sums.mass[:, None] > 0.0, centre + shift, 0.0)
    if sums.second.ndim == 2:
        scatter = sums.second - shift * sums.first
        return mean, scatter, sums.second, scatter
    second = np.tril(sums.second) + np.tril(sums.second, -1).transpose(0, 2, 1)
    scatter = second - shift[:, :, None] * sums.first[:, None, :]
    raw, left = np.diagonal(second, axis1=1, axis2=2), np.diagonal(scatter, axis1=1, axis2=2)
    return mean, scatter, raw, left
