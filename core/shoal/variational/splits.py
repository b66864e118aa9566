"""Splitting components: proposals from a part of the points, and their exact gain on all of them.

A split divides what a component c has between two children, q(a) + q(b) = q(c) in every cell (reading (b) of ERRATA
1.10). The children stand next to each other, so that N_k and N_{>k} of all others stay as they are and the change of
the bound is local, exact and additive over components:

    gain = log m(S_a) + log m(S_b) - log m(S_c) + stick terms + sum_n r_nc H(p_n),    p_n = q(a) / q(c)
"""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, expit

from shoal.points.arrays import Array, IntArray
from shoal.variational.axes import last_axis, power_axis
from shoal.variational.two_means_kernel import two_means
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import Model, State, Tied, Totals, divide, log_evidence, placed, scorer
from shoal.variational.vdp_sticks import StickPrior, expected_log_sticks, masses_after

_LOCAL_ROUNDS = 30
_LOCAL_TOLERANCE = 1e-4
"""Nats a point of a round of the local search below which it stops."""
_PATIENCE = 20
_SUPPORT = 1e-9
_TWO_MEANS_ROUNDS = 8


class Split(NamedTuple):
    """A proposal: how to divide what component `row` has."""

    row: int
    gain: float  # nats, estimated on the points it was proposed from
    slope: Array  # (P,) log odds of the first child = slope . t(x) + offset
    offset: float
    past_first: bool  # whether the first child keeps the component's past


class Part(NamedTuple):
    """The cells that a component is proposed to be split by."""

    rows: Array  # (m, P)
    location: Array  # (m, D)
    spread: Array | None  # (m, D, D)
    weight: Array  # (m,) points times responsibility, scaled to the component's mass


def part_of(cells: Cells, resp: Array, at_most: int | None, rng: np.random.Generator) -> Part:
    """The cells in which a component has responsibility resp (A,), or `at_most` of them, drawn, with weights scaled."""
    weight = resp * cells.mass
    chosen = np.flatnonzero(resp > _SUPPORT)
    if at_most is not None and chosen.size > at_most:
        strong = np.flatnonzero(resp > 0.01)
        chosen = strong if strong.size else chosen
        chosen = np.sort(rng.choice(chosen, min(at_most, chosen.size), replace=False))
    part_weight = weight[chosen]
    part_weight = part_weight * (weight.sum() / max(part_weight.sum(), np.finfo(float).tiny))
    spread = None if cells.spread is None else cells.spread[chosen]
    return Part(cells.rows_of(chosen), cells.location[chosen], spread, part_weight)


def starts_of(part: Part, rng: np.random.Generator, steps: int | None = None) -> list[Array]:
    """Two divisions to begin with, (m,) 0 or 1 each: `principal_start`, and two-means from a k-means++ start."""
    share, middle = _middle(part)
    sides = two_means(np.ascontiguousarray(part.location), share, middle, rng.random(2), _TWO_MEANS_ROUNDS, _SUPPORT)
    return [_across(part, share, middle, steps), sides]


def principal_start(part: Part, steps: int | None = None) -> Array:
    """(m,) 0 or 1: sides of the plane through the mean, across the first principal axis of the weighted covariance.

    For groups of points the covariance is that of their means plus the scatter within (ERRATA 1.17). With `steps` the
    axis is what so many of the power method come to: two groups that lie apart show after a few, and a cloud that is as
    wide in many directions has no better axis than another.
    """
    return _across(part, *_middle(part), steps)


def _middle(part: Part) -> tuple[Array, Array]:
    """Weights (m,) that sum to one, and the mean (D,) under them."""
    share = part.weight / part.weight.sum()
    return share, share @ part.location


def _across(part: Part, share: Array, middle: Array, steps: int | None) -> Array:
    difference = part.location - middle
    weighted = difference * np.sqrt(share)[:, None]
    covariance = weighted.T @ weighted
    if part.spread is not None:
        covariance += np.einsum("m,mde->de", share, part.spread)
    axis = last_axis(covariance) if steps is None else power_axis(covariance, steps)
    side: Array = (difference @ axis > 0.0).astype(np.float64)
    return side


def same_sides(first: Array, second: Array) -> bool:
    """Whether two starts (m,) of 0 and 1 are the same division; which side is called the first does not matter."""
    return bool(np.all(first == second) or np.all(first != second))


