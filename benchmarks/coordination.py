"""What coordination over Redis costs: messages, bytes and lag a second, by a closed form, by simulation, and measured.

    python benchmarks/coordination.py costs [--out FILE.csv]
    python benchmarks/coordination.py pieces [--out FILE.csv]
    python benchmarks/coordination.py check [--out FILE.csv]
    python benchmarks/coordination.py table [--seconds 5] [--out FILE.csv]
    python benchmarks/coordination.py shared [--seconds 1] [--out FILE.csv]

Costs: what one exchange, command, byte and sync costs a real redis-server and its client. They are read back from
results/coordination_costs.csv.

Pieces: bytes and CPU time of a piece of a round, and of its encoding, by family, features and components.

Check: real learner processes over a real Redis, idle and with batches. Client commands are counted with MONITOR, bytes
by INFO, in two windows one after the other. Beside them stand the figures of the simulation.

Table: learners and streams from 1 to 100 and from 100 to 10,000, by the closed form and by the simulation.

Shared: streams with eight partitions and a log that waits, whose rounds all learners share.

The simulation is one of events: learners with one core each, one server that works in turns as Redis does, and its
link. What is sent are the commands of the service, built by its own functions; `loops_of` and `batch_of` say when. The
closed form sums the same exchanges over their periods, as if nothing ever waited.
"""

import argparse
import csv
import heapq
import math
import random
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.mixture import StreamSettings
from shoal.partitions import (
    PieceResult,
    PieceTask,
    assimilate_inplace,
    learnt_piece,
    result_from_bytes,
    result_to_bytes,
    task_from_bytes,
    task_to_buffers,
)
from shoal.runtime.blas import one_blas_thread
from shoal.sequential import initial_state
from shoal_service.store import EntryKind, NewEntry
from shoal_service.store.redis import RedisStore
from shoal_service.store.redis.connection import Command, Connections
from shoal_service.store.redis.keys import registry_keys, stream_keys
from shoal_service.store.redis.scripts import script, scripts
from shoal_service.store.redis.server_checks import ASK_DURABILITY
from shoal_service.wire import Points, to_log

RESULTS = Path(__file__).parent / "results"
COSTS = RESULTS / "coordination_costs.csv"
Row = dict[str, Any]
Then = Callable[[], None]

# -- what is sent


class Costs(NamedTuple):
    """Costs of the server and of its clients, in microseconds."""

    exchange: float
    """Of the server for an exchange, besides its commands."""
    command: float
    """Of a command that reads."""
    script: float
    """Of a script."""
    subscriber: float
    """Of a message to one subscriber."""
    kib_in: float
    kib_out: float
    sync: float
    """Of a sync to disk; writes of the same turn of the server share one."""
    client_exchange: float
    """CPU time of the client for an exchange after a pause."""
    client_command: float
    """CPU time of the client for each further command of it."""

    @staticmethod
    def read(file: Path = COSTS) -> "Costs":
        with file.open() as rows:
            return Costs(**{row["cost"]: float(row["us"]) for row in csv.DictReader(rows)})


@dataclass(frozen=True)
class Exchange:
    """Commands that a client sends together, with their replies."""

    commands: int = 0
    scripts: int = 0
    """Those of the commands that are scripts."""
    bytes_in: int = 0
    """To the server."""
    bytes_out: int = 0
    durable: bool = False
    """Whether the reply waits for a sync."""

    def __add__(self, other: "Exchange") -> "Exchange":
        return Exchange(
            self.commands + other.commands,
            self.scripts + other.scripts,
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
            self.durable or other.durable,
        )

    def __mul__(self, n: int) -> "Exchange":
        return Exchange(n * self.commands, n * self.scripts, n * self.bytes_in, n * self.bytes_out, self.durable)

    def server_us(self, costs: Costs) -> float:
        """Without the sync."""
        simple = self.commands - self.scripts
        bytes_us = (self.bytes_in * costs.kib_in + self.bytes_out * costs.kib_out) / 1024
        return costs.exchange + simple * costs.command + self.scripts * costs.script + bytes_us

    def client_us(self, costs: Costs) -> float:
        return costs.client_exchange + (self.commands - 1) * costs.client_command


def resp(reply: Any) -> int:
    """Bytes of a reply."""
    if isinstance(reply, list):
        return len(f"*{len(reply)}\r\n") + sum(map(resp, reply))
    if isinstance(reply, int):
        return len(f":{reply}\r\n")
    return 5 if reply is None else len(f"${len(reply)}\r\n") + len(reply) + 2


