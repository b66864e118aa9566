"""Machines that are cut off from Redis while they learn, each in a network namespace of its own: nothing is lost or
doubled, the stream does not fork, and who comes back follows.

Packets vanish without a word, in one way or in both. So commands that were on their way arrive when the cut is over.
"""

import ast
import contextlib
import io
import json
import multiprocessing
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from harness.library_replay import states
from harness.machines import Cut, Machine, MachineService, Network
from harness.piece_service import PieceService
from harness.redis_server import RedisServer
from harness.short_form import longer
from harness.until_stopped import UntilStopped
from harness.waiting import eventually
from harness.web import WEB
from shoal.mixture import MixtureState, StreamSettings, from_bytes, past_to_bytes, snapshot_of, to_bytes, view_to_bytes
from shoal.partitions import assimilate_inplace
from shoal.sequential import initial_state
from shoal_service.client import Client, ShoalClientError, StreamEvent
from shoal_service.store import Entry, EntryKind
from shoal_service.store.redis import RedisStore
from shoal_service.streams.shared.view_codec import head_from_bytes
from shoal_service.wire import fields_from_log, from_log

pytestmark = [pytest.mark.system, pytest.mark.redis]

SETTINGS = {"n_features": 2, "family": "gaussian", "warmup_points": 300, "window": 20_000}
COMMON = {"store": "redis", "redis_timeout_s": 1.0, "lease_s": 1.0, "checkpoint_interval_s": 0.5, "refine_nice": 0}
CLIENTS = 2
"""Clients of each service, on its own machine."""
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"')
"""A word of a command in what MONITOR prints. It is escaped as Python escapes bytes."""


class Deployment(NamedTuple):
    """Two services on machines of their own, and their Redis on a third one."""

    server: RedisServer
    home: Machine
    """The machine of the server."""
    services: tuple[MachineService, ...]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """A network without machines; a skip where this process may not make one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("network namespaces need Linux, and root")
    try:
        network = Network()
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")
    yield network
    network.close()


@pytest.fixture(scope="module")
def deployment(network: Network, redis_binary: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("cut-off")
    home = network.machine()
    server = RedisServer(redis_binary, folder, host=home.address, settings={"protected-mode": "no"})
    settings = {**COMMON, "redis_url": server.url}
    services = tuple(MachineService(network.machine(), folder / f"service-{n}", settings) for n in range(2))
    try:
        with home.entered():
            server.start()
        for service in services:
            service.launch()
        for service in services:
            eventually(lambda service=service: service.answers("/readyz"), service.tail)
        yield Deployment(server, home, services)
    finally:
        for service in services:
            service.kill()
        server.kill()


@pytest.fixture(scope="module")
def fresh() -> Iterator[ProcessPoolExecutor]:
    """A process that has seen nothing of the service."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def points(stream: str, client: str, n: int) -> list[list[float]]:
    """The points of a batch, of nine clusters. No two batches are alike."""
    rng = np.random.default_rng([n, *stream.encode(), *client.encode()])
    size = int(rng.integers(1, 40))
    centres = 5.0 * np.stack([rng.integers(3, size=size), rng.integers(3, size=size)], axis=1)
    return np.round(centres + rng.normal(size=(size, 2)), 6).tolist()


class Sender(UntilStopped):
    """A client on the machine of its service: it sends one batch after another, each until it is acknowledged."""

    def __init__(self, service: MachineService, stream: str, name: str) -> None:
        super().__init__()
        self.service, self.stream, self.client = service, stream, name
        self.acknowledged: dict[int, int] = {}
        """Log offset of each batch."""
        self.refused = 0

    def keys(self, n: int) -> list[str]:
        """The keys of the points of a batch."""
        return [f"{self.client}/{n}/{i}" for i in range(len(points(self.stream, self.client, n)))]

    def run(self) -> None:
        with self.service.machine.entered():
            super().run()

    def turn(self) -> None:
        n = len(self.acknowledged)
        self.acknowledged[n] = self._sent(n)
        time.sleep(0.02)  # or the clients take all the time of the machine, and prove no more

    def _sent(self, n: int) -> int:
        body = {"points": points(self.stream, self.client, n), "keys": self.keys(n)}
        headers = {"Idempotency-Key": f"{self.client}/{n}"}
        while True:
            reply = WEB.post(f"{self.service.url}/streams/{self.stream}/ingest", json=body, headers=headers)
            if reply.status_code == 202:
                return int(reply.json()["log_offset"])
            assert reply.status_code == 503, reply.text
            assert reply.json()["retryable"], reply.text
            self.refused += 1
            time.sleep(0.02)


