"""The search from the components at hand and, where that costs little, from one component too.

Splits and joins may not escape from the structure that few rows suggested, such as two components that share a third
cluster. The better of the two ends is kept.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shoal.inference.search import Search
from shoal.inference.sweep import Model, State

_FEW_ROWS, _SURE_ROWS, _SOME_ROWS = 1_000, 10_000, 20_000
"""Rows up to which a search also starts from one component, where nothing has left the window.

First: always, as early components are a poor start and the search is cheap. Second: where the first search moved and
the structure was confirmed before. Third: where the first search moved and the structure is not confirmed."""
_MOST_COST = 5e7
"""Rows x components x parameters up to which that search takes seconds; above, it is not made."""
_NOT_CONVERGED = 2.0
"""Nats by which the first search must improve on the live components for them to count as a poor start."""
_MANY = 64
"""Components above which that search is not made: each of its rounds at best doubles their number."""


class Found(NamedTuple):
    """A mixture, its priors, and the moves that led to it."""

    model: Model
    state: State
    splits: int
    joins: int


def best_found(
    search: Search, start: State, max_rounds: int, new_search: Callable[[], Search], *, confirmed: bool
) -> Found:
    """The better of a search from `start` and one by `new_search` from one component.

    confirmed: whether the structure of `start` is known to be good. Splits and joins in at most `max_rounds` rounds.
    """
    data, found = search.data, _run(search, start, max_rounds)
    if start.n_components > 1 and found.state.n_components <= _MANY and not np.any(start.past.mass > 0.0):
        cost = data.n_rows * found.state.n_components * found.model.family.n_free_parameters
        most = _SURE_ROWS if confirmed else _SOME_ROWS
        moved = found.state.bound > start.bound + _NOT_CONVERGED
        if data.n_rows <= _FEW_ROWS or (moved and data.n_rows <= most and cost <= _MOST_COST):
            other = new_search()
            again = _run(other, other.single_start(start.n_components), max_rounds)
            found = again if again.state.bound > found.state.bound + search.worth else found
    return found


def _run(search: Search, start: State, max_rounds: int) -> Found:
    end = search.run(start, max_rounds)
    return Found(search.model, end, search.splits, search.joins)
