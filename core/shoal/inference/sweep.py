"""One sweep: an E-step and an M-step, and the bound that they reach. Without a past every sweep raises the bound.

The E-step finds the best responsibilities under given parameters and log weights, as sparse rows. Every row is
exp(score + log weight) normalised. Entries below a floor are dropped and the rest renormalised in every E-step, so that
a search judges the mixture that would be adopted.

The M-step finds the best parameters for given responsibilities, as statistics, and the bound:

    bound = sum_k log m(past_k + window_k) + L(masses) + H(past, recorded) + H(window)

m is the marginal likelihood of weighted points, L the label term (`label_terms`). The bound is a function of the
responsibilities alone: parameters and sticks are at their best.

Where log densities are quadratic in the point, both steps are one compiled pass (`sweep_kernel`). Its plain form is
`reference`. With a past, the E-step's weights are the expected log weights of sticks that have seen the window, and a
hundred points of the past: recent points predict the next ones better than the whole past (sorted data need it).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily, kl
from shoal.families.capabilities import QuadraticForm, fast_log_marginal, quadratic_form, stats_of_moments
from shoal.families.located.types import WeightedMoments
from shoal.inference.data import WindowData
from shoal.inference.distance_bounds import bounds_of, row_blocks
from shoal.inference.label_terms import StickPrior, label_bound, log_weights
from shoal.inference.past import PastStats
from shoal.kernels.moments import DIRECT_ABOVE
from shoal.points.arrays import Array, IntArray, SingleArray

FLOOR = 1e-6
"""Responsibilities below this share of a row's largest are dropped."""
LOG_FLOOR = float(np.log(FLOOR))
_NEGLIGIBLE = -40.0
"""Log of a share below which it does not even count as dropped."""
_LEAST_SCORE = -1e300
"""Stands for a score that is not a number, or minus infinity: such a row is divided evenly."""
_PAST_POINTS = 100.0
"""How many of the window's points the past counts for in the E-step's weights."""
_FARTHER = 3.0
"""Multiple of the squared distance that rules a component out, up to which one is summed where bounds are carried. A
bound that only just rules it out is lost with the next change, and every sweep sums the distance again. This saves a
tenth of a stream of handwritten digits in 50 features. A first sweep, which may be the only one, would take longer."""
FEW_FEATURES = 4
"""Up to so many features a distance costs no more than its bound."""


class Model(NamedTuple):
    """The priors in force."""

    family: AnyFamily
    sticks: StickPrior


class State(NamedTuple):
    """T components after an M-step, in no particular order."""

    stats: Any
    """Statistics of past and window together, T rows."""
    resp: csr_matrix  # (N, T) rows sum to one
    window_mass: Array  # (T,) weighted
    past: PastStats
    entropy: float  # of the window's responsibilities, weighted, nats
    dropped: float  # weighted points that the last E-step moved when it dropped small entries
    tags: IntArray  # (T,) names that follow components through moves
    bound: float  # nats
    converged: bool = False
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


class SweepStart(NamedTuple):
    """Where a sweep starts: T components."""

    params: Any
    """Parameters of the family's posterior, T rows."""
    window_mass: Array  # (T,) weighted
    past: PastStats
    tags: IntArray  # (T,) names that follow components; distance bounds are carried from pass to pass by them
    before: csr_matrix | None = None
    """Responsibilities (N, T or fewer) of an earlier state, which guess where each row belongs. They save time and
    change no responsibility."""


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


def swept(data: WindowData, model: Model, state: State, message: str = "settling") -> State:
    """A sweep from a state, counted as a pass."""
    params = model.family.posterior(state.stats)
    state = swept_from(data, model, SweepStart(params, state.window_mass, state.past, state.tags, state.resp))
    data.count_pass(state.bound, state.n_components, message)
    return state


def swept_from(data: WindowData, model: Model, start: SweepStart) -> State:
    """A sweep from given parameters."""
    log_weight = window_log_weights(model.sticks, start.window_mass, start.past.mass)
    form = quadratic_form(model.family, start.params)
    if form is not None:
        return _compiled_sweep(data, model, start, form._replace(constant=form.constant + log_weight))
    found = normalized(data, data.score_blocks(model.family, start.params), log_weight)
    return m_step(data, model, found, start.past, start.tags, start.params)


def window_log_weights(sticks: StickPrior, window_mass: Array, past_mass: Array) -> Array:
    """Expected log weights (T,) of sticks in decreasing order of window mass + 100 past mass / total past mass."""
    total = float(past_mass.sum())
    share = min(_PAST_POINTS, total) / total if total > 0.0 else 0.0
    return log_weights(sticks, window_mass + share * past_mass)


def converged(family: AnyFamily, params: Any, window_mass: Array, after: State, least: float) -> bool:
    """Whether another sweep would gain no more than `least` nats.

    Judged by the step that led to `after` from given parameters and masses (T,) in the window. To second order the
    responsibilities gain at most half the square of the last step, measured by the information of the components'
    points; the next step of the parameters, where it is the shorter, at most as much again.
    """
    step = float((np.square(after.window_mass - window_mass) / np.maximum(after.window_mass, 1.0)).sum())
    if not step <= least:
        return False
    return step + 2.0 * float(kl(family, family.posterior(after.stats), params).sum()) <= least