class Published(NamedTuple):
    """A view that Redis had accepted from a learner."""

    epoch: int
    seq: int
    components: bytes
    lineage: bytes


class Watch:
    """All views of a stream that are published while it runs, by what scripts in Redis do once they allow it."""

    def __init__(self, deployment: Deployment, stream: str) -> None:
        self._name = f"{{{stream}/".encode()
        self.views: list[Published] = []
        self.failure: BaseException | None = None
        self._fields: dict[tuple[bytes, bytes], bytes] = {}
        with deployment.home.entered():
            self._socket = socket.create_connection((deployment.server.host, deployment.server.port))
        self._socket.sendall(b"MONITOR\r\n")
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    if b" lua] " in line:
                        self._read([ast.literal_eval(f"b{word}") for word in _WORD.findall(line.decode())])
        except BaseException as error:  # noqa: BLE001 - raised again by `end`
            self.failure = error

    def _read(self, command: list[bytes]) -> None:
        if command[0].upper() != b"HSET" or self._name not in command[1] or not command[1].endswith(b":view"):
            return
        view, fields = command[1], dict(zip(command[2::2], command[3::2], strict=True))
        self._fields |= {(view, name): value for name, value in fields.items()}
        if b"head" in fields:
            head = head_from_bytes(fields[b"head"])
            runs = dict(run.rsplit(":", 1) for run in fields[b"runs"].decode().split())
            whole = {
                blob: b"".join(self._fields[view, f"{blob}/{i}".encode()] for i in range(int(n)))
                for blob, n in runs.items()
            }
            self.views.append(Published(head.epoch, head.seq, whole[head.components], whole[head.lineage]))

    def end(self) -> list[Published]:
        """All of them, in their order. The server ends the connection, once it has sent all: to shut it down on this
        side while lines are on their way would be answered by a reset."""
        self._socket.sendall(b"QUIT\r\n")
        self._thread.join(30.0)
        assert not self._thread.is_alive(), "the server did not end the connection"
        self._socket.close()
        if self.failure is not None:
            raise self.failure
        return self.views


class Replayed(NamedTuple):
    """What the library makes of a log."""

    state: bytes
    views: dict[int, tuple[bytes, bytes]]
    """Components and lineage after each entry."""


def replay(entries: list[Entry], blobs: dict[str, bytes]) -> Replayed:
    """Replay a log from its beginning, without the service."""
    last = initial_state(StreamSettings.from_dict(SETTINGS))
    views = {0: shown(last)}
    for entry, last, _ in states(SETTINGS, entries, blobs.__getitem__):
        views[entry.seq] = shown(last)
    return Replayed(to_bytes(last), views)


def shown(state: MixtureState) -> tuple[bytes, bytes]:
    """What readers see of a state: components and lineage."""
    snapshot = snapshot_of(state)
    return view_to_bytes(snapshot), past_to_bytes(snapshot.lineage)


def log_of(deployment: Deployment, stream: str) -> tuple[list[Entry], dict[str, bytes]]:
    """Every entry, and the blobs that adoptions name."""
    with deployment.home.entered():
        store = RedisStore(deployment.server.url)
        try:
            inc = store.get_stream(stream).incarnation
            entries = store.read(stream, inc, 0, max_bytes=1 << 40)
            named = [json.loads(entry.payload)["blob"] for entry in entries if entry.kind is EntryKind.ADOPTION]
            return entries, {name: store.get_blob(stream, inc, name) for name in named}
        finally:
            store.close()


def leader(deployment: Deployment, stream: str) -> MachineService | None:
    """The service that leads a stream, by the lease; None while nobody does."""
    with deployment.home.entered(), deployment.server.client() as client:
        leases = [client.get(key) for key in client.scan_iter(f"*{{{stream}/*:lease")]
    pids = {int(lease.split(b":")[-2]) for lease in leases if lease is not None}
    return next((s for s in deployment.services if s.process is not None and s.process.pid in pids), None)


