"""Changes of scale in a stream without refinement: how one is found, and the new prior and components that follow.

One pass never splits a component. So its components depend on the prior, and the prior comes from the warm-up. Where
the first rows are all of one cluster, or a hundred times closer together than the rest, later clusters found no
component of their own: one component grows over all of them. A stream with refinements splits it again, by the rows of
its window. A stream without them keeps a few recent rows for this purpose, and looks at them at fixed offsets.

A look has two steps. The first is cheap: the variance within components against that at the choice of the prior, and
the variance of the recent rows against that within components. Where either is off by `SUSPICION`, the second step
learns a second mixture from the recent rows alone: a prior is chosen as at the end of a warm-up, and the rows are
learnt under it in their order. It predicts each row from those before it, while the present mixture has seen all of
them. If it still predicts them better by `LEAST_GAIN` nats a row, the scale has changed.

Then the new scale and prior hold for the stream. Components whose own recent rows the new mixture predicts better are
retired, because the clusters in them cannot be separated. The others stay, with their statistics stated in the new
units: their posteriors under the new prior are exact. The recent rows of those retired are learnt again beside them.
New components inherit ids by shared rows, and an event `rescaled` names old and new ones.
"""

from typing import Any, NamedTuple

import numpy as np

from shoal.families import scale_inplace, take
from shoal.families.capabilities import is_restandardised, restandardised
from shoal.families.predictive_cache import refresh
from shoal.mixture import (
    Event,
    MixtureState,
    Predicted,
    Predictor,
    ScaleWatch,
    carried_ids,
    grow,
    live_rows,
    match,
    next_capacity,
    retire_rows,
    rows_for_learner,
    shared_mass,
    with_new_window,
    without_stats,
)
from shoal.points.arrays import Array, BoolArray, IntArray
from shoal.points.rows import standardised
from shoal.points.weighted_rows import LearntPoints, unweighted, weights_of, with_weights
from shoal.sequential.learn import Learn, PrequentialScores, empty_state, learn_inplace, limit_of, unscored
from shoal.sequential.prior import AutoPrior, choose_prior

STEP, EARLY, LATER_STEP = 1_024, 8_192, 32_768
"""Looks fall at multiples of the first number up to the second, then at multiples of the third. A look takes about a
tenth of a millisecond, a hundredth of the time of 32,768 points of few features."""

MOST_ROWS = 1_024
"""Most rows that are kept for a look, the last ones before it."""

MOST_ELEMENTS = 1 << 20
"""Most numbers of the kept rows: 8 MiB."""

FEWEST_ROWS = 64

LEAST_MASS, LEAST_SHARE = 30.0, 0.05
"""Points, and share of all points, of a component whose variance says something. Of clusters with heavy tails, small
components are wide."""

_SOME = 8
"""One row of so many is enough for a suspicion."""

SUSPICION = 4.0
"""Factor on a variance, of any feature."""

LEAST_GAIN = 0.1
"""Nats a row. The present mixture has learnt the rows already, which is worth a little less than this to a healthy
one."""

LEAST_OWN_GAIN = 3.0
"""Nats by which the new mixture must predict the rows of a component better for it to be retired."""

_NEVER = 1 << 61

MOST_REFUSALS = 6
"""Each suspicion in a row that is not confirmed doubles the gap to the next look, up to so many times."""


def learn_watched_inplace(
    state: MixtureState, x: LearntPoints, labels: IntArray, scores: PrequentialScores, learn: Learn = learn_inplace
) -> tuple[MixtureState, list[Event]]:
    """Learn raw rows x (N, D) as `learn` does, with looks at the scale where the stream is watched."""
    if not is_watched(state):
        state = state if state.watch is None else state._replace(watch=None)
        return learn(state, x, labels, scores)
    events: list[Event] = []
    start = 0
    while start < len(x):
        watch = new_watch(state) if state.watch is None else state.watch
        stop = min(len(x), start + watch.next_look - state.points_seen)
        rows = slice(start, stop)
        _keep_inplace(watch, state.points_seen, x[rows])
        state, found = learn(state._replace(watch=watch), x[rows], labels[rows], scores.rows(rows))
        events.extend(found)
        if state.points_seen == watch.next_look:
            state, found = _look_inplace(state, watch)
            events.extend(found)
        start = stop
    return state, events


