"""A TCP proxy in front of a server that loses replies, resets connections, answers late, or takes and never answers."""

import contextlib
import random
import socket
import struct
import threading
import time
from typing import Any

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of no time: the close of such a socket sends a reset."""


class FaultProxy:
    """Passes bytes to a port on 127.0.0.1 and back. Its faults can be switched while connections are open."""

    def __init__(self, port: int) -> None:
        self.word = b""
        self.losses = 0
        """Number of requests with `word` whose reply is still to be lost, with its connection. They are executed."""
        self.lost_share = 0.0
        """Share of requests whose reply is lost in the same way, at random."""
        self.delay_s = 0.0
        """Delay of each reply."""
        self.silent = False
        """Whether requests arrive and no reply comes back, while connections stay open."""
        self.lost = 0
        """Replies lost so far."""
        self._rng = random.Random(1)
        self._target = port
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start_thread(self._accept)

    def lose(self, word: bytes, times: int) -> None:
        """Lose the replies to the next requests that hold `word`."""
        self.word, self.losses = word, times

    def lose_share(self, share: float, seed: int) -> None:
        """Lose the replies to a share of all requests."""
        self._rng, self.lost_share = random.Random(seed), share

    def reset(self) -> None:
        """Reset every open connection, whatever it is doing."""
        for link in tuple(self._links):
            link.reset()

    def strand(self) -> None:
        """Close the server's side of every open connection. The clients hear nothing of it, or of anything, on them."""
        for link in tuple(self._links):
            link.strand()

    def heal(self) -> None:
        """Pass everything from now on. Connections that lost a reply are reset: bytes never vanish within one."""
        self.losses, self.lost_share, self.delay_s, self.silent = 0, 0.0, 0.0, False
        for link in tuple(self._links):
            if link.has_lost:
                link.reset()

    def close(self) -> None:
        """End the proxy with all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()
        for thread in self._threads:
            thread.join(5)

    def start_thread(self, work: Any) -> None:
        """Run `work` until the connection that it serves ends."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()

    def loses_reply_to(self, request: bytes) -> bool:
        """Whether the reply to these bytes is lost."""
        with self._lock:
            if self.losses and self.word in request:
                self.losses -= 1
            elif not self.lost_share or self._rng.random() >= self.lost_share:
                return False
            self.lost += 1
            return True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # the server is gone, and its port refuses: as far as a proxy can say so
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    client.close()
                    continue
                link = _Link(self, client, server)
                self._links.add(link)
                self.start_thread(link.pass_requests)
                self.start_thread(link.pass_replies)

    def forget(self, link: "_Link") -> None:
        """Drop a connection that has ended."""
        self._links.discard(link)


class _Link:
    """One connection of a client, and the one to the server that goes with it."""

    def __init__(self, proxy: FaultProxy, client: socket.socket, server: socket.socket) -> None:
        self.has_lost = False
        self._stranded = False
        self._proxy, self._client, self._server = proxy, client, server
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def pass_requests(self) -> None:
        """A client of this protocol sends nothing before it has its replies. So a loss concerns the last request."""
        with contextlib.suppress(OSError):
            while data := self._client.recv(1 << 20):
                if self._proxy.loses_reply_to(data):
                    self.has_lost = True
                if not self._stranded:
                    self._server.sendall(data)
        self.end()

    def pass_replies(self) -> None:
        """Replies, late or never."""
        with contextlib.suppress(OSError):
            while data := self._server.recv(1 << 16):
                if self._proxy.silent:
                    self.has_lost = True
                    continue
                if self.has_lost:
                    break  # the server did what it was asked, and nobody is told
                time.sleep(self._proxy.delay_s)
                self._client.sendall(data)
        if not self._stranded:
            self.end()

    def strand(self) -> None:
        """Close the server's side. What the client sends is lost from now on."""
        self._stranded = True
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Reset the client's side. The shutdown of its reading half wakes the thread, and sends nothing."""
        with contextlib.suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._client.shutdown(socket.SHUT_RD)
        self._client.close()
        self.end()

    def end(self) -> None:
        """End both sides, and the threads that wait for them."""
        self._proxy.forget(self)
        for end in (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