def one(command: Command, reply: Any, *, durable: bool = False) -> Exchange:
    """One command and its reply."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return Exchange(1, command[0] == "EVALSHA", resp(words), resp(reply), durable)


class Fleet(NamedTuple):
    """What is deployed, and how busy it is."""

    learners: int
    streams: int
    batches_s: float = 0.0
    """Batches that come for all streams together, a second."""
    rows: int = 100
    """Of a batch."""
    features: int = 4
    lease_s: float = 5.0
    state_bytes: int = 16_000
    """Of a checkpoint: `to_bytes` of three components in four features."""
    view_bytes: int = 2_000
    """Of the blob of a view that is new with each."""
    row_us: float = 2.5
    """CPU time of the learner for a row."""
    batch_us: float = 3_000.0
    """The same for a batch, besides its rows and exchanges."""
    pieces: "Pieces | None" = None


class Pieces(NamedTuple):
    """Streams with partitions and a log that waits, whose rounds learners share as `streams/shared/pieces.py` does."""

    streams: int
    partitions: int
    task_bytes: int
    result_bytes: int
    piece_us: float
    """CPU time of a piece, without its bytes."""
    at_home_us: float
    """The same for the bytes of a piece where it is needed."""
    away_us: float
    """For those where it is computed."""
    round_us: float
    """CPU time of a round besides its pieces."""


class Loop(NamedTuple):
    """What a learner sends again and again, one exchange after another."""

    name: str
    each: str
    """Who does it: every "learner", or the learner of every "stream"."""
    pause_s: float
    """From its end to the next beginning."""
    exchanges: Sequence[tuple[Exchange, int]]
    """With how many of the same kind come one after another."""


_KEYS = stream_keys("shoal", "s00000", str(uuid.UUID(int=0)))
_REGISTRY = registry_keys("shoal")
_OWNER = "learner-000:12345:0123abcd"
_COUNTERS = ("seq", "offset", "bytes", "floor_seq", "floor_offset", "floor_bytes", "applied", "epoch")
_NUMBERS = [b"1234", b"123400", b"4000000", b"1200", b"120000", b"3900000", b"4000000", b"1"]
_CONFIG = one(ASK_DURABILITY, [b"appendonly", b"yes", b"appendfsync", b"always"])
_LOOK = one(("HMGET", _KEYS.meta, *_COUNTERS), _NUMBERS)
_ROW = [
    b"1234-0",
    [b"o", b"123400", b"b", b"4000000", b"n", b"100", b"s", b"3300", b"k", b"batch", b"c", b"1234567890"],
]
_ROW[1] += [b"h", b"01234567"]  # type: ignore[operator]
_READ_LOG = one(("XRANGE", _KEYS.log, "1234-0", "+", "COUNT", 1000), [_ROW])
_LOOKS_S, _READS_S = 1.2, 0.1
"""Looks for entries of a stream without any, and reads of its log, a second: `Store.wait_for_entries` looks at its
beginning, after each second and at its end, for five seconds; every other time the log is read. Batches that come at
random, `rate` a second, leave rate / (exp(rate) - 1) of these."""
CHECKPOINT_S = 30.0


def loops_of(fleet: Fleet) -> list[Loop]:
    """What learners send whether there are points or not."""
    own = -(-fleet.streams // fleet.learners)
    settings = StreamSettings(n_features=fleet.features, refinement=None, window=0).to_json().encode()
    renew = script("renew_lease").command((_KEYS.meta, _KEYS.lease, _KEYS.view), _OWNER, 1, 5000)
    announce = script("announce").command((_REGISTRY.learners,), _OWNER, 3750)
    named = one(("HGETALL", _REGISTRY.streams), []) + Exchange(
        bytes_out=fleet.streams * (resp(b"s00000") + resp(bytes(47) + settings))
    )
    settings_of = one(("HMGET", _KEYS.meta, "settings", "settings_hash"), [settings, b"01234567"])
    listing = [(named, 1), (settings_of * fleet.streams, 1)]
    is_led = one(("EXISTS", _KEYS.lease), 1)
    jobs = one(("HGETALL", _KEYS.jobs), [])
    places = (_KEYS.meta, _KEYS.log, _KEYS.data, _KEYS.checkpoints, _KEYS.blobs, _KEYS.needs, _KEYS.named)
    state = (1, 1234, 123400, fleet.state_bytes, "0" * 64, "0" * 32, 1, bytes(fleet.state_bytes), "-", "-")
    saved = one(script("save_checkpoint").command(places, *state), [b"ok"], durable=True) + _CONFIG
    rate = fleet.batches_s / fleet.streams  # of a stream
    looks = rate / math.expm1(rate) if rate else 1.0
    checkpoints = [Loop("checkpoints", "stream", max(CHECKPOINT_S, 1 / rate), [(saved, 1)])] if rate else []
    documents = one(("HSCAN", _KEYS.documents, 0, "MATCH", "webhooks/*", "COUNT", 100), [b"0", []])
    access = one(("HGET", _REGISTRY.access, ""), None)
    lease_round = [
        (one(renew, [b"ok", b"e1n7:1 e1n2:1 e1n8:1"]) * own, 1),
        (one(announce, [_OWNER.encode()] * fleet.learners), 1),
        *listing,
        (is_led * (fleet.streams - own), 1 if fleet.streams > own else 0),
    ]
    return [
        Loop("leases", "learner", fleet.lease_s / 4, lease_round),
        Loop("open refinements", "learner", fleet.lease_s, [*listing, (_LOOK, own), (jobs, own)]),
        Loop("access keys", "learner", 0.5, [(access, 1)]),
        Loop("looks for entries", "stream", 1 / _LOOKS_S / looks, [(_LOOK, 1)]),
        Loop("reads of an empty log", "stream", 1 / _READS_S / looks, [(_LOOK + _READ_LOG, 1)]),
        Loop("webhooks", "stream", 30.0, [(_LOOK, 1), (documents, 1)]),
        *checkpoints,
    ]


class Batch(NamedTuple):
    """Exchanges of a batch that comes alone."""

    append: Exchange
    read: list[Exchange]
    """By its learner, before it is learnt."""
    shown: list[Exchange]
    """From then until readers may see it."""
    mark: Exchange
    """Beside that: the learner tells how far the log is applied."""
    after: list[Exchange]
    """Looks for more."""
    heard: int
    """Bytes of the message to each learner."""

    @property
    def of_learner(self) -> list[Exchange]:
        return [*self.read, *self.shown, self.mark, *self.after]


def batch_of(fleet: Fleet) -> Batch:
    """What is sent for a batch."""
    payload = to_log(Points(np.zeros((fleet.rows, fleet.features))))
    keys = (_KEYS.meta, _KEYS.log, _KEYS.data, _KEYS.answers, _KEYS.order, _KEYS.needs, _KEYS.named, _KEYS.documents)
    few = (
        "batch",
        fleet.rows,
        len(payload),
        1 << 28,
        _REGISTRY.news,
        _KEYS.tag,
        b"",
        b"",
        0,
        b"",
        b"",
        "1764135000.123",
    )
    rest = (1_000_000, 86_400.0, 0, 0, b"", 0, b"", 1234567890, 1233, 0, b"", b"", b"", 0)
    append = one(script("append").command(keys, *few, *rest, payload), [b"ok", 1234, 123400], durable=True)
    read_payload = one(("XRANGE", _KEYS.data, "1234-0", "1234"), [[b"1234-0", [b"d", payload]]])
    mark = one(script("mark_applied").command((_KEYS.meta,), 1, 4_000_000), [b"ok"], durable=True)
    of_view = _KEYS.meta, _KEYS.view
    runs = "e1n7:1 e1n2:1 e1n8:1"
    piece = one(script("put_view_piece").command(of_view, 1, "e1n7/0", bytes(fleet.view_bytes)), [b"ok"])
    view = one(script("publish_view").command(of_view, 1, bytes(330), runs, _REGISTRY.shown, _KEYS.tag), [b"ok"])
    return Batch(
        append + _CONFIG,
        [_LOOK + _READ_LOG, read_payload],
        [_LOOK + _READ_LOG, piece + view],
        mark + _CONFIG,
        [_LOOK + _READ_LOG, _LOOK],
        resp([b"message", _REGISTRY.news.encode(), _KEYS.tag.encode()]),
    )


def message(n_bytes: int) -> tuple[Exchange, int]:
    """A message of so many bytes to a channel, and its bytes for each process that hears it."""
    channel, text = b"shoal:{registry}:pieces:" + bytes(32), bytes(n_bytes)
    return one(("PUBLISH", channel, text), 1), resp([b"message", channel, text])


HEAD = 75
"""Bytes of the first line of a message of a piece."""


# -- the closed form


def of_a_piece(learners: int, idle: int, task_bytes: int, result_bytes: int) -> tuple[int, int, int]:
    """Commands, messages and bytes of a piece that another learner computes, where `idle` others claim it at once:
    an offer that all hear, their claims, `gone` to all but the first, the task and the answer."""
    short, heard = message(HEAD)
    long = [message(HEAD + n_bytes) for n_bytes in (task_bytes, result_bytes)]
    commands = 1 + idle + (idle - 1) + 2
    n_bytes = (2 * idle) * (short.bytes_in + short.bytes_out) + (learners + 2 * idle - 1) * heard
    n_bytes += sum(each.bytes_in + each.bytes_out + out for each, out in long)
    return commands, learners + 2 * idle + 1, n_bytes


class Load(NamedTuple):
    """Sums over all processes, a second."""

    exchanges: float
    commands: float
    """Each has one reply."""
    messages: float
    """To subscribers."""
    bytes: float
    """In and out, with messages to subscribers."""
    server: float
    """Share of the server's time, without syncs."""
    learner: float
    """Share of the time of one learner, the average one."""


