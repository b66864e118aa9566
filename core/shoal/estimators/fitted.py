"""What a fitted estimator holds: the state, the rows kept, the events so far, and the last view of the state."""

from collections import deque
from typing import Any

from shoal.arrays import Array
from shoal.errors import NoPointsError
from shoal.estimators.window import RowWindow
from shoal.mixture import Event, MixtureSnapshot, MixtureState, StreamSettings, from_bytes, to_bytes
from shoal.sequential import apply_settings_inplace, assimilate_inplace, initial_state, publish

MOST_EVENTS = 100_000
"""Events remembered; older ones are forgotten, so that memory stays bounded."""

_CHUNK_ROWS = 1 << 16


class Fitted:
    """A stream's state with its lifetime. Pickles as snapshot bytes."""

    def __init__(self, state: MixtureState, window: Array | None = None, events: tuple[Event, ...] = ()) -> None:
        self._state: MixtureState | None = state
        self._snapshot: MixtureSnapshot | None = None
        self._events: deque[Event] = deque(events, maxlen=MOST_EVENTS)
        self._window = _window_of(state.settings, window)

    @classmethod
    def empty(cls, settings: StreamSettings) -> "Fitted":
        """Before the first point."""
        return cls(initial_state(settings))

    @classmethod
    def from_bytes(cls, blob: bytes, events: tuple[Event, ...] = ()) -> "Fitted":
        """Inverse of `to_bytes`. Raises SnapshotDamagedError, SnapshotVersionError."""
        state, window = from_bytes(blob)
        return cls(state, window, events)

    def to_bytes(self) -> bytes:
        """State and kept rows as a snapshot; the events are not in it."""
        return to_bytes(self.state, self._window.rows())

    def __reduce__(self) -> tuple[Any, ...]:
        return Fitted.from_bytes, (self.to_bytes(), self.events)

    @property
    def state(self) -> MixtureState:
        """The state. Raises NoPointsError when learning was broken off half-way, which leaves none that can be
        trusted."""
        if self._state is None:
            raise NoPointsError("learning was interrupted half-way through a chunk; fit again, or load a saved state")
        return self._state

    @property
    def events(self) -> tuple[Event, ...]:
        """The last events, oldest first."""
        return tuple(self._events)

    @property
    def window(self) -> Array:
        """A copy of the rows kept (n, D), oldest first."""
        return self._window.rows()

    @property
    def snapshot(self) -> MixtureSnapshot:
        """A view of the state as it is now, made once for each state."""
        if self._snapshot is None:
            self._snapshot = publish(self.state)
        return self._snapshot

    def learn(self, x: Array) -> None:
        """Take in checked rows x (N, D)."""
        for start in range(0, len(x), _CHUNK_ROWS):
            chunk = x[start : start + _CHUNK_ROWS]
            state, self._state, self._snapshot = self.state, None, None
            self._state, info = assimilate_inplace(state, chunk)
            self._events.extend(info.events)
            self._window.append(chunk)

    def settle(self, settings: StreamSettings) -> None:
        """Go on under other settings. Raises SettingError when their shape is another."""
        old = self.state.settings
        if settings == old:
            return
        self._state, _ = apply_settings_inplace(self.state, settings)
        self._snapshot = None
        if (settings.window, settings.window_bytes) != (old.window, old.window_bytes):
            self._window = _window_of(settings, self._window.rows())


def _window_of(settings: StreamSettings, rows: Array | None) -> RowWindow:
    window = RowWindow(settings.n_features, settings.window, settings.window_bytes)
    if rows is not None:
        window.append(rows)
    return window
