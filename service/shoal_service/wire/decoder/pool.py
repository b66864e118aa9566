"""Decoding that does not block the event loop: `await decoder.decode(body, content_type)`.

Small bodies are decoded at once. Large JSON and NDJSON bodies go to a child process, because their C decoder holds the
lock of the interpreter the whole time. Other large bodies go to a thread: NumPy, zlib and Arrow release the lock.
"""

import asyncio
import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec

from shoal_service.errors import OverloadedError
from shoal_service.wire.decoder.frames import DecodeRequest
from shoal_service.wire.decoder.process import DecoderProcess, stopping
from shoal_service.wire.feature_names import errors_naming_features
from shoal_service.wire.formats.decode import check_size, decode
from shoal_service.wire.formats.media_types import Format, parse_content_encoding, parse_content_type
from shoal_service.wire.points import Body, Points, WireLimits
from shoal_service.wire.record_columns import RecordColumns

_THREADS = 2


class Decoder:
    """Owner of the decoding children and threads. `decode` is called in one event loop only."""

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
        self._callers = ThreadPoolExecutor(processes, "shoal-decode-json")
        self._threads = ThreadPoolExecutor(_THREADS, "shoal-decode")

    def start(self) -> None:
        """Start the children in the background, so that the first large body does not wait for them."""
        for _ in self._children:
            self._callers.submit(self._warm_child)

    async def decode(
        self,
        body: Body,
        content_type: str | None,
        *,
        content_encoding: str | None = None,
        n_features: int | None = None,
        columns: RecordColumns | None = None,
        holes: bool = False,
        texts: bool = False,
        names: tuple[str, ...] | None = None,
    ) -> Points:
        """Decode like `wire.decode`, with the same errors. `holes`: NaN and null stand for missing values. `texts`:
        columns may hold texts. `names`: of the features, for errors about columns without names.

        Also raises OverloadedError if more than `max_waiting_bytes` wait to be decoded or two children died while they
        decoded the body, and NotReadyError after `close`.
        """
        text = parse_content_type(content_type) in (Format.JSON, Format.NDJSON)
        gzipped = parse_content_encoding(content_encoding)
        limits = msgspec.structs.replace(self.limits, holes=holes, texts=texts) if holes or texts else self.limits
        check_size(body, limits)
        with errors_naming_features(names):
            if len(body) <= self._inline_bytes and not gzipped:
                return decode(body, content_type, limits, n_features=n_features, columns=columns)
            request = DecodeRequest(content_type, content_encoding, limits, len(body), n_features, columns)
            with self._counted(body):
                loop = asyncio.get_running_loop()
                if text:
                    return await loop.run_in_executor(self._callers, self._decode_in_child, body, request)
                return await loop.run_in_executor(self._threads, self._decode_in_thread, body, request)

    def close(self) -> None:
        """End the children and the threads. Bodies that still wait fail with NotReadyError. Idempotent."""
        self._closed = True
        for child in self._children:
            child.end()
        for pool in (self._callers, self._threads):
            pool.shutdown(wait=True)
        for child in self._children:
            child.discard()

    @contextmanager
    def _counted(self, body: Body) -> Iterator[None]:
        """Count the body as waiting, or refuse it. A body that waits alone is always accepted."""
        if self._closed:
            raise stopping()
        if self._waiting_bytes and self._waiting_bytes + len(body) > self._max_waiting_bytes:
            raise OverloadedError(
                f"{self._waiting_bytes} bytes of other bodies wait to be decoded; send the batch again in a moment"
            )
        self._waiting_bytes += len(body)
        try:
            yield
        finally:
            self._waiting_bytes -= len(body)

    @contextmanager
    def _borrowed_child(self) -> Iterator[DecoderProcess]:
        child = self._idle.get_nowait()  # there are as many children as calling threads
        try:
            yield child
        finally:
            self._idle.put(child)

    def _warm_child(self) -> None:
        with self._borrowed_child() as child:
            child.warm(self.limits)

    def _decode_in_child(self, body: Body, request: DecodeRequest) -> Points:
        with self._borrowed_child() as child:
            return child.decode(body, request)

    def _decode_in_thread(self, body: Body, request: DecodeRequest) -> Points:
        if self._closed:
            raise stopping()
        return decode(
            body,
            request.content_type,
            request.limits,
            content_encoding=request.content_encoding,
            n_features=request.n_features,
            columns=request.columns,
        )
