"""The two steps of a search, and the bound that it raises.

    bound = sum_k log m(past_k + window_k) + L(masses) + H(past, recorded) + H(window)      (ARCHITECTURE, section 2)

with m the marginal likelihood of weighted points and L the free-stick label term (ERRATA 0.3). The E-step's weights are
the expected log weights of sticks that have seen the window, and a hundred points of the past: what has just come is a
better guide to what comes next than the whole past (sorted data need it; without a past it is the exact E-step, and
every sweep raises the bound). Entries below a floor are dropped and the rest renormalised in every sweep, so that what
a search judges is what is adopted.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily, kl
from shoal.families.capabilities import fast_log_marginal
from shoal.points.arrays import Array, IntArray
from shoal.refinement.divide_kernel import divide_block
from shoal.refinement.ground import Ground
from shoal.refinement.held import Held
from shoal.refinement.quadratic import swept
from shoal.refinement.sticks_kernel import label_prior, log_stick_weights

FLOOR = 1e-6
"""Responsibilities below this share of a row's largest are dropped."""
_LOG_FLOOR = float(np.log(FLOOR))
_PAST_POINTS = 100.0
"""How many of the window's points the past is worth to the E-step's weights."""


class Model(NamedTuple):
    """The prior in force."""

    family: AnyFamily
    concentration: float


class State(NamedTuple):
    """T components after an M-step, in no particular order."""

    stats: Any
    """Statistics of past and window together, T rows."""
    resp: csr_matrix  # (N, T) rows sum to one
    window_mass: Array  # (T,) weighted
    held: Held
    entropy: float  # of the window's responsibilities, weighted, nats
    dropped: float  # weighted points that the floor moved in the last E-step
    tags: IntArray  # (T,) names that follow components about
    bound: float  # nats
    at_rest: bool = False
    """Whether it is known that another sweep would change next to nothing."""

    @property
    def mass(self) -> Array:
        """(T,) with the past."""
        mass: Array = self.stats[0]
        return mass

    @property
    def n_components(self) -> int:
        """T."""
        return len(self.tags)


class Division(NamedTuple):
    """What an E-step gives."""

    resp: csr_matrix  # (N, T)
    entropy: float  # weighted, nats
    dropped: float  # weighted points


def log_weights(concentration: float, window_mass: Array, past_mass: Array) -> Array:
    """Expected log weights (T,) of sticks put in decreasing order of window mass + 100 past mass / total past mass."""
    total = float(past_mass.sum())
    mass = window_mass + past_mass * (min(_PAST_POINTS, total) / total if total > 0.0 else 0.0)
    out = np.empty_like(mass)
    log_stick_weights(mass, concentration, out)
    return out


def divided(ground: Ground, family: AnyFamily, params: Any, log_weight: Array) -> Division:
    """The best responsibilities under given parameters and weights: a pass over the rows."""
    return sparse_rows(ground, ground.scores(family, params), log_weight)


def sparse_rows(ground: Ground, scores: Iterable[tuple[slice, Array]], log_weight: Array) -> Division:
    """exp(score + log_weight) normalised in every row, blocks (rows, score (n, T)) in order, without small entries."""
    ends = np.empty(ground.n_rows, dtype=np.int64)
    found: list[tuple[IntArray, Array]] = []
    filled, entropy, dropped = 0, 0.0, 0.0
    indices, resp = np.empty(0, dtype=np.int64), np.empty(0)
    for part, score in scores:
        if resp.size < score.size:
            indices, resp = np.empty(score.size, dtype=np.int64), np.empty(score.size)
        n, h, d = divide_block(score, log_weight, ground.weights[part], _LOG_FLOOR, indices, resp, ends[part])
        ends[part] += filled
        found.append((indices[:n].astype(np.int32), resp[:n].copy()))
        filled, entropy, dropped = filled + n, entropy + h, dropped + d
    entries = tuple(np.concatenate(pieces) for pieces in zip(*found, strict=True))
    matrix = csr_matrix((entries[1], entries[0], np.append(0, ends)), shape=(ground.n_rows, log_weight.size))
    return Division(matrix, entropy, dropped)