def is_watched(state: MixtureState) -> bool:
    """Whether a stream's scale is watched: with an automatic prior, without refinements, and of a family whose
    statistics can be stated in other units."""
    settings = state.settings
    alone = settings.refinement is None or settings.window_rows == 0
    chosen = settings.prior == "auto" and settings.method == "default" and settings.conjugate
    return (
        alone
        and chosen
        and state.prior is not None
        and (state.watch is not None or (state.frozen and is_restandardised(state.prior)))
    )


def new_watch(state: MixtureState) -> ScaleWatch:
    """The watch from `points_seen` on. The next look has a whole stretch of rows before it."""
    rows = max(FEWEST_ROWS, min(MOST_ROWS, MOST_ELEMENTS // state.settings.n_features))
    first = next_look(state.points_seen + rows - 1)
    return ScaleWatch(np.zeros((rows, state.settings.n_features)), np.ones(rows), _typical(state), first, 0)


def next_look(points_seen: int, refusals: int = 0) -> int:
    """Points seen at the look after `points_seen`."""
    step = STEP if points_seen < EARLY else LATER_STEP
    return (points_seen // step + (1 << min(refusals, MOST_REFUSALS))) * step


def _keep_inplace(watch: ScaleWatch, seen: int, x: LearntPoints) -> None:
    """Write those of rows x, which follow after `seen` points, that lie in the last stretch before the next look."""
    first = watch.next_look - len(watch.rows)
    skipped = max(0, first - seen)
    if skipped >= len(x):
        return
    kept, weights = unweighted(x)[skipped:], weights_of(x)
    place = slice(seen + skipped - first, seen + len(x) - first)
    watch.rows[place] = kept
    watch.weights[place] = 1.0 if weights is None else weights[skipped:]


def _variances(stats: Any, scale: Array) -> Array:
    """Variances (K, D) within components, in the units of the points; tiny for a feature without any."""
    own = stats.scatter if stats.scatter.ndim == 2 else np.einsum("kdd->kd", stats.scatter)
    variance = own / np.maximum(stats.mass[:, None], 1.0) * np.square(scale)
    return np.asarray(np.maximum(variance, np.finfo(np.float64).tiny))


def _typical(state: MixtureState) -> Array:
    """Pooled variance (D,) within components."""
    stats = live_rows(state.stats, state.n_components)
    pooled: Array = stats.mass @ _variances(stats, state.scale) / stats.mass.sum()
    return pooled


def _look_inplace(state: MixtureState, watch: ScaleWatch) -> tuple[MixtureState, list[Event]]:
    """The look that is due at `points_seen`, and what follows from it."""
    known = _of_complete_rows(watch)
    if not _suspects(state, known):
        return state._replace(watch=watch._replace(next_look=next_look(state.points_seen), refusals=0)), []
    recent = _fit_to_recent_rows(state, known)
    if recent is None:
        following = next_look(state.points_seen, watch.refusals + 1)
        return state._replace(watch=watch._replace(next_look=following, refusals=watch.refusals + 1)), []
    return _rescaled(state, known, recent)


def _of_complete_rows(watch: ScaleWatch) -> ScaleWatch:
    """The watch without the rows that have missing values. A prior cannot be chosen from these."""
    complete = ~np.isnan(watch.rows).any(axis=1)
    return watch if complete.all() else watch._replace(rows=watch.rows[complete], weights=watch.weights[complete])


def _suspects(state: MixtureState, watch: ScaleWatch) -> bool:
    """The first step of a look: whether a variance is off. Never where few rows are complete."""
    if len(watch.rows) < FEWEST_ROWS:
        return False
    stats = live_rows(state.stats, state.n_components)
    variances, mass = _variances(stats, state.scale), stats.mass
    heavy = variances[mass >= max(LEAST_MASS, LEAST_SHARE * mass.sum())]
    shrunk = watch.rows[::_SOME].var(axis=0) * SUSPICION < mass @ variances / mass.sum()
    return bool(shrunk.any() or (heavy > SUSPICION * watch.within).any())


class _RecentFit(NamedTuple):
    """A mixture of the recent rows alone, compared with the present one."""

    chosen: AutoPrior
    owner: IntArray  # (R,) row of the present component of each recent row
    gain: Array  # (R,) nats by which the new mixture predicts it better
    within: Array  # (D,) pooled variance within its components, in the units of the points


def _fit_to_recent_rows(state: MixtureState, watch: ScaleWatch) -> _RecentFit | None:
    """A mixture of the recent rows alone, where it predicts them better than the present one; else None.

    The first try chooses among few priors, which is enough to refuse.
    """
    rows, weights = watch.rows, watch.weights
    owner, now = _present(state, rows)
    for thorough in (False, True):
        chosen = choose_prior(rows, state.settings, thorough=thorough)
        fresh = empty_state(state.settings, chosen.prior, chosen.location, chosen.scale, chosen.jitter)
        scores = unscored(len(rows))
        fresh, _ = learn_inplace(fresh, with_weights(rows, weights), np.empty(len(rows), dtype=np.int64), scores)
        gain = weights * (scores.log_density - now)
        if float(gain.sum()) <= LEAST_GAIN * float(weights.sum()):
            return None
    return _RecentFit(chosen, owner, gain, _typical(fresh))


def _present(state: MixtureState, rows: Array) -> tuple[IntArray, Array]:
    """Component (R,) of each row in the present mixture, and its log density (R,) in nats.

    Among the components that have such rows: a mixture of the recent rows has no others.
    """
    family, n = state.prior, state.n_components
    assert family is not None
    own = live_rows(state.stats, n)
    stats, cache = rows_for_learner(family, own, live_rows(state.cache, n))
    location, scale = state.location, state.scale

    def asked(mass: Array) -> Predicted:
        weights = np.append(mass, state.settings.concentration)
        with np.errstate(divide="ignore"):
            predictor = Predictor(family, stats, np.log(weights / weights.sum()), cache)
        return predictor.predict(rows, with_resp=False, placed=lambda x: standardised(x, location, scale))

    owner = asked(own[0]).row
    busy = np.bincount(owner, minlength=n) > 0
    return owner, asked(np.where(busy, own[0], 0.0)).log_density - float(np.log(scale).sum())


def _rescaled(state: MixtureState, watch: ScaleWatch, recent: _RecentFit) -> tuple[MixtureState, list[Event]]:
    """The state under the new scale and prior, and the event."""
    n = state.n_components
    changing = np.bincount(recent.owner, recent.gain, n) > LEAST_OWN_GAIN
    again = changing[recent.owner]
    rest, keep = _remainders(state, watch, recent, changing)
    begin = _with_kept(state, recent.chosen, rest, keep, int(again.sum()))
    labels = np.empty(int(again.sum()), dtype=np.int64)
    learnt, _ = learn_inplace(begin, with_weights(watch.rows[again], watch.weights[again]), labels)
    return _named(state, _balanced(state, learnt), changing, keep, recent.owner[again], labels)


def _remainders(
    state: MixtureState, watch: ScaleWatch, recent: _RecentFit, changing: BoolArray
) -> tuple[Any, BoolArray]:
    """Statistics of all components without the recent rows of the changing ones, and which are to be kept.

    A changing one is kept if what remains of it has some mass and is no wider than components of the new mixture
    typically are. With a half-life the rows' weights are not known, and none is.
    """
    family, n = state.prior, state.n_components
    assert family is not None
    stats = type(state.stats)(*(field[:n].copy() for field in state.stats))
    keep = ~changing
    if state.settings.half_life is not None:
        return stats, keep
    z = standardised(watch.rows, state.location, state.scale)
    for k in np.flatnonzero(changing).tolist():
        own = recent.owner == k
        if stats.mass[k] - watch.weights[own].sum() < LEAST_MASS:
            continue
        whole = take(stats, slice(k, k + 1))
        rest = family.subtract(whole, family.suffstats(z[own], watch.weights[own, None]))
        narrow = _variances(rest, state.scale)[0] <= SUSPICION * recent.within
        if narrow.all() and _is_positive(rest.scatter[0]):
            keep[k] = True
            for field, value in zip(stats, rest, strict=True):
                field[k] = value[0]
    return stats, keep


def _is_positive(scatter: Array) -> bool:
    """Whether a scatter is one of points, to rounding."""
    least = scatter.min() if scatter.ndim == 1 else np.linalg.eigvalsh(scatter)[0]
    return bool(least > 0.0)


def _with_kept(state: MixtureState, chosen: AutoPrior, stats: Any, keep: BoolArray, n_rows: int) -> MixtureState:
    """The components to keep, in the new units and under the new prior, `n_rows` points ago. Nothing else falls due
    while those are learnt."""
    settings, limit = state.settings, limit_of(state.settings, chosen.prior)
    rows = np.flatnonzero(keep)
    empty = empty_state(settings, chosen.prior, chosen.location, chosen.scale, chosen.jitter)
    begin = grow(empty._replace(past=None, mid=None, monitor=None), next_capacity(rows.size, limit))
    moved = _in_units_of(begin, state, take(stats, rows))
    for field, values in zip(begin.stats, moved, strict=True):
        field[: rows.size] = values
    for name in ("ids", "born_at", "last_seen_at"):
        getattr(begin, name)[: rows.size] = getattr(state, name)[rows]
    share = np.sqrt(moved.mass / state.stats.mass[rows])
    begin.pairs[: rows.size, : rows.size] = state.pairs[np.ix_(rows, rows)] * (share[:, None] * share[None, :])
    return begin._replace(
        cache=refresh(chosen.prior, begin.stats, rows.size),
        n_components=rows.size,
        next_id=state.next_id,
        points_seen=state.points_seen - n_rows,
        decayed_count=float(moved.mass.sum()),
        next_check=_NEVER,
        next_decay=-1,
        births_refused=state.births_refused,
        at_capacity=state.at_capacity,
    )


def _in_units_of(new: MixtureState, old: MixtureState, stats: Any) -> Any:
    """Statistics of points standardised as those of `old`, as if they had been as those of `new`."""
    assert new.prior is not None
    return restandardised(new.prior, stats, (old.location - new.location) / new.scale, old.scale / new.scale)


def _balanced(state: MixtureState, learnt: MixtureState) -> MixtureState:
    """The mixture as it goes on from `points_seen`: the mass of what was retired counts as pruned.

    Components share a few points softly, so those learnt again may exceed what was retired by some points. All weights
    then shrink to the count.
    """
    assert learnt.prior is not None
    n, count = learnt.n_components, state.decayed_count
    total = float(learnt.stats[0][:n].sum())
    if total > count:
        scale_inplace(learnt.prior, learnt.stats, count / total, n)
        learnt.pairs[:n, :n] *= count / total
        total = float(learnt.stats[0][:n].sum())
    return learnt._replace(
        cache=refresh(learnt.prior, learnt.stats, n),
        decayed_count=count,
        pruned_mass=max(count - total, 0.0),
        next_check=state.next_check,
        next_decay=state.next_decay,
        clock=state.clock,
        lineage=without_stats(state.lineage),
        schedule=state.schedule,
    )


def _named(
    state: MixtureState, fresh: MixtureState, changing: BoolArray, keep: BoolArray, owner: IntArray, labels: IntArray
) -> tuple[MixtureState, list[Event]]:
    """The fresh mixture under lasting ids: first the components that were kept, then the new ones.

    `owner` is the row in `state` of each row that was learnt again, `labels` the component that it has now. New
    components inherit the ids of retired ones by the rows that they share.
    """
    n, n_kept = fresh.n_components, int(keep.sum())
    now = np.argsort(fresh.live_ids)[np.searchsorted(np.sort(fresh.live_ids), labels)]
    shared = shared_mass(owner, state.n_components, now, n)
    retired = np.flatnonzero(~keep)
    matching = match(shared[retired, n_kept:])
    fresh.ids[n_kept:n], next_id = carried_ids(matching, state.ids[retired], state.next_id)
    inherits = matching.old_of_new >= 0
    fresh.born_at[n_kept:n][inherits] = state.born_at[retired[matching.old_of_new[inherits]]]
    lineage = fresh.lineage
    vanished = retired[matching.new_of_old < 0]
    if vanished.size:
        successors: list[tuple[int, ...]] = [(int(fresh.ids[int(np.argmax(shared[row]))]),) for row in vanished]
        lineage = retire_rows(state._replace(lineage=lineage), vanished, successors, None).lineage
    archive = state.archive
    if archive is not None:
        archive = archive._replace(stats=_in_units_of(fresh, state, archive.stats))
    changed = np.flatnonzero(changing)
    parents = state.ids[changed[np.argsort(-state.stats[0][changed], kind="stable")]]
    children = np.unique(np.concatenate([fresh.ids[n_kept:n], state.live_ids[changing & keep], fresh.live_ids[now]]))
    event = Event(state.points_seen, "rescaled", tuple(parents.tolist()), tuple(children.tolist()))
    fresh = with_new_window(fresh._replace(next_id=next_id, lineage=lineage, archive=archive))
    return fresh._replace(watch=new_watch(fresh)), [event]
