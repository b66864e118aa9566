"""The real child: it dies, hangs, or goes on for too long; a failed attempt changes nothing and is tried again."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import psutil
import pytest

from harness.waiting import eventually_async
from shoal_service.errors import NotReadyError, StoreUnavailableError
from shoal_service.logs import make_log
from shoal_service.settings import Settings
from shoal_service.store import EntryKind
from shoal_service.streams.learner import thread
from shoal_service.streams.refinement import job_lease, records, worker
from shoal_service.streams.refinement.process import RefinementProcess
from shoal_service.streams.refinement.records import RefinementRecords

pytestmark = pytest.mark.anyio


async def ask(works: Any) -> Any:
    return (await works.refinements.request("s", method="vdp", window=None, key=None)).refinement


async def child_of(works: Any) -> int:
    return int(await eventually_async(lambda: works.worker.child_pid, "no child was started", pause_s=0.005))


class StoppedClock:
    """In the place of the module `time`: it moves when the test says so."""

    def __init__(self) -> None:
        self.now, self.looks = 1000.0, 0

    def monotonic(self) -> float:
        self.looks += 1
        return self.now

    async def looked_at_twice(self) -> None:
        """Whoever looks again has acted on the first look."""
        before = self.looks
        await eventually_async(lambda: self.looks > before + 1)


@pytest.fixture
async def fed(works: Any, grid: np.ndarray, small: Any) -> Any:
    """A stream that waits to be refined."""
    works.begin(refine_attempts=3)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    return works


async def test_a_child_makes_the_refinement(fed: Any) -> None:
    asked = await ask(fed)
    (done,) = await fed.settled(asked.id)
    assert (done.state, done.attempts) == ("adopted", 1)
    assert done.report["window_rows"] == 1000
    child = psutil.Process(fed.worker.child_pid)
    assert child.nice() == min(19, psutil.Process().nice() + 1)
    assert fed.worker.counters.made == 1
    again = await ask(fed)
    await fed.settled(again.id)
    assert fed.worker.child_pid == child.pid, "the same child serves again"


async def test_a_child_that_is_killed_is_replaced_and_nothing_is_changed_by_it(fed: Any) -> None:
    before = await fed.state()
    asked = await ask(fed)
    os.kill(await child_of(fed), signal.SIGKILL)
    (done,) = await fed.settled(asked.id)
    assert (done.state, done.attempts) == ("adopted", 2)
    assert [e.kind for e in fed.entries()].count(EntryKind.ADOPTION) == 1
    assert before != await fed.state()


async def test_one_that_is_killed_each_time_has_failed(fed: Any) -> None:
    before = await fed.state()
    asked = await ask(fed)
    done = asked
    while done.open:
        if (pid := fed.worker.child_pid) is not None:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.05)
        done = (await fed.refinements.find("s", asked.id)).refinement
    assert (done.state, done.attempts) == ("failed", 3)
    assert "ended with status -9" in done.reason
    assert fed.worker.counters.failed == 1
    assert await fed.state() == before
    assert not any(e.kind is EntryKind.ADOPTION for e in fed.entries())
    (good,) = await fed.settled((await ask(fed)).id)
    assert good.state == "adopted", "the next one is none the worse"


async def test_one_that_takes_too_long_is_ended(works: Any, grid: np.ndarray, small: Any) -> None:
    works.begin(refine_attempts=2, refine_timeout_s=0.01)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    (done,) = await works.settled((await ask(works)).id)
    assert (done.state, done.attempts) == ("failed", 2)
    assert "no result within 0.01 s" in done.reason
    assert works.worker.child_pid is None


async def test_a_stop_in_the_middle_leaves_it_to_the_next_process(fed: Any) -> None:
    asked = await ask(fed)
    await child_of(fed)
    expected = await fed.state()
    fed.drop()
    fed.begin()
    (done,) = await fed.settled(asked.id)
    assert (done.state, done.attempts, done.failures) == ("adopted", 2, 0), "a stop is no failure"
    assert expected != await fed.state()


async def test_workers_that_die_are_no_failures_of_the_refinement(
    works: Any, grid: np.ndarray, small: Any, inside: Any
) -> None:
    """A service that died three times within a refinement used to give it up."""
    works.begin(refine=False, refine_attempts=3)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    asked = await ask(works)
    records = RefinementRecords(works.store, "s", works.store.get_stream("s").incarnation)
    assert (
        records.change(records.find(asked.id), asked.with_changes(state="running", owner="dead", attempts=7))
        is not None
    )
    works.worker.start()
    (done,) = await works.settled(asked.id)
    assert (done.state, done.attempts, done.failures) == ("adopted", 8, 0)


async def test_a_learner_that_is_busy_is_asked_again_without_end(
    works: Any, grid: np.ndarray, small: Any, inside: Any
) -> None:
    works.begin(refine=False, refine_attempts=2)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    state_of, refusals = works.worker._state_of, [5]

    def busy(*key: str) -> Any:
        refusals[0] -= 1
        if refusals[0] >= 0:
            raise NotReadyError("busy")
        return state_of(*key)

    works.worker._state_of = busy
    works.worker.start()
    (done,) = await works.settled((await ask(works)).id)
    assert (done.state, done.attempts, done.failures) == ("adopted", 6, 0)


async def test_a_learner_that_still_reads_its_log_is_waited_for(
    inside: Any, fed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was faster than the learner used to find a stream that was warming up, and to refuse for good."""
    fed.worker.close(120)
    asked = await ask(fed)
    fed.drop()
    applied = thread.apply_inplace

    def delayed(*args: Any, **kwargs: Any) -> Any:
        time.sleep(0.1)
        return applied(*args, **kwargs)

    monkeypatch.setattr(thread, "apply_inplace", delayed)
    fed.begin()
    (done,) = await fed.settled(asked.id)
    assert (done.state, done.attempts, done.base_offset) == ("adopted", 1, 1000)


