"""The decoder beside the loop: who decodes what, and what happens when a child dies."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from wire_bodies import (
    ARROW,
    JSON,
    MSGPACK,
    NDJSON,
    NPY,
    arrow_body,
    in_lists,
    json_body,
    msgpack_body,
    ndjson_body,
    npy_body,
    zipped,
)

import shoal_service.wire.decoder.pool as decoder_module
import shoal_service.wire.decoder.process as process_module
from shoal.errors import NotFiniteError, NotNumericError, ShapeError
from shoal_service.errors import BodyTooLargeError, LimitError, MalformedBodyError, NotReadyError, OverloadedError
from shoal_service.wire import Decoder, Points, WireLimits
from shoal_service.wire.decoder.frames import DecodeRequest, Fault, error_of, fault_of
from shoal_service.wire.decoder.process import DecoderProcess

LIMITS = WireLimits(max_body_bytes=10_000_000, max_rows=100_000, max_features=100)
X = np.random.default_rng(0).normal(size=(2_000, 8))
LARGE = json_body(X.tolist())
Work = Callable[[Decoder], Awaitable[Any]]


@pytest.fixture(scope="module")
def child() -> Iterator[DecoderProcess]:
    process = DecoderProcess()
    process.warm(LIMITS)
    yield process
    process.end()
    process.discard()


def with_decoder(work: Work, **settings: Any) -> Any:
    async def run() -> Any:
        decoder = Decoder(LIMITS, **settings)
        decoder.start()
        try:
            return await work(decoder)
        finally:
            decoder.close()

    return asyncio.run(run())


def ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(condition: Callable[[], bool], timeout_s: float = 120.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def pids(decoder: Decoder) -> list[int | None]:
    return [process.pid for process in decoder._children]


def test_large_text_is_decoded_by_the_child_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[str] = []
    really = decoder_module.decode

    def recorded(body: bytes, content_type: str, *args: Any, **more: Any) -> Points:
        here.append(content_type)
        return really(body, content_type, *args, **more)

    monkeypatch.setattr(decoder_module, "decode", recorded)

    async def work(decoder: Decoder) -> None:
        for body, media, encoding in [
            (LARGE, JSON, None),
            (zipped(LARGE), JSON, "gzip"),
            (ndjson_body(X.tolist()), NDJSON, None),
            (msgpack_body(X), MSGPACK, None),
            (npy_body(X), NPY, None),
            (arrow_body(in_lists(X)), ARROW, None),
            (zipped(npy_body(X)), NPY, "gzip"),
            (json_body(X.tolist()[:3]), JSON, None),
        ]:
            x = (await decoder.decode(body, media, content_encoding=encoding)).x
            np.testing.assert_array_equal(x, X[: len(x)])

    with_decoder(work)
    assert here == [MSGPACK, NPY, ARROW, NPY, JSON]


@pytest.mark.parametrize(
    ("rows", "error", "row"),
    [
        ([*X.tolist(), [True] * 8], NotNumericError, 2_000),
        ([*X.tolist(), [1.0]], ShapeError, 2_000),
        ([*X.tolist(), [float("nan")] * 8], NotFiniteError, 2_000),
        ([[0.5] * 101] * 500, LimitError, None),
        ("rows " * 20_000, MalformedBodyError, None),
    ],
)
def test_errors_come_back_from_the_child_as_they_were(rows: Any, error: type, row: int | None) -> None:
    async def work(decoder: Decoder) -> None:
        body = json_body(rows)
        with pytest.raises(error) as here:
            decoder_module.decode(body, JSON, LIMITS)
        with pytest.raises(error) as there:
            await decoder.decode(body, JSON)
        assert type(there.value) is type(here.value)
        assert str(there.value) == str(here.value)
        assert there.value.row == here.value.row == row
        assert (await decoder.decode(LARGE, JSON)).n_points == 2_000

    with_decoder(work)


def test_a_killed_child_is_replaced_and_the_body_decoded() -> None:
    async def work(decoder: Decoder) -> None:
        await decoder.decode(LARGE, JSON)
        (before,) = pids(decoder)
        assert before is not None
        os.kill(before, signal.SIGKILL)
        assert (await decoder.decode(LARGE, JSON)).n_points == 2_000
        (after,) = pids(decoder)
        assert after != before
        assert ended(before)

    with_decoder(work)


def test_a_body_that_kills_two_children_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(decoder: Decoder) -> None:
        await decoder.decode(LARGE, JSON)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        for pid in pids(decoder):
            os.kill(pid or 0, signal.SIGKILL)
        with pytest.raises(OverloadedError, match="2 processes"):
            await decoder.decode(LARGE, JSON)
        monkeypatch.undo()
        assert (await decoder.decode(LARGE, JSON)).n_points == 2_000

    with_decoder(work)


def test_an_answer_half_read_does_not_reach_the_next_body(
    child: DecoderProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any) -> None:
        raise MemoryError

    request = DecodeRequest(JSON, None, LIMITS, len(LARGE))
    monkeypatch.setattr(process_module, "read_points", out_of_memory)
    with pytest.raises(MemoryError):
        child.decode(LARGE, request)
    monkeypatch.undo()
    np.testing.assert_array_equal(child.decode(LARGE, request).x, X)


def test_a_fault_that_nobody_foresaw_is_no_refusal() -> None:
    error = error_of(Fault(None, "Traceback ..."))
    assert type(error) is RuntimeError
    assert error_of(fault_of(ShapeError("ragged", row=3))).row == 3  # type: ignore[attr-defined]


def test_the_child_outlives_interrupts_and_ends_with_close() -> None:
    async def work(decoder: Decoder) -> int:
        await decoder.decode(LARGE, JSON)
        (pid,) = pids(decoder)
        assert pid is not None
        assert os.getpgid(pid) != os.getpgid(0), "an interrupt from the terminal is the parent's alone"
        assert os.getsid(pid) == os.getsid(0), "in another session a nice would not count"
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, number)
        await decoder.decode(LARGE, JSON)
        assert pids(decoder) == [pid]
        return pid

    assert ended(with_decoder(work))


def test_the_child_loads_little(child: DecoderProcess) -> None:
    mapped = " ".join(region.path for region in psutil.Process(child.pid).memory_maps())
    assert "numpy" in mapped
    assert not any(name in mapped for name in ("pydantic", "llvmlite", "/scipy/", "uvloop", "sqlite"))


def test_the_child_dies_with_a_parent_that_is_killed() -> None:
    script = (
        "import time; from shoal_service.wire import *; from shoal_service.wire.decoder.process import DecoderProcess\n"
        "p = DecoderProcess(); p.warm(WireLimits(1000, 10, 10)); print(p.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not ended(pid)
        parent.kill()
        assert wait_until(lambda: ended(pid))


def test_many_at_once_each_get_their_own() -> None:
    async def work(decoder: Decoder) -> None:
        tables = [X[: 1_000 + i] for i in range(12)]
        decoded = await asyncio.gather(*(decoder.decode(json_body(t.tolist()), JSON) for t in tables))
        for points, table in zip(decoded, tables, strict=True):
            np.testing.assert_array_equal(points.x, table)

    with_decoder(work, processes=2)


def test_too_much_waiting_is_refused_and_forgotten_afterwards() -> None:
    async def work(decoder: Decoder) -> None:
        answers = await asyncio.gather(*(decoder.decode(LARGE, JSON) for _ in range(4)), return_exceptions=True)
        assert [type(a) for a in answers].count(OverloadedError) == 3
        assert (await decoder.decode(LARGE, JSON)).n_points == 2_000

    with_decoder(work, max_waiting_bytes=len(LARGE) + 1)


def test_a_closed_decoder_refuses_and_closes_again() -> None:
    async def work(decoder: Decoder) -> None:
        waiting = [asyncio.ensure_future(decoder.decode(LARGE, JSON)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.to_thread(decoder.close)
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(a, NotReadyError | Points) for a in answers)
        with pytest.raises(NotReadyError):
            await decoder.decode(LARGE, JSON)
        assert pids(decoder) == [None]

    with_decoder(work)


def test_bodies_are_refused_before_they_wait() -> None:
    async def work(decoder: Decoder) -> None:
        with pytest.raises(BodyTooLargeError):
            await decoder.decode(bytes(10_000_001), JSON)
        assert pids(decoder) == [None]

    async def run() -> None:
        decoder = Decoder(LIMITS)
        try:
            await work(decoder)
        finally:
            decoder.close()

    asyncio.run(run())


def test_a_child_starts_by_itself_when_nobody_warmed_it() -> None:
    async def run() -> None:
        decoder = Decoder(LIMITS)
        try:
            assert (await decoder.decode(LARGE, JSON)).n_points == 2_000
        finally:
            decoder.close()

    asyncio.run(run())
