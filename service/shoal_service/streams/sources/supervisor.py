"""Supervision of one source: its connector runs as a child process, and is started again after an error.

A process of its own decodes the messages, so that the service, whose threads share one interpreter, answers and learns
meanwhile. And neither a library of the source nor its memory can take the service down. The child is the connector of
`shoal connect`: its batches carry the position of the source, which the log stores with them. So a kill of either
process loses and doubles nothing, and two children of one source, during a change of the leader, are refused in turn.
"""

import asyncio
import contextlib
import json
import os
import signal
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from shoal_service.child_processes import command_of, environment
from shoal_service.errors import ParameterError, StoreUnavailableError
from shoal_service.settings import SOURCE_VARIABLES
from shoal_service.store import definition_digest
from shoal_service.streams.sources.definition import (
    SourceDefinition,
    SourceRules,
    check_definition,
    with_variables,
)
from shoal_service.streams.sources.documents import SourceDocuments
from shoal_service.streams.sources.state import SourceState
from shoal_service.streams.stream_tasks import LearntStream

T = TypeVar("T")

CHILD = "shoal_service.cli.connectors.configured"
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 300.0
"""First and longest pause before a process that has ended is started again."""
SAVE_S = 2.0
"""Shortest time between two writes of numbers that change all the time."""
TERM_S = 3.0
"""Time in which a child may send its last batch."""
STORE_PAUSE_S = 1.0
"""Pause before a write is repeated that the store could not take."""


