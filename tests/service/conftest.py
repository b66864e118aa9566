"""The real service in this process, for the tests of the client and of the command line."""

import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from anyio.from_thread import start_blocking_portal


@pytest.fixture(scope="session")
def real_shoal() -> Iterator[Callable[[httpx.Request], httpx.Response]]:
    """The real service over the memory store, in this process, without a socket."""
    from shoal_service.app import create_app  # here: a run of the other tests does not load it
    from shoal_service.settings import load_settings

    app = create_app(load_settings(store="memory", max_streams=10_000))  # of all tests together
    transport = httpx.ASGITransport(app)

    async def deliver(request: httpx.Request) -> httpx.Response:
        response = await transport.handle_async_request(request)
        return httpx.Response(response.status_code, headers=response.headers, content=await response.aread())

    with start_blocking_portal() as portal, portal.wrap_async_context_manager(app.router.lifespan_context(app)):
        deadline = time.monotonic() + 120.0  # kernels may have to be compiled
        while portal.call(deliver, httpx.Request("GET", "http://127.0.0.1/readyz")).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield lambda request: portal.call(deliver, request)