def fitted(ground: Ground, model: Model, division: Division, held: Held, tags: IntArray) -> State:
    """The best parameters, as the statistics that they follow from, for given responsibilities; and the bound."""
    columns = division.resp.tocsc()
    starts = columns.indptr
    spans = [slice(int(starts[k]), int(starts[k + 1])) for k in range(columns.shape[1])]
    window = ground.suffstats(model.family, [columns.indices[s] for s in spans], [columns.data[s] for s in spans])
    return assembled(model, division, window, held, tags)


def assembled(model: Model, division: Division, window: Any, held: Held, tags: IntArray) -> State:
    """The state of given window statistics (T rows) and past."""
    return _known(model, division, window[0], model.family.add(window, held.stats), held, tags)


def _known(model: Model, division: Division, mass: Array, stats: Any, held: Held, tags: IntArray) -> State:
    bound = bound_of(model, stats, division.entropy + held.entropy)
    return State(stats, division.resp, mass, held, division.entropy, division.dropped, tags, bound)


def bound_of(model: Model, stats: Any, entropy: float) -> float:
    """The bound, nats, of statistics and the entropy of window and past together."""
    evidence = float(fast_log_marginal(model.family, stats).sum())
    return float(evidence + label_prior(stats[0], model.concentration) + entropy)


def sweep(ground: Ground, model: Model, state: State, message: str = "settling") -> State:
    """An E-step and an M-step."""
    state = resumed(ground, model, state.stats, state.window_mass, state.held, state.tags, state.resp)
    ground.tell(state.bound, state.n_components, message)
    return state


def resumed(
    ground: Ground,
    model: Model,
    stats: Any,
    window_mass: Array,
    held: Held,
    tags: IntArray,
    near: csr_matrix | None = None,
) -> State:
    """An E-step and an M-step from statistics alone."""
    return stepped(ground, model, model.family.posterior(stats), window_mass, held, tags, near)


def stepped(
    ground: Ground,
    model: Model,
    params: Any,
    window_mass: Array,
    held: Held,
    tags: IntArray,
    near: csr_matrix | None = None,
) -> State:
    """An E-step from given parameters and masses in the window, and an M-step. Responsibilities `near` (N, T or less)
    of a state before, none of a row empty, shorten the search for where each row belongs."""
    weight = log_weights(model.concentration, window_mass, held.mass)
    found = swept(ground, model.family, params, weight, _LOG_FLOOR, held.stats, near, tags)
    if found is not None:
        division = Division(found.resp, found.entropy, found.dropped)
        return _known(model, division, found.mass, found.stats, held, tags)
    return fitted(ground, model, divided(ground, model.family, params, weight), held, tags)


def at_rest(family: AnyFamily, params: Any, window_mass: Array, after: State, least: float) -> bool:
    """Whether another sweep would gain no more than `least` nats, judged by the step that led to `after` from given
    parameters and masses (T,) in the window.

    To second order the responsibilities gain no more than half the square of the last step in units of what the
    components' points tell of the parameters, and the next step of the parameters, where it is the shorter, no more
    than that again.
    """
    step = float((np.square(after.window_mass - window_mass) / np.maximum(after.window_mass, 1.0)).sum())
    if not step <= least:
        return False
    return step + 2.0 * float(kl(family, family.posterior(after.stats), params).sum()) <= least


def regrouped(state: State, groups: IntArray, n_groups: int) -> csr_matrix:
    """Responsibilities with component k counted to groups[k]; -1 leaves it out."""
    has = groups >= 0
    chosen = csr_matrix((np.ones(int(has.sum())), (np.flatnonzero(has), groups[has])), shape=(len(groups), n_groups))
    return (state.resp @ chosen).tocsr()
