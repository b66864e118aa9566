"""The feed of a stream's events, followed over lost connections: each time from the event that was read last."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import msgspec

from shoal_service.client.errors import RefusedError, ShoalClientError
from shoal_service.client.flow import Request, Session, failure_of
from shoal_service.client.http import data_path

READ_TIMEOUT_S = 60.0
"""The server says something every fifteen seconds; after so much silence the connection counts as lost."""


@dataclass(frozen=True)
class StreamEvent:
    """A change of identity in a stream."""

    id: str
    """Its place; `events(after=id)` goes on behind it."""
    kind: str
    """`born`, `merged`, `pruned`, `split`, `refined`, `restored`, `refused` or `capacity`; `gap`: some were missed."""
    parents: tuple[int, ...]
    children: tuple[int, ...]
    log_offset: int | None
    points_seen: int | None
    refinement: str | None
    reason: str | None
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


class Parser:
    """Lines of a `text/event-stream` to events (WHATWG HTML, section 9.2.6), without any input or output."""

    def __init__(self) -> None:
        self._fields: dict[str, list[str]] = {}

    def line(self, text: str) -> StreamEvent | None:
        """Take in one line without its end; gives the event that it completes."""
        if text:
            name, _, value = text.partition(":")
            if name:
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        data = msgspec.json.decode("\n".join(fields["data"]))
        return StreamEvent(
            id=fields.get("id", [""])[-1],
            kind=fields.get("event", ["message"])[-1],
            parents=tuple(data.get("parents", ())),
            children=tuple(data.get("children", ())),
            log_offset=data.get("log_offset"),
            points_seen=data.get("points_seen"),
            refinement=data.get("refinement"),
            reason=data.get("reason"),
            raw=data,
        )


class Following:
    """Where a reader is, and how patient it is: what both clients share."""

    def __init__(self, session: Session, after: str | None) -> None:
        self._session = session
        self._after = after
        self._failures = 0
        self._since = session.clock()

    def request(self) -> dict[str, Any]:
        """Arguments of the request that goes on from here."""
        path = data_path(self._session, "events")
        params = {} if self._after is None else {"after": self._after}
        timeout = httpx.Timeout(self._session.timeout_s, read=READ_TIMEOUT_S)
        return {"method": "GET", "url": path, "params": params, "timeout": timeout}

    def read(self, event: StreamEvent) -> StreamEvent:
        """Note an event as read."""
        self._after = event.id or self._after
        self.connected()
        return event

    def connected(self) -> None:
        """The server has answered."""
        self._failures = 0
        self._since = self._session.clock()

    def pause_s(self, reply: httpx.Response | httpx.RequestError) -> float:
        """How long to wait after a connection that failed. Raises the failure when it is final, or lasts too long."""
        error: ShoalClientError = failure_of(reply, Request("GET", "/events"), self._session.base_url)
        self._failures += 1
        deadline_s = self._session.deadline_s
        waited = self._session.clock() - self._since
        if isinstance(error, RefusedError) and not error.retryable:
            raise error
        late = deadline_s is not None and waited > deadline_s
        if late or self._failures > self._session.retries_for(error):
            raise error
        return self._session.pause_s(self._failures, error)


def follow(
    http: httpx.Client, session: Session, after: str | None, sleep: Callable[[float], None] = time.sleep
) -> Iterator[StreamEvent]:
    """Events for ever, or until the stream ends or the server has been away for too long."""
    following = Following(session, after)
    while True:
        try:
            with http.stream(**following.request()) as response:
                if response.status_code != 200:
                    response.read()
                    sleep(following.pause_s(response))
                    continue
                following.connected()
                for event in _parsed(response.iter_lines()):
                    yield following.read(event)
        except httpx.RequestError as error:
            sleep(following.pause_s(error))
            continue
        sleep(session.backoff_s)  # the server has ended it: it stops, or the stream has ended


async def follow_async(http: httpx.AsyncClient, session: Session, after: str | None) -> AsyncIterator[StreamEvent]:
    """The same, awaited."""
    following = Following(session, after)
    while True:
        try:
            async with http.stream(**following.request()) as response:
                if response.status_code != 200:
                    await response.aread()
                    await anyio.sleep(following.pause_s(response))
                    continue
                following.connected()
                parser = Parser()
                async for line in response.aiter_lines():
                    if (event := parser.line(line)) is not None:
                        yield following.read(event)
        except httpx.RequestError as error:
            await anyio.sleep(following.pause_s(error))
            continue
        await anyio.sleep(session.backoff_s)


def _parsed(lines: Iterable[str]) -> Iterator[StreamEvent]:
    parser = Parser()
    for line in lines:
        if (event := parser.line(line)) is not None:
            yield event
