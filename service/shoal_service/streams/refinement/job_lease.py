"""A refinement that a worker runs, as long as nobody else has changed its record."""

import time
from collections.abc import Callable
from typing import Any

from shoal_service.errors import StoreUnavailableError
from shoal_service.streams.refinement.process import StoppedError
from shoal_service.streams.refinement.record import Refinement
from shoal_service.streams.refinement.records import Held, RefinementBook, StreamKey

BEAT_S = 1.0
"""How often the record of a refinement that runs is written."""


class Claim:
    """A refinement that this worker runs, as long as nobody else has changed its record."""

    def __init__(self, book: RefinementBook, held: Held, called_off: Callable[[], bool]) -> None:
        self.key = StreamKey(book.name, book.incarnation)
        self._book = book
        self._held = held
        self._called_off = called_off
        self._next_beat = 0.0

    @property
    def refinement(self) -> Refinement:
        """As last written."""
        return self._held.refinement

    def write(self, **changes: Any) -> None:
        """Change the record. StoppedError when it is no longer this worker's."""
        held = self._book.change(self._held, self.refinement.but(**changes))
        if held is None:
            raise StoppedError
        self._held = held
        self._next_beat = time.monotonic() + BEAT_S

    def beat(self, progress: dict[str, Any] | None) -> bool:
        """Say that it goes on; False when it is not to."""
        if self._called_off():
            return False
        if progress is not None and self.refinement.progress is None:
            self._next_beat = 0.0
        if time.monotonic() >= self._next_beat:
            try:
                self.write(progress=progress or self.refinement.progress)
            except StoppedError:
                return False
            except StoreUnavailableError:
                self._next_beat = (
                    time.monotonic() + BEAT_S
                )  # the work goes on, and the record is written when it can be
        return True
