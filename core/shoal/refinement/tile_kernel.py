"""A sweep in one pass over rows of many features, where components have covariances: eight rows at a time.

The score of component k is constant_k - |A_k (x - centre_k)|^2 / 2 with A_k lower triangular. Sums of squares only grow
as the rows of A_k are counted, and the first of these are the short ones: a component that is not near is told by a few
features (of 113 components of digits in 50 features 50 are left after eight, 15 after sixteen). So eight points are
followed until none of them can belong, every eight features. What they are measured by is their best component, for
which there is a guess: points with one guess are put side by side, and have the same components near them.

A lane of a vector is a point (`lanes_kernel`), so that nothing is summed across one. A point's score has the same
digits whatever the others beside it are.
"""

import math
from typing import NamedTuple

import numpy as np

from shoal.families.steps_kernel import Waiting
from shoal.kernels.cholesky_update import MOST_WAITING, add_outer_products
from shoal.kernels.vectors import LANES
from shoal.points.arrays import Array, IntArray, SingleArray
from shoal.refinement.divide_kernel import divide_row
from shoal.refinement.lanes_kernel import FOUR, add_squares
from shoal.refinement.quadratic_kernel import LEFT_OUT
from shoal.refinement.reach_kernel import Reach, ceilings_of, mark_near, write_down
from shoal.runtime.kernels import compiled, kernel

_STEP = 2
"""Fours of rows between looks at whether any point is left."""


class _Tile(NamedTuple):
    """Eight points, and what is worked out of them."""

    points: Array  # (W, LANES), zero from D on
    apart: Array  # (W, LANES) points less a centre
    square: Array  # (LANES,) squared distances, or parts of them
    most: Array  # (LANES,) above which they do not matter
    score: Array  # (T, LANES) where it was worked out
    least: Array  # (LANES,) below which a score does not count


@compiled()
def _within(tile: _Tile, centre: Array, fours: Array, k: int) -> bool:
    """The points' squared distances from component k into `square`; False, and a part of each there, if all exceed
    `most`."""
    groups, width = fours.shape[1], centre.shape[1]
    for j in range(LANES):
        tile.square[j] = 0.0
    for g in range(groups):
        add_squares(fours, (k * groups + g) * width * FOUR, centre, k * width, tile.points, tile.apart, g, tile.square)
        if g % _STEP == _STEP - 1 or g == groups - 1:
            left = False
            for j in range(LANES):
                left |= not tile.square[j] > tile.most[j]
            if not left:
                return False
    return True


@compiled()
def _scored(
    tile: _Tile,
    constant: float,
    centre: Array,
    fours: Array,
    k: int,
    below: float,
    chosen: IntArray,
    reach: Reach,
) -> bool:
    """The points' scores of component k, and `least`, `below` under the best score, raised by them; False where none
    counts. How far the points are apart from the component at least is written down in `reach`."""
    for j in range(LANES):
        tile.most[j] = 2.0 * (constant - tile.least[j])
    counts = _within(tile, centre, fours, k)
    for j in range(LANES):
        write_down(reach, chosen[j], k, tile.square[j])
    if not counts:
        return False
    for j in range(LANES):
        score = constant - 0.5 * tile.square[j]
        tile.score[k, j] = score
        tile.least[j] = max(tile.least[j], score - below)
    return True


@compiled()
def _places(
    tile: _Tile,
    x: Array,
    reach: Reach,
    guess: IntArray,
    chosen: IntArray,
    constant: Array,
    ceiling: SingleArray,
    centre: Array,
    fours: Array,
    below: float,
    marks: Array,
    places: IntArray,
) -> int:
    """Scores of the points x[chosen], LANES of them; of the components that count for any, ascending, the places into
    `places`, and their number back. First come the guesses, which say what others have to reach. `marks` (3, T) is for
    scratch."""
    near, tried, counts = marks[0], marks[1], marks[2]
    marks[:] = 0
    for j in range(LANES):
        tile.least[j] = -np.inf
        for a in range(x.shape[1]):
            tile.points[a, j] = x[chosen[j], a]
    for j in range(LANES):
        k = guess[chosen[j]]
        if tried[k] == 0:
            tried[k] = 1
            counts[k] = _scored(tile, constant[k], centre, fours, k, below, chosen, reach)
    for j in range(LANES):
        mark_near(ceiling, reach, chosen[j], tile.least[j], near)
    found = 0
    for k in range(constant.size):
        if near[k] != 0 and tried[k] == 0:
            counts[k] = _scored(tile, constant[k], centre, fours, k, below, chosen, reach)
        if counts[k] != 0:
            places[found] = k
            found += 1
    return found


