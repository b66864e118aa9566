"""The E-step: the best responsibilities under given parameters and log weights, as sparse rows.

Every row is exp(score + log weight) normalised. Entries below a floor are dropped and the rest renormalised in every
E-step, so that a search judges the mixture that would be adopted.

Where log densities are quadratic in the point and components lie apart, most scores are never computed: lower bounds on
distances say that their responsibilities would be dropped (`distance_bounds`). No digit depends on those bounds.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily
from shoal.families.capabilities import QuadraticForm, quadratic_form
from shoal.inference.data import WindowData
from shoal.inference.distance_bounds import Bounds, bounds_of
from shoal.points.arrays import Array, BoolArray, IntArray, SingleArray

FLOOR = 1e-6
"""Responsibilities below this share of a row's largest are dropped."""
LOG_FLOOR = float(np.log(FLOOR))
_NEGLIGIBLE = -40.0
"""Log of a share below which it does not even count as dropped."""
_UNSCORED = -12.0
"""Log of a share, relative to the floor, below which a score need not be computed."""
_LEAST_SCORE = -1e300
"""Stands for a score that is not a number, or minus infinity: such a row is divided evenly."""
_BLOCK_ELEMENTS = 1 << 18
"""Scores in a block: 2 MiB. Temporaries of several times that are fresh memory each time, at twice the cost."""


class Responsibilities(NamedTuple):
    """Result of an E-step."""

    resp: csr_matrix  # (N, T) rows sum to one
    entropy: float  # weighted, nats
    dropped: float  # weighted points whose responsibility was moved when small entries were dropped


class _Entries(NamedTuple):
    """Scores of some rows, those that matter: entries of a CSR matrix, at least one a row."""

    starts: IntArray  # (n + 1,)
    component: IntArray  # (E,)
    value: Array  # (E,) score + log weight


def e_step(
    data: WindowData,
    family: AnyFamily,
    params: object,
    log_weight: Array,
    before: csr_matrix | None = None,
    tags: IntArray | None = None,
) -> Responsibilities:
    """The best responsibilities: a pass over the rows.

    `before`, responsibilities (N, T or fewer) of an earlier state, guesses where each row belongs. `tags` (T,) name
    components from pass to pass, so that distance bounds are carried on. Both save time and change no responsibility.
    """
    form = quadratic_form(family, params)
    if form is None:
        return normalized(data, data.score_blocks(family, params), log_weight)
    constant = form.constant + log_weight
    known, data.distance_bounds = data.distance_bounds, None
    bounds = bounds_of(known, form, tags, data.x)
    guess = None if before is None else guesses(before, constant.size)
    found = _joined(data, _near_blocks(data, form, constant, guess, bounds), constant.size)
    data.distance_bounds = bounds.carried(form, tags)
    return found


def normalized(data: WindowData, scores: Iterable[tuple[slice, Array]], log_weight: Array) -> Responsibilities:
    """Responsibilities of given scores: blocks (rows, score (n, T)), in order."""
    return _joined(data, ((part, _dense(score + log_weight)) for part, score in scores), log_weight.size)


def best_entries(resp: csr_matrix) -> tuple[IntArray, Array]:
    """Column (N,) and value (N,) of the largest entry of each row, the first of equals.

    Raises ValueError for a row without one.
    """
    if not np.diff(resp.indptr).all():
        raise ValueError("a row without a responsibility has no best component; scores that are NaN lead there")
    largest = np.maximum.reduceat(resp.data, resp.indptr[:-1])
    return _columns_of(resp, largest), largest


def guesses(before: csr_matrix, n_components: int) -> IntArray:
    """(N,) a component near each row: the one that had most of it, among the first `n_components`."""
    return np.minimum(best_entries(before)[0], n_components - 1)


def _columns_of(resp: csr_matrix, largest: Array) -> IntArray:
    """(N,) column of the largest entry (N,) of each row, the first of equals; no row is empty."""
    places = np.flatnonzero(resp.data == np.repeat(largest, np.diff(resp.indptr)))
    if places.size != largest.size:
        rows = np.searchsorted(resp.indptr, places, side="right")
        places = places[np.diff(rows, prepend=0) > 0]
    return np.asarray(resp.indices[places], dtype=np.int64)


def _dense(value: Array) -> _Entries:
    """Entries of a block (n, T) that are not negligible."""
    value = np.where(value > _LEAST_SCORE, value, _LEAST_SCORE)
    return _chosen(value, value >= value.max(axis=1, keepdims=True) + _NEGLIGIBLE)


