"""Many appends share a commit, each is answered after it, and a fault reaches exactly those that it belongs to."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shoal_service.errors import StoreUnavailableError
from shoal_service.store import Appended, EntryKind, IdempotencyKey, NewEntry, SqliteStore, group_commit
from shoal_service.store.sqlite import store as sqlite
from shoal_service.store.sqlite.chunks import CHUNK_BYTES

KEY = ("s", "inc-s")


@contextmanager
def held(opened: Any) -> Iterator[None]:
    """Hold the writer up while the test fills its queue."""
    entered, release = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        entered.set()
        release.wait(120)

    holding = opened.store._writer.submit(hold)
    entered.wait(120)
    try:
        yield
    finally:
        release.set()
        holding.result(120)


def test_what_waits_together_is_committed_together(opened: Any) -> None:
    before = opened.store.commits
    with held(opened):
        futures = [opened.post(b"%d" % i) for i in range(200)]
        assert not any(f.done() for f in futures)
    assert [f.result(120).seq for f in futures] == list(range(1, 201))
    assert opened.store.commits - before == 1


def test_callers_who_each_wait_for_their_answer_share_commits(opened: Any) -> None:
    before = opened.store.commits
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: opened.add(b"x" * 4096), range(400)))
    commits = opened.store.commits - before
    assert commits < 400 / 3  # 8 a commit at best; what is measured is about 7.5


def test_a_lone_caller_has_a_commit_of_its_own_each_time(opened: Any) -> None:
    before = opened.store.commits
    for _ in range(20):
        opened.add()
    assert opened.store.commits - before == 20


def test_a_future_is_done_only_when_another_process_would_find_the_entry(opened: Any) -> None:
    found: list[bool] = []

    def look(future: Any) -> None:
        found.append(opened.ask(f"SELECT count(*) FROM entries WHERE seq = {future.result().seq}") == 1)

    for i in range(30):
        opened.post(b"%d" % i).add_done_callback(look)
    opened.store.check()
    assert found == [True] * 30


def test_a_cancelled_append_that_waited_is_not_done(opened: Any) -> None:
    with held(opened):
        futures = [opened.post(b"%d" % i) for i in range(5)]
        assert futures[1].cancel()
        assert futures[3].cancel()
    assert [f.result(120).seq for f in futures if not f.cancelled()] == [1, 2, 3]
    assert opened.payloads() == [b"0", b"2", b"4"]
    assert not futures[0].cancel()


def test_closing_commits_what_was_accepted(opened: Any, folder: Path) -> None:
    with held(opened):
        futures = [opened.post(b"%d" % i) for i in range(50)]
        closer = threading.Thread(target=opened.store.close)
        closer.start()
        with pytest.raises(StoreUnavailableError, match="closed"):
            opened.store.wait_for_entries(*KEY, 0, 30.0)
    closer.join(120)
    assert [f.result(0).seq for f in futures] == list(range(1, 51))
    assert not list(folder.glob("*-wal"))
    opened.reopen()
    assert opened.payloads() == [b"%d" % i for i in range(50)]


# -- faults


def full(opened: Any, spare_bytes: int | None) -> None:
    """Let the file grow by so much and no further, as on a full disk; None: without limit again."""
    pages = opened.ask("PRAGMA page_count") + spare_bytes // 4096 if spare_bytes is not None else 1 << 30
    opened.in_writer(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())


def test_a_full_disk_refuses_exactly_the_append_that_does_not_fit(opened: Any) -> None:
    opened.add(b"before", 2)
    full(opened, spare_bytes=200_000)
    key = IdempotencyKey("k", b"digest")
    with held(opened):
        small = [opened.post(b"small %d" % i, 3) for i in range(3)]
        large = opened.store.append(
            *KEY,
            NewEntry(EntryKind.BATCH, b"x" * 2_000_000, 99, idempotency=key, settings=b"new"),
            budget_bytes=1 << 40,
        )
        small += [opened.post(b"small %d" % i, 3) for i in range(3, 6)]
    with pytest.raises(StoreUnavailableError, match="disk is full; free some disk space"):
        large.result(120)
    assert [f.result(120)[:2] for f in small] == [(i + 2, 5 + 3 * i) for i in range(6)]
    assert opened.store.get_stream("s").settings == b"{}"
    assert opened.store.tail(*KEY)[:3] == (7, 20, 6 + 6 * 7)

    for _ in range(2):  # nothing half-written is there now, nor in the file
        assert opened.payloads() == [b"before", *(b"small %d" % i for i in range(6))]
        assert opened.ask("SELECT count(*) FROM chunks") == 7
        assert opened.ask("SELECT count(*) FROM answers") == 0
        assert opened.ask("PRAGMA integrity_check") == "ok"
        opened.reopen()
    retried = opened.store.append(
        *KEY, NewEntry(EntryKind.BATCH, b"x" * 2_000_000, 99, idempotency=key), budget_bytes=1 << 40
    ).result(120)
    assert retried == Appended(8, 119, 99, replayed=False)


def test_on_a_full_disk_all_else_goes_on_and_room_mends_it(opened: Any) -> None:
    opened.add(b"x" * 100_000)
    full(opened, spare_bytes=0)
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            opened.add(b"x" * 100_000)
        with pytest.raises(StoreUnavailableError):
            opened.save(1, b"x" * (9 << 20))
    assert opened.payloads() == [b"x" * 100_000]
    assert opened.store.load_checkpoints(*KEY) == []
    full(opened, None)
    assert opened.add(b"y").seq == 2
    opened.save(1, b"state")
    opened.sweep()
    assert opened.ask("SELECT count(*) FROM chunks") == 3


IO_ERROR = """
import resource, sys
from shoal_service.errors import StoreUnavailableError
from shoal_service.store import EntryKind, NewEntry, SqliteStore

