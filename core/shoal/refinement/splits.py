"""Splitting components: proposals from a part of their rows, and the exact gain on all of them.

Children a and b of a component c divide what it has, q(a) + q(b) = q(c) in every row, so that nothing else changes:

    gain = log m(S_a) + log m(S_b) - log m(S_c) + label terms + sum_n w_n r_nc H(p_n) + H of a past that is shared

with p_n = q_n(a) / q_n(c). The best division must gain on the window's rows alone: a past that differs from them is no
reason to split. Then the past goes to one child, or, where it was made of both, is shared in the window's proportion,
whichever bound is best.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_matrix
from scipy.special import expit, xlogy

from shoal.families import AnyFamily, take
from shoal.families.capabilities import fast_log_marginal
from shoal.points.arrays import Array, IntArray
from shoal.refinement.divisions import TOLERANCE, Part, best_divisions, log_odds
from shoal.refinement.ground import Ground
from shoal.refinement.held import binary_entropy
from shoal.refinement.problem import Rows
from shoal.refinement.sticks_kernel import label_prior
from shoal.refinement.sweeps import Model, State
from shoal.variational.places import places_of
from shoal.variational.splits import Part as Located
from shoal.variational.splits import starts_of

_LEAST_RESP = 0.05
_ROWS_A_PARAMETER, _FEW_ROWS, _MOST_ROWS = 10, 2_000, 4_000
"""A part has so many rows a parameter, within these limits."""
_FEW_FEATURES, _POWER_STEPS = 32, 30
"""Up to so many features the principal axis is worked out; of more, so many steps of the power method stand for it."""
_ROUNDS_WITH_PAST = 10
_FEWEST = 4


class Split(NamedTuple):
    """How to divide a component between two children."""

    row: int
    gain: float  # nats, exact on all rows
    window: Any  # Stats of the children in the window, two rows
    past_share: float  # of the component's past that the first child has


class _Whole(NamedTuple):
    """All that a component has in the window."""

    rows: IntArray  # (m,)
    resp: Array  # (m,)
    weight: Array  # (m,)


class _Parent(NamedTuple):
    """What is divided, and what the division is measured against."""

    stats: Any
    """Of past and window together, one row."""
    past: Any
    """One row."""
    others: Array  # (T - 1,) masses of the other components
    evidence: float  # log m of the parent
    labels: float  # label term before


class _Divided(NamedTuple):
    """Two children on a part."""

    p: Array  # (m,) share of the first
    window: Any  # Stats, two rows
    gain: float
    past_share: float


def propose(ground: Ground, model: Model, state: State, rows: list[int], rng: np.random.Generator) -> list[Split]:
    """For the components `rows` the best division of each that was found, where its exact gain is positive."""
    columns = state.resp.tocsc()
    wholes = [_whole_of(ground, columns, row) for row in rows]
    found = [(row, whole, _part_of(ground, whole, model.family, rng)) for row, whole in zip(rows, wholes, strict=True)]
    tried = [(row, whole, part) for row, whole, part in found if part is not None]
    own, parts = [row for row, _, _ in tried], [part for _, _, part in tried]
    starts = [_starts(model.family, part, rng) for part in parts]
    splits = []
    for (row, whole, part), division in zip(tried, best_divisions(model, state, own, parts, starts), strict=True):
        if division is None:
            continue
        split = _settled(ground, model, state, row, whole, part, division.p, division.gain)
        if split is not None:
            splits.append(split)
    return splits


def _settled(
    ground: Ground, model: Model, state: State, row: int, whole: _Whole, part: Part, p: Array, gain: float
) -> Split | None:
    """A division of a part with the past placed, carried over to all rows; None where it does not gain there."""
    found = _Divided(p, _children(model.family, part, p), gain, 1.0)
    parent = _parent(model, state, row)
    if float(parent.past[0][0]) > 0.0:
        settled = _with_past(model, parent, part, found)
        if settled is None or settled.gain <= 0.0:
            return None
        found = settled
    return _on_all(ground, model, parent, row, whole, found)


def _whole_of(ground: Ground, columns: csc_matrix, row: int) -> _Whole:
    own = slice(int(columns.indptr[row]), int(columns.indptr[row + 1]))
    rows, resp = columns.indices[own].astype(np.int64), columns.data[own]
    return _Whole(rows, resp, ground.weighted(rows, resp))


def _part_of(ground: Ground, whole: _Whole, family: AnyFamily, rng: np.random.Generator) -> Part | None:
    """The rows of responsibility above a floor, or so many of them drawn; their weights made to sum to the whole."""
    strong = np.flatnonzero(whole.resp > _LEAST_RESP)
    if strong.size < _FEWEST:
        return None
    most = min(max(_ROWS_A_PARAMETER * family.n_free_parameters, _FEW_ROWS), _MOST_ROWS)
    if strong.size > most:
        strong = np.sort(rng.choice(strong, most, replace=False))
    chosen = whole.weight[strong]
    return Part(ground.x[whole.rows[strong]], chosen * (whole.weight.sum() / chosen.sum()))


def _starts(family: AnyFamily, part: Part, rng: np.random.Generator) -> list[Array]:
    """Sides (m,) of the first principal axis, and of two means; once where these are the same."""
    located = Located(np.empty((0, 0)), places_of(family, part.x), None, part.weight)
    steps = None if located.location.shape[1] <= _FEW_FEATURES else _POWER_STEPS
    starts = starts_of(located, rng, steps)
    return starts[:1] if np.array_equal(starts[0], starts[1]) else starts


def _parent(model: Model, state: State, row: int) -> _Parent:
    stats = take(state.stats, [row])
    past = take(state.held.stats, [row])
    others = np.delete(state.mass, row)
    evidence = float(fast_log_marginal(model.family, stats)[0])
    return _Parent(stats, past, others, evidence, label_prior(state.mass, model.concentration))


def _with_past(model: Model, parent: _Parent, part: Part, found: _Divided) -> _Divided | None:
    """The division with the past placed as is best, settled anew."""
    best = max((_placed(model, parent, part, found, share) for share in _places(found)), key=lambda d: d.gain)
    sharing = 0.0 < best.past_share < 1.0
    for _ in range(_ROUNDS_WITH_PAST):
        stats = _with(model.family, parent, best.window, best.past_share)
        p = _divide(model, part.x, stats, parent.others, best.window[0])
        window = _children(model.family, part, p)
        if window[0].min() <= 0.0:
            return None
        share = float(window[0][0] / window[0].sum()) if sharing else best.past_share
        tried = _placed(model, parent, part, _Divided(p, window, 0.0, share), share)
        rise = tried.gain - best.gain
        best = tried if rise > 0.0 else best
        if rise <= TOLERANCE * float(part.weight.sum()):
            break
    return best


def _places(found: _Divided) -> tuple[float, ...]:
    """Shares of the past that the first child may have: all, nothing, or as in the window."""
    return 1.0, 0.0, float(found.window[0][0] / found.window[0].sum())


def _placed(model: Model, parent: _Parent, part: Part, found: _Divided, share: float) -> _Divided:
    gain = _gain(model, parent, _with(model.family, parent, found.window, share))
    gain += _entropy(part.weight, found.p) + float(parent.past[0][0]) * binary_entropy(share)
    return found._replace(gain=gain, past_share=share)


def _with(family: AnyFamily, parent: _Parent, window: Any, share: float) -> Any:
    """The children's statistics with their parts of the past."""
    return family.add(window, family.scale(take(parent.past, [0, 0]), np.array([share, 1.0 - share])))


