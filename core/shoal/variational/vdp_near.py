"""Rounds among a few components: they divide anew what they have together, and all others keep what they have.

With M_n what the components S have together of cell n, q(z_n = k) = M_n p_n(k) for k in S, and the entropy of q(z_n) is
that between the groups plus M_n H(p_n). So p and the parameters of S are a mixture of their own, of cells that weigh
M_n, and a round raises the bound of the whole by what it raises that of S. With a tenth of the points and of the
components it costs a hundredth of a whole round.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from shoal.points.arrays import Array, IntArray
from shoal.variational.splits import Split, binary_entropy
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_moves import join
from shoal.variational.vdp_run import Run
from shoal.variational.vdp_state import Model, State, Totals, divide, m_step, placed, scorer
from shoal.variational.vdp_sticks import expected_log_weights, stick_bound, stick_posterior

_SHARE = 1e-4
"""Of a cell, below which what some components have of it stays as it is."""
_ROUNDS, _PATIENCE = 40, 20
_OVERLAPPING, _NEAREST = 3, 3
"""Neighbours of each component."""


class Held(NamedTuple):
    """A state, and the responsibilities that it was fitted to: one row (A,) a component, the tail's last.

    Rows are never written to: states share those that they have in common.
    """

    state: State
    resp: tuple[Array, ...]


class Patch(NamedTuple):
    """What some components S have between them."""

    rows: IntArray  # (S,) which components
    cells: IntArray  # (m,) which cells
    stats: Array  # (m, P)
    weight: Array  # (m,) points times what S has of them
    together: Array  # (m,) what S has of each cell
    rest: Array  # (S, P) sums over the cells that stay as they are, the past's included
    rest_mass: Array  # (S,)
    entropy: float  # of the shares, as they are, nats


def held(run: Run, cells: Cells, state: State) -> Held:
    """One round that keeps its responsibilities."""
    state, resp = run.divided(cells, state)
    return Held(state, tuple(resp))


def settle_near(run: Run, cells: Cells, start: Held, rows: IntArray, goal: float = -np.inf) -> Held:
    """Rounds among the components `rows` until one gains no more than a tenth of the threshold.

    Given up where twenty more like the last would not bring the bound to `goal`. The bound of what comes back is exact.
    """
    state = start.state
    patch = _patch(cells, start, rows)
    natural, mass, shares, entropy = state.natural[rows], state.mass[rows], None, patch.entropy
    value = own = _value(run.model, state, patch, natural, mass, entropy)
    for turn in range(_ROUNDS):
        shares, natural, mass, entropy = _round(run.model, state, patch, natural, mass)
        before, value = value, _value(run.model, state, patch, natural, mass, entropy)
        gain = value - before
        if gain <= 0.1 * run.threshold or (turn > 1 and state.elbo + value - own + _PATIENCE * gain < goal):
            break
    return start if shares is None else _replaced(run.model, cells, start, patch, shares, natural, mass, entropy)


def _patch(cells: Cells, start: Held, rows: IntArray) -> Patch:
    together = np.sum([start.resp[k] for k in rows], axis=0)
    chosen = np.flatnonzero(together > _SHARE)
    shares = np.stack([start.resp[k][chosen] for k in rows]) / together[chosen]
    weight = together[chosen] * cells.mass[chosen]
    stats = cells.rows_of(chosen)
    weighted = shares * weight
    rest = start.state.natural[rows] - weighted @ stats
    entropy = -float((shares * np.log(np.where(shares > 0.0, shares, 1.0))).sum(axis=0) @ weight)
    rest_mass = start.state.mass[rows] - weighted.sum(axis=1)
    return Patch(rows, chosen, stats, weight, together[chosen], rest, rest_mass, entropy)


def _round(model: Model, state: State, patch: Patch, natural: Array, mass: Array) -> tuple[Array, Array, Array, float]:
    """Shares (S, m), sums (S, P) and masses (S,) with the rest and the past, and the entropy of the shares."""
    slopes = model.family.mean_params(model.family.from_natural(model.prior_natural + natural))
    offsets = _offsets(model, state, patch.rows, mass)
    shares, log_norm = divide(slopes, offsets, patch.stats)
    weighted = shares * patch.weight
    found, found_mass = weighted @ patch.stats, weighted.sum(axis=1)
    entropy = float(patch.weight @ log_norm) - float(np.vdot(found, slopes)) - float(found_mass @ offsets)
    return shares, patch.rest + found, patch.rest_mass + found_mass, max(entropy, 0.0)


def _masses(state: State, rows: IntArray, mass: Array) -> Array:
    """(T,) with those of `rows` as given."""
    every = state.mass.copy()
    every[rows] = mass
    return every


def _offsets(model: Model, state: State, rows: IntArray, mass: Array) -> Array:
    """E log pi (S,) with all components in order of mass."""
    every = _masses(state, rows, mass)
    order = np.argsort(-every, kind="stable")
    sticks = stick_posterior(model.sticks, every[order], float(state.totals.mass[-1]))
    offsets = np.empty(every.size)
    offsets[order] = expected_log_weights(model.sticks, sticks)[:-1]
    return offsets[rows]


def _value(model: Model, state: State, patch: Patch, natural: Array, mass: Array, entropy: float) -> float:
    """What of the bound the components of the patch decide, nats."""
    params = model.family.from_natural(model.prior_natural + natural)
    evidence = float((model.family.log_partition(params) - model.prior_log_partition).sum())
    every = np.sort(_masses(state, patch.rows, mass))[::-1]
    return evidence + stick_bound(model.sticks, every, float(state.totals.mass[-1])) + entropy


def _replaced(
    model: Model, cells: Cells, start: Held, patch: Patch, shares: Array, natural: Array, mass: Array, entropy: float
) -> Held:
    """The whole with what the patch has become, in order of mass."""
    state, rows = start.state, patch.rows
    totals = state.totals._replace(natural=state.totals.natural.copy(), mass=state.totals.mass.copy())
    totals.natural[rows] = natural - state.tied.natural[rows]
    totals.mass[rows] = mass - state.tied.mass[rows]
    totals = totals._replace(entropy=max(totals.entropy + entropy - patch.entropy, 0.0))
    resp = list(start.resp)
    for k, share in zip(rows, shares, strict=True):
        resp[k] = resp[k].copy()
        resp[k][patch.cells] = share * patch.together
    return _in_order(model, cells, totals, state, resp)


def _in_order(model: Model, cells: Cells, totals: Totals, state: State, resp: list[Array]) -> Held:
    fitted, order = m_step(model, cells.log_carrier, totals, state.tied, state.tags)
    return Held(fitted, (*(resp[k] for k in order), resp[-1]))


def split_held(run: Run, cells: Cells, start: Held, split: Split) -> tuple[Held, IntArray]:
    """The component divided between two in every cell where it has a share worth the name, and the children's rows."""
    state, row = start.state, split.row
    share = start.resp[row]
    mine = np.flatnonzero(share > _SHARE)
    stats = cells.rows_of(mine)
    odds = expit(stats @ split.slope + split.offset)
    part = odds * share[mine]
    weight = cells.mass[mine]
    first, first_mass = (part * weight) @ stats, float(part @ weight)
    base = state.totals
    totals = Totals(
        np.insert(base.natural, row, first, axis=0),
        np.insert(base.mass, row, first_mass),
        base.entropy + float((share[mine] * weight) @ binary_entropy(odds)),
    )
    totals.natural[row + 1] -= first
    totals.mass[row + 1] = max(totals.mass[row + 1] - first_mass, 0.0)
    keep = np.insert(np.arange(state.n_components), row + 1 if split.past_first else row, -1)
    fresh = int(state.tags.max()) + 1
    tags = np.insert(state.tags, row, fresh)
    tags[row + 1] = fresh + 1
    child = np.zeros_like(share)
    child[mine] = part
    resp = [*start.resp[:row], child, share - child, *start.resp[row + 1 :]]
    after = _in_order(run.model, cells, totals, state._replace(tied=placed(state.tied, keep), tags=tags), resp)
    return after, np.flatnonzero(after.state.tags >= fresh)


