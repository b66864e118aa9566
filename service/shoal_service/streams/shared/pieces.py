"""Pieces of rounds that processes compute for one another: one stream learnt by several processes.

A stream with partitions is learnt by the holder of its lease alone: it applies the log, checkpoints and publishes as
ever. What others may do for it is compute. A piece of a round is a function of its task (`shoal.partitions`), has the
same bits wherever it is computed, and leaves nothing behind. So neither a fork nor a loss can come of it. A helper that
dies, stalls or answers late costs time only.

    learner                          helper
    offer PIECE       ->  to all     one that has nothing to do claims it
                      <-             claim PIECE
    task PIECE, bytes ->             or `gone`, if it is no longer to be had
                      <-             answer PIECE, bytes of the result, none if it cannot compute the piece

Meanwhile the learner computes pieces of its own, then takes back those that nobody has claimed. For a claimed one it
waits within a limit, and then computes it itself. Ids of pieces are unique, and the learner alone decides who gets
one: what comes late is for nobody. Messages may be lost; nothing of them is kept in the store.

Where a piece is computed follows from measured times. They decide nothing of what comes of it.
"""

import math
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from shoal.errors import ShoalError
from shoal_service.errors import NotReadyError, StoreError
from shoal_service.settings import Settings
from shoal_service.store import ProcessMessages
from shoal_service.streams.engines import load_engines

if TYPE_CHECKING:
    from shoal.partitions import PieceResult, PieceTask

Buffer = bytes | memoryview

LEAST_WORK_S = 0.003
"""A piece that takes less is computed at home: five messages take a millisecond or two."""
MOST_BYTES = 16 << 20
"""Largest piece that is offered, in bytes. Redis cuts off a subscriber for which 32 MiB wait."""
LEAST_WAIT_S, WAIT_FACTOR = 0.25, 4.0
"""Longest wait for a piece that was claimed: this many times what the piece would take here, but at least so long."""
LEAST_GAIN = 1.05
"""Offers must make a call this much faster than it would be alone."""
PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
"""Pause after a call whose offers did not pay. It doubles with each in a row."""
CLAIM_S = 1.0
"""Longest wait of a helper for the task that it has claimed, and life of an offer."""


@dataclass
class PieceCounters:
    """Counters of the pieces of a process since it started."""

    sent: int = 0
    """Pieces that it offered to other processes."""
    answered: int = 0
    """Of those, the ones whose results came from another process."""
    taken_back: int = 0
    """Of those, the ones that nobody claimed."""
    lost: int = 0
    """Of those, the ones that were claimed, and whose result did not come in time."""
    computed_for_others: int = 0
    """Pieces that it computed for other processes."""


class _Offer:
    """A piece that was offered, until its learner has a result."""

    def __init__(self, place: int, task: "PieceTask") -> None:
        self.id = uuid.uuid4().hex
        self.place = place
        """Among the tasks of the call."""
        self.task = task
        self.state: Literal["offered", "claimed", "withdrawn"] = "offered"
        self.sending = threading.Lock()
        """Guards `state`, and the task while its bytes are sent."""
        self.ended = threading.Event()
        self.result: Buffer | None = None


class _Job(NamedTuple):
    """A task of another process."""

    piece: str
    process: str
    task: Buffer


