"""Faults between a service and its Redis, while clients send: what was acknowledged is there once, a retry makes no
second entry, every refusal is a 503 that says why, and the service goes on by itself when the fault has passed.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from harness.fault_proxy import FaultProxy
from harness.ports import free_port
from harness.redis_server import RedisServer, running_redis
from harness.running_service import RunningService
from harness.until_stopped import UntilStopped
from harness.waiting import eventually
from harness.web import WEB
from shoal_service.store import EntryKind
from shoal_service.store.redis import RedisStore
from shoal_service.wire import from_log

pytestmark = [pytest.mark.system, pytest.mark.redis]

CLIENTS = 3
TIMEOUT_S = 0.5
FAULT_S = 1.0
OUTAGE_S = 3.5
"""Longer than the service sends a request again."""
REFUSALS = {f"/problems/{slug}" for slug in ("store-unavailable", "store-starting", "not-ready", "overloaded")}


QUESTIONS = (
    "/components", "/predict?x=1,2", "/clusters", "/refinements", "/dead-letters", "/records/none", "/snapshot", "",
    "/components/0/records",
)  # fmt: skip
"""What a client asks between two batches, of its stream."""


class Deployment(NamedTuple):
    """A service whose Redis is behind a proxy."""

    server: RedisServer
    proxy: FaultProxy
    service: RunningService


@pytest.fixture(scope="module")
def deployment(redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("faults")
    with running_redis(redis_binary, folder) as server:
        proxy = FaultProxy(server.port)
        settings = {"store": "redis", "redis_url": proxy.url, "redis_timeout_s": TIMEOUT_S, "lease_s": 1.0}
        service = RunningService(folder / "data", settings)
        try:
            service.start()
            yield Deployment(server, proxy, service)
        finally:
            service.kill()
            proxy.close()


def points(stream: str, n: int) -> list[list[float]]:
    """The points of a batch. No two batches are alike."""
    rng = np.random.default_rng([n, *stream.encode()])
    return np.round(rng.normal(size=(int(rng.integers(1, 20)), 2)), 6).tolist()


class Client(UntilStopped):
    """Sends one batch after another, each until it is acknowledged, and asks questions in between."""

    def __init__(self, url: str, stream: str, first: int) -> None:
        super().__init__()
        self.url = f"{url}/streams/{stream}"
        self.stream, self.first = stream, first
        self.acknowledged: dict[int, int] = {}
        self.refused: list[dict[str, Any]] = []

    def turn(self) -> None:
        n = self.first + CLIENTS * len(self.acknowledged)
        self.acknowledged[n] = self.sent(n)
        reply = WEB.get(self.url + QUESTIONS[(n // CLIENTS) % len(QUESTIONS)])
        if reply.status_code >= 500:
            self.note(reply)
        time.sleep(0.02)  # or three clients take all the time of the machine, and prove no more

    def sent(self, n: int) -> int:
        """The log offset that the batch was acknowledged with."""
        headers, body = {"Idempotency-Key": f"batch-{n}"}, {"points": points(self.stream, n)}
        while True:
            reply = WEB.post(f"{self.url}/ingest", json=body, headers=headers)
            if reply.status_code == 202:
                return int(reply.json()["log_offset"])
            self.note(reply)
            time.sleep(0.02)

    def note(self, reply: httpx.Response) -> None:
        """Check a refusal, and keep it."""
        assert reply.status_code == 503, f"{reply.request.url}: {reply.status_code} {reply.text}"
        assert reply.headers["content-type"] == "application/problem+json", reply.headers
        problem = reply.json()
        assert problem["type"] in REFUSALS, problem
        assert problem["retryable"], problem
        assert problem["detail"], problem
        assert "Traceback" not in problem["detail"], problem
        self.refused.append(problem)


def lose_replies(deployment: Deployment) -> None:
    deployment.proxy.lose_share(0.3, seed=7)
    time.sleep(FAULT_S)


def reset_connections(deployment: Deployment) -> None:
    rng = random.Random(5)
    until = time.monotonic() + FAULT_S
    while time.monotonic() < until:
        deployment.proxy.reset()
        time.sleep(rng.uniform(0.0, 0.1))


def answer_late(deployment: Deployment) -> None:
    deployment.proxy.delay_s = 0.1
    time.sleep(FAULT_S)


def answer_too_late(deployment: Deployment) -> None:
    deployment.proxy.delay_s = 1.5 * TIMEOUT_S
    time.sleep(OUTAGE_S)


def answer_nothing(deployment: Deployment) -> None:
    deployment.proxy.silent = True
    time.sleep(OUTAGE_S)


def restart(deployment: Deployment) -> None:
    deployment.server.kill()
    time.sleep(0.3)
    deployment.server.start()


def stay_away(deployment: Deployment) -> None:
    deployment.server.kill()
    time.sleep(OUTAGE_S)
    deployment.server.start()


@contextlib.contextmanager
def configured(deployment: Deployment, name: str, value: str, back: str) -> Iterator[None]:
    """A parameter of the server has another value for a while."""
    with deployment.server.client() as client:
        client.config_set(name, value)
        yield
        client.config_set(name, back)


def fill_memory(deployment: Deployment) -> None:
    with configured(deployment, "maxmemory", "100kb", "0"):
        time.sleep(FAULT_S)


def become_replica(deployment: Deployment) -> None:
    with deployment.server.client() as client:
        client.replicaof("127.0.0.1", str(free_port()))
        time.sleep(FAULT_S)
        client.replicaof("NO", "ONE")


def switch_file_off(deployment: Deployment) -> None:
    with configured(deployment, "appendonly", "no", "yes"):
        time.sleep(FAULT_S)


def change_password(deployment: Deployment) -> None:
    with configured(deployment, "requirepass", "another", ""):
        deployment.proxy.reset()
        time.sleep(OUTAGE_S)


class Fault(NamedTuple):
    """A fault that is there while `strike` runs."""

    strike: Callable[[Deployment], None]
    says: str | None = None
    """Part of the reason in a refusal. None where nobody need be refused."""


FAULTS = {
    "lost-replies": Fault(lose_replies),
    "resets": Fault(reset_connections),
    "late-replies": Fault(answer_late),
    "too-late-replies": Fault(answer_too_late, "did not answer in time"),
    "half-open": Fault(answer_nothing, "did not answer in time"),
    "restart": Fault(restart),
    "gone": Fault(stay_away, "cannot be reached"),
    "full-memory": Fault(fill_memory, "is at its memory limit"),
    "replica": Fault(become_replica, "is a replica"),
    "file-off": Fault(switch_file_off, "appendonly is not yes"),
    "password": Fault(change_password, "refused the password"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_is_lost_or_doubled_and_the_service_goes_on_by_itself(deployment: Deployment, name: str) -> None:
    fault, service = FAULTS[name], deployment.service
    WEB.put(f"{service.url}/streams/{name}", json={"n_features": 2}).raise_for_status()
    clients = [Client(service.url, name, n) for n in range(CLIENTS)]
    for client in clients:
        client.start()
    try:
        eventually(lambda: all(len(client.acknowledged) > 1 for client in clients), "it works before the fault")
        fault.strike(deployment)
        deployment.proxy.heal()
        eventually(lambda: service.answers("/readyz"), lambda: f"not ready again: {service.tail()}")
        done = {client: len(client.acknowledged) for client in clients}
        eventually(lambda: all(len(client.acknowledged) > n + 1 for client, n in done.items()), service.tail)
    finally:
        deployment.proxy.heal()
        for client in clients:
            client.end()
    refused = [problem for client in clients for problem in client.refused]
    acknowledged = {n: offset for client in clients for n, offset in client.acknowledged.items()}
    assert fault.says is None or any(fault.says in problem["detail"] for problem in refused), refused
    end = max(acknowledged.values())
    view = WEB.get(f"{service.url}/streams/{name}/components?min_offset={end}&timeout=60")
    assert (view.status_code, view.json().get("points_seen")) == (200, end), f"{view.text} {service.tail()}"
    check_log(deployment.server, name, acknowledged)
    assert [line for line in service.log.read_text(errors="replace").splitlines() if "Traceback" in line] == []


def check_log(server: RedisServer, name: str, acknowledged: dict[int, int]) -> None:
    """Every batch is in the log once, at the offset that it was acknowledged with."""
    store = RedisStore(server.url)
    try:
        record = store.get_stream(name)
        after = store.tail(name, record.incarnation).first_seq - 1
        assert after == 0, "nothing is trimmed"
        entries = []
        while found := store.read(name, record.incarnation, after, max_bytes=1 << 26):
            entries += [entry for entry in found if entry.kind is EntryKind.BATCH]
            after = found[-1].seq
    finally:
        store.close()
    held: dict[str, list[int]] = {}
    for entry in entries:
        held.setdefault(repr(np.asarray(from_log(entry.payload)).tolist()), []).append(entry.log_offset)
    assert held == {repr(points(name, n)): [offset] for n, offset in acknowledged.items()}
