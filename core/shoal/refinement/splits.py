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
from scipy.special import expit, psi, xlogy

from shoal.arrays import Array, IntArray
from shoal.families import AnyFamily, log_marginal, take
from shoal.process import log_label_prior
from shoal.refinement.ground import Ground
from shoal.refinement.held import binary_entropy
from shoal.refinement.problem import Rows
from shoal.refinement.sweeps import Model, State
from shoal.variational.places import places_of
from shoal.variational.splits import Part as Located
from shoal.variational.splits import principal_start, two_means_start
from shoal.variational.vdp_features import Origin, seen_from, statistics

_LEAST_RESP = 0.05
_MOST_ROWS = 4_000
_ROUNDS = 30
_ROUNDS_WITH_PAST = 10
_TOLERANCE = 1e-4
"""Nats a point of a local round below which it stops."""
_PATIENCE = 20
"""Given up when so many more rounds like the last would not gain anything."""
_FEWEST = 4


class Split(NamedTuple):
    """How to divide a component between two children."""

    row: int
    gain: float  # nats, exact on all rows
    window: Any  # Stats of the children in the window, two rows
    past_share: float  # of the component's past that the first child has


class _Part(NamedTuple):
    """Rows that a division is looked for in, with weights that sum to the component's mass in the window."""

    x: Rows
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


class _Alone(NamedTuple):
    """A component as its part of the rows has it, without a past, in natural statistics about its own mean."""

    rows: Any  # (m, P) t(x): an array, or `SparseRows`
    whole: Array  # (P,) weighted sum
    prior: Array  # (P,) natural parameters
    others: Array  # (T - 1,) masses of the other components in the window
    evidence: float  # log partition function of the parent and of the prior: what the children's are measured against
    labels: float  # label term before


class _Divided(NamedTuple):
    """Two children on a part."""

    p: Array  # (m,) share of the first
    window: Any  # Stats, two rows
    gain: float
    past_share: float


def propose(
    ground: Ground, model: Model, state: State, columns: csc_matrix, row: int, rng: np.random.Generator
) -> Split | None:
    """The best division of component `row` that was found, if its exact gain is positive.

    `columns` are the state's responsibilities (N, T) by component.
    """
    own = slice(int(columns.indptr[row]), int(columns.indptr[row + 1]))
    rows, resp = columns.indices[own].astype(np.int64), columns.data[own]
    weight = ground.weighted(rows, resp)
    part = _part_of(ground, rows, resp, weight, rng)
    if part is None:
        return None
    alone = _alone(model, state, part, row)
    searches = [_search(model, alone, part.weight, start) for start in _starts(model.family, part, rng)]
    p, gain = max((one for one in searches if one is not None), key=lambda one: one[1], default=(part.weight, 0.0))
    if gain <= 0.0:
        return None
    found = _Divided(p, _children(model.family, part, p), gain, 1.0)
    parent = _parent(model, state, row)
    if float(parent.past[0][0]) > 0.0:
        settled = _with_past(model, parent, part, found)
        if settled is None or settled.gain <= 0.0:
            return None
        found = settled
    return _on_all(ground, model, state, parent, row, rows, weight, found)


def _part_of(ground: Ground, rows: IntArray, resp: Array, weight: Array, rng: np.random.Generator) -> _Part | None:
    """The rows of responsibility above a floor, or so many of them drawn; their weights made to sum to the whole."""
    strong = np.flatnonzero(resp > _LEAST_RESP)
    if strong.size < _FEWEST:
        return None
    if strong.size > _MOST_ROWS:
        strong = np.sort(rng.choice(strong, _MOST_ROWS, replace=False))
    chosen = weight[strong]
    return _Part(ground.x[rows[strong]], chosen * (weight.sum() / chosen.sum()))


def _starts(family: AnyFamily, part: _Part, rng: np.random.Generator) -> list[Array]:
    """Sides (m,) of the first principal axis, and of two means."""
    located = Located(np.empty((0, 0)), places_of(family, part.x), None, part.weight)
    return [principal_start(located), two_means_start(located, rng)]


def _parent(model: Model, state: State, row: int) -> _Parent:
    stats = take(state.stats, [row])
    past = take(state.held.stats, [row])
    others = np.delete(state.mass, row)
    evidence = float(log_marginal(model.family, stats)[0])
    return _Parent(stats, past, others, evidence, log_label_prior(state.mass, model.concentration))


def _alone(model: Model, state: State, part: _Part, row: int) -> _Alone:
    """The component as the part has it, without a past: label terms too are those of the window's masses."""
    family = model.family
    located = "mean" in state.stats._fields
    origin = Origin(state.stats.mean[row] if located else np.zeros(part.x.shape[1]), located)
    rows = statistics(family, part.x, origin).rows
    prior = family.natural(seen_from(family, family.posterior(family.empty_stats(1)), origin))[0]
    whole = part.weight @ rows
    evidence = float(family.log_partition(family.from_natural(np.stack([prior + whole, prior]))).sum())
    others = np.delete(state.window_mass, row)
    labels = log_label_prior(np.append(others, part.weight.sum()), model.concentration)
    return _Alone(rows, whole, prior, others, evidence, labels)


