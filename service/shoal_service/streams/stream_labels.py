"""The labels of one stream, between its store and the requests that show them: read again, and not waited for long."""

import asyncio
import contextlib
from collections.abc import Mapping

from shoal_service.errors import StoreError, StoreUnavailableError
from shoal_service.streams.board import ViewSource, shielded
from shoal_service.streams.labels import Label, LabelBook, Labels
from shoal_service.streams.view import PublishedView

FIRST_LABELS_S = 1.0
"""Longest wait of an answer about points for labels that were never read."""
LABELS_S = 0.3
"""Longest wait of a reader for labels that are known, but may have changed."""
FIRST_READ_S = 30.0
"""Longest wait of a reader for labels that were never read."""


class StreamLabels:
    """The labels of one stream, as request handlers use them. Its methods are coroutines; other threads do what
    blocks.
    """

    def __init__(self, book: LabelBook, view_source: ViewSource) -> None:
        self._book = book
        self._view_source = view_source
        self._reading: asyncio.Task[Labels] | None = None
        self._shown: tuple[tuple[int, int], str, Mapping[int, Label]] | None = None

    async def all(self) -> Labels:
        """The labels of the components. A store that does not answer soon leaves the last ones in force."""
        if (fresh := self._book.fresh) is not None:
            return fresh
        reading = self._read()
        timeout_s = LABELS_S if self._book.known else FIRST_READ_S
        with contextlib.suppress(TimeoutError, StoreUnavailableError):
            return await asyncio.wait_for(shielded(reading), timeout_s)
        return self._book.last

    async def shown(self) -> Mapping[int, Label]:
        """The labels that the components of the view have, as they were read last.

        They are read again in the background, so that an answer about points does not wait for the store, except for a
        second until they were read once. Labels that cannot be read are left out: the points are stored already.
        """
        view = self._view_source.board.view
        if not self._book.known:
            with contextlib.suppress(TimeoutError, StoreError):
                await asyncio.wait_for(self.all(), FIRST_LABELS_S)
        elif self._book.fresh is None:
            self._read()
        labels = self._book.last
        if view is None or not labels.given:
            return {}
        known, shown = ((view.seq, view.log_offset), labels.version), self._shown
        if shown is None or shown[:2] != known:
            shown = self._shown = (*known, await asyncio.to_thread(labels.shown, view))
        return shown[2]

    async def change(self, view: PublishedView, component: int, changes: Mapping[str, str | None]) -> None:
        """Change the label of a component durably, as `LabelBook.change`."""
        await asyncio.to_thread(self._book.change, view, component, changes)

    def _read(self) -> "asyncio.Task[Labels]":
        """The read of the labels that is under way, or a new one."""
        reading = self._reading
        if reading is None or reading.done():
            reading = self._reading = asyncio.create_task(asyncio.to_thread(self._book.labels))
            reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # also if nobody waits
        return reading
