"""The search for better components: prior, splits and joins in rounds, each kept only if the bound rose."""

from dataclasses import dataclass, field

import numpy as np

from shoal.families import join_gain, take
from shoal.families.capabilities import fast_log_marginal
from shoal.families.prior_choices import restated
from shoal.refinement.ground import Ground
from shoal.refinement.held import shared
from shoal.refinement.merges import Joins, entropies_of, join, join_all, joins_of
from shoal.refinement.priors import reestimated
from shoal.refinement.settling import settled, watched_sweep
from shoal.refinement.splits import Split, propose
from shoal.refinement.sweeps import Model, State, bound_of, resumed, sweep

_FIRST_SWEEPS = 3
_ROUND_SWEEPS = 4
_PEELS = 3
"""Times that children are split again before all components settle: a component of many clusters parts with one at a
time."""
_ATTEMPTS = 4
_LAST_SWEEPS = 60
_LAST_ROUNDS = 20
_JOIN_SWEEPS = 10
_TRIALS = 3
_HOPE = 30.0
_HOPE_SHARE = 0.05
"""A join is tried that loses at most so many nats, and so many for every point of the lighter of the two."""
_SAME_MASS = 0.02
"""A component that could not be split is tried again once its mass has changed by more than this share."""
_LEAST_MASS = 0.5
WORTH = 1e-5
"""Nats a window row that a move must gain."""
SETTLED = 1e-7
"""Nats a window row of a sweep at which the last sweeps end: a tenth of what is worth adopting."""


