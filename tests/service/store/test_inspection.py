"""The inspection of a store names each kind of damage, in both stores, and changes nothing."""

import errno
import shutil
import sqlite3
import struct
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from harness import earlier_stores
from harness.redis_server import RedisServer, running_redis
from shoal_service.errors import StoreFormatError, StoreUnavailableError
from shoal_service.store import AccessKey, EntryKind, Inspection, NewEntry, SqliteStore, inspect_store
from shoal_service.store.redis import RedisStore

VERSION = "0.1.0"


def flipped(value: Any, at: int | None = None) -> Any:
    """The value with one bit of one byte changed, or the lowest bit of a whole number."""
    if isinstance(value, int):
        return value ^ 1
    data = bytearray(value if isinstance(value, bytes) else value.encode())
    data[len(data) // 2 if at is None else at] ^= 0x10
    return bytes(data) if isinstance(value, bytes) else data.decode()


def named(found: Inspection) -> set[tuple[str | None, str, str]]:
    return {(one.stream, str(one.part), one.where) for one in found.findings}


class Case(NamedTuple):
    """Damage, and the finding that must name it."""

    damage: str
    stream: str | None
    part: str
    where: str


# -- SQLite

_PLANE = "stream = (SELECT id FROM streams WHERE name = 'plane')"
_AXES = "stream = (SELECT id FROM streams WHERE name = 'axes')"


def _chunk_of(table: str, where: str) -> str:
    return f"UPDATE chunks SET data = flip(data) WHERE id = (SELECT first_chunk FROM {table} WHERE {where})"


SQLITE = {
    "settings": Case("UPDATE streams SET settings = flip(settings) WHERE name = 'plane'", "plane", "record", "record"),
    "floor": Case("UPDATE streams SET floor_seq = flip(floor_seq) WHERE name = 'plane'", "plane", "record", "record"),
    "entry": Case(
        f"UPDATE entries SET n_points = flip(n_points) WHERE {_PLANE} AND seq = 9", "plane", "entry", "entry 9"
    ),
    "entry checksum": Case(
        f"UPDATE entries SET checksum = flip(checksum) WHERE {_PLANE} AND seq = 9", "plane", "entry", "entry 9"
    ),
    "payload": Case(_chunk_of("entries", f"{_PLANE} AND seq = 16"), "plane", "entry", "entry 16"),
    "missing entry": Case(f"DELETE FROM entries WHERE {_PLANE} AND seq = 10", "plane", "entry", "entry 10"),
    "checkpoint": Case(
        f"UPDATE checkpoints SET window_seq = flip(window_seq) WHERE {_PLANE} AND seq = 13",
        "plane", "checkpoint", "checkpoint at entry 13",
    ),
    "state": Case(
        _chunk_of("checkpoints", f"{_PLANE} AND seq = 11"), "plane", "checkpoint", "checkpoint at entry 11"
    ),
    "checkpoint beyond the log": Case(
        f"DELETE FROM entries WHERE {_PLANE} AND seq > 12", "plane", "checkpoint", "checkpoint at entry 13"
    ),
    "blob": Case(_chunk_of("blobs", _PLANE), "plane", "blob", "BLOB"),
    "blob digest": Case(f"UPDATE blobs SET sha256 = flip(sha256) WHERE {_PLANE}", "plane", "blob", "BLOB"),
    "letter": Case(f"UPDATE dead_letters SET reason = flip(reason) WHERE {_AXES}", "axes", "dead letter", "entry 5"),
    "letter payload": Case(_chunk_of("dead_letters", _AXES), "axes", "dead letter", "entry 5"),
    "job": Case(f"UPDATE jobs SET body = flip(body, 1) WHERE {_PLANE}", "plane", "job", "JOB"),
    "job of another id": Case(f"UPDATE jobs SET body = flip(body, 9) WHERE {_PLANE}", "plane", "job", "JOB"),
    "answer": Case(
        f"UPDATE answers SET log_offset = flip(log_offset) WHERE {_PLANE} AND key = 'plane-1500'",
        "plane", "answer", "'plane-1500'",
    ),
    "chunk without reference": Case("INSERT INTO chunks VALUES (100000, x'00')", None, "orphan", "chunk 100000"),
    "rows of no stream": Case("INSERT INTO jobs VALUES (99, 'a', 1, 1, x'7b7d')", None, "orphan", "table jobs"),
}  # fmt: skip


def ids_of(kind: str) -> dict[str, str]:
    plane = earlier_stores.contents(VERSION)[kind]["plane"]
    return {"BLOB": repr(plane["blobs"][0]), "JOB": plane["refinements"][0]["id"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return earlier_stores.unpack_folder(VERSION, tmp_path / "data")


def change(folder: Path, sql: str) -> None:
    with closing(sqlite3.connect(folder / "shoal.sqlite3")) as db, db:
        db.create_function("flip", -1, flipped)
        assert db.execute(sql).rowcount > 0


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_whole_folder_is_clean_and_stays_as_it_is(folder: Path) -> None:
    before = files_of(folder)
    found = inspect_store(folder)
    assert found.findings == []
    assert not found.in_use
    expected = earlier_stores.contents(VERSION)["sqlite"]
    for stream in found.streams:
        kept = expected[stream.name]
        assert (stream.first_seq, stream.last_seq, stream.log_offset) == (
            kept["first_seq"], kept["last_seq"], kept["log_offset"],
        )  # fmt: skip
        assert stream.checkpoints == [seq for seq, _ in kept["checkpoints"]]
        assert stream.dead_letters == len(kept["dead_letters"])
    assert files_of(folder) == before


def test_a_folder_on_a_read_only_disk_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a mounted backup. There the system refuses to remove a file, also one that does not exist."""

    def refused(path: Path, **_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refused)
    assert inspect_store(folder).findings == []


@pytest.mark.parametrize("name", SQLITE)
def test_each_kind_of_damage_in_a_folder_is_named(folder: Path, name: str) -> None:
    case = SQLITE[name]
    change(folder, case.damage)
    before = files_of(folder)
    found = inspect_store(folder)
    assert (case.stream, case.part, ids_of("sqlite").get(case.where, case.where)) in named(found), found.findings
    assert all(one.problem and one.loss and one.remedy for one in found.findings)
    assert files_of(folder) == before


def test_high_water_marks_are_compared_with_the_log(folder: Path) -> None:
    file = folder / "shoal.high-water"
    whole = file.read_bytes()
    at = next(i for i, byte in enumerate(whole) if byte)
    file.write_bytes(whole[:at] + flipped(whole[at : at + 1]) + whole[at + 1 :])
    assert (None, "high-water mark", "file") in named(inspect_store(folder))
    file.write_bytes(whole)
    change(folder, f"DELETE FROM entries WHERE {_PLANE} AND seq = 17")
    found = inspect_store(folder)
    assert ("plane", "high-water mark", "entry 17") in named(found)
    change(folder, "DELETE FROM streams WHERE name = 'counts'")
    assert ("counts", "high-water mark", "entry 7") in named(inspect_store(folder))
    file.unlink()
    assert any("no file of high-water marks" in note for note in inspect_store(folder).notes)


def test_every_flipped_byte_that_changes_what_is_read_is_found(folder: Path, tmp_path: Path) -> None:
    def contents(of: Path) -> Any:
        columns = {"streams": "*", "entries": "*", "checkpoints": "*", "dead_letters": "*", "blobs": "*"}
        with closing(sqlite3.connect(f"{(of / 'shoal.sqlite3').as_uri()}?immutable=1", uri=True)) as db:
            db.text_factory = bytes
            read = {table: db.execute(f"SELECT {what} FROM {table}").fetchall() for table, what in columns.items()}
            return read, db.execute("SELECT * FROM chunks ORDER BY id").fetchall()

    expected = contents(folder)
    database = (folder / "shoal.sqlite3").read_bytes()
    written = [i for i, byte in enumerate(database) if byte]
    rng, changed = Random(3), 0
    for _ in range(120):
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        at = rng.choice(written)
        spoilt = bytearray(database)
        spoilt[at] ^= rng.randrange(1, 256)
        (copy / "shoal.sqlite3").write_bytes(spoilt)
        try:
            same = contents(copy) == expected
        except (sqlite3.Error, UnicodeDecodeError):
            same = False
        changed += not same
        try:
            findings = inspect_store(copy).findings
        except (StoreFormatError, StoreUnavailableError):
            continue
        assert same or findings, f"byte {at} changes what is read, and nothing is found"
    assert changed > 60


def test_a_folder_in_use_and_one_after_a_crash_are_read_as_they_are(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    store.create_stream("s", "inc", b"{}", max_streams=9)
    for n in range(5):
        store.append("s", "inc", NewEntry(EntryKind.BATCH, b"payload %d" % n, 3), budget_bytes=1 << 30).result()
    found = inspect_store(tmp_path / "data")
    assert found.in_use
    assert found.findings == []
    assert [(one.last_seq, one.log_offset) for one in found.streams] == [(5, 15)]
    crashed = tmp_path / "crashed"
    shutil.copytree(tmp_path / "data", crashed)
    (crashed / "shoal.sqlite3-shm").unlink()
    store.close()
    before = files_of(crashed)
    found = inspect_store(crashed)
    assert (found.in_use, found.findings, found.streams[0].last_seq) == (False, [], 5)
    assert files_of(crashed) == before
    spoilt = bytearray(before["shoal.sqlite3-wal"])
    at = spoilt.find(b"payload 3")
    spoilt[at] ^= 1
    (crashed / "shoal.sqlite3-wal").write_bytes(spoilt)
    assert ("s", "high-water mark", "entry 5") in named(inspect_store(crashed))
    SqliteStore(crashed).close()  # no lock is left behind


def test_a_folder_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="holds no store"):
        inspect_store(tmp_path)
    (tmp_path / "shoal.sqlite3").write_bytes(b"no database at all" * 99)
    with pytest.raises(StoreFormatError):
        inspect_store(tmp_path)


# -- Redis


class Keys:
    """The keys of the kept Redis store under a prefix of its own."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self.url = server.url
        self.prefix = prefix
        self.client = server.client()

    def of(self, stream: str, part: str) -> str:
        incarnation = earlier_stores.contents(VERSION)["redis"][stream]["incarnation"]
        return f"{self.prefix}:{{{stream}/{incarnation}}}:{part}"

    def flip_field(self, stream: str, part: str, choose: Callable[[bytes], bool], at: int | None = None) -> None:
        key = self.of(stream, part)
        field = next(name for name in sorted(self.client.hkeys(key)) if choose(name))
        self.client.hset(key, field, flipped(self.client.hget(key, field), at))

    def rewrite(self, stream: str, part: str, of: bytes, change: Callable[[dict[bytes, bytes]], Any]) -> None:
        """Write a stream of Redis again, with one element changed, or left out for None."""
        key = self.of(stream, part)
        elements = self.client.xrange(key)
        self.client.delete(key)
        for element_id, fields in elements:
            if (kept := change(fields) if element_id == of else fields) is not None:
                self.client.xadd(key, kept, id=element_id)

    def blob_piece(self, stream: str, owner: str) -> Callable[[bytes], bool]:
        """Choose the first piece of the blob that a header names: `named`, or the checkpoint of an entry."""
        (header,) = [
            value for name, value in self.client.hgetall(self.of(stream, owner.split(" ")[0])).items()
            if owner == "named" or name.decode() == owner.split(" ")[1]
        ]  # fmt: skip
        run = next(word for word in header.split(b" ") if b":" in word)
        return lambda field: field == run.rpartition(b":")[0] + b"/0"


@pytest.fixture(scope="module")
def server(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with running_redis(redis_binary, tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def keys(server: RedisServer) -> Iterator[Keys]:
    prefix = f"test-{uuid.uuid4().hex}"
    earlier_stores.load_keys(VERSION, server, prefix)
    made = Keys(server, prefix)
    yield made
    made.client.close()


REDIS: dict[str, tuple[Callable[[Keys], Any], str | None, str, str]] = {
    "settings": (lambda k: k.flip_field("plane", "meta", b"settings".__eq__), "plane", "record", "record"),
    "counter": (lambda k: k.client.hincrby(k.of("plane", "meta"), "seq", 1), "plane", "entry", "end of the log"),
    "no number": (lambda k: k.flip_field("plane", "meta", b"offset".__eq__, 0), "plane", "record", "record"),
    **{
        f"entry {name}": (
            lambda k, name=name: k.rewrite("plane", "log", b"9-0", lambda f: {**f, name: flipped(f[name], 0)}),
            "plane", "entry", "entry 9",
        )
        for name in (b"o", b"n", b"c", b"h")
    },
    "payload": (
        lambda k: k.rewrite("plane", "data", b"16-0", lambda f: {b"d": flipped(f[b"d"])}), "plane", "entry", "entry 16"
    ),
    "missing entry": (lambda k: k.client.xdel(k.of("plane", "log"), "10-0"), "plane", "entry", "entry 10"),
    "payload without entry": (
        lambda k: k.client.xdel(k.of("plane", "log"), "10-0"), "plane", "orphan", "payload of entry 10"
    ),
    "checkpoint": (
        lambda k: k.flip_field("plane", "checkpoints", b"13".__eq__, -3),
        "plane", "checkpoint", "checkpoint at entry 13",
    ),
    "state": (
        lambda k: k.flip_field("plane", "blobs", k.blob_piece("plane", "checkpoints 11")),
        "plane", "checkpoint", "checkpoint at entry 11",
    ),
    "blob": (lambda k: k.flip_field("plane", "blobs", k.blob_piece("plane", "named")), "plane", "blob", "BLOB"),
    "blob header": (lambda k: k.flip_field("plane", "named", lambda name: True, 0), "plane", "blob", "BLOB"),
    "missing blob": (lambda k: k.client.delete(k.of("plane", "named")), "plane", "orphan", "pieces of the blob"),
    "letter": (lambda k: k.flip_field("axes", "letters", b"5".__eq__), "axes", "dead letter", "entry 5"),
    "letter payload": (lambda k: k.flip_field("axes", "letters", b"5/0".__eq__), "axes", "dead letter", "entry 5"),
    "job": (lambda k: k.flip_field("plane", "jobs", bool, 17), "plane", "job", "JOB"),
    "answer": (
        lambda k: k.flip_field("plane", "answers", b"plane-1500".__eq__, 31), "plane", "answer", "'plane-1500'"
    ),
    "key of no stream": (lambda k: k.client.set(f"{k.prefix}:{{old/inc}}:log", "x"), None, "orphan", "key "),
    "registry": (
        lambda k: k.client.hset(f"{k.prefix}:{{registry}}:streams", "plane", b"="), "plane", "record", "record"
    ),
}  # fmt: skip


@pytest.mark.redis
def test_whole_keys_are_clean_and_stay_as_they_are(keys: Keys) -> None:
    before = {key: keys.client.dump(key) for key in keys.client.keys(f"{keys.prefix}*")}
    found = inspect_store(keys.url, prefix=keys.prefix)
    assert (found.findings, found.in_use) == ([], False)
    assert [one.name for one in found.streams] == sorted(earlier_stores.STREAMS)
    assert {key: keys.client.dump(key) for key in keys.client.keys(f"{keys.prefix}*")} == before


@pytest.mark.redis
@pytest.mark.parametrize("name", REDIS)
def test_each_kind_of_damage_in_redis_is_named(keys: Keys, name: str) -> None:
    damage, stream, part, where = REDIS[name]
    damage(keys)
    found = inspect_store(keys.url, prefix=keys.prefix)
    where = ids_of("redis").get(where, where)
    assert any(one[:2] == (stream, part) and one[2].startswith(where) for one in named(found)), found.findings


@pytest.mark.redis
def test_a_busy_redis_store_is_clean(server: RedisServer, keys: Keys) -> None:
    store = RedisStore(server.url, prefix=keys.prefix)
    incarnation = store.get_stream("axes").incarnation
    futures = [
        store.append("axes", incarnation, NewEntry(EntryKind.BATCH, b"x" * 500, 1), budget_bytes=1 << 40)
        for _ in range(800)
    ]
    found = inspect_store(keys.url, prefix=keys.prefix)
    assert found.findings == []
    for future in futures:
        future.result(120)
    store.close()


@pytest.mark.redis
def test_a_server_that_does_not_answer_is_said(server: RedisServer) -> None:
    with pytest.raises(StoreUnavailableError):
        inspect_store("redis://127.0.0.1:1/0")


# -- what later formats added: access keys, pages of records and documents


def fill(store: Any) -> None:
    """A stream with one entry and one page of records and one document, and an access key."""
    store.create_stream("s", "inc", b"{}", max_streams=9)
    store.append("s", "inc", NewEntry(EntryKind.BATCH, b"payload", 3), budget_bytes=1 << 30).result()
    epoch = store.acquire_writer("s", "inc")
    page = b"a page of records"
    store.write_pages("s", "inc", epoch, {(1, 0): struct.pack("<I", zlib.crc32(page)) + page}).result()
    store.set_document("s", "inc", "label", "7", b"a document")
    store.put_access_key(AccessKey("key-1", "name", b"d" * 32, b"{}", 1.0))


LATER = {
    ("s", "page of records", "run 1, page 0"),
    ("s", "document", "label '7'"),
    (None, "access key", "key-1"),
}


def test_pages_documents_and_access_keys_in_a_folder(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    fill(store)
    store.close()
    assert inspect_store(tmp_path).findings == []
    change(tmp_path, "UPDATE pages SET data = flip(data)")
    change(tmp_path, "UPDATE documents SET value = flip(value)")
    change(tmp_path, "UPDATE access_keys SET digest = flip(digest)")
    assert named(inspect_store(tmp_path)) == LATER
    change(tmp_path, "DELETE FROM access_keys")
    change(tmp_path, "UPDATE pages SET stream = 9")
    change(tmp_path, "UPDATE documents SET stream = 9")
    assert named(inspect_store(tmp_path)) == {(None, "orphan", "table pages"), (None, "orphan", "table documents")}


@pytest.mark.redis
def test_pages_documents_and_access_keys_in_redis(server: RedisServer) -> None:
    prefix = f"test-{uuid.uuid4().hex}"
    store = RedisStore(server.url, prefix=prefix)
    fill(store)
    store.close()
    assert inspect_store(server.url, prefix=prefix).findings == []
    with server.client() as client:
        for name, field in (
            ("{s/inc}:pages", b"1/0"),
            ("{s/inc}:documents", b"label/7"),
            ("{registry}:access", b"key-1"),
        ):
            key = f"{prefix}:{name}"
            client.hset(key, field, flipped(client.hget(key, field)))
    assert named(inspect_store(server.url, prefix=prefix)) == LATER