def load_of(fleet: Fleet, costs: Costs) -> Load:
    """The load, as if nothing waited for anything else."""
    sent: list[tuple[float, Exchange]] = []
    learner_us = 0.0
    for loop in loops_of(fleet):
        n = fleet.learners if loop.each == "learner" else fleet.streams
        for exchange, times in loop.exchanges:
            sent.append((n * times / loop.pause_s, exchange))
            learner_us += sent[-1][0] * exchange.client_us(costs)
    batch = batch_of(fleet)
    own = batch.of_learner
    sent += [(fleet.batches_s, exchange) for exchange in (batch.append, *own)]
    messages = fleet.batches_s * fleet.learners
    learner_us += fleet.batches_s * sum(exchange.client_us(costs) for exchange in own)
    learner_us += fleet.batches_s * (fleet.batch_us + fleet.rows * fleet.row_us)
    learner_us += messages * costs.client_command
    server_us = sum(rate * exchange.server_us(costs) for rate, exchange in sent) + messages * costs.subscriber
    return Load(
        sum(rate for rate, _ in sent),
        sum(rate * exchange.commands for rate, exchange in sent),
        messages,
        sum(rate * (exchange.bytes_in + exchange.bytes_out) for rate, exchange in sent) + messages * batch.heard,
        server_us / 1e6,
        learner_us / 1e6 / fleet.learners,
    )


# -- the simulation