def join_held(run: Run, cells: Cells, start: Held, first: int, second: int, entropy: float) -> tuple[Held, IntArray]:
    """Two components made one, with what entropy they had between them, and the row of the one."""
    state = start.state
    totals, tied, tags = join(state, first, second, entropy)
    resp = list(start.resp)
    resp[first] = resp[first] + resp[second]
    del resp[second]
    after = _in_order(run.model, cells, totals, state._replace(tied=tied, tags=tags), resp)
    return after, np.flatnonzero(after.state.tags == tags.max())


def with_neighbours(model: Model, cells: Cells, start: Held, rows: IntArray) -> IntArray:
    """`rows` and those that overlap each of them most, and explain its points best."""
    state = start.state
    slopes, offsets = scorer(model, state)
    chosen = set(rows.tolist())
    for row in rows:
        share = start.resp[row]
        mine = np.flatnonzero(share > _SHARE)
        weight = share[mine] * cells.mass[mine]
        overlap = np.array([resp[mine] @ weight for resp in start.resp[:-1]])
        mean = state.natural[row] / max(float(state.mass[row]), np.finfo(float).tiny)
        fit = slopes[:-1] @ mean + offsets[:-1]
        for measure, at_most in ((overlap, _OVERLAPPING), (fit, _NEAREST)):
            measure[rows] = -np.inf
            best = np.argsort(-measure, kind="stable")[:at_most]
            chosen |= set(best[measure[best] > -np.inf].tolist())
    return np.array(sorted(chosen))
