"""Decoding that leaves the event loop free: `await decoder.decode(body, content_type)`.

Small bodies are decoded where they are. Large JSON and NDJSON go to a child process, since a C decoder holds the
interpreter's lock from its first byte to its last, and a thread of this process would stop the loop all the same.
Everything else that is large goes to a thread: NumPy, zlib and Arrow let the lock go.
"""

import asyncio
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from shoal_service.errors import OverloadedError
from shoal_service.wire.decode import check_size, decode
from shoal_service.wire.frames import Ask
from shoal_service.wire.media import Format, parse_content_encoding, parse_content_type
from shoal_service.wire.points import Body, Points, WireLimits
from shoal_service.wire.process import DecoderProcess, stopping

_THREADS = 2


class Decoder:
    """Owns the children and the threads. `decode` is for one event loop; `start` and `close` for whoever built it."""

    def __init__(
        self,
        limits: WireLimits,
        *,
        processes: int = 1,
        inline_bytes: int = 65_536,
        max_waiting_bytes: int = 268_435_456,
    ) -> None:
        self.limits = limits
        self._inline_bytes = inline_bytes
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self._closed = False
        self._children = [DecoderProcess() for _ in range(processes)]
        self._idle: queue.SimpleQueue[DecoderProcess] = queue.SimpleQueue()
        for child in self._children:
            self._idle.put(child)
        self._askers = ThreadPoolExecutor(processes, "shoal-decode-json")
        self._threads = ThreadPoolExecutor(_THREADS, "shoal-decode")

    def start(self) -> None:
        """Start the children in the background, so that the first large body does not wait for one."""
        for _ in self._children:
            self._askers.submit(self._warm_child)

    async def decode(
        self,
        body: Body,
        content_type: str | None,
        *,
        content_encoding: str | None = None,
        n_features: int | None = None,
    ) -> Points:
        """As `wire.decode`, with the same errors.

        Also OverloadedError when more bytes wait to be decoded than `max_waiting_bytes`, or two children died of the
        body, and NotReadyError after `close`.
        """
        text = parse_content_type(content_type) in (Format.JSON, Format.NDJSON)
        gzipped = parse_content_encoding(content_encoding)
        check_size(body, self.limits)
        if len(body) <= self._inline_bytes and not gzipped:
            return decode(body, content_type, self.limits, n_features=n_features)
        ask = Ask(content_type, content_encoding, self.limits, len(body), n_features)
        with self._counted(body):
            loop = asyncio.get_running_loop()
            if text:
                return await loop.run_in_executor(self._askers, self._decode_in_child, body, ask)
            return await loop.run_in_executor(self._threads, self._decode_in_thread, body, ask)

    def close(self) -> None:
        """End the children and the threads; whatever still waits fails with NotReadyError. Idempotent."""
        self._closed = True
        for child in self._children:
            child.end()
        for pool in (self._askers, self._threads):
            pool.shutdown(wait=True)
        for child in self._children:
            child.discard()

    @contextmanager
    def _counted(self, body: Body) -> Iterator[None]:
        """Count the body among those that wait, or refuse it; a body that waits alone is always taken."""
        if self._closed:
            raise stopping()
        if self._waiting_bytes and self._waiting_bytes + len(body) > self._max_waiting_bytes:
            raise OverloadedError(f"{self._waiting_bytes} bytes wait to be decoded; send the batch again in a moment")
        self._waiting_bytes += len(body)
        try:
            yield
        finally:
            self._waiting_bytes -= len(body)

    @contextmanager
    def _borrowed_child(self) -> Iterator[DecoderProcess]:
        child = self._idle.get_nowait()  # there are as many as askers
        try:
            yield child
        finally:
            self._idle.put(child)

    def _warm_child(self) -> None:
        with self._borrowed_child() as child:
            child.warm(self.limits)

    def _decode_in_child(self, body: Body, ask: Ask) -> Points:
        with self._borrowed_child() as child:
            return child.decode(body, ask)

    def _decode_in_thread(self, body: Body, ask: Ask) -> Points:
        if self._closed:
            raise stopping()
        return decode(
            body, ask.content_type, self.limits, content_encoding=ask.content_encoding, n_features=ask.n_features
        )