class Clock:
    """Events in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Then]] = []
        self._number = count()

    def after(self, delay_s: float, then: Then) -> None:
        heapq.heappush(self._events, (self.now + delay_s, next(self._number), then))

    def run(self, until_s: float) -> None:
        while self._events and self._events[0][0] <= until_s:
            self.now, _, then = heapq.heappop(self._events)
            then()
        self.now = until_s


class Queue:
    """Serves one after another: a core, or a link."""

    def __init__(self, clock: Clock) -> None:
        self.busy_s = self.waited_s = 0.0
        self.n = 0
        self._clock = clock
        self._free_at = 0.0

    def interrupt(self, service_s: float, then: Then) -> None:
        """Serve at once; what is being served ends so much later."""
        self.busy_s += service_s
        self._free_at = max(self._clock.now, self._free_at) + service_s
        self._clock.after(service_s, then)

    def use(self, service_s: float, then: Then | None = None) -> None:
        begins = max(self._clock.now, self._free_at)
        self.busy_s += service_s
        self.waited_s += begins - self._clock.now
        self.n += 1
        self._free_at = begins + service_s
        if then is not None:
            self._clock.after(self._free_at - self._clock.now, then)


SLICE = 128
"""Commands of a client that the server reads in one turn: 16 KiB of short ones."""


class Server:
    """Redis: in each turn it serves what has come, one slice a client, syncs if anything was written, and replies."""

    def __init__(self, clock: Clock, sync_s: float) -> None:
        self.busy_s = self.synced_s = 0.0
        self._clock = clock
        self._sync_s = sync_s
        self._waiting: list[tuple[float, bool, Then]] = []
        self._working = False

    def serve(self, service_s: float, slices: int, durable: bool, then: Then) -> None:
        """Serve commands that take `service_s` together, in so many turns."""
        part_s = service_s / slices
        after = then if slices == 1 else lambda: self.serve(service_s - part_s, slices - 1, durable, then)
        self._waiting.append((part_s, durable, after))
        if not self._working:
            self._turn()

    def _turn(self) -> None:
        self._working = True
        served, self._waiting = self._waiting, []
        service_s = sum(part_s for part_s, _, _ in served)
        sync_s = self._sync_s if any(durable for _, durable, _ in served) else 0.0
        self.busy_s += service_s
        self.synced_s += sync_s
        self._clock.after(service_s + sync_s, lambda: self._reply([then for _, _, then in served]))

    def _reply(self, replies: list[Then]) -> None:
        for then in replies:
            then()
        self._working = False
        if self._waiting:
            self._turn()


class Network(NamedTuple):
    """Between every process and the server."""

    latency_s: float = 100e-6
    bytes_s: float = 1.25e9
    """Of the server's link, each way: 10 Gbit/s."""


NETWORK = Network()


@dataclass
class _Offer:
    """A piece that was offered."""

    leader: int
    until: float
    """When others forget that they heard of it."""
    state: str = "offered"


@dataclass
class _Round:
    """A round of one stream."""

    stream: int
    own: int
    """Pieces that its learner computes in any case, and has not begun."""
    offers: list[_Offer] = field(default_factory=list)


CLAIM_S = 1.0
"""Life of an offer."""


