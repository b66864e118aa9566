"""Runtime of a process: the parts that its role needs, and their start and end.

Over a store of its own, one process learns, refines and answers requests. Over a shared store the parts meet in the
store alone, in one process or in several: a process that answers requests keeps replicas, a process that learns holds
leases and may refine beside that, and a process that only refines asks the leaders for states.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shoal_service.errors import StoreUnavailableError
from shoal_service.settings import Settings
from shoal_service.store import MessagingStore, ReaderRequest, SharedStore, Store, StreamRecord
from shoal_service.streams.dead_letter_service import DeadLetterService
from shoal_service.streams.engines import load_engines
from shoal_service.streams.known_streams import KnownStreams
from shoal_service.streams.learner import Learner
from shoal_service.streams.recent_points import RecentPointsService
from shoal_service.streams.record_service import RecordService
from shoal_service.streams.refinement import RefinementService, RefinementWorker
from shoal_service.streams.registry import StreamRegistry
from shoal_service.streams.shared import LeaseManager, PieceSharing, ReplicaManager, state_from_leader
from shoal_service.streams.source_service import SourceService
from shoal_service.streams.sources import SourceRunner
from shoal_service.streams.stream_tasks import LearntStream
from shoal_service.streams.webhook_service import WebhookService
from shoal_service.streams.webhooks import WebhookDocuments, WebhookSender

REFINER_CLOSE_S = 2.0
"""Longest wait for the refining thread to end. Its child is killed."""
PIECES_CLOSE_S = 2.0
"""Longest wait for a piece that is computed for another process. That one computes it itself."""
SENDER_CLOSE_S = 2.0
"""Longest wait for the sender of webhooks to end. What it was sending is sent again after the next start."""
SOURCES_CLOSE_S = 5.0
"""Longest wait for the children of sources to end. What they have read and not sent is read again."""
WEBHOOKS_CHANGED, SOURCES_CHANGED = "webhooks", "sources"
"""Requests to the leader of a stream to read its webhooks, or its configured sources, again."""


class Runtime:
    """The parts of one process. `start` and `close` block."""

    def __init__(
        self, store: Store, settings: Settings, log: Any, child_socket: Callable[[], str] | None = None
    ) -> None:
        """`child_socket` gives the path of the Unix socket at which this process answers the children that run
        sources. None: it runs none.
        """
        self._store = store
        self._log = log
        self.replicas: ReplicaManager | None = None
        self.leases: LeaseManager | None = None
        self.refiner: RefinementWorker | None = None
        self.pieces: PieceSharing | None = None
        self.known = self._shared(store, settings) if isinstance(store, SharedStore) else self._alone(settings)
        self.streams = StreamRegistry(self.known)
        self.refinements = RefinementService(store, self.known, self._notify)
        self.dead_letters = DeadLetterService(store, self.known)
        learns = settings.role in ("all", "learner")
        self.source_runner: SourceRunner | None = None
        if learns and settings.source_processes and child_socket is not None:
            self.source_runner = SourceRunner(store, settings, log, self._all_learnt, child_socket)
        self.sources = SourceService(store, settings, self.known, partial(self._announce, SOURCES_CHANGED))
        self.webhook_sender = WebhookSender(store, settings, log, self._learnt) if learns else None
        self.webhooks = WebhookService(store, settings, self.known, partial(self._announce, WEBHOOKS_CHANGED))
        self.records = RecordService(self.known)
        self.recent_points = RecentPointsService(store, self.records)

    def _alone(self, settings: Settings) -> KnownStreams:
        refiner = self.refiner = RefinementWorker(
            self._store, settings, self._log, lambda *stream: self.known.state_of(*stream), alone=True
        )
        return KnownStreams(self._store, settings, self._log, notify_refiner=refiner.notify)

    def _shared(self, store: SharedStore, settings: Settings) -> KnownStreams:
        if settings.share_pieces and settings.role != "api" and isinstance(store, MessagingStore):
            self.pieces = PieceSharing(store.messages, settings, self._log)
        if settings.role in ("all", "learner"):
            leases = self.leases = LeaseManager(store, settings, self._log, self._notify_from_learner, self.pieces)
            if settings.role == "all" or settings.refine_in_learners:
                self.refiner = RefinementWorker(
                    store, settings, self._log, leases.state_of, alone=False, serves=leases.leads
                )
        elif settings.role == "refiner":
            self.refiner = RefinementWorker(store, settings, self._log, partial(state_from_leader, store), alone=False)
        self.replicas = ReplicaManager(store, settings, self._log)
        return KnownStreams(store, settings, self._log, self.replicas.add)

    def _notify_from_learner(self, name: str, incarnation: str) -> None:
        """A stream led here may have a refinement to be made: here, or in processes that only refine."""
        if self.refiner is not None:
            self.refiner.notify(name, incarnation)
        else:
            self._notify(name, incarnation)

    def _on_request(self, request: ReaderRequest | None) -> None:
        """Pass on a request from another process, within this process only: a request sent again would never end."""
        if request is not None and request.what in (WEBHOOKS_CHANGED, SOURCES_CHANGED):
            self._notify_tasks(request.what, request.name, request.incarnation)
        elif request is None or request.what != "refine":
            if self.leases is not None:
                self.leases.on_request(request)
        elif self.refiner is not None:
            self.refiner.notify(request.name, request.incarnation)

    def _learnt(self) -> dict[str, LearntStream]:
        """The streams that this process learns, for their webhooks. Without those that rest and have none."""
        return _streams_of(self.leases.learners if self.leases is not None else self.known.learners_with_events)

    def _all_learnt(self) -> dict[str, LearntStream]:
        """The streams that this process learns, with those that rest: their sources go on."""
        return _streams_of(self.leases.learners if self.leases is not None else self.known.learners)

    def _has_webhooks(self, record: StreamRecord) -> bool:
        return bool(WebhookDocuments(self._store, record.name, record.incarnation).all())

    def _announce(self, changed: str, name: str, incarnation: str) -> None:
        """The webhooks or the sources of a stream were changed: tell the process that runs their tasks."""
        if self.replicas is not None:
            self.replicas.send(ReaderRequest(name, incarnation, 0, 0, changed))
        self._notify_tasks(changed, name, incarnation)

    def _notify_tasks(self, changed: str, name: str, incarnation: str) -> None:
        """The same within this process."""
        tasks = self.webhook_sender if changed == WEBHOOKS_CHANGED else self.source_runner
        if tasks is not None:
            tasks.notify(name, incarnation)

    def _notify(self, name: str, incarnation: str) -> None:
        """A refinement waits: tell the processes that refine."""
        if self.replicas is not None:
            self.replicas.send(ReaderRequest(name, incarnation, 0, 0, "refine"))
        elif self.refiner is not None:
            self.refiner.notify(name, incarnation)

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of this process, by stream."""
        return self.leases.learners if self.leases is not None else self.known.learners

    def start(self, *, answers: bool) -> None:
        """Start the parts. `answers`: this process answers requests. A shared store need not be available yet."""
        load_engines()  # before any thread uses them
        if self.pieces is not None:
            self.pieces.start()
        if answers:
            self._start_answering()
        elif self.replicas is not None and self.source_runner is not None:
            self.replicas.start()  # its children append to streams, like clients of a process that answers
        if self.leases is not None:
            self.leases.start()
        if self.refiner is not None:
            self.refiner.start()
        if self.webhook_sender is not None:
            self.webhook_sender.start()
        if self.source_runner is not None:
            self.source_runner.start()
        if isinstance(self._store, SharedStore) and (self.leases is not None or self.refiner is not None):
            self._store.sharing.on_request(self._on_request)

    def _start_answering(self) -> None:
        if self.replicas is not None:
            self.replicas.start()
        try:
            self.known.start(self._has_webhooks)
        except StoreUnavailableError as error:
            if self.replicas is None:
                raise
            self._log.warning("streams_unseen", reason=str(error))  # each is loaded at its first request

    def stop_accepting(self) -> None:
        """Refuse new work from now on. Safe in a signal handler."""
        self.known.stop_accepting()
        if self.leases is not None:
            self.leases.stop_accepting()

    def check(self) -> None:
        """Raise NotReadyError when the process is stopping, or cannot do what its role needs."""
        self.known.refuse_when_stopping()
        if self.leases is not None:
            self.leases.check()

    def close(self, timeout_s: float) -> bool:
        """End the parts within the time. True when the logs of the streams learnt here are applied to their ends."""
        until = time.monotonic() + timeout_s
        if self.pieces is not None:
            self.pieces.close(PIECES_CLOSE_S)
        if self.refiner is not None:
            self.refiner.close(REFINER_CLOSE_S)
        if self.source_runner is not None:
            self.source_runner.close(min(SOURCES_CLOSE_S, timeout_s / 2))
        if self.webhook_sender is not None:
            self.webhook_sender.close(SENDER_CLOSE_S)
        ended = self.known.close(until - time.monotonic())
        drained = self.known.drained
        if self.leases is not None:
            ended = self.leases.close(until - time.monotonic()) and ended
            drained = self.leases.drained
        if self.replicas is not None:
            self.replicas.close()
        return ended and drained


def _streams_of(learners: Mapping[str, Learner]) -> dict[str, LearntStream]:
    return {
        name: LearntStream(*learner.stream, learner.feed, learner.family_tree) for name, learner in learners.items()
    }
