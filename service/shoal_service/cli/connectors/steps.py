"""Loop of a connector: read records in order, send them as steps, go on from the stored position.

The stored position is the truth. A step that the server refuses means that another one is stored, by this process
before a crash or by another one. The reader then begins there, and what it had read meanwhile is read again.
"""

import random
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from shoal_service.cli.connectors.progress import Lag, Progress
from shoal_service.cli.exits import CommandError

if TYPE_CHECKING:
    from shoal_service.client import Client, Records

PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0
"""First and longest pause after an error that may pass."""


class SourceAwayError(Exception):
    """The source cannot be read now. The connector tries again."""


OTHER_SOURCE = "choose another --source, or forget the position (shoal sources forget SOURCE)"
"""What to do where the stored position is one of another source."""


def not_a_position(position: str, what: str) -> CommandError:
    """The error for a stored position that is not what a source stores: one of another kind of source."""
    return CommandError(f"the stored position is {position!r}, which is no {what}; {OTHER_SOURCE}")


def password_refused(error: Exception) -> CommandError:
    """The error for an address of Redis whose password is wrong or missing."""
    return CommandError(f"redis refused the password: {error}; give redis://user:password@host:port")


class PositionsNeededError(Exception):
    """The source was given other partitions. The reader must begin at their stored positions."""


class Step(NamedTuple):
    """Records of one partition that follow each other."""

    partition: str
    after: str
    """Position behind them."""
    points: "Records | None"
    """None when none of the records can be used."""
    n_records: int
    n_bad: int = 0


class SourceReader(Protocol):
    """A source, read in order. Methods raise SourceAwayError when another try may help, and CommandError otherwise."""

    ended: bool
    """Whether no record will follow."""
    lag: Lag

    def begin(self, positions: Mapping[str, str]) -> None:
        """Read on from the stored positions, by partition. A partition without one is read from its start."""

    def read(self) -> Step | None:
        """Return the next records, or None when none come within a second or so."""

    def stored(self, step: Step) -> None:
        """Take note that the records of a step are in the log of the stream."""

    def close(self) -> None:
        """Release the source."""


class _Outcome(Enum):
    STORED = "stored"
    EMPTY = "empty"
    """None of its points could be used, or the connector stops."""
    REFUSED = "refused"
    """Another position is stored."""


