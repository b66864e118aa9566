"""HTTP load that uses little of the machine that it shares with the service.

Requests are made in advance and sent over raw connections. Each answer is read and counted. Each connection has one
request at a time (no pipelining). One process serves `n_connections` of them.
"""

import asyncio
import multiprocessing
import os
import time
from multiprocessing.connection import Connection as Pipe
from typing import Any, NamedTuple

import httptools
import httpx
import numpy as np
import uvloop

HOST = "127.0.0.1"
N_FEATURES, N_COMPONENTS, BATCH = 16, 10, 1_000
N_BODIES = 200
"""Distinct batches, sent in turn: twice the window of a refinement."""


class Counts(NamedTuple):
    """The counts of a load so far."""

    at: float
    """Clock (`time.perf_counter`)."""
    acknowledged: int
    """Batches answered with 2xx."""
    refused: int
    """Batches answered with 503; each is sent again after the pause that the service asks for."""
    cpu_s: float
    """CPU time of the loading process."""


def request(method: str, target: str, body: bytes = b"", content_type: str = "") -> bytes:
    """Return the bytes of one HTTP/1.1 request."""
    head = [f"{method} {target} HTTP/1.1", f"Host: {HOST}"]
    if body:
        head += [f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*head, "", ""]).encode() + body


def batches(n: int, seed: int = 0) -> list[np.ndarray]:
    """Draw n batches (1000, 16) of ten unit Gaussians with centres about 2 sqrt(16) apart, in random order."""
    centres = np.sqrt(2.0) * np.random.default_rng(7).normal(size=(N_COMPONENTS, N_FEATURES))
    rng = np.random.default_rng(seed)
    labels = rng.integers(N_COMPONENTS, size=(n, BATCH))
    return [centres[label] + rng.normal(size=(BATCH, N_FEATURES)) for label in labels]


class _Connection(asyncio.Protocol):
    """Sends the next request when the answer to the last one is complete."""

    def __init__(self, load: "_Load") -> None:
        self._load = load
        self._parser: Any = httptools.HttpResponseParser(self)
        self._retry_after_s = 1.0
        self._sent = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send(self._load.next_request())

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost(error)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._retry_after_s = float(value)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status == 503:
            self._load.refused += 1
            asyncio.get_running_loop().call_later(self._retry_after_s, self._send, self._sent)
            return
        if not 200 <= status < 300:
            raise RuntimeError(f"a batch was answered with {status}")
        self._load.acknowledged += 1
        self._load.took_s.append(time.perf_counter() - self._began)
        self._send(self._load.next_request())

    def _send(self, what: bytes) -> None:
        self._began, self._sent = time.perf_counter(), what
        self._transport.write(what)


class _Load:
    def __init__(self, requests: list[bytes], pipe: Pipe) -> None:
        self._requests = requests
        self._pipe = pipe
        self._n = 0
        self.acknowledged = self.refused = 0
        self.took_s: list[float] = []
        self._end: asyncio.Future[None]

    def next_request(self) -> bytes:
        self._n += 1
        return self._requests[self._n % len(self._requests)]

    def lost(self, error: Exception | None) -> None:
        if not self._end.done():
            self._end.set_exception(error or ConnectionError("the service closed a connection"))

    async def run(self, port: int, n_connections: int) -> None:
        loop = asyncio.get_running_loop()
        self._end = loop.create_future()
        for _ in range(n_connections):
            await loop.create_connection(lambda: _Connection(self), HOST, port)
        loop.add_reader(self._pipe.fileno(), self._answer)
        os.set_blocking(self._pipe.fileno(), True)  # the loop's reader has changed that; a minute's latencies fill it
        await self._end

    def _answer(self) -> None:
        """Answer commands: `counts` gives the counts, `took` the latencies since the last such command, `stop` ends."""
        asked = self._pipe.recv()
        if asked == "counts":
            self._pipe.send(Counts(time.perf_counter(), self.acknowledged, self.refused, time.process_time()))
        elif asked == "took":
            took, self.took_s = self.took_s, []
            self._pipe.send(np.array(took))
        else:
            self._end.set_result(None)


def _main(requests: list[bytes], port: int, n_connections: int, pipe: Pipe) -> None:
    uvloop.run(_Load(requests, pipe).run(port, n_connections))


class Load:
    """A process that keeps `n_connections` busy within the block."""

    def __init__(self, requests: list[bytes], port: int, n_connections: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(requests, port, n_connections, theirs))

    def __enter__(self) -> "Load":
        self._process.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.is_alive():
            self._pipe.send("stop")
        self._process.join(30.0)

    def counts(self) -> Counts:
        """Return the counts so far."""
        return Counts(*self._ask("counts"))

    def took_s(self) -> np.ndarray:
        """Return the seconds from sending to the complete answer for each batch since the last call."""
        return np.asarray(self._ask("took"))

    def _ask(self, what: str) -> Any:
        self._pipe.send(what)
        while not self._pipe.poll(1.0):
            if not self._process.is_alive():
                raise RuntimeError("the loading process has ended; see what it printed")
        return self._pipe.recv()


LOOKS_PER_S = 50.0
"""One-point predictions asked for a second by `latencies_ms`."""


def latencies_ms(url: str, seconds: float, n_features: int = N_FEATURES) -> np.ndarray:
    """Return the latencies in milliseconds of one-point predictions over one connection at a constant rate."""
    point = ",".join(f"{v:.3f}" for v in np.random.default_rng(1).normal(size=n_features))
    taken = []
    with httpx.Client(timeout=30.0) as client:
        due = time.perf_counter()
        end = due + seconds
        while due < end:
            time.sleep(max(0.0, due - time.perf_counter()))
            began = time.perf_counter()
            client.get(f"{url}/predict", params={"x": point}).raise_for_status()
            taken.append(1e3 * (time.perf_counter() - began))
            due = max(due + 1.0 / LOOKS_PER_S, time.perf_counter())
    return np.array(taken)
