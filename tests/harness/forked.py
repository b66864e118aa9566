"""Python programs as forks of a process that has imported what they need: imports are most of a short program's cost.

`Forked` is `subprocess.Popen` for `python -m module`, `python -c code` and `python script.py`. The program is a child
of this process, as any other: it has its own process id, environment, files and exit status, and is waited for and
killed as usual. Where it could import something else than the process that forks, it is started from nothing.
"""

import ast
import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

IMPORTED_UNDER = ("PYTHON", "NUMBA_", "OMP_", "OPENBLAS_", "SHOAL_KERNEL_CACHE", "XDG_CACHE_HOME", "HOME")
"""How the names of variables begin that matter while modules are imported."""
IMPORTED_LATER = {
    "shoal_service.cli": (
        "asyncio", "encodings.idna", "httpcore", "pydantic.type_adapter", "rich.console", "rich.progress",
        "shoal_service.client", "shoal_service.errors", "typer._adapters",
    ),
    "shoal_service.cli.connectors.configured": (
        "encodings.idna", "httpcore", "shoal.mixture", "shoal_service.cli.connectors.follow",
        "shoal_service.cli.connectors.lines", "shoal_service.cli.connectors.redis_stream",
    ),
    "shoal_service.streams.refinement.child": ("shoal.refinement", "shoal.sequential"),
    "shoal_service.app": ("uvicorn.loops.auto", "uvicorn.protocols.http.auto", "uvicorn.lifespan.on"),
    "serve": ("shoal_service.app", "uvicorn.loops.auto", "uvicorn.protocols.http.auto", "uvicorn.lifespan.on"),
    "fit": ("shoal.estimators.fitted", "shoal.refinement", "shoal.sequential", "shoal_service.wire", "sklearn.base"),
}  # fmt: skip
"""What a module, or a command of `shoal`, imports when it is run."""

_SET_CHILD_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of sys/prctl.h
_CURRENT_PATH = os.pathsep.join(path for path in sys.path if path)


class Forked(subprocess.Popen[Any]):
    """A program, forked where possible."""

    def _execute_child(
        self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any, *more: Any
    ) -> None:
        *_, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = more[:9]
        new_session, process_group = more[14:16]
        environment = dict(os.environ if env is None else env)
        program = None if shell or executable else _program_of(args)
        if program is None or preexec_fn or pass_fds or not _can_fork_for(environment):
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *more
            )
            return
        order = {
            "program": program,
            "environment": environment,
            "cwd": os.fspath(cwd) if cwd else os.getcwd(),
            "new_session": bool(new_session),
            "process_group": process_group,
        }
        files = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = _parent().fork(order, files)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]


def run(*arguments: Any, **options: Any) -> "subprocess.CompletedProcess[Any]":
    """`subprocess.run`, forked where possible."""
    with forking():
        return subprocess.run(*arguments, **options)


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Fork the programs that start inside of the block, by whatever function of `subprocess` or asyncio."""
    before = subprocess.Popen
    subprocess.Popen = Forked  # type: ignore[misc]
    try:
        yield
    finally:
        subprocess.Popen = before  # type: ignore[misc]


def _program_of(args: Any) -> list[str] | None:
    """The part of a command line that says what Python runs. None where it is not this Python, or has other options."""
    if not isinstance(args, (list, tuple)) or len(args) < 2 or os.fspath(args[0]) != sys.executable:
        return None
    rest = [os.fspath(part) for part in args[1:]]
    if rest[0] == "-P":  # no folder of a program is on the path in any case
        rest = rest[1:]
    is_known = rest[0] in ("-m", "-c") if rest[0].startswith("-") else rest[0].endswith(".py")
    return rest if is_known else None


def _can_fork_for(environment: dict[str, str]) -> bool:
    return sys.platform == "linux" and _imported_under(environment) == _imported_under(_environment())


def _imported_under(environment: dict[str, str]) -> dict[str, str]:
    found = {name: value for name, value in environment.items() if name.startswith(IMPORTED_UNDER)}
    return {name: value for name, value in found.items() if name not in ("PYTHONPATH", "PYTHONUNBUFFERED")}


def _environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": _CURRENT_PATH}


class _Parent:
    """The process that forks. It ends when this one does."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._process = subprocess.Popen(command, env=_environment(), pass_fds=[theirs.fileno()])
        atexit.register(self._end, os.getpid())

    def _end(self, pid: int) -> None:
        if pid == os.getpid():
            with self._lock:
                self._ours.close()
                self._process.wait()

    def fork(self, order: dict[str, Any], files: list[int]) -> int:
        """Start a program with these three standard files. Returns its process id."""
        with self._lock:
            _adopt_orphans(True)
            try:
                socket.send_fds(self._ours, [json.dumps(order).encode()], files)
                answer = self._ours.recv(1 << 16)
            finally:
                _adopt_orphans(False)
        if not answer:
            raise RuntimeError("the process that forks has ended")
        return int(answer)


