"""Subscriptions that the server refuses."""

import queue
import threading
from collections.abc import Callable

import pytest
import redis

from harness.redis_server import RedisServer
from harness.waiting import LONGEST_WAIT_S, eventually
from shoal_service.store.redis import RedisStore
from shoal_service.store.redis.connection import Connections
from shoal_service.store.redis.pubsub import Subscription

pytestmark = pytest.mark.redis


def test_a_subscription_that_is_refused_is_tried_again_and_gives_no_message(
    own_server: Callable[..., RedisServer], open_at: Callable[..., RedisStore]
) -> None:
    server = own_server()
    url = server.url.replace("redis://", "redis://reader:word@")
    messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    tags: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">word", "~*", "+@all", "resetchannels")
        store, connections = open_at(url, timeout_s=0.3), Connections(url, 0.3)
        subscription = Subscription(connections, "tags")
        try:
            store.messages.listen(("one", "two"), messages.put)
            subscription.listen(tags.put)
            eventually(lambda: sum(int(entry["count"]) for entry in admin.acl_log()) > 3, admin.acl_log)
            assert messages.empty()
            assert tags.empty()
            admin.execute_command("ACL", "SETUSER", "reader", "allchannels")
            eventually(lambda: store.messages.send("two", b"text") == 1)
            eventually(lambda: admin.publish("tags", "s") == 1)
            assert [messages.get(timeout=LONGEST_WAIT_S) for _ in range(2)] == [None, b"text"]
            assert [tags.get(timeout=LONGEST_WAIT_S) for _ in range(2)] == [None, "s"]
        finally:
            subscription.close()
            connections.close()


def test_a_message_that_cannot_be_handled_does_not_end_the_subscription(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its thread used to end without a word: then every wait for entries lasted until it looked by itself."""
    seen: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def handle(message: str | None) -> None:
        if message == "of a newer version":
            raise ValueError("not enough values to unpack")
        seen.put(message)

    connections = Connections(server.url, 1.0)
    subscription = Subscription(connections, "tags")
    event = threading.Event()
    try:
        subscription.watch("tag", event)
        subscription.listen(handle)
        with server.client() as client:
            eventually(lambda: client.publish("tags", "first") == 1)
            client.publish("tags", "of a newer version")
            client.publish("tags", "tag")
        while seen.get(timeout=LONGEST_WAIT_S) != "tag":
            pass
        eventually(event.is_set)
        assert "'of a newer version' from redis could not be handled" in caplog.text
    finally:
        subscription.close()
        connections.close()
