"""The fitted part of an estimator: its state, the kept rows, the events so far, and the last snapshot."""

from collections import deque
from typing import Any, NamedTuple

import numpy as np

from shoal.clusters import Hierarchy, hierarchy_of
from shoal.errors import NoPointsError
from shoal.estimators.window import RowWindow, SparseRowWindow, WeightedRowWindow
from shoal.mixture import Event, MixtureSnapshot, MixtureState, StreamSettings, from_bytes, snapshot_of, to_bytes
from shoal.partitions import PieceRunner, assimilate_inplace, in_threads
from shoal.points.arrays import Array, IntArray
from shoal.points.weighted_rows import LearntPoints, unweighted, weights_of, with_weights
from shoal.refinement import (
    Refinement,
    RefinementMethod,
    adopt_inplace,
    forget_window,
    points_until_refinement,
    postponed,
    refine,
    refinement_due,
    window_start,
)
from shoal.sequential import (
    apply_settings_inplace,
    compile_kernels,
    initial_state,
    live_labels,
    timed,
)


class RefinementReport(NamedTuple):
    """A refinement and its outcome."""

    adopted: bool
    """Whether the refined mixture was adopted."""
    reason: str
    """The reason, in words."""
    offset: int
    """Points learnt before it."""
    method: str
    window_rows: int
    """Rows of the window."""
    bound_before: float
    """Lower bound on the evidence of all points before it, nats."""
    bound_after: float
    """The bound after it, nats."""
    components_before: int
    components_after: int
    events: tuple[Event, ...]
    """Changes of identity."""
    details: dict[str, Any]
    """Counts of the search's moves."""


_NAMED = ("method", "window_rows", "bound_before", "bound_after", "components_before", "components_after")


def report_of(refinement: Refinement, events: tuple[Event, ...]) -> RefinementReport:
    """The report of a refinement, with the events of its adoption."""
    named = {name: refinement.report[name] for name in _NAMED}
    details = {name: value for name, value in refinement.report.items() if name not in named}
    return RefinementReport(
        refinement.worthwhile, refinement.reason, refinement.base_offset, events=events, details=details, **named
    )


MOST_EVENTS = 100_000
"""Most events that are kept, so that memory is bounded; older ones are dropped."""

_CHUNK_ROWS = 1 << 16