class PieceSharing:
    """What one process offers to others and does for them, between `start` and `close`."""

    def __init__(self, messages: ProcessMessages, settings: Settings, log: Any) -> None:
        self.counters = PieceCounters()
        self.threads = settings.piece_threads
        """Pieces that this process computes at the same time."""
        self.others = 1
        """Processes that got the last offer, at least one."""
        self._messages = messages
        self._log = log
        self._me = uuid.uuid4().hex
        self._everyone = ""
        self._lock = threading.Lock()
        self._offers: dict[str, _Offer] = {}
        self._busy = 0  # calls of this process's own streams
        self._seen: deque[tuple[str, str, float]] = deque(maxlen=64)  # offers of others, and until when they live
        self._claimed: tuple[str, float] | None = None  # and until when its task is waited for
        self._helping = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="shoal-pieces", daemon=True)

    def start(self) -> None:
        """Begin to offer, and to help others. Does not wait for the store."""
        from shoal.partitions import pieces_version
        from shoal.runtime.threads import n_cores

        self.threads = self.threads or n_cores()
        self._everyone = f"pieces:{pieces_version()}"  # processes of another version hear nothing of it
        self._thread.start()
        self._messages.listen((self._everyone, _channel(self._me)), self._on_message)

    def close(self, timeout_s: float) -> bool:
        """Help nobody any more. True when nothing is computed for others any more."""
        with self._lock:
            self._busy += 1
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def runner(self) -> "StreamPieces":
        """A `PieceRunner` for the learner of one stream."""
        return StreamPieces(self)

    # -- for the learners of this process

    def begin(self) -> None:
        """A learner begins to compute pieces of its own: this process helps nobody meanwhile."""
        with self._lock:
            self._busy += 1

    def end(self) -> None:
        """It has them all."""
        with self._lock:
            self._busy -= 1
        self._claim()

    def offer(self, tasks: Sequence["PieceTask"], first: int) -> list[_Offer]:
        """Offer tasks, the first of which has place `first`. The last ones are left out where nobody hears of them."""
        offers: list[_Offer] = []
        try:
            for place, task in enumerate(tasks, start=first):
                each = _Offer(place, task)
                with self._lock:
                    self._offers[each.id] = each
                offers.append(each)
                heard = self._send(self._everyone, "offer", each.id)
                self.others = max(1, heard - 1)
                if heard < 2:  # it alone, or the store does not answer
                    break
        except BaseException:
            self.forget(offers)
            raise
        with self._lock:
            self.counters.sent += len(offers)
        return offers

    def take_back(self, offer: _Offer) -> bool:
        """Take back an offer that nobody has claimed."""
        with offer.sending:
            free = offer.state == "offered"
            offer.state = "withdrawn" if free else offer.state
        with self._lock:
            self.counters.taken_back += free
        return free

    def result(self, offer: _Offer, until: float) -> "PieceResult | None":
        """The result of a piece that was claimed; None if none comes before `until` (monotonic clock)."""
        from shoal.partitions import result_from_bytes

        offer.ended.wait(max(0.0, until - time.monotonic()))
        with offer.sending:  # from now on the task may be written
            offer.state = "withdrawn"
        found = None
        if offer.result is not None:
            try:
                found = result_from_bytes(offer.result, offer.task)
            except ShoalError as error:
                self._log.warning("piece_not_read", reason=str(error))
        with self._lock:
            self.counters.answered += found is not None
            self.counters.lost += found is None
        return found

    def forget(self, offers: Sequence[_Offer]) -> None:
        """Let go of pieces, however they ended."""
        for each in offers:
            with each.sending:
                each.state = "withdrawn"
            with self._lock:
                del self._offers[each.id]

    # -- messages. Their thread calls these, one after another

    def _send(self, channel: str, kind: str, piece: str, *parts: Buffer) -> int:
        """The number of processes that got a message. 0 when the store does not answer."""
        try:
            return self._messages.send(channel, f"{kind} {piece} {self._me}\n".encode(), *parts)
        except StoreError as error:
            self._log.warning("piece_message_not_sent", kind=kind, reason=str(error))
            return 0

    def _on_message(self, message: bytes | None) -> None:
        if message is None:  # some were missed
            with self._lock:
                self._claimed = None
            return
        try:
            end = message.index(b"\n")
            kind, piece, process = message[:end].decode().split(" ")
            if process != self._me:
                {
                    "offer": self._on_offer,
                    "claim": self._on_claim,
                    "gone": self._on_gone,
                    "task": self._on_task,
                    "answer": self._on_answer,
                }[kind](piece, process, memoryview(message)[end + 1 :])
        except Exception:  # noqa: BLE001 - without this thread the process neither helps nor is helped: it goes on
            self._log.error("piece_message_failed", exc_info=True)

    def _on_claim(self, piece: str, process: str, _: Buffer) -> None:
        """A process wants to compute a piece of this one."""
        from shoal.partitions import task_to_buffers

        with self._lock:
            offer = self._offers.get(piece)
        if offer is not None:
            with offer.sending:
                if offer.state == "offered":
                    offer.state = "claimed"
                    if not self._send(_channel(process), "task", piece, *task_to_buffers(offer.task)):
                        offer.ended.set()
                    return
        self._send(_channel(process), "gone", piece)

    def _on_answer(self, piece: str, _: str, result: Buffer) -> None:
        with self._lock:
            offer = self._offers.get(piece)
        if offer is not None:
            offer.result = result if len(result) else None
            offer.ended.set()

    def _on_offer(self, piece: str, process: str, _: Buffer) -> None:
        with self._lock:
            self._seen.append((piece, process, time.monotonic() + CLAIM_S))
        self._claim()

    def _claim(self) -> None:
        """Claim the oldest offer, if this process has nothing to do."""
        now = time.monotonic()
        with self._lock:
            if self._busy or self._helping or (self._claimed is not None and now < self._claimed[1]):
                return
            while self._seen and self._seen[0][2] < now:
                self._seen.popleft()
            if not self._seen:
                return
            piece, process, _ = self._seen.popleft()
            self._claimed = piece, now + CLAIM_S
        self._send(_channel(process), "claim", piece)

    def _on_gone(self, piece: str, _: str, __: Buffer) -> None:
        with self._lock:
            if self._claimed is not None and self._claimed[0] == piece:
                self._claimed = None
        self._claim()

    def _on_task(self, piece: str, process: str, task: Buffer) -> None:
        with self._lock:
            if self._claimed is None or self._claimed[0] != piece:
                return  # too late: whoever sent it computes it itself
            self._claimed, self._helping = None, True
        self._jobs.put(_Job(piece, process, task))

    # -- the thread that computes for others

    def _run(self) -> None:
        load_engines()
        while (job := self._jobs.get()) is not None:
            result = self._computed(job)
            with self._lock:
                self._helping = False
                self.counters.computed_for_others += bool(result)
            self._send(_channel(job.process), "answer", job.piece, result)
            self._claim()

    def _computed(self, job: _Job) -> bytes:
        """The bytes of a result; none where the piece cannot be computed here."""
        try:
            return _computed(job.task)
        except Exception as error:  # noqa: BLE001 - its own process computes it, and meets the error if it is the piece's
            self._log.warning("piece_refused", reason=f"{type(error).__name__}: {error}")
            return b""


