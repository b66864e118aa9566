"""Simulation of a fleet over one shared store: everything that happens follows from one number.

The runtimes, learners, leases, refinement workers and replicas are the real ones, and so is the store under them. Time,
threads and the way to the store are simulated. While clients send and retry, processes crash and start again, stall
past their leases, lose the server, and are robbed of their leases. Then all faults end, and the run is compared with
what the store witnessed and with the library's own replay of the log.
"""

import hashlib
import io
import random
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from harness.library_replay import states
from harness.scheduler import Process, Scheduler, simulated
from harness.simulated_store import ClientStore, Faults, SharedMemory
from shoal.mixture import StreamSettings, to_bytes
from shoal.sequential import initial_state
from shoal_service.errors import IdempotencyMismatchError, SettingsMovedError, StoreUnavailableError
from shoal_service.logs import make_log
from shoal_service.refining import child
from shoal_service.settings import Settings
from shoal_service.store import EntryKind, IdempotencyKey, NewEntry
from shoal_service.streams import board, events, runtime
from shoal_service.streams.learner import (
    applied_mark,
    checkpoints,
    keyed_records,
    own_thread,
    publisher,
    retry_policy,
    snapshot_requests,
    thread,
)
from shoal_service.streams.record_index import RecordReader, forget_payload, forgotten_keys, writer
from shoal_service.streams.refinement import RefinementRecords, job_lease, process, records, trigger, worker
from shoal_service.streams.shared import ReplicaManager, lease_manager, replica, replica_manager, view_broadcast
from shoal_service.wire import Points, RecordFields, Texts, fields_from_log, from_log, to_log

MODULES = (
    board, events, runtime, applied_mark, checkpoints, keyed_records, own_thread, publisher, retry_policy,
    snapshot_requests, thread, job_lease, records, trigger, worker, lease_manager, replica, replica_manager,
    view_broadcast,
)  # fmt: skip
"""Modules that look at the clock, wait, start threads or draw names."""
STREAM = {"n_features": 2, "family": "gaussian", "warmup_points": 20, "window": 80, "refinement": None}
BY_TIME = {**STREAM, "half_life": "1h"}
"""The stream of every third number: it forgets by the times of its points."""
KEY = ("s", "incarnation")
LEASE_S = 1.0
CLIENTS, BATCHES = 2, 7
PROCESSES = 2
BUSY_S, SETTLE_S = 120.0, 240.0
PLENTY = 1 << 40
ROWS_HELD = 12
"""Records that are written while the learner goes on: about every second batch."""
CENTRES = 6.0 * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])


@cache
def settings_of(checkpoint_points: int) -> Settings:
    """The settings of a process."""
    return Settings(
        store="redis", role="learner", lease_s=LEASE_S, publish_interval_s=0.3, refine_nice=0,
        checkpoint_points=checkpoint_points, checkpoint_interval_s=5.0,
    )  # fmt: skip


def refine_inline(self: Any, task: process.Task, timeout_s: float, watch: Callable[[Any], bool]) -> process.Outcome:
    """Refine in this process, with a wait before and after in which others run."""
    paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
    if not watch(None):
        raise process.StoppedError
    answer = child._answer({**paths, "method": task.method, "window_rows": None}, io.StringIO())
    if not watch(None):
        raise process.StoppedError
    return process._outcome(answer)