def ask(service: MachineService, path: str, **options: Any) -> httpx.Response:
    """A question to a service, on its own machine."""
    with service.machine.entered():
        return WEB.request(options.pop("method", "GET"), service.url + path, **options)


def follow(service: MachineService, stream: str, told: list[StreamEvent]) -> None:
    """Note the events of a stream, in a thread on the machine of the service."""

    def read() -> None:
        with Client(service.url, stream) as client, contextlib.suppress(ShoalClientError):
            for event in client.events("0"):
                told.append(event)

    service.machine.thread(read).start()


@pytest.mark.parametrize("how", [longer("cable"), "switch", longer("sending"), "receiving"])
def test_a_leader_that_is_cut_off_loses_doubles_and_forks_nothing_and_follows_when_it_is_back(
    deployment: Deployment, fresh: ProcessPoolExecutor, how: Cut
) -> None:
    watch = Watch(deployment, how)
    ask(deployment.services[0], f"/streams/{how}", method="PUT", json=SETTINGS).raise_for_status()
    told: dict[MachineService, list[StreamEvent]] = {service: [] for service in deployment.services}
    for service, events in told.items():
        follow(service, how, events)
    senders = [
        Sender(service, how, f"{service.data.name}-{n}") for service in deployment.services for n in range(CLIENTS)
    ]
    for sender in senders:
        sender.start()
    try:
        eventually(lambda: all(len(sender.acknowledged) > 4 for sender in senders), "it works before the cut")
        first = eventually(lambda: leader(deployment, how))
        (second,) = set(deployment.services) - {first}
        first.machine.cut_off(how, deployment.home)
        try:
            eventually(lambda: leader(deployment, how) is second, lambda: f"nobody took over: {second.tail()}")
            if how == "switch":
                deployment.home.forget_connections(first.machine)
            there = [sender for sender in senders if sender.service is second]
            done = max(offset for sender in there for offset in list(sender.acknowledged.values()))
            eventually(lambda: ask(second, f"/streams/{how}/components?min_offset={done}").is_success, second.tail)
            before = {sender: len(sender.acknowledged) for sender in there}
            eventually(lambda: all(len(s.acknowledged) > n + 2 for s, n in before.items()), "others can send")
            eventually(lambda: all(s.refused for s in senders if s.service is first), "its clients hear of it")
        finally:
            first.machine.heal(deployment.home)
        before = {sender: len(sender.acknowledged) for sender in senders}
        eventually(lambda: all(len(s.acknowledged) > n + 2 for s, n in before.items()), first.tail)
    finally:
        for sender in senders:
            sender.end()

    # Who was cut off follows, and answers what the other one answers.
    eventually(lambda: first.answers("/readyz"), first.tail)
    eventually(lambda: _stepped_down(first, how), lambda: f"it did not notice: {first.tail()}")
    eventually(lambda: _settled(second, how))
    end = max(offset for sender in senders for offset in sender.acknowledged.values())
    entries, replayed = eventually(
        lambda: _agreed(deployment, how, end, fresh), "no state is that of the log", limit_s=60.0
    )

    # What was acknowledged is in the log once, with its keys, where it was said to be.
    batches = [entry for entry in entries if entry.kind is EntryKind.BATCH]
    logged = sorted((entry.log_offset, *_content(entry)) for entry in batches)
    sent = {offset: (sender, n) for sender in senders for n, offset in sender.acknowledged.items()}
    assert logged == [
        (offset, points(how, sender.client, n), sender.keys(n)) for offset, (sender, n) in sorted(sent.items())
    ]
    newest = {sender.keys(n)[-1]: offset for sender in senders for n, offset in sender.acknowledged.items()}
    for service in deployment.services:
        found = ask(service, f"/streams/{how}/records/lookup", method="POST", json={"keys": list(newest)})
        assert {record["key"]: record["log_offset"] for record in found.json()["records"]} == newest

    # There was no fork: whoever published a view, it is that of the log.
    views = watch.end()
    assert len({view.epoch for view in views}) >= 2
    assert [view.epoch for view in views] == sorted(view.epoch for view in views)
    assert {view.seq for view in views if (view.components, view.lineage) != replayed.views[view.seq]} == set()

    # Every process tells of one lineage: each id is born once, and the events lead to the components of today.
    live = {int(id_) for id_ in from_bytes(replayed.state)[0].ids}
    for service, events in told.items():
        eventually(lambda events=events: _alive(list(events)) == live, lambda s=service: f"{_alive(told[s])} {live}")
        ids = [event.id for event in events]
        assert len(ids) == len(set(ids)), "an event was told twice"
    assert len({tuple(event.id for event in events) for events in told.values()}) == 1
    for service in deployment.services:
        assert "Traceback" not in service.log.read_text(errors="replace")


