"""The search from the components at hand and, where that costs little or promises much, from one component too.

Splits and joins may not escape from the structure that few rows suggested, such as two components that share a third
cluster, or many components where fewer wide ones explain the rows better. The better of the two ends is kept.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shoal.inference.search import Search
from shoal.inference.sweep import Model, State

_FEW_ROWS, _SURE_ROWS, _SOME_ROWS = 1_000, 10_000, 20_000
"""Rows up to which a search also starts from one component, where the first search ended with at most `_MANY`
components and nothing has left the window.

First: always, as early components are a poor start and the search is cheap. Second: where the first search moved and
the structure was confirmed before. Third: where the first search moved and the structure is not confirmed. With more
rows than the first, the search must also take seconds."""
_MOST_COST = 5e7
"""Rows x components x parameters up to which the search from one component takes seconds."""
_NOT_CONVERGED = 2.0
"""Nats by which the first search must improve on the live components for them to count as a poor start."""
_MANY, _SPLINTERED = 64, 1.25
"""Above so many components, that search is made if the first one has multiplied their number by the second figure or
more, and either it takes seconds or the components have fewer points than parameters, on average.

Components with fewer points than parameters are a splintered start: their parameters gain more than half a nat a point
from noise (Wilks 1938). On 16,000 handwritten digits in 50 features, the first search went from 77 components to 107,
with 150 points and 1,325 parameters each, and the one from a single component to 37 with a higher bound.

Components with more points may be clusters found late. There the rule gives up a higher bound to save time. On 48,000
rows of 200 clusters in 128 features, the first search ended with 100 components, and the one from a single component
with 121 and a bound 9,000 nats higher, in about the same time. Later refinements found all clusters but one."""


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
    Of two searches, the one that is ahead after its rounds is finished first. The other one ends early where it cannot
    come up to that.
    """
    first, at_end = search.rounds(start, max_rounds), False
    alone = start.n_components > 1 and not np.any(start.past.mass > 0.0)
    if not (alone and _is_poor(search, start, first, confirmed)):
        first, at_end = search.finish(first), True
        if not (alone and _is_poor(search, start, first, confirmed)):
            return _found(search, first)
    other = new_search()
    second = other.rounds(other.single_start(start.n_components), max_rounds)
    if at_end or first.bound >= second.bound:
        first = first if at_end else search.finish(first)
        other.goal = first.bound + search.worth
        second = other.finish(second)
    else:
        second = other.finish(second)
        search.goal = second.bound - search.worth
        first = search.finish(first)
    return _found(other, second) if second.bound > first.bound + search.worth else _found(search, first)


def _is_poor(search: Search, start: State, end: State, confirmed: bool) -> bool:
    """Whether `start` may have led to a poor end, and another search costs little beside the first."""
    n_rows, n_components = search.data.n_rows, end.n_components
    n_parameters = n_components * search.model.family.n_free_parameters
    cost = n_rows * n_parameters
    if n_components > _MANY:
        multiplied = n_components >= _SPLINTERED * start.n_components
        return multiplied and (cost <= _MOST_COST or search.data.total < n_parameters)
    if n_rows <= _FEW_ROWS:
        return True
    moved = end.bound > start.bound + _NOT_CONVERGED
    return moved and n_rows <= (_SURE_ROWS if confirmed else _SOME_ROWS) and cost <= _MOST_COST


def _found(search: Search, end: State) -> Found:
    return Found(search.model, end, search.splits, search.joins)
