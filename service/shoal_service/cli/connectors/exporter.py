"""Export of the events of a stream to a sink, from the event that the sink has last."""

import queue
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from shoal_service.cli.connectors.sinks import Row, Sink
from shoal_service.cli.connectors.steps import LONGEST_PAUSE_S, PAUSE_S, SourceAwayError
from shoal_service.cli.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from shoal_service.client import Client, StreamEvent

MOST, GATHER_S = 500, 0.2
"""Most events of one write, and the time to gather them."""
QUIET_S = 2.0
"""Time without events after which the newest one has come."""
GIVE_UP_S = 30.0
"""Without `follow`, time after which a sink that does not answer is an error."""
ASSIGNMENT = "assignment"
"""Kind of the row of a record that may belong to another component."""
_MOVING = frozenset(("merged", "pruned", "returned", "split", "restored", "adopted"))
"""Kinds of events after which records may belong elsewhere."""


class Exporter:
    """One stream and one sink."""

    def __init__(self, client: "Client", sink: Sink, log: Any, *, assignments: bool, follow: bool) -> None:
        """`assignments`: also write the records that may belong elsewhere. `follow`: wait for further events, and for
        the server and the sink while they are away.
        """
        self._client, self._sink, self._log = client, sink, log
        self._assignments, self._follow = assignments, follow
        self._stop = threading.Event()
        self._read: queue.SimpleQueue[StreamEvent | Exception | None] = queue.SimpleQueue()
        """Events in order, and at the end an error, or None once the stream is deleted."""
        self._known_stream = ""
        """Name of the stream whose events the sink has. Empty if it has none, or does not say."""
        self.written = 0
        """Rows that the sink has."""

    def stop(self) -> None:
        """End after the rows that are being written. Safe in a signal handler."""
        self._stop.set()

    def run(self, reader: "Client") -> None:
        """Write until `stop`, until the stream is deleted, or until no event comes. `reader` is a client for the thread
        that reads events. Raises ShoalClientError and CommandError.
        """
        stored = self._with_retries(self._sink.position)
        position, _, self._known_stream = (stored or "").partition(" ")
        threading.Thread(target=self._read_events, args=(reader, position or "0"), daemon=True).start()
        quiet_since = time.monotonic()
        while not self._stop.is_set():
            events = self._gather()
            if events:
                self._write(events, position or None)
                position, quiet_since = events[-1].id or position, time.monotonic()
            elif events is None or (not self._follow and time.monotonic() - quiet_since > QUIET_S):
                return

    def _read_events(self, reader: "Client", after: str) -> None:
        from shoal_service.client import NotFoundError, ShoalClientError

        pause, answered = PAUSE_S, threading.Event()
        while not self._stop.is_set():
            try:
                for event in reader.events(after, on_connect=answered.set):
                    self._read.put(event)
                    after, pause = event.id or after, PAUSE_S
            except NotFoundError as error:
                self._read.put(None if answered.is_set() else error)  # deleted meanwhile, or a wrong name
                return
            except Exception as error:  # noqa: BLE001 - raised in the thread that writes
                if not (self._follow and isinstance(error, ShoalClientError) and error.retryable):
                    self._read.put(error)
                    return
                pause = self._rest("server_away", error, pause)

    def _gather(self) -> "list[StreamEvent] | None":
        """Return the next events, none if no event comes, or None if none can follow."""
        found: list[StreamEvent] = []
        until = time.monotonic() + GATHER_S
        while len(found) < MOST and (left := until - time.monotonic()) > 0:
            try:
                event = self._read.get(timeout=left)
            except queue.Empty:
                break
            if event is None or isinstance(event, Exception):
                if found:
                    self._read.put(event)
                    break
                if event is None:
                    return None
                raise event
            found.append(event)
        return found

    def _write(self, events: "Sequence[StreamEvent]", before: str | None) -> None:
        name = str(events[-1].raw.get("stream") or "")
        if self._known_stream not in ("", name):
            raise CommandError(
                f"the sink has the events of stream {self._known_stream!r}, and these are of {name!r}; give each "
                "stream a key, a folder or a --state file of its own"
            )
        rows = [Row(event.id, event.kind, event.raw) for event in events]
        if self._assignments and any(event.kind in _MOVING for event in events):
            rows += self._with_retries(lambda: self._changed(before, events[-1].id)) or []
        if self._stop.is_set():
            return
        position = f"{events[-1].id} {name}".rstrip()
        self._with_retries(lambda: self._sink.write(rows, position))
        if not self._stop.is_set():
            self.written += len(rows)

    def _changed(self, before: str | None, last: str) -> list[Row]:
        """Return the records that may belong elsewhere since an event. All of them if it is no longer known."""
        from shoal_service.client import InvalidRequestError

        try:
            found = self._client.changed_records(before)
        except InvalidRequestError:
            found = self._client.changed_records(None)
        return [
            Row(last, ASSIGNMENT, {"key": one.key, "component": one.component, "log_offset": one.log_offset})
            for one in found
        ]

    def _with_retries(self, work: Any) -> Any:
        """Do what needs the server or the sink. While one is away, try again: with `follow` until `stop`, when this
        returns None, otherwise for `GIVE_UP_S`.
        """
        from shoal_service.client import ShoalClientError

        pause, until = PAUSE_S, time.monotonic() + GIVE_UP_S
        while not self._stop.is_set():
            try:
                return work()
            except SourceAwayError as error:
                if not self._follow and time.monotonic() >= until:
                    raise CommandError(
                        f"the sink does not answer ({error}); run the command again when it does, or let it wait for "
                        "the sink with --follow",
                        ExitCode.UNREACHABLE,
                    ) from error
                pause = self._rest("sink_away", error, pause)
            except ShoalClientError as error:
                if not (self._follow and error.retryable):
                    raise
                pause = self._rest("server_away", error, pause)
        return None

    def _rest(self, what: str, error: Exception, pause: float) -> float:
        """Wait before another try. Returns the next pause."""
        self._log.warning(what, reason=str(error))
        self._stop.wait(pause)
        return min(2 * pause, LONGEST_PAUSE_S)
