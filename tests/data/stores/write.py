"""Write the stores of today as test files: `python tests/data/stores/write.py tests/data/stores/VERSION`.

Run it once for each released version, with that version, and keep what it wrote for ever. A real service makes each
store: points drawn from a seed, a refinement, a batch that cannot be learnt, two checkpoints, entries behind the newest
one, and `kill -9`. Points lie on a grid of sixteenths, so that the files are small.

The folder then holds `sqlite.tar.xz` (the data folder), `redis.tar.xz` (each key as a DUMP payload), `models.tar.xz`
(snapshots of the streams and estimators of the library) and `contents.json` (what a reader must find in them).
"""

import io
import json
import shutil
import sqlite3
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "core"), str(ROOT / "service"), str(ROOT / "tests")]

from harness.earlier_stores import STREAMS, batches, body_of, points  # noqa: E402
from harness.redis_server import RedisServer, running_redis  # noqa: E402
from harness.running_service import RunningService  # noqa: E402
from shoal import StreamingDPMixture  # noqa: E402
from shoal_service.store import EntryKind, NewEntry, SqliteStore, Store  # noqa: E402
from shoal_service.store.redis import RedisStore  # noqa: E402

SHARES = (0.0, 0.5, 0.6, 0.75, 0.9, 1.0)
"""Parts of the points sent before the refinement, the first checkpoint, the second one, the third one, and the kill."""
REPLAY_CHECKPOINT_S = 3.0
"""Time after which a learner that has just started writes no checkpoint any more."""


def ask(method: str, url: str, **options: Any) -> Any:
    """The JSON of an answer below 300."""
    reply = httpx.request(method, url, timeout=60.0, **options)
    assert reply.status_code < 300, reply.text
    return reply.json()


def send(service: RunningService, first: float, last: float) -> None:
    """Send a part of every stream, each batch under its key, and wait until it is learnt."""
    for stream in STREAMS:
        mine = list(batches(stream))
        for key, x in mine[round(first * len(mine)) : round(last * len(mine))]:
            url = f"{service.url}/streams/{stream}/ingest?wait=applied"
            headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
            ask("POST", url, content=body_of(x), headers=headers)


def refine(service: RunningService) -> None:
    """Refine the stream `plane`, and wait for the outcome."""
    url = f"{service.url}/streams/plane"
    wanted = ask("POST", f"{url}/refine")["id"]
    while (found := ask("GET", f"{url}/refinements/{wanted}"))["adopted"] is None:
        time.sleep(0.1)
    assert found["adopted"], found


def spoil(store: Store) -> None:
    """Append a batch of `axes` that the service would refuse: its bytes are no points."""
    incarnation = store.get_stream("axes").incarnation
    store.append("axes", incarnation, NewEntry(EntryKind.BATCH, b"no points", 2), budget_bytes=1 << 30).result()


def write(service: RunningService, opened: Callable[[], Store]) -> dict[str, Any]:
    """Fill the store of a service, which still runs then. Returns what it holds."""
    service.start()
    for stream, settings in STREAMS.items():
        ask("PUT", f"{service.url}/streams/{stream}", json=settings)
    send(service, *SHARES[0:2])
    refine(service)
    send(service, *SHARES[1:3])
    service.terminate(60)
    store = opened()
    spoil(store)
    store.close()
    service.start()
    send(service, *SHARES[2:4])
    service.terminate(60)
    service.start()
    send(service, *SHARES[3:5])
    time.sleep(REPLAY_CHECKPOINT_S)
    send(service, *SHARES[4:6])
    contents = {}
    for stream in STREAMS:
        url = f"{service.url}/streams/{stream}"
        about = ask("GET", url)
        contents[stream] = {
            "incarnation": about["incarnation"],
            "settings": about["settings"],
            "log_offset": about["log_offset"],
            "refinements": [
                {name: one[name] for name in ("id", "state", "method", "why")}
                for one in ask("GET", f"{url}/refinements")["refinements"]
            ],
            "components": {
                str(one["id"]): one["mass"] for one in ask("GET", f"{url}/components?limit=1000")["components"]
            },
        }
    return contents


