"""Tasks for definitions of streams: one thread with an event loop, which runs a task for each definition.

A definition, such as a webhook or a source, is a document of its stream. Only the process that learns a stream runs the
tasks of its definitions. When another process takes over, the tasks end with the learner, and others begin there.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from shoal_service.errors import StoreError, StreamGoneError
from shoal_service.streams.events import Feed
from shoal_service.streams.record_index import FamilyTree

LOOK_S = 1.0
"""Time between two looks for learners that have come or gone. They cost no call of the store."""
READ_S = 30.0
"""Time after which the definitions of a stream are read again, in case that no process has announced a change."""


class LearntStream(NamedTuple):
    """Stream that this process learns."""

    name: str
    incarnation: str
    feed: Feed
    family_tree: Callable[[], FamilyTree | None]
    """The live components and their descent, for labels."""


class StreamTask(Protocol):
    """Work for one definition."""

    @property
    def definition(self) -> Any:
        """The definition. A task ends when another one has its name."""

    async def run(self) -> None:
        """Work until the task is cancelled, or its stream ends."""

    def save_now(self) -> None:
        """Save the state after `run` has ended, unless the definition was deleted. Blocks. Raises StoreError."""


Work = TypeVar("Work", bound=StreamTask)


class _Running(NamedTuple, Generic[Work]):
    work: Work
    task: "asyncio.Task[None]"


class _Known(NamedTuple, Generic[Work]):
    """Stream whose definitions were read."""

    feed: Feed
    read_at: float
    running: dict[str, _Running[Work]]


class StreamTasks(Generic[Work]):
    """Runs tasks between `start` and `close`, which blocks. Any thread may call `notify`.

    A subclass says with `definitions` and `begin` what there is to do, and may hold resources open with `resources`.
    """

    def __init__(self, name: str, log: Any, streams: Callable[[], Mapping[str, LearntStream]]) -> None:
        """`name` of the thread and of the lines in the log. `streams` gives those that this process learns now."""
        self._name = name
        self._log = log
        self._streams = streams
        self._known: dict[tuple[str, str], _Known[Work]] = {}
        self._changed: set[tuple[str, str]] = set()  # streams whose definitions were changed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"shoal-{name}", daemon=True)

    def definitions(self, stream: LearntStream) -> Mapping[str, Any]:
        """Return the definitions of a stream by name. Blocks. Raises StoreError."""
        raise NotImplementedError

    def begin(self, definition: Any, stream: LearntStream) -> Work:
        """Return the work for a definition."""
        raise NotImplementedError

    def after_check(self, stream: LearntStream, work: list[Work]) -> None:
        """Take note of the work that runs for a stream, after each check of its definitions."""

    def resources(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """Hold open what the work needs, as long as the thread runs."""
        return contextlib.nullcontext()

    @property
    def work(self) -> list[tuple[str, Work]]:
        """The work that runs now, each with the name of its stream. Any thread may ask."""
        known = list(self._known.items())
        return [(stream, one.work) for (stream, _), each in known for one in each.running.values()]

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def notify(self, name: str, incarnation: str) -> None:
        """Tell that the definitions of a stream were changed."""
        self._call(lambda: self._changed.add((name, incarnation)))

    def close(self, timeout_s: float) -> None:
        """End all work within the time."""
        if self._thread.ident is None:
            return

        def stop() -> None:
            self._stopping = True

        self._call(stop)
        self._thread.join(timeout_s)

    def _call(self, change: Callable[[], None]) -> None:
        """Make a change in the thread's loop, and wake it."""

        def changed() -> None:
            change()
            self._wake.set()

        loop = self._loop
        if loop is None or not self._thread.is_alive():
            change()
            return
        try:
            loop.call_soon_threadsafe(changed)
        except RuntimeError:  # the loop has closed meanwhile
            change()

    # -- the thread

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with self.resources():
            while not self._stopping:
                self._wake.clear()
                try:
                    await self._look()
                except Exception:  # noqa: BLE001 - without this thread nothing runs: it continues, and logs the error
                    self._log.error(f"{self._name}_failed", exc_info=True)
                try:
                    await asyncio.wait_for(self._wake.wait(), LOOK_S)
                except TimeoutError:
                    continue
            running = [each for known in self._known.values() for each in known.running.items()]
            await self._end(running)

    async def _look(self) -> None:
        """Bring the tasks in line with the learners of this process and with the definitions of their streams."""
        streams = {(one.name, one.incarnation): one for one in self._streams().values()}
        for key in self._known.keys() - streams.keys():
            await self._end(self._known.pop(key).running.items())
        changed, self._changed = self._changed, set()
        for key, stream in streams.items():
            try:
                await self._check(key, stream, changed=key in changed)
            except Exception:  # noqa: BLE001 - the fault of one stream must not keep the others from their work
                self._changed.add(key)
                self._log.error(f"{self._name}_failed", stream=stream.name, exc_info=True)

    async def _check(self, key: tuple[str, str], stream: LearntStream, *, changed: bool) -> None:
        """Bring the tasks of one stream in line with its definitions."""
        known = self._known.get(key)
        if known is not None and known.feed is not stream.feed:
            await self._end(self._known.pop(key).running.items())
            known = None
        if known is None or changed or time.monotonic() - known.read_at >= READ_S or _has_ended(known):
            await self._read(key, stream, {} if known is None else known.running)
        if (known := self._known.get(key)) is not None:
            self.after_check(stream, [one.work for one in known.running.values()])

    async def _read(self, key: tuple[str, str], stream: LearntStream, running: dict[str, _Running[Work]]) -> None:
        try:
            found = await asyncio.to_thread(self.definitions, stream)
        except StreamGoneError:
            return
        except StoreError as error:
            self._changed.add(key)  # read again at the next look
            self._log.warning(f"{self._name}_unread", stream=key[0], reason=str(error))
            return
        gone = {name: one for name, one in running.items() if found.get(name) != one.work.definition}
        gone |= {name: one for name, one in running.items() if one.task.done()}
        await self._end(gone.items())
        kept = {name: one for name, one in running.items() if name not in gone}
        known = self._known[key] = _Known(stream.feed, time.monotonic(), kept)
        for name in found.keys() - kept.keys():
            work = self.begin(found[name], stream)
            begun = _Running(work, asyncio.create_task(work.run()))
            known = self._known[key] = known._replace(running={**known.running, name: begun})  # any thread reads it

    async def _end(self, running: Iterable[tuple[str, _Running[Work]]]) -> None:
        ended = list(running)
        for _, one in ended:
            one.task.cancel()
        for name, one in ended:
            (found,) = await asyncio.gather(one.task, return_exceptions=True)
            if isinstance(found, Exception) and not isinstance(found, StreamGoneError):
                self._log.error(f"{self._name}_ended", definition=name, reason=f"{type(found).__name__}: {found}")
            with contextlib.suppress(StoreError):  # the work since then is done again
                await asyncio.to_thread(one.work.save_now)


def _has_ended(known: _Known[Any]) -> bool:
    return any(one.task.done() for one in known.running.values())
