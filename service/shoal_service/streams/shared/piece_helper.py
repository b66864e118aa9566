"""The side of a helper: it claims pieces that other processes offer, and computes them. `pieces` has the protocol."""

import queue
import threading
import time
from collections import deque
from typing import Any, NamedTuple

from shoal_service.errors import NotReadyError
from shoal_service.streams.engines import load_engines
from shoal_service.streams.shared.piece_messages import Buffer, PieceCounters, PieceMessages, channel_of

CLAIM_S = 1.0
"""Longest wait of a helper for the task that it has claimed, and life of an offer."""


class _Offered(NamedTuple):
    """An offer of another process."""

    piece: str
    process: str
    until: float
    """When it ends (monotonic clock)."""


class _Claim(NamedTuple):
    """A piece that this process has claimed."""

    piece: str
    until: float
    """How long its task is waited for (monotonic clock)."""


class _Job(NamedTuple):
    """A task of another process."""

    piece: str
    process: str
    task: Buffer


class PieceHelper:
    """Computes pieces for other processes, one at a time, while no stream of this process computes any."""

    def __init__(self, messages: PieceMessages, counters: PieceCounters, log: Any) -> None:
        self._messages = messages
        self._counters = counters
        self._log = log
        self._lock = threading.Lock()
        self._busy = 0  # calls of this process's own streams
        self._offered: deque[_Offered] = deque(maxlen=64)
        self._claimed: _Claim | None = None
        self._computing = False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="shoal-pieces", daemon=True)

    def start(self) -> None:
        """Begin to help."""
        self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Help nobody any more. True when nothing is computed for others any more."""
        self.pause()
        self._jobs.put(None)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def pause(self) -> None:
        """Claim nothing until `resume`."""
        with self._lock:
            self._busy += 1

    def resume(self) -> None:
        """Help again, once every `pause` has its `resume`."""
        with self._lock:
            self._busy -= 1
        self._claim()

    # -- the thread of messages

    def on_offer(self, piece: str, process: str, _: Buffer) -> None:
        """A process offers a piece."""
        with self._lock:
            self._offered.append(_Offered(piece, process, time.monotonic() + CLAIM_S))
        self._claim()

    def on_gone(self, piece: str, _: str, __: Buffer) -> None:
        """A piece that was claimed is no longer offered."""
        with self._lock:
            if self._claimed is not None and self._claimed.piece == piece:
                self._claimed = None
        self._claim()

    def on_task(self, piece: str, process: str, task: Buffer) -> None:
        """The task of a piece that was claimed. One that comes too late is computed by its sender."""
        with self._lock:
            if self._claimed is None or self._claimed.piece != piece:
                return
            self._claimed, self._computing = None, True
        self._jobs.put(_Job(piece, process, task))

    def on_missed(self) -> None:
        """Messages may have been lost: the task that is waited for may be one of them."""
        with self._lock:
            self._claimed = None

    # -- any thread

    def _claim(self) -> None:
        """Claim the oldest offer, if this process has nothing to do."""
        now = time.monotonic()
        with self._lock:
            if self._busy or self._computing or (self._claimed is not None and now < self._claimed.until):
                return
            while self._offered and self._offered[0].until < now:
                self._offered.popleft()
            if not self._offered:
                return
            offer = self._offered.popleft()
            self._claimed = _Claim(offer.piece, now + CLAIM_S)
        self._messages.send(channel_of(offer.process), "claim", offer.piece)

    # -- the thread that computes

    def _run(self) -> None:
        load_engines()
        while (job := self._jobs.get()) is not None:
            result = self._result(job)
            with self._lock:
                self._computing = False
                self._counters.computed_for_others += bool(result)
            self._messages.send(channel_of(job.process), "answer", job.piece, result)
            self._claim()

    def _result(self, job: _Job) -> bytes:
        """The bytes of a result; none where the piece cannot be computed here."""
        try:
            return compute_piece(job.task)
        except Exception as error:  # noqa: BLE001 - its own process computes it, and meets the error if it is the piece's
            self._log.warning("piece_refused", reason=f"{type(error).__name__}: {error}")
            return b""


def compute_piece(task: Buffer) -> bytes:
    """The result of a task, both as bytes. NotReadyError while kernels are being compiled; errors of the library."""
    from shoal.partitions import learnt_piece, result_to_bytes, task_from_bytes, working_state
    from shoal.runtime.blas import one_blas_thread
    from shoal.sequential import kernels_ready

    piece = task_from_bytes(task)
    if not kernels_ready(working_state(piece.context, piece.partition, piece.low)):
        raise NotReadyError("kernels of the stream are being compiled")
    with one_blas_thread:
        return result_to_bytes(learnt_piece(piece))
