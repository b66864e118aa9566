"""How far the log of a stream is applied, and how far the store knows it to be."""

import time
from typing import Any

from shoal_service.errors import StoreUnavailableError
from shoal_service.store import Store, StreamRecord

REPORT_S = 0.02
"""Shortest time between two reports to the store, while entries follow one another."""


class AppliedMark:
    """The last entry of a stream that was ever applied. `start` it when the epoch of the writer is known."""

    def __init__(self, store: Store, record: StreamRecord, log: Any) -> None:
        self._store = store
        self._name, self._incarnation = record.name, record.incarnation
        self._log = log
        self._epoch: int | None = None
        self._applied = self._reported = 0
        self._due = 0.0

    @property
    def applied(self) -> int:
        """The last entry that was ever applied. A replay does not lower it."""
        return self._applied

    @property
    def reported(self) -> bool:
        """Whether the store knows it."""
        return self._reported == self._applied

    def start(self, epoch: int, seq: int) -> None:
        """Begin with the entry that a checkpoint includes, as the writer of an epoch."""
        self._epoch = epoch
        self._applied = self._reported = seq

    def advance(self, seq: int) -> bool:
        """Note that an entry is applied. Whether it is for the first time. The store is told now and then."""
        if seq <= self._applied:
            return False
        self._applied = seq
        if time.monotonic() >= self._due:
            self.report()
        return True

    def report(self) -> None:
        """Tell the store if it does not know. A store that does not answer is told later."""
        if self.reported:
            return
        self._due = time.monotonic() + REPORT_S
        try:
            self._mark(self._applied)
            self._reported = self._applied
        except StoreUnavailableError as error:
            self._log.warning("mark_failed", seq=self._applied, reason=str(error))

    def check_epoch(self) -> None:
        """Raise StaleWriterError when another process has become the stream's writer."""
        self._mark(self._reported)

    def _mark(self, seq: int) -> None:
        assert self._epoch is not None
        self._store.mark_applied(self._name, self._incarnation, self._epoch, seq)