@compiled()
def _add_up(
    x: Array, i: int, centre: Array, k: int, weight: float, first: Array, second: Array, waiting: Waiting
) -> None:
    """Count the row to component k. Outer products are added up MOST_WAITING at a time, so that a matrix is read and
    written once for all of them."""
    root_weight, row = math.sqrt(weight), waiting.filled[k]
    for a in range(x.shape[1]):
        apart = x[i, a] - centre[k, a]
        first[k, a] += weight * apart
        waiting.vectors[k, row, a] = root_weight * apart
    waiting.filled[k] = row + 1
    if row + 1 == MOST_WAITING:
        add_outer_products(second, k, waiting.vectors)
        waiting.filled[k] = 0


@compiled()
def _put_in_order(guess: IntArray, ends: IntArray, order: IntArray) -> None:
    """Places of the rows, those of one guess together, into `order`, the last of them again up to a multiple of LANES.
    `ends` (T,), zero, is for scratch."""
    n, end = guess.size, 0
    for i in range(n):
        ends[guess[i]] += 1
    for k in range(ends.size):
        end += ends[k]
        ends[k] = end
    for i in range(n - 1, -1, -1):
        ends[guess[i]] -= 1
        order[ends[guess[i]]] = i
    order[n:] = order[n - 1]


@kernel()
def sweep_tiles(
    x: Array,
    reach: Reach,
    guess: IntArray,
    waiting: Waiting,
    constant: Array,
    centre: Array,
    fours: Array,
    weights: Array,
    log_floor: float,
    indices: IntArray,
    resp: Array,
    ends: IntArray,
    mass: Array,
    first: Array,
    second: Array,
) -> tuple[int, float, float]:
    """As `quadratic_kernel.sweep_block`, of roots in fours as `quadratic.Tiles` has them.

    reach: what |A_k (x - centre_k)| is at least; raised where more is found out. Outer products may be left in
    `waiting`.
    """
    n, t, width = x.shape[0], constant.size, centre.shape[1]
    below = -(log_floor + LEFT_OUT)
    tile = _Tile(
        np.zeros((width, LANES)),
        np.empty((width, LANES)),
        np.empty(LANES),
        np.empty(LANES),
        np.empty((t, LANES)),
        np.empty(LANES),
    )
    order, ceiling = np.empty(-(-n // LANES) * LANES, dtype=np.int64), ceilings_of(constant)
    _put_in_order(guess, np.zeros(t, dtype=np.int64), order)
    value, share, place, places = np.empty(t), np.empty(t), np.empty(t, dtype=np.int64), np.empty(t, dtype=np.int64)
    marks, begins = np.empty((3, t), dtype=np.uint8), np.empty(n, dtype=np.int64)
    found, part = np.empty(n * t, dtype=indices.dtype), np.empty(n * t)  # entries in the order of the tiles
    filled, entropy, dropped = 0, 0.0, 0.0
    for start in range(0, n, LANES):
        chosen = order[start : start + LANES]
        near = _places(tile, x, reach, guess, chosen, constant, ceiling, centre, fours, below, marks, places)
        for j in range(min(LANES, n - start)):
            i, m, begin = chosen[j], 0, filled
            for e in range(near):
                if tile.score[places[e], j] >= tile.least[j]:
                    value[m] = tile.score[places[e], j]
                    place[m] = places[e]
                    m += 1
            filled, h, lost = divide_row(value[:m], share, log_floor, found, part, filled)
            entropy += weights[i] * h
            dropped += weights[i] * lost
            begins[i], ends[i] = begin, filled - begin
            for e in range(begin, filled):
                k = place[found[e]]
                found[e] = k
                counted = weights[i] * part[e]
                mass[k] += counted
                _add_up(x, i, centre, k, counted, first, second, waiting)
    _written(found, part, begins, indices, resp, ends)
    return filled, entropy, dropped


@compiled()
def _written(found: IntArray, part: Array, begins: IntArray, indices: IntArray, resp: Array, ends: IntArray) -> None:
    """Entries in the order of the rows: `begins` (n,) says where a row's are, `ends` (n,) how many, then where they
    end."""
    end = 0
    for i in range(ends.size):
        for e in range(begins[i], begins[i] + ends[i]):
            indices[end] = found[e]
            resp[end] = part[e]
            end += 1
        ends[i] = end