@dataclass
class Search:
    """A refinement under way: what it works on, what it may do, and what it has learnt of the components."""

    ground: Ground
    model: Model
    rng: np.random.Generator
    reestimate: bool
    refused: dict[int, float] = field(default_factory=dict)  # mass of components whose split was refused, by tag
    returns: dict[int, int] = field(default_factory=dict)  # how often a split of a component came to nothing, by tag
    parents: dict[int, int] = field(default_factory=dict)  # tag of the component that a child was split from
    suited: State | None = None  # a state that no other prior suits better
    looked: tuple[State, Joins] | None = None  # a state and what its joins would change
    splits: int = 0
    joins: int = 0

    @property
    def worth(self) -> float:
        """Nats that a move must gain."""
        return WORTH * self.ground.total

    @property
    def least(self) -> float:
        """Nats that a last sweep must gain."""
        return SETTLED * self.ground.total

    def run(self, state: State, max_rounds: int) -> State:
        """Rounds until nothing changes, or so many; then sweeps to rest, tried joins, and the prior once more."""
        for _ in range(_FIRST_SWEEPS - 1):
            if state.at_rest:
                break
            before, state = state.bound, watched_sweep(self.ground, self.model, state, self.least)
            if abs(state.bound - before) <= self.least:
                break
        for _ in range(max_rounds):
            state = self.with_prior(state)
            after = self.round(state)
            if after is state:
                break
            state = after
        return self.finish(state)

    def with_prior(self, state: State) -> State:
        """The state under the prior that its components suggest, if that raises the bound."""
        if not self.reestimate or state is self.suited:
            return state
        before = self.model.family
        family = reestimated(before, state.stats, self.worth)
        if family is before:
            self.suited = state
            return state
        self.model = Model(family, self.model.concentration)
        stats = restated(family, state.stats, before)
        held = state.held._replace(stats=restated(family, state.held.stats, before))
        bound = bound_of(self.model, stats, state.entropy + held.entropy)
        return state._replace(stats=stats, held=held, bound=bound, at_rest=False)

    def round(self, state: State) -> State:
        """Splits, sweeps, joins; the state itself where none of it raises the bound."""
        found = self.proposals(state)
        found.sort(key=lambda split: -split.gain)
        for _ in range(_ATTEMPTS):
            if not found:
                break
            tried = self.tried(state, found)
            if tried.bound > state.bound + self.worth:
                self.splits += len(found)
                return tried
            for split in found[len(found) // 2 :]:
                self.refused[int(state.tags[split.row])] = float(state.mass[split.row])
            found = found[: len(found) // 2]
        joined, told, left = join_all(self.ground, self.model, self.without_light(state))
        self.joins += len(told)
        self.looked = joined, left
        return joined

    def proposals(self, state: State) -> list[Split]:
        """A split of every component that is worth one and was not refused as it is."""
        tags, mass = state.tags.tolist(), state.mass.tolist()
        rows = [row for row in range(state.n_components) if self.untried(tags[row], mass[row])]
        found = [s for s in propose(self.ground, self.model, state, rows, self.rng) if s.gain > self.worth]
        refused = set(rows).difference(split.row for split in found)
        self.refused.update((tags[row], mass[row]) for row in refused)
        return found

    def untried(self, tag: int, mass: float) -> bool:
        """Whether a component's split was not refused, as it is, and came to something."""
        before = self.refused.get(tag, np.inf)
        return self.returns.get(tag, 0) < 2 and abs(before - mass) > _SAME_MASS * mass

    def tried(self, state: State, splits: list[Split]) -> State:
        """The state with the splits made and their children split in turn, some sweeps, and the joins that gain."""
        after = self.divided(state, splits)
        for _ in range(_PEELS):
            more = self.proposals(after)
            if not more:
                break
            after = self.divided(after, more)
        for _ in range(_ROUND_SWEEPS):
            swept = sweep(self.ground, self.model, after, "splitting")
            gain, after = swept.bound - after.bound, max(swept, after, key=lambda state: state.bound)
            if gain <= self.worth:
                break
        after = self.without_light(after)
        after, told, _ = join_all(self.ground, self.model, after)
        return self.named(after, told)

    def named(self, state: State, told: list[tuple[int, int, int]]) -> State:
        """Children that were joined again bear their parent's tag, and it is written down."""
        tags = state.tags.copy()
        for a, b, made in told:
            parent = self.parents.get(a)
            if parent is not None and parent == self.parents.get(b):
                self.returns[parent] = self.returns.get(parent, 0) + 1
                tags[tags == made] = parent
        return state._replace(tags=tags)

    def divided(self, state: State, splits: list[Split]) -> State:
        """The children in the place of their parents, the first in its row, the second at the end; and a sweep."""
        family, held, stats = self.model.family, state.held, state.stats
        tags, mass = state.tags.tolist(), state.window_mass.tolist()
        fresh = max(*tags, *self.parents, 0) + 1
        for split in splits:
            held = shared(family, held, split.row, split.past_share)
            children = family.add(split.window, take(held.stats, [split.row, -1]))
            stats = type(stats)(*(np.concatenate([f, c[1:]]) for f, c in zip(stats, children, strict=True)))
            for values, child in zip(stats, children, strict=True):
                values[split.row] = child[0]
            mass[split.row] = float(split.window[0][0])
            mass.append(float(split.window[0][1]))
            self.parents[fresh] = self.parents[fresh + 1] = tags[split.row]
            tags[split.row] = fresh
            tags.append(fresh + 1)
            fresh += 2
        after = resumed(self.ground, self.model, stats, np.array(mass), held, np.array(tags), state.resp)
        self.ground.tell(after.bound, after.n_components, "splitting")
        return after

    def without_light(self, state: State) -> State:
        """Without the components that have next to nothing left; what past they have goes where it fits best."""
        while state.n_components > 1:
            light = np.flatnonzero(state.mass < _LEAST_MASS)
            if light.size == 0:
                break
            state = self.gone(state, int(light[np.argmin(state.mass[light])]))
        return state

    def gone(self, state: State, row: int) -> State:
        """Without one component: it is joined to the one that takes it most gladly."""
        others = np.delete(np.arange(state.n_components), row)
        gain = join_gain(self.model.family, state.stats, np.full(others.size, row), others, fast_log_marginal)
        heir = int(others[np.argmax(gain)])
        tag = int(state.tags[heir])
        i = min(row, heir)
        entropy = float(entropies_of(self.ground, state)[row, heir])
        after = join(self.model, state, row, heir, entropy)
        tags = after.tags.copy()
        tags[i] = tag
        parent = self.parents.get(int(state.tags[row]))
        if parent is not None:
            self.returns[parent] = self.returns.get(parent, 0) + 1
        return after._replace(tags=tags)

    def finish(self, state: State) -> State:
        """Sweeps to rest, then a tried join or the prior once more, until neither raises the bound."""
        for _ in range(_LAST_ROUNDS):
            state = self.rested(state)
            after = self.tried_join(state)
            if after is None:
                after = self.with_prior(state)
                if after is state:
                    break
            else:
                self.joins += 1
            state = after
        return state

    def rested(self, state: State) -> State:
        """Sweeps until one is worth next to nothing; again without the components that they have emptied, as long as
        they empty any."""
        while True:
            state = settled(self.ground, self.model, state, self.least, _LAST_SWEEPS)
            lighter = self.without_light(state)
            if lighter is state:
                return state
            state = lighter

    def tried_join(self, state: State) -> State | None:
        """The join of the pair that loses least, with some sweeps, if the bound rises; one of the next otherwise."""
        known = self.looked is not None and self.looked[0] is state
        joins = self.looked[1] if self.looked is not None and known else joins_of(self.ground, self.model, state)
        for p in np.argsort(-joins.gain, kind="stable")[:_TRIALS]:
            i, j = int(joins.first[p]), int(joins.second[p])
            if joins.gain[p] < -_HOPE - _HOPE_SHARE * min(state.mass[i], state.mass[j]):
                break
            tried = join(self.model, state, i, j, float(joins.entropies[i, j]))
            goal = state.bound + self.worth
            tried = settled(self.ground, self.model, tried, 0.0, _JOIN_SWEEPS, goal, "joining")
            if tried.bound > goal:
                return tried
        return None
