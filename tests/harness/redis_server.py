"""A real redis-server of our own: free loopback port, folder of its own, ended by its own process id."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import redis

from harness.ports import free_port
from harness.waiting import LONGEST_WAIT_S


@dataclass
class RedisServer:
    """One server over one folder: it can be killed and started again on what it had written."""

    binary: str
    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    settings: dict[str, str] = field(default_factory=dict)
    """Over the defaults of `start`."""
    host: str = "127.0.0.1"

    @property
    def url(self) -> str:
        """Its address."""
        return f"redis://{self.host}:{self.port}/0"

    def start(self) -> None:
        """Start, by default with an append-only file synced at every write, and wait until it answers."""
        options = {
            "bind": self.host,
            "port": str(self.port),
            "dir": str(self.folder),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "always",
            "maxmemory-policy": "noeviction",
            **self.settings,
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        self.process = subprocess.Popen([self.binary, *arguments], stdout=subprocess.DEVNULL)
        until = time.monotonic() + LONGEST_WAIT_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                # As whoever keeps a server running would: killed while it rewrote its file after a torn end, it repairs
                # that end at one start ("the truncated file is not the last file"), exits, and is well at the next.
                self.process = subprocess.Popen([self.binary, *arguments], stdout=subprocess.DEVNULL)
            with contextlib.suppress(redis.exceptions.ConnectionError), self.client() as client:
                if client.ping():
                    return
            time.sleep(0.05)
        raise TimeoutError(f"redis-server did not answer on port {self.port} within {LONGEST_WAIT_S:g} s")

    def client(self) -> redis.Redis:
        """A client without retries of its own."""
        return redis.Redis(self.host, self.port, retry=None)

    def pause(self) -> None:
        """Make it hang: it takes connections, and answers nothing."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextlib.contextmanager
def running_redis(binary: str, folder: Path, **settings: str) -> Iterator[RedisServer]:
    """A server for as long as the block lasts; `maxmemory_policy="..."` sets `maxmemory-policy`, and so on."""
    server = RedisServer(binary, folder, settings={name.replace("_", "-"): value for name, value in settings.items()})
    try:
        server.start()
        yield server
    finally:
        server.kill()
