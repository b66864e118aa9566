"""Events of a stream, followed across lost connections: each time after the event that was read last."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import httpx
import msgspec

from shoal_service.client.errors import RefusedError, ShoalClientError
from shoal_service.client.flow import Request, Session, failure_of
from shoal_service.client.http import data_path

READ_TIMEOUT_S = 60.0
"""Silence (s) after which the connection counts as lost. The server sends something every 15 s."""


@dataclass(frozen=True)
class StreamEvent:
    """A change of the components of a stream."""

    id: str
    """Position of the event. `events(after=id)` continues after it."""
    kind: str
    """`born`, `merged`, `pruned`, `returned`, `rescaled`, `split`, `refined`, `restored`, `adopted`, `refused`,
    `capacity`, `drift` or `novelty-rate`; of clusters `cluster-born`, `cluster-gone`, `cluster-merged`,
    `cluster-split`, `cluster-regrouped` or `cluster-renamed`. `gap`: events are lost."""
    parents: tuple[int, ...]
    children: tuple[int, ...]
    log_offset: int | None
    points_seen: int | None
    refinement: str | None
    reason: str | None
    before: float | None = None
    """`drift`: mean log density before the change. `novelty-rate`: share of novel points before."""
    after: float | None = None
    """The same of the last 1,000 points."""
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)


class Parser:
    """Parser from the lines of a `text/event-stream` to events (WHATWG HTML, section 9.2.6), without I/O."""

    def __init__(self) -> None:
        self._fields: dict[str, list[str]] = {}
        self.last_id = ""
        """Id of the last block that had one, with or without an event. A reader continues after it."""

    def line(self, text: str) -> StreamEvent | None:
        """Read one line without its end. Returns the event that it completes, or None."""
        if text:
            name, _, value = text.partition(":")
            if name:
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return None
        fields, self._fields = self._fields, {}
        self.last_id = fields.get("id", [self.last_id])[-1]
        if "data" not in fields:
            return None
        data = msgspec.json.decode("\n".join(fields["data"]))
        return StreamEvent(
            id=self.last_id,
            kind=fields.get("event", ["message"])[-1],
            parents=tuple(data.get("parents", ())),
            children=tuple(data.get("children", ())),
            log_offset=data.get("log_offset"),
            points_seen=data.get("points_seen"),
            refinement=data.get("refinement"),
            reason=data.get("reason"),
            before=data.get("before"),
            after=data.get("after"),
            raw=data,
        )


class EventReader:
    """Position and retries of a reader of events, for both clients."""

    def __init__(self, session: Session, after: str | None, *, follows: bool = True) -> None:
        self._session = session
        self.follows = follows
        self._after = after
        self._failures = 0
        self._since = session.clock()

    def request(self) -> dict[str, Any]:
        """Arguments of the request that continues from here."""
        path = data_path(self._session, "events")
        params = ({} if self._after is None else {"after": self._after}) | ({} if self.follows else {"follow": "false"})
        timeout = httpx.Timeout(self._session.timeout_s, read=READ_TIMEOUT_S)
        return {"method": "GET", "url": path, "params": params, "timeout": timeout}

    def read(self, parser: Parser, line: str) -> StreamEvent | None:
        """Read one line of the answer. Returns the event that it completes, which then counts as read, or None."""
        event = parser.line(line)
        self._after = parser.last_id or self._after
        if event is not None:
            self.connected()
        return event

    def connected(self) -> None:
        """Remember that the server has answered."""
        self._failures = 0
        self._since = self._session.clock()

    def pause_s(self, reply: httpx.Response | httpx.RequestError) -> float:
        """Pause after a failed connection. Raises the error if it is final, or after all retries or the deadline."""
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
    http: httpx.Client,
    session: Session,
    after: str | None,
    on_connect: Callable[[], None] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    *,
    follows: bool = True,
) -> Iterator[StreamEvent]:
    """Give events until the stream is deleted or the server is away for too long.

    `on_connect` is called each time the server has begun its answer: no event after that is missed. `follows`: whether
    to wait for further events.
    """
    reader = EventReader(session, after, follows=follows)
    while True:
        try:
            with http.stream(**reader.request()) as response:
                if response.status_code != 200:
                    response.read()
                    sleep(reader.pause_s(response))
                    continue
                reader.connected()
                if on_connect is not None:
                    on_connect()
                parser = Parser()
                for line in response.iter_lines():
                    if (event := reader.read(parser, line)) is not None:
                        yield event
        except httpx.RequestError as error:
            sleep(reader.pause_s(error))
            continue
        if not follows:
            return
        sleep(session.backoff_s)  # the server has closed the feed: it stops, or the stream was deleted


async def follow_async(
    http: httpx.AsyncClient,
    session: Session,
    after: str | None,
    on_connect: Callable[[], None] | None = None,
    *,
    follows: bool = True,
) -> AsyncIterator[StreamEvent]:
    """The same as `follow`, asynchronous."""
    reader = EventReader(session, after, follows=follows)
    while True:
        try:
            async with http.stream(**reader.request()) as response:
                if response.status_code != 200:
                    await response.aread()
                    await anyio.sleep(reader.pause_s(response))
                    continue
                reader.connected()
                if on_connect is not None:
                    on_connect()
                parser = Parser()
                async for line in response.aiter_lines():
                    if (event := reader.read(parser, line)) is not None:
                        yield event
        except httpx.RequestError as error:
            await anyio.sleep(reader.pause_s(error))
            continue
        if not follows:
            return
        await anyio.sleep(session.backoff_s)
