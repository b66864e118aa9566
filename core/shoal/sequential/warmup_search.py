"""Splits and joins of the components of a provisional fit, on all rows of the warm-up.

One pass over few rows finds poor components: 512 rows of two classes in 30 features were 56 components, of which many
mixed the classes. A data set with fewer rows than the warm-up has no refinement, so its fits are searched here. A
stream goes on from its last fit, which is one pass alone: a refinement follows it.
"""

import numpy as np

from shoal.families import AnyFamily
from shoal.families.capabilities import is_refitted, working_rows
from shoal.families.predictive_cache import refresh
from shoal.inference import (
    Found,
    Model,
    Search,
    StickPrior,
    WindowData,
    best_entries,
    best_found,
    no_past,
    pair_entropies,
    reestimated,
    reestimated_wholly,
)
from shoal.mixture import (
    MixtureState,
    StatsAtOffset,
    StreamSettings,
    empty_monitor,
    grow,
    left_since,
    live_rows,
    next_capacity,
)
from shoal.points.arrays import Array
from shoal.points.rows import standardised
from shoal.points.weighted_rows import LearntPoints, unweighted, weights_of
from shoal.sequential.learn import limit_of
from shoal.sequential.prior.jitter import jittered

FEWEST_ROWS, MOST_ROWS = 64, 1_024
"""Rows of a fit for a search. The learner waits for it: at most a second, but half a minute at 32,768 rows of a longer
warm-up in 10 features, and minutes in 50."""
_MOST_PARAMETERS = 5_000
"""Of a component: a full covariance of 98 features. Beyond, a search would keep the learner for seconds."""
_MOST_ROUNDS = 15
_MANY_FEATURES = 8
"""So many have another kernel for sweeps than a few."""


def is_searched(settings: StreamSettings, n_rows: int) -> bool:
    """Whether a provisional fit of `n_rows` is searched: they are few, and the stream is one that is refined, with all
    rows in its window."""
    refines = settings.refinement is not None and settings.learns_prior and settings.conjugate
    return (
        refines and settings.method == "default" and FEWEST_ROWS <= n_rows <= min(MOST_ROWS, settings.window_rows // 2)
    )


def searched(state: MixtureState, rows: LearntPoints) -> MixtureState:
    """The state of one pass over raw rows (N, D) with better components, if the bound on the evidence rises.

    The state itself where its family is fitted to points again or has too many parameters, or where rows have missing
    values. A function of the arguments alone.
    """
    family, n = state.prior, state.n_components
    if family is None or n == 0 or state.past is None or is_refitted(family):
        return state
    if family.n_free_parameters > _MOST_PARAMETERS:
        return state
    z = standardised(jittered(unweighted(rows), state.jitter, 0), state.location, state.scale)
    if state.settings.takes_holes and np.isnan(np.asarray(z)).any():
        return state
    data = WindowData(working_rows(family, z), _weights(state, rows))
    search = _search(state, data)
    start = search.live_start(live_rows(state.stats, n), no_past(family, n, n))
    found = best_found(search, start, _MOST_ROUNDS, lambda: _search(state, data), confirmed=False)
    most = limit_of(state.settings, found.model.family)
    if found.state.bound <= start.bound + search.worth or found.state.n_components > most:
        return state
    return _with(state, found, data)


def warm_search(family: AnyFamily) -> None:
    """Compile, or load from the cache on disk, the kernels of a search for this family, in few and in many features."""
    for form in (family, *([type(family).weak(_MANY_FEATURES)] if family.domain.located else [])):
        x = np.tile(np.eye(2, form.n_features), (8, 1))  # in the domain of every family
        data, model = WindowData(working_rows(form, x), np.ones(len(x))), Model(form, StickPrior(1.0, 1.0))
        search = Search(data, model, np.random.default_rng(0))
        search.run(search.single_start(1), 1)


def _weights(state: MixtureState, rows: LearntPoints) -> Array:
    aged, own = left_since(state, np.arange(len(rows))), weights_of(rows)
    return aged if own is None else own * aged


def _search(state: MixtureState, data: WindowData) -> Search:
    settings = state.settings
    assert state.prior is not None
    model = Model(state.prior, StickPrior(1.0, settings.concentration))
    estimate = reestimated_wholly if settings.prior == "hierarchical" else reestimated
    return Search(data, model, np.random.default_rng([settings.seed, state.points_seen]), estimate)


def _with(state: MixtureState, found: Found, data: WindowData) -> MixtureState:
    """The state with the components found in place of its own, by falling mass, under provisional ids."""
    family, end = found.model.family, found.state
    order = np.argsort(-end.mass, kind="stable")
    stats, resp, t = type(end.stats)(*(field[order] for field in end.stats)), end.resp[:, order].tocsr(), len(order)
    seen = np.zeros(t, dtype=np.int64)
    np.maximum.at(seen, best_entries(resp)[0], 1 + np.arange(data.n_rows))
    past, mid = (StatsAtOffset(0, family.empty_stats(t), np.zeros((t, t)), 0.0, 0.0) for _ in range(2))
    fresh = state._replace(
        prior=family,
        stats=stats,
        cache=refresh(family, stats),
        ids=np.arange(t, dtype=np.int64),
        born_at=np.ones(t, dtype=np.int64),
        last_seen_at=seen,
        pairs=pair_entropies(resp, data.weights),
        n_components=t,
        next_id=t,
        pruned_mass=0.0,
        past=past,
        mid=mid,
        monitor=empty_monitor(t),
    )
    return grow(fresh, next_capacity(t, limit_of(state.settings, family)))
