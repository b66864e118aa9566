"""A service that kills itself with SIGKILL at a named point, again and again over one store.

`python -m harness.kill_points` loads everything once, and forks a process for each line of JSON on its standard input:

- `{"do": "round", ...}`: learn the batches up to a number, with retries by idempotency keys and with a refinement, and
  die at a point. The answer has what was acknowledged before, and the state at the start.
- `{"do": "points", ...}`: the names of the points.
- `{"do": "verify", ...}`: compare the log with the batches, with every acknowledgement so far, and each state with the
  library's own replay of the log from its first entry.
"""

import asyncio
import contextlib
import hashlib
import importlib
import io
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

from harness.library_replay import replayed, states
from shoal.mixture import to_bytes
from shoal_service.errors import ShoalError
from shoal_service.logs import make_log
from shoal_service.refining import child
from shoal_service.settings import Settings
from shoal_service.store import IdempotencyKey, SqliteStore, Store
from shoal_service.store.redis import RedisStore
from shoal_service.store.sqlite import writer
from shoal_service.streams import Runtime, load_engines
from shoal_service.streams.learner import thread
from shoal_service.streams.record_index import RecordReader
from shoal_service.streams.refinement import process
from shoal_service.wire import Points, RecordFields, Texts, from_log, to_log

STREAM = {"n_features": 2, "family": "gaussian", "warmup_points": 100, "window": 1600, "refinement": None}
BATCH = 60
KEYS = 500
CLIENTS = 2
MOST_NEW = 10
"""Batches that one life adds at most. The log keeps their entries for the window, until they have been looked at."""

_SQLITE = "shoal_service.store.sqlite"
_REDIS = "shoal_service.store.redis"
_LEARNER = "shoal_service.streams.learner"
_REFINEMENT = "shoal_service.streams.refinement"
LEARNER_POINTS = {
    "apply": (f"{_LEARNER}.thread", "apply_inplace"),
    "apply several": (f"{_LEARNER}.thread", "apply_batches_inplace"),
    "publish": (f"{_LEARNER}.publisher", "view_of"),
    "checkpoint": (f"{_LEARNER}.checkpoints", "Checkpoints._write"),
    "report how far": (f"{_LEARNER}.applied_mark", "AppliedMark.report"),
    "write files of a refinement": (f"{_REFINEMENT}.worker", "RefinementWorker._write_files"),
    "append an adoption": (f"{_REFINEMENT}.worker", "RefinementWorker._append"),
    "read an adoption": (f"{_LEARNER}.thread", "read_inputs"),
    "adopt": (f"{_LEARNER}.apply", "apply_adoption_inplace"),
    "record the outcome": (f"{_REFINEMENT}.trigger", "RefinementTrigger.record_outcome"),
    "write records": (f"{_LEARNER}.keyed_records", "KeyedRecords.flush"),
}
POINTS = {
    "sqlite": LEARNER_POINTS
    | {
        "write an entry": (f"{_SQLITE}.log", "append"),
        "commit": (f"{_SQLITE}.stream_state", "StreamTable.replace"),
        "high-water mark": (f"{_SQLITE}.high_water", "HighWaterMarks.write"),
        "checkpoint row": (f"{_SQLITE}.checkpoints", "_insert"),
        "trim": (f"{_SQLITE}.checkpoints", "_trim"),
        "sweep": (f"{_SQLITE}.chunks", "sweep"),
        "copy the write-ahead log": (f"{_SQLITE}.writer", "SqliteWriter._checkpoint_wal"),
        "store a blob": (f"{_SQLITE}.blob_refs", "_insert"),
        "job": (f"{_SQLITE}.records", "put_job"),
        "write a run of record pages": (f"{_SQLITE}.record_pages", "write"),
        "write record pages": (f"{_SQLITE}.record_pages", "_write"),
    },
    "redis": LEARNER_POINTS
    | {
        "exchange": (f"{_REDIS}.writer", "exchange_requests"),
        "save a checkpoint": (f"{_REDIS}.checkpoints", "save"),
        "store a blob": (f"{_REDIS}.blob_refs", "put"),
        "write a run of record pages": (f"{_REDIS}.record_pages", "write"),
        "renew leases": (f"{_REDIS}.sharing", "RedisSharing.renew_leases"),
        "publish a view": (f"{_REDIS}.sharing", "RedisSharing.publish_view"),
    },
}
"""Functions by the name of the point. The process dies just before the n-th call, or just after it."""