def stick_gain(prior: StickPrior, first: Array, second: Array, after: Array | float) -> Array:
    """Change of the stick terms when a component becomes two, the heavier first; `after` is N_{>c}. Elementwise."""
    big, small = np.maximum(first, second), np.minimum(first, second)
    children = betaln(prior.a1 + big, prior.a2 + small + after) + betaln(prior.a1 + small, prior.a2 + after)
    parent = betaln(prior.a1 + big + small, prior.a2 + after) + betaln(prior.a1, prior.a2)
    result: Array = children - parent
    return result


def search(
    model: Model,
    part: Part,
    state: State,
    row: int,
    start: Array,
    rounds: int = _LOCAL_ROUNDS,
    goal: float = -np.inf,
) -> Split | None:
    """Rounds of the two children alone, the component's cells being theirs, from sides `start` (m,).

    A past goes whole to one child, the one that has more to gain from it at the start. None if a child dies, or once
    twenty more rounds like the last would not bring the gain to `goal`.
    """
    after = float(masses_after(state.mass, float(state.totals.mass[-1]))[row])
    past, past_mass = state.tied.natural[row], float(state.tied.mass[row])
    whole = part.weight @ part.rows
    parent = float(log_evidence(model, (whole + past)[None])[0])
    p, last, past_first, found = start, -np.inf, True, None
    for turn in range(rounds):
        first = (part.weight * p) @ part.rows
        mass = np.array([part.weight @ p, part.weight @ (1.0 - p)])
        if mass.min() <= 1e-6 * mass.sum():
            return None
        natural = np.stack([first, whole - first])
        if turn == 0 and past_mass > 0.0:
            past_first = _past_fits_first(model, natural, past)
        keeper = 0 if past_first else 1
        natural[keeper] += past
        mass[keeper] += past_mass
        params = model.family.from_natural(model.prior_natural + natural)
        evidence = float(model.family.log_partition(params).sum()) - 2.0 * model.prior_log_partition
        gain = evidence - parent + float(stick_gain(model.sticks, mass[:1], mass[1:], after)[0])
        gain += float(part.weight @ binary_entropy(p))
        slopes = model.family.mean_params(params)
        found = Split(row, gain, slopes[0] - slopes[1], _log_odds(model.sticks, mass, after), past_first)
        if gain - last <= _LOCAL_TOLERANCE * mass.sum():
            break
        if turn > 1 and gain + _PATIENCE * (gain - last) < goal:
            return None
        last = gain
        p = expit(part.rows @ found.slope + found.offset)
    return found


def _past_fits_first(model: Model, natural: Array, past: Array) -> bool:
    """Whether the past raises the evidence more with the first child than with the second."""
    evidence = log_evidence(model, np.vstack([natural, natural + past]))
    return bool(evidence[2] + evidence[1] >= evidence[0] + evidence[3])


def _log_odds(prior: StickPrior, mass: Array, after: float) -> float:
    """E log pi of the first child less that of the second, adjacent, the heavier in front."""
    big, small = float(mass.max()), float(mass.min())
    sticks = np.array([[prior.a1 + big, prior.a2 + small + after], [prior.a1 + small, prior.a2 + after]])
    log_stop, log_go = expected_log_sticks(sticks)
    odds = float(log_stop[0] - log_go[0] - log_stop[1])
    return odds if mass[0] >= mass[1] else -odds


def binary_entropy(p: Array) -> Array:
    """-p log p - (1 - p) log (1 - p), nats, elementwise."""
    q = 1.0 - p
    result: Array = -p * np.log(np.where(p > 0.0, p, 1.0)) - q * np.log(np.where(q > 0.0, q, 1.0))
    return result


def best_start(run: Run, cells: Cells, state: State, resp: Array, row: int, least: float) -> Split | None:
    """The most promising division, by principal component or by two means, of what component `row` has: resp (A,)."""
    part = part_of(cells, resp, run.candidate_points, run.rng)
    if len(part.weight) < 2:
        return None
    starts = starts_of(part, run.rng)
    if same_sides(*starts):  # as mostly on the few nodes of a tree
        starts.pop()
    tried = [search(run.model, part, state, row, start, goal=least) for start in starts]
    return max((split for split in tried if split is not None), key=lambda split: split.gain, default=None)


