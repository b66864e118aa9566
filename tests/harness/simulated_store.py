"""A shared store for simulated processes: the real SQLite store in memory, with leases and views beside it, behind
calls that take time, fail, or lose their replies.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from harness.scheduler import KilledError, Process, Scheduler, stand_ins
from shoal_service.errors import ServiceError, StaleWriterError, StoreUnavailableError
from shoal_service.store import (
    Appended,
    Blob,
    Checkpoint,
    Entry,
    Lease,
    PublishedHead,
    ReaderRequest,
    SqliteStore,
    StreamRecord,
    View,
)
from shoal_service.store.sqlite import writer
from shoal_service.streams.learner import unpack_checkpoint

R = TypeVar("R")
Key = tuple[str, str]


class InlineCommit(Generic[R]):
    """`GroupCommit` without a thread: each request is a group of its own, committed by its caller."""

    def __init__(self, thread_name: str, commit: Callable[[list[Any]], None], **options: Any) -> None:
        self._commit = commit
        self._finish = options["finish"]
        self.closing = False

    def submit(self, request: Any) -> None:
        request.future.set_running_or_notify_cancel()
        self._commit([request])

    def count_arrivals(self) -> None:
        """Nobody arrives while a group is committed."""

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            self._finish()


class Witness:
    """What the store did, as the calls were executed: the model that a run is compared with.

    AssertionError as soon as a writer of an older epoch changes anything.
    """

    def __init__(self) -> None:
        self.entries: dict[Key, list[Entry]] = {}
        self.blobs: dict[str, bytes] = {}
        self.epochs: dict[Key, int] = {}
        self.states: dict[Key, dict[int, str]] = {}
        """Digest of the state by entry, from every checkpoint."""

    def saw(self, method: str, key: Key, arguments: tuple[Any, ...], options: dict[str, Any], answer: Any) -> None:
        """Note one executed call. `arguments` follow name and incarnation."""
        if method == "append" and not answer.replayed:
            (new,) = arguments
            entry = Entry(answer.seq, answer.log_offset, new.n_points, new.kind, new.payload)
            self.entries.setdefault(key, []).append(entry)
        elif method == "put_blob":
            self.blobs[arguments[0]] = arguments[1]
        elif method in ("acquire_writer", "acquire_lease") and answer is not None:
            assert answer > self.epochs.get(key, 0), f"epoch {answer} after {self.epochs.get(key)}"
            self.epochs[key] = answer
        elif method in ("save_checkpoint", "add_dead_letter", "write_pages", "mark_applied", "publish_view"):
            assert arguments[0] == self.epochs[key], f"{method} by epoch {arguments[0]}, {self.epochs[key]} leads"
        if method == "save_checkpoint":
            checkpoint = arguments[1]
            digest = hashlib.sha256(unpack_checkpoint(checkpoint.blob)[0]).hexdigest()
            known = self.states.setdefault(key, {}).setdefault(checkpoint.seq, digest)
            assert known == digest, f"two states at entry {checkpoint.seq}"


class SharedMemory:
    """The server that all processes share. It never fails itself."""

    def __init__(self, scheduler: Scheduler) -> None:
        before, writer.GroupCommit = writer.GroupCommit, InlineCommit  # type: ignore[misc, assignment]
        try:
            self.store = SqliteStore(None, clock=lambda: scheduler.now + scheduler.wall_offset)
        finally:
            writer.GroupCommit = before  # type: ignore[misc]
        self.witness = Witness()
        self.scheduler = scheduler
        self.leases: dict[Key, tuple[str, float]] = {}
        self.views: dict[Key, tuple[bytes, dict[str, bytes]]] = {}
        self.labels: dict[tuple[Key, int], bytes] = {}
        self.learners: dict[str, float] = {}
        self.followers: list[tuple[Process, Callable[[Key | None], None]]] = []
        self.leaders: list[tuple[Process, Callable[[ReaderRequest | None], None]]] = []

    def epoch(self, key: Key) -> int:
        """The newest epoch. StreamGoneError when the stream was deleted."""
        return self.store._streams.find(*key).epoch

    def tell(self, listeners: list[tuple[Process, Callable[[Any], None]]], message: Any) -> None:
        """Send a message to every process. Each may get it later, and one in ten never."""
        for process, callback in listeners:
            if not process.dead and self.scheduler.random.random() < 0.9:
                self.scheduler.spawn(lambda call=callback: call(message), f"{process.name} hears", process)


class ClientStore:
    """The store as one process sees it: a `SharedStore`. Calls take time, and fail as `Faults` says."""

    def __init__(self, shared: SharedMemory, process: Process, faults: "Faults") -> None:
        self._shared = shared
        self.process = process
        self.faults = faults
        self.sharing = ClientSharing(self)
        self._writing = stand_ins(shared.scheduler)["ThreadPoolExecutor"](1, f"{process.name} writes")

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._shared.store, name)
        if not callable(method):
            return method
        return lambda *arguments, **options: self.call(name, method, *arguments, **options)

    def append(self, *arguments: Any, **options: Any) -> "Future[Appended]":
        return self._answered("append", *arguments, **options)

    def write_pages(self, *arguments: Any, **options: Any) -> "Future[None]":
        """The caller goes on meanwhile."""
        work = lambda *a: self._shared.store.write_pages(*a).result()  # noqa: E731
        return self._writing.submit(self.call, "write_pages", work, *arguments)  # type: ignore[no-any-return]

    def _answered(self, name: str, *arguments: Any, **options: Any) -> "Future[Any]":
        answered: Future[Any] = Future()
        work = lambda *a, **o: getattr(self._shared.store, name)(*a, **o).result()  # noqa: E731
        try:
            answered.set_result(self.call(name, work, *arguments, **options))
        except ServiceError as error:
            answered.set_exception(error)
        return answered

    def wait_for_entries(self, name: str, incarnation: str, after_seq: int, timeout_s: float, wake: Any = None) -> bool:
        store, scheduler = self._shared.store, self._shared.scheduler
        came = lambda: store.tail(name, incarnation).seq > after_seq  # noqa: E731
        self.call("tail", store.tail, name, incarnation)
        scheduler.block(lambda: came() or (wake is not None and wake.is_set()), timeout_s)
        return came()

    def describe(self) -> str:
        return "simulated"

    def close(self) -> None:
        """The server stays."""

    def call(self, name: str, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """One exchange with the server."""
        scheduler, random = self._shared.scheduler, self._shared.scheduler.random
        scheduler.sleep(random.expovariate(1 / self.faults.latency_s))
        fate = self.faults.fate(random)
        if self.faults.cut or fate == "lost":
            scheduler.sleep(0.2)
            raise StoreUnavailableError("the store cannot be reached")
        if fate == "crash before":
            self._die()
        answer = method(*arguments, **options)
        if len(arguments) >= 2:
            self._shared.witness.saw(name, arguments[:2], arguments[2:], options, answer)
        if fate == "crash after":
            self._die()
        if fate == "no reply":
            scheduler.sleep(0.2)
            raise StoreUnavailableError("the reply of the store was lost")
        return answer

    def _die(self) -> None:
        self._shared.scheduler.kill(self.process)
        raise KilledError


class Faults:
    """Faults between one process and the server."""

    def __init__(self, latency_s: float) -> None:
        self.latency_s = latency_s
        self.cut = False
        self.shares = {"lost": 0.0, "no reply": 0.0, "crash before": 0.0, "crash after": 0.0}
        """Share of the calls that end in each way."""

    def fate(self, random: Any) -> str | None:
        """What becomes of a call, or None."""
        at = random.random()
        for fate, share in self.shares.items():
            if at < share:
                return fate
            at -= share
        return None

    def heal(self) -> None:
        """Nothing fails any more."""
        self.cut = False
        self.shares = dict.fromkeys(self.shares, 0.0)


class ClientSharing:
    """`Sharing`, with the rules of the scripts in `store/redis/lua`: a lease elects, the epoch excludes."""

    def __init__(self, client: ClientStore) -> None:
        self._client = client
        self._shared = client._shared

    def _call(self, name: str, method: Callable[..., Any], *arguments: Any) -> Any:
        return self._client.call(name, method, *arguments)

    def _check(self, key: Key, epoch: int) -> None:
        if epoch != self._shared.epoch(key):
            raise StaleWriterError(f"epoch {epoch} of {key[0]!r} is over")

    def acquire_lease(self, name: str, incarnation: str, owner: str, ttl_s: float) -> int | None:
        def acquire(*key: str) -> int | None:
            holder, until = self._shared.leases.get((name, incarnation), ("", 0.0))
            if holder not in ("", owner) and until > self._shared.scheduler.now:
                return None
            epoch = self._shared.store.acquire_writer(name, incarnation)
            self._shared.leases[name, incarnation] = (owner, self._shared.scheduler.now + ttl_s)
            return epoch

        return self._call("acquire_lease", acquire, name, incarnation)  # type: ignore[no-any-return]

    def renew_leases(self, owner: str, leases: Sequence[Lease], ttl_s: float) -> list[Collection[str] | ServiceError]:
        def renewed(lease: Lease) -> Collection[str] | ServiceError:
            key = (lease.name, lease.incarnation)
            try:
                self._check(key, lease.epoch)
            except ServiceError as error:
                return error
            self._shared.leases[key] = (owner, self._shared.scheduler.now + ttl_s)
            return self._shared.views.get(key, (b"", {}))[1].keys()

        return self._call("renew_leases", lambda: [renewed(lease) for lease in leases])  # type: ignore[no-any-return]

    def release_lease(self, name: str, incarnation: str, owner: str) -> None:
        def release(*key: str) -> None:
            if self._shared.leases.get((name, incarnation), ("", 0.0))[0] == owner:
                del self._shared.leases[name, incarnation]
                self._shared.tell(self._shared.leaders, None)

        self._call("release_lease", release, name, incarnation)

    def announce(self, owner: str, ttl_s: float) -> list[str]:
        def announce() -> list[str]:
            now, learners = self._shared.scheduler.now, self._shared.learners
            learners[owner] = now + ttl_s
            return sorted(name for name, until in learners.items() if until > now)

        return self._call("announce", announce)  # type: ignore[no-any-return]

    def withdraw(self, owner: str) -> None:
        self._call("withdraw", lambda: self._shared.learners.pop(owner, None))

    def without_leader(self, records: Sequence[StreamRecord]) -> list[StreamRecord]:
        def free(record: StreamRecord) -> bool:
            _, until = self._shared.leases.get((record.name, record.incarnation), ("", 0.0))
            return until <= self._shared.scheduler.now

        return self._call("without_leader", lambda: [r for r in records if free(r)])  # type: ignore[no-any-return]

    def publish_view(self, name: str, incarnation: str, epoch: int, head: bytes, blobs: Sequence[Blob]) -> bool:
        def publish(name: str, incarnation: str, epoch: int) -> bool:
            key = (name, incarnation)
            self._check(key, epoch)
            held = self._shared.views.get(key, (b"", {}))[1]
            found = {blob.id: held.get(blob.id) if blob.data is None else blob.data for blob in blobs}
            whole = {blob_id: data for blob_id, data in found.items() if data is not None}
            if len(whole) < len(found):
                return False
            self._shared.views[key] = (head, whole)
            self._shared.tell(self._shared.followers, key)
            return True

        return self._call("publish_view", publish, name, incarnation, epoch)  # type: ignore[no-any-return]

    def published_heads(self, streams: Iterable[Key]) -> list[PublishedHead]:
        def head(key: Key) -> PublishedHead:
            seq, settings = self._shared.store.tail(*key).seq, self._shared.store.get_stream(key[0]).settings
            return PublishedHead(seq, settings, self._shared.views.get(key, (None, {}))[0])

        return self._call("published_heads", lambda: [head(key) for key in streams])  # type: ignore[no-any-return]

    def fetch_view(self, name: str, incarnation: str, have: Collection[str]) -> View | None:
        def fetch(*key: str) -> View | None:
            if (name, incarnation) not in self._shared.views:
                return None
            head, blobs = self._shared.views[name, incarnation]
            wanted: Mapping[str, bytes | None] = {i: None if i in have else data for i, data in blobs.items()}
            return View(head, wanted)

        return self._call("fetch_view", fetch, name, incarnation)  # type: ignore[no-any-return]

    def put_learnt_rows(self, name: str, incarnation: str, epoch: int, seq: int, rows: bytes) -> None:
        def put(name: str, incarnation: str, epoch: int) -> None:
            self._check((name, incarnation), epoch)
            self._shared.labels[(name, incarnation), seq] = rows
            self._shared.tell(self._shared.followers, (name, incarnation))

        self._call("put_learnt_rows", put, name, incarnation, epoch)

    def get_learnt_rows(self, name: str, incarnation: str, seqs: Sequence[int]) -> list[bytes | None]:
        def get(*key: str) -> list[bytes | None]:
            return [self._shared.labels.get(((name, incarnation), seq)) for seq in seqs]

        return self._call("get_learnt_rows", get, name, incarnation)  # type: ignore[no-any-return]

    def newest_checkpoint(self, name: str, incarnation: str, least_seq: int) -> Checkpoint | None:
        def newest(*key: str) -> Checkpoint | None:
            found = self._shared.store.load_checkpoints(name, incarnation)
            return found[0] if found and found[0].seq >= least_seq else None

        return self._call("newest_checkpoint", newest, name, incarnation)  # type: ignore[no-any-return]

    def send_request(self, request: ReaderRequest) -> None:
        self._call("send_request", lambda: self._shared.tell(self._shared.leaders, request))

    def on_published(self, callback: Callable[[Key | None], None]) -> None:
        self._shared.followers.append((self._client.process, callback))

    def on_request(self, callback: Callable[[ReaderRequest | None], None]) -> None:
        self._shared.leaders.append((self._client.process, callback))