async def test_what_another_worker_is_at_is_taken_over_once_its_record_stood_still_for_three_leases(
    works: Any, grid: np.ndarray, small: Any, inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "POLL_S", 0.02)
    monkeypatch.setattr(job_lease, "BEAT_S", 0.1)
    works.begin(refine=False)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    asked = await ask(works)
    book = RefinementRecords(works.store, "s", works.store.get_stream("s").incarnation)
    held = book.change(book.find(asked.id), asked.with_changes(state="running", owner="another", attempts=1))
    assert held is not None
    settings = Settings(lease_s=0.5, store="memory", data_dir=works.folder)
    clock = StoppedClock()
    monkeypatch.setattr(job_lease, "time", clock)
    log = make_log("debug", "json", works.written)
    mine = worker.RefinementWorker(works.store, settings, log, works.registry.known.state_of, alone=False)
    mine.start()
    try:
        for n in range(8):  # 11 seconds, in which it never stands still for 1.5
            await clock.looked_at_twice()
            clock.now += 1.4
            held = book.change(held, held.refinement.with_changes(progress={"round": n}))
            assert held is not None, "who works is left alone"
        await clock.looked_at_twice()
        assert book.find(asked.id).refinement.owner == "another"
        clock.now += 1.6
        await eventually_async(lambda: book.find(asked.id).refinement.owner != "another")
        (done,) = await works.settled(asked.id)
        assert (done.state, done.attempts) == ("adopted", 2)
    finally:
        mine.close(120)


