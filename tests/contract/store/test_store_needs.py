"""What entries need beside their payloads (blobs, entries to read again), and the jobs that processes agree on."""

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shoal_service.errors import LogGapError
from shoal_service.store import EntryKind, Job, References, Store
from shoal_service.store.contract import JOBS_KEPT

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB - 1, MIB, 4 * MIB, 4 * MIB + 1, 17 * MIB + 5])
@pytest.mark.short_form("sqlite-*", "redis-*", "memory-1")
def test_a_blob_of_any_size_comes_back_as_it_was(line: Any, store: Store, size: int) -> None:
    blob = random.Random(size).randbytes(size)
    store.put_blob(*line.key, "k", blob)
    store.put_blob(*line.key, "k", blob)
    assert store.get_blob(*line.key, "k") == blob
    assert store.blob_keys(*line.key) == ["k"]


def test_a_blob_that_is_not_there_is_said(line: Any, store: Store) -> None:
    store.put_blob(*line.key, "k", b"blob")
    with pytest.raises(LogGapError, match="'other' is missing"):
        store.get_blob(*line.key, "other")
    store.drop_blob(*line.key, "k")
    store.drop_blob(*line.key, "k")
    with pytest.raises(LogGapError, match="'k' is missing"):
        store.get_blob(*line.key, "k")


@pytest.mark.parametrize("other", [b"other", b"x" * 5 * MIB])
def test_other_bytes_under_the_same_key_are_the_callers_mistake(line: Any, store: Store, other: bytes) -> None:
    store.put_blob(*line.key, "k", b"blob")
    with pytest.raises(ValueError, match="'k'"):
        store.put_blob(*line.key, "k", other)
    assert store.get_blob(*line.key, "k") == b"blob"


def test_streams_have_their_own_blobs_and_jobs(store: Store, new_line: Any) -> None:
    a, b = new_line(store, "a"), new_line(store, "b")
    store.put_blob(*a.key, "k", b"a")
    store.put_blob(*b.key, "k", b"b")
    assert store.put_job(*a.key, "j", b"a", version=0)
    assert store.put_job(*b.key, "j", b"b", version=0)
    store.drop_blob(*a.key, "k")
    assert store.get_blob(*b.key, "k") == b"b"
    assert [store.jobs(*line.key)[0].body for line in (a, b)] == [b"a", b"b"]


def test_an_entry_whose_needs_are_not_there_is_refused_and_not_in_the_log(line: Any, store: Store) -> None:
    for _ in range(5):
        line.add()
    line.save(3)
    line.save(4)
    store.put_blob(*line.key, "k", b"blob")
    assert store.tail(*line.key).first_seq == 4
    for needs, missing in (
        (References("other", 4), "blob 'other'"),
        (References("k", 2), "entries 3 to 5"),  # trimmed already
        (References("k", 6), "entries 7 to 5"),  # not there yet
    ):
        with pytest.raises(LogGapError, match=missing):
            line.add(b"adopt", 0, kind=EntryKind.ADOPTION, references=needs)
    assert store.tail(*line.key).seq == 5
    assert line.adopt("k", 3).seq == 6
    assert line.adopt("k", 6).seq == 7
    entry = store.read(*line.key, 5, max_bytes=10)[0]
    assert entry == (6, 5, 0, EntryKind.ADOPTION, b"adopt")


def test_a_blob_that_an_entry_names_stays_as_long_as_the_entry(line: Any, store: Store) -> None:
    store.put_blob(*line.key, "k", b"x" * 5 * MIB)
    line.add()
    line.adopt("k", 1)
    line.adopt("k", 1)
    store.drop_blob(*line.key, "k")
    assert store.blob_keys(*line.key) == ["k"]
    line.add()
    line.save(1)
    line.save(2)
    line.save(3)  # drops the first of the two
    assert line.seqs() == [2, 3, 4], "the second adoption reads entry 2 again"
    line.save(4)
    assert line.seqs() == [4]
    assert store.blob_keys(*line.key) == []


def test_a_new_writer_drops_what_no_entry_names(line: Any, store: Store) -> None:
    line.add()
    for key in ("named", "orphan"):
        store.put_blob(*line.key, key, b"x" * 5 * MIB)
    line.adopt("named", 1)
    store.acquire_writer(*line.key)
    assert store.blob_keys(*line.key) == ["named"]
    with pytest.raises(LogGapError, match="'orphan'"):
        line.adopt("orphan", 1)
    store.put_blob(*line.key, "orphan", b"again")
    assert line.adopt("orphan", 1).seq == 3


def test_a_known_key_is_answered_though_its_needs_are_gone(line: Any, store: Store) -> None:
    from shoal_service.store import IdempotencyKey

    line.add()
    store.put_blob(*line.key, "k", b"blob")
    asked = {
        "kind": EntryKind.ADOPTION,
        "references": References("k", 1),
        "idempotency": IdempotencyKey("i", b"digest"),
    }
    first = line.add(b"adopt", 0, **asked)
    line.add()
    line.save(2)
    line.save(3)
    line.save(3)
    line.add()
    line.save(4)
    assert store.blob_keys(*line.key) == []
    assert line.add(b"adopt", 0, **asked) == first._replace(replayed=True)


# -- jobs


def test_a_job_is_written_by_who_has_seen_it(line: Any, store: Store) -> None:
    assert store.jobs(*line.key) == []
    assert not store.put_job(*line.key, "a", b"?", version=1)
    assert store.put_job(*line.key, "a", b"one", version=0)
    assert not store.put_job(*line.key, "a", b"one", version=0)
    assert store.put_job(*line.key, "b", b"other", version=0)
    assert store.put_job(*line.key, "a", b"two", version=1)
    assert not store.put_job(*line.key, "a", b"late", version=1)
    assert not store.put_job(*line.key, "a", b"two", version=1)
    assert store.jobs(*line.key) == [Job("b", 1, b"other"), Job("a", 2, b"two")]


def test_the_newest_jobs_are_kept(line: Any, store: Store) -> None:
    for i in range(JOBS_KEPT + 3):
        assert store.put_job(*line.key, f"j{i}", b"%d" % i, version=0)
    held = [job.body for job in store.jobs(*line.key)]
    assert held == [b"%d" % i for i in range(JOBS_KEPT + 2, 2, -1)]


def test_of_many_who_saw_the_same_version_one_writes(line: Any, store: Store) -> None:
    store.put_job(*line.key, "a", b"", version=0)

    def write(i: int) -> bool:
        return store.put_job(*line.key, "a", b"%d" % i, version=1)

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(write, range(32)))
    assert sum(done) == 1
    assert store.jobs(*line.key) == [Job("a", 2, b"%d" % done.index(True))]
