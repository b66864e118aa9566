"""The two clients: the same methods, with blocking calls or with `await`."""

import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import anyio
import httpx

from shoal_service.client import (
    access_keys,
    batch_requests,
    clusters,
    dead_letters,
    events,
    records,
    refinements,
    requests,
    sources,
    webhooks,
)
from shoal_service.client.errors import AccessError, BadPointsError, UnreachableError
from shoal_service.client.events import StreamEvent
from shoal_service.client.flow import DONE, Flow, Pause, Request, Session, Step

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8000"


def _blocking(request: Callable[Concatenate[Session, P], Flow[T]]) -> Callable[Concatenate["Client", P], T]:
    @wraps(request)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(request(self._session, *args, **kwargs))

    return method


def _awaited(
    request: Callable[Concatenate[Session, P], Flow[T]],
) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    @wraps(request)
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(request(self._session, *args, **kwargs))

    return method


class Client:
    """Client of a shoal server.

    >>> with Client() as shoal:                               # doctest: +SKIP
    ...     offset = shoal.ingest(x).log_offset
    ...     print(shoal.components(min_offset=offset).weights)

    `stream`: name of the stream; None means `default`, which the first ingest creates. For each request, `timeout_s` is
    the longest time for one try, `retries` the largest number of retries, and `deadline_s` the longest time in all
    (None: no limit). A batch is one request. `api_key`: access key, by default that of the variable SHOAL_API_KEY; ""
    sends none. Use a client in one thread at a time. All errors are ShoalClientErrors.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        stream: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 10,
        deadline_s: float | None = 120.0,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._session = Session(base_url, stream, retries, deadline_s, timeout_s)
        self._http = httpx.Client(transport=transport, **_http_settings(base_url, api_key))
        self._sleep: Callable[[float], None] = time.sleep

    components = _blocking(requests.components)
    component = _blocking(requests.component)
    cluster = _blocking(clusters.cluster)
    clusters = _blocking(clusters.clusters)
    ingest = _blocking(batch_requests.ingest)
    ingest_step = _blocking(sources.ingest_step)
    predict = _blocking(batch_requests.predict)
    label = _blocking(requests.label)
    sample = _blocking(requests.sample)
    wait = _blocking(requests.wait)
    streams = _blocking(requests.streams)
    stream_info = _blocking(requests.stream_info)
    create_stream = _blocking(requests.create_stream)
    change_stream = _blocking(requests.change_stream)
    delete_stream = _blocking(requests.delete_stream)
    record = _blocking(records.record)
    lookup_records = _blocking(records.lookup_records)
    component_records = _blocking(records.component_records)
    changed_records = _blocking(records.changed_records)
    delete_record = _blocking(records.delete_record)
    snapshot_save = _blocking(requests.snapshot_save)
    snapshot_restore = _blocking(requests.snapshot_restore)
    health = _blocking(requests.health)
    refine = _blocking(refinements.refine)
    refinement = _blocking(refinements.refinement)
    refinements = _blocking(refinements.refinements)
    create_access_key = _blocking(access_keys.create_access_key)
    revoke_access_key = _blocking(access_keys.revoke_access_key)
    access_keys = _blocking(access_keys.access_keys)
    dead_letter = _blocking(dead_letters.dead_letter)
    requeue_dead_letter = _blocking(dead_letters.requeue_dead_letter)
    dead_letters = _blocking(dead_letters.dead_letters)
    webhook = _blocking(webhooks.webhook)
    put_webhook = _blocking(webhooks.put_webhook)
    delete_webhook = _blocking(webhooks.delete_webhook)
    webhooks = _blocking(webhooks.webhooks)
    forget_source = _blocking(sources.forget_source)
    put_source = _blocking(sources.put_source)
    enable_source = _blocking(sources.enable_source)
    configured_source = _blocking(sources.configured_source)
    configured_sources = _blocking(sources.configured_sources)
    delete_source = _blocking(sources.delete_source)
    sources = _blocking(sources.sources)

    def events(
        self, after: str | None = None, *, on_connect: Callable[[], None] | None = None, follow: bool = True
    ) -> Iterator[StreamEvent]:
        """Follow the changes of the components, across lost connections, from now on or after the event with an id.

        `after="0"` begins with the oldest stored event. `on_connect` is called each time the server begins to send:
        from there on no event is missed. The iterator ends with an error only: NotFoundError if the
        stream was deleted, UnreachableError if the server is away for longer than `deadline_s`. With `follow=False`, it
        ends after the newest event that there is now.
        """
        return events.follow(self._http, self._session, after, on_connect, self._sleep, follows=follow)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # T, by Flow's third parameter
            try:
                answer = self._perform(step)
            except BaseException as error:
                flow.throw(error)  # an ingest adds its progress to the error
                raise

    def _perform(self, step: Step) -> Any:
        match step:
            case Request():
                try:
                    return self._http.request(**_arguments(step))
                except httpx.RequestError as error:
                    return error
            case Pause(seconds):
                return self._sleep(seconds)
            case _ if isinstance(step.items, Iterator):
                return next(step.items, DONE)
        raise BadPointsError("points are an asynchronous iterable; use AsyncClient, or gather them first")


class AsyncClient:
    """`Client` for asynchronous programs: the same arguments and verbs, to be awaited; `async with` closes it.

    Verbs of one client may run side by side. A synchronous iterable is pulled in the event loop: it must not block.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        stream: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 10,
        deadline_s: float | None = 120.0,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._session = Session(base_url, stream, retries, deadline_s, timeout_s)
        self._http = httpx.AsyncClient(transport=transport, **_http_settings(base_url, api_key))
        self._sleep: Callable[[float], Coroutine[Any, Any, None]] = anyio.sleep

    components = _awaited(requests.components)
    component = _awaited(requests.component)
    cluster = _awaited(clusters.cluster)
    clusters = _awaited(clusters.clusters)
    ingest = _awaited(batch_requests.ingest)
    ingest_step = _awaited(sources.ingest_step)
    predict = _awaited(batch_requests.predict)
    label = _awaited(requests.label)
    sample = _awaited(requests.sample)
    wait = _awaited(requests.wait)
    streams = _awaited(requests.streams)
    stream_info = _awaited(requests.stream_info)
    create_stream = _awaited(requests.create_stream)
    change_stream = _awaited(requests.change_stream)
    delete_stream = _awaited(requests.delete_stream)
    record = _awaited(records.record)
    lookup_records = _awaited(records.lookup_records)
    component_records = _awaited(records.component_records)
    changed_records = _awaited(records.changed_records)
    delete_record = _awaited(records.delete_record)
    snapshot_save = _awaited(requests.snapshot_save)
    snapshot_restore = _awaited(requests.snapshot_restore)
    health = _awaited(requests.health)
    refine = _awaited(refinements.refine)
    refinement = _awaited(refinements.refinement)
    refinements = _awaited(refinements.refinements)
    create_access_key = _awaited(access_keys.create_access_key)
    revoke_access_key = _awaited(access_keys.revoke_access_key)
    access_keys = _awaited(access_keys.access_keys)
    dead_letter = _awaited(dead_letters.dead_letter)
    requeue_dead_letter = _awaited(dead_letters.requeue_dead_letter)
    dead_letters = _awaited(dead_letters.dead_letters)
    webhook = _awaited(webhooks.webhook)
    put_webhook = _awaited(webhooks.put_webhook)
    delete_webhook = _awaited(webhooks.delete_webhook)
    webhooks = _awaited(webhooks.webhooks)
    forget_source = _awaited(sources.forget_source)
    put_source = _awaited(sources.put_source)
    enable_source = _awaited(sources.enable_source)
    configured_source = _awaited(sources.configured_source)
    configured_sources = _awaited(sources.configured_sources)
    delete_source = _awaited(sources.delete_source)
    sources = _awaited(sources.sources)

    def events(
        self, after: str | None = None, *, on_connect: Callable[[], None] | None = None, follow: bool = True
    ) -> AsyncIterator[StreamEvent]:
        """As `Client.events`, for `async for`."""
        return events.follow_async(self._http, self._session, after, on_connect, follows=follow)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, flow: Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = flow.send(answer)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # T, by Flow's third parameter
            try:
                answer = await self._perform(step)
            except BaseException as error:
                flow.throw(error)  # an ingest adds its progress to the error
                raise

    async def _perform(self, step: Step) -> Any:
        match step:
            case Request():
                try:
                    return await self._http.request(**_arguments(step))
                except httpx.RequestError as error:
                    return error
            case Pause(seconds):
                return await self._sleep(seconds)
            case _ if isinstance(step.items, Iterator):
                return next(step.items, DONE)
        return await anext(step.items, DONE)


