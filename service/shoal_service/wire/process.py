"""The parent's side of the decoding child: starts it, asks it, replaces it when it dies.

`multiprocessing` would import the parent's main module into the child, the command line and the web framework with it;
a plain interpreter over two pipes starts in a tenth of a second and needs no more than a decoder needs.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import shoal.errors
import shoal_service.errors
from shoal_service.errors import NotReadyError, OverloadedError
from shoal_service.wire.frames import Answer, Ask, Fault, error_of, read_points, receive, send
from shoal_service.wire.media import Format
from shoal_service.wire.points import Body, Points, WireLimits

_TRIES = 2


class DecoderProcess:
    """One child. `decode` and `warm` are for one thread at a time; `end` for any, also while another decodes."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = False

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return self._child.pid if self._child else None

    def warm(self, limits: WireLimits) -> None:
        """Start the child and wait until it has decoded something."""
        body = b'{"points": [[0]]}'
        self.decode(body, Ask(Format.JSON, None, limits, len(body)))

    def decode(self, body: Body, ask: Ask) -> Points:
        """As `wire.decode`, in the child. One that dies is replaced and asked once more.

        OverloadedError when the second dies too (most likely killed for its memory), NotReadyError after `end`.
        """
        for _ in range(_TRIES):
            if self._ended:
                raise stopping()
            try:
                answer = self._ask(body, ask)
            except (OSError, EOFError):
                self.discard()
                continue
            except BaseException:
                self.discard()  # its pipe stands in the middle of a frame
                raise
            if isinstance(answer, Fault):
                raise error_of(answer)
            return answer
        raise OverloadedError(f"{_TRIES} processes ended while they decoded {len(body)} bytes; send smaller batches")

    def end(self) -> None:
        """Kill the child and start no other. It holds nothing that is not in the parent too."""
        self._ended = True
        child = self._child
        if child is not None:
            child.kill()

    def discard(self) -> None:
        """Let go of a dead child: its pipes and its entry in the process table."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            with contextlib.suppress(OSError):  # closing the pipe of a dead reader
                child.communicate()

    def _ask(self, body: Body, ask: Ask) -> Points | Fault:
        child = self._child = self._child or _start()
        assert child.stdin is not None
        assert child.stdout is not None
        send(child.stdin, ask, body)
        answer = receive(child.stdout, Answer)
        return answer.fault or read_points(child.stdout, answer)


def stopping() -> NotReadyError:
    """The refusal of a body that came too late."""
    return NotReadyError("the service is stopping; send the batch again when it is back")


def _start() -> "subprocess.Popen[bytes]":
    """A new child, out of the terminal's process group, so that Ctrl-C is the parent's alone. In the parent's session:
    where the kernel shares time out between sessions, a `nice` counts within one only."""
    roots = dict.fromkeys(
        str(Path(str(file)).parents[1]) for file in (shoal.errors.__file__, shoal_service.errors.__file__)
    )
    path = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "shoal_service.wire.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={**os.environ, **one_thread, "PYTHONPATH": path},
        process_group=0,
    )
