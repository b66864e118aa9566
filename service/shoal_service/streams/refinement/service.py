"""Refinements as request handlers use them: requested, looked up and listed. Threads do what blocks."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, get_args

from shoal_service.errors import NoPointsYetError, NotRefinableError, ParameterError, UnknownRefinementError
from shoal_service.store import Store
from shoal_service.streams.refinement.records import Refinement, RefinementRecords
from shoal_service.streams.stream import Stream

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings

VIEW_S = 5.0
"""Longest wait for the state of a stream whose log holds no points. A restore may have brought some."""
SHOWN_S = 1.0
"""Longest wait of the answer about an adopted refinement for readers to see it."""


class StreamLookup(Protocol):
    """Streams by name."""

    async def get(self, name: str) -> Stream:
        """The stream of a name. Raises UnknownStreamError."""


class StreamRefinement(NamedTuple):
    """A refinement and its stream."""

    stream: Stream
    refinement: Refinement


class RefinementService:
    """The refinements of all streams of a service."""

    def __init__(self, store: Store, streams: StreamLookup, notify_refiner: Callable[[str, str], None]) -> None:
        """`notify_refiner(name, incarnation)` is called when a refinement waits."""
        self._store = store
        self._streams = streams
        self._notify_refiner = notify_refiner

    async def request(self, name: str, *, method: str, window: int | None, key: str | None) -> StreamRefinement:
        """Queue a refinement. A second request with the same key returns the first one's refinement.

        Raises UnknownStreamError, NoPointsYetError, ParameterError, NotRefinableError where the stream cannot be
        refined, OverloadedError when too many are open, LearnerStoppedError, IdempotencyMismatchError for a key that
        asked for another refinement.
        """
        stream = await self._streams.get(name)
        stream.refuse_refinement_when_stopped()
        check_method(method)
        check_window(stream.settings, name, window)
        if (await stream.tail()).log_offset == 0 and not (await stream.view(None, VIEW_S)).points_seen:
            raise NoPointsYetError(f"stream {name!r} has no points yet, so there is nothing to refine; post some first")
        records = self._records(stream)
        queued = await asyncio.to_thread(records.queue, method=method, why="asked", window=window, key=key)
        self._notify_refiner(*records.key)
        return StreamRefinement(stream, queued)

    async def find(self, name: str, refinement_id: str) -> StreamRefinement:
        """One by its id. For an adopted one, waits a moment until readers of this process see it.

        Raises UnknownStreamError, UnknownRefinementError.
        """
        stream = await self._streams.get(name)
        stored = await asyncio.to_thread(self._records(stream).find, refinement_id)
        if stored is None:
            raise UnknownRefinementError(
                f"stream {name!r} has no refinement {refinement_id[:64]!r}; the newest hundred are kept"
            )
        found = stored.refinement
        if found.state == "adopted" and found.entry_seq is not None:
            await stream.wait_for_entry(found.entry_seq, SHOWN_S)
        return StreamRefinement(stream, found)

    async def recent(self, name: str) -> tuple[Stream, list[Refinement]]:
        """The newest hundred of a stream, newest first."""
        stream = await self._streams.get(name)
        stored = await asyncio.to_thread(self._records(stream).all)
        return stream, [one.refinement for one in stored]

    def _records(self, stream: Stream) -> RefinementRecords:
        return RefinementRecords(self._store, stream.name, stream.record.incarnation)


def check_method(method: str) -> None:
    """Raise ParameterError for a method that does not refine."""
    from shoal.refinement import RefinementMethod

    methods = get_args(RefinementMethod)
    if method not in methods:
        raise ParameterError(f"method is {method[:40]!r}; choose one of {', '.join(methods)}")


def check_window(settings: "StreamSettings", name: str, window: int | None) -> None:
    """Raise NotRefinableError where the family or the stream has no refinement, ParameterError for a small window."""
    if not settings.conjugate:
        raise NotRefinableError(
            f"stream {name!r} is of family {settings.family!r}, which is not conjugate: its estimates cannot be "
            "refined, only learnt in one pass"
        )
    if settings.window_rows == 0:
        raise NotRefinableError(
            f"stream {name!r} keeps no window of points to refine (method {settings.method!r}, window "
            f"{settings.window}); refinement needs method 'default' and a window above 0"
        )
    if window is not None and window < settings.window_step:
        raise ParameterError(
            f"window is {window}; a window of stream {name!r} moves every {settings.window_step:,} points, so "
            "give at least as many"
        )
