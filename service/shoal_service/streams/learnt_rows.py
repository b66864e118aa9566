"""What the learning of a batch gave for its points, kept for a while for requests that wait for it."""

from collections import OrderedDict
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

LEARNT = np.dtype([("component", "<i8"), ("novelty", "<f8"), ("log_density", "<f8"), ("born", "?")])
"""One point: the id of its component right after its batch; its novelty and log density just before it was learnt;
whether it founded a component."""

LearntRows: TypeAlias = npt.NDArray[np.void]
"""(N,) of LEARNT."""

ROWS_KEPT = 262_144
"""Rows of recent entries kept for `wait=applied`. Those of the newest entry are kept whatever their number."""


class RecentRows:
    """The rows of the newest entries, by entry. Its owner guards it against use by two threads at a time."""

    def __init__(self) -> None:
        self._by_entry: OrderedDict[int, LearntRows] = OrderedDict()
        self._n_rows = 0

    def add(self, seq: int, rows: LearntRows) -> None:
        """Keep the rows (N,) of an entry, in place of those that it had. Drops the oldest beyond `ROWS_KEPT` rows."""
        self._n_rows += len(rows) - len(self._by_entry.pop(seq, ()))
        self._by_entry[seq] = rows
        while len(self._by_entry) > 1 and self._n_rows > ROWS_KEPT:
            self._n_rows -= len(self._by_entry.popitem(last=False)[1])

    def get(self, seq: int) -> LearntRows | None:
        """The rows of an entry. None when they are not known yet, or no longer kept."""
        return self._by_entry.get(seq)

    def clear(self) -> None:
        """Keep nothing."""
        self._by_entry.clear()
        self._n_rows = 0
