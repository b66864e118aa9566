"""A real `shoal serve` in a process of its own, that can be killed at any moment and started again on its data."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from harness.ports import free_port
from harness.preforked import Preforked, can_fork_for
from harness.waiting import LONGEST_WAIT_S
from harness.web import WEB


class RunningService:
    """One service over one data folder."""

    program: Path | None = None
    """A script that runs in the place of `shoal`."""
    network: Path | None = None
    """The file of the network namespace that a forked one is in, if not that of this process."""

    def __init__(self, data: Path, settings: dict[str, object] | None = None, *, forked: bool = True) -> None:
        """`forked`: begin as a fork of a process that has imported everything, where possible. False: as users start
        it, for measurements."""
        self._forked = forked
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data.with_suffix(".log")
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            **{f"SHOAL_{name.upper()}": str(value) for name, value in (settings or {}).items()},
        }
        self.process: Preforked | subprocess.Popen[bytes] | None = None

    def start(self, timeout_s: float = LONGEST_WAIT_S) -> float:
        """Start and wait until it is ready; gives the seconds that this took."""
        began = time.monotonic()
        self.launch()
        assert self.process is not None
        while time.monotonic() - began < timeout_s:
            if self.process.poll() is not None:
                raise RuntimeError(f"shoal serve ended with {self.process.returncode}:\n{self.tail()}")
            if self.answers("/readyz"):
                return time.monotonic() - began
            time.sleep(0.02)
        raise TimeoutError(f"shoal serve was not ready within {timeout_s} s:\n{self.tail()}")

    def launch(self) -> None:
        """Start, and wait for nothing."""
        arguments = ["serve", "--port", str(self.port), "--data", str(self.data)]
        if self._forked and can_fork_for(self.environment):
            self.process = Preforked(arguments, self.environment, self.log, self.program, self.network)
            return
        shoal = Path(sys.executable).with_name("shoal")
        program = [str(shoal)] if self.program is None else [sys.executable, str(self.program)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*program, *arguments], env=self.environment, stdout=log, stderr=log)

    def answers(self, path: str) -> bool:
        """Whether `path` answers 200 now."""
        try:
            return WEB.get(self.url + path, timeout=30.0).status_code == 200
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """kill -9, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def terminate(self, timeout_s: float = LONGEST_WAIT_S) -> int:
        """SIGTERM, and the exit code once it has gone; raises TimeoutExpired past the limit."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout_s)
        self.process = None
        return code

    def tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-4000:]

    def peak_mib(self) -> float:
        """The most memory that the serving process has held, in MiB (Linux)."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) / 1024