def _adopt_orphans(is_wanted: bool) -> None:
    """Let orphans below this process become its children, as they otherwise become those of the first process."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, int(is_wanted), 0, 0, 0)


@cache
def _started(pid: int) -> _Parent:
    return _Parent()


_starting = threading.Lock()


def _parent() -> _Parent:
    with _starting:
        return _started(os.getpid())


def _main() -> None:
    """Fork one program for each order."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.set_inheritable(False)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setpgid(0, 0)  # Ctrl-C in a terminal is for the tests
    while True:
        message, files, _, _ = socket.recv_fds(channel, 1 << 20, 3)
        if not message:
            return
        order = json.loads(message)
        _prepare(order["program"])
        pid = _fork_orphan()
        if pid == 0:
            channel.close()
            _become(order, files)
            return
        for file in files:
            os.close(file)
        channel.send(str(pid).encode())


def _prepare(program: list[str]) -> None:
    """Import what a program imports."""
    named: list[str] = []
    if program[0] == "-m":
        named = [program[1]]
    else:
        code = program[1] if program[0] == "-c" else Path(program[0]).read_text()
        for node in ast.parse(code).body:
            if isinstance(node, ast.Import):
                named += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                named.append(node.module)
    named += [later for key in (*named, *program[2:3]) for later in IMPORTED_LATER.get(key, ())]
    before = len(sys.modules)
    for name in named:
        with contextlib.suppress(ImportError):  # the program says so itself
            importlib.import_module(name)
    if "shoal_service.app" in sys.modules:
        _make_routes()
    if len(sys.modules) != before:
        gc.collect()
        gc.freeze()
    assert threading.active_count() == 1, "a fork has none of the threads"


@cache
def _make_routes() -> None:
    """Make the routes that all applications share, and what the first kernel looks up in Numba."""
    from numba.core.registry import cpu_target

    import shoal_service.app
    from shoal_service.settings import Settings

    store = shoal_service.app.open_store(Settings(store="memory"))
    shoal_service.app.create_app(Settings(store="memory"), store=store)
    store.close()
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()


def _fork_orphan() -> int:
    """Fork a process whose parent has ended, so that it is a child of the one that adopts. Returns 0 in it."""
    begin, began = os.pipe()
    told, tell = os.pipe()
    middle = os.fork()
    if middle == 0:
        pid = os.fork()
        if pid:
            os.write(tell, str(pid).encode())
            os._exit(0)
        os.close(began)
        os.read(begin, 1)  # until it is adopted
        for file in (begin, told, tell):
            os.close(file)
        return 0
    os.waitpid(middle, 0)
    pid = int(os.read(told, 32))
    for file in (begin, began, told, tell):
        os.close(file)
    return pid


def _become(order: dict[str, Any], files: list[int]) -> None:
    """Be the program."""
    if order["new_session"]:
        os.setsid()
    elif order["process_group"] is not None and order["process_group"] >= 0:
        os.setpgid(0, order["process_group"])
    else:
        os.setpgid(0, os.getpgid(os.getppid()))
    for own, file in enumerate(files):
        os.dup2(file, own)
    for file in files:
        os.close(file)
    line_buffered = 1 if os.isatty(1) or order["environment"].get("PYTHONUNBUFFERED") else -1
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", line_buffered, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["cwd"])
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[:1] = given  # the first one is the folder of this file
    first, *rest = order["program"]
    if first == "-m":
        sys.argv = rest
        sys.modules.pop(rest[0], None)  # it runs once more, as the main module
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _main()