class Fitted:
    """The state of a stream with its rows and events. It is pickled as snapshot bytes."""

    def __init__(self, state: MixtureState, window: LearntPoints | None = None, events: tuple[Event, ...] = ()) -> None:
        self._window = _window_of(state.settings, window)
        start = window_start(state)
        missing = start is not None and len(self._window) < state.points_seen - start
        self._state: MixtureState | None = forget_window(state) if missing else state
        self._snapshot: MixtureSnapshot | None = None
        self._hierarchy: tuple[MixtureSnapshot, Hierarchy] | None = None
        self._events: deque[Event] = deque(events, maxlen=MOST_EVENTS)

    @classmethod
    def empty(cls, settings: StreamSettings) -> "Fitted":
        """The fitted part before the first point."""
        return cls(initial_state(settings))

    @classmethod
    def from_bytes(cls, blob: bytes, events: tuple[Event, ...] = ()) -> "Fitted":
        """Inverse of `to_bytes`. Raises SnapshotDamagedError, SnapshotVersionError."""
        state, window = from_bytes(blob)
        return cls(state, window, events)

    def to_bytes(self) -> bytes:
        """Bytes of the state and the kept rows, without the events."""
        return to_bytes(self.state, self._window.rows())

    def __reduce__(self) -> tuple[Any, ...]:
        return Fitted.from_bytes, (self.to_bytes(), self.events)

    @property
    def state(self) -> MixtureState:
        """The state. Raises NoPointsError after an interruption within a chunk, which leaves no valid state."""
        if self._state is None:
            raise NoPointsError("learning was interrupted in the middle of a chunk; fit again, or load a saved state")
        return self._state

    @property
    def events(self) -> tuple[Event, ...]:
        """The last events, oldest first."""
        return tuple(self._events)

    @property
    def window(self) -> LearntPoints:
        """A copy of the kept rows (n, D), oldest first."""
        return self._window.rows()

    @property
    def snapshot(self) -> MixtureSnapshot:
        """A snapshot of the present state, made once for each state."""
        if self._snapshot is None:
            self._snapshot = snapshot_of(self.state)
        return self._snapshot

    @property
    def hierarchy(self) -> Hierarchy:
        """The tree of the present components, made once for each state."""
        snapshot = self.snapshot
        if self._hierarchy is None or self._hierarchy[0] is not snapshot:
            self._hierarchy = snapshot, hierarchy_of(snapshot)
        return self._hierarchy[1]

    def learn(self, x: LearntPoints, times: Array | None = None, run: PieceRunner = in_threads) -> IntArray:
        """Learn checked rows x (N, D), with their times (N,) where known, and with the refinements that become due.
        Compiles missing kernels first. `run` computes the pieces of partitions.

        Gives the id of each row's component (N,), live at the end: as of the row itself, followed through joins; of
        rows before an adopted refinement, the best one at the end.
        """
        compile_kernels(self.state)
        labels = np.full(len(x), -1, dtype=np.int64)
        start, live, checked = 0, False, False
        while start < len(x):
            if not checked and not self.state.settings.undecided:
                # All rows, so that an error counts from the first one.
                self.state.settings.check_chosen_domain(unweighted(x))
                checked = True
            until = points_until_refinement(self.state)
            if self.state.settings.undecided:  # the rows after the choice must be of the family's domain
                until = min(until, self.state.next_refit - self.state.points_seen)
            chunk = x[start : start + min(until, _CHUNK_ROWS)]
            end = start + len(chunk)
            labels[start:end] = self._assimilate(chunk, None if times is None else times[start:end], run)
            live = len(chunk) == len(x)  # labels are live at the end of their chunk
            if len(chunk) == until and refinement_due(self.state) is not None and self.refine().adopted:
                labels[:end] = -1
                live = False
            start = end
        return labels if live else live_labels(self.state, self.state.settings.domain.convert(unweighted(x)), labels)

    def _assimilate(self, chunk: LearntPoints, times: Array | None, run: PieceRunner) -> IntArray:
        undecided = self.state.settings.undecided
        state, self._state, self._snapshot = self.state, None, None
        if times is not None:
            state, chunk = timed(state, chunk, times)
        self._state, info = assimilate_inplace(state, chunk, run)
        self._events.extend(info.events)
        if undecided and self._state.frozen:  # rows of counts are kept in another form
            self._window = _window_of(self._state.settings, _held(self._state.settings, self._window.rows()))
        self._window.append(_held(self._state.settings, chunk))
        return info.labels

    def refine(self, method: RefinementMethod = "vdp") -> RefinementReport:
        """Refine now, and adopt the result if the bound rises. Raises RefinementError, SettingError."""
        state = self.state
        start = window_start(state)
        since = 0 if start is None else min(state.points_seen - start, len(self._window))
        refinement = refine(state, self._window.latest(since), method=method)
        if not refinement.worthwhile:
            self._state = postponed(state, refinement)
            return report_of(refinement, ())
        self._state, self._snapshot = None, None
        self._state, info = adopt_inplace(state, refinement)
        self._events.extend(info.events)
        return report_of(refinement, info.events)

    def settle(self, settings: StreamSettings) -> None:
        """Continue under new settings. Raises SettingError if a setting that cannot change differs."""
        old = self.state.settings
        settings = settings.chosen_as(old)
        if settings == old:
            return
        self._state, _ = apply_settings_inplace(self.state, settings)
        self._snapshot = None
        if settings.window_rows != old.window_rows:
            self._window = _window_of(settings, self._window.rows())


def _held(settings: StreamSettings, rows: LearntPoints) -> LearntPoints:
    """Rows in the form in which the domain holds them, which those of an automatic family need not have yet."""
    if settings.family_requested is None:
        return rows
    return with_weights(settings.domain.convert(unweighted(rows)), weights_of(rows))


def _window_of(settings: StreamSettings, rows: LearntPoints | None) -> WeightedRowWindow:
    d, most = settings.n_features, settings.window_rows
    sparse = settings.domain.sparse
    window = WeightedRowWindow(SparseRowWindow(d, most) if sparse else RowWindow(d, most, settings.window_bytes))
    if rows is not None:
        window.append(rows)
    return window
