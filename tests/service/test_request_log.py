"""The line and the metrics of a request: written soon, in order, and none left out or twice."""

import asyncio
import io
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.contextvars import bind_contextvars

from harness.waiting import eventually_async
from shoal_service.logs import make_log
from shoal_service.request_log import AT_ONCE, CUT_OFF, RequestLog

TICK = timedelta(milliseconds=1)
"""Two clocks of the system differ by less."""


class Told:
    """Metrics that remember what they were told."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def observe(self, *of: Any) -> None:
        self.seen.append(of)


def a_request(path: str, **params: str) -> dict[str, Any]:
    return {"method": "GET", "route": SimpleNamespace(path=path), "path_params": params}


def lines(written: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_requests_are_written_down_together_a_moment_later_with_the_time_at_which_they_were_served() -> None:
    written, told = io.StringIO(), Told()
    request_log = RequestLog(told, make_log("info", "json", written))  # type: ignore[arg-type]

    async def serve() -> list[datetime]:
        times = [datetime.now(UTC)]
        for i in range(3):
            request_log.add(a_request("/streams/{stream}/predict", stream=f"s{i}"), f"id{i}", 200, 0.001 * (i + 1))
            times.append(datetime.now(UTC))
        assert not written.getvalue(), "not while requests are served"
        await eventually_async(lambda: len(lines(written)) == 3)
        return times

    times = asyncio.run(serve())
    found = lines(written)
    assert [(line["request_id"], line["stream"], line["ms"]) for line in found] == [
        ("id0", "s0", 1.0), ("id1", "s1", 2.0), ("id2", "s2", 3.0),
    ]  # fmt: skip
    assert [list(line)[:4] for line in found] == [["time", "level", "event", "request_id"]] * 3
    for line, before, after in zip(found, times, times[1:], strict=False):
        stamped = datetime.fromisoformat(line["time"])
        assert before - TICK <= stamped <= after + TICK, "not when it was written"
    assert told.seen == [("GET", "/streams/{stream}/predict", 200, 0.001 * (i + 1)) for i in range(3)]


def test_what_waits_is_written_at_once_on_request_and_nothing_twice() -> None:
    written, told = io.StringIO(), Told()
    request_log = RequestLog(told, make_log("info", "json", written))  # type: ignore[arg-type]

    async def serve() -> None:
        request_log.add(a_request("/components"), "a", 404, 0.5)
        request_log.write()
        assert len(lines(written)) == 1
        request_log.add(a_request("/ingest"), "b", CUT_OFF, 0.5)
        request_log.add(a_request("/healthz"), "c", 200, 0.5)  # at level debug
        await eventually_async(lambda: len(told.seen) == 2)

    asyncio.run(serve())
    assert [(line["event"], line["request_id"]) for line in lines(written)] == [
        ("request", "a"), ("request_cut_off", "b"),
    ]  # fmt: skip
    assert [seen[1:3] for seen in told.seen] == [("/components", 404), ("/healthz", 200)], "a request cut off has none"


@pytest.mark.parametrize("error", [BrokenPipeError, ValueError])
def test_a_line_that_cannot_be_written_keeps_none_of_the_others(error: type[Exception]) -> None:
    """A terminal that is gone, or closed, and comes back: no request fails of it, and none is left out of the
    metrics."""

    class Gone(io.StringIO):
        left = 1

        def write(self, text: str) -> int:
            if self.left:
                self.left -= 1
                raise error
            return super().write(text)

    written, told = Gone(), Told()
    request_log = RequestLog(told, make_log("info", "json", written))  # type: ignore[arg-type]

    async def serve() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        request_log.add(a_request("/predict"), "a", 200, 0.5)
        request_log.add(a_request("/predict"), "b", 200, 0.5)
        await eventually_async(lambda: lines(written))
        request_log.add(a_request("/predict"), "c", 200, 0.5)
        await eventually_async(lambda: len(lines(written)) == 2)

    asyncio.run(serve())
    assert [line["request_id"] for line in lines(written)] == ["b", "c"]
    assert len(told.seen) == 3


def test_few_lines_wait_for_others_and_many_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line alone takes several times as long as one after another."""
    monkeypatch.setattr("shoal_service.request_log.DELAY_S", 3600.0)
    written = io.StringIO()
    request_log = RequestLog(Told(), make_log("info", "json", written))  # type: ignore[arg-type]

    async def serve() -> list[int]:
        seen = []
        for i in range(40):
            request_log.add(a_request("/predict"), f"id{i}", 200, 0.5)
            await asyncio.sleep(0)
            seen.append(len(lines(written)))
        return seen

    assert asyncio.run(serve()) == [0] * 15 + [16] * 16 + [32] * 9
    request_log.write()
    assert [line["request_id"] for line in lines(written)] == [f"id{i}" for i in range(40)]


def test_lines_do_not_pile_up_however_many_requests_come_in_a_round() -> None:
    written = io.StringIO()
    request_log = RequestLog(Told(), make_log("info", "json", written))  # type: ignore[arg-type]

    async def serve() -> list[int]:
        waiting = []
        for round_ in range(60):
            for i in range(45):
                request_log.add(a_request("/predict"), f"id{45 * round_ + i}", 200, 0.5)
            await asyncio.sleep(0)
            waiting.append(45 * (round_ + 1) - len(lines(written)))
        return waiting

    assert max(asyncio.run(serve())) < AT_ONCE, "those that came in a round are written in the next, but for a few"


def test_another_loop_writes_what_one_that_has_ended_left() -> None:
    """As where an application is called without a server, each time in a loop of its own; and the line bears the id of
    its own request, whatever the loop's caller is about."""
    written = io.StringIO()
    request_log = RequestLog(Told(), make_log("info", "json", written))  # type: ignore[arg-type]

    async def serve(name: str, lines_at_end: int) -> None:
        bind_contextvars(request_id="of somebody else")
        request_log.add(a_request("/predict"), name, 200, 0.5)
        await eventually_async(lambda: len(lines(written)) >= lines_at_end)

    asyncio.run(serve("a", 0))
    asyncio.run(serve("b", 2))
    assert [line["request_id"] for line in lines(written)] == ["a", "b"]


def test_a_line_that_cannot_be_written_raises_nothing() -> None:
    """On a full disk, a learner stopped because its log line could not be written."""

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    log = make_log("info", "json", Full())
    log.info("checkpoint", seq=1)
    closed = io.StringIO()
    closed.close()
    make_log("info", "json", closed).bind(stream="s").warning("checkpoint_failed")