class Simulation:
    """One run. `run` raises AssertionError where a promise is broken."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.stream = BY_TIME if seed % 3 == 1 else STREAM
        self.scheduler = Scheduler(seed)
        self.random = random.Random(seed ^ 0xC0FFEE)
        self.shared = SharedMemory(self.scheduler)
        self.log = io.StringIO()
        self.log_level = "error"
        self.faults = [Faults(latency_s=10 ** self.random.uniform(-3.5, -1.5)) for _ in range(PROCESSES)]
        self.processes: list[Process] = []
        self.runtimes: dict[int, runtime.Runtime] = {}
        """By process, once its life has begun."""
        self._lives: list[runtime.Runtime] = []
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.sent: dict[bytes, str] = {}
        """The name of each batch, by its points."""
        self.busy = 0
        self.crashes = 0

    def run(self) -> str:
        """The digest of the schedule."""
        refine, process.RefinementProcess.refine = process.RefinementProcess.refine, refine_inline  # type: ignore[method-assign]
        rows_held, writer.ROWS_HELD = writer.ROWS_HELD, ROWS_HELD
        try:
            with simulated(self.scheduler, MODULES):
                try:
                    self._run()
                finally:
                    self.scheduler.close()
                    for each in self._lives:
                        if each.refiner is not None:
                            each.refiner._work_dir.close()
                    self.shared.store.close()
        finally:
            process.RefinementProcess.refine = refine  # type: ignore[method-assign]
            writer.ROWS_HELD = rows_held
        return self.scheduler.trace

    def _run(self) -> None:
        settings = StreamSettings.from_dict(self.stream).to_json().encode()
        self.shared.store.create_stream(*KEY, settings, max_streams=1)
        for n in range(PROCESSES):
            self._start(n)
        follower = self._follower()
        shares = {"lost": 0.02, "no reply": 0.02, "crash before": 0.002, "crash after": 0.002}
        for faults in self.faults[:PROCESSES]:
            faults.shares = {fate: share * self.random.choice([0, 1, 3]) for fate, share in shares.items()}
        for work, name in [*((self._client(n), f"client {n}") for n in range(CLIENTS)), (self._trouble, "trouble")]:
            self.busy += 1
            self.scheduler.spawn(work, name)
        self.scheduler.run(lambda: self.busy == 0, BUSY_S)
        for faults, each in zip(self.faults, self.processes, strict=True):
            faults.heal()
            each.paused_until = 0.0
        for _ in range(4):
            for n in range(PROCESSES):
                if self.processes[n].dead:
                    self._start(n)
            self.scheduler.run(lambda: self._is_settled(follower), SETTLE_S)
            self._end()
            if max(self.shared.witness.states[KEY]) == self.shared.store.tail(*KEY).seq:
                break  # otherwise a lease changed hands in the last moment, and the next leader applies the rest
        else:
            raise AssertionError("no end in good order left a checkpoint of the whole log")
        self._check()

    # -- processes

    def _start(self, n: int) -> None:
        """Begin a life of process n."""
        life = Process(f"process {n}")
        settings = settings_of(self.random.choice([20, 60, 1000]))

        def start() -> None:
            store = ClientStore(self.shared, life, self.faults[n])
            made = runtime.Runtime(store, settings, make_log(self.log_level, "json", self.log))
            made.webhook_sender = None  # it waits for sockets, which are not simulated; the stream has no webhooks
            self.runtimes[n] = made
            self._lives.append(made)
            made.start(answers=False)

        self.processes[n : n + 1] = [life]
        self.runtimes.pop(n, None)
        self.scheduler.spawn(start, life.name, life)

    def _follower(self) -> replica.Replica:
        """A process that answers, as far as it follows the views."""
        life, faults = Process("api"), Faults(latency_s=0.002)
        faults.shares |= {"lost": 0.05, "no reply": 0.05}
        self.faults.append(faults)
        self.processes.append(life)
        store: Any = ClientStore(self.shared, life, faults)
        made = ReplicaManager(store, settings_of(1000), make_log(self.log_level, "json", self.log))
        self.scheduler.spawn(made.start, life.name, life)
        return made.add(self.shared.store.get_stream(KEY[0]))

    def _end(self) -> None:
        """End all learners in good order, each with a checkpoint."""
        ended = [
            self.scheduler.spawn(partial(self.runtimes[n].close, 30.0), "end", self.processes[n])
            for n in range(PROCESSES)
        ]
        self.scheduler.run(lambda: all(task.ended for task in ended), 60.0)
        for n in range(PROCESSES):
            self.scheduler.kill(self.processes[n])

    # -- those who ask

    def _client(self, n: int) -> Callable[[], None]:
        rng = np.random.default_rng([self.random.getrandbits(32), n])
        times_rng = np.random.default_rng([self.seed, n])
        store: Any = ClientStore(self.shared, Process(f"client {n}"), Faults(latency_s=0.002))
        store.faults.shares |= {"lost": 0.1, "no reply": 0.1}

        def work() -> None:
            for i in range(BATCHES):
                self.scheduler.sleep(float(rng.exponential(0.3)))
                name = f"batch {n}/{i}"
                columns = 3 if rng.random() < 0.05 else 2
                x = CENTRES[rng.integers(4, size=rng.integers(1, 16))] + rng.normal(size=2)
                x = np.ascontiguousarray(np.c_[x, x[:, 0]][:, :columns])
                keys = [b"key/%d" % k for k in rng.integers(0, 40, size=len(x))]
                times = self._times(times_rng, len(x))
                self.sent[x.tobytes()] = name
                repeat = bool(rng.random() < 0.8)
                self._send(store, name, x, keys, times, repeat=repeat)
                if repeat and rng.random() < 0.2:
                    self._send_again(store, name, x)
            self.busy -= 1

        return work

    def _times(self, rng: np.random.Generator, n: int) -> np.ndarray | None:
        """Times of n points: late by minutes or hours, early by some, missing, or all missing."""
        if self.stream is STREAM or rng.random() < 0.2:
            return None
        now = self.scheduler.now + self.scheduler.wall_offset
        late = rng.exponential(rng.choice([60.0, 3_600.0]), size=n) - 120.0
        return np.where(rng.random(n) < 0.1, np.nan, now - late)

    def _send(
        self, store: Any, name: str, x: np.ndarray, keys: list[bytes], times: np.ndarray | None, *, repeat: bool
    ) -> None:
        """Send a batch until it is acknowledged; without an idempotency key just once."""
        idempotency = IdempotencyKey(name, x.tobytes()) if repeat else None
        while True:
            arrived = self.scheduler.now + self.scheduler.wall_offset
            payload = to_log(Points(x, RecordFields(arrived, Texts.of(keys), times, None, None)))
            try:
                answer = store.append(
                    *KEY, NewEntry(EntryKind.BATCH, payload, len(x), idempotency=idempotency), budget_bytes=PLENTY
                ).result()
            except StoreUnavailableError:
                if not repeat:
                    return
                self.scheduler.sleep(0.1)
                continue
            self.acknowledged[name] = (answer.seq, answer.log_offset)
            return

    def _send_again(self, store: Any, name: str, x: np.ndarray) -> None:
        """A late retry is answered as the first time. Another body under the same key is refused."""
        for digest in (x.tobytes(), b"another"):
            idempotency = IdempotencyKey(name, digest)
            try:
                again = store.append(
                    *KEY,
                    NewEntry(EntryKind.BATCH, to_log(Points(x)), len(x), idempotency=idempotency),
                    budget_bytes=PLENTY,
                ).result()
            except IdempotencyMismatchError:
                assert digest == b"another", f"a retry of {name} is taken for another batch"
            except StoreUnavailableError:
                continue
            else:
                assert digest != b"another", f"another batch is taken for a retry of {name}"
                assert again[:2] == self.acknowledged[name], f"{name} was acknowledged twice"

    def _trouble(self) -> None:
        """What happens to the processes, one thing after another."""
        acts = (self._crash, self._crash, self._pause, self._cut, self._rob, self._jump, self._refine,
                self._change, self._forget)  # fmt: skip
        for _ in range(self.random.randrange(3, 9)):
            self.scheduler.sleep(self.random.expovariate(1.5))
            self.random.choice(acts)()
        self.busy -= 1

    def _crash(self) -> None:
        n = self.random.randrange(PROCESSES)
        self.crashes += 1
        self.scheduler.kill(self.processes[n])
        self.scheduler.sleep(self.random.choice([0.0, 0.5, 2.0]))
        self._start(n)

    def _pause(self) -> None:
        stalled = self.random.choice(self.processes[:PROCESSES])
        stalled.paused_until = self.scheduler.now + self.random.uniform(0.2, 3.0) * LEASE_S

    def _cut(self) -> None:
        faults = self.random.choice(self.faults)
        faults.cut = True
        self.scheduler.sleep(self.random.uniform(0.1, 3.0) * LEASE_S)
        faults.cut = False

    def _rob(self) -> None:
        self.shared.leases.clear()

    def _jump(self) -> None:
        self.scheduler.wall_offset = 1.7e9 + self.random.uniform(-3e4, 3e4)  # keys are remembered for a day

    def _refine(self) -> None:
        records = RefinementRecords(self.shared.store, *KEY)
        if len(records.all()) < 4 and self.shared.store.tail(*KEY).log_offset > STREAM["warmup_points"]:  # type: ignore[operator]
            records.queue(method="vdp", why="asked")
            self.shared.tell(self.shared.leaders, replica.ReaderRequest(*KEY, 0, 0, "refine"))

    def _change(self) -> None:
        now = self.shared.store.get_stream(KEY[0]).settings
        wanted = StreamSettings.from_json(now).with_changes(merge_threshold=self.random.choice([0.0, 0.01, 0.05]))
        settings = wanted.to_json().encode()
        self._append(EntryKind.SETTINGS, settings, settings=settings, expected_settings=now)

    def _forget(self) -> None:
        self._append(EntryKind.FORGET, forget_payload([f"key/{self.random.randrange(40)}"]))

    def _append(self, kind: EntryKind, payload: bytes, **options: Any) -> None:
        if not self.shared.store.load_checkpoints(*KEY):  # as `Stream` waits for a view before such an entry
            return
        store: Any = ClientStore(self.shared, Process("admin"), Faults(latency_s=0.002))
        try:
            store.append(*KEY, NewEntry(kind, payload, **options), budget_bytes=PLENTY).result()
        except SettingsMovedError:
            return

    # -- the end

    @property
    def entries(self) -> list[Any]:
        """The log, with what is trimmed."""
        return self.shared.witness.entries.get(KEY, [])

    def _is_settled(self, follower: replica.Replica) -> bool:
        end = self.shared.store.tail(*KEY).seq
        if follower.board.seq != end or len(self.runtimes) < PROCESSES:
            return False
        self._check_log()
        leads = [led.leases.learners.get(KEY[0]) for led in self.runtimes.values() if led.leases is not None]
        newest = self.shared.witness.epochs[KEY]
        if not any(one is not None and one.applied == end and one._epoch == newest for one in leads):
            return False
        return not any(s.refinement.open for s in RefinementRecords(self.shared.store, *KEY).all())

    def _check_log(self) -> None:
        """Nothing but dead letters is reported as an error."""
        lines = [line for line in self.log.getvalue().splitlines() if '"level":"error"' in line]
        others = [line for line in lines if '"event":"dead_letter"' not in line]
        assert not others, others[0]

    def _check(self) -> None:
        """Compare with the model."""
        self._check_log()
        entries = self.entries
        assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
        places: dict[str, tuple[int, int]] = {}
        offset = 0
        for entry in entries:
            offset += entry.n_points
            assert entry.log_offset == offset
            if entry.kind is EntryKind.BATCH:
                name = self.sent[from_log(entry.payload).tobytes()]
                assert name not in places, f"{name} is in the log twice"
                places[name] = (entry.seq, entry.log_offset)
        for name, place in self.acknowledged.items():
            assert places.get(name) == place, f"{name} was acknowledged at {place} and is at {places.get(name)}"
        self._check_states()
        letters = self.shared.store.dead_letter_reasons(*KEY)
        poison = {e.seq for e in entries if e.kind is EntryKind.BATCH and from_log(e.payload).shape[1] != 2}
        assert letters.keys() == poison, f"dead letters {letters}, of {poison}"
        for stored in RefinementRecords(self.shared.store, *KEY).all():
            assert "the log holds" not in (stored.refinement.reason or ""), stored.refinement

    def _check_states(self) -> None:
        """Each checkpoint, and each record, is what the library makes of the log."""
        found = self.shared.witness.states[KEY]
        begin = initial_state(StreamSettings.from_dict(self.stream))
        expected = {0: hashlib.sha256(to_bytes(begin)).hexdigest()}
        located: dict[bytes, tuple[int, int]] = {}
        for entry, state, info in states(self.stream, self.entries, self.shared.witness.blobs.__getitem__):
            if entry.seq in found:
                expected[entry.seq] = hashlib.sha256(to_bytes(state)).hexdigest()
            if entry.kind is EntryKind.FORGET:
                for key in forgotten_keys(entry.payload):
                    located.pop(key, None)
            elif info is not None:
                first = entry.log_offset - entry.n_points + 1
                fields = fields_from_log(entry.payload)
                assert fields is not None
                for i, key in enumerate(fields.keys or ()):
                    located[key] = (first + i, int(info.labels[i]))
        wrong = [seq for seq in found if found[seq] != expected[seq]]
        assert not wrong, f"the states at entries {wrong} are not those of the log"
        reader = RecordReader(lambda places: self.shared.store.read_pages(*KEY, places))
        keys = [b"key/%d" % k for k in range(40)]
        stored = {key: (s.log_offset, s.assigned) for key, s in zip(keys, reader.find(keys), strict=True) if s}
        assert stored == located, f"records {stored}, expected {located}"
