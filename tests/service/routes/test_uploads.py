"""Bodies that arrive slowly: they are ended, and they keep no others out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from starlette.requests import Request

from shoal_service.errors import OverloadedError, UploadTooSlowError
from shoal_service.routes import uploads
from shoal_service.routes.uploads import SMALL_BYTES, Uploads

pytestmark = pytest.mark.anyio
LIMIT = 1 << 20


def request(parts: Callable[[], AsyncIterator[tuple[float, bytes]]], more: bool = False) -> Request:
    """A request whose body arrives in parts, each after some seconds; `more`: its end never comes."""
    arriving = parts()

    async def receive() -> dict[str, Any]:
        async for pause_s, part in arriving:
            await asyncio.sleep(pause_s)
            return {"type": "http.request", "body": part, "more_body": True}
        if more:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": b"", "more_body": False}

    return Request({"type": "http", "headers": []}, receive)


async def at_once(*bodies: bytes) -> AsyncIterator[tuple[float, bytes]]:
    for body in bodies:
        yield 0.0, body


async def test_a_large_body_that_stops_a_byte_short_keeps_no_small_one_out() -> None:
    held = Uploads(LIMIT)
    large = b"x" * (LIMIT - 1)

    async def stall() -> None:
        async with held.read(request(lambda: at_once(large), more=True), LIMIT):
            pass

    stalled = asyncio.create_task(stall())
    await asyncio.sleep(0.05)
    async with held.read(request(lambda: at_once(b"{}" * 16)), LIMIT) as upload:
        assert upload.body == b"{}" * 16
    with pytest.raises(OverloadedError):
        async with held.read(request(lambda: at_once(b"x" * (SMALL_BYTES + 1))), LIMIT):
            pass
    stalled.cancel()
    await asyncio.wait([stalled])
    async with held.read(request(lambda: at_once(large)), LIMIT) as upload:
        assert len(upload.body) == len(large), "what was cut off is no longer counted"


async def test_small_bodies_have_a_budget_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "SMALL_BODIES_BYTES", 100)
    held = Uploads(LIMIT)
    async with AsyncExitStack() as open_bodies:
        await open_bodies.enter_async_context(held.read(request(lambda: at_once(b"x" * 90)), LIMIT))
        with pytest.raises(OverloadedError):
            await open_bodies.enter_async_context(held.read(request(lambda: at_once(b"x" * 20)), LIMIT))
    async with held.read(request(lambda: at_once(b"x" * 20)), LIMIT):
        pass


@pytest.mark.parametrize("first", [0, 500_000])
async def test_a_body_that_stalls_is_ended_however_fast_it_began(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr(uploads, "GRACE_S", 0.2)
    with pytest.raises(UploadTooSlowError, match="too slowly"):
        async with held_body(first):
            pass


def held_body(first: int) -> Any:
    return Uploads(LIMIT).read(request(lambda: at_once(b"x" * first), more=True), LIMIT)


async def test_a_body_that_drips_is_ended_and_one_at_the_least_rate_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "GRACE_S", 1.0)

    async def drip(n_bytes: int, times: int) -> AsyncIterator[tuple[float, bytes]]:
        for _ in range(times):
            yield 0.1, b"x" * n_bytes

    with pytest.raises(UploadTooSlowError):
        async with Uploads(LIMIT).read(request(lambda: drip(1, 100)), LIMIT):
            pass
    async with Uploads(LIMIT).read(request(lambda: drip(1000, 8)), LIMIT) as upload:
        assert len(upload.body) == 8000