def normalized(data: WindowData, scores: Iterable[tuple[slice, Array]], log_weight: Array) -> Responsibilities:
    """The E-step of given scores: responsibilities from blocks (rows, score (n, T)), in order."""
    found, entropy, dropped = [], 0.0, 0.0
    for part, score in scores:
        own, counts, own_entropy, own_dropped = _normalized(_entries(score + log_weight), data.weights[part])
        found.append((*own, counts))
        entropy, dropped = entropy + own_entropy, dropped + own_dropped
    shares, columns, counts = (np.concatenate(pieces) for pieces in zip(*found, strict=True))
    starts = np.append(0, np.cumsum(counts))
    resp = csr_matrix((shares, columns, starts), shape=(len(counts), log_weight.size))
    return Responsibilities(resp, entropy, dropped)


def best_entries(resp: csr_matrix) -> tuple[IntArray, Array]:
    """Column (N,) and value (N,) of the largest entry of each row, the first of equals.

    Raises ValueError for a row without one.
    """
    if not np.diff(resp.indptr).all():
        raise ValueError("a row has no responsibility, so it has no best component; check the scores for NaN")
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


def nearest(constant: Array, least: SingleArray) -> IntArray:
    """(n,) the components that the bounds let score best, in single precision."""
    best, ceiling = np.empty(len(least), dtype=np.int64), constant.astype(np.float32)
    with np.errstate(over="ignore"):  # a point too far for single precision scores -inf
        for part in row_blocks(*least.shape):
            best[part] = (ceiling - np.float32(0.5) * np.square(least[part])).argmax(axis=1)
    return best


def _entries(value: Array) -> _Entries:
    """Entries of a block (n, T) that are not negligible."""
    value = np.where(value > _LEAST_SCORE, value, _LEAST_SCORE)
    rows, component = np.nonzero(value >= value.max(axis=1, keepdims=True) + _NEGLIGIBLE)
    starts = np.searchsorted(rows, np.arange(len(value) + 1))
    return _Entries(starts, component, value[rows, component])


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


def m_step(
    data: WindowData, model: Model, found: Responsibilities, past: PastStats, tags: IntArray, params: Any = None
) -> State:
    """The state of given responsibilities and past.

    `params` (T rows) are the parameters that gave the responsibilities. Latent variables of the rows, if the family has
    any, are at their best given these too, so that a sweep raises the bound.
    """
    window = data.suffstats_under(model.family, found.resp, params)
    return state_of(model, found, window[0], model.family.add(window, past.stats), past, tags)


def state_of(
    model: Model, found: Responsibilities, window_mass: Array, stats: Any, past: PastStats, tags: IntArray
) -> State:
    """The state of given statistics of window and past together."""
    bound = bound_of(model, stats, found.entropy + past.entropy)
    return State(stats, found.resp, window_mass, past, found.entropy, found.dropped, tags, bound)


def bound_of(model: Model, stats: Any, entropy: float) -> float:
    """The bound, nats, of statistics and of the entropy of window and past together."""
    evidence = float(fast_log_marginal(model.family, stats).sum())
    return float(evidence + label_bound(model.sticks, stats[0]) + entropy)


def regrouped(resp: csr_matrix, groups: IntArray, n_groups: int) -> csr_matrix:
    """Responsibilities with component k counted to groups[k]."""
    n = len(groups)
    chosen = csr_matrix((np.ones(n), (np.arange(n), groups)), shape=(n, n_groups))
    return (resp @ chosen).tocsr()


def _compiled_sweep(data: WindowData, model: Model, start: SweepStart, form: QuadraticForm) -> State:
    """Both steps in one compiled pass; the constants of `form` include the log weights.

    Statistics that lose digits are computed again, row by row.
    """
    from shoal.inference.sweep_kernel import Entries, sweep_few_features, sweep_near

    n, t = data.n_rows, len(form.constant)
    sums = WeightedMoments(form.centre, np.zeros(t), np.zeros(form.centre.shape), np.zeros(form.root.shape))
    index = np.int32 if n * t < 2**31 - 1 else np.int64
    entries = Entries(np.empty(n * t + 1, np.int32), np.empty(n * t + 1), np.zeros(n + 1, index))
    x = np.ascontiguousarray(data.x, dtype=np.float64)
    if x.shape[1] <= FEW_FEATURES:
        entropy, dropped = sweep_few_features(x, data.weights, form, LOG_FLOOR, entries, sums)
    else:
        known, data.distance_bounds = data.distance_bounds, None
        bounds = bounds_of(known, form, start.tags, x)
        least = bounds.rows(x, slice(0, n))
        guess = nearest(form.constant, least) if start.before is None else guesses(start.before, t)
        farther = 1.0 if known is None else _FARTHER
        entropy, dropped = sweep_near(x, data.weights, form, LOG_FLOOR, guess, least, farther, entries, sums)
        data.distance_bounds = bounds.carried(form, start.tags)
    filled = int(entries.starts[-1])
    resp = csr_matrix((entries.resp[:filled], entries.columns[:filled], entries.starts), shape=(n, t))
    found = Responsibilities(resp, entropy, dropped)
    stats = stats_of_moments(model.family, sums, DIRECT_ABOVE, start.past.stats)
    if stats is None:
        return m_step(data, model, found, start.past, start.tags, start.params)
    return state_of(model, found, sums.mass, stats, start.past, start.tags)
