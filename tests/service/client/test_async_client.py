"""The asynchronous client: the same verbs, awaited."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pytest
from fake_shoal import Deliver, FakeShoal

from shoal_service.client import AsyncClient, Client, NotFoundError, UnreachableError

X = np.random.default_rng(7).normal(size=(90, 2))
AsyncClientOf = Callable[..., AsyncClient]


def test_both_clients_have_the_same_verbs_with_the_same_arguments() -> None:
    def verbs(kind: type) -> dict[str, list[inspect.Parameter]]:
        return {
            name: list(inspect.signature(value).parameters.values())[1:]
            for name, value in vars(kind).items()
            if callable(value) and not name.startswith("_")
        }

    assert verbs(Client) == verbs(AsyncClient)
    assert {"ingest", "components", "predict", "wait", "snapshot_save"} <= set(verbs(Client))
    assert all(inspect.getdoc(getattr(Client, name)) for name in verbs(Client))


def test_ingest_components_predict_wait(deliver: Deliver, stream: str, async_client_of: AsyncClientOf) -> None:
    async def run() -> None:
        async with async_client_of(deliver, stream) as client:
            result = await client.ingest(X, batch_size=40, wait="applied")
            assert result.accepted == 90
            assert result.components is not None
            assert len(result.components) == 90
            assert await client.wait(90) == 90
            found = await client.components()
            assert found.points_seen == 90
            got = await client.predict(X)
            assert set(got.components.tolist()) <= set(found.ids.tolist())
            with pytest.raises(NotFoundError):
                await client.component(2**40)

    asyncio.run(run())


def test_asynchronous_iterables_are_taken(fake: FakeShoal, async_client_of: AsyncClientOf) -> None:
    async def rows() -> AsyncIterator[Any]:
        for row in X[:50]:
            await asyncio.sleep(0)
            yield row
        yield X[50:]

    async def run() -> None:
        async with async_client_of(fake.handle) as client:
            assert (await client.ingest(rows(), batch_size=16)).accepted == 90
            assert (await client.ingest(iter(X))).accepted == 90

    asyncio.run(run())
    np.testing.assert_array_equal(fake.streams["default"].x, np.concatenate([X, X]))


def test_lost_replies_are_stored_once(deliver: Deliver, stream: str, async_client_of: AsyncClientOf) -> None:
    async def run() -> None:
        async with async_client_of(deliver, stream, ["lose", "lose", "pass", "lose"]) as client:
            result = await client.ingest(X, batch_size=30)
            assert (result.log_offset, result.replayed_batches) == (90, 2)

    asyncio.run(run())


def test_refused_connection_says_how_to_start_a_server(fake: FakeShoal, async_client_of: AsyncClientOf) -> None:
    async def run() -> None:
        async with async_client_of(fake.handle, faults=["refuse"] * 50) as client:
            with pytest.raises(UnreachableError, match="shoal serve"):
                await client.components()

    asyncio.run(run())


def test_verbs_of_one_client_run_side_by_side(fake: FakeShoal, async_client_of: AsyncClientOf) -> None:
    async def run() -> None:
        async with async_client_of(fake.handle) as client:
            await client.create_stream("default", n_features=2)
            results = await asyncio.gather(*(client.ingest(X, batch_size=30) for _ in range(4)))
            assert sum(result.accepted for result in results) == 360

    asyncio.run(run())
    assert len(fake.streams["default"].x) == 360


def test_cancelled_ingest_notes_what_is_stored(fake: FakeShoal, async_client_of: AsyncClientOf) -> None:
    async def endless() -> AsyncIterator[Any]:
        while True:
            await asyncio.sleep(0)
            yield X[0]

    async def run() -> None:
        async with async_client_of(fake.handle) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.ingest(endless(), batch_size=5), 0.2)

    asyncio.run(run())
    assert len(fake.streams["default"].x) % 5 == 0