# -- pieces of rounds

PARTITIONED = {"n_features": 12, "family": "gaussian", "refinement": None, "window": 0, "partitions": 3}
ROUND = 16_384


class MachinePieceService(MachineService):
    """A service on a machine that offers pieces always, and can be made to stop in the middle of one."""

    program = PieceService.program

    def __init__(self, machine: Machine, data: Path, settings: dict[str, object]) -> None:
        super().__init__(machine, data, settings)
        self.hold = data.parent / "hold"
        self.environment["HOLD_PIECES"] = str(self.hold)


class Partitioned:
    """A stream whose rounds are learnt by two processes, and what was sent to it."""

    def __init__(self, deployment: Deployment, services: tuple[MachinePieceService, ...], name: str) -> None:
        self.deployment, self.services, self.name = deployment, services, name
        self.at = services[0]
        """Whom clients ask."""
        self.hold = services[0].hold
        self._rng = np.random.default_rng(3)
        self._means = 6.0 * self._rng.normal(size=(40, 12))
        self._rows: list[np.ndarray] = []
        ask(self.at, f"/streams/{name}", method="PUT", json=PARTITIONED).raise_for_status()
        self.send()

    def send(self, *, learnt: bool = True) -> None:
        """One more round of rows, until it is acknowledged, and learnt."""
        x = self._means[self._rng.integers(40, size=ROUND)] + self._rng.normal(size=(ROUND, 12))
        body = io.BytesIO()
        np.save(body, x)
        headers = {"content-type": "application/x-npy", "Idempotency-Key": f"batch-{len(self._rows)}"}
        path = f"/streams/{self.name}/ingest"
        eventually(
            lambda: ask(self.at, path, method="POST", content=body.getvalue(), headers=headers).status_code == 202,
            self.at.tail,
        )
        self._rows.append(x)
        if learnt:
            eventually(self._snapshot, self.at.tail)

    def send_until(self, happened: Callable[[], object]) -> None:
        """Send until something has happened. At which batch depends on the machine."""

        def sent() -> object:
            self.send()
            return happened()

        eventually(sent, "it never happened")

    def roles(self) -> tuple[MachinePieceService, MachinePieceService]:
        """Who leads the stream, and who helps."""
        first = eventually(self._leader)
        return first, next(service for service in self.services if service is not first)

    def _leader(self) -> MachinePieceService | None:
        found = leader(self.deployment._replace(services=self.services), self.name)
        return found if isinstance(found, MachinePieceService) else None

    def stop_in_a_piece(self) -> None:
        """Let the helper stop in the middle of a piece."""
        self.hold.touch()
        pid = self.hold.with_suffix(".pid")
        self.send_until(pid.exists)
        _, helper = self.roles()
        assert helper.process is not None
        assert eventually(pid.read_text) == str(helper.process.pid)
        pid.unlink()

    def assert_same_as_alone(self) -> None:
        """All that was acknowledged is there once, with the bits of one process."""
        alone = initial_state(StreamSettings.from_dict(PARTITIONED))
        for x in self._rows:
            alone, _ = assimilate_inplace(alone, x)
        state, _ = from_bytes(eventually(self._snapshot))
        assert state.points_seen == len(self._rows) * ROUND
        assert to_bytes(state) == to_bytes(alone)

    def _snapshot(self) -> bytes | None:
        path = f"/streams/{self.name}/snapshot?min_offset={len(self._rows) * ROUND}&timeout=5"
        found = ask(self.at, path)
        return found.content if found.is_success else None


