"""The M-step: the best parameters for given responsibilities, as statistics, and the bound that they reach.

    bound = sum_k log m(past_k + window_k) + L(masses) + H(past, recorded) + H(window)

m is the marginal likelihood of weighted points, L the label term (`label_terms`). The bound is a function of the
responsibilities alone: parameters and sticks are at their best.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from shoal.families import AnyFamily
from shoal.families.capabilities import fast_log_marginal
from shoal.inference.data import WindowData
from shoal.inference.e_step import Responsibilities
from shoal.inference.label_terms import StickPrior, label_bound
from shoal.inference.past import PastStats
from shoal.points.arrays import Array, IntArray


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


def m_step(data: WindowData, model: Model, found: Responsibilities, past: PastStats, tags: IntArray) -> State:
    """The state of given responsibilities and past."""
    columns = found.resp.tocsc()
    starts = columns.indptr
    spans = [slice(int(starts[k]), int(starts[k + 1])) for k in range(columns.shape[1])]
    window = data.suffstats(model.family, [columns.indices[s] for s in spans], [columns.data[s] for s in spans])
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