def batch(n: int) -> np.ndarray:
    """(BATCH, 2) points of a batch, the same at each call."""
    rng = np.random.default_rng([7, n])
    centres = 4.0 * np.array([[i, j] for i in range(3) for j in range(3)])
    return np.asarray(centres[rng.integers(9, size=BATCH)] + rng.normal(size=(BATCH, 2)))


def points_of(n: int) -> Points:
    """A batch, each point with a key. Most keys come again in later batches."""
    keys = [b"key/%d" % k for k in np.random.default_rng([8, n]).integers(KEYS, size=BATCH)]
    return Points(batch(n), RecordFields(0.0, Texts.of(keys), None, None, None))


def arm(place: tuple[str, str], *, after: bool, nth: int) -> None:
    """Let this process die at the n-th call of a function."""
    module, path = importlib.import_module(place[0]), place[1]
    owner = module if "." not in path else getattr(module, path.split(".")[0])
    name = path.split(".")[-1]
    function: Callable[..., Any] = getattr(owner, name)
    calls = [0]

    @wraps(function)
    def mortal(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = function(*arguments, **options)
        if calls[0] == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, mortal)


def open_store(asked: dict[str, Any]) -> Store:
    """Open the store of a request."""
    if asked["store"] == "sqlite":
        return SqliteStore(Path(asked["place"]) / "data")
    return RedisStore(asked["url"], prefix="killed")


