"""Records in runs of pages, beside a plain dictionary that is told the same."""

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.short_form import longer, short_form
from shoal.mixture.lineage import empty_lineage
from shoal_service.errors import StaleWriterError, StoreFormatError, StoreUnavailableError
from shoal_service.store import PagePlace, PageRun, StreamRecord
from shoal_service.streams.learner.keyed_records import KeyedRecords
from shoal_service.streams.record_index import (
    REASSIGNED,
    TEXT_TIME,
    Bounds,
    FamilyTree,
    Limits,
    RecordReader,
    RecordRows,
    Resolver,
    Since,
    changed,
    run_change,
)
from shoal_service.streams.record_index import RecordWriter as Writer
from shoal_service.streams.record_index import merge as merge_module
from shoal_service.streams.record_index import pages as pages_module
from shoal_service.streams.record_index import rows as rows_module
from shoal_service.streams.record_index import writer as writer_module
from shoal_service.streams.record_index.pages import HEAD
from shoal_service.streams.record_index.reader import RunMovedError
from shoal_service.streams.record_index.rows import hashes_of
from shoal_service.wire import Texts

PLENTY = Limits(1 << 40, 1 << 60, None)


class Pages:
    """A store of pages in memory, which can fail."""

    def __init__(self) -> None:
        self.held: dict[PagePlace, bytes] = {}
        self.failing = False
        self.lose_answer = False
        self.slow = False
        self.crash_after: int | None = None  # pages of the next write after which the process ends
        self.waiting: list[Callable[[], None]] = []

    def write(self, pages: Mapping[PagePlace, bytes], dropped: Sequence[PageRun]) -> "Future[None]":
        written: Future[None] = Future()
        if self.crash_after is not None and self.crash_after < len(pages):
            self.held |= dict(list(pages.items())[: self.crash_after])
            raise KeyboardInterrupt
        work = lambda: _answer(written, lambda: self._write(pages, dropped))  # noqa: E731
        self.waiting.append(work) if self.slow else work()
        return written

    def _write(self, pages: Mapping[PagePlace, bytes], dropped: Sequence[PageRun]) -> None:
        if self.failing:
            raise StoreUnavailableError("full; try later")
        self.held |= pages
        for run in dropped:
            numbers = {page for at, page in self.held if at == run.run}
            assert numbers <= set(range(run.n_pages))
            self.held = {place: page for place, page in self.held.items() if place[0] != run.run}
        if self.lose_answer:
            raise StoreUnavailableError("the answer was lost")

    def read(self, places: Sequence[PagePlace]) -> list[bytes | None]:
        return [self.held.get(place) for place in places]

    def writer(self) -> Writer:
        return Writer(self.read, self.write)

    def find(self, *keys: bytes, bounds: Bounds = Bounds()) -> list[Any]:
        return RecordReader(self.read).find(keys, bounds)


def _answer(written: "Future[None]", work: Callable[[], None]) -> None:
    try:
        work()
        written.set_result(None)
    except StoreUnavailableError as error:
        written.set_exception(error)


def made(keys: list[bytes], offset: int, *, arrived: float = 0.0, component: int = 0, flags: int = 0) -> RecordRows:
    """Records of these keys from a log offset on, each field a function of the offset."""
    n = len(keys)
    at = offset + np.arange(n)
    return RecordRows(
        at,
        np.where(flags & REASSIGNED, -1, at % 7),
        np.full(n, component if flags & REASSIGNED else -1),
        at / 1e6,
        -at / 3.0,
        np.where(at % 5 == 0, np.nan, at + 0.25),
        np.full(n, arrived),
        np.full(n, flags, dtype=np.uint8) | np.where(at % 2, TEXT_TIME, 0).astype(np.uint8),
        Texts.of(keys),
        Texts.of([b"" if a % 3 else b'{"at":%d}' % a for a in at.tolist()]),
    )