class Slots:
    """Number of children that one process may have."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.used = 0

    @property
    def is_free(self) -> bool:
        """Whether another child may start."""
        return self.used < self.n

    @contextlib.contextmanager
    def one(self) -> Any:
        """Count a child for the length of the block."""
        self.used += 1
        try:
            yield
        finally:
            self.used -= 1


class ChildOptions(NamedTuple):
    """What the children of all sources are given."""

    rules: SourceRules
    socket: Callable[[], str]
    """Gives the path of the Unix socket at which the service answers its children."""
    log_level: str
    log_format: str


class SupervisedSource:
    """Runs one source. `run` it on an event loop; cancel it to end."""

    def __init__(
        self,
        definition: SourceDefinition,
        stream: LearntStream,
        documents: SourceDocuments,
        options: ChildOptions,
        slots: Slots,
        log: Any,
    ) -> None:
        self._definition = definition
        self._stream = stream
        self._documents = documents
        self._options = options
        self._slots = slots
        self._log = log.bind(stream=stream.name, source=definition.name)
        self._state: SourceState | None = None
        self.begun: SourceState | None = None
        """The state that the store had. None before it is read."""
        self._saved: SourceState | None = None
        self._saved_at = 0.0
        self.pid: int | None = None
        """Process id of the child, while there is one."""
        self.restarts = 0
        """Times that the child has ended by itself, or could not be started."""

    @property
    def definition(self) -> SourceDefinition:
        """As `StreamTask.definition`."""
        return self._definition

    @property
    def state(self) -> SourceState | None:
        """What became of the source. None before it is read from the store."""
        return self._state

    async def run(self) -> None:
        """Run the source, and start it again after each error, with growing pauses."""
        state = await self._stored(self._documents.state, self._definition)
        if state.revision != self._definition.revision:
            state = state._replace(
                revision=self._definition.revision, status="starting", failures=0, error=None, next_attempt_at=None
            )
        self._state = self.begun = state
        while True:
            known = await self._stored(self._documents.positions, self._definition)
            if known is None:  # the runner will see it too
                return
            error = await self._run_once(known)
            if await self._stored(self._documents.positions, self._definition) is None:
                return
            self.restarts += 1
            failures = self._state.failures + 1
            pause_s = min(FIRST_PAUSE_S * 2.0 ** min(failures - 1, 30), MAX_PAUSE_S)
            self._log.warning("source_failed", reason=error, failures=failures, pause_s=pause_s)
            now = time.time()
            self._change(status="failed", failures=failures, error=error, failed_at=now, next_attempt_at=now + pause_s)
            await self._save()
            await asyncio.sleep(pause_s)

    def save_now(self) -> None:
        """As `StreamTask.save_now`."""
        if self._state is not None and self._state != self._saved:
            self._documents.save_last(self._definition, self._state)

    async def _run_once(self, known: dict[str, str]) -> str:
        """Run the child until it ends. Returns why it did."""
        try:
            order = self._order(known)
        except ParameterError as error:
            return str(error)
        if not self._slots.is_free:
            return f"this service runs {self._slots.n} sources already, as many as its setting source_processes allows"
        with self._slots.one():
            try:
                child = await asyncio.create_subprocess_exec(
                    *command_of(CHILD), stdin=PIPE, stdout=PIPE, env=environment(), process_group=0
                )
            except OSError as error:
                return f"its process cannot be started: {error}"
            self.pid = child.pid
            assert self._state is not None
            before = self._state
            try:
                return await self._watch(child, order, before)
            finally:
                self.pid = None
                await _end(child, lambda report: self._change(**_numbers_of(report, before)))

    def _order(self, known: dict[str, str]) -> bytes:
        definition, options = self._definition, self._options
        allowed = {name: value for name, value in os.environ.items() if name.startswith(SOURCE_VARIABLES)}
        settings = with_variables(definition.settings, allowed)
        check_definition(definition.name, definition.kind, settings, options.rules)
        below = options.rules.files_below
        order = {
            "socket": options.socket(),
            "stream": self._stream.name,
            "incarnation": self._stream.incarnation,
            "source": definition.name,
            "definition": definition_digest(definition.document),
            "kind": definition.kind,
            "known": known,
            "settings": settings,
            "public_only": not options.rules.allow_private,
            "files_below": None if below is None else str(below.absolute()),
            "log_level": options.log_level,
            "log_format": options.log_format,
        }
        return json.dumps(order).encode() + b"\n"

    async def _watch(self, child: Process, order: bytes, before: SourceState) -> str:
        assert child.stdin is not None
        assert child.stdout is not None
        begun = time.monotonic()
        failed: str | None = None
        with contextlib.suppress(ConnectionError):  # it has ended; its status says how
            child.stdin.write(order)
            await child.stdin.drain()
        while True:
            try:
                line = await asyncio.wait_for(child.stdout.readline(), SAVE_S)
            except TimeoutError:
                await self._save_numbers()
                continue
            if not line:
                break
            report = json.loads(line)
            failed = report.get("failed", failed)
            if "failed" not in report:
                self._note(report, before, time.monotonic() - begun)
                await self._save_numbers()
        status = await child.wait()
        return failed or f"its process ended with {_words_of(status)}"

    def _note(self, report: dict[str, Any], before: SourceState, age_s: float) -> None:
        """Take over what the child reports."""
        assert self._state is not None
        trouble = report["trouble"]
        changes = _numbers_of(report, before)
        if report["points"] > 0 or (trouble is None and age_s >= MAX_PAUSE_S):
            changes["failures"] = 0
        if not report["starting"]:
            status = "running" if trouble is None else "failed"
            changes |= {"status": status, "error": trouble, "next_attempt_at": None}
            if trouble is not None and trouble != self._state.error:
                changes["failed_at"] = time.time()
        self._change(**changes)

    def _change(self, **changes: Any) -> None:
        assert self._state is not None
        changed = self._state._replace(**changes)
        if changed != self._state:
            self._state = changed._replace(reported_at=time.time())

    async def _save_numbers(self) -> None:
        """Save what has changed: at once if it is more than numbers."""
        state, saved = self._state, self._saved
        assert state is not None
        is_news = saved is None or (state.status, state.error) != (saved.status, saved.error)
        if is_news or time.monotonic() - self._saved_at >= SAVE_S:
            await self._save()

    async def _save(self) -> None:
        state = self._state
        if state is not None and state != self._saved:
            await self._stored(self._documents.save, self._definition, state)
            self._saved, self._saved_at = state, time.monotonic()

    async def _stored(self, call: Callable[..., T], *arguments: Any) -> T:
        """Call the store in a thread, again as long as it is not available. Raises other StoreErrors."""
        while True:
            try:
                return await asyncio.to_thread(call, *arguments)
            except StoreUnavailableError as error:
                self._log.warning("source_store_failed", reason=str(error))
                await asyncio.sleep(STORE_PAUSE_S)


async def _end(child: Process, note: Callable[[dict[str, Any]], None]) -> None:
    """End a child, note its last reports, and free its entry in the process table. At once when it is cancelled."""
    assert child.stdout is not None
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TERM_S):
                async for line in child.stdout:
                    if "failed" not in (report := json.loads(line)):
                        note(report)
                await child.wait()
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def _numbers_of(report: dict[str, Any], before: SourceState) -> dict[str, Any]:
    """Return the numbers of a report, which count from the start of the child, as those of a state."""
    numbers = {name: getattr(before, name) + report[name] for name in ("records", "skipped", "points")}
    for name in ("lag_records", "lag_s"):
        numbers[name] = report[name]
    if report["last_stored_at"] is not None:
        numbers["last_stored_at"] = report["last_stored_at"]
    return numbers


def _words_of(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