class Tested(NamedTuple):
    """Splits and what they give on all cells."""

    totals: Totals  # of the components as they are, after an E-step
    splits: list[Split]
    first: Array  # (C, P) sums of the first children
    first_mass: Array  # (C,)
    entropy: Array  # (C,) sum_n r_nc H(p_n)
    gain: Array  # (C,) exact, nats


def test_splits(model: Model, cells: Cells, state: State, splits: list[Split]) -> Tested:
    """An E-step in which every split is tried beside; at most one a component. Cost: that of a round."""
    slopes, offsets = scorer(model, state)
    rows_of = [split.row for split in splits]
    direction = np.array([split.slope for split in splits])
    bias = np.array([split.offset for split in splits])
    natural, mass, log_norm = np.zeros_like(slopes), np.zeros(len(offsets)), 0.0
    first, first_mass, entropy = np.zeros_like(direction), np.zeros(len(splits)), np.zeros(len(splits))
    for part, rows in cells.blocks():
        share, log_total = divide(slopes, offsets, rows)
        weight = cells.mass[part]
        log_norm += float(weight @ log_total)
        share *= weight
        mass += share.sum(axis=1)
        natural += share @ rows
        p = expit(direction @ rows.T + bias[:, None])
        parent = share[rows_of]
        entropy += (parent * binary_entropy(p)).sum(axis=1)
        p *= parent
        first_mass += p.sum(axis=1)
        first += p @ rows
    whole = log_norm - float(np.vdot(natural, slopes)) - float(mass @ offsets)
    totals = Totals(natural, mass, max(whole, 0.0))
    gain = _exact_gains(model, state.tied, totals, splits, first, first_mass) + entropy
    return Tested(totals, splits, first, first_mass, entropy, gain)


def _exact_gains(
    model: Model, tied: Tied, totals: Totals, splits: list[Split], first: Array, first_mass: Array
) -> Array:
    """Evidence and stick terms of each split, the order of the other components as it is."""
    rows = np.array([split.row for split in splits])
    past_first = np.array([split.past_first for split in splits], dtype=np.float64)
    past, past_mass = tied.natural[rows], tied.mass[rows]
    whole = totals.natural[rows]
    a = first + past_first[:, None] * past
    b = whole - first + (1.0 - past_first)[:, None] * past
    mass_a = first_mass + past_first * past_mass
    mass_b = np.maximum(totals.mass[rows] - first_mass, 0.0) + (1.0 - past_first) * past_mass
    evidence = log_evidence(model, np.vstack([a, b, whole + past])).reshape(3, -1)
    after = masses_after(totals.mass[:-1] + tied.mass, float(totals.mass[-1]))[rows]
    result: Array = evidence[0] + evidence[1] - evidence[2] + stick_gain(model.sticks, mass_a, mass_b, after)
    return result


def apply_splits(state: State, tested: Tested, chosen: IntArray) -> tuple[Totals, Tied, IntArray]:
    """Totals, past and tags with the `chosen` of the tested splits made: first child in the parent's row, second next.

    Both children have new tags.
    """
    base, tied = tested.totals, state.tied
    natural, mass, tags = [], [], []
    keep: list[int] = []  # row of the past that each new row has, -1: none
    by_row = {tested.splits[c].row: int(c) for c in chosen}
    fresh = int(state.tags.max()) + 1
    for row in range(state.n_components):
        c = by_row.get(row)
        if c is None:
            natural.append(base.natural[row])
            mass.append(base.mass[row])
            keep.append(row)
            tags.append(int(state.tags[row]))
            continue
        natural += [tested.first[c], base.natural[row] - tested.first[c]]
        mass += [tested.first_mass[c], max(base.mass[row] - tested.first_mass[c], 0.0)]
        first = tested.splits[c].past_first
        keep += [row, -1] if first else [-1, row]
        tags += [fresh, fresh + 1]
        fresh += 2
    totals = Totals(
        np.vstack([natural, base.natural[-1:]]),
        np.append(mass, base.mass[-1]),
        base.entropy + float(tested.entropy[chosen].sum()),
    )
    return totals, placed(tied, np.array(keep)), np.array(tags, dtype=np.int64)
