"""Splits of components: proposals from a sample of their rows, and the exact gain on all of them.

Children a and b of a component c divide its responsibilities, q(a) + q(b) = q(c) in every row. Nothing else changes:

    gain = log m(S_a) + log m(S_b) - log m(S_c) + label terms + sum_n w_n r_nc H(p_n) + H of a shared past

with p_n = q_n(a) / q_n(c). The best division must gain on the window's rows alone: a past that differs from them is no
reason to split. Then the past goes to one child, or both share it in the window's proportion, whichever bound is best.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csc_matrix
from scipy.special import entr, expit

from shoal.families import AnyFamily, concatenated, take
from shoal.families.capabilities import fast_log_marginal, fitted_suffstats, has_latent_variables
from shoal.families.natural_statistics import Origin, has_location, origin_for
from shoal.inference.cut_tree import best_parts, cut_tree, shares_of_parts
from shoal.inference.data import Rows, WindowData
from shoal.inference.label_terms import label_bound, mass_behind
from shoal.inference.past import binary_entropy
from shoal.inference.split_limits import LIMITS, SplitLimits
from shoal.inference.start_points import Cloud, locations_of, power_steps, starts_of
from shoal.inference.sweep import Model, State
from shoal.inference.two_way_split import (
    DividedComponent,
    SplitSample,
    best_division,
    division_entropy,
    log_odds,
    unseen_points,
)
from shoal.points.arrays import Array, IntArray

_LEAST_RESP = 0.05
_ROWS_A_PARAMETER, _FEW_ROWS, _MOST_ROWS = 10, 2_000, 4_000
"""Rows of a sample for each parameter, within these limits."""
_ROUNDS_WITH_PAST = 10
_FEWEST = 4


class Split(NamedTuple):
    """How to divide a component between two children."""

    row: int
    gain: float  # nats, exact on all rows
    window: Any  # Stats of the children in the window, two rows
    past_share: float  # of the component's past that the first child has


class _Whole(NamedTuple):
    """The rows of a component in the window."""

    rows: IntArray  # (m,)
    resp: Array  # (m,)
    weight: Array  # (m,)


class _Parent(NamedTuple):
    """The component to divide, and the terms of the bound that its children's are compared with."""

    stats: Any
    """Of past and window together, one row."""
    past: Any
    """One row."""
    others: Array  # (T - 1,) masses of the other components
    evidence: float  # log m of the parent
    labels: float  # label term before


class _Children(NamedTuple):
    """Two children on a sample."""

    p: Array  # (m,) share of the first
    window: Any  # Stats, two rows
    gain: float
    past_share: float


def propose(
    data: WindowData,
    model: Model,
    state: State,
    rows: list[int],
    rng: np.random.Generator,
    limits: SplitLimits = LIMITS,
) -> list[Split]:
    """For the components `rows`, the best division of each that was found, where it gains enough on all rows."""
    columns, splits = state.resp.tocsc(), []
    located, latent = has_location(model.family), has_latent_variables(model.family)
    behind = mass_behind(state.window_mass, np.array(rows, dtype=np.int64)).tolist()
    wholes = [_whole_of(data, columns, row) for row in rows]
    samples = [_sampled(data, whole, model.family, rng) for whole in wholes]
    for row, own_behind, whole, sample in zip(rows, behind, wholes, samples, strict=True):
        if sample is None:
            continue
        origin = Origin(state.stats.mean[row], True) if located else origin_for(model.family, sample.x)
        params = model.family.posterior(take(state.stats, [row])) if latent else None
        component, cloud = DividedComponent(origin, own_behind, params), _cloud(model.family, sample)
        starts = starts_of(cloud, rng, power_steps(cloud.location.shape[1]))
        division = best_division(model, component, sample, starts, limits)
        split = None if division is None else _placed_split(data, model, state, row, whole, sample, division.p)
        if split is not None and split.gain > limits.least_gain:
            splits.append(split)
    return splits


def propose_parts(
    data: WindowData, model: Model, state: State, rows: list[int], rng: np.random.Generator
) -> list[Split]:
    """For the components `rows`, the division of each into many parts that was found, with its gain on all rows.

    A division into L parts is L - 1 splits of one component, in order: each leaves one part less in its row. All have
    the gain of the whole division, which may be negative: the parts were found on a sample, and without the past.
    """
    columns, splits = state.resp.tocsc(), []
    behind = mass_behind(state.window_mass, np.array(rows, dtype=np.int64)).tolist()
    for row, own_behind in zip(rows, behind, strict=True):
        whole = _whole_of(data, columns, row)
        sample = _sampled(data, whole, model.family, rng)
        if sample is None:
            continue
        tree = cut_tree(_cloud(model.family, sample))
        correction = model.family.n_free_parameters * unseen_points(sample.weight, sample.points_a_row)
        parts = best_parts(model.family, model.sticks, tree, sample.x, sample.weight, own_behind, correction)
        if parts is not None:
            splits += _in_parts(data, model, state, row, whole, parts)
    return splits


def _in_parts(data: WindowData, model: Model, state: State, row: int, whole: _Whole, parts: Any) -> list[Split]:
    """The splits that divide a component into parts (L rows of statistics); none where fewer than two are left.

    The heaviest part has the whole past: shared among all, it would make every part as wide as it is.
    """
    family, parent, x = model.family, _parent(model, state, row), data.x[whole.rows]
    share = shares_of_parts(family, parts, x, whole.weight)
    window = fitted_suffstats(family, x, whole.weight[:, None] * share)
    window = take(window, np.argsort(-window[0], kind="stable"))
    n, first = len(window[0]), take(window, [0])
    children = concatenated(family.add(first, parent.past), take(window, slice(1, n)))
    labels = label_bound(model.sticks, np.append(parent.others, children[0])) - parent.labels
    gain = float(fast_log_marginal(family, children).sum()) - parent.evidence + labels
    gain += float(whole.weight @ entr(share).sum(axis=1))
    rest, splits = first, []
    for part in range(1, n):
        splits.append(Split(row, gain, concatenated(rest, take(window, [part])), 1.0))
        rest = family.add(rest, take(window, [part]))
    return splits[::-1]