@pytest.fixture(scope="module")
def piece_services(deployment: Deployment) -> Iterator[tuple[MachinePieceService, ...]]:
    """Two more, on the same machines, with streams of their own."""
    settings = {
        **COMMON,
        "redis_url": deployment.server.url,
        "redis_prefix": "pieces",
        "piece_threads": 1,
        "lease_s": 2.0,
    }
    folder = deployment.server.folder
    services = tuple(
        MachinePieceService(other.machine, folder / f"pieces-{n}", settings)
        for n, other in enumerate(deployment.services)
    )
    try:
        for service in services:
            service.launch()
        for service in services:
            eventually(lambda service=service: service.answers("/readyz"), service.tail)
        yield services
    finally:
        for service in services:
            service.kill()


def counted(service: MachineService, name: str) -> float:
    """A counter of pieces of one process."""
    text = ask(service, "/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith(f"shoal_pieces_{name}_total ")]
    return float(line.split()[1])


def test_a_helper_that_is_cut_off_in_the_middle_of_a_piece_costs_time_only_and_helps_again(
    deployment: Deployment, piece_services: tuple[MachinePieceService, ...]
) -> None:
    stream = Partitioned(deployment, piece_services, "helper")
    first, helper = stream.roles()
    stream.at = first
    stream.send_until(lambda: counted(helper, "computed_for_others") > 0)
    lost = counted(first, "lost")
    stream.stop_in_a_piece()
    helper.machine.cut_off("switch", deployment.home)
    try:
        stream.hold.unlink()
        eventually(lambda: counted(first, "lost") > lost)
        stream.send()
        deployment.home.forget_connections(helper.machine)
        stream.send()
    finally:
        helper.machine.heal(deployment.home)
    done = counted(first, "answered")
    stream.send_until(lambda: counted(first, "answered") > done)
    stream.assert_same_as_alone()


def test_a_leader_that_is_cut_off_while_another_computes_for_it_loses_and_repeats_nothing(
    deployment: Deployment, piece_services: tuple[MachinePieceService, ...]
) -> None:
    stream = Partitioned(deployment, piece_services, "leader")
    first, second = stream.roles()
    stream.send_until(lambda: counted(second, "computed_for_others") > 0)
    stream.stop_in_a_piece()
    stream.send(learnt=False)
    first.machine.cut_off("cable", deployment.home)
    try:
        stream.hold.unlink()
        stream.at = second
        eventually(lambda: stream.roles() == (second, first), lambda: f"nobody took over: {second.tail()}")
        stream.send()
        stream.assert_same_as_alone()
    finally:
        first.machine.heal(deployment.home)
    done = counted(first, "computed_for_others")
    stream.send_until(lambda: counted(first, "computed_for_others") > done)
    stream.assert_same_as_alone()


# -- what the tests share


def _agreed(
    deployment: Deployment, stream: str, end: int, fresh: ProcessPoolExecutor
) -> tuple[list[Entry], Replayed] | None:
    """The log and its replay, once every service shows the state of that."""
    entries, blobs = log_of(deployment, stream)
    replayed: Replayed = fresh.submit(replay, entries, blobs).result()
    for service in deployment.services:
        found = ask(service, f"/streams/{stream}/snapshot?min_offset={end}&timeout=60")
        if found.raise_for_status().content != replayed.state:
            return None
    return entries, replayed


def _content(entry: Entry) -> tuple[list[list[float]], list[str]]:
    fields = fields_from_log(entry.payload)
    assert fields is not None
    assert fields.keys is not None
    return np.asarray(from_log(entry.payload)).tolist(), [str(key, "ascii") for key in fields.keys if key]


def _stepped_down(service: MachineService, stream: str) -> bool:
    """Whether its learner of the stream has ended because another process leads."""
    lines = service.log.read_text(errors="replace").splitlines()
    return any(stream in line and ("stepping_down" in line or "learner_superseded" in line) for line in lines)


def _settled(service: MachineService, stream: str) -> bool:
    """Whether no refinement is under way, and at least one is done."""
    found = ask(service, f"/streams/{stream}/refinements").json()["refinements"]
    return bool(found) and not any(one["adopted"] is None for one in found)


def _alive(events: list[StreamEvent]) -> set[int]:
    """The components that events lead to. Each is born once."""
    alive: set[int] = set()
    for event in events:
        assert event.kind != "gap"
        assert set(event.parents) <= alive
        alive = (alive - set(event.parents)) | set(event.children)
    return alive
