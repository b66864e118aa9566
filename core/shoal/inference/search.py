"""The search for better components: rounds of prior, splits and joins, each kept only if the bound rose.

    run      `rounds`, then `finish`
    rounds   a few sweeps, then rounds until one changes nothing
    round    the prior that suits the components; all promising splits at once, children split in turn, sweeps, joins.
             If the bound fell, the worse half of the splits is refused and the better half tried, a few times
    finish   sweeps until they converge; then the join that loses least, with sweeps, or a split that loses little, or
             the prior once more

Components keep a tag while they last. A component whose split was refused is left alone until its mass has changed, and
one whose children were joined again twice is not split any more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from shoal.families import AnyFamily, join_gain, take
from shoal.families.capabilities import fast_log_marginal
from shoal.families.prior_choices import restated
from shoal.inference.acceleration import converge, watched_sweep
from shoal.inference.data import WindowData
from shoal.inference.join import Joined, Joins, join, join_all, joins_of, pair_entropies
from shoal.inference.past import PastStats, no_past, split_past
from shoal.inference.split import Split, propose, propose_parts
from shoal.inference.split_limits import LIMITS
from shoal.inference.sweep import Model, State, SweepStart, bound_of, converged, swept, swept_from

PriorEstimate: TypeAlias = Callable[[AnyFamily, Any, float], AnyFamily]
"""The prior that suits the statistics of components, if it raises their evidence by more than so many nats."""

_FIRST_SWEEPS = 3
_ROUND_SWEEPS = 4
_GENERATIONS = 3
"""Times that children are split again before all components converge: a component of many clusters loses one at a
time."""
_ATTEMPTS = 4
_LAST_SWEEPS = 60
_JUDGED_BY = 6
"""Last sweeps of which the best says whether a search may still come up to its goal."""
_LAST_ROUNDS = 20
_JOIN_SWEEPS = 10
_JOIN_TRIALS = 3
_MOST_LOSS, _MOST_LOSS_A_POINT = 30.0, 0.05
"""A join is tried that loses at most so many nats at first, and so many for every point of the lighter component. A
split is tried that loses at most the first number."""
_SPLIT_SWEEPS = 60
_LATE_GAIN = 100.0
"""Nats that joins, splits and priors after the last sweeps may gain together: more in one of 130 searches of random
mixtures. Twice as many saved next to no passes there."""
_SAME_MASS = 0.02
"""A component whose split was refused is tried again once its mass has changed by more than this share."""
_MOST_FAILURES = 2
_LEAST_MASS = 0.5
"""Points below which a component is removed."""
WORTH = 1e-5
"""Nats a row that a move must gain."""
CONVERGED_SHARE = 0.01
"""Share of that below which a last sweep is not followed by another."""


Attempt = Literal["halves", "parts", "at end"]
"""What a split of a component is tried for: two halves, many parts at once, or halves that lose at first."""


class SplitHistory:
    """Refused splits, and the parents whose children were joined again or lost, so that none is tried in vain again.

    Components are known by their tags.
    """

    def __init__(self) -> None:
        self._mass_at_refusal: dict[tuple[int, Attempt], float] = {}
        self._parents: dict[int, int] = {}
        self._failures: dict[int, int] = {}

    def may_split(self, tag: int, mass: float, attempt: Attempt = "halves") -> bool:
        """Whether a component of that mass is worth a split. Each kind of attempt is refused separately."""
        before = self._mass_at_refusal.get((tag, attempt), np.inf)
        return self._failures.get(tag, 0) < _MOST_FAILURES and abs(before - mass) > _SAME_MASS * mass

    def refuse(self, tag: int, mass: float, attempt: Attempt = "halves") -> None:
        """Record that the split of a component of that mass gained nothing."""
        self._mass_at_refusal[tag, attempt] = mass

    def children_of(self, tag: int, tags: list[int]) -> tuple[int, int]:
        """Tags of two children of a component, which differ from `tags` and from those of all earlier children."""
        first = max(*tags, *self._parents, 0) + 1
        self._parents[first] = self._parents[first + 1] = tag
        return first, first + 1

    def joined_again(self, first: int, second: int) -> int | None:
        """The parent of two components that were joined, with a failure recorded; None where they are not siblings."""
        parent = self._parents.get(first)
        if parent is None or parent != self._parents.get(second):
            return None
        self._failures[parent] = self._failures.get(parent, 0) + 1
        return parent

    def lost(self, tag: int) -> None:
        """Record that a component was removed. It is a failure of its parent."""
        parent = self._parents.get(tag)
        if parent is not None:
            self._failures[parent] = self._failures.get(parent, 0) + 1


@dataclass
class Search:
    """A search under way: its data and priors, and the splits that it has tried."""

    data: WindowData
    model: Model
    rng: np.random.Generator
    estimate_prior: PriorEstimate | None = None
    worth: float = -1.0
    """Nats that a move must gain; negative: `WORTH` a row."""
    split_trials: int = 0
    """Splits that lose at first, tried one by one at the end: where components overlap, one may win after sweeps."""
    accepted: Callable[[State], None] | None = None
    """Receives each state that is kept."""
    goal: float = -np.inf
    """Bound, nats, below which the end of this search is of no use: `finish` gives up where it falls short."""
    least_a_parameter: float = 0.0
    """Nats that a last sweep must gain for every free parameter of the mixture, where that is more than its share of
    `worth`."""
    history: SplitHistory = field(default_factory=SplitHistory)
    splits: int = 0
    joins: int = 0
    _with_best_prior: State | None = None
    _known_joins: tuple[State, Joins] | None = None

    def __post_init__(self) -> None:
        if self.worth < 0.0:
            self.worth = WORTH * self.data.total

    def least(self, n_components: int) -> float:
        """Nats that a last sweep must gain."""
        n_parameters = n_components * self.model.family.n_free_parameters
        return max(CONVERGED_SHARE * self.worth, self.least_a_parameter * n_parameters)

    def live_start(self, stats: Any, past: PastStats) -> State:
        """Components with statistics `stats` (T rows), their past included, after one sweep."""
        params, mass = self.model.family.posterior(stats), np.maximum(stats[0] - past.mass, 0.0)
        state = swept_from(self.data, self.model, SweepStart(params, mass, past, np.arange(len(mass))))
        return state._replace(converged=converged(self.model.family, params, mass, state, self.least(len(mass))))

    def single_start(self, n_past: int) -> State:
        """All points in one component after one sweep. It stands for `n_past` components whose past is empty."""
        family = self.model.family
        stats = self.data.suffstats(family, [slice(None)], [np.ones(self.data.n_rows)])
        past = no_past(family, 1)._replace(share=np.ones((1, n_past)))
        start = SweepStart(family.posterior(stats), stats[0], past, np.zeros(1, dtype=np.int64))
        return swept_from(self.data, self.model, start)

    def run(self, state: State, max_rounds: int) -> State:
        """Rounds until nothing changes, or so many; then `finish`."""
        return self.finish(self.rounds(state, max_rounds))

    def rounds(self, state: State, max_rounds: int) -> State:
        """A few sweeps, and rounds until nothing changes, or so many. Where one changes nothing, parts are tried."""
        for _ in range(_FIRST_SWEEPS - 1):
            if state.converged or self.data.exhausted:
                break
            before, least = state.bound, self.least(state.n_components)
            state = watched_sweep(self.data, self.model, state, least)
            if abs(state.bound - before) <= least:
                break
        for _ in range(max_rounds):
            state = self.with_prior(state)
            after = self.round(state)
            if after is state:
                after = self.with_best_splits(state, "parts")
            if after is state or self.data.exhausted:
                break
            state = self._kept(after)
        return state

    def with_prior(self, state: State) -> State:
        """The state under the prior that its components suggest, if that raises the bound."""
        if self.estimate_prior is None or state is self._with_best_prior:
            return state
        before = self.model.family
        family = self.estimate_prior(before, state.stats, self.worth)
        if family is before:
            self._with_best_prior = state
            return state
        self.model = self.model._replace(family=family)
        stats = restated(family, state.stats, before)
        past = state.past._replace(stats=restated(family, state.past.stats, before))
        bound = bound_of(self.model, stats, state.entropy + past.entropy)
        return state._replace(stats=stats, past=past, bound=bound, converged=False)

    def round(self, state: State) -> State:
        """Splits into halves, sweeps, joins; the state itself where none of it raises the bound."""
        after = self.with_best_splits(state, "halves")
        if after is not state:
            return after
        joined, made, left = join_all(self.data, self.model, self.without_light(state))
        self.joins += len(made)
        self._known_joins = joined, left
        return joined

    def with_best_splits(self, state: State, attempt: Attempt) -> State:
        """The state with the splits that gain most, and sweeps; the state itself where none raises the bound."""
        found = sorted(self.proposals(state, attempt), key=lambda split: -split.gain)
        for _ in range(_ATTEMPTS):
            if not found or self.data.exhausted:
                break
            tried = self.tried(state, found)
            if tried.bound > state.bound + self.worth:
                self.splits += len(found)
                return tried
            for split in found[len(found) // 2 :]:
                self.history.refuse(int(state.tags[split.row]), float(state.mass[split.row]), attempt)
            found = found[: len(found) // 2]
        return state

    def proposals(self, state: State, attempt: Attempt = "halves") -> list[Split]:
        """A split of every component that is worth one and was not refused as it is."""
        tags, mass = state.tags.tolist(), state.mass.tolist()
        rows = [row for row in range(state.n_components) if self.history.may_split(tags[row], mass[row], attempt)]
        if attempt == "parts":
            rng = np.random.default_rng(0)  # one of its own: parts that gain nothing change nothing
            found = propose_parts(self.data, self.model, state, rows, rng)
        else:
            found = propose(self.data, self.model, state, rows, self.rng)
        found = [split for split in found if split.gain > self.worth]
        for row in set(rows).difference(split.row for split in found):
            self.history.refuse(tags[row], mass[row], attempt)
        return found

    def tried(self, state: State, splits: list[Split]) -> State:
        """The state with the splits made and their children split in turn, some sweeps, and the joins that gain."""
        after = self.with_splits(state, splits)
        for _ in range(_GENERATIONS):
            more = self.proposals(after)
            if not more or self.data.exhausted:
                break
            after = self.with_splits(after, more)
        for _ in range(_ROUND_SWEEPS):
            if self.data.exhausted:
                break
            tried = swept(self.data, self.model, after, "splitting")
            gain, after = tried.bound - after.bound, max(tried, after, key=lambda state: state.bound)
            if gain <= self.worth:
                break
        after = self.without_light(after)
        after, made, _ = join_all(self.data, self.model, after)
        return self._with_parents_tags(after, made)

    def with_splits(self, state: State, splits: list[Split]) -> State:
        """The children in the place of their parents, the first in its row, the second at the end; and a sweep."""
        family, past, stats = self.model.family, state.past, state.stats
        tags, mass = state.tags.tolist(), state.window_mass.tolist()
        for split in splits:
            past = split_past(family, past, split.row, split.past_share)
            children = family.add(split.window, take(past.stats, [split.row, -1]))
            stats = type(stats)(*(np.concatenate([f, c[1:]]) for f, c in zip(stats, children, strict=True)))
            for values, child in zip(stats, children, strict=True):
                values[split.row] = child[0]
            mass[split.row] = float(split.window[0][0])
            mass.append(float(split.window[0][1]))
            tags[split.row], second = self.history.children_of(tags[split.row], tags)
            tags.append(second)
        start = SweepStart(family.posterior(stats), np.array(mass), past, np.array(tags), state.resp)
        after = swept_from(self.data, self.model, start)
        self.data.count_pass(after.bound, after.n_components, "splitting")
        return after

    def _with_parents_tags(self, state: State, made: list[Joined]) -> State:
        """Children that were joined again get their parent's tag, and count as a failure of it."""
        tags = state.tags.copy()
        for joined in made:
            parent = self.history.joined_again(joined.first, joined.second)
            if parent is not None:
                tags[tags == joined.made] = parent
        return state._replace(tags=tags)

    def without_light(self, state: State) -> State:
        """Without the components that have next to nothing left; their past goes where it fits best."""
        while state.n_components > 1:
            light = np.flatnonzero(state.mass < _LEAST_MASS)
            if light.size == 0:
                break
            state = self._without(state, int(light[np.argmin(state.mass[light])]))
        return state

    def _without(self, state: State, row: int) -> State:
        """Without one component: it is joined to its best partner, which keeps its tag."""
        others = np.delete(np.arange(state.n_components), row)
        gain = join_gain(self.model.family, state.stats, np.full(others.size, row), others, fast_log_marginal)
        partner = int(others[np.argmax(gain)])
        entropy = float(pair_entropies(state.resp, self.data.weights)[row, partner])
        after = join(self.model, state, row, partner, entropy)
        tags = after.tags.copy()
        tags[min(row, partner)] = int(state.tags[partner])
        self.history.lost(int(state.tags[row]))
        return after._replace(tags=tags)

    def finish(self, state: State) -> State:
        """Sweeps until they converge, then a tried join or split or the prior once more, until none raises the bound.

        Gives up where twenty more sweeps like the best of the last few would not lead to `goal`, by more than joins and
        splits gain.
        """
        for _ in range(_LAST_ROUNDS):
            state = self._kept(self.converge(state))
            if state.bound + _LATE_GAIN < self.goal:
                break
            after = self.tried_join(state)
            if after is not None:
                self.joins += 1
            else:
                after = self.tried_split(state)
                if after is not None:
                    self.splits += 1
                else:
                    after = self.with_prior(state)
            if after is state:
                break
            state = self._kept(after)
        return state

    def converge(self, state: State) -> State:
        """Sweeps until one is worth next to nothing; again without the components that they have emptied."""
        while True:
            goal, least = self.goal - _LATE_GAIN, self.least(state.n_components)
            state = converge(self.data, self.model, state, least, _LAST_SWEEPS, goal=goal, judged_by=_JUDGED_BY)
            lighter = self.without_light(state)
            if lighter is state:
                return state
            state = lighter

    def tried_join(self, state: State) -> State | None:
        """The join of the pair that loses least, with some sweeps, if the bound rises; one of the next otherwise."""
        if self.data.exhausted:
            return None
        known = self._known_joins
        joins = known[1] if known is not None and known[0] is state else joins_of(self.data, self.model, state)
        for p in np.argsort(-joins.gain, kind="stable")[:_JOIN_TRIALS]:
            i, j = int(joins.first[p]), int(joins.second[p])
            if joins.gain[p] < -_MOST_LOSS - _MOST_LOSS_A_POINT * min(state.mass[i], state.mass[j]):
                break
            tried = join(self.model, state, i, j, float(joins.entropies[i, j]))
            goal = state.bound + self.worth
            tried = converge(self.data, self.model, tried, 0.0, _JOIN_SWEEPS, goal=goal, message="joining")
            if tried.bound > goal:
                return tried
        return None

    def tried_split(self, state: State) -> State | None:
        """One of the splits that lose least, with sweeps, if the bound rises; None where none is to be tried."""
        tags, mass = state.tags.tolist(), state.mass.tolist()
        every = range(state.n_components)
        rows = [row for row in every if self.history.may_split(tags[row], mass[row], "at end")]
        if self.split_trials == 0 or self.data.exhausted or not rows:
            return None
        limits = LIMITS._replace(least_gain=-_MOST_LOSS)
        found = sorted(propose(self.data, self.model, state, rows, self.rng, limits), key=lambda split: -split.gain)
        for row in set(rows).difference(split.row for split in found):
            self.history.refuse(tags[row], mass[row], "at end")
        for split in found[: self.split_trials]:
            goal = state.bound + self.worth
            tried = self.with_splits(state, [split])
            tried = converge(self.data, self.model, tried, 0.0, _SPLIT_SWEEPS, goal=goal, message="splitting")
            tried = self.without_light(tried)
            if tried.bound > goal:
                return tried
            self.history.refuse(tags[split.row], mass[split.row], "at end")
        return None

    def _kept(self, state: State) -> State:
        if self.accepted is not None:
            self.accepted(state)
        return state
