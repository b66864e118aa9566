"""Connections that send nothing: they are closed in time, and they keep no others out."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from harness.waiting import LONGEST_WAIT_S, eventually
from shoal_service.connections import RESERVED_FILES, connection_class, most_connections

DEADLINE_S = 1.0
"""Longer than a busy machine takes from a connection to its request."""
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@contextmanager
def serving(most: int, headers_s: float) -> Iterator[Callable[[], socket.socket]]:
    """A server with these limits; gives a function that connects to it."""
    config = uvicorn.Config(
        hello, http=connection_class(most, headers_s), loop="uvloop", ws="none", lifespan="off", log_config=None,
        timeout_keep_alive=600,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as clients:
        address = listener.getsockname()
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()

        def connect() -> socket.socket:
            client = clients.enter_context(socket.create_connection(address))
            client.settimeout(LONGEST_WAIT_S)
            return client

        try:
            eventually(lambda: server.started)
            yield connect
        finally:
            server.should_exit = True
            thread.join()


def answer(client: socket.socket, sent: bytes = GET) -> bytes:
    client.sendall(sent)
    return client.recv(4096)


def test_a_connection_without_a_request_is_closed_after_the_deadline() -> None:
    with serving(100, DEADLINE_S) as connect:
        fast = connect()
        assert answer(fast).startswith(b"HTTP/1.1 200")
        silent, half = connect(), connect()
        half.sendall(GET[:20])
        assert silent.recv(10) == b""
        assert half.recv(10) == b""
        assert answer(fast).endswith(b"hi"), "a connection that waits for its next request stays open"


def test_half_a_second_request_is_closed_after_the_deadline() -> None:
    with serving(100, DEADLINE_S) as connect:
        client = connect()
        assert answer(client).endswith(b"hi")
        client.sendall(GET[:20])
        assert client.recv(10) == b""


def test_headers_that_arrive_in_parts_are_answered() -> None:
    with serving(100, LONGEST_WAIT_S) as connect:
        client = connect()
        client.sendall(GET[:20])
        assert answer(connect()).endswith(b"hi"), "by now the first part has been read"
        assert answer(client, GET[20:]).endswith(b"hi")


@pytest.mark.parametrize("kind", ["many headers", "one header", "trailers"])
def test_headers_without_end_are_refused_and_use_no_memory(kind: str) -> None:
    """300 MB of headers were kept in memory, without a key and within the deadline."""
    piece = b"a" * 1000 if kind == "one header" else b"a: " + b"a" * 995 + b"\r\n"
    begin = GET[:-2] + (b"a: " if kind == "one header" else b"")
    if kind == "trailers":
        begin = GET[:-2] + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"
    end = (b"\r\n" if kind == "one header" else b"") + b"\r\n"
    with serving(100, LONGEST_WAIT_S) as connect:
        assert answer(connect(), begin + 60 * piece + end).endswith(b"hi")
        client, answers = connect(), b""
        with suppress(ConnectionError):  # closed before it has read everything
            client.sendall(begin)
            for _ in range(20):
                client.sendall(100 * piece)
            client.sendall(end + GET.replace(b"Host", b"Connection: close\r\nHost"))
            while part := client.recv(4096):
                answers += part
        assert answers.count(b"HTTP/1.1 200") <= (kind == "trailers"), "one that had read enough before the trailers"
        assert answer(connect()).endswith(b"hi")


def test_what_is_no_request_is_answered_with_a_problem() -> None:
    """The answers were plain text, and 400 whatever was wrong."""
    sent = {
        400: b"GET / HTTP/1.1\r\nHost localhost\r\n\r\n",
        414: GET.replace(b"/ ", b"/?x=" + 70_000 * b"1" + b" ", 1),
        431: GET[:-2] + 6000 * (b"a: " + b"a" * 95 + b"\r\n"),
    }
    with serving(100, LONGEST_WAIT_S) as connect:
        for status, request in sent.items():
            client, reply = connect(), b""
            with suppress(ConnectionError):  # closed before it has read everything
                client.sendall(request)
            with suppress(ConnectionError):
                while part := client.recv(4096):
                    reply += part
            head, _, body = reply.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status), reply
            assert b"content-type: application/problem+json" in head.lower()
            assert b"content-length: %d" % len(body) in head.lower()
            assert json.loads(body)["status"] == status


def test_idle_connections_give_way_to_new_ones() -> None:
    with serving(20, 60.0) as connect:
        idle = [connect() for _ in range(60)]
        assert answer(connect()).endswith(b"hi")
        assert idle[0].recv(10) == b"", "the one that has waited longest is closed"
        assert answer(idle[-1]).endswith(b"hi"), "the newest stays"


def test_the_limit_stays_below_that_on_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda what: (1024, 4096))
    assert most_connections(10_000) == 1024 - RESERVED_FILES
    assert most_connections(50) == 50