def _placed_split(
    data: WindowData, model: Model, state: State, row: int, whole: _Whole, sample: SplitSample, p: Array
) -> Split | None:
    """A division of a sample with the past placed, carried over to all rows; None where a child died."""
    parent = _parent(model, state, row)
    found = _Children(p, _window_stats(model.family, sample, p), 0.0, 1.0)
    if float(parent.past[0][0]) > 0.0:
        placed = _with_past(model, parent, sample, found)
        if placed is None:
            return None
        found = placed
    return _on_all_rows(data, model, parent, row, whole, found)


def _whole_of(data: WindowData, columns: csc_matrix, row: int) -> _Whole:
    own = slice(int(columns.indptr[row]), int(columns.indptr[row + 1]))
    rows, resp = columns.indices[own].astype(np.int64), columns.data[own]
    return _Whole(rows, resp, data.weighted(rows, resp))


def _sampled(data: WindowData, whole: _Whole, family: AnyFamily, rng: np.random.Generator) -> SplitSample | None:
    """The rows of responsibility above a floor, or a sample of them; their weights sum to that of the whole."""
    strong = np.flatnonzero(whole.resp > _LEAST_RESP)
    if strong.size < _FEWEST:
        return None
    most = min(max(_ROWS_A_PARAMETER * family.n_free_parameters, _FEW_ROWS), _MOST_ROWS)
    if strong.size > most:
        strong = np.sort(rng.choice(strong, most, replace=False))
    chosen = whole.weight[strong]
    points_a_row = max(float(chosen @ chosen / chosen.sum()), 1.0)
    return SplitSample(data.x[whole.rows[strong]], chosen * (whole.weight.sum() / chosen.sum()), points_a_row)


def _cloud(family: AnyFamily, sample: SplitSample) -> Cloud:
    return Cloud(locations_of(family, sample.x), None, sample.weight)


def _parent(model: Model, state: State, row: int) -> _Parent:
    stats = take(state.stats, [row])
    past = take(state.past.stats, [row])
    others = np.delete(state.mass, row)
    evidence = float(fast_log_marginal(model.family, stats)[0])
    return _Parent(stats, past, others, evidence, label_bound(model.sticks, state.mass))


def _with_past(model: Model, parent: _Parent, sample: SplitSample, found: _Children) -> _Children | None:
    """The division with the past placed as is best, after rounds with it."""
    choices = (1.0, 0.0, float(found.window[0][0] / found.window[0].sum()))
    best = max((_placed(model, parent, sample, found, share) for share in choices), key=lambda placed: placed.gain)
    sharing = 0.0 < best.past_share < 1.0
    for _ in range(_ROUNDS_WITH_PAST):
        stats = _with_past_share(model.family, parent, best.window, best.past_share)
        p = _first_share(model, sample.x, stats, parent.others, best.window[0])
        window = _window_stats(model.family, sample, p)
        if window[0].min() <= 0.0:
            return None
        share = float(window[0][0] / window[0].sum()) if sharing else best.past_share
        tried = _placed(model, parent, sample, _Children(p, window, 0.0, share), share)
        rise = tried.gain - best.gain
        best = tried if rise > 0.0 else best
        if rise <= LIMITS.tolerance * float(sample.weight.sum()):
            break
    return best


def _placed(model: Model, parent: _Parent, sample: SplitSample, found: _Children, share: float) -> _Children:
    children = _with_past_share(model.family, parent, found.window, share)
    labels = label_bound(model.sticks, np.append(parent.others, children[0]))
    gain = float(fast_log_marginal(model.family, children).sum()) - parent.evidence + labels - parent.labels
    gain += division_entropy(sample.weight, found.p) + float(parent.past[0][0]) * binary_entropy(share)
    return found._replace(gain=gain, past_share=share)


def _with_past_share(family: AnyFamily, parent: _Parent, window: Any, share: float) -> Any:
    """The children's statistics with their shares of the past."""
    return family.add(window, family.scale(take(parent.past, [0, 0]), np.array([share, 1.0 - share])))


def _window_stats(family: AnyFamily, sample: SplitSample, p: Array) -> Any:
    return fitted_suffstats(family, sample.x, np.stack([sample.weight * p, sample.weight * (1.0 - p)], axis=1))


def _first_share(model: Model, x: Rows, children: Any, others: Array, window_mass: Array) -> Array:
    """Share (m,) of the first child in each row. The odds are those of neighbours on the stick, heavier first."""
    score = model.family.expected_log_likelihood(model.family.posterior(children), x)
    behind = float(others[others < window_mass.min()].sum())
    return np.asarray(expit(score[:, 0] - score[:, 1] + log_odds(model.sticks, window_mass, behind)))


def _on_all_rows(
    data: WindowData, model: Model, parent: _Parent, row: int, whole: _Whole, found: _Children
) -> Split | None:
    """The division carried over to all rows of the component."""
    sample = SplitSample(data.x[whole.rows], whole.weight)
    stats = _with_past_share(model.family, parent, found.window, found.past_share)
    p = _first_share(model, sample.x, stats, parent.others, found.window[0])
    window = _window_stats(model.family, sample, p)
    if window[0].min() <= 0.0:
        return None
    share = found.past_share
    placed = _placed(model, parent, sample, _Children(p, window, 0.0, share), share)
    return Split(row, placed.gain, window, share)