def add(payload):
    return store.append("s", "i", NewEntry(EntryKind.BATCH, payload, 1), budget_bytes=1 << 40).result(120)

store = SqliteStore(sys.argv[1])
store.create_stream("s", "i", b"{}", max_streams=9)
add(b"before")
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
for size in (3 << 20, 30 << 20):
    try:
        add(b"x" * size)
    except StoreUnavailableError as error:
        print(error)
print(store.tail("s", "i"))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.check()
print(add(b"after"))
print([e.payload for e in store.read("s", "i", 0, max_bytes=1 << 40)])
store.close()
"""


def test_a_write_that_the_system_refuses_is_undone_and_the_next_one_goes_on(
    folder: Path, package_path: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IO_ERROR, str(folder)], env=package_path, capture_output=True, text=True, timeout=120
    )
    *errors, tail, after, payloads = done.stdout.splitlines()
    assert len(errors) == 2, done.stderr
    assert all("disk I/O error" in error for error in errors)
    assert tail == "Tail(seq=1, log_offset=1, unapplied_bytes=6, first_seq=1)"
    assert after == "Appended(seq=2, log_offset=2, n_points=1, replayed=False)"
    assert payloads == "[b'before', b'after']"


def test_a_small_file_system_that_is_full_loses_nothing(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", mount], capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root and its leave")
    try:
        store = SqliteStore(mount / "data")
        store.create_stream(*KEY, b"{}", max_streams=9)
        accepted = 0
        for _ in range(100):
            future = store.append(*KEY, NewEntry(EntryKind.BATCH, b"x" * 100_000, 1), budget_bytes=1 << 40)
            if isinstance(future.exception(30), StoreUnavailableError):
                break
            accepted += 1
        assert 10 < accepted < 70
        assert [e.seq for e in store.read(*KEY, 0, max_bytes=1 << 40)] == list(range(1, accepted + 1))
        store.close()
        store = SqliteStore(mount / "data")
        assert [e.payload for e in store.read(*KEY, 0, max_bytes=1 << 40)] == [b"x" * 100_000] * accepted
        store.close()
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_failed_sync_fails_the_whole_group(opened: Any) -> None:
    """What a COMMIT that fails says of the disk, it says of every append in it: none is tried again behind its back."""

    class Failing:
        """A connection on which one COMMIT, after `succeed` good ones, fails as a failed fsync does."""

        def __init__(self, db: sqlite3.Connection, succeed: int) -> None:
            self.db, self.commits_until_failure = db, succeed

        def __getattr__(self, name: str) -> Any:
            return getattr(self.db, name)

        def execute(self, sql: str, *args: Any) -> Any:
            if sql == "COMMIT":
                self.commits_until_failure -= 1
            if sql == "COMMIT" and self.commits_until_failure == -1:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise error
            return self.db.execute(sql, *args)

    opened.add(b"before")
    with held(opened):  # the jobs behind it are the next transaction
        opened.store._writer._db = Failing(opened.store._writer._db, succeed=1)
        futures = [opened.post(b"lost %d" % i) for i in range(4)]
    errors = [f.exception(30) for f in futures]
    assert [str(e)[:28] for e in errors] == ["committing: disk I/O error; "] * 4
    assert all(isinstance(e, StoreUnavailableError) for e in errors)
    assert opened.add(b"after").seq == 2
    assert opened.payloads() == [b"before", b"after"]


def test_a_bug_in_one_job_is_its_callers_alone(opened: Any) -> None:
    with held(opened):
        first = opened.post(b"first")
        broken = opened.store._writer.submit(lambda tx: tx.no_such_thing)
        last = opened.post(b"last")
    with pytest.raises(AttributeError, match="no_such_thing"):
        broken.result(120)
    assert [first.result(120).seq, last.result(120).seq] == [1, 2]
    assert opened.payloads() == [b"first", b"last"]
    assert opened.ask("SELECT count(*) FROM chunks") == 2


def test_a_disk_that_hangs_makes_the_store_not_ready(opened: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(sqlite, "CHECK_TIMEOUT_S", 0.05)
    with held(opened), pytest.raises(StoreUnavailableError, match=r"not completed a write for 0\.05 s"):
        opened.store.check()
    opened.store.check()


def test_what_is_trimmed_is_swept_in_instalments_and_its_room_used_again(opened: Any) -> None:
    for round_ in range(4):
        for _ in range(12):
            opened.add(b"x" * (3 * CHUNK_BYTES))
        for _ in range(300):
            opened.post(b"small")
        opened.store.check()
        end = opened.store.tail(*KEY).seq
        opened.save(end - 1, b"older")
        opened.save(end, b"newer")
        opened.sweep()
        assert opened.ask("SELECT count(*) FROM entries") == 1
        assert opened.ask("SELECT count(*) FROM chunks") == 1 + 2
        pages = opened.ask("PRAGMA page_count")
        if round_ == 0:
            first = pages
        assert pages < 1.1 * first
    opened.store.delete_stream("s")
    opened.sweep()
    assert opened.ask("SELECT count(*) FROM chunks") == 0
    assert opened.ask("SELECT count(*) FROM streams") == 0


class Queued(NamedTuple):
    """A request of a backend that only counts."""

    future: "Future[int]"
    n_bytes: int


@pytest.mark.parametrize(("limit", "value"), [("GROUP_REQUESTS", 4), ("GROUP_BYTES", 40)])
def test_a_group_is_closed_at_its_limits(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(group_commit, limit, value)
    released, sizes = threading.Event(), []

    def commit(group: list[Queued]) -> None:
        released.wait(120)
        sizes.append(len(group))
        for request in group:
            request.future.set_result(len(sizes))

    groups = group_commit.GroupCommit[Queued]("counting", commit)
    requests = [Queued(Future(), 10) for _ in range(10)]
    for request in requests:
        groups.submit(request)
    released.set()
    assert [request.future.result(120) for request in requests] == sorted(r.future.result() for r in requests)
    groups.close()
    assert sum(sizes) == 10
    assert max(sizes) <= 4


def test_a_group_that_fails_is_told_and_the_next_one_goes_on() -> None:
    def commit(group: list[Queued]) -> None:
        if group and group[0].n_bytes:
            raise RuntimeError("a fault of the backend")
        for request in group:
            request.future.set_result(1)

    groups = group_commit.GroupCommit[Queued]("failing", commit)
    failing, fine = Queued(Future(), 1), Queued(Future(), 0)
    groups.submit(failing)
    with pytest.raises(RuntimeError, match="fault of the backend"):
        failing.future.result(120)
    groups.submit(fine)
    assert fine.future.result(120) == 1
    groups.close()
    late = Queued(Future(), 0)
    groups.submit(late)
    with pytest.raises(StoreUnavailableError):
        late.future.result(1)
