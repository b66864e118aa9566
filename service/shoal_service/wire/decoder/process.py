"""The decoding child, seen from its parent: starts it, sends it bodies, and replaces it when it dies."""

import contextlib
import subprocess

from shoal_service.child_processes import command_of, environment
from shoal_service.errors import NotReadyError, OverloadedError
from shoal_service.wire.decoder.frames import Answer, DecodeRequest, Fault, error_of, read_points, receive, send
from shoal_service.wire.formats.media_types import Format
from shoal_service.wire.points import Body, Points, WireLimits

_TRIES = 2


class DecoderProcess:
    """One child. Only one thread at a time may call `decode` or `warm`. Any thread may call `end` at any time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._ended = False

    @property
    def pid(self) -> int | None:
        """Process id of the child; None if there is no child."""
        return self._child.pid if self._child else None

    def warm(self, limits: WireLimits) -> None:
        """Start the child and wait until it has decoded a small body."""
        body = b'{"points": [[0]]}'
        self.decode(body, DecodeRequest(Format.JSON, None, limits, len(body)))

    def decode(self, body: Body, request: DecodeRequest) -> Points:
        """Decode like `wire.decode`, in the child. A child that dies is replaced, and the new one tries once more.

        Also raises OverloadedError if the second child dies too (probably killed because memory was short), and
        NotReadyError after `end`.
        """
        for _ in range(_TRIES):
            if self._ended:
                raise stopping()
            try:
                answer = self._ask(body, request)
            except (OSError, EOFError):
                self.discard()
                continue
            except BaseException:
                self.discard()  # its pipe is in the middle of a frame
                raise
            if isinstance(answer, Fault):
                raise error_of(answer)
            return answer
        raise OverloadedError(
            f"{_TRIES} processes died while they decoded a body of {len(body)} bytes; send smaller batches"
        )

    def end(self) -> None:
        """Kill the child and start no other. It has no data that the parent does not have."""
        self._ended = True
        child = self._child
        if child is not None:
            child.kill()

    def discard(self) -> None:
        """Free the pipes of a dead child and its entry in the process table."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            with contextlib.suppress(OSError):  # closing the pipe of a dead reader
                child.communicate()

    def _ask(self, body: Body, request: DecodeRequest) -> Points | Fault:
        child = self._child = self._child or _start()
        assert child.stdin is not None
        assert child.stdout is not None
        send(child.stdin, request, body)
        answer = receive(child.stdout, Answer)
        return answer.fault or read_points(child.stdout, answer)


def stopping() -> NotReadyError:
    """Make the error for a body that comes after the end."""
    return NotReadyError("the service is stopping; send the batch again when it has restarted")


def _start() -> "subprocess.Popen[bytes]":
    """Start a child in a process group of its own, so that Ctrl-C reaches the parent only.

    It stays in the session of the parent, because the scheduler may apply `nice` within a session only.
    """
    return subprocess.Popen(
        command_of("shoal_service.wire.decoder.child"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=environment(),
        process_group=0,
    )
