"""What keeps the streams of one process going, by its role: which of the parts there are, and how they begin and end.

Over a store of its own a process learns, refines and shows its streams itself. Over a shared store the parts meet in
the store alone, so it makes no difference whether they are in one process: whoever answers requests follows what
leaders show (`following`), and whoever learns leads streams by lease (`leading`), with the refining worker beside it.
"""

import time
from typing import Any

from shoal_service.errors import StoreUnavailableError
from shoal_service.settings import Settings
from shoal_service.store import ReaderRequest, SharedStore, Store
from shoal_service.streams.engines import load_engines
from shoal_service.streams.following import Following
from shoal_service.streams.leading import Leading
from shoal_service.streams.learner import Learner
from shoal_service.streams.refining.borrowed import Borrowed
from shoal_service.streams.refining.service import Refinements
from shoal_service.streams.refining.worker import RefiningWorker
from shoal_service.streams.registry import StreamRegistry

REFINER_S = 2.0
"""How long the refining thread gets to notice the end; its child is killed."""


class House:
    """The parts. `start` and `close` block."""

    def __init__(self, store: Store, settings: Settings, log: Any) -> None:
        self._store = store
        self._log = log
        self.following: Following | None = None
        self.leading: Leading | None = None
        self.refiner: RefiningWorker | None = None
        self.streams = self._shared(store, settings) if isinstance(store, SharedStore) else self._alone(settings)
        self.refinements = Refinements(store, self.streams, self._nudge)

    def _alone(self, settings: Settings) -> StreamRegistry:
        refiner = RefiningWorker(
            self._store, settings, self._log, lambda *stream: streams.state_of(*stream), alone=True
        )
        streams = StreamRegistry(self._store, settings, self._log, nudge_refiner=refiner.nudge)
        self.refiner = refiner
        return streams

    def _shared(self, store: SharedStore, settings: Settings) -> StreamRegistry:
        if settings.role in ("all", "learner"):
            leading = self.leading = Leading(store, settings, self._log, self._nudge_beside)
            if settings.role == "all" or settings.refine_in_learners:
                self.refiner = RefiningWorker(store, settings, self._log, leading.state_of, alone=False)
        elif settings.role == "refiner":
            borrowed = Borrowed(store, store.sharing.send_request)
            self.refiner = RefiningWorker(store, settings, self._log, borrowed.state_of, alone=False)
        self.following = Following(store, settings, self._log)
        return StreamRegistry(store, settings, self._log, self.following.follow)

    def _nudge_beside(self, name: str, incarnation: str) -> None:
        """A stream that is led here may have a refinement to be made: here, or by processes that do nothing else."""
        if self.refiner is not None:
            self.refiner.nudge(name, incarnation)
        else:
            self._nudge(name, incarnation)

    def _heard(self, want: ReaderRequest | None) -> None:
        if want is not None and want.what == "refine" and self.refiner is not None:
            self.refiner.nudge(want.name, want.incarnation)

    def _nudge(self, name: str, incarnation: str) -> None:
        """A refinement was asked for: tell whoever makes them."""
        if self.following is not None:
            self.following.ask(ReaderRequest(name, incarnation, 0, 0, "refine"))
        elif self.refiner is not None:
            self.refiner.nudge(name, incarnation)

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of this process, by stream."""
        return self.leading.learners if self.leading is not None else self.streams.learners

    def start(self, *, answers: bool) -> None:
        """Begin; `answers` is whether this process answers requests. A shared store need not answer yet."""
        load_engines()  # before there is any thread that might come upon them half loaded
        if answers:
            self._start_answering()
        if self.leading is not None:
            self.leading.start()
        if self.refiner is not None:
            self.refiner.start()
            if self.leading is None and isinstance(self._store, SharedStore):
                self._store.sharing.on_request(self._heard)

    def _start_answering(self) -> None:
        if self.following is not None:
            self.following.start()
        try:
            self.streams.start()
        except StoreUnavailableError as error:
            if self.following is None:
                raise
            self._log.warning("streams_unseen", reason=str(error))  # each is taken up when it is asked for

    def stop_taking(self) -> None:
        """Refuse what is new from here on. Safe in a signal handler."""
        self.streams.stop_taking()
        if self.leading is not None:
            self.leading.stop_taking()

    def check(self) -> None:
        """Raise NotReadyError when the process is stopping, or cannot do what its role asks."""
        self.streams.check()
        if self.leading is not None:
            self.leading.check()

    def close(self, timeout_s: float) -> bool:
        """End in good order within the time; True when no log of a stream learnt here has anything left to apply."""
        until = time.monotonic() + timeout_s
        if self.refiner is not None:
            self.refiner.close(REFINER_S)
        ended = self.streams.close(until - time.monotonic())
        drained = self.streams.drained
        if self.leading is not None:
            ended = self.leading.close(until - time.monotonic()) and ended
            drained = self.leading.drained
        if self.following is not None:
            self.following.close()
        return ended and drained
