"""Threads that keep replicas up to date: each is updated when its leader publishes, and at least every second.

A few threads serve all replicas. No two update the same replica at a time.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from shoal_service.errors import StoreError
from shoal_service.settings import Settings
from shoal_service.store import ReaderRequest, SharedStore, StreamRecord
from shoal_service.streams.shared.replica import Replica

UPDATE_S = 1.0
"""Longest delay of a view whose notice was lost."""
THREADS = 4


class ReplicaManager:
    """Updates replicas between `start` and `close`. It is their `ReplicaHost`."""

    def __init__(self, store: SharedStore, settings: Settings, log: Any) -> None:
        self._store = store
        self._settings = settings
        self._log = log
        self._lock = threading.Lock()
        self._replicas: dict[tuple[str, str], Replica] = {}
        self._busy: dict[Replica, bool] = {}  # those being updated; True where another update must follow
        self._pool = ThreadPoolExecutor(THREADS, "shoal-follow")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-look", daemon=True)
        self._unavailable = False

    def start(self) -> None:
        """Begin to update."""
        self._thread.start()
        self._store.sharing.on_published(self._on_published)

    def add(self, record: StreamRecord) -> Replica:
        """A replica of one stream, kept up to date from now on."""
        replica = Replica(self._store, record, self, self._settings.events_kept)
        with self._lock:
            self._replicas[record.name, record.incarnation] = replica
        return replica

    def drop(self, replica: Replica) -> None:
        """As `ReplicaHost.drop`."""
        with self._lock:
            self._replicas = {key: other for key, other in self._replicas.items() if other is not replica}

    def update_soon(self, replica: Replica) -> None:
        """As `ReplicaHost.update_soon`."""
        with self._lock:
            if replica in self._busy:
                self._busy[replica] = True
                return
            self._busy[replica] = False
        self._submit(lambda: self._update(replica))

    def send(self, request: ReaderRequest) -> None:
        """As `ReplicaHost.send`."""
        self._submit(lambda: self._store.sharing.send_request(request))

    def close(self) -> None:
        """End the threads. Idempotent."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._thread.ident is not None:
            self._thread.join()

    def _submit(self, work: Callable[[], None]) -> None:
        if not self._stopping.is_set():
            try:
                self._pool.submit(self._guarded, work)
            except RuntimeError:  # closed in between
                return

    def _on_published(self, stream: tuple[str, str] | None) -> None:
        with self._lock:
            found = [self._replicas.get(stream)] if stream is not None else list(self._replicas.values())
        for replica in found:
            if replica is not None:
                self.update_soon(replica)

    def _run(self) -> None:
        while not self._stopping.wait(UPDATE_S):
            self._guarded(self._update_outdated)

    def _update_outdated(self) -> None:
        """Look at all replicas in one exchange, and update those that need it."""
        with self._lock:
            replicas = list(self._replicas.values())
        heads = self._store.sharing.published_heads([replica.key for replica in replicas])
        for replica, head in zip(replicas, heads, strict=True):
            if replica.outdated(head):
                self.update_soon(replica)

    def _update(self, replica: Replica) -> None:
        try:
            replica.update()
        finally:  # also after an error, or the replica would count as being updated for ever
            with self._lock:
                again = self._busy.pop(replica)
        if again:
            self.update_soon(replica)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
            self._unavailable = False
        except StoreError as error:
            if not self._unavailable:  # one warning for each outage
                self._log.warning("views_unseen", reason=str(error))
            self._unavailable = True
        except Exception:  # noqa: BLE001 - the log reports it; the next update may succeed
            self._log.error("look_failed", exc_info=True)
