"""Trials of families on the rows of a warm-up: two mixtures of each, learnt from either half of the rows.

A trial says how well a family predicts rows that its mixture has not seen, how many components it takes for that, and
whether they come back in the other half. Each half is learnt in one pass under its own automatic prior. A refined trial
goes on with splits and joins, as a refinement of a stream does, without the rest of one.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from shoal.families import AnyFamily
from shoal.families.capabilities import working_rows
from shoal.inference import Model, Search, State, StickPrior, WindowData, no_past, reestimated
from shoal.mixture import MixtureState, StreamSettings, live_rows, with_empty
from shoal.points.agreement import adjusted_rand_index
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points, standardised
from shoal.process import predictive_weights
from shoal.sequential.learn import empty_state, learn_inplace
from shoal.sequential.prior import choose_prior
from shoal.sequential.prior.jitter import jittered, noise

_MOST_ROUNDS = 15
"""Rounds of splits and joins, as in a refinement."""


class FamilyTrial(NamedTuple):
    """Two mixtures of one family, each of half of the N rows."""

    log_density: Array
    """(N,) log predictive density of each row, nats, under the mixture that has not seen it."""
    labels: tuple[IntArray, IntArray]
    """Best component (N,) of every row under either mixture."""
    n_components: tuple[int, int]

    @property
    def agreement(self) -> float:
        """Adjusted Rand index of the two labellings of all rows: whether the components come back."""
        return adjusted_rand_index(*self.labels)

    @property
    def total_components(self) -> int:
        """Components of both halves."""
        return sum(self.n_components)

    @property
    def finds_groups(self) -> bool:
        """Whether both halves have more than one component."""
        return min(self.n_components) > 1

    def z_score(self, other: "FamilyTrial") -> float:
        """Mean gain over another trial of the same rows, in standard errors."""
        gain = self.log_density - other.log_density
        error = float(gain.std()) / np.sqrt(len(gain))
        return float(gain.mean() / max(error, 1e-300))


def trial(rows: Array, settings: StreamSettings, *, refined: bool) -> FamilyTrial:
    """The trial of the settings' family on raw rows (N, D); a function of the arguments alone.

    The halves are drawn, since every second row may be of one kind.
    """
    half = noise(0, len(rows), np.zeros(1, dtype=np.int64))[:, 0] > 0.0
    log_density = np.empty(len(rows))
    labels, sizes = [], []
    for inside in (half, ~half):
        mixture = _learnt(settings.domain.convert(rows[inside]), settings, refined)
        scores, best = mixture.scored(settings.domain.convert(rows))
        log_density[~inside] = scores[~inside]
        labels.append(best)
        sizes.append(len(mixture.stats[0]))
    return FamilyTrial(log_density, (labels[0], labels[1]), (sizes[0], sizes[1]))


class _Mixture(NamedTuple):
    """A mixture of components and an empty one, in its own units."""

    family: AnyFamily
    stats: Any
    concentration: float
    location: Array  # (D,)
    scale: Array  # (D,)

    def scored(self, rows: Points) -> tuple[Array, IntArray]:
        """Log density (N,) of raw rows, nats in their units, and the best component (N,) of each.

        By NumPy alone: kernels differ in the last digits, and may or may not be compiled.
        """
        weights = np.append(*predictive_weights(self.stats[0], self.concentration))
        predictive = self.family.predictive(self.family.posterior(with_empty(self.family, self.stats)))
        z = standardised(rows, self.location, self.scale)
        scores = self.family.log_predictive_from(predictive, z) + np.log(weights)
        return logsumexp(scores, axis=1) - float(np.log(self.scale).sum()), scores[:, :-1].argmax(axis=1)


def _learnt(rows: Points, settings: StreamSettings, refined: bool) -> _Mixture:
    """The mixture of raw rows (N, D)."""
    chosen = choose_prior(rows, settings, thorough=refined)
    state = empty_state(settings, chosen.prior, chosen.location, chosen.scale, chosen.jitter)
    state, _ = learn_inplace(state, rows, np.empty(rows.shape[0], dtype=np.int64))
    family, stats = chosen.prior, live_rows(state.stats, state.n_components)
    if refined:
        family, stats = _refined(state, rows, chosen.jitter)
    return _Mixture(family, stats, settings.concentration, state.location, state.scale)


def _refined(state: MixtureState, rows: Points, jitter: Array) -> tuple[AnyFamily, Any]:
    """Prior and statistics after splits and joins over the raw rows that the state has learnt.

    The better one of two searches, from the components of the pass and from one component, as for few rows of a stream.
    """
    assert state.prior is not None
    z = standardised(jittered(rows, jitter, 0), state.location, state.scale)
    data = WindowData(working_rows(state.prior, z), np.ones(rows.shape[0]))
    model = Model(state.prior, StickPrior(1.0, state.settings.concentration))
    rng = np.random.default_rng(state.settings.seed)
    best: tuple[Search, State] | None = None
    for alone in (False, True):
        search = Search(data, model, rng, reestimated)
        stats = live_rows(state.stats, state.n_components)
        start = search.single_start(0) if alone else search.live_start(stats, no_past(state.prior, len(stats[0])))
        end = search.run(start, _MOST_ROUNDS)
        if best is None or end.bound > best[1].bound + search.worth:
            best = search, end
    assert best is not None
    return best[0].model.family, best[1].stats