async def live(asked: dict[str, Any], tell: Callable[[Any], None]) -> None:
    """One life of the service: the state at the start, then the batches and a refinement."""
    store = open_store(asked)
    settings = Settings(
        store=asked["store"], data_dir=Path(asked["place"]) / "data", publish_interval_s=0.0, lease_s=0.5,
        checkpoint_points=3 * BATCH, checkpoint_interval_s=3600.0,
    )  # fmt: skip
    runtime = Runtime(store, settings, make_log("error", "json", io.StringIO()))
    runtime.start(answers=True)
    stream, _ = await runtime.streams.create_or_change("s", STREAM)
    tail = await stream.tail()
    upto = min(asked["upto"], tail.log_offset // BATCH + MOST_NEW)
    if tail.seq:
        _, checkpoint = await runtime.streams.snapshot("s", min_offset=tail.log_offset, timeout_s=60)
        tell({"state": [checkpoint.seq, hashlib.sha256(checkpoint.blob).hexdigest()]})

    async def client(first: int) -> None:
        for n in range(first, upto, CLIENTS):
            points = points_of(n)
            key = IdempotencyKey(f"batch-{n}", hashlib.sha256(to_log(points)).digest())
            receipt = await runtime.streams.ingest("s", points, idempotency=key)
            tell({"ack": [n, receipt.log_offset]})

    await asyncio.gather(*(client(n) for n in range(CLIENTS)))
    with contextlib.suppress(ShoalError):
        _, refinement = await runtime.refinements.request("s", method="vdp", window=None, key=f"refine-{upto}")
        for _ in range(2000):
            if not (await runtime.refinements.find("s", refinement.id)).refinement.open:
                break
            await asyncio.sleep(0.005)
    end = await stream.tail()
    _, checkpoint = await runtime.streams.snapshot("s", min_offset=end.log_offset, timeout_s=60)
    tell({"state": [checkpoint.seq, hashlib.sha256(checkpoint.blob).hexdigest()]})
    if asked.get("orderly"):
        await asyncio.to_thread(runtime.close, 20)
        store.close()


def verify(asked: dict[str, Any]) -> str:
    """Return what is wrong, or nothing. Keeps the entries and blobs seen so far, because the log is trimmed."""
    kept = Path(asked["place"]) / "history"
    entries, blobs = pickle.loads(kept.read_bytes()) if kept.exists() else ([], {})
    store = open_store(asked)
    try:
        record = store.get_stream("s")
        key = ("s", record.incarnation)
        seq = max(store.tail(*key).first_seq - 1, len(entries))
        while found := store.read(*key, seq, max_bytes=1 << 30):
            entries += found
            seq = entries[-1].seq
        blobs |= {name: store.get_blob(*key, name) for name in store.blob_keys(*key)}
        reader = RecordReader(lambda places: store.read_pages(*key, places))
        names = [b"key/%d" % k for k in range(KEYS)]
        found = zip(names, reader.find(names), strict=True)
        records = {name: (record.log_offset, record.assigned) for name, record in found if record is not None}
        records_seq = reader.head().seq
    finally:
        store.close()
    kept.write_bytes(pickle.dumps((entries, blobs)))
    if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
        return f"entries {[entry.seq for entry in entries]} are held"
    numbers = {batch(n).tobytes(): n for n in range(asked["upto"])}
    places: dict[int, int] = {}
    for entry in entries:
        if entry.n_points:
            n = numbers[from_log(entry.payload).tobytes()]
            if n in places:
                return f"batch {n} is in the log twice"
            places[n] = entry.log_offset
    for n, offset in asked["acks"]:
        if places.get(n) != offset:
            return f"batch {n} was acknowledged at offset {offset} and is at {places.get(n)}"
    wanted = {seq for seq, _ in asked["states"]}
    digests = {0: hashlib.sha256(replayed(STREAM, [], blobs.__getitem__)).hexdigest()}
    located: dict[bytes, tuple[int, int]] = {}
    for entry, state, info in states(STREAM, entries, blobs.__getitem__):
        if entry.seq in wanted:
            digests[entry.seq] = hashlib.sha256(to_bytes(state)).hexdigest()
        if info is not None and entry.seq <= records_seq:
            keys, first = (
                points_of(numbers[from_log(entry.payload).tobytes()]).fields.keys,
                entry.log_offset - BATCH + 1,
            )
            located |= {key: (first + i, int(info.labels[i])) for i, key in enumerate(keys)}
    for seq, digest in asked["states"]:
        if digests[seq] != digest:
            return f"the state at entry {seq} is not that of the log"
    if records != located:
        return f"the records at entry {records_seq} are not those of the log"
    return ""


def _inside(self: Any, task: process.Task, timeout_s: float, watch: Any) -> process.Outcome:
    """Refine in this process: a child of its own would cost a second each time."""
    paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
    asked = {**paths, "method": task.method, "window_rows": task.window_rows}
    return process._outcome(child._answer(asked, io.StringIO()))


def answer(asked: dict[str, Any], out: int) -> None:
    """Answer one request, in a process of its own. Each part of the answer is written at once."""

    def tell(part: Any) -> None:
        os.write(out, (json.dumps(part) + "\n").encode())

    if asked["do"] == "points":
        tell({"points": list(POINTS[asked["store"]])})
        return
    if asked["do"] == "verify":
        tell({"wrong": verify(asked)})
        return
    if asked["point"] is not None:
        arm(POINTS[asked["store"]][asked["point"]], after=asked["after"], nth=asked["nth"])
    asyncio.run(live(asked, tell))
    tell({"survived": True})


def main() -> None:
    """Fork a process for each request, and pass on what it tells."""
    load_engines()
    from shoal.sequential import warm_kernels

    warm_kernels()
    process.RefinementProcess.refine = _inside  # type: ignore[method-assign]
    thread.WAIT_S = 0.02
    writer._WAL_BYTES = 64 << 10
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                answer(json.loads(line), sys.stdout.fileno())
            except BaseException as error:  # noqa: BLE001 - the parent prints it
                os.write(sys.stdout.fileno(), (json.dumps({"failed": repr(error)}) + "\n").encode())
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        os.write(sys.stdout.fileno(), (json.dumps({"end": "killed" if killed else "ended"}) + "\n").encode())


if __name__ == "__main__":
    main()
