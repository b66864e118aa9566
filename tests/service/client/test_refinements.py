"""The client's refinements and events, against the real service; the parser and the waits of a reader by hand."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from shoal_service.client import Client, ConflictError, NotFoundError, StreamEvent, UnreachableError
from shoal_service.client.events import EventReader, Parser, follow
from shoal_service.client.flow import Session

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refining child's work is done in this process."""
    from shoal_service.refining import child
    from shoal_service.streams.refinement import process

    def refine(self: Any, task: process.Task, timeout_s: float, watch: Any) -> process.Outcome:
        paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
        return process._outcome(
            child._answer({**paths, "method": task.method, "window_rows": task.window_rows}, io.StringIO())
        )

    monkeypatch.setattr(process.RefinementProcess, "refine", refine)


@pytest.fixture
def fed(real_shoal: Any, client_of: Callable[..., Client], inside: None) -> Iterator[Client]:
    """A client of a stream with points of three clusters, whose pauses are real but short."""
    import time

    name = f"refining-{time.monotonic_ns()}"
    rng = np.random.default_rng(0)
    client = client_of(real_shoal, name)
    client._sleep = lambda seconds: time.sleep(min(seconds, 0.02))
    client.create_stream(name, n_features=2, family="gaussian", warmup_points=200, window=2000, refinement=None)
    centres = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0]])
    offset = client.ingest(centres[np.arange(600) % 3] + rng.normal(size=(600, 2))).log_offset
    client.wait(offset or 0)
    yield client
    client.delete_stream(name)


def test_a_refinement_is_asked_for_and_waited_for(fed: Client) -> None:
    asked = fed.refine(method="vdp")
    assert asked.state == "queued" or asked.done
    done = fed.refinement(asked.id, wait=True)
    assert done.done
    assert done.adopted == (done.state == "adopted")
    assert done.components_after == 3
    assert done.bound_after is not None
    assert done.bound_before is not None
    assert done.bound_after >= done.bound_before
    assert [one.id for one in fed.refinements()] == [asked.id]
    assert fed.refinement(asked.id) == done


def test_a_lost_reply_asks_for_nothing_twice(fed: Client, real_shoal: Any, client_of: Callable[..., Client]) -> None:
    again = client_of(real_shoal, fed._session.stream, ["lose", "pass"])
    asked = again.refine()
    assert [one.id for one in fed.refinements()] == [asked.id]


def test_refusals_are_of_the_tree(real_shoal: Any, client_of: Callable[..., Client], stream: str) -> None:
    client = client_of(real_shoal, "nowhere")
    with pytest.raises(NotFoundError):
        client.refine()
    with pytest.raises(NotFoundError):
        client.refinements()
    with pytest.raises(NotFoundError):
        next(client.events())


def test_the_events_of_today_end(fed: Client) -> None:
    found = list(fed.events(after="0", follow=False))
    assert "born" in {event.kind for event in found}
    assert list(fed.events(after=found[0].id, follow=False)) == found[1:]
    assert list(fed.events(follow=False)) == []


def test_a_stream_without_points_is_a_conflict(real_shoal: Any, client_of: Callable[..., Client]) -> None:
    client = client_of(real_shoal, "unfed")
    client.create_stream("unfed", n_features=2)
    with pytest.raises(ConflictError):
        client.refine()
    with pytest.raises(NotFoundError):
        client.refinement("nothing")


# -- the reader


def test_lines_become_events() -> None:
    parser = Parser()
    text = 'retry: 1000\n\n: still here\n\nid: a.1.0\nevent: born\ndata: {"parents": [],\ndata: "children": [3]}\n\n'
    found = [event for line in text.splitlines() if (event := parser.line(line)) is not None]
    assert found == [StreamEvent("a.1.0", "born", (), (3,), None, None, None, None)]


