"""A thread of its own for one learner."""

import threading
from collections.abc import Callable

from shoal_service.store import Store


class OwnThread:
    """Turns of one learner, one after another. A turn waits itself. The methods are those of `PooledTask`."""

    can_rest = False
    """Whether the learner lets its state go when nobody uses the stream."""
    log_is_local = False
    """Whether this process alone appends to the log and announces each entry, so that a wait needs no poll."""

    def __init__(self, turn: Callable[[], float | None], name: str) -> None:
        """`turn` gives None at the end."""
        self._turn = turn
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.wake = threading.Event()
        """Ends a wait."""

    @property
    def started(self) -> bool:
        """Whether `start` was called."""
        return self._thread.ident is not None

    def start(self) -> None:
        """Begin with the first turn."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end. True when it has ended, or never began."""
        if self._thread.ident is not None:
            self._thread.join(max(timeout_s, 0.0))
        return not self._thread.is_alive()

    def set(self) -> None:
        """End the wait of the turn."""
        self.wake.set()

    def clear(self) -> None:
        """Take notice of what `set` announced."""
        self.wake.clear()

    def is_set(self) -> bool:
        """Whether something was announced since `clear`."""
        return self.wake.is_set()

    def pause(self, wait_s: float) -> float:
        """Wait, unless something is announced. Returns zero: the next turn may begin."""
        self.wake.wait(wait_s)
        return 0.0

    def watch(self, store: Store, stream: tuple[str, str]) -> None:
        """Nothing: a turn waits for entries in the store."""

    def unwatch(self, store: Store, stream: tuple[str, str]) -> None:
        """Nothing, as `watch`."""

    def wait_for_entries(self, store: Store, stream: tuple[str, str], after_seq: int, wait_s: float) -> bool:
        """Wait until an entry has come, something is announced, or the time is over. Whether an entry has come."""
        return store.wait_for_entries(*stream, after_seq, wait_s, self.wake)

    def _run(self) -> None:
        while self._turn() is not None:
            pass
