"""Methods for records and streams, of both clients, against the real service."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
from fake_shoal import Deliver, FakeShoal

from shoal_service.client import Client, InvalidRequestError, NotFoundError, ProtocolError, RefusedError

KEYS = ["a", "b/c", "..", "ü?&#", "lookup"]


@pytest.fixture
def keyed(real_shoal: Deliver, client_of: Callable[..., Client], request: pytest.FixtureRequest) -> Client:
    """A client of a stream of its own: five points under keys, three of one component and two of another."""
    name = f"keyed-{abs(hash(request.node.nodeid)) % 10**12}"
    client = client_of(real_shoal, name)
    body = {
        "points": [[0.0, 0.1], [0.1, 0.0], [0.0, 0.0], [50.0, 50.0], [50.1, 50.0]],
        "keys": KEYS,
        "payloads": [{"n": i} for i in range(5)],
        "times": ["2026-01-31T12:00:00Z", 1.5, None, None, None],
    }
    reply = real_shoal(
        httpx.Request(
            "POST",
            f"http://127.0.0.1/streams/{name}/ingest?create=true&wait=applied&timeout=30",
            headers={"Content-Type": "application/json"},
            content=json.dumps(body).encode(),
        )
    )
    assert reply.status_code == 200, reply.read()
    return client


def test_a_record_by_any_key(keyed: Client) -> None:
    for i, key in enumerate(KEYS):
        found = keyed.record(key)
        assert (found.key, found.log_offset, found.payload, found.resolved) == (key, i + 1, {"n": i}, "exact")
        assert found.component == found.assigned
    assert (keyed.record("a").time, keyed.record("b/c").time) == ("2026-01-31T12:00:00Z", 1.5)
    with pytest.raises(NotFoundError) as missing:
        keyed.record("nobody")
    assert missing.value.type == "record-not-found"


@pytest.mark.parametrize("name", ["", "a/b", "../a"])
def test_a_name_that_would_be_another_path_is_refused_as_any_wrong_name(
    fake: FakeShoal, client_of: Callable[..., Client], name: str
) -> None:
    client = client_of(fake.handle)
    for ask in (client.stream_info, client.create_stream, client.delete_stream):
        with pytest.raises(InvalidRequestError, match=f"stream name '{name}' is not valid; use 1 to 64"):
            ask(name)
    with pytest.raises(InvalidRequestError, match=f"source name '{name}' is not valid; use 1 to 100 letters"):
        client.configured_source(name)
    assert fake.requests == []


def test_many_records_in_the_order_of_their_keys(keyed: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_service.client.records.KEYS_AT_ONCE", 2)
    found = keyed.lookup_records(iter(["lookup", "nobody", "a", "..", "a"]))
    assert [None if one is None else one.key for one in found] == ["lookup", None, "a", "..", "a"]
    assert keyed.lookup_records([]) == []


def test_records_of_a_component_come_over_pages(keyed: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_service.client.records.PAGE", 2)
    component = keyed.record("a").component
    assert component is not None
    newest = keyed.component_records(component, limit=None)
    ours = [key for key in KEYS if keyed.record(key).component == component]
    assert [one.key for one in newest] == ours[::-1]
    assert len(ours) >= 3
    assert [one.key for one in keyed.component_records(component, limit=1)] == ours[-1:]
    typical = keyed.component_records(component, order="typical", limit=None)
    densities = [-np.inf if one.log_density is None else one.log_density for one in typical]
    assert densities == sorted(densities, reverse=True)
    with pytest.raises(NotFoundError):
        keyed.component_records(10**6)


def test_changed_records_and_a_forgotten_one(keyed: Client) -> None:
    assert [one.key for one in keyed.changed_records()] == KEYS
    assert [one.key for one in keyed.changed_records(limit=2)] == KEYS[:2]
    with pytest.raises(InvalidRequestError):
        keyed.changed_records("not-an-event")
    assert keyed.delete_record("b/c") is True
    with pytest.raises(NotFoundError):
        keyed.record("b/c")


def test_one_stream_is_read_and_changed_and_none_is_made_by_a_change(keyed: Client) -> None:
    name = keyed._session.stream
    assert name is not None
    assert keyed.stream_info(name).settings["half_life"] is None
    assert keyed.change_stream(name, half_life=500).settings["half_life"] == 500.0
    assert keyed.stream_info(name).settings["half_life"] == 500.0
    with pytest.raises(NotFoundError) as missing:
        keyed.change_stream("nobody", n_features=2)
    assert missing.value.type == "unknown-stream"
    assert "nobody" not in {info.stream for info in keyed.streams()}


def test_an_ingest_creates_the_stream_where_that_is_asked(real_shoal: Deliver, client_of: Callable[..., Any]) -> None:
    client = client_of(real_shoal, "made-by-ingest")
    with pytest.raises(NotFoundError, match=r"PUT /streams/made-by-ingest.*/ingest\?create=true"):
        client.ingest(np.zeros((2, 3)))
    assert client.ingest(np.zeros((5, 3)), batch_size=2, create=True).accepted == 5
    assert client.stream_info("made-by-ingest").settings["n_features"] == 3


def test_the_asynchronous_client_has_the_same_methods(
    keyed: Client, real_shoal: Deliver, async_client_of: Callable[..., Any]
) -> None:
    name = keyed._session.stream

    async def ask() -> tuple[Any, ...]:
        async with async_client_of(real_shoal, name) as client:
            many, changed = await client.lookup_records(KEYS), await client.changed_records()
            return await client.record("a"), many, changed, (await client.stream_info(name)).stream

    assert anyio.run(ask) == (keyed.record("a"), keyed.lookup_records(KEYS), keyed.changed_records(), name)


def test_no_name_leads_to_another_path(keyed: Client, real_shoal: Deliver, client_of: Callable[..., Client]) -> None:
    """Deleting the webhook or the source `..` deleted the stream."""
    stray = client_of(real_shoal, "..")
    for call in (
        lambda: keyed.delete_webhook(".."),
        lambda: keyed.delete_source(".."),
        lambda: keyed.revoke_access_key(".."),
        lambda: keyed.refinement(".."),
        lambda: stray.ingest(np.zeros((3, 2))),
        lambda: stray.delete_webhook("x"),
    ):
        with pytest.raises(RefusedError):
            call()
    assert keyed.components().log_offset == 5


def test_a_redirect_is_no_success(client_of: Callable[..., Client]) -> None:
    """Nothing was deleted, and the call returned as if it was."""

    def elsewhere(request: httpx.Request) -> httpx.Response:
        return httpx.Response(307, headers={"Location": "http://127.0.0.1/other"})

    with pytest.raises(ProtocolError, match="redirects are not followed"):
        client_of(elsewhere).delete_stream("a")
