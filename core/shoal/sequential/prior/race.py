"""A race of priors: each is tried by a pass over a buffer of rows, and the one that predicts the rows best wins.

The score of a prior is the prequential log predictive density of the rows (Dawid 1984), in one pass under it: each row
is predicted from the rows before it. No row is scored by a mixture that has seen it. The first quarter of the rows is
not scored, because there every prior still pays for the births that it needs.

A pass costs most where the prior makes many components, and there it predicts worst. So a race has rounds over more and
more of the rows, and only the better priors go on, each from where its last round ended (successive halving: Jamieson
and Talwalkar 2016). `benchmarks/prior_race.py` measures how much time that saves and how little it loses.
"""

import math
from typing import NamedTuple

import numpy as np

from shoal.families import AnyFamily
from shoal.mixture import StreamSettings
from shoal.points.arrays import Array, IntArray
from shoal.points.rows import Points
from shoal.sequential.one_pass import one_pass_inplace, within_bounds
from shoal.sequential.passes import PassResult, PassRules, Piece, new_components

MOST_KEPT_BYTES = 1 << 22
"""Largest size of one trial that is kept between two rounds."""

SHORTEST_ROUND, FEWEST_KEPT = 48, 6
"""Fewest rows of a first round, and fewest priors that it keeps: fewer rows say too little."""


class Trial(NamedTuple):
    """One pass over the first rows of the buffer under one prior."""

    score: float
    """Log predictive density of the scored rows, nats, in the coordinates of the pass."""
    labels: IntArray  # (n,) each row's component when it was absorbed


class TrialProgress(NamedTuple):
    """The state of a pass after the first rows, from which it can go on."""

    kept: tuple[Array, ...]
    """Statistics and predictive cache, the rows in use."""
    log_density: Array  # (n,) of the rows done
    labels: IntArray  # (n,)


class _Entrant(NamedTuple):
    """A prior that is in the race."""

    score: float
    """In the last round."""
    place: int
    """In the list of priors."""
    progress: TrialProgress | None


def best_of(settings: StreamSettings, priors: list[AnyFamily], z: Points) -> tuple[int, Trial]:
    """The place of the prior that predicts rows z (N, D) best, of equals the first, and its trial over them all."""
    trials = Trials(settings, priors[0], z)
    entrants = [_Entrant(0.0, place, None) for place in range(len(priors))]
    for end, n_kept in rounds(len(z), len(priors)):
        better = list[_Entrant]()  # the best first
        for _, place, before in entrants:
            score = trials.run(priors[place], end, before).score
            if len(better) < n_kept or score > better[-1].score:
                better = [*better[: n_kept - 1], _Entrant(score, place, trials.progress())]
                better.sort(key=lambda entrant: (-entrant.score, entrant.place))
        entrants = sorted(better, key=lambda entrant: entrant.place)
    whole = [trials.run(priors[place], len(z), before) for _, place, before in entrants]
    best = int(np.argmax([trial.score for trial in whole]))
    return entrants[best].place, whole[best]


def rounds(n_rows: int, n_priors: int) -> list[tuple[int, int]]:
    """Rows that each round before the last runs over, and how many priors it keeps.

    A quarter of the rows, where that is enough, for the better half of the priors or `FEWEST_KEPT`; half of the rows,
    for the better fifth or two.
    """
    first, kept = n_rows // 4, max(FEWEST_KEPT, -(-n_priors // 2))
    second = n_rows // 2, max(2, -(-n_priors // 5))
    return [(first, kept), second] if first >= SHORTEST_ROUND and n_priors > kept else [second]


class Trials:
    """Algorithm 1 alone over the first rows, under one prior of a family after another, in the same arrays.

    Births beyond a quarter of the rows are refused, which bounds time and memory.
    """

    def __init__(self, settings: StreamSettings, prior: AnyFamily, z: Points) -> None:
        self._settings, self._z = settings, within_bounds(z)
        self._components = new_components(prior, self._limit(len(z)) + 1)
        self._log_density, self._labels = np.empty(len(z)), np.empty(len(z), dtype=np.int64)
        self._log_total = np.log(settings.concentration + np.arange(len(z)))
        self._n_done, self._ended = 0, PassResult(0, 0, 0, -1)

    def run(self, prior: AnyFamily, n: int, before: TrialProgress | None = None) -> Trial:
        """One pass over n rows, after those that an earlier pass under the same prior has done (`before`). The result
        is that of a pass from the start, to the bit."""
        start = n_components = 0
        if before is not None:
            start, n_components = len(before.labels), len(before.kept[0])
            for field, kept in zip(self._fields(), before.kept, strict=True):
                field[:n_components] = kept
            self._log_density[:start], self._labels[:start] = before.log_density, before.labels
        settings, log_density, labels = self._settings, self._log_density[:n], self._labels[:n]
        rules = PassRules(settings.concentration, settings.birth_threshold, settings.floor, "none", self._limit(n))
        rest = Piece(self._z[start:n], labels[start:], log_density[start:])
        self._ended = one_pass_inplace(prior, rules, self._components, n_components, start, rest, bounded=True)
        self._n_done = n
        scored = slice(n - n_scored(n), n)
        score = float((log_density[scored] - self._log_total[scored]).sum())
        return Trial(-math.inf if math.isnan(score) else score, labels.copy())

    def progress(self) -> TrialProgress | None:
        """The state after the last run, for `run` to go on from. None where it is too large to keep, or where so few
        rows had no room for their births."""
        ended, n = self._ended, self._n_done
        k, fields = ended.n_components, self._fields()
        if ended.n_refused or k * sum(field[0].nbytes for field in fields) > MOST_KEPT_BYTES:
            return None
        return TrialProgress(
            tuple(field[:k].copy() for field in fields), self._log_density[:n].copy(), self._labels[:n].copy()
        )

    def _fields(self) -> tuple[Array, ...]:
        return (*self._components.stats, *self._components.cache)

    def _limit(self, n: int) -> int:
        return min(self._settings.max_components, max(8, n // 4))


def n_scored(n: int) -> int:
    """How many of n rows, the last ones, a trial is scored by."""
    return n - n // 4