def _chosen(value: Array, chosen: BoolArray) -> _Entries:
    rows, component = np.nonzero(chosen)
    starts = np.searchsorted(rows, np.arange(len(value) + 1))
    return _Entries(starts, component, value[rows, component])


def _near_blocks(
    data: WindowData, form: QuadraticForm, constant: Array, guess: IntArray | None, bounds: Bounds
) -> Iterator[tuple[slice, _Entries]]:
    """Blocks of rows with the scores of the components near them.

    The score of the guessed component says what others must reach. Each component then scores the rows that it may
    matter to.
    """
    t = constant.size
    step = max(64, _BLOCK_ELEMENTS // max(t, form.centre.shape[1]))
    for start in range(0, data.n_rows, step):
        part = slice(start, min(start + step, data.n_rows))
        x, least = np.asarray(data.x[part]), bounds.rows(data.x, part)
        own = nearest(constant, least) if guess is None else guess[part]
        value, rows = np.full((len(x), t), -np.inf), np.arange(len(x))
        order = np.argsort(own, kind="stable")
        ends = np.searchsorted(own[order], np.arange(t + 1))
        for k in np.flatnonzero(np.diff(ends)):
            _score(x, form, constant, int(k), order[ends[k] : ends[k + 1]], value, least)
        top = value[rows, own]
        near = _may_reach(constant, least, top + (LOG_FLOOR + _UNSCORED))
        near[rows, own] = False
        for k in np.flatnonzero(near.any(axis=0)):
            _score(x, form, constant, int(k), np.flatnonzero(near[:, k]), value, least)
        near[rows, own] = True
        yield part, _chosen(np.where(value > _LEAST_SCORE, value, _LEAST_SCORE), near)


def nearest(constant: Array, least: SingleArray) -> IntArray:
    """(n,) the components that the bounds let score best."""
    best: IntArray = (constant - 0.5 * np.square(least)).argmax(axis=1)
    return best


def _may_reach(constant: Array, least: SingleArray, score: Array) -> BoolArray:
    """(n, T) whether constant - distance^2 / 2 may reach `score` (n,), distances being at least `least` (n, T).

    In single precision: the scores are lowered by more than its rounding.
    """
    ceiling = constant.astype(np.float32)
    slack = 1e-6 * (np.abs(score) + float(np.abs(constant[np.isfinite(constant)]).max(initial=1.0)))
    near: BoolArray = ceiling - np.float32(0.5) * least * least >= (score - slack).astype(np.float32)[:, None]
    return near


def _score(
    x: Array, form: QuadraticForm, constant: Array, k: int, rows: IntArray, value: Array, least: SingleArray
) -> None:
    """Write the scores of component k for some rows, and their distances where these raise the bounds."""
    apart = x[rows] - form.centre[k]
    apart = apart * form.root[k] if form.root.ndim == 2 else apart @ form.root[k].T
    square = np.einsum("nd,nd->n", apart, apart)
    value[rows, k] = constant[k] - 0.5 * square
    least[rows, k] = np.sqrt(square) * (1.0 - 1e-6)


def _joined(data: WindowData, blocks: Iterable[tuple[slice, _Entries]], n_components: int) -> Responsibilities:
    """Blocks of scores, in order, normalised."""
    found, entropy, dropped = [], 0.0, 0.0
    for part, entries in blocks:
        resp, counts, own_entropy, own_dropped = _normalized(entries, data.weights[part])
        found.append((*resp, counts))
        entropy, dropped = entropy + own_entropy, dropped + own_dropped
    shares, columns, counts = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
    starts = np.append(0, np.cumsum(counts))
    return Responsibilities(csr_matrix((shares, columns, starts), shape=(len(counts), n_components)), entropy, dropped)


def _normalized(entries: _Entries, weights: Array) -> tuple[tuple[Array, IntArray], IntArray, float, float]:
    """Shares and their columns, how many each row has, their weighted entropy, and the weighted share dropped."""
    starts, value = entries.starts[:-1], entries.value
    counts = np.diff(entries.starts)
    value = value - np.repeat(np.maximum.reduceat(value, starts), counts)
    share, kept = np.exp(np.maximum(value, _NEGLIGIBLE)), value >= LOG_FLOOR
    left = np.where(kept, share, 0.0)
    whole, total = np.add.reduceat(share, starts), np.add.reduceat(left, starts)
    entropy = np.log(total) - np.add.reduceat(left * value, starts) / total
    resp = left[kept] / np.repeat(total, counts)[kept]
    n_kept = np.add.reduceat(kept.astype(np.int64), starts)
    return (
        (resp, entries.component[kept].astype(np.int32)),
        n_kept,
        float(weights @ entropy),
        float(weights @ (1.0 - total / whole)),
    )