def _http_settings(base_url: str, api_key: str | None) -> dict[str, Any]:
    try:
        url = httpx.URL(base_url)
    except httpx.InvalidURL as error:
        raise UnreachableError(
            f"base_url {base_url!r} is not an address ({error}); use one like {DEFAULT_URL}"
        ) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UnreachableError(f"base_url {base_url!r} is not an http address; use one like {DEFAULT_URL}")
    local = url.host in ("127.0.0.1", "localhost", "::1")
    # A proxy meant for the outside world cannot reach this machine's loopback.
    return {
        "base_url": url,
        "trust_env": not local,
        "follow_redirects": False,
        "headers": _headers(api_key, url),
    } | _trusted(url)


def _trusted(url: httpx.URL) -> dict[str, Any]:
    """Trust the certificates in SSL_CERT_FILE, if that is set. Without `trust_env`, httpx would not look there.

    An http address needs no certificates, and redirects are not followed. To read them all would take longer than most
    requests.
    """
    if url.scheme != "https":
        return {"verify": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)}
    path = os.environ.get("SSL_CERT_FILE")
    if not path:
        return {}
    try:
        return {"verify": ssl.create_default_context(cafile=path)}
    except (OSError, ssl.SSLError) as error:
        raise UnreachableError(f"SSL_CERT_FILE {path} cannot be used ({error}); give a PEM file") from error


def _headers(api_key: str | None, url: httpx.URL) -> dict[str, str]:
    """Header with the access key. An address with a user needs `Authorization` for that user."""
    key = (os.environ.get("SHOAL_API_KEY", "") if api_key is None else api_key).strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise AccessError("the access key has other characters than printable ASCII; give it as it was printed")
    if not key:
        return {}
    return {"api-key": key} if url.userinfo else {"Authorization": f"Bearer {key}"}


def _arguments(request: Request) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": request.path,
        "params": dict(request.params),
        "headers": dict(request.headers),
        "content": request.content,
        "timeout": request.timeout_s,
    }