def expect(record: Any, key: bytes, offset: int) -> None:
    row = made([key], offset)
    assert (record.key, record.log_offset, record.assigned) == (key, offset, int(row.assigned[0]))
    assert (record.novelty, record.log_density) == (row.novelty[0], row.log_density[0])
    np.testing.assert_equal(record.time, row.time[0])
    assert (record.time_is_text, record.payload) == (bool(offset % 2), row.payloads[0])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs and levels of a size that a test fills."""
    monkeypatch.setattr(run_change, "SMALLEST_LEVEL", 8)
    monkeypatch.setattr(run_change, "FANOUT", 3)
    monkeypatch.setattr(run_change, "MOST_WAITING", 3)
    monkeypatch.setattr(run_change, "MOST_JOINED", 2_000)
    monkeypatch.setattr(run_change, "BYTES_HELD", 1_000)
    monkeypatch.setattr(merge_module, "STRETCH_ROWS", 40)
    monkeypatch.setattr(pages_module, "PAGE_BYTES", 500)


@pytest.mark.usefixtures("small")
def test_a_writer_whose_runs_are_gone_learns_that_it_is_not_the_newest() -> None:
    """A newer writer has joined the runs that it would read. Where nobody has, they are damaged."""
    pages = Pages()
    old = pages.writer()
    for n in (1, 2):  # the next one is joined with both
        old.add(made([b"a%d" % n], n))
        old.flush(n, PLENTY, 0.0)
    intact = dict(pages.held)
    new = pages.writer()
    for n in range(3, 8):
        new.add(made([b"c%d" % n], 10 * n))
        new.flush(n, PLENTY, 0.0)
    assert intact.keys() - pages.held.keys(), "the run of the older writer is gone"
    old.add(made([b"z"], 90))
    with pytest.raises(StaleWriterError, match="newer writer"):
        old.flush(9, PLENTY, 0.0)
    pages.held = {HEAD: intact[HEAD]}
    with pytest.raises(RunMovedError):
        old.flush(9, PLENTY, 0.0)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("n_entries", [60, longer(160)])
@pytest.mark.parametrize("collide", [False, True])
def test_any_course_of_records_leaves_what_a_dictionary_holds(
    collide: bool, n_entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if collide:  # many keys of one hash, in neighbouring pages
        real = rows_module.hashes_of
        for module in ("rows", "run_change", "merge", "reader"):
            name = f"shoal_service.streams.record_index.{module}.hashes_of"
            monkeypatch.setattr(name, lambda keys: real(keys) % np.uint64(5))
    rng = np.random.default_rng(11)
    pages, told, reassigned = Pages(), {}, {}
    writer, offset = pages.writer(), 1
    names = [b"key-%d" % i * int(rng.integers(1, 9)) for i in range(400)]
    for seq in range(1, n_entries):
        keys = [names[i] for i in rng.integers(0, 400, size=rng.integers(0, 40))]
        if keys:
            writer.add(made(keys, offset))
            told |= {key: offset + i for i, key in enumerate(keys)}
            offset += len(keys)
        if seq % 7 == 0 and told:
            gone = [names[i] for i in rng.integers(0, 400, size=3)]
            writer.forget(gone)
            for key in gone:
                told.pop(key, None)
        if seq % 9 == 0 and told:
            moved = [list(told)[i] for i in rng.integers(0, len(told), size=5)]
            for key in moved:
                writer.add(made([key], told[key], component=seq, flags=REASSIGNED))
                reassigned[key] = (told[key], seq)
        if seq % 3 == 0:
            writer.flush(seq, PLENTY, 0.0)
            for key, record in zip(names, pages.find(*names), strict=True):
                if key not in told:
                    assert record is None
                    continue
                expect(record, key, told[key])
                at, component = reassigned.get(key, (0, -1))
                assert record.refined == (component if at == told[key] else -1)
    head = RecordReader(pages.read).head()
    assert head.seq == n_entries - 1 - (n_entries - 1) % 3
    assert len(head.runs) < n_entries // 8
    assert {run for run, _ in pages.held} == {0, *(run.number for run in head.runs)}


def test_a_forgotten_key_and_its_payload_are_in_no_page() -> None:
    pages = Pages()
    writer = pages.writer()
    for seq, key in enumerate([b"first secret", b"other", b"first secret"], start=1):
        writer.add(made([key, b"friend-%d" % seq], 3 * seq))
        writer.flush(seq, PLENTY, 0.0)
    assert any(b"first secret" in page for page in pages.held.values())
    writer.add(made([b"unwritten secret"], 20))
    writer.forget([b"first secret", b"unwritten secret"])
    writer.flush(4, PLENTY, 0.0)
    assert not any(b"secret" in page or b'"at":3}' in page for page in pages.held.values())
    assert [r is None for r in pages.find(b"first secret", b"friend-1", b"friend-3", b"other")] == [
        True, False, False, False,
    ]  # fmt: skip


def test_a_replay_adds_nothing_that_is_written_and_all_that_is_not() -> None:
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"a"], 1))
    writer.flush(1, PLENTY, 0.0)
    writer.add(made([b"b"], 2))  # lost with the process
    again = pages.writer()
    assert again.seq == 1
    again.add(made([b"b"], 2))
    again.flush(2, PLENTY, 0.0)
    held = dict(pages.held)
    again.flush(2, PLENTY, 0.0)
    assert pages.held == held
    expect(pages.find(b"a")[0], b"a", 1)
    expect(pages.find(b"b")[0], b"b", 2)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("n_written", [1, 4, 40])
def test_pages_of_a_process_that_crashed_before_the_head_go_with_the_next_write(n_written: int) -> None:
    """Those that the next run did not write over stayed for ever, where a store deletes as many pages as a run has."""
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"kept"], 1))
    writer.flush(1, PLENTY, 0.0)

    dying = pages.writer()
    dying.add(made([b"secret-%d" % i * 5 for i in range(300)], 10))
    pages.crash_after = n_written
    with pytest.raises(KeyboardInterrupt):
        dying.flush(2, PLENTY, 0.0)
    pages.crash_after = None
    again = pages.writer()
    again.add(made([b"b"], 2))
    again.flush(2, PLENTY, 0.0)
    head = RecordReader(pages.read).head()
    assert sorted(pages.held) == [HEAD, *((run.number, page) for run in head.runs for page in range(run.n_pages))]
    assert not any(b"secret" in page for page in pages.held.values())
    expect(pages.find(b"kept")[0], b"kept", 1)
    expect(pages.find(b"b")[0], b"b", 2)


@pytest.mark.usefixtures("small")
def test_writes_that_fail_or_whose_answers_are_lost_lose_and_double_nothing() -> None:
    """A write whose answer was lost used to be written over, and the next one to look for runs that it had dropped."""
    rng = np.random.default_rng(12)
    pages, told = Pages(), {}
    writer, reader, offset = pages.writer(), RecordReader(pages.read), 1
    names = [b"key-%d" % i for i in range(60)]
    for seq in range(1, 150):
        keys = [names[i] for i in rng.integers(0, 60, size=rng.integers(0, 20))]
        writer.add(made(keys, offset))
        told |= {key: offset + i for i, key in enumerate(keys)}
        offset += len(keys)
        if seq % 5 == 0:
            gone = names[int(rng.integers(60))]
            writer.forget([gone])
            told.pop(gone, None)
        pages.failing, pages.lose_answer = (bool(flag) for flag in rng.random(2) < 0.3)
        try:
            writer.flush(seq, PLENTY, 0.0)
            if seq % 3 == 0:
                writer.join_runs()
        except StoreUnavailableError:
            reader.find(names)  # it remembers the runs that it has seen
            continue
        found = {key: record.log_offset for key, record in zip(names, reader.find(names), strict=True) if record}
        assert found == told
    assert {run for run, _ in pages.held} == {0, *(run.number for run in reader.head().runs)}


def test_a_store_that_fails_loses_nothing() -> None:
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"a"], 1))
    pages.failing = True
    with pytest.raises(StoreUnavailableError):
        writer.flush(1, PLENTY, 0.0)
    assert writer.pending
    pages.failing = False
    writer.flush(1, PLENTY, 0.0)
    expect(pages.find(b"a")[0], b"a", 1)


def test_a_write_that_failed_is_as_due_as_before() -> None:
    """What its records keep in memory was no longer counted, so that each failure let as much more in."""
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"a"], 1), writer_module.BYTES_HELD)
    pages.failing = True
    for seq in (1, 2, 3):
        assert writer.full
        with pytest.raises(StoreUnavailableError):
            writer.flush(seq, PLENTY, 0.0)
        writer.add(made([b"b"], seq))
    pages.failing = False
    writer.flush(4, PLENTY, 0.0)
    assert not writer.full


@pytest.mark.parametrize("ends", ["done", "refused", "answer lost"])
def test_what_comes_while_a_write_is_under_way_is_neither_lost_nor_doubled(ends: str) -> None:
    pages = Pages()
    pages.slow = True
    writer = pages.writer()
    writer.add(made([b"a", b"b", b"forgotten"], 1))
    writer.begin_flush(1, PLENTY, 0.0)
    assert pages.find(b"a") == [None], "the store has not written it yet"
    assert writer.pending
    assert not writer.full
    assert writer.seq == 0, "a checkpoint may not count on it"
    writer.add(made([b"b", b"c"], 4))
    writer.forget([b"forgotten"])
    pages.failing, pages.lose_answer = ends == "refused", ends == "answer lost"
    pages.slow = False
    pages.waiting.pop()()
    writer.wait()
    pages.failing = pages.lose_answer = False
    if ends != "done":
        with pytest.raises(StoreUnavailableError):
            writer.flush(2, PLENTY, 0.0)
    writer.flush(2, PLENTY, 0.0)
    assert writer.seq == 2
    assert not writer.pending
    for key, offset in ((b"a", 1), (b"b", 4), (b"c", 5)):
        expect(pages.find(key)[0], key, offset)
    assert pages.find(b"forgotten") == [None]
    assert not any(b"forgotten" in page for page in pages.held.values())
    head = RecordReader(pages.read).head()
    assert {run for run, _ in pages.held} == {0, *(run.number for run in head.runs)}
    assert len(head.runs) == (1 if ends == "refused" else 2)


def test_a_replay_begins_after_the_write_that_is_under_way() -> None:
    """Otherwise its records would be written again, over runs that the head names by then."""
    pages = Pages()
    pages.slow = True

    class Late(Future[None]):
        def exception(self, timeout: float | None = None) -> BaseException | None:
            if not self.done():
                pages.waiting.pop()()
                self.set_result(None)
            return super().exception(timeout)

    def write(name: str, incarnation: str, epoch: int, written: Any, dropped: Any) -> Future[None]:
        pages.write(written, dropped)
        return Late()

    store: Any = SimpleNamespace(read_pages=lambda name, incarnation, places: pages.read(places), write_pages=write)
    records = KeyedRecords(store, StreamRecord("s", "incarnation", b"{}", 0.0))
    records.load(1)
    records._open_writer().add(made([b"a"], 1))
    records._open_writer().begin_flush(1, PLENTY, 0.0)
    records.load(1)
    assert records._open_writer().seq == 1


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("most", [1, 10, 95])
def test_the_newest_records_stay_counted_by_key(most: int) -> None:
    pages = Pages()
    writer, told, offset = pages.writer(), {}, 1
    rng = np.random.default_rng(most)
    for seq in range(1, 60):
        keys = [b"key-%d" % i for i in rng.integers(0, 150, size=9)]
        writer.add(made(keys, offset))
        told |= {key: offset + i for i, key in enumerate(keys)}
        offset += len(keys)
        writer.flush(seq, Limits(most, 1 << 60, None), 0.0)
        kept = sorted(told, key=lambda key: told[key])[-most:]
        told = {key: told[key] for key in kept}
        every = [b"key-%d" % i for i in range(150)]
        assert {record.key: record.log_offset for record in pages.find(*every) if record} == told


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("most", [1, 10, 95])
def test_a_key_that_comes_again_after_it_was_forgotten_stays(most: int) -> None:
    """Both in one write of a stream at its limit: the second join of a write dropped the new record."""
    pages = Pages()
    writer, told, offset = pages.writer(), {}, 1
    rng = np.random.default_rng(most)
    every = [b"key-%d" % i for i in range(120)]
    for seq in range(1, 60):
        for _ in range(2):
            gone = [every[i] for i in rng.integers(0, 120, size=4)]
            writer.forget(gone)
            told = {key: at for key, at in told.items() if key not in gone}
            keys = [every[i] for i in rng.integers(0, 120, size=4)] + gone[:2]
            writer.add(made(keys, offset))
            told |= {key: offset + i for i, key in enumerate(keys)}
            offset += len(keys)
        writer.flush(seq, Limits(most, 1 << 60, None), 0.0)
        told = {key: told[key] for key in sorted(told, key=lambda key: told[key])[-most:]}
        found = {record.key: record.log_offset for record in pages.find(*every) if record}
        newest = {key: at for key, at in told.items() if at > offset - 10}
        assert newest.items() <= found.items()
        assert found.items() <= told.items()


@pytest.mark.parametrize("lost", [False, True])
def test_a_lower_limit_counts_at_once(lost: bool) -> None:
    """Also where no record comes any more, and where a write is lost."""
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"a", b"b", b"c"], 1))
    writer.flush(1, PLENTY, 0.0)
    writer.limits_changed()
    pages.failing = lost
    for seq in (2, 3):
        with contextlib.suppress(StoreUnavailableError):
            writer.flush(seq, Limits(2 if seq == 2 else 0, 1 << 60, None), 0.0)
        pages.failing = False
        if seq == 2 and not lost:
            assert [record is None for record in pages.find(b"a", b"b", b"c")] == [True, False, False]
            writer.limits_changed()
    assert pages.find(b"a", b"b", b"c") == [None] * 3
    assert set(pages.held) == {HEAD}


SIZES = (
    (run_change, "SMALLEST_LEVEL", (2, 8)),
    (run_change, "FANOUT", (2, 3)),
    (run_change, "MOST_WAITING", (2, 4)),
    (run_change, "BYTES_HELD", (100, 1_000, 1 << 20)),
    (merge_module, "STRETCH_ROWS", (1, 5, 40)),
    (pages_module, "PAGE_BYTES", (40, 150, 1_000)),
    (pages_module, "COLUMN_ROWS", (2, 100)),
)


@pytest.mark.parametrize("first", short_form(range(0, 60, 10), (0,)))
def test_short_courses_with_limits_faults_and_crashes_leave_what_a_dictionary_holds(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages and runs are tiny, so that joins, limits, forgotten keys and replays meet in one write."""
    for seed in range(first, first + 10):
        rng = random.Random(seed)
        for module, name, sizes in SIZES:
            monkeypatch.setattr(module, name, rng.choice(sizes))
        _Course(rng).run()


