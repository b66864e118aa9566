"""`shoal serve` as a fork of a process that has imported all of it: importing costs each server more than a second.

What does not depend on settings is made there, too: routes, and Numba's lists of functions. A test's server is a
process of its own as before, with its own environment, log and exit code. What is imported depends on no setting but
those in `IMPORTED_UNDER`: where a server has others there, it must be started from nothing.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

IMPORTED_UNDER = ("PYTHON", "NUMBA_", "OMP_", "OPENBLAS_", "MKL_", "SHOAL_KERNEL_CACHE", "XDG_CACHE_HOME", "HOME")
"""How the names of variables begin that matter while modules are imported."""

RUN = "RUN_OF_TESTS"
"""Variable with the process of the run of tests, that of pytest-xdist where it starts others."""

_MOST_BYTES = 1 << 20
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET of sched.h


class Preforked:
    """One server, with those methods of `subprocess.Popen` that the tests use."""

    def __init__(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        log: Path,
        program: Path | None = None,
        network: Path | None = None,
    ) -> None:
        """`program`: a script that runs in the place of `shoal`. `network`: the file of the network namespace that the
        server is in, if not that of this process."""
        asked = {
            "folder": str(Path.cwd()),
            "arguments": arguments,
            "environment": dict(environment),
            "log": str(log),
            "program": None if program is None else str(program),
            "network": None if network is None else str(network),
        }
        self.pid = int(_parent().ask(asked))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        if self.returncode is None:
            self.returncode = _parent().ask({"ended": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once it has ended; raises TimeoutExpired."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired("shoal serve", timeout or 0.0)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9."""
        self.send_signal(signal.SIGKILL)


def forked_command() -> Path:
    """A program named `shoal` for shells: a fork, too, with the files, the folder and the environment of its caller.

    It passes signals on.
    """
    _parent()
    return _folder() / "bin" / "shoal"


_COMMAND = """\
import json, os, signal, socket, sys, time
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect({place!r})
asked = dict(arguments=sys.argv[1:], environment=dict(os.environ), folder=os.getcwd(), program=None, network=None)
socket.send_fds(link, [json.dumps(asked).encode()], [0, 1, 2])
pid = json.loads(link.recv(100))
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = None
while code is None:
    time.sleep(0.01)
    link.send(json.dumps(dict(ended=pid)).encode())
    code = json.loads(link.recv(100))
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def can_fork_for(environment: Mapping[str, str]) -> bool:
    """Whether a server with this environment imports what one with the environment of this process does."""
    return sys.platform == "linux" and _imported_under(environment) == _imported_under(_environment())


def enter_network(path: Path) -> None:
    """Let this thread be in the network namespace of a file, and all that it starts."""
    with path.open() as namespace:  # `os.setns` comes with Python 3.12
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(namespace.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"setns: no way into {path}")


def _imported_under(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(IMPORTED_UNDER)}


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class _Parent:
    """A connection to the process that forks. All processes of one run of tests share it, and it ends with the run."""

    def __init__(self) -> None:
        folder = _folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._connected(folder):
                _start(folder)
                assert self._connected(folder)

    def _connected(self, folder: Path) -> bool:
        try:
            self._socket.connect(str(folder / "socket"))
        except OSError:
            return False
        return True

    def ask(self, question: dict[str, Any]) -> Any:
        """Its answer."""
        with self._lock:
            self._socket.send(json.dumps(question).encode())
            return json.loads(self._socket.recv(_MOST_BYTES))


def _folder() -> Path:
    return Path(tempfile.gettempdir()) / f"shoal-forks-{os.environ[RUN]}"


def _start(folder: Path) -> None:
    """Start the process that forks, and wait until it answers."""
    command = [sys.executable, __file__, str(folder), os.environ[RUN]]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=_environment())
    assert process.stdout is not None
    assert process.stdout.readline(), "the process that forks servers has ended"
    process.stdout.close()
    process.returncode = 0  # nobody waits for it


@cache
def _connection(pid: int) -> _Parent:
    return _Parent()


_connecting = threading.Lock()


def _parent() -> _Parent:
    with _connecting:
        return _connection(os.getpid())


def _main(folder: Path, run: int) -> None:
    """Fork one server for each message that asks for one, and tell of the end of each that is asked after.

    `run`: the process of the run of tests, with which this one ends.
    """
    import gc

    import redis  # noqa: F401
    import scipy.optimize  # noqa: F401 - learning the first points imports it
    import uvicorn.lifespan.on
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto  # noqa: F401
    from numba.core.registry import cpu_target

    import shoal.refinement  # noqa: F401
    import shoal_service.app
    import shoal_service.cli
    import shoal_service.entry
    import shoal_service.server
    from shoal.families import FAMILIES
    from shoal.families.predictive_cache import example_priors
    from shoal.runtime.compiling import needs_compiler
    from shoal.sequential.stream_kernels import later_calls, one_pass_calls, warm_family
    from shoal_service.settings import Settings

    store = shoal_service.app.open_store(Settings(store="memory"))
    shoal_service.app.create_app(Settings(store="memory"), store=store)  # makes the routes that all applications share
    store.close()
    cpu_target.typing_context.refresh()  # what the first kernel does, loaded or compiled
    cpu_target.target_context.refresh()
    for family in FAMILIES.values():  # kernels that are on disk; those of a stream take a third of a second to load
        for prior in example_priors(family):
            if not any(needs_compiler(*call) for call in one_pass_calls(prior) + later_calls(prior)):
                warm_family(prior)
    assert threading.active_count() == 1, "a fork has none of the threads"
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place, command = folder / "socket", folder / "bin" / "shoal"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f"#!{sys.executable} -IS\n" + _COMMAND.format(place=str(place)))
    command.chmod(0o755)
    place.unlink(missing_ok=True)  # of a process that was killed
    listener.bind(str(place))
    listener.listen()
    print("ready", flush=True)  # noqa: T201 - to the process that has started this one
    connections: list[socket.socket] = []
    while _lives(run):
        ready, _, _ = select.select([listener, *connections], [], [], 1.0)
        for one in ready:
            if one is listener:
                connections.append(one.accept()[0])
                continue
            message, files, _, _ = socket.recv_fds(one, _MOST_BYTES, 3)
            if not message:
                connections.remove(one)
                one.close()
                continue
            question = json.loads(message)
            if "ended" in question:
                pid, status = os.waitpid(question["ended"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            elif (answer := os.fork()) == 0:
                for other in [listener, *connections]:
                    other.close()
                _become(question, files)
                if question["program"] is not None:
                    runpy.run_path(question["program"], run_name="__main__")
                    sys.exit()
                sys.exit(shoal_service.entry.main())
            for file in files:
                os.close(file)
            with contextlib.suppress(OSError):  # who asked may have been killed
                one.send(json.dumps(answer).encode())
    shutil.rmtree(folder, ignore_errors=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _become(question: dict[str, Any], files: list[int]) -> None:
    """Take on the files, the environment and the arguments of the process asked for."""
    if question["network"]:
        enter_network(Path(question["network"]))
    if not files:
        log = os.open(question["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        files = [os.open(os.devnull, os.O_RDONLY), log, log]
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.chdir(question["folder"])
    os.environ.clear()
    os.environ.update(question["environment"])
    sys.argv = ["shoal", *question["arguments"]]


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
