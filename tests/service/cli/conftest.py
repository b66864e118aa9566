"""Fixtures of the command line's tests: servers on loopback, the command in this process and in one of its own."""

import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer.main
import typer.testing
from typer.testing import CliRunner, Result

sys.path.append(str(Path(__file__).parents[1] / "client"))

from fake_shoal import Deliver, FakeShoal

from shoal_service.cli import app, main


@pytest.fixture(scope="session", autouse=True)
def one_tree_of_commands() -> Iterator[None]:
    """Make the tree of commands once. The runner makes it for each command it runs, which is most of the cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def fake() -> FakeShoal:
    return FakeShoal()


@pytest.fixture
def serve_on_loopback() -> Iterator[Callable[[Deliver], str]]:
    """Serve a function from request to response on a free port; gives the address."""
    servers: list[ThreadingHTTPServer] = []

    def start(deliver: Deliver) -> str:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                url = f"http://{self.headers['Host']}{self.path}"
                response = deliver(httpx.Request(self.command, url, headers=dict(self.headers), content=content))
                self.send_response(response.status_code)
                for name, value in response.headers.items():
                    if name != "content-length":
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(response.content)))
                self.end_headers()
                self.wfile.write(response.content)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815  the base class's names

            def log_message(self, *arguments: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda request, address: None  # type: ignore[method-assign]  # a client may hang up
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def url(fake: FakeShoal, serve_on_loopback: Callable[[Deliver], str]) -> str:
    """The fake server's address."""
    return serve_on_loopback(fake.handle)


@pytest.fixture
def shoal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command in this process: `shoal("ingest", file, input=b"...")`."""
    for name in [name for name in os.environ if name.startswith("SHOAL_")]:
        monkeypatch.delenv(name)
    runner = CliRunner()

    def run(*arguments: object, stdin: bytes | None = None) -> Result:
        return runner.invoke(app, [str(a) for a in arguments], input=stdin)

    return run


@pytest.fixture
def shoal_process() -> Callable[..., "subprocess.CompletedProcess[bytes]"]:
    """Run the command in a process of its own, as the installed script does."""

    def run(*arguments: object, stdin: bytes | None = None, **more: Any) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            command(*arguments), input=stdin, env=environment(), capture_output=True, timeout=120, **more
        )

    return run


def command(*arguments: object) -> list[str]:
    """The command line of a process that runs `shoal`."""
    return [sys.executable, "-c", "from shoal_service.cli import main; main()", *map(str, arguments)]


def environment() -> dict[str, str]:
    """This process's environment, the checkout's packages on the path and no settings of shoal's."""
    root = Path(__file__).parents[3]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHOAL_")}
    return kept | {"PYTHONPATH": os.pathsep.join([str(root / "core"), str(root / "service")]), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def process_parts() -> tuple[Callable[..., list[str]], Callable[[], dict[str, str]]]:
    """`command` and `environment`, for tests that hold a process's pipes themselves."""
    return command, environment


@pytest.fixture
def shoal_in_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """Run the command in this process, with a real terminal as stderr. Gives the exit code, what it printed, and what
    it drew."""

    def run(*arguments: object, columns: int) -> tuple[int, str, str]:
        ours, theirs = pty.openpty()
        drawn: list[bytes] = []
        reader = threading.Thread(target=lambda: drawn.extend(iter(partial(_part_of, ours), b"")))
        reader.start()
        printed, code = io.StringIO(), 0
        with monkeypatch.context() as patch, os.fdopen(theirs, "w") as terminal:
            patch.setenv("TERM", "xterm")
            patch.setenv("COLUMNS", str(columns))
            patch.setattr(sys, "stderr", terminal)
            patch.setattr(sys, "stdout", printed)
            patch.setattr(sys, "argv", ["shoal", *map(str, arguments)])
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        reader.join()
        os.close(ours)
        return code, printed.getvalue(), b"".join(drawn).decode()

    return run


def _part_of(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""