async def test_a_claim_whose_answer_was_lost_is_claimed_again(
    works: Any, grid: np.ndarray, small: Any, inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to stay `running` for ever under the name of a worker that knew nothing of it."""
    works.begin(refine=False)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    asked, put_job, lost = await ask(works), works.store.put_job, [1]

    def lossy(*arguments: Any, **options: Any) -> bool:
        done = bool(put_job(*arguments, **options))
        if lost[0]:
            lost[0] -= 1
            raise StoreUnavailableError("the answer was lost")
        return done

    monkeypatch.setattr(works.store, "put_job", lossy)
    works.worker.start()
    (done,) = await works.settled(asked.id)
    assert (done.state, done.attempts) == ("adopted", 2)


@pytest.mark.parametrize("faults", [1, 3])
async def test_an_attempt_with_an_unexpected_fault_counts_and_the_refinement_does_not_run_for_ever(
    works: Any, grid: np.ndarray, small: Any, inside: Any, faults: int
) -> None:
    """It used to stay `running`, and to keep every later refinement of the stream from being queued."""
    left = [None] * faults

    def fail() -> None:
        if left:
            left.pop()
            raise KeyError("base_offset")

    inside.before = fail
    works.begin(refine_attempts=3)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    (done,) = await works.settled((await ask(works)).id)
    assert (done.attempts, done.failures) == ((2, 1) if faults == 1 else (3, 3))
    assert done.state == ("adopted" if faults == 1 else "failed")
    assert works.worker.counters.attempts_failed == faults
    assert faults == 1 or done.reason == "KeyError: 'base_offset'"


async def test_a_stream_whose_refinements_cannot_be_looked_at_is_looked_at_again_after_a_pause(
    works: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an unexpected fault there was no other look, or one after another without a pause."""
    works.begin(refine=False)
    mine, key = works.worker, records.StreamKey("s", "one")

    def broken(*_: Any) -> Any:
        raise KeyError("jobs")

    monkeypatch.setattr(mine._leases, "claim_next", broken)
    monkeypatch.setattr(worker, "RETRY_S", 30.0)
    mine._serve(key)
    assert mine._postponed[key].until > time.monotonic()
    monkeypatch.setattr(worker, "POLL_S", 0.01)
    assert mine._next_notified() is None


async def test_a_damaged_record_stops_neither_the_worker_nor_the_learner(
    works: Any, grid: np.ndarray, small: Any, inside: Any, caplog: Any
) -> None:
    """It used to end the worker's thread, and the learner at its next checkpoint."""
    works.begin(refine=False, checkpoint_points=100)
    await works.registry.create("s", {**small, "refinement": None})
    key = ("s", works.store.get_stream("s").incarnation)
    assert works.store.put_job(*key, "damaged", b'{"id": "damaged", "state": "ru\xff', version=0)
    works.worker.start()
    await works.feed(grid[:1000])
    (done,) = await works.settled((await ask(works)).id)
    assert done.state == "adopted"
    assert (await works.registry.describe("s")).status == "live"
    assert "the record of refinement 'damaged' of stream 's' is damaged and left out" in caplog.text


async def test_an_outcome_that_the_learner_could_not_record_is_made_up_for(
    works: Any, grid: np.ndarray, small: Any, inside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refinement used to stay `running` until the next start, although the log had its outcome."""
    monkeypatch.setattr(worker, "POLL_S", 0.02)
    monkeypatch.setattr(job_lease, "BEAT_S", 0.05)
    works.begin(lease_s=0.5)
    await works.registry.create("s", {**small, "refinement": None})
    await works.feed(grid[:1000])
    put_job, refused = works.store.put_job, [1]

    def full(name: str, incarnation: str, job_id: str, body: bytes, *, version: int) -> bool:
        if refused and b'"state":"adopted"' in body:
            refused.pop()
            raise StoreUnavailableError("the disk is full")
        return bool(put_job(name, incarnation, job_id, body, version=version))

    monkeypatch.setattr(works.store, "put_job", full)
    (done,) = await works.settled((await ask(works)).id)
    assert not refused
    assert done.attempts == 2
    assert [e.kind for e in works.entries()].count(EntryKind.ADOPTION) == 2, "the second changes nothing, or little"


async def test_a_worker_waits_after_it_stopped_serving_a_stream_that_was_paused(
    works: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to look at the stream again and again without a pause, on a whole processor."""
    monkeypatch.setattr(worker, "POLL_S", 0.01)
    works.begin(refine=False)
    log = make_log("debug", "json", works.written)
    settings = Settings(store="memory", data_dir=works.folder)
    mine = worker.RefinementWorker(
        works.store, settings, log, works.registry.known.state_of, alone=False, serves=lambda *key: False
    )
    key = records.StreamKey("s", "gone elsewhere")
    mine._postponed[key] = worker._Pause(until=time.monotonic(), length_s=1.0)
    assert mine._next_notified() == key
    mine._serve(key)
    assert mine._next_notified() is None


async def test_a_worker_reads_the_refinements_of_the_streams_that_it_serves_alone(
    works: Any, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many processes used to read those of every stream, once a lease."""
    works.begin(refine=False)
    for name in ("mine", "another"):
        await works.registry.create(name, {**small, "refinement": None})
    asked, jobs, here = [], works.store.jobs, threading.get_ident()

    def counted(name: str, incarnation: str) -> Any:
        if threading.get_ident() == here:  # learners look at the refinements of their streams, too
            asked.append(name)
        return jobs(name, incarnation)

    monkeypatch.setattr(works.store, "jobs", counted)
    log = make_log("debug", "json", works.written)
    settings = Settings(store="memory", data_dir=works.folder)
    serves = lambda name, incarnation: name == "mine"  # noqa: E731
    one = worker.RefinementWorker(works.store, settings, log, works.registry.known.state_of, alone=False, serves=serves)
    one._notify_open()
    assert asked == ["mine"]


async def test_nothing_is_left_in_the_folder_of_states_and_windows(inside: Any, fed: Any) -> None:
    """Neither by this process nor by one that was killed before it."""
    place = fed.folder / "refining"
    (place / "left over").mkdir(parents=True)
    await fed.settled((await ask(fed)).id)
    await eventually_async(
        lambda: not list(place.iterdir())
    )  # the folder of a refinement goes after its result is written
    assert place.stat().st_mode & 0o077 == 0


def test_a_child_ends_with_its_parent() -> None:
    script = (
        "import sys, time\n"
        "from shoal_service.streams.refinement import process\n"
        "child = process._start(0)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    root = [path for path in sys.path if path]
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.pathsep.join(root)}
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    child.wait(120)


def test_ending_a_process_that_never_began_is_nothing() -> None:
    process = RefinementProcess(0)
    process.end()
    process.discard()
    assert process.pid is None
