"""Joining components: the exact change of the bound, by closed form, and the joins worth trying.

Components a and b become one whose responsibility in every cell is the sum of theirs. The change is log m(S_a + S_b) -
log m(S_a) - log m(S_b) + stick terms (masses put in order again) - E_ab, with E_ab the entropy between the two, that of
the past's points included.
"""

from typing import NamedTuple

import numpy as np

from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.variational.vdp_cells import Cells
from shoal.variational.vdp_state import Model, State, Tied, Totals, log_evidence
from shoal.variational.vdp_sticks import stick_bound

_OVERLAPPING, _NEAREST = 3, 2


class Joins(NamedTuple):
    """Pairs of components and what joining each alone would change."""

    first: IntArray  # (P,)
    second: IntArray  # (P,)
    entropy: Array  # (P,) between the two, points only, nats
    gain: Array  # (P,) nats


def joins_of(model: Model, cells: Cells, state: State, resp: Array) -> Joins:
    """For every component the pairs with those that overlap it most and those that explain its points best.

    `resp` (T + 1, A) are the responsibilities that the state was fitted to.
    """
    first, second = np.nonzero(np.triu(_worth_a_look(model, cells, state, resp), 1))
    entropy = np.array([pair_entropy(resp[a], resp[b], cells.mass) for a, b in zip(first, second, strict=True)])
    return Joins(first, second, entropy, _gains(model, state, first, second, entropy))


def pair_entropy(a: Array, b: Array, mass: Array) -> float:
    """-sum_n n [a log(a / (a + b)) + b log(b / (a + b))], nats, >= 0."""
    both = np.flatnonzero((a > 0.0) & (b > 0.0))
    p, q, weight = a[both], b[both], mass[both]
    return float(weight @ (p * np.log1p(q / p) + q * np.log1p(p / q)))


def _worth_a_look(model: Model, cells: Cells, state: State, resp: Array) -> BoolArray:
    n_components = state.n_components
    chosen = np.zeros((n_components, n_components), dtype=bool)
    overlap = (resp[:-1] * cells.mass) @ resp[:-1].T
    slopes = model.family.mean_params(state.params)
    mass = np.where(state.mass > 0.0, state.mass, 1.0)
    fit = (state.natural / mass[:, None]) @ slopes.T
    for measure, at_most in ((overlap, _OVERLAPPING), (fit, _NEAREST)):
        np.fill_diagonal(measure, -np.inf)
        best = np.argsort(-measure, axis=1)[:, : min(at_most, n_components - 1)]
        chosen[np.arange(n_components)[:, None], best] = True
    result: BoolArray = chosen | chosen.T
    return result


def _gains(model: Model, state: State, first: IntArray, second: IntArray, entropy: Array) -> Array:
    if first.size == 0:
        return np.zeros(0)
    alone = log_evidence(model, state.natural)
    together = log_evidence(model, state.natural[first] + state.natural[second])
    mass, tail = state.mass, float(state.totals.mass[-1])
    now = stick_bound(model.sticks, mass, tail)
    labels = np.empty(first.size)
    for pair, (a, b) in enumerate(zip(first, second, strict=True)):
        joined = np.append(np.delete(mass, [a, b]), mass[a] + mass[b])
        labels[pair] = stick_bound(model.sticks, np.sort(joined)[::-1], tail) - now
    past = state.tied.pairs[first, second]
    result: Array = together - alone[first] - alone[second] + labels - entropy - past
    return result


def join(state: State, first: int, second: int, entropy: float) -> tuple[Totals, Tied, IntArray]:
    """Totals, past and tags with `second` joined to `first`.

    The past's pair entropies with others add up: an upper value, so that a later join never costs more than reckoned;
    its entropy falls by no more than the recorded E_ab, so that the bound stays one.
    """
    natural, mass = state.totals.natural.copy(), state.totals.mass.copy()
    natural[first] += natural[second]
    mass[first] += mass[second]
    totals = Totals(
        np.delete(natural, second, axis=0), np.delete(mass, second), max(state.totals.entropy - entropy, 0.0)
    )
    tags = state.tags.copy()
    tags[first] = tags.max() + 1
    return totals, _join_past(state.tied, first, second), np.delete(tags, second)


def _join_past(tied: Tied, first: int, second: int) -> Tied:
    natural, mass, pairs, source = tied.natural.copy(), tied.mass.copy(), tied.pairs.copy(), tied.source.copy()
    lost = float(pairs[first, second])
    natural[first] += natural[second]
    mass[first] += mass[second]
    source[first] |= source[second]
    pairs[first] += pairs[second]
    pairs[:, first] += pairs[:, second]
    pairs[first, first] = 0.0
    return Tied(
        np.delete(natural, second, axis=0),
        np.delete(mass, second),
        np.delete(np.delete(pairs, second, axis=0), second, axis=1),
        max(tied.entropy - lost, 0.0),
        np.delete(source, second, axis=0),
    )
