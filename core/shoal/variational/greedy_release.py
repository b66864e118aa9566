"""The greedy release of components by the rule of Kurihara, Welling and Vlassis (2006), section 4.

From T components, candidates are drawn by size. Each is split along its principal component, and the two halves settle
between themselves. The split that raises the bound most is made, and all components settle. If the bound has not risen
by more than the threshold, the previous state is the result (ERRATA 1.8). Both bounds are on the same cells (1.9).

A split divides a component's responsibilities, q(a) + q(b) = q(c) in every cell (reading (b) of ERRATA 1.10). The
children are neighbours in the order, so that N_k and N_{>k} of all others are unchanged. The change of the bound is
local and exact:

    gain = log m(S_a) + log m(S_b) - log m(S_c) + stick terms + sum_n r_nc H(p_n),    p_n = q(a) / q(c)
"""

from typing import NamedTuple

import numpy as np
from scipy.special import entr, expit

from shoal.inference import LIMITS, Cloud, PlainSplit, masses_after, principal_start, split_gain
from shoal.points.arrays import Array, IntArray
from shoal.variational.cells import Cells
from shoal.variational.rounds import Model, Run, State, Totals, log_evidence, normalize, scorer

CANDIDATES = 10
"""Candidates a release, as in the paper."""
_LEAST_RESP = 1e-9
_STRONG_RESP = 0.01
_NO_LIMIT = LIMITS._replace(late_rounds=np.inf, early_rounds=np.inf)


class Proposal(NamedTuple):
    """A split of component `row`."""

    row: int
    gain: float  # nats, estimated on the points of the proposal
    slope: Array  # (P,) log odds of the first child = slope . t(x) + offset
    offset: float
    past_first: bool  # whether the first child keeps the component's past


class CellPart(NamedTuple):
    """The cells on which a split is searched."""

    rows: Array  # (m, P)
    cloud: Cloud


class Evaluated(NamedTuple):
    """A proposal with its effect on all cells."""

    totals: Totals  # of the present components, after an E-step
    proposal: Proposal
    first: Array  # (P,) sums of the first child
    first_mass: float
    entropy: float  # sum_n r_nc H(p_n)
    gain: float  # exact, nats


def release(run: Run, cells: Cells, state: State, give_up: bool = False) -> tuple[State, bool]:
    """Add components one by one while the bound rises. Returns the state, and whether it stopped by its rule.

    With `give_up` the rounds of a split end early where twenty more like the last would not make it worth its
    component. The paper's rule always settles.
    """
    while not run.exhausted:
        state, resp = run.divided(cells, state)
        candidates = sampled_by_size(state.mass, CANDIDATES, run.rng)
        goal = state.elbo + run.threshold if give_up else -np.inf
        tried = _released_one(run, cells, state, resp, candidates, goal)
        if tried is None or tried.elbo - state.elbo <= run.threshold:
            return state, not run.exhausted
        state = tried
        run.accept(state.elbo)
    return state, False


def _released_one(run: Run, cells: Cells, state: State, resp: Array, candidates: IntArray, goal: float) -> State | None:
    """The best split of the candidates, settled; None where no candidate can be split."""
    proposals = [proposed(run, cells, state, resp[row], int(row)) for row in candidates]
    best = max((p for p in proposals if p is not None), key=lambda proposal: proposal.gain, default=None)
    if best is None:
        return None
    state = run.fitted(cells, *applied(state, evaluated(run.model, cells, state, best)))
    run.note(state.elbo, state.n_components, "splitting", trial=True)
    return run.settle(cells, state, "splitting", trial=True, goal=goal)


def sampled_by_size(mass: Array, at_most: int, rng: np.random.Generator) -> IntArray:
    """Rows drawn without replacement by mass, without the tail; the paper names no rule (ERRATA 1.11)."""
    share = np.maximum(mass, 0.0) / mass.sum()
    n_possible = int(np.count_nonzero(share))
    return np.asarray(rng.choice(mass.size, min(at_most, n_possible), replace=False, p=share), dtype=np.int64)


def proposed(run: Run, cells: Cells, state: State, resp: Array, row: int) -> Proposal | None:
    """The split along the principal component, after rounds of the two halves; None where a half became empty."""
    part = part_of(cells, resp, run.candidate_points, run.rng)
    if len(part.cloud.weight) < 2:
        return None
    return proposal_from(run.model, part, state, row, principal_start(part.cloud))


