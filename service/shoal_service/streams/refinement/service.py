"""Refinements as request handlers use them: asked for, looked up, listed. What blocks is done in threads."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, get_args

from shoal_service.errors import NoPointsYetError, NotRefinableError, ParameterError, UnknownRefinementError
from shoal_service.store import Store
from shoal_service.streams.refinement.record import Refinement
from shoal_service.streams.refinement.records import RefinementBook
from shoal_service.streams.registry import StreamRegistry
from shoal_service.streams.stream import Stream

if TYPE_CHECKING:
    from shoal.mixture import StreamSettings


Nudge = Callable[[str, str], None]

SHOWN_S = 1.0
"""How long the answer about an adopted refinement waits for readers to see it."""


class Recorded(NamedTuple):
    """A refinement and whose it is."""

    stream: Stream
    refinement: Refinement


class Refinements:
    """The refinements of all streams of a service."""

    def __init__(self, store: Store, streams: StreamRegistry, nudge: Nudge) -> None:
        """`nudge(name, incarnation)` tells whoever makes refinements, if that is this process, to look."""
        self._store = store
        self._streams = streams
        self._nudge = nudge

    async def ask(self, name: str, *, method: str, window: int | None, key: str | None) -> Recorded:
        """Queue a refinement. With a key, asking again gives what was made first.

        Raises UnknownStreamError, NoPointsYetError, ParameterError, NotRefinableError where the stream cannot be
        refined, OverloadedError when too many wait.
        """
        stream = await self._streams.get(name)
        check_method(method)
        check_window(stream.spec, name, window)
        if (await stream.tail()).log_offset == 0:
            raise NoPointsYetError(f"stream {name!r} has no points yet, so there is nothing to refine; post some first")
        book = self._book(stream)
        asked = await asyncio.to_thread(book.ask, method=method, why="asked", window=window, key=key)
        self._nudge(book.name, book.incarnation)
        return Recorded(stream, asked)

    async def find(self, name: str, refinement_id: str) -> Recorded:
        """One by its id; an adopted one once readers here see what it did, unless that takes long. Raises
        UnknownStreamError, UnknownRefinementError."""
        stream = await self._streams.get(name)
        held = await asyncio.to_thread(self._book(stream).find, refinement_id)
        if held is None:
            raise UnknownRefinementError(
                f"stream {name!r} has no refinement {refinement_id[:64]!r}; the newest hundred are kept"
            )
        found = held.refinement
        if found.state == "adopted" and found.entry_seq is not None:
            await stream.shown(found.entry_seq, SHOWN_S)
        return Recorded(stream, found)

    async def recent(self, name: str) -> tuple[Stream, list[Refinement]]:
        """The newest hundred of a stream, newest first."""
        stream = await self._streams.get(name)
        held = await asyncio.to_thread(self._book(stream).all)
        return stream, [one.refinement for one in held]

    def _book(self, stream: Stream) -> RefinementBook:
        return RefinementBook(self._store, stream.name, stream.record.incarnation)


def check_method(method: str) -> None:
    """Raise ParameterError unless it is one that refines."""
    from shoal.refinement import RefinementMethod

    methods = get_args(RefinementMethod)
    if method not in methods:
        raise ParameterError(f"method is {method[:40]!r}; choose one of {', '.join(methods)}")


def check_window(spec: "StreamSettings", name: str, window: int | None) -> None:
    """Raise NotRefinableError where the family or the stream allows none, ParameterError for fewer rows than can be
    asked for."""
    if not spec.conjugate:
        raise NotRefinableError(
            f"stream {name!r} is of family {spec.family!r}, which is not conjugate: its estimates cannot be divided "
            "anew, and one pass alone learns it"
        )
    if spec.window_rows == 0:
        raise NotRefinableError(
            f"stream {name!r} keeps no window of points to refine (method {spec.method!r}, window {spec.window}); "
            "refinement needs method 'default' and a window above 0"
        )
    if window is not None and window < spec.window_step:
        raise ParameterError(
            f"window is {window}; a window of stream {name!r} begins anew every {spec.window_step:,} points, so give "
            "as many at least"
        )