def _children(family: AnyFamily, part: Part, p: Array) -> Any:
    return family.suffstats(part.x, np.stack([part.weight * p, part.weight * (1.0 - p)], axis=1))


def _gain(model: Model, parent: _Parent, children: Any) -> float:
    """Evidence and label terms, without entropies."""
    labels = label_prior(np.append(parent.others, children[0]), model.concentration)
    return float(fast_log_marginal(model.family, children).sum() - parent.evidence + labels - parent.labels)


def _divide(model: Model, x: Rows, children: Any, others: Array, seen: Array | None = None) -> Array:
    """Share (m,) of the first child in each row. The odds are those of two neighbours on the stick, heavier first."""
    score = model.family.expected_log_likelihood(model.family.posterior(children), x)
    mass = children[0] if seen is None else seen
    after = float(others[others < mass.min()].sum())
    odds = log_odds(model.concentration, mass[None, :], np.array([after]))
    return np.asarray(expit(score[:, 0] - score[:, 1] + odds))


def _entropy(weight: Array, p: Array) -> float:
    return -float(weight @ (xlogy(p, p) + xlogy(1.0 - p, 1.0 - p)))


def _on_all(
    ground: Ground,
    model: Model,
    parent: _Parent,
    row: int,
    whole: _Whole,
    found: _Divided,
) -> Split | None:
    """The division carried over to all rows of the component, if it gains there."""
    part = Part(ground.x[whole.rows], whole.weight)
    stats = _with(model.family, parent, found.window, found.past_share)
    p = _divide(model, part.x, stats, parent.others, found.window[0])
    window = _children(model.family, part, p)
    if window[0].min() <= 0.0:
        return None
    placed = _placed(model, parent, part, _Divided(p, window, 0.0, found.past_share), found.past_share)
    if placed.gain <= 0.0:
        return None
    return Split(row, placed.gain, window, found.past_share)
