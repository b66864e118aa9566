"""Webhooks over HTTP, with a real receiver on loopback that fails, stalls and is away."""

import email.utils
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import numpy as np
import pytest

from harness.receiver import Receiver
from harness.waiting import LONGEST_WAIT_S, eventually_async
from shoal_service.streams.webhooks import delivery
from shoal_service.wire.models import EventOut, WebhookIn

pytestmark = pytest.mark.anyio

SECRET = "a secret of this test"
BINARY = {"Content-Type": "application/octet-stream"}
QUICK = {"webhook_allow_private": True, "webhook_retry_s": 0.02, "webhook_timeout_s": 60.0}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver(SECRET.encode())
    yield made
    made.end()


def hook(receiver: Receiver, *events: str) -> dict[str, Any]:
    return {"url": receiver.url, "events": list(events) or ["restored"], "secret": SECRET}


async def restore(running: Any, n: int) -> None:
    """Restore the stream's own state n times: n events `restored`."""
    stream = await running.service.streams.get("s")
    blob = (await running.http.get("/streams/s/snapshot")).content
    expected = len(feed_ids(stream)) + n
    for _ in range(n):
        reply = await running.http.put("/streams/s/snapshot", content=blob, headers=BINARY)
        assert reply.status_code in (200, 202), reply.text
    await eventually_async(lambda: len(feed_ids(stream)) == expected)


async def created(running: Any) -> None:
    settings = {"n_features": 2, "refinement": None, "window": 0}
    assert (await running.http.put("/streams/s", json=settings)).status_code == 201
    await running.learn(np.random.default_rng(0).normal(size=(200, 2)), "/streams/s/ingest")


