"""Parent's side of the refining child process: start, request, watch, and replacement when the child dies.

State, window and result are passed as files in a work directory.
"""

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shoal_service.child_processes import command_of, environment
from shoal_service.temporary_folder import TemporaryFolder

POLL_S = 0.25


class Task(NamedTuple):
    """Files and parameters of one refinement."""

    state: Path
    window: Path
    result: Path
    method: str
    window_rows: int | None


class Outcome(NamedTuple):
    """Answer of the child. The refinement itself is in the task's `result`."""

    worthwhile: bool
    reason: str
    report: dict[str, Any]


class ChildDiedError(Exception):
    """The child ended, or was ended, before it answered, or failed in an unexpected way."""


class RefusedError(Exception):
    """The library refuses to refine this state, now and later."""


class StoppedError(Exception):
    """The refinement was called off."""


class RefinementProcess:
    """One child at a time. Used by one thread, except `end`."""

    def __init__(self, nice: int) -> None:
        self._nice = nice
        self._child: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._ended = False

    @property
    def pid(self) -> int | None:
        """The child's process id, while there is one."""
        return self._child.pid if self._child is not None else None

    def refine(self, task: Task, timeout_s: float, watch: Callable[[dict[str, Any] | None], bool]) -> Outcome:
        """Have the child refine. `watch` is called every quarter of a second, with the progress where there is some.

        Raises StoppedError when `watch` returns False, after ending the child. Raises ChildDiedError, also after
        `timeout_s`, and RefusedError.
        """
        until = time.monotonic() + timeout_s
        try:
            self._request(task)
            while True:
                answer = self._next_answer()
                progress = answer.pop("progress", None) if answer is not None else None
                if answer:
                    return _outcome(answer)
                if self._ended or not watch(progress):
                    raise StoppedError
                if time.monotonic() > until:
                    raise ChildDiedError(f"no result within {timeout_s:g} s")
        except RefusedError:
            raise
        except (ChildDiedError, OSError) as error:
            self.discard()
            if self._ended:  # it was killed on purpose, which is no failure of its own
                raise StoppedError from error
            if isinstance(error, ChildDiedError):
                raise
            raise ChildDiedError(f"the refining process could not be reached ({error})") from error
        except BaseException:
            self.discard()  # it may be in the middle of its work
            raise

    def end(self) -> None:
        """Kill the child and start no other. From any thread."""
        self._ended = True
        child = self._child
        if child is not None:
            child.kill()

    def discard(self) -> None:
        """Kill the child and free its memory, its pipes and its entry in the process table."""
        child, self._child, self._unread = self._child, None, b""
        if child is not None:
            child.kill()
            with contextlib.suppress(OSError):
                child.communicate()

    def _request(self, task: Task) -> None:
        if self._ended:
            raise StoppedError
        if self._child is None or self._child.poll() is not None:
            self.discard()
            self._child = _start(self._nice)
        assert self._child.stdin is not None
        paths = {name: str(getattr(task, name)) for name in ("state", "window", "result")}
        line = json.dumps({**paths, "method": task.method, "window_rows": task.window_rows}) + "\n"
        self._child.stdin.write(line.encode())

    def _next_answer(self) -> dict[str, Any] | None:
        """The next line of the child. None when none comes within `POLL_S`."""
        child = self._child
        assert child is not None
        assert child.stdout is not None
        if b"\n" not in self._unread:
            with selectors.DefaultSelector() as selector:
                selector.register(child.stdout, selectors.EVENT_READ)
                if not selector.select(POLL_S):
                    return None
            read = os.read(child.stdout.fileno(), 1 << 16)
            if not read:
                code = child.wait()
                raise ChildDiedError(f"the refining process ended with status {code}")
            self._unread += read
        line, newline, rest = self._unread.partition(b"\n")
        if not newline:
            return None
        self._unread = rest
        answer: dict[str, Any] = json.loads(line)
        return answer


def _outcome(answer: dict[str, Any]) -> Outcome:
    if "refused" in answer:
        raise RefusedError(answer["refused"])
    if "failed" in answer:
        raise ChildDiedError(answer["failed"])
    return Outcome(**answer)


def _start(nice: int) -> "subprocess.Popen[bytes]":
    """A new child, in a process group of its own, so that Ctrl-C in a terminal reaches the parent only.

    It stays in the parent's session: where the kernel schedules by session, `nice` counts within one only.
    """
    return subprocess.Popen(
        command_of("shoal_service.refining.child", str(nice)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env=environment(),
        process_group=0,
    )


class WorkDir:
    """Directory for the files of refinements. Emptied at its first use and removed at the end."""

    def __init__(self, path: Path | None) -> None:
        """`path` belongs to this process alone. None: a new directory among the system's temporary files."""
        self._path = path
        self._made: TemporaryFolder | None = None
        self._opened: Path | None = None

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """A new folder, removed at the end of the block."""
        with tempfile.TemporaryDirectory(dir=self._open(), ignore_cleanup_errors=True) as folder:
            yield Path(folder)

    def _open(self) -> Path:
        if self._opened is None:
            if self._path is None:
                self._made = TemporaryFolder("refining")
                self._opened = self._made.path
            else:
                shutil.rmtree(self._path, ignore_errors=True)  # left behind by a process that was killed
                self._path.mkdir(mode=0o700, parents=True)
                self._opened = self._path
        return self._opened

    def close(self) -> None:
        """Remove the directory."""
        if self._made is not None:
            self._made.remove()
        elif self._opened is not None:
            shutil.rmtree(self._opened, ignore_errors=True)
