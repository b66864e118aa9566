"""Fixtures of the client's tests: a fake server and the real one behind one door, and clients without real pauses."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode leaves the test's own folder out

from fake_shoal import Deliver, FakeShoal, Fault, FaultyTransport, Pauses

from shoal_service.client import AsyncClient, Client

_NAMES = (f"client-{n}" for n in itertools.count())


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def fake() -> FakeShoal:
    return FakeShoal()


@pytest.fixture(params=["fake", "real"])
def deliver(request: pytest.FixtureRequest) -> Deliver:
    """A server, as a function from request to response: the fake one, and the real one."""
    return FakeShoal().handle if request.param == "fake" else request.getfixturevalue("real_shoal")


@pytest.fixture
def stream(deliver: Deliver) -> str:
    """A new stream of two features."""
    name = next(_NAMES)
    with Client("http://127.0.0.1", transport=FaultyTransport(deliver)) as client:
        client.create_stream(name, n_features=2)
    return name


@pytest.fixture
def client_of(pauses: Pauses) -> Iterator[Callable[..., Client]]:
    """Make clients that never really wait: `client_of(deliver, stream, faults, **settings)`."""
    made: list[Client] = []

    def make(
        deliver: Deliver, stream: str | None = None, faults: list[Fault] | None = None, **settings: object
    ) -> Client:
        client = Client("http://127.0.0.1", stream, transport=FaultyTransport(deliver, faults or ()), **settings)  # type: ignore[arg-type]
        client._sleep, client._session.clock = pauses.sleep, pauses.clock
        client._session.uniform = lambda low, high: high
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def async_client_of(pauses: Pauses) -> Callable[..., AsyncClient]:
    """The same for the asynchronous client; the test closes it."""

    def make(
        deliver: Deliver, stream: str | None = None, faults: list[Fault] | None = None, **settings: object
    ) -> AsyncClient:
        client = AsyncClient("http://127.0.0.1", stream, transport=FaultyTransport(deliver, faults or ()), **settings)  # type: ignore[arg-type]

        async def sleep(seconds: float) -> None:
            pauses.sleep(seconds)

        client._sleep, client._session.clock = sleep, pauses.clock
        return client

    return make


@pytest.fixture
def never(request: pytest.FixtureRequest) -> Deliver:
    """A server that must not be asked."""

    def refuse(asked: httpx.Request) -> httpx.Response:
        raise AssertionError(f"{asked.method} {asked.url} was sent")

    return refuse