class Simulation:
    """A fleet at work."""

    def __init__(self, fleet: Fleet, costs: Costs, network: Network = NETWORK, seed: int = 0) -> None:
        self.clock = Clock()
        self.server = Server(self.clock, costs.sync / 1e6)
        self.cores = [Queue(self.clock) for _ in range(fleet.learners)]
        self.lags_s: list[float] = []
        """From the append of a batch to the view that has it."""
        self.round_s: list[float] = []
        """Durations of rounds of leases."""
        self.unlearnt = 0
        self.exchanges = self.commands = self.messages = self.bytes = 0
        self._fleet, self._costs, self._network = fleet, costs, network
        self._random = random.Random(seed)
        self._in, self._out = Queue(self.clock), Queue(self.clock)
        self._batch = batch_of(fleet)
        self._waiting: dict[int, list[float]] = {}  # times of appends by stream that has a learner at work
        for loop in loops_of(fleet):
            for n in range(fleet.learners if loop.each == "learner" else fleet.streams):
                self.clock.after(self._random.random() * loop.pause_s, self._loop(loop, n % fleet.learners))
        if fleet.batches_s:
            self.clock.after(self._random.expovariate(fleet.batches_s), self._append)
        self.rounds = self.offered = self.answered = 0
        self._seen: list[deque[_Offer]] = [deque() for _ in self.cores]
        self._hands_full = [0] * fleet.learners  # claims, pieces of others, and rounds of own streams
        if fleet.pieces is not None:
            for stream in range(fleet.pieces.streams):
                self.clock.after(self._random.random() * 0.01, partial(self._begin_round, stream))

    def ask(self, core: Queue | None, exchange: Exchange, then: Then, *, messages: int = 0, times: int = 1) -> None:
        """Send commands, and go on with their replies. `times`: as often, one after another, as one event."""
        costs, network = self._costs, self._network
        self.exchanges += times
        self.commands += times * exchange.commands
        self.bytes += times * (exchange.bytes_in + exchange.bytes_out)
        slices = -(-times * exchange.commands // SLICE)
        server_s = (times * exchange.server_us(costs) + messages * costs.subscriber) / 1e6

        def receive() -> None:
            service_s = times * exchange.bytes_out / network.bytes_s
            self._out.use(service_s, lambda: self.clock.after(network.latency_s, then))

        def arrive() -> None:
            self.server.serve(server_s, slices, exchange.durable, receive)

        def send() -> None:
            travel_s = (2 * times - 1) * network.latency_s
            self._in.use(times * exchange.bytes_in / network.bytes_s, lambda: self.clock.after(travel_s, arrive))

        if core is None:
            send()
        else:
            core.use(times * exchange.client_us(costs) / 1e6, send)

    def chain(self, core: Queue, exchanges: Sequence[tuple[Exchange, int]], then: Then) -> None:
        """One exchange after another."""
        if not exchanges:
            then()
            return
        (exchange, times), rest = exchanges[0], exchanges[1:]
        self.ask(core, exchange, lambda: self.chain(core, rest, then), times=times)

    def _loop(self, loop: Loop, learner: int) -> Then:
        core = self.cores[learner]
        exchanges = [
            (exchange, min(SLICE, times - done))
            for exchange, times in loop.exchanges
            for done in range(0, times, SLICE)
        ]

        def begin() -> None:
            began = self.clock.now

            def end() -> None:
                if loop.name == "leases":
                    self.round_s.append(self.clock.now - began)
                self.clock.after(loop.pause_s, begin)

            self.chain(core, exchanges, end)

        return begin

    def _append(self) -> None:
        fleet = self._fleet
        self.clock.after(self._random.expovariate(fleet.batches_s), self._append)
        stream, came = self._random.randrange(fleet.streams), self.clock.now
        self.unlearnt += 1
        self.messages += fleet.learners
        self.bytes += fleet.learners * self._batch.heard
        self.ask(None, self._batch.append, lambda: self._hear(stream, came), messages=fleet.learners)

    def _hear(self, stream: int, came: float) -> None:
        for core in self.cores:
            core.use(self._costs.client_command / 1e6)
        if stream in self._waiting:
            self._waiting[stream].append(came)
        else:
            self._waiting[stream] = [came]
            self._learn(stream)

    def _learn(self, stream: int) -> None:
        fleet, core, batch = self._fleet, self.cores[stream % self._fleet.learners], self._batch
        came, self._waiting[stream] = self._waiting[stream], []

        def learnt() -> None:
            self.ask(core, batch.mark, lambda: None)
            self.chain(core, _once(batch.shown), shown)

        def shown() -> None:
            self.lags_s += [self.clock.now - at for at in came]
            self.unlearnt -= len(came)
            self.chain(core, _once(batch.after), looked)

        def looked() -> None:
            if self._waiting[stream]:
                self._learn(stream)
            else:
                del self._waiting[stream]

        service_s = len(came) * (fleet.batch_us + fleet.rows * fleet.row_us) / 1e6
        self.chain(core, _once(batch.read), lambda: core.use(service_s, learnt))

    # -- pieces of rounds

    def tell(self, sender: int, n_bytes: int, hearers: Sequence[int], then: Callable[[int], None]) -> None:
        """Send a message, and have each learner that hears it act."""
        exchange, heard = message(n_bytes)
        self.messages += len(hearers)
        self.bytes += len(hearers) * heard
        self._out.use(len(hearers) * heard / self._network.bytes_s)
        handle_s = self._costs.client_command / 1e6

        def hear() -> None:
            for learner in hearers:
                self.cores[learner].interrupt(handle_s, partial(then, learner))

        send_s = exchange.client_us(self._costs) / 1e6
        self.cores[sender].interrupt(send_s, lambda: self.ask(None, exchange, hear, messages=len(hearers)))

    def _begin_round(self, stream: int) -> None:
        pieces, leader = self._fleet.pieces, stream % self._fleet.learners
        assert pieces is not None
        others = self._fleet.learners - 1
        n = min(pieces.partitions - 1, -(-pieces.partitions * others // (others + 1)))
        this = _Round(stream, pieces.partitions - n)
        self._hands_full[leader] += 1
        self._offer(this, n)

    def _offer(self, this: _Round, n: int) -> None:
        """Offer `n` pieces, one after another; then compute."""
        leader = this.stream % self._fleet.learners
        if n == 0:
            self._compute(this)
            return
        offer = _Offer(leader, self.clock.now + CLAIM_S)
        this.offers.append(offer)
        self.offered += 1

        def heard(learner: int) -> None:
            if learner == leader:
                self._offer(this, n - 1)  # it hears its own offer when that has been sent
            else:
                self._seen[learner].append(offer)
                self._claim(learner)

        self.tell(leader, HEAD, range(self._fleet.learners), heard)

    def _claim(self, learner: int) -> None:
        """Claim the oldest offer, if the learner has nothing to do."""
        seen = self._seen[learner]
        while seen and seen[0].until < self.clock.now:
            seen.popleft()
        if not seen or self._hands_full[learner]:
            return
        offer = seen.popleft()
        self._hands_full[learner] += 1
        self.tell(learner, HEAD, [offer.leader], lambda leader: self._claimed(offer, leader, learner))

    def _claimed(self, offer: _Offer, leader: int, learner: int) -> None:
        pieces = self._fleet.pieces
        assert pieces is not None
        if offer.state != "offered":
            self.tell(leader, HEAD, [learner], self._let_go)
            return
        offer.state = "claimed"
        away_s = (pieces.piece_us + pieces.away_us) / 1e6

        def answered(home: int) -> None:
            offer.state = "answered"
            self.answered += 1

        def computed() -> None:
            self.tell(learner, HEAD + pieces.result_bytes, [leader], answered)
            self._let_go(learner)

        compute = lambda helper: self.cores[helper].use(away_s, computed)  # noqa: E731
        send = lambda: self.tell(leader, HEAD + pieces.task_bytes, [learner], compute)  # noqa: E731
        self.cores[leader].interrupt(pieces.at_home_us / 1e6, send)

    def _let_go(self, learner: int) -> None:
        self._hands_full[learner] -= 1
        self._claim(learner)

    def _compute(self, this: _Round) -> None:
        """Compute the next piece of a round at home, or wait for those of others, or end it."""
        pieces, leader = self._fleet.pieces, this.stream % self._fleet.learners
        assert pieces is not None
        free = [offer for offer in this.offers if offer.state == "offered"]
        if this.own or free:
            if this.own:
                this.own -= 1
            else:
                free[-1].state = "taken back"
            self.cores[leader].use(pieces.piece_us / 1e6, partial(self._compute, this))
        elif any(offer.state == "claimed" for offer in this.offers):
            self.clock.after(WAIT_S, partial(self._compute, this))
        else:
            self.cores[leader].use(pieces.round_us / 1e6, partial(self._end_round, this))

    def _end_round(self, this: _Round) -> None:
        self.rounds += 1
        self._let_go(this.stream % self._fleet.learners)
        self._begin_round(this.stream)


WAIT_S = 50e-6
"""How often the simulation looks whether a result has come."""


def _once(exchanges: Sequence[Exchange]) -> list[tuple[Exchange, int]]:
    return [(exchange, 1) for exchange in exchanges]


def simulated(fleet: Fleet, costs: Costs, seconds: float, network: Network = NETWORK) -> Row:
    """Figures of a second, after as much time to settle."""
    simulation = Simulation(fleet, costs, network)

    def sums() -> list[float]:
        cores_s = sum(core.busy_s for core in simulation.cores) / fleet.learners
        counted = (simulation.exchanges, simulation.commands, simulation.messages, simulation.bytes)
        return [*counted, simulation.server.busy_s, cores_s, simulation.rounds, simulation.offered, simulation.answered]

    simulation.clock.run(seconds)
    before = sums()
    simulation.lags_s, simulation.round_s = [], []
    simulation.clock.run(2 * seconds)
    names = (
        "exchanges_s",
        "commands_s",
        "messages_s",
        "bytes_s",
        "server",
        "learner",
        "rounds_s",
        "offered_s",
        "answered_s",
    )
    found = {name: (b - a) / seconds for name, a, b in zip(names, before, sums(), strict=True)}
    lags = sorted(simulation.lags_s)
    return found | {
        "lease_round_s": statistics.median(simulation.round_s) if simulation.round_s else float("inf"),
        "lag_ms": 1e3 * lags[len(lags) // 2] if lags else float("nan"),
        "lag_95_ms": 1e3 * lags[int(0.95 * len(lags))] if lags else float("nan"),
        "unlearnt": simulation.unlearnt,
    }


# -- costs of a real server and its client


@contextmanager
def real_store(**settings: str) -> Iterator[tuple[Any, RedisStore]]:
    from harness.redis_server import running_redis

    with tempfile.TemporaryDirectory() as folder, running_redis("redis-server", Path(folder), **settings) as server:
        store = RedisStore(server.url)
        try:
            yield server, store
        finally:
            store.close()


def costs() -> list[Row]:
    """CPU time of the server and of this process, except that a sync is time by the clock. Medians of five turns."""
    found: dict[str, list[float]] = {name: [] for name in Costs._fields}
    with real_store() as (server, store):
        settings, incarnation = StreamSettings(n_features=4).to_json().encode(), str(uuid.uuid4())
        store.create_stream("s00000", incarnation, settings, max_streams=1)
        store.sharing.acquire_lease("s00000", incarnation, _OWNER, 100.0)
        keys, ask, client = (
            stream_keys("shoal", "s00000", incarnation),
            Connections(server.url, 10.0).ask,
            server.client(),
        )
        look: Command = ("HMGET", keys.meta, *_COUNTERS)
        renew = script("renew_lease").command((keys.meta, keys.lease, keys.view), _OWNER, 1, 100_000)

        def spent(commands: Sequence[Command], times: int) -> tuple[float, float, float]:
            """Microseconds of an exchange: the server's, this process's, by the clock."""
            ask(*commands)
            before, own, clock = server_cpu(client), time.process_time(), time.perf_counter()
            for _ in range(times):
                ask(*commands)
            clock, own = time.perf_counter() - clock, time.process_time() - own
            return tuple(1e6 * s / times for s in (server_cpu(client) - before, own, clock))  # type: ignore[return-value]

        for _ in range(5):
            alone, many, renewals = spent([look], 2_000), spent([look] * 200, 20), spent([renew] * 200, 20)
            own = time.process_time()
            for _ in range(500):
                time.sleep(0.002)  # as a thread that waits, and finds the processor's caches cold
                ask(look)
            found["client_exchange"].append((time.process_time() - own) * 1e6 / 500)
            command = (many[0] - alone[0]) / 199
            found["command"].append(command)
            found["exchange"].append(alone[0] - command)
            found["script"].append(renewals[0] / 200)
            found["client_command"].append((many[1] - alone[1]) / 199)
            megabyte = bytes(1 << 20)
            written = spent([("SET", "of-a-megabyte", megabyte)], 20)
            found["kib_in"].append((written[0] - alone[0]) / 1024)
            found["kib_out"].append((spent([("GET", "of-a-megabyte")], 50)[0] - alone[0]) / 1024)
            found["sync"].append(spent([("SET", "small", b"1")], 50)[2] - alone[2])
            quiet = spent([("PUBLISH", "news", keys.tag)], 500)[0]
            listeners = [client.pubsub() for _ in range(20)]
            for listener in listeners:
                listener.subscribe("news")
                listener.get_message(timeout=5.0)
            found["subscriber"].append((spent([("PUBLISH", "news", keys.tag)], 500)[0] - quiet) / 20)
            for listener in listeners:
                listener.close()
    return [{"cost": name, "us": round(statistics.median(times), 3)} for name, times in found.items()]


def server_cpu(client: Any) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


# -- a real fleet


def measured(fleet: Fleet, seconds: float) -> Row:
    """What real learners and a real server do in a second, beside that of the simulation."""
    from harness.fleet import Fleet as Processes
    from harness.waiting import eventually

    names = [f"s{n:05d}" for n in range(fleet.streams)]
    incarnations = {name: str(uuid.uuid4()) for name in names}
    settings = StreamSettings(n_features=fleet.features, refinement=None, window=0).to_json().encode()
    stopping = threading.Event()
    with real_store() as (server, store), tempfile.TemporaryDirectory() as folder, server.client() as client:
        processes = Processes(Path(folder), server, apis=0, learners=fleet.learners, lease_s=fleet.lease_s)

        rng = np.random.default_rng(0)
        means = rng.normal(size=(3, fleet.features)) * 5.0

        def append(name: str, rows: int) -> None:
            x = means[rng.integers(3, size=rows)] + rng.normal(size=(rows, fleet.features))
            payload = to_log(Points(x))
            store.append(
                name, incarnations[name], NewEntry(EntryKind.BATCH, payload, rows), budget_bytes=1 << 40
            ).result()

        def go_on() -> None:
            began = time.monotonic()
            for n in count():
                if stopping.wait(max(0.0, began + n / fleet.batches_s - time.monotonic())):
                    return
                append(names[n % fleet.streams], fleet.rows)

        def behind() -> int:
            return sum(store.tail(name, incarnation).unapplied_bytes for name, incarnation in incarnations.items())

        appender = threading.Thread(target=go_on)
        try:
            processes.start()
            for name in names:
                store.create_stream(name, incarnations[name], settings, max_streams=fleet.streams)
            led = lambda: len(list(client.scan_iter("*:lease", count=2_000)))  # noqa: E731
            eventually(lambda: led() == fleet.streams, led, pause_s=0.5)
            for name in names:
                append(name, 1_500)  # more than a warm-up
            eventually(lambda: behind() == 0, behind, pause_s=1.0)
            if fleet.batches_s:
                appender.start()
            time.sleep(2 * fleet.lease_s + (0.0 if fleet.batches_s else CHECKPOINT_S))
            pids = [service.process.pid for service in processes.learners if service.process is not None]
            before, cpu, own, began = client.info("stats"), server_cpu(client), cores(pids), time.monotonic()
            time.sleep(seconds)
            after, cpu, own = client.info("stats"), server_cpu(client) - cpu, cores(pids) - own
            took = time.monotonic() - began
            sent = watched(server, seconds)
        finally:
            stopping.set()
            if appender.is_alive():
                appender.join()
            processes.close()
    n_bytes = sum(after[name] - before[name] for name in ("total_net_input_bytes", "total_net_output_bytes"))
    return {
        "commands_s": sum(sent.values()) / seconds,
        "bytes_s": n_bytes / took,
        "server": cpu / took,
        "learner": own / took / fleet.learners,
        "sent": sent,
    }


def cores(pids: Sequence[int]) -> float:
    """CPU time of processes, in seconds."""
    ticks = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13] for pid in pids]
    return sum(int(tick) for of_one in ticks for tick in of_one) / 100


def watched(server: Any, seconds: float) -> Counter[str]:
    """Commands that clients have sent, by name; not those of scripts."""
    named = {each.sha: name for name, each in scripts().items()}
    found: Counter[str] = Counter()
    until = time.monotonic() + seconds
    with server.client().monitor() as monitor:
        while time.monotonic() < until:  # there is always a next one: streams are looked at each second
            one = monitor.next_command()
            if one["client_type"] != "lua":
                words = one["command"].split()
                found[named.get(words[1], words[0].upper()) if len(words) > 1 else words[0].upper()] += 1
    return found


CHECKED = (
    Fleet(1, 20),
    Fleet(2, 20, batches_s=10.0),
    Fleet(3, 60),
    Fleet(3, 60, batches_s=20.0),
    Fleet(4, 200),
)
"""Fleets that are run for real."""
PIECES = (("gaussian", 16, 10), ("gaussian", 16, 50), ("diagonal", 64, 10), ("diagonal", 64, 50), ("gaussian", 64, 50))
PARTITIONS = (2, 8)
"""Of the streams whose pieces are measured."""
SHARED = ((2, 1), (4, 1), (10, 1), (10, 5), (100, 1), (100, 10), (100, 50))
"""Learners and streams with a log that waits, in the table of shared rounds."""
SHARED_PIECES = (("gaussian", 16, 50), ("gaussian", 64, 50))
LEARNERS, STREAMS = (1, 10, 100), (100, 1_000, 10_000)
BATCHES_S = 0.1
"""Batches of a stream a second, in the table."""


def check(seconds: float) -> list[Row]:
    given, rows = Costs.read(), []
    for fleet in CHECKED:
        real, model = measured(fleet, seconds), simulated(fleet, given, 4 * seconds)
        row: Row = {"learners": fleet.learners, "streams": fleet.streams, "batches_s": fleet.batches_s}
        for name in ("commands_s", "bytes_s", "server", "learner"):
            row |= {name: significant(real[name]), f"{name}_simulated": significant(model[name])}
        print(row, {name: round(n / seconds, 1) for name, n in sorted(real["sent"].items())}, flush=True)
        rows.append(row)
    return rows


def table(seconds: float) -> list[Row]:
    given, rows = Costs.read(), []
    for learners in LEARNERS:
        for streams in STREAMS:
            fleet = Fleet(learners, streams, BATCHES_S * streams)
            load, found = load_of(fleet, given), simulated(fleet, given, seconds)
            row: Row = {"learners": learners, "streams": streams, "batches_s": fleet.batches_s}
            row |= {name: significant(value) for name, value in load._asdict().items()}
            row |= {f"{name}_simulated": significant(value) for name, value in found.items()}
            print(row, flush=True)
            rows.append(row)
    return rows


def pieces() -> list[Row]:
    """What a piece and its bytes cost, by the real encoding. Medians over the pieces of two rounds, of CPU time."""
    rows = []
    for family, d, k in PIECES:
        rng = np.random.default_rng(0)
        means = rng.normal(size=(k, d)) * 2.0
        x = means[rng.integers(k, size=5 * 16_384)] + rng.normal(size=(5 * 16_384, d))
        for partitions in PARTITIONS:
            settings = StreamSettings(n_features=d, family=family, refinement=None, window=0, partitions=partitions)
            state, found = initial_state(settings), Counted()
            with one_blas_thread:
                state, _ = assimilate_inplace(state, x[: 3 * 16_384])
                began = time.process_time()
                state, _ = assimilate_inplace(state, x[3 * 16_384 :], found)
            round_us = ((time.process_time() - began) * 1e6 - found.spent_us) / 2
            row: Row = {"family": family, "features": d, "components": k, "partitions": partitions}
            row |= {name: round(statistics.median(each)) for name, each in found.of.items()} | {
                "round_us": round(round_us)
            }
            print(row, flush=True)
            rows.append(row)
    return rows


class Counted:
    """Computes pieces from their bytes, and keeps what all that took."""

    def __init__(self) -> None:
        names = ("base_bytes", "task_bytes", "result_bytes", "piece_us", "at_home_us", "away_us")
        self.of: dict[str, list[float]] = {name: [] for name in names}
        self.spent_us = 0.0

    def __call__(self, tasks: Sequence[PieceTask]) -> list[PieceResult]:
        results = []
        for task in tasks:
            at = [time.process_time()]
            buffers = task_to_buffers(task)
            at.append(time.process_time())
            blob = b"".join(buffers)  # as the socket joins them
            at.append(time.process_time())
            copy = task_from_bytes(blob)
            at.append(time.process_time())
            learnt = learnt_piece(copy)
            at.append(time.process_time())
            answer = result_to_bytes(learnt)
            at.append(time.process_time())
            results.append(result_from_bytes(answer, task))
            at.append(time.process_time())
            took = 1e6 * np.diff(at)
            self.spent_us += 1e6 * (at[-1] - at[0])
            values = (
                len(blob) - task.rows.nbytes,
                len(blob),
                len(answer),
                took[3],
                took[0] + took[5],
                took[2] + took[4],
            )
            for name, value in zip(self.of, values, strict=True):
                self.of[name].append(value)
        return results


def shared(seconds: float) -> list[Row]:
    """Rounds of streams with a log that waits, shared by learners that have nothing else to do."""
    given, rows = Costs.read(), []
    with (RESULTS / "coordination_pieces.csv").open() as file:
        measured_pieces = list(csv.DictReader(file))
    names = ("task_bytes", "result_bytes", "piece_us", "at_home_us", "away_us", "round_us")
    for learners, streams in SHARED:
        for row in measured_pieces:
            of = (row["family"], int(row["features"]), int(row["components"]))
            if of not in SHARED_PIECES or row["partitions"] != "8":
                continue
            pieces = Pieces(streams, 8, *(int(row[name]) for name in names))  # type: ignore[arg-type]
            found = simulated(Fleet(learners, streams, pieces=pieces), given, seconds)
            alone = 1e6 / (8 * pieces.piece_us + pieces.round_us) * min(1.0, learners / streams)
            made: Row = dict(zip(("family", "features", "components"), of, strict=True))
            made |= {"learners": learners, "streams": streams, "gain": significant(found["rounds_s"] / streams / alone)}
            shown = ("rounds_s", "offered_s", "answered_s", "commands_s", "messages_s", "bytes_s", "server", "learner")
            made |= {name: significant(found[name]) for name in shown}
            print(made, flush=True)
            rows.append(made)
    return rows


def significant(value: float, digits: int = 3) -> float:
    return float(f"{value:.{digits}g}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("costs", "pieces", "check", "table", "shared"))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.what in ("costs", "pieces"):
        made = costs() if asked.what == "costs" else pieces()
    else:
        made = {"check": check, "table": table, "shared": shared}[asked.what](asked.seconds)
    if asked.out:
        with asked.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(made[0]))
            writer.writeheader()
            writer.writerows(made)
    elif asked.what == "costs":
        print(*made, sep="\n")