@pytest.mark.parametrize("store_kind", ["memory"])
async def test_a_service_without_webhooks_reads_no_certificates(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To read them took half the time of its start."""
    read = []
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: read.append("certificates"))
    async with start() as running:
        await created(running)
    assert read == []


async def state_once(running: Any, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The state of the webhook `w` once it is as wanted: it is shown a moment after what it speaks of."""
    until = time.monotonic() + LONGEST_WAIT_S
    while not holds(state := (await running.json("/streams/s/webhooks/w"))["state"]):
        assert time.monotonic() < until, state
        await anyio.sleep(0.02)
    return dict(state)


def feed_ids(stream: Any) -> list[str]:
    """The ids of the events `restored`."""
    return [
        f"{stream.record.incarnation}.{event.place.seq}.{event.place.nth}"
        for event in stream.view_source.feed.all()
        if event.kind == "restored"
    ]


async def test_a_webhook_is_created_shown_changed_and_deleted(start: Any, receiver: Receiver) -> None:
    async with start(**QUICK) as running:
        await created(running)
        path = "/streams/s/webhooks/on-call"
        reply = await running.http.put(path, json=hook(receiver, "drift", "born"))
        assert reply.status_code == 201, reply.text
        shown = reply.json()
        assert (shown["name"], shown["url"], shown["events"]) == ("on-call", receiver.url, ["drift", "born"])
        assert SECRET not in reply.text
        assert shown["state"]["delivered"] == 0
        assert (await running.http.put(path, json=hook(receiver, "split"))).status_code == 200
        found = await running.json(path)
        assert (found["events"], found["dead_letters"]) == (["split"], [])
        listed = await running.json("/streams/s/webhooks")
        assert [one["name"] for one in listed["webhooks"]] == ["on-call"]
        assert "secret" not in str(found) + str(listed)
        assert (await running.http.delete(path)).status_code == 204
        for method in ("GET", "DELETE"):
            gone = await running.http.request(method, path)
            assert (gone.status_code, gone.json()["type"]) == (404, "/problems/unknown-webhook")
        assert (await running.json("/streams/s/webhooks"))["webhooks"] == []


@pytest.mark.parametrize("store_kind", ["memory"])
async def test_a_wrong_webhook_is_refused_by_its_field(start: Any, receiver: Receiver) -> None:
    async with start() as running:
        await created(running)
        good = {"url": "https://example.org/x", "events": ["born"], "secret": "s"}
        for change, words in [
            ({"url": receiver.url}, "--webhook-allow-private"), ({"url": "gopher://x"}, "url is"),
            ({"events": []}, "events"), ({"events": ["dirft"]}, "events"), ({"secret": ""}, "secret"),
            ({"secret": "whsec_!"}, "base64"), ({"more": 1}, "more"),
        ]:  # fmt: skip
            reply = await running.http.put("/streams/s/webhooks/w", json={**good, **change})
            assert (reply.status_code, reply.json()["type"]) == (400, "/problems/parameter"), reply.text
            assert words in reply.json()["detail"]
        for n in range(16):
            assert (await running.http.put(f"/streams/s/webhooks/w{n}", json=good)).status_code == 201
        reply = await running.http.put("/streams/s/webhooks/w16", json=good)
        assert (reply.status_code, reply.json()["type"]) == (400, "/problems/limit")


async def test_events_from_now_on_are_sent_signed_in_order_each_once(start: Any, receiver: Receiver) -> None:
    async with start(**QUICK) as running:
        await created(running)
        stream = await running.service.streams.get("s")
        before = feed_ids(stream)
        await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
        await restore(running, 20)
        await eventually_async(lambda: len(receiver.accepted) >= 20)
        assert receiver.ids == feed_ids(stream)[len(before) :]
        assert receiver.forged == 0
        first = receiver.accepted[0]
        assert first["type"] == first["data"]["kind"] == "restored"
        assert first["data"]["id"] == first["webhook-id"]
        assert first["data"]["stream"] == "s"
        assert first["host"] == receiver.url.split("/")[2]
        state = await state_once(running, lambda state: state["delivered"] == 20)
        assert (state["delivered"], state["failures"], state["dead"]) == (20, 0, 0)
        assert state["last_success"] is not None


async def test_the_labels_of_components_are_in_the_body(start: Any, receiver: Receiver) -> None:
    async with start(**QUICK) as running:
        await created(running)
        await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
        (one, *_) = (await running.json("/streams/s/components"))["components"]
        reply = await running.http.patch(f"/streams/s/components/{one['id']}", json={"label": "idle", "note": "n"})
        assert reply.status_code == 200, reply.text
        until = time.monotonic() + LONGEST_WAIT_S
        while True:  # what sends the messages sees a new label within a second
            n = len(receiver.accepted)
            await restore(running, 1)
            await eventually_async(lambda n=n: len(receiver.accepted) == n + 1)
            told = receiver.accepted[-1]["data"]
            assert one["id"] in told["children"]
            if told["labels"]:
                break
            assert time.monotonic() < until
        assert told["labels"] == {str(one["id"]): "idle"}


@pytest.mark.parametrize("store_kind", ["memory"])
async def test_a_receiver_that_fails_stalls_and_restarts_gets_everything_in_order(
    start: Any, receiver: Receiver
) -> None:
    seen: dict[str, int] = {}

    def troubled(message: dict[str, Any]) -> int:
        n = seen[message["webhook-id"]] = seen.get(message["webhook-id"], 0) + 1
        number = len(receiver.accepted)
        if number == 2 and n == 1:
            time.sleep(3.0)  # longer than the time for an attempt; its answer comes too late
            return 500
        return 503 if number % 3 == 0 and n <= 2 else 200

    receiver.answer = troubled
    async with start(**QUICK | {"webhook_timeout_s": 2.0}) as running:
        await created(running)
        stream = await running.service.streams.get("s")
        n = len(feed_ids(stream))
        await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
        await restore(running, 6)
        await eventually_async(lambda: len(receiver.accepted) >= 6)
        receiver.end()
        await restore(running, 4)
        await state_once(running, lambda state: "Connect" in state["reason"])
        receiver.begin()
        await eventually_async(lambda: len(receiver.accepted) >= 10)
        assert receiver.ids == feed_ids(stream)[n:]
        assert len(receiver.attempts) > len(receiver.accepted)


@pytest.mark.parametrize("store_kind", ["memory"])
async def test_a_message_that_is_never_accepted_is_given_up_and_the_next_ones_go_on(
    start: Any, receiver: Receiver
) -> None:
    refused: list[str] = []

    def answer(message: dict[str, Any]) -> int:
        refused[:] = refused or [message["webhook-id"]]
        return 500 if message["webhook-id"] in refused else 200

    receiver.answer = answer
    async with start(**QUICK, webhook_give_up_s=2.0) as running:
        await created(running)
        stream = await running.service.streams.get("s")
        n = len(feed_ids(stream))
        await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
        await restore(running, 4)
        await eventually_async(lambda: len(receiver.accepted) >= 3)
        expected = feed_ids(stream)[n:]
        assert receiver.ids == expected[1:]
        (dead,) = (await running.json("/streams/s/webhooks/w"))["dead_letters"]
        assert (dead["id"], dead["kind"], dead["reason"]) == (expected[0], "restored", "the receiver answered 500")
        assert dead["attempts"] == [message_id for _, message_id in receiver.attempts].count(expected[0]) >= 2
        assert expected[0] in dead["body"]


@pytest.mark.parametrize("store_kind", ["memory"])
async def test_a_redirect_is_not_followed(start: Any, receiver: Receiver) -> None:
    other = Receiver(SECRET.encode())
    receiver.headers["Location"] = other.url
    receiver.answer = lambda message: 307
    try:
        async with start(**QUICK) as running:
            await created(running)
            await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
            await restore(running, 1)
            await eventually_async(lambda: len(receiver.attempts) >= 3)
            await state_once(running, lambda state: state["reason"] == "the receiver answered 307")
    finally:
        other.end()
    assert other.attempts == []


@pytest.mark.parametrize("store_kind", ["memory"])
async def test_a_receiver_that_asks_for_a_pause_gets_the_message_after_it(
    start: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`Retry-After` was ignored. It is bounded as any other pause is."""
    monkeypatch.setattr(delivery, "MAX_PAUSE_S", 2.0)
    asked = iter([(503, "1"), (429, email.utils.formatdate(time.time() + 3_600, usegmt=True)), (500, "600"), (200, "")])

    def answer(message: dict[str, Any]) -> int:
        status, receiver.headers["Retry-After"] = next(asked)
        return status

    receiver.answer = answer
    async with start(**QUICK) as running:
        await created(running)
        await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
        await restore(running, 1)
        await eventually_async(lambda: receiver.accepted)
    pauses = np.diff([at for at, _ in receiver.attempts])
    assert pauses[0] >= 1.0
    assert pauses[1] >= 2.0
    assert len(pauses) == 3, "not after 600 s: a 500 says nothing of when to come again"


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_receiver_that_is_gone_gets_nothing_more_until_its_webhook_is_put_again(
    start: Any, receiver: Receiver
) -> None:
    other = Receiver(SECRET.encode())
    receiver.answer = lambda message: 410
    try:
        async with start(**QUICK) as running:
            await created(running)
            stream = await running.service.streams.get("s")
            n = len(feed_ids(stream))
            await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
            await running.http.put("/streams/s/webhooks/other", json=hook(other))
            await restore(running, 3)
            await state_once(running, lambda state: state["ended"])
            await eventually_async(lambda: len(other.accepted) == 3)
            expected = feed_ids(stream)[n:]
        async with start(**QUICK) as running:  # also after a restart
            await restore(running, 1)
            await eventually_async(lambda: len(other.accepted) == 4)
            state = (await running.json("/streams/s/webhooks/w"))["state"]
            assert (state["reason"], state["failures"], state["dead"]) == ("the receiver answered 410", 1, 0)
            assert [message_id for _, message_id in receiver.attempts] == expected[:1]
            receiver.answer = lambda message: 200
            await running.http.put("/streams/s/webhooks/w", json=hook(receiver))  # with the same values
            await eventually_async(lambda: len(receiver.accepted) >= 4)
            assert receiver.ids == other.ids
            await state_once(running, lambda state: state["delivered"] == 4 and not state["ended"])
    finally:
        other.end()


@pytest.mark.parametrize("store_kind", ["memory"])
async def test_an_answer_of_2xx_counts_although_its_body_breaks_off(start: Any, receiver: Receiver) -> None:
    """The message came again until it was given up."""
    receiver.headers["Content-Length"] = "100"  # and the connection ends
    async with start(**QUICK) as running:
        await created(running)
        await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
        await restore(running, 2)
        await state_once(running, lambda state: state["delivered"] == 2)
        assert len(receiver.attempts) == 2


@pytest.mark.parametrize("store_kind", ["sqlite"])
async def test_a_restart_goes_on_where_it_was(start: Any, receiver: Receiver) -> None:
    async with start(**QUICK) as running:
        await created(running)
        await running.http.put("/streams/s/webhooks/w", json=hook(receiver))
        await restore(running, 3)
        await eventually_async(lambda: len(receiver.accepted) >= 3)
        receiver.end()
        await restore(running, 3)
    receiver.begin()
    async with start(**QUICK) as running:
        await eventually_async(lambda: len(set(receiver.ids)) >= 6)
        stream = await running.service.streams.get("s")
        expected = feed_ids(stream)[-6:]
        assert list(dict.fromkeys(receiver.ids)) == expected
        assert receiver.ids[-3:] == expected[-3:]


@pytest.mark.parametrize("store_kind", ["memory"])
def test_a_webhook_may_ask_for_every_event_that_there_is(store_kind: str) -> None:
    shown = EventOut.model_json_schema()["properties"]["kind"]["enum"]
    accepted = WebhookIn.model_json_schema()["properties"]["events"]["items"]["enum"]
    assert set(accepted) == {*shown} - {"gap"}