def server(parts: list[Any]) -> Callable[[httpx.Request], httpx.Response]:
    """Answers in turn: bodies of events, statuses, or errors; asked with which `after`?"""
    asked: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get("after"))
        part = parts.pop(0) if parts else httpx.ConnectError("gone")
        if isinstance(part, Exception):
            raise part
        if isinstance(part, int):
            return httpx.Response(part, json={"type": "/problems/x", "retryable": part == 503, "detail": "no"})
        body = "".join(f'id: {i}\nevent: born\ndata: {{"children": [{n}]}}\n\n' for i, n in part)
        return httpx.Response(200, text=body, headers={"content-type": "text/event-stream"})

    handle.asked = asked  # type: ignore[attr-defined]
    return handle


def test_a_reader_goes_on_where_it_was_over_every_kind_of_break() -> None:
    handle = server([[("a", 1), ("b", 2)], httpx.ConnectError("x"), 503, [("c", 3)], [], [("d", 4)]])
    pauses: list[float] = []
    with httpx.Client(transport=httpx.MockTransport(handle), base_url="http://127.0.0.1") as http:
        session = Session("http://127.0.0.1", answered=True)
        found = follow(http, session, None, sleep=pauses.append)
        assert [next(found).id for _ in range(4)] == ["a", "b", "c", "d"]
    assert handle.asked == [None, "b", "b", "b", "c", "c"]  # type: ignore[attr-defined]
    assert len(pauses) == 5


def test_a_connection_lost_before_the_first_event_goes_on_where_it_began() -> None:
    asked: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.params.get("after"))
        event = 'id: b\nevent: born\ndata: {"children": [1]}\n\n' if len(asked) > 1 else ""
        return httpx.Response(200, text=f"retry: 1000\nid: a\n\n{event}")

    connected: list[int] = []
    with httpx.Client(transport=httpx.MockTransport(handle), base_url="http://127.0.0.1") as http:
        found = follow(
            http, Session("http://127.0.0.1"), None, lambda: connected.append(len(asked)), sleep=lambda seconds: None
        )
        assert next(found).id == "b"
    assert asked == [None, "a"]
    assert connected == [1, 2]


def test_a_reader_gives_up_in_time_and_at_once_where_a_retry_is_no_help() -> None:
    for parts, kind in (([404], NotFoundError), ([], UnreachableError)):
        transport = httpx.MockTransport(server(parts))
        with httpx.Client(transport=transport, base_url="http://127.0.0.1") as http, pytest.raises(kind):
            next(follow(http, Session("http://127.0.0.1"), None, sleep=lambda seconds: None))


def test_what_was_read_is_what_is_asked_after() -> None:
    following, parser = EventReader(Session("http://x", "s"), "before"), Parser()
    assert following.request()["params"] == {"after": "before"}
    read = [following.read(parser, line) for line in ("id: now", "event: born", 'data: {"children": [3]}', "")]
    assert read == [None, None, None, StreamEvent("now", "born", (), (3,), None, None, None, None)]
    assert following.request()["params"] == {"after": "now"}
    assert following.request()["url"] == "/streams/s/events"


@pytest.mark.anyio
async def test_the_asynchronous_reader_does_the_same(anyio_backend: str) -> None:
    from shoal_service.client.events import follow_async

    handle = server([[("a", 1)], httpx.ConnectError("x"), [("b", 2)]])
    async with httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://127.0.0.1") as http:
        found = follow_async(http, Session("http://127.0.0.1", answered=True, backoff_s=0.001), None)
        assert [(await anext(found)).id for _ in range(2)] == ["a", "b"]
        await found.aclose()
        assert handle.asked == [None, "a", "a"]  # type: ignore[attr-defined]
    handle = server([httpx.ConnectError("x"), [("a", 1)], [("b", 2)]])
    async with httpx.AsyncClient(transport=httpx.MockTransport(handle), base_url="http://127.0.0.1") as http:
        session = Session("http://127.0.0.1", answered=True, backoff_s=0.001)
        assert [event.id async for event in follow_async(http, session, "0", follows=False)] == ["a"]
