"""The streams that this process shows, learnt in others: each is looked at when there is news of it, and every second.

A few threads serve all streams; no two work on the same one at a time.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shoal_service.errors import StoreError
from shoal_service.settings import Settings
from shoal_service.store import ReaderRequest, SharedStore, StreamRecord
from shoal_service.streams.follower import Follower

LOOK_S = 1.0
"""How long a lost piece of news can keep a view from being shown."""
THREADS = 4


class Following:
    """Looks after followers between `start` and `close`."""

    def __init__(self, store: SharedStore, settings: Settings, log: Any) -> None:
        self._store = store
        self._settings = settings
        self._log = log
        self._lock = threading.Lock()
        self._followers: dict[tuple[str, str], Follower] = {}
        self._busy: dict[Follower, bool] = {}  # those that are looked at; True where it is to be done once more
        self._pool = ThreadPoolExecutor(THREADS, "shoal-follow")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-look", daemon=True)
        self._out = False

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()
        self._store.sharing.on_published(self._hear)

    def follow(self, record: StreamRecord) -> Follower:
        """The source of one stream."""
        follower = Follower(self._store, record, self, self._settings.events_kept)
        with self._lock:
            self._followers[record.name, record.incarnation] = follower
        return follower

    def drop(self, follower: Follower) -> None:
        """Look at it no more."""
        with self._lock:
            self._followers = {key: other for key, other in self._followers.items() if other is not follower}

    def look(self, follower: Follower) -> None:
        """Have it look soon."""
        with self._lock:
            if follower in self._busy:
                self._busy[follower] = True
                return
            self._busy[follower] = False
        self.do(lambda: self._look(follower))

    def ask(self, want: ReaderRequest) -> None:
        """Tell whoever leads."""
        self.do(lambda: self._store.sharing.send_request(want))

    def do(self, work: Callable[[], None]) -> None:
        """Have something small done by another thread, unless this is the end."""
        if not self._stopping.is_set():
            try:
                self._pool.submit(self._guarded, work)
            except RuntimeError:  # closed in between
                return

    def close(self) -> None:
        """Look no more. Idempotent."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._thread.ident is not None:
            self._thread.join()

    def _hear(self, stream: tuple[str, str] | None) -> None:
        with self._lock:
            found = [self._followers.get(stream)] if stream is not None else list(self._followers.values())
        for follower in found:
            if follower is not None:
                self.look(follower)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            self._hear(None)

    def _look(self, follower: Follower) -> None:
        again = True
        while again:
            try:
                follower.look()
            finally:
                with self._lock:
                    again = self._busy.pop(follower) and not self._stopping.is_set()
                    if again:
                        self._busy[follower] = False

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
            self._out = False
        except StoreError as error:
            if not self._out:  # once an outage
                self._log.warning("views_unseen", reason=str(error))
            self._out = True
        except Exception:  # noqa: BLE001 - said in the log; the next look may do better
            self._log.error("look_failed", exc_info=True)