class Connector:
    """One source and one stream."""

    def __init__(
        self,
        client: "Client",
        reader: SourceReader,
        source: str,
        progress: Progress,
        log: Any,
        *,
        create: bool = False,
        may_be_missing: bool = False,
        skip_bad: bool = False,
        holes: bool = False,
        known: Mapping[str, str] | None = None,
        incarnation: str | None = None,
        definition: str | None = None,
    ) -> None:
        """`create`: create the stream if needed. `may_be_missing`: the first batch makes it. `skip_bad`: skip points
        that the server refuses. `holes`: NaN stands for a missing value. `known`: positions that were stored before, by
        partition. With them, `run` raises CommandError when a position is forgotten, and never begins again.
        `incarnation`: the only one of the stream that is sent to. `definition`: as for `Client.ingest_step`.
        """
        self._client, self._reader, self._source = client, reader, source
        self._progress, self._log = progress, log
        self._create, self._may_be_missing = create, may_be_missing
        self._skip_bad, self._holes = skip_bad, holes
        self._incarnation, self._definition = incarnation, definition
        self._pause_s = PAUSE_S
        self._ends_when_forgotten = known is not None
        self._at: dict[str, str] = dict(known or {})
        self._stop = threading.Event()

    def stop(self) -> None:
        """End after the step that is being sent. Safe in a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Read and send until the source ends or `stop` is called. Raises ShoalClientError and CommandError."""
        with ThreadPoolExecutor(1, "shoal-connect-sender") as sender:
            try:
                while not self._stop.is_set() and not self._round(sender):
                    pass
            finally:
                self._stop.set()  # a sender that waits for the server gives up

    def _round(self, sender: ThreadPoolExecutor) -> bool:
        """Begin at the stored positions, and read until the source ends (True), is away, or another one is stored."""
        if not self._begin():
            return False
        sending: tuple[Step, Future[_Outcome]] | None = None
        while True:
            step = None if self._stop.is_set() else self._read()
            if sending is not None:
                sent, outcome = sending[0], sending[1].result()
                sending = None
                if outcome is _Outcome.REFUSED:
                    return False
                if outcome is _Outcome.STORED:
                    self._at[sent.partition] = sent.after
                    self._try(lambda sent=sent: self._reader.stored(sent))
            if isinstance(step, SourceAwayError):
                self._rest()
                return False
            if isinstance(step, PositionsNeededError):
                return False
            self._pause_s = PAUSE_S
            if step is None:
                if self._stop.is_set() or self._reader.ended:
                    return True
                self._progress.works()
                self._progress.read(0, self._reader.lag)
                continue
            self._progress.read(step.n_records, self._reader.lag)
            self._progress.skipped(step.n_bad)
            if step.points is not None:
                sending = step, sender.submit(self._send, step)

    def _begin(self) -> bool:
        """Seek to the stored positions, as soon as server and source answer. False when the connector stops first."""
        from shoal_service.client import NotFoundError

        try:
            known = self._with_retries(self._client.sources)
        except NotFoundError:
            if not self._may_be_missing:
                raise
            known = []
        if known is None:
            return False
        found = {one.partition: one.position for one in known if one.source == self._source}
        if self._ends_when_forgotten and (gone := sorted(self._at.keys() - found.keys())):
            raise CommandError(f"the position of partition {gone[0]!r} was forgotten")
        self._at = found
        if self._try(lambda: self._reader.begin(self._at)) is not None:
            self._rest()
            return False
        self._log.info("reading", source=self._source, positions=self._at)
        return True

    def _read(self) -> "Step | SourceAwayError | PositionsNeededError | None":
        found: list[Step | None] = []
        try:
            error = self._try(lambda: found.append(self._reader.read()))
        except PositionsNeededError as needed:
            return needed
        return found[0] if error is None else error

    def _rest(self) -> None:
        """Wait before the source is tried again, longer each time."""
        self._stop.wait(self._pause_s)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _try(self, work: Any) -> SourceAwayError | None:
        """Call the source. Returns its error when it is away."""
        try:
            work()
        except SourceAwayError as error:
            self._progress.source_errors.inc()
            self._progress.fails(f"the source cannot be read: {error}")
            self._log.warning("source_away", source=self._source, reason=str(error))
            return error
        return None

    def _send(self, step: Step) -> _Outcome:
        """Send a step until it is stored or refused. Runs in the thread of the sender, one step at a time."""
        from shoal_service.client import ConflictError, ShoalClientError

        points = step.points
        while points is not None and len(points.points):
            try:
                result = self._with_retries(
                    lambda points=points: self._client.ingest_step(
                        points,
                        source=self._source,
                        partition=step.partition,
                        before=self._at.get(step.partition),
                        after=step.after,
                        create=self._create,
                        holes=self._holes,
                        incarnation=self._incarnation,
                        definition=self._definition,
                    )
                )
            except ConflictError as error:
                if error.type != "source-position":
                    raise
                self._progress.refused.inc()
                self._log.warning("position_moved", partition=step.partition, stored=error.position, reason=str(error))
                return _Outcome.REFUSED
            except ShoalClientError as error:
                if error.row is None or not self._skip_bad:
                    raise
                self._progress.skipped(1)
                self._log.warning("bad_record", partition=step.partition, reason=error.detail)
                points = _without(points, error.row)
                continue
            if result is None:
                return _Outcome.EMPTY
            self._progress.stored(0 if result.replayed else result.accepted)
            self._progress.works()
            return _Outcome.STORED
        return _Outcome.EMPTY

    def _with_retries(self, ask: Any) -> Any:
        """Ask the server until it answers. None when the connector stops first. Raises errors that do not pass."""
        from shoal_service.client import ShoalClientError

        pause = PAUSE_S
        while True:
            try:
                return ask()
            except ShoalClientError as error:
                if not error.retryable:
                    raise
                self._progress.server_errors.inc()
                self._progress.fails(f"the server does not answer: {error}")
                self._log.warning("server_away", reason=str(error))
            if self._stop.wait(pause * random.uniform(0.5, 1.0)):
                return None
            pause = min(2 * pause, LONGEST_PAUSE_S)


def _without(points: "Records", row: int) -> "Records":
    kept = np.delete(np.arange(len(points.points)), row)
    fields = {
        name: None if (values := getattr(points, name)) is None else [values[i] for i in kept.tolist()]
        for name in ("keys", "times", "payloads", "weights")
    }
    return replace(points, points=points.points[kept], **fields)
