"""Pieces of rounds that processes compute for one another: one stream learnt by several processes.

A stream with partitions is learnt by the holder of its lease alone: it applies the log, writes checkpoints and
publishes. Other processes only compute for it. A piece of a round is a function of its task (`shoal.partitions`), has
the same bits wherever it is computed, and leaves nothing behind. So it can neither fork the stream nor lose anything. A
helper that dies, stalls or answers late costs time only.

    learner                          helper
    offer PIECE       ->  to all     one that has nothing to do claims it
                      <-             claim PIECE
    task PIECE, bytes ->             or `gone`, if it is no longer offered
                      <-             answer PIECE, bytes of the result, none if it cannot compute the piece

Meanwhile the learner computes pieces of its own, then takes back those that nobody has claimed. For a claimed one it
waits within a limit, and then computes it itself. Ids of pieces are unique, and the learner alone decides who gets
one: an answer that comes late is dropped. Messages may be lost; the store keeps none.

Measured times decide where a piece is computed. They do not change its result.

Here is the side of the learner. `piece_helper` is the other one.
"""

import math
import threading
import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from shoal.errors import ShoalError
from shoal_service.settings import Settings
from shoal_service.store import ProcessMessages
from shoal_service.streams.shared.piece_helper import PieceHelper
from shoal_service.streams.shared.piece_messages import Buffer, PieceCounters, PieceMessages, channel_of

if TYPE_CHECKING:
    from shoal.partitions import PieceResult, PieceTask

LEAST_WORK_S = 0.003
"""A piece that takes less is not offered: five messages take a millisecond or two."""
MOST_BYTES = 16 << 20
"""Largest piece that is offered, in bytes. Redis cuts off a subscriber for which 32 MiB wait."""
LEAST_WAIT_S, WAIT_FACTOR = 0.25, 4.0
"""Longest wait for a piece that was claimed: this many times what the piece would take here, but at least so long."""
LEAST_GAIN = 1.05
"""Offers must make a call this much faster than it would be alone."""
PAUSE_S, MAX_PAUSE_S = 1.0, 60.0
"""Pause after a call whose offers did not pay. It doubles with each in a row."""


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


class PieceSharing:
    """The pieces that one process offers to others, and its help for them, between `start` and `close`."""

    def __init__(self, messages: ProcessMessages, settings: Settings, log: Any) -> None:
        self.counters = PieceCounters()
        self.threads = settings.piece_threads
        """Pieces that this process computes at the same time."""
        self.others = 1
        """Processes that got the last offer, at least one."""
        self._log = log
        self._messages = PieceMessages(messages, log)
        self._helper = PieceHelper(self._messages, self.counters, log)
        self._lock = threading.Lock()
        self._offers: dict[str, _Offer] = {}

    def start(self) -> None:
        """Begin to offer, and to help others. Does not wait for the store."""
        from shoal.partitions import pieces_version
        from shoal.runtime.threads import n_cores

        self.threads = self.threads or n_cores()
        self._helper.start()
        handlers = {
            "offer": self._helper.on_offer,
            "claim": self._on_claim,
            "gone": self._helper.on_gone,
            "task": self._helper.on_task,
            "answer": self._on_answer,
        }
        self._messages.listen(pieces_version(), handlers, self._helper.on_missed)

    def close(self, timeout_s: float) -> bool:
        """Help nobody any more. True when nothing is computed for others any more."""
        return self._helper.close(timeout_s)

    def runner(self) -> "StreamPieces":
        """A `PieceRunner` for the learner of one stream."""
        return StreamPieces(self)

    # -- the learners of this process

    def begin(self) -> None:
        """A learner begins to compute pieces of its own: this process helps nobody meanwhile."""
        self._helper.pause()

    def end(self) -> None:
        """It has all of them."""
        self._helper.resume()

    def offer(self, tasks: Sequence["PieceTask"], first: int) -> list[_Offer]:
        """Offer tasks, the first of which has place `first`. Ends early where no other process listens."""
        offers: list[_Offer] = []
        try:
            for place, task in enumerate(tasks, start=first):
                each = _Offer(place, task)
                with self._lock:
                    self._offers[each.id] = each
                offers.append(each)
                n_listening = self._messages.send(self._messages.everyone, "offer", each.id)
                self.others = max(1, n_listening - 1)
                if n_listening < 2:  # this process alone, or the store does not answer
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
        """Withdraw offers, however they ended."""
        for each in offers:
            with each.sending:
                each.state = "withdrawn"
            with self._lock:
                del self._offers[each.id]

    # -- the thread of messages

    def _on_claim(self, piece: str, process: str, _: Buffer) -> None:
        """A process wants to compute a piece of this one."""
        from shoal.partitions import task_to_buffers

        with self._lock:
            offer = self._offers.get(piece)
        if offer is not None:
            with offer.sending:
                if offer.state == "offered":
                    offer.state = "claimed"
                    if not self._messages.send(channel_of(process), "task", piece, *task_to_buffers(offer.task)):
                        offer.ended.set()
                    return
        self._messages.send(channel_of(process), "gone", piece)

    def _on_answer(self, piece: str, _: str, result: Buffer) -> None:
        """The result of a piece of this process, empty where it could not be computed."""
        with self._lock:
            offer = self._offers.get(piece)
        if offer is not None:
            offer.result = result if len(result) else None
            offer.ended.set()


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


def _bytes_of(task: "PieceTask") -> int:
    """Bytes of the largest arrays of a task."""
    from shoal.points.rows import rows_bytes
    from shoal.points.weighted_rows import unweighted

    partition = task.partition
    fields = (*partition.stats, *(partition.cache or ()), partition.pairs)
    return rows_bytes(unweighted(task.rows)) + sum(int(field.nbytes) for field in fields)