def part_of(cells: Cells, resp: Array, at_most: int | None, rng: np.random.Generator) -> CellPart:
    """The cells with a share of a component of responsibilities resp (A,); at most `at_most`, with weights scaled."""
    weight = resp * cells.mass
    chosen = np.flatnonzero(resp > _LEAST_RESP)
    if at_most is not None and chosen.size > at_most:
        strong = np.flatnonzero(resp > _STRONG_RESP)
        chosen = strong if strong.size else chosen
        chosen = np.sort(rng.choice(chosen, min(at_most, chosen.size), replace=False))
    part = weight[chosen]
    part = part * (weight.sum() / max(part.sum(), np.finfo(float).tiny))
    spread = None if cells.spread is None else cells.spread[chosen]
    return CellPart(cells.rows_of(chosen), Cloud(cells.location[chosen], spread, part))


def proposal_from(model: Model, part: CellPart, state: State, row: int, start: Array) -> Proposal | None:
    """The split after rounds of the two children from sides `start` (m,); a past goes whole to one child."""
    after = float(masses_after(state.mass, float(state.totals.mass[-1]))[row])
    m = state.past_row[row]
    past = (model.past_natural[m], float(model.past_mass[m]))
    split = PlainSplit(
        model.family,
        model.sticks,
        model.prior_natural,
        part.rows,
        part.cloud.weight,
        after,
        past=past,
        limits=_NO_LIMIT,
    )
    found = split.divided(start)
    return None if found is None else Proposal(row, found.gain, found.slope, found.odds, found.past_first)


def evaluated(model: Model, cells: Cells, state: State, proposal: Proposal) -> Evaluated:
    """An E-step that also sums the children of the split. Cost: one round."""
    slopes, offsets = scorer(model, state)
    natural, mass, log_norm = np.zeros_like(slopes), np.zeros(len(offsets)), 0.0
    first, first_mass, entropy = np.zeros(slopes.shape[1]), 0.0, 0.0
    for part, rows in cells.blocks():
        share, log_total = normalize(slopes, offsets, rows)
        weight = cells.mass[part]
        log_norm += float(weight @ log_total)
        share *= weight
        mass += share.sum(axis=1)
        natural += share @ rows
        p, parent = expit(rows @ proposal.slope + proposal.offset), share[proposal.row]
        entropy += float(parent @ (entr(p) + entr(1.0 - p)))
        own = p * parent
        first_mass += float(own.sum())
        first += own @ rows
    whole = log_norm - float(np.vdot(natural, slopes)) - float(mass @ offsets)
    totals = Totals(natural, mass, max(whole, 0.0))
    gain = _gain(model, state, totals, proposal, first, first_mass) + entropy
    return Evaluated(totals, proposal, first, first_mass, entropy, gain)


def _gain(model: Model, state: State, totals: Totals, proposal: Proposal, first: Array, first_mass: float) -> float:
    """The change of evidence and stick terms, with the order of the other components kept."""
    row, m = proposal.row, state.past_row[proposal.row]
    natural = np.stack([first, totals.natural[row] - first])
    mass = np.array([first_mass, max(float(totals.mass[row]) - first_mass, 0.0)])
    keeper = 0 if proposal.past_first else 1
    natural[keeper] += model.past_natural[m]
    mass[keeper] += model.past_mass[m]
    evidence = log_evidence(model, np.vstack([natural, natural.sum(axis=0)]))
    every = totals.mass[:-1] + model.past_mass[state.past_row]
    after = masses_after(every, float(totals.mass[-1]))[row]
    return float(evidence[0] + evidence[1] - evidence[2] + split_gain(model.sticks, mass[0], mass[1], after))


def applied(state: State, found: Evaluated) -> tuple[Totals, IntArray]:
    """Totals and past rows after the split: first child in the parent's row, second child in the next."""
    base, row = found.totals, found.proposal.row
    natural = np.insert(base.natural, row, found.first, axis=0)
    natural[row + 1] -= found.first
    mass = np.insert(base.mass, row, found.first_mass)
    mass[row + 1] = max(mass[row + 1] - found.first_mass, 0.0)
    past_row = np.insert(state.past_row, row + 1 if found.proposal.past_first else row, -1)
    return Totals(natural, mass, base.entropy + found.entropy), past_row
