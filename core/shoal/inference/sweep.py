"""One sweep: an E-step and an M-step. Without a past every sweep raises the bound.

With a past, the E-step's weights are the expected log weights of sticks that have seen the window, and a hundred points
of the past: recent points predict the next ones better than the whole past (sorted data need it).
"""

from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily, kl
from shoal.families.capabilities import QuadraticForm, quadratic_form, stats_of_moments
from shoal.families.located.types import WeightedMoments
from shoal.inference.data import WindowData
from shoal.inference.distance_bounds import bounds_of
from shoal.inference.e_step import LOG_FLOOR, Responsibilities, e_step, guesses, nearest
from shoal.inference.label_terms import StickPrior, log_weights
from shoal.inference.m_step import Model, State, m_step, state_of
from shoal.inference.past import PastStats
from shoal.kernels.moments import DIRECT_ABOVE
from shoal.points.arrays import Array, IntArray

_PAST_POINTS = 100.0
"""How many of the window's points the past counts for in the E-step's weights."""
FEW_FEATURES = 4
"""Up to so many features a distance costs no more than its bound."""


def window_log_weights(sticks: StickPrior, window_mass: Array, past_mass: Array) -> Array:
    """Expected log weights (T,) of sticks in decreasing order of window mass + 100 past mass / total past mass."""
    total = float(past_mass.sum())
    share = min(_PAST_POINTS, total) / total if total > 0.0 else 0.0
    return log_weights(sticks, window_mass + share * past_mass)


def sweep(data: WindowData, model: Model, state: State, message: str = "settling") -> State:
    """An E-step and an M-step, counted as a pass."""
    state = sweep_from_stats(data, model, state.stats, state.window_mass, state.past, state.tags, state.resp)
    data.count_pass(state.bound, state.n_components, message)
    return state


def sweep_from_stats(
    data: WindowData,
    model: Model,
    stats: Any,
    window_mass: Array,
    past: PastStats,
    tags: IntArray,
    before: csr_matrix | None = None,
) -> State:
    """An E-step and an M-step from the statistics of components, and their masses (T,) in the window."""
    return sweep_from_params(data, model, model.family.posterior(stats), window_mass, past, tags, before)


def sweep_from_params(
    data: WindowData,
    model: Model,
    params: Any,
    window_mass: Array,
    past: PastStats,
    tags: IntArray,
    before: csr_matrix | None = None,
) -> State:
    """The same from given parameters. `before`, responsibilities of an earlier state, saves time (`e_step`)."""
    weight = window_log_weights(model.sticks, window_mass, past.mass)
    form = quadratic_form(model.family, params)
    if form is not None:
        return _compiled_sweep(data, model, form, weight, past, tags, before)
    return m_step(data, model, e_step(data, model.family, params, weight, before, tags), past, tags)


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


def _compiled_sweep(
    data: WindowData,
    model: Model,
    form: QuadraticForm,
    log_weight: Array,
    past: PastStats,
    tags: IntArray,
    before: csr_matrix | None,
) -> State:
    """Both steps in one compiled pass. Statistics that lose digits are computed again, row by row."""
    from shoal.inference.few_features_kernel import Entries, sweep_few_features
    from shoal.inference.many_features_kernel import sweep_near

    n, t = data.n_rows, len(log_weight)
    sums = WeightedMoments(form.centre, np.zeros(t), np.zeros(form.centre.shape), np.zeros(form.root.shape))
    index = np.int32 if n * t < 2**31 - 1 else np.int64
    entries = Entries(np.empty(n * t + 1, np.int32), np.empty(n * t + 1), np.zeros(n + 1, index))
    scores = form._replace(constant=form.constant + log_weight)
    x = np.ascontiguousarray(data.x, dtype=np.float64)
    if x.shape[1] <= FEW_FEATURES:
        entropy, dropped = sweep_few_features(x, data.weights, scores, LOG_FLOOR, entries, sums)
    else:
        known, data.distance_bounds = data.distance_bounds, None
        bounds = bounds_of(known, form, tags, x)
        least = bounds.rows(x, slice(0, n))
        guess = nearest(scores.constant, least) if before is None else guesses(before, t)
        entropy, dropped = sweep_near(x, data.weights, scores, LOG_FLOOR, guess, least, entries, sums)
        data.distance_bounds = bounds.carried(form, tags)
    filled = int(entries.starts[-1])
    resp = csr_matrix((entries.resp[:filled], entries.columns[:filled], entries.starts), shape=(n, t))
    found = Responsibilities(resp, entropy, dropped)
    stats = stats_of_moments(model.family, sums, DIRECT_ABOVE, past.stats)
    if stats is None:
        return m_step(data, model, found, past, tags)
    return state_of(model, found, sums.mass, stats, past, tags)