def _search(model: Model, alone: _Alone, weight: Array, start: Array) -> tuple[Array, float] | None:
    """The first child's share (m,) after rounds of the two children alone, and what it gains; None if one dies.

    Everything is linear in the statistics t(x) of the part's rows, so that a round is two products with their table.
    """
    family, p, last, found = model.family, start, -np.inf, None
    total = float(weight.sum())
    for done in range(_ROUNDS):
        mass = np.array([weight @ p, weight @ (1.0 - p)])
        if mass.min() <= 1e-6 * total:
            return None
        first = (weight * p) @ alone.rows
        params = family.from_natural(alone.prior + np.stack([first, alone.whole - first]))
        labels = log_label_prior(np.append(alone.others, mass), model.concentration)
        gain = float(family.log_partition(params).sum()) - alone.evidence + labels - alone.labels + _entropy(weight, p)
        found = p, gain
        rise = gain - last
        last = gain
        if rise <= _TOLERANCE * total or (done > 2 and gain + _PATIENCE * rise < 0.0):
            break
        slopes = family.mean_params(params)
        after = float(alone.others[alone.others < mass.min()].sum())
        p = expit(alone.rows @ (slopes[0] - slopes[1]) + _log_odds(model.concentration, mass, after))
    return found


def _with_past(model: Model, parent: _Parent, part: _Part, found: _Divided) -> _Divided | None:
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
        if rise <= _TOLERANCE * float(part.weight.sum()):
            break
    return best


def _places(found: _Divided) -> tuple[float, ...]:
    """Shares of the past that the first child may have: all, nothing, or as in the window."""
    return 1.0, 0.0, float(found.window[0][0] / found.window[0].sum())


def _placed(model: Model, parent: _Parent, part: _Part, found: _Divided, share: float) -> _Divided:
    gain = _gain(model, parent, _with(model.family, parent, found.window, share))
    gain += _entropy(part.weight, found.p) + float(parent.past[0][0]) * binary_entropy(share)
    return found._replace(gain=gain, past_share=share)


def _with(family: AnyFamily, parent: _Parent, window: Any, share: float) -> Any:
    """The children's statistics with their parts of the past."""
    return family.add(window, family.scale(take(parent.past, [0, 0]), np.array([share, 1.0 - share])))


def _children(family: AnyFamily, part: _Part, p: Array) -> Any:
    return family.suffstats(part.x, np.stack([part.weight * p, part.weight * (1.0 - p)], axis=1))


def _gain(model: Model, parent: _Parent, children: Any) -> float:
    """Evidence and label terms, without entropies."""
    labels = log_label_prior(np.append(parent.others, children[0]), model.concentration)
    return float(log_marginal(model.family, children).sum()) - parent.evidence + labels - parent.labels


def _divide(model: Model, x: Rows, children: Any, others: Array, seen: Array | None = None) -> Array:
    """Share (m,) of the first child in each row. The odds are those of two neighbours on the stick, heavier first."""
    score = model.family.expected_log_likelihood(model.family.posterior(children), x)
    mass = children[0] if seen is None else seen
    after = float(others[others < mass.min()].sum())
    return np.asarray(expit(score[:, 0] - score[:, 1] + _log_odds(model.concentration, mass, after)))


def _log_odds(concentration: float, mass: Array, after: float) -> float:
    """E log pi of the first child less that of the second, next to each other, `after` being the mass behind them."""
    big, small = float(mass.max()), float(mass.min())
    behind = concentration + after
    odds = float(psi(1.0 + big) - psi(behind + small) - psi(1.0 + small) + psi(1.0 + small + behind))
    return odds if mass[0] >= mass[1] else -odds


def _entropy(weight: Array, p: Array) -> float:
    return -float(weight @ (xlogy(p, p) + xlogy(1.0 - p, 1.0 - p)))


def _on_all(
    ground: Ground,
    model: Model,
    state: State,
    parent: _Parent,
    row: int,
    rows: IntArray,
    weight: Array,
    found: _Divided,
) -> Split | None:
    """The division carried over to all rows of the component, if it gains there."""
    part = _Part(ground.x[rows], weight)
    stats = _with(model.family, parent, found.window, found.past_share)
    p = _divide(model, part.x, stats, parent.others, found.window[0])
    window = _children(model.family, part, p)
    if window[0].min() <= 0.0:
        return None
    placed = _placed(model, parent, part, _Divided(p, window, 0.0, found.past_share), found.past_share)
    if placed.gain <= 0.0:
        return None
    return Split(row, placed.gain, window, found.past_share)
