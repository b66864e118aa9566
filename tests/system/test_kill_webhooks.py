"""kill -9 while webhooks are sent: the receiver gets every event at least once, and in order."""

from collections.abc import Callable

import numpy as np
import pytest

from harness.receiver import Receiver
from harness.running_service import RunningService
from harness.waiting import eventually
from harness.web import WEB

pytestmark = pytest.mark.system

SECRET = "a secret of this test"


def test_events_arrive_in_order_through_kills_of_the_service_and_ends_of_the_receiver(
    start_service: Callable[..., RunningService],
) -> None:
    receiver = Receiver(SECRET.encode())
    rng = np.random.default_rng(0)
    receiver.answer = lambda message: 503 if rng.random() < 0.2 else 200
    service = start_service(
        webhook_allow_private=True, webhook_retry_s=0.02, checkpoint_interval_s=0.5, publish_interval_s=0.01
    )
    try:
        settings = {"n_features": 2, "refinement": None, "window": 0}
        assert WEB.put(f"{service.url}/streams/s", json=settings).status_code == 201
        incarnation = WEB.get(f"{service.url}/streams/s").json()["incarnation"]
        points = {"points": rng.normal(size=(50, 2)).tolist()}
        assert WEB.post(f"{service.url}/streams/s/ingest?wait=applied", json=points).status_code == 200
        snapshot = WEB.get(f"{service.url}/streams/s/snapshot").content
        hook = {"url": receiver.url, "events": ["restored"], "secret": SECRET}
        assert WEB.put(f"{service.url}/streams/s/webhooks/w", json=hook).status_code == 201
        for n in range(24):
            kind = {"Content-Type": "application/octet-stream"}
            reply = WEB.put(f"{service.url}/streams/s/snapshot", content=snapshot, headers=kind)
            assert reply.status_code in (200, 202), reply.text
            if n % 8 == 3:
                service.kill()
                service.start()
            if n % 8 == 5:
                receiver.end()
            if n % 8 == 7:
                receiver.begin()
        expected = [f"{incarnation}.{seq}.0" for seq in range(2, 26)]
        eventually(lambda: len(set(receiver.ids)) >= len(expected), lambda: receiver.ids)
    finally:
        receiver.end()
    assert list(dict.fromkeys(receiver.ids)) == expected, "each, and first in order"
    assert receiver.forged == 0
