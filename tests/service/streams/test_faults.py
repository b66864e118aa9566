"""Faults that are no entry's: memory, disk, the compiler, a store that does not answer. No batch is lost by them."""

import asyncio
import errno
import threading
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import pytest

from harness.waiting import eventually_async
from shoal_service.errors import DeadLetteredError, NotReadyError, StoreUnavailableError
from shoal_service.streams.learner import apply, dead_letters, snapshot_requests
from shoal_service.streams.learner.retry_policy import is_machine_fault
from shoal_service.streams.record_index import RecordReader, writer
from shoal_service.wire import Points, RecordFields, Texts, from_log

pytestmark = pytest.mark.anyio

FAULTS = {
    "memory": lambda: MemoryError("no room"),
    "disk": lambda: OSError(errno.ENOSPC, "no space left on device"),
    "import": lambda: ImportError("cannot load"),
}


def batch(seed: int, n: int = 30) -> Points:
    return Points(np.random.default_rng(seed).normal(size=(n, 2)))


@pytest.fixture
def fails(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The library fails after spoiling the state, `left` times, on batches of `rows`, with what `error` makes."""
    learn = apply._batch
    plan: dict[str, Any] = {"left": 0, "error": RuntimeError, "rows": None}

    def sometimes(state: Any, entry: Any, gathered: Any) -> Any:
        result = learn(state, entry, gathered)
        if plan["left"] > 0 and plan["rows"] in (None, len(from_log(entry.payload))):
            plan["left"] -= 1
            raise plan["error"]()
        return result

    monkeypatch.setattr(apply, "_batch", sometimes)
    return plan


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_passing_fault_is_machine_fault_loses_no_batch(
    running: Any, fails: dict[str, Any], final: Any, fault: str
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    clean, _ = await registry.create("clean", {"n_features": 2})
    for n in range(3):
        await clean.ingest(batch(n), None)
    expected = await final(registry, "clean")
    await registry.ingest("default", batch(0))
    await final(registry)
    fails.update(left=3, error=FAULTS[fault])
    for n in (1, 2):
        receipt = await registry.ingest("default", batch(n))
    assert len(await registry.learnt_rows(receipt, 120)) == 30
    assert await final(registry) == expected
    assert running.store.dead_letter_reasons("default", receipt.incarnation) == {}


async def test_a_lasting_fault_is_machine_fault_halts_the_learner_and_the_log_keeps_the_batch(
    running: Any, fails: dict[str, Any], final: Any
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    await registry.ingest("default", batch(0))
    await final(registry)
    fails.update(left=10**9, error=FAULTS["memory"])
    receipt = await registry.ingest("default", batch(1))
    assert await registry.learnt_rows(receipt, 120) is None, "durable, so no error is answered"
    assert "MemoryError" in registry.known.loaded[0].view_source.failure
    assert (await registry.describe("default")).status == "failed"
    assert running.store.dead_letter_reasons("default", receipt.incarnation) == {}
    running.drop()
    fails["left"] = 0
    registry = running.begin()
    await final(registry)
    assert (await registry.view("default", timeout_s=120)).points_seen == 60


async def test_an_entry_that_fails_once_only_is_learnt(running: Any, fails: dict[str, Any], final: Any) -> None:
    registry = running.begin()
    await registry.ingest("default", batch(0))
    await final(registry)
    fails.update(left=1)
    receipt = await registry.ingest("default", batch(1))
    assert len(await registry.learnt_rows(receipt, 120)) == 30
    assert running.store.dead_letter_reasons("default", receipt.incarnation) == {}
    fails.update(left=2, rows=31)
    with pytest.raises(DeadLetteredError):
        await registry.learnt_rows(await registry.ingest("default", batch(2, 31)), 120)


def test_what_a_compiler_raises_is_no_entrys_fault() -> None:
    from llvmlite import binding
    from numba.core.errors import TypingError

    with pytest.raises(RuntimeError) as caught:
        binding.parse_assembly("nonsense")
    assert is_machine_fault(caught.value)
    assert is_machine_fault(TypingError("no match"))
    wrapped = ValueError("damaged")
    wrapped.__cause__ = MemoryError()
    assert is_machine_fault(wrapped)
    assert not is_machine_fault(ValueError("damaged"))
    assert not is_machine_fault(np.linalg.LinAlgError("singular"))


async def test_a_mark_that_failed_on_the_last_entry_does_not_hold_the_stream_up(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin(publish_interval_s=3600.0)
    mark, failing = type(running.store).mark_applied, [2]

    def sometimes(self: Any, *arguments: Any) -> None:
        if failing[0]:
            failing[0] -= 1
            raise StoreUnavailableError("busy")
        mark(self, *arguments)

    await registry.ingest("default", batch(0, 1))
    await final(registry)
    monkeypatch.setattr(type(running.store), "mark_applied", sometimes)
    receipt = await registry.ingest("default", batch(1, 2000))
    await eventually_async(lambda: running.store.tail("default", receipt.incarnation).unapplied_bytes == 0)
    await registry.ingest("default", batch(2))


async def test_records_that_cannot_be_written_stay_within_their_limit_in_memory(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    """A full disk: entries can be read. Each attempt let one more in."""
    monkeypatch.setattr(writer, "ROWS_HELD", 100)
    registry = running.begin(publish_interval_s=3600.0, checkpoint_interval_s=3600.0)
    stream, _ = await registry.create("s", {"n_features": 2})
    await final(registry, "s")
    learner = stream.view_source.learner
    refused = list[int]()

    def full(self: Any, *arguments: Any) -> Any:
        refused.append(learner.applied)
        failed: Future[None] = Future()
        failed.set_exception(StoreUnavailableError("no space left on device"))
        return failed

    keys = [b"%d" % i for i in range(1000)]
    x = np.random.default_rng(0).normal(size=(1000, 2))
    with monkeypatch.context() as patched:
        patched.setattr(type(running.store), "write_pages", full)
        for at in range(0, 1000, 50):
            fields = RecordFields(0.0, Texts.of(keys[at : at + 50]), None, None, None)
            receipt = await registry.ingest("s", Points(x[at : at + 50], fields))
        await eventually_async(lambda: len(refused) >= 5)
        assert max(refused[:5]) <= 4
    await final(registry, "s")
    assert learner.applied == receipt.seq
    await asyncio.to_thread(running.close)
    read = partial(running.store.read_pages, "s", receipt.incarnation)
    assert [record and record.key for record in RecordReader(read).find(keys)] == keys


async def test_a_snapshot_that_cannot_be_made_is_the_requests_trouble_and_not_the_learners(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    await registry.ingest("default", batch(0))
    await final(registry)

    def no_room(_: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(snapshot_requests, "checkpoint_of", no_room)
        with pytest.raises(NotReadyError, match="no room"):
            await registry.snapshot("default", min_offset=None, timeout_s=120)
    await registry.ingest("default", batch(1))
    await final(registry)
    assert registry.known.loaded[0].view_source.failure is None


async def test_callers_that_wait_together_share_one_snapshot(
    running: Any, monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin(checkpoint_interval_s=3600)
    await registry.ingest("default", batch(0))
    await final(registry)
    stream = registry.known.loaded[0]
    made, held, go = [], threading.Event(), threading.Event()
    checkpoint_of = snapshot_requests.checkpoint_of

    def counted(working: Any) -> Any:
        made.append(working.seq)
        held.set()
        assert go.wait(120)
        return checkpoint_of(working)

    monkeypatch.setattr(snapshot_requests, "checkpoint_of", counted)
    first = asyncio.create_task(stream.snapshot(120))
    await asyncio.to_thread(held.wait, 120)
    others = [asyncio.create_task(stream.snapshot(120)) for _ in range(8)]
    requests = stream.view_source.learner._snapshot_requests
    await eventually_async(lambda: len(requests._waiting) == len(others), "not all of them wait")
    go.set()
    blobs = {checkpoint.blob for checkpoint in await asyncio.gather(first, *others)}
    assert len(blobs) == 1
    assert len(made) == 2


async def test_a_snapshot_asked_for_as_the_thread_ends_is_refused_at_once(running: Any, final: Any) -> None:
    registry = running.begin()
    await registry.ingest("default", batch(0))
    await final(registry)
    ended = registry.known.loaded[0].view_source.learner._snapshot_requests.end
    late: list[Any] = []

    def end(reason: Any) -> None:
        ended(reason)
        # the thread is alive still, and will look no more
        late.append(registry.known.loaded[0].view_source.learner.snapshot())

    registry.known.loaded[0].view_source.learner._snapshot_requests.end = end
    assert await asyncio.to_thread(registry.known.close, 120)
    with pytest.raises(NotReadyError):
        late[0].result(120)


async def test_the_learner_reads_no_payload_of_a_dead_letter_at_its_start(
    running: Any, fails: dict[str, Any], monkeypatch: pytest.MonkeyPatch, final: Any
) -> None:
    registry = running.begin()
    await registry.ingest("default", batch(0))
    await final(registry)
    fails.update(left=2, rows=31, error=lambda: RuntimeError("x" * 100_000))
    await registry.ingest("default", batch(1, 31))
    await final(registry)
    running.drop()

    def never(*_: Any) -> Any:
        raise AssertionError("payloads were read")

    monkeypatch.setattr(type(running.store), "dead_letters", never)
    registry = running.begin()
    await final(registry)
    assert len(registry.known.loaded[0].view_source.refusal(2)) == dead_letters.REASON_KEPT
