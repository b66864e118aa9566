"""Runs of the search kernel: its memory, its calls of limited length, and the answer from its path."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import gammaln

from shoal.families import AnyFamily
from shoal.families.predictive_cache import empty_cache, kernel_points, kernel_prior
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.search import search_kernel as kernel
from shoal.search.plain import Found
from shoal.search.search_kernel import Frontier, Objective, Pool, beam_search

STRETCH = 1024
"""Hypotheses expanded in one call, between two reports of progress."""

_FIRST_ROWS, _FIRST_BLOCKS, _FIRST_PATH = 64, 32, 1024


class BeamSearch:
    """A search in progress; `run` completes it."""

    def __init__(self, family: AnyFamily, x: Points, log_concentration: float, suffix: Array, beam: int) -> None:
        n_points = x.shape[0]
        self.family, self.beam = family, beam
        self.points, self.prior = kernel_points(family, x), kernel_prior(family)
        self.objective = Objective(
            np.ascontiguousarray(suffix),
            gammaln(np.maximum(np.arange(n_points + 2.0), 1.0)),
            np.log(np.maximum(np.arange(n_points + 1), 1)),
            log_concentration,
        )
        self.stats: Any = family.empty_stats(_FIRST_ROWS)
        self.cache: Any = empty_cache(family, _FIRST_ROWS)
        for field, empty in zip(self.cache, self.prior.empty, strict=True):
            field[0] = empty[0]
        self.frontier = _start(beam)
        self.n_points = n_points

    def run(self, max_expanded: float, report: Callable[[float, int, int, int], None]) -> Found:
        """Search to the end; after `max_expanded` hypotheses only the longest continues."""
        state, exhausted = self.frontier.state, False
        while True:
            left = STRETCH if exhausted else int(min(STRETCH, max_expanded - state[kernel.N_EXPANDED]))
            why = self._stretch(left)
            here = int(state[kernel.HERE])
            if why == kernel.FOUND:
                return Found(self._labels(here), int(state[kernel.N_EXPANDED]), exhausted)
            if why == kernel.PAUSED:
                f = self.frontier
                n = int(f.length[here])
                value = float(f.log_joint[here] + self.objective.suffix[n])
                report(value, n, int(f.n_blocks[here]), int(state[kernel.N_EXPANDED]))
                if state[kernel.N_EXPANDED] >= max_expanded and not exhausted:
                    exhausted = True
                    self._keep_longest()
            else:
                self._make_room(why)

    def _stretch(self, at_most: int) -> int:
        pool = Pool(self.stats, self.cache, self.prior.empty, self.prior.constants)
        why: int = beam_search(self.points, self.objective, pool, self.frontier, self.beam, at_most)
        return why

    def _make_room(self, why: int) -> None:
        f = self.frontier
        if why == kernel.NO_ROW:
            old = len(f.row_uses)
            self.stats, self.cache = _doubled(self.stats), _doubled(self.cache)
            free = np.zeros(2 * old, dtype=np.int64)
            free[:old] = np.arange(2 * old - 1, old - 1, -1)
            f.state[kernel.N_FREE_ROWS] = old
            self.frontier = f._replace(row_uses=np.append(f.row_uses, np.zeros(old, dtype=np.int64)), free_rows=free)
        elif why == kernel.NO_BLOCK:
            self.frontier = f._replace(
                rows=np.ascontiguousarray(np.concatenate([f.rows, np.zeros_like(f.rows)], axis=1))
            )
        else:
            longer = {name: _doubled((getattr(f, name),))[0] for name in ("path_parent", "path_choice")}
            self.frontier = f._replace(**longer)

    def _keep_longest(self) -> None:
        """Make the search greedy: the longest hypothesis stays alone, and the beam is one.

        The hypothesis to be expanded next is the best of all. It stays only if none in the queue is longer.
        """
        f, self.beam = self.frontier, 1
        n_queue, here = int(f.state[kernel.N_QUEUE]), int(f.state[kernel.HERE])
        f.state[kernel.N_QUEUE] = 0
        if n_queue == 0:
            return
        longest = max(range(n_queue), key=lambda q: (f.queue_length[q], q))
        if f.queue_length[longest] <= f.length[here]:
            return
        for name in ("queue_score", "queue_length", "queue_slot", "queue_choice", "queue_joint"):
            field = getattr(f, name)
            field[0] = field[longest]
        f.state[kernel.N_QUEUE] = 1
        f.state[kernel.HERE] = -1

    def _labels(self, slot: int) -> IntArray:
        """Labels of a hypothesis, read backwards along its path."""
        labels = np.empty(self.n_points, dtype=np.int64)
        at = int(self.frontier.trace[slot])
        for n in range(self.n_points - 1, -1, -1):
            labels[n] = self.frontier.path_choice[at]
            at = int(self.frontier.path_parent[at])
        return labels


def _start(beam: int) -> Frontier:
    """The first frontier: slot 0, with the hypothesis of no points, is expanded next."""
    slots = beam + 2
    state = np.zeros(7, dtype=np.int64)
    state[kernel.N_FREE_ROWS], state[kernel.ROWS_USED], state[kernel.N_FREE_SLOTS] = _FIRST_ROWS - 1, 1, slots - 1
    free_rows = np.zeros(_FIRST_ROWS, dtype=np.int64)
    free_rows[:-1] = np.arange(_FIRST_ROWS - 1, 0, -1)  # low rows first: all rows up to the highest used are scored
    free_slots = np.zeros(slots, dtype=np.int64)
    free_slots[:-1] = np.arange(slots - 1, 0, -1)

    def whole(n: int) -> IntArray:
        return np.zeros(n, dtype=np.int64)

    return Frontier(
        state=state,
        row_uses=whole(_FIRST_ROWS),
        free_rows=free_rows,
        free_slots=free_slots,
        length=whole(slots),
        n_blocks=whole(slots),
        largest=whole(slots),
        children=whole(slots),
        trace=whole(slots) - 1,
        log_joint=np.zeros(slots),
        rows=np.zeros((slots, _FIRST_BLOCKS), dtype=np.int32),
        queue_score=np.zeros(beam),
        queue_length=whole(beam),
        queue_slot=whole(beam),
        queue_choice=whole(beam),
        queue_joint=np.zeros(beam),
        path_parent=np.zeros(_FIRST_PATH, dtype=np.int32),
        path_choice=np.zeros(_FIRST_PATH, dtype=np.int32),
    )


def _doubled(values: Any) -> Any:
    """The arrays with twice as many rows."""
    longer = [np.concatenate([field, np.zeros_like(field)]) for field in values]
    return type(values)(*longer) if hasattr(values, "_fields") else longer