class _Course:
    """A course of records, beside what is in the store by the log and the head."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.pages = Pages()
        self.writer = self.pages.writer()
        self.most = rng.choice((1, 3, 10, 1 << 40))
        self.log: list[tuple[int, list[bytes]]] = []  # offset of the first record and keys; 0 and forgotten keys
        self.stored: dict[bytes, int] = {}  # offset by key, as of entry `seq`
        self.seq = 0

    def run(self) -> None:
        names = [b"key-%d" % i * self.rng.randint(1, 4) for i in range(self.rng.choice((4, 12, 40)))]
        offset = 1
        for _ in range(30):
            for _ in range(self.rng.randint(1, 3)):
                keys = self.rng.choices(names, k=self.rng.randint(1, 6))
                is_batch = self.rng.random() < 0.6
                self.log.append((offset if is_batch else 0, keys))
                offset += len(keys)
                self.add(self.log[-1])
            if self.rng.random() < 0.3:
                self.most = self.rng.choice((1, 3, 10, 1 << 40))
            self.write()
            self.compare(names)

    def add(self, entry: tuple[int, list[bytes]]) -> None:
        offset, keys = entry
        self.writer.add(made(keys, offset)) if offset else self.writer.forget(keys)

    def write(self) -> None:
        pages = self.pages
        pages.failing, pages.lose_answer = (self.rng.random() < 0.1 for _ in range(2))
        pages.crash_after = self.rng.choice((0, 1, 3, 10)) if self.rng.random() < 0.15 else None
        try:
            self.writer.flush(len(self.log), Limits(self.most, 1 << 60, None), 0.0)
            head = RecordReader(pages.read).head()
            assert {run for run, _ in pages.held} == {0, *(run.number for run in head.runs)}
            if self.rng.random() < 0.3:
                self.writer.join_runs()
        except StoreUnavailableError:
            pass
        except KeyboardInterrupt:
            self.writer = pages.writer()
            for entry in self.log[self.writer.seq :]:
                self.add(entry)
        pages.failing = pages.lose_answer = False
        pages.crash_after = None

    def compare(self, names: list[bytes]) -> None:
        head = RecordReader(self.pages.read).head()
        for offset, keys in self.log[self.seq : head.seq]:
            if offset:
                self.stored |= {key: offset + i for i, key in enumerate(keys)}
            else:
                self.stored = {key: at for key, at in self.stored.items() if key not in keys}
        if head.seq > self.seq:
            newest = sorted(self.stored, key=self.stored.__getitem__)[-self.most :]
            self.stored, self.seq = {key: self.stored[key] for key in newest}, head.seq
        going = {key for offset, keys in self.log[self.seq :] if not offset for key in keys}
        for key, record in zip(names, self.pages.find(*names), strict=True):
            if key in self.stored and not (record is None and key in going):
                expect(record, key, self.stored[key])
            else:
                assert record is None


@pytest.mark.parametrize("joined", [False, True])
def test_a_record_that_a_refinement_moves_back_has_changed_since_the_one_before(joined: bool) -> None:
    """What it was in between is not stored. Since before both refinements it has not changed."""
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"a", b"b", b"c"], 7))  # assigned to 0, 1 and 2
    writer.flush(1, PLENTY, 0.0)
    for seq, components in ((2, (1, 1, 2)), (3, (0, 1, 2))):  # `a` to 1 and back
        for i, component in enumerate(components):
            writer.add(made([b"abc"[i : i + 1]], 7 + i, component=component, flags=REASSIGNED))
        writer.flush(seq, PLENTY, 0.0)
        while joined and writer.join_runs():
            pass
    reader, resolver = RecordReader(pages.read), Resolver(FamilyTree(np.arange(3), empty_lineage()))

    def listed(refined_before: bool) -> set[bytes]:
        since = Since(9, refined=True, refined_before=refined_before)
        return {record.key for record in changed(reader, resolver, since, 10, None, Bounds()).records}

    assert b"a" in listed(refined_before=True)
    assert listed(refined_before=False) == set()


def test_the_time_of_a_forgotten_key_is_in_no_page() -> None:
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"other", b"secret"], 11))  # the times 11.25 and 12.25
    writer.flush(1, PLENTY, 0.0)
    number = np.float64(12.25).tobytes()
    assert any(number in page for page in pages.held.values())
    writer.forget([b"secret"])
    writer.flush(2, PLENTY, 0.0)
    assert not any(number in page for page in pages.held.values())
    expect(pages.find(b"other")[0], b"other", 11)


def test_forgotten_keys_take_no_room_of_others() -> None:
    """Their rows are blank until runs are joined, and used to count where `max_records` was lowered."""
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"key-%d" % i for i in range(10)], 1))
    writer.flush(1, PLENTY, 0.0)
    writer.forget([b"key-%d" % i for i in range(5, 10)])
    writer.flush(2, PLENTY, 0.0)
    writer.forget([b"never there"])
    writer.flush(3, Limits(5, 1 << 60, None), 0.0)
    found = pages.find(*(b"key-%d" % i for i in range(10)))
    assert [record is not None for record in found] == [True] * 5 + [False] * 5


@pytest.mark.parametrize("behind_s", [0.25, 1.0])
def test_no_older_version_returns_where_the_newer_one_expired(behind_s: float) -> None:
    """The clock of the process that accepted the newer one was behind, and its run was dropped before the older one."""
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"a"], 1, arrived=100.0))
    writer.flush(1, PLENTY, 100.0)
    writer.add(made([b"a"], 2, arrived=100.0 - behind_s))
    writer.flush(2, PLENTY, 100.0)
    writer.add(made([b"b"], 3, arrived=110.0))
    writer.flush(3, Limits(1 << 40, 1 << 60, 10.0), 110.0 - behind_s / 2)
    (found,) = pages.find(b"a", bounds=Bounds(100.0 - behind_s / 2))
    assert found is None or found.log_offset == 2
    writer.add(made([b"c"], 4, arrived=111.0))
    writer.flush(4, Limits(1 << 40, 1 << 60, 10.0), 111.5)
    assert pages.find(b"a") == [None]


def test_records_take_no_more_bytes_than_allowed() -> None:
    pages = Pages()
    writer = pages.writer()
    for seq in range(1, 40):
        writer.add(made([b"key-%d-%d" % (seq, i) for i in range(50)], 50 * seq))
        writer.flush(seq, Limits(1 << 40, 30_000, None), 0.0)
    assert 15_000 < sum(map(len, pages.held.values())) < 33_000
    assert pages.find(b"key-1-0") == [None]
    expect(pages.find(b"key-39-49")[0], b"key-39-49", 50 * 39 + 49)


def test_records_end_with_their_time() -> None:
    pages = Pages()
    writer = pages.writer()
    for seq in range(1, 30):
        writer.add(made([b"key-%d" % seq], seq, arrived=100.0 * seq))
        writer.flush(seq, Limits(1 << 40, 1 << 60, 500.0), 100.0 * seq)
    found = pages.find(*(b"key-%d" % seq for seq in range(1, 30)), bounds=Bounds(2900.0 - 500.0))
    assert [record is not None for record in found] == [seq >= 24 for seq in range(1, 30)]
    assert not any(b"key-1" in page and b"key-19" not in page for page in pages.held.values() if len(page) < 200)


def test_a_damaged_page_is_noticed() -> None:
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"a"], 1))
    writer.flush(1, PLENTY, 0.0)
    page = bytearray(pages.held[1, 1])
    page[-1] ^= 1
    pages.held[1, 1] = bytes(page)
    with pytest.raises(StoreFormatError, match="damaged"):
        pages.find(b"a")


def test_a_reader_that_finds_a_run_gone_looks_again() -> None:
    pages = Pages()
    writer = pages.writer()
    writer.add(made([b"a"], 1))
    writer.flush(1, PLENTY, 0.0)
    stale, asked = dict(pages.held), []
    for seq in range(2, 20):
        writer.add(made([b"b"], seq))
        writer.flush(seq, PLENTY, 0.0)
    assert writer.join_runs()  # the first run into another
    assert not writer.join_runs()
    assert not any(run == 1 for run, _ in pages.held)

    def read(places: Sequence[PagePlace]) -> list[bytes | None]:
        asked.append(places)
        return [stale[0, 0]] if len(asked) == 1 else pages.read(places)

    expect(RecordReader(read).find([b"a"])[0], b"a", 1)


def test_the_hash_of_a_key_never_changes() -> None:
    """It orders the rows that stores hold."""
    assert [hex(h) for h in hashes_of(Texts.of([b"a", b"b", b"host-7/2026-01-31", b"x" * 256])).tolist()] == HASHES
    assert hashes_of(Texts.of([b"a", b"x" * 200]))[0] == hashes_of(Texts.of([b"a"]))[0]
    many = hashes_of(Texts.of([b"key-%d" % i for i in range(100_000)]))
    assert len(set(many.tolist())) == 100_000
    # Equal shares of the range: the count in each of 256 parts is within six deviations, sqrt(100,000 / 256) each.
    counts = np.bincount((many >> np.uint64(56)).astype(np.int64), minlength=256)
    assert abs(counts - 100_000 / 256).max() < 6 * np.sqrt(100_000 / 256)


HASHES = ["0x4753521672d92d04", "0x91bced2305d9fbc7", "0xc3c4eeaeaf686ef3", "0xa7e112ded49b7d81"]
