"""The plain form of the compiled E-step for quadratic log densities (`sweep_kernel`); tests compare the two.

Where components lie apart, most scores are never computed: lower bounds on distances say that their responsibilities
would be dropped (`distance_bounds`). No digit depends on those bounds.
"""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily
from shoal.families.capabilities import QuadraticForm, quadratic_form
from shoal.inference.data import WindowData
from shoal.inference.distance_bounds import Bounds, bounds_of
from shoal.inference.sweep import LOG_FLOOR, Responsibilities, guesses, nearest, normalized
from shoal.points.arrays import Array, BoolArray, IntArray, SingleArray

_UNSCORED = -12.0
"""Log of a share, relative to the floor, below which a score need not be computed."""
_BLOCK_ELEMENTS = 1 << 18
"""Scores in a block: 2 MiB."""


def e_step(
    data: WindowData,
    family: AnyFamily,
    params: object,
    log_weight: Array,
    before: csr_matrix | None = None,
    tags: IntArray | None = None,
) -> Responsibilities:
    """The best responsibilities of a family with a quadratic form; `before` and `tags` as in `sweep.SweepStart`."""
    form = quadratic_form(family, params)
    assert form is not None
    form = form._replace(constant=form.constant + log_weight)
    known, data.distance_bounds = data.distance_bounds, None
    bounds = bounds_of(known, form, tags, data.x)
    guess = None if before is None else guesses(before, log_weight.size)
    found = normalized(data, _near_blocks(data, form, guess, bounds), np.zeros(log_weight.size))
    data.distance_bounds = bounds.carried(form, tags)
    return found


def _near_blocks(
    data: WindowData, form: QuadraticForm, guess: IntArray | None, bounds: Bounds
) -> Iterator[tuple[slice, Array]]:
    """Blocks of rows with the scores (n, T) of the components near them, -inf for the others.

    The score of the guessed component says what others must reach. Each component then scores the rows that it may
    matter to.
    """
    constant, t = form.constant, form.constant.size
    step = max(64, _BLOCK_ELEMENTS // max(t, form.centre.shape[1]))
    for start in range(0, data.n_rows, step):
        part = slice(start, min(start + step, data.n_rows))
        x, least = np.asarray(data.x[part]), bounds.rows(data.x, part)
        own = nearest(constant, least) if guess is None else guess[part]
        value, rows = np.full((len(x), t), -np.inf), np.arange(len(x))
        order = np.argsort(own, kind="stable")
        ends = np.searchsorted(own[order], np.arange(t + 1))
        for k in np.flatnonzero(np.diff(ends)):
            _score(x, form, int(k), order[ends[k] : ends[k + 1]], value, least)
        near = _may_reach(constant, least, value[rows, own] + (LOG_FLOOR + _UNSCORED))
        near[rows, own] = False
        for k in np.flatnonzero(near.any(axis=0)):
            _score(x, form, int(k), np.flatnonzero(near[:, k]), value, least)
        yield part, value


def _may_reach(constant: Array, least: SingleArray, score: Array) -> BoolArray:
    """(n, T) whether constant - distance^2 / 2 may reach `score` (n,), distances being at least `least` (n, T).

    In single precision: the scores are lowered by more than its rounding.
    """
    ceiling = constant.astype(np.float32)
    slack = 1e-6 * (np.abs(score) + float(np.abs(constant[np.isfinite(constant)]).max(initial=1.0)))
    near: BoolArray = ceiling - np.float32(0.5) * least * least >= (score - slack).astype(np.float32)[:, None]
    return near


def _score(x: Array, form: QuadraticForm, k: int, rows: IntArray, value: Array, least: SingleArray) -> None:
    """Write the scores of component k for some rows, and their distances where these raise the bounds."""
    apart = x[rows] - form.centre[k]
    apart = apart * form.root[k] if form.root.ndim == 2 else apart @ form.root[k].T
    square = np.einsum("nd,nd->n", apart, apart)
    value[rows, k] = form.constant[k] - 0.5 * square
    least[rows, k] = np.sqrt(square) * (1.0 - 1e-6)
