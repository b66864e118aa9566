"""Child processes of the service as forks of a process that has imported their module: importing is most of their cost.

Such a child has pipes, signals, a process group and an exit status of its own, as one has that is started from nothing.
"""

import array
import asyncio
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from typing import Any

from shoal_service.child_processes import command_of, environment

_FDS = 4
"""Files that come with each order: standard input, output and error, and the pipe for the exit status."""


class ForkedModule:
    """One child, with those members of `asyncio.subprocess.Process` that the service uses."""

    def __init__(self, pid: int, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader, status_fd: int) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._ended = asyncio.Event()
        self._status_fd = status_fd
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(status_fd, self._read_status)

    def _read_status(self) -> None:
        self._loop.remove_reader(self._status_fd)
        said = os.read(self._status_fd, 16)
        os.close(self._status_fd)
        self.returncode = int(said)
        self.stdin.close()
        self._ended.set()

    async def wait(self) -> int:
        """The exit status once it has ended, or minus the number of the signal that ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        """SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)


class ModuleForks:
    """A process that has imported one module and forks its children. Close it at the end."""

    def __init__(self, module: str, *later: str) -> None:
        """`later`: modules that most children import when they know their task."""
        self._command = command_of(module)
        self._socket, theirs = socket.socketpair()
        arguments = [sys.executable, __file__, str(theirs.fileno()), module, *later]
        self._process = subprocess.Popen(arguments, env=environment(), pass_fds=[theirs.fileno()])
        theirs.close()

    async def create(
        self, *command: str, stdin: int, stdout: int, env: Mapping[str, str], process_group: int
    ) -> ForkedModule:
        """As `asyncio.create_subprocess_exec`, for the command of this module and with two pipes."""
        assert (list(command), stdin, stdout, process_group) == (self._command, PIPE, PIPE, 0)
        loop = asyncio.get_running_loop()
        (their_in, to_child), (from_child, their_out), (status, their_status) = os.pipe(), os.pipe(), os.pipe()
        theirs = [their_in, their_out, 2, their_status]
        self._socket.sendmsg([json.dumps(dict(env)).encode() + b"\n"], [_passed(theirs)])
        for fd in (their_in, their_out, their_status):
            os.close(fd)
        pid = int.from_bytes(self._socket.recv(4), "big")
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_child, "rb", 0))
        transport, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(to_child, "wb", 0)
        )
        return ForkedModule(pid, asyncio.StreamWriter(transport, protocol, None, loop), reader, status)

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.wait()


def _passed(fds: list[int]) -> tuple[int, int, Any]:
    return socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds)


def _main(orders: socket.socket, module: str, *later: str) -> None:
    """Fork a child for each order, and tell of the end of each."""
    import gc

    main = importlib.import_module(module).main
    for name in later:
        importlib.import_module(name)
    gc.freeze()
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    statuses: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([orders, ended], [], [])
        if ended in ready:
            os.read(ended, 1 << 10)
            _tell(statuses)
        if orders in ready:
            text, fds = _order(orders)
            if not text:
                return
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setpgid(0, 0)
                for number, fd in enumerate(fds[:3]):
                    os.dup2(fd, number)
                for fd in (*fds, *statuses.values(), ended, wake):
                    os.close(fd)
                orders.close()
                os.environ.clear()
                os.environ.update(json.loads(text))
                _end_with(main)
            statuses[pid] = fds[3]
            for fd in fds[:3]:
                os.close(fd)
            orders.sendall(pid.to_bytes(4, "big"))


def _end_with(main: Callable[[], None]) -> None:
    """Run a program, and end this process as it ends, without the search for cycles among what it shares."""
    status: Any = 1
    try:
        main()
        status = 0
    except SystemExit as end:
        status = end.code
    except BaseException:  # noqa: BLE001 - the process ends here
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)


def _order(orders: socket.socket) -> tuple[bytes, list[int]]:
    """The next order with its files; empty at the end."""
    text, ancillary, _, _ = orders.recvmsg(1 << 16, socket.CMSG_SPACE(_FDS * array.array("i").itemsize))
    fds = array.array("i")
    for _, _, data in ancillary:
        fds.frombytes(data)
    while text and not text.endswith(b"\n"):
        more = orders.recv(1 << 16)
        if not more:
            return b"", []
        text += more
    return text, fds.tolist()


def _tell(statuses: dict[int, int]) -> None:
    """Write the exit status of each child that has ended to its pipe."""
    while statuses:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(statuses[pid], str(os.waitstatus_to_exitcode(status)).encode())
        os.close(statuses.pop(pid))


if __name__ == "__main__":
    _main(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:])