def add_positions(contents: dict[str, Any], store: Store) -> None:
    """Add the seqs of the log, of the checkpoints and of the dead letters."""
    for stream, found in contents.items():
        key = stream, found["incarnation"]
        tail = store.tail(*key)
        found["first_seq"], found["last_seq"] = tail.first_seq, tail.seq
        found["checkpoints"] = [[one.seq, one.log_offset] for one in store.load_checkpoints(*key)]
        found["dead_letters"] = [[one.seq, one.reason] for one in store.dead_letters(*key)]
        found["blobs"] = store.blob_keys(*key)


def sqlite_archive(work: Path) -> tuple[bytes, dict[str, Any], dict[str, bytes]]:
    """The data folder as an archive, its contents, and the snapshots."""
    data = work / "data"
    service = RunningService(data, {"checkpoint_interval_s": 3600})
    try:
        contents = write(service, lambda: SqliteStore(data))
        urls = {stream: f"{service.url}/streams/{stream}/snapshot" for stream in STREAMS}
        snapshots = {stream: httpx.get(url, timeout=60.0).content for stream, url in urls.items()}
    finally:
        service.kill()
    store = SqliteStore(data)
    add_positions(contents, store)
    store.close()
    with closing(sqlite3.connect(data / "shoal.sqlite3")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.rmtree(data / "refining", ignore_errors=True)
    files = {path.name: path.read_bytes() for path in sorted(data.iterdir()) if path.is_file()}
    return archive(files), contents, snapshots


def redis_archive(work: Path) -> tuple[bytes, dict[str, Any]]:
    """Each key of the server as a DUMP payload, and the contents. Keys that expire are left out."""
    with redis_server(work) as server:
        settings = {"store": "redis", "redis_url": server.url, "checkpoint_interval_s": 3600}
        service = RunningService(work / "none", settings)
        try:
            contents = write(service, lambda: RedisStore(server.url))
        finally:
            service.kill()
        store = RedisStore(server.url)
        add_positions(contents, store)
        store.close()
        with server.client() as client:
            keys = sorted(key for key in client.scan_iter() if client.pttl(key) == -1)
            volatile = (b":view", b":lease", b":learners", b":rewritten", b":probes")
            files = {key.decode(): client.dump(key) for key in keys if not key.endswith(volatile)}
    return archive(files), contents


@contextmanager
def redis_server(work: Path) -> Iterator[RedisServer]:
    """A server with a folder of its own."""
    folder = work / "redis"
    folder.mkdir()
    binary = shutil.which("redis-server")
    assert binary is not None, "no redis-server on PATH"
    with running_redis(binary, folder) as server:
        yield server


def models() -> dict[str, bytes]:
    """Estimators of the library, saved after the first half of each stream."""
    found = {}
    for stream, settings in STREAMS.items():
        x = points(stream)
        kept = {name: value for name, value in settings.items() if name != "n_features"}
        model = StreamingDPMixture(**kept, random_state=7)
        model.partial_fit(x[: len(x) // 2])
        if stream == "plane":
            model.refine()
        file = io.BytesIO()
        model.save(file)
        found[f"{stream}.model"] = file.getvalue()
    return found


def archive(files: dict[str, bytes]) -> bytes:
    """A compressed archive of files, without dates and owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=9) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def main(target: Path) -> None:
    """Write all files of a version."""
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as name:
        packed, sqlite_contents, snapshots = sqlite_archive(Path(name))
        (target / "sqlite.tar.xz").write_bytes(packed)
        packed, redis_contents = redis_archive(Path(name))
        (target / "redis.tar.xz").write_bytes(packed)
    saved = {f"{stream}.shoal": blob for stream, blob in snapshots.items()} | models()
    (target / "models.tar.xz").write_bytes(archive(saved))
    text = json.dumps({"written_at": time.time(), "sqlite": sqlite_contents, "redis": redis_contents}, indent=1)
    (target / "contents.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