class StreamPieces:
    """The `PieceRunner` of one stream's learner."""

    def __init__(self, sharing: PieceSharing) -> None:
        self._sharing = sharing
        self._row_s = 0.0  # seconds that a row took in this process
        self._pause_s = PAUSE_S
        self._paused_until = float("-inf")

    def __call__(self, tasks: Sequence["PieceTask"]) -> "list[PieceResult]":
        """See `PieceRunner`."""
        sharing = self._sharing
        sharing.begin()
        try:
            n_own = len(tasks) - self._n_to_offer(tasks)
            if n_own == len(tasks):
                return self._computed_here(tasks)
            return self._shared(tasks, n_own)
        finally:
            sharing.end()

    def _n_to_offer(self, tasks: Sequence["PieceTask"]) -> int:
        """How many of the tasks, the last ones, are worth offering."""
        threads, others = self._sharing.threads, self._sharing.others
        if len(tasks) <= threads or time.monotonic() < self._paused_until:
            return 0
        n = min(len(tasks) - threads, math.ceil(len(tasks) * others / (others + threads)))
        offered = tasks[len(tasks) - n :]
        worth = all(self._row_s * len(task.rows) > LEAST_WORK_S and _bytes_of(task) <= MOST_BYTES for task in offered)
        return n if worth else 0

    def _shared(self, tasks: Sequence["PieceTask"], n_own: int) -> "list[PieceResult]":
        """Offer all but the first tasks, and compute those and what nobody claims."""
        sharing, began = self._sharing, time.perf_counter()
        offers = sharing.offer(tasks[n_own:], n_own)
        try:
            own = sorted(set(range(len(tasks))) - {each.place for each in offers})
            found = dict(zip(own, self._computed_here([tasks[place] for place in own]), strict=True))
            claimed = []
            for each in reversed(offers):  # helpers begin with the first
                if sharing.take_back(each):
                    found[each.place] = self._computed_here([each.task])[0]
                else:
                    claimed.append(each)
            most_rows = max((len(each.task.rows) for each in claimed), default=0)
            until = time.monotonic() + max(LEAST_WAIT_S, WAIT_FACTOR * self._row_s * most_rows)
            for each in reversed(claimed):  # all are being computed, at the same time
                result = sharing.result(each, until)
                found[each.place] = self._computed_here([each.task])[0] if result is None else result
        finally:
            sharing.forget(offers)
        alone_s = self._row_s * sum(len(task.rows) for task in tasks) / sharing.threads
        self._note(pays=alone_s > LEAST_GAIN * (time.perf_counter() - began))
        return [found[place] for place in range(len(tasks))]

    def _note(self, *, pays: bool) -> None:
        """Pause after offers that did not pay."""
        if pays:
            self._pause_s = PAUSE_S
        else:
            self._paused_until = time.monotonic() + self._pause_s
            self._pause_s = min(2.0 * self._pause_s, MAX_PAUSE_S)

    def _computed_here(self, tasks: Sequence["PieceTask"]) -> "list[PieceResult]":
        """Compute pieces in threads of this process, and note what a row takes."""
        from shoal.partitions import in_threads, in_turn

        results: list[PieceResult] = []
        threads = self._sharing.threads
        for first in range(0, len(tasks), threads):
            some, began = tasks[first : first + threads], time.perf_counter()
            results += in_threads(some) if threads > 1 else in_turn(some)
            self._row_s = (time.perf_counter() - began) / max(len(task.rows) for task in some)
        return results


def _channel(process: str) -> str:
    return f"pieces:{process}"


def _computed(task: Buffer) -> bytes:
    """The result of a task, both as bytes. NotReadyError while kernels are being compiled; errors of the library."""
    from shoal.partitions import learnt_piece, result_to_bytes, task_from_bytes, working_state
    from shoal.runtime.blas import one_blas_thread
    from shoal.sequential import kernels_ready

    piece = task_from_bytes(task)
    if not kernels_ready(working_state(piece.context, piece.part, piece.low)):
        raise NotReadyError("kernels of the stream are being compiled")
    with one_blas_thread:
        return result_to_bytes(learnt_piece(piece))


def _bytes_of(task: "PieceTask") -> int:
    """Bytes of the largest arrays of a task."""
    from shoal.points.rows import rows_bytes
    from shoal.points.weighted_rows import unweighted

    part = task.part
    fields = (*part.stats, *(part.cache or ()), part.pairs)
    return rows_bytes(unweighted(task.rows)) + sum(int(field.nbytes) for field in fields)
