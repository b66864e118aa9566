"""A real Prometheus of our own: free loopback port, folder of its own, ended by its own process id."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import yaml

from harness.ports import free_port
from harness.waiting import LONGEST_WAIT_S, eventually
from harness.web import WEB


class Prometheus:
    """The HTTP interface of a server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """The data of an answer. A refused expression is an AssertionError with its reason."""
        reply = WEB.get(f"{self._url}/api/v1/{path}", params=parameters, timeout=60.0)
        assert reply.status_code == 200, f"{parameters}: {reply.text}"
        return reply.json()["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now."""
        return list(self.ask("query", query=expression)["result"])

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        with contextlib.suppress(httpx.TransportError):
            return WEB.get(f"{self._url}/-/ready", timeout=30.0).status_code == 200
        return False


@contextlib.contextmanager
def running_prometheus(binary: str, folder: Path, configuration: dict[str, Any]) -> Iterator[Prometheus]:
    """A server with that configuration, ready to be asked."""
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(yaml.safe_dump(configuration))
    command = [binary, f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=warn"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, cwd=folder
        )
    server = Prometheus(f"http://127.0.0.1:{port}")
    try:
        eventually(server.is_ready, pause_s=0.1)
        yield server
    finally:
        process.terminate()
        process.wait(LONGEST_WAIT_S)
