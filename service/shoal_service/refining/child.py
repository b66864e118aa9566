"""Refining child process: runs one refinement after another until its standard input ends. It never opens the store.

The parent starts it as `python -m shoal_service.refining.child`. A request is a line of JSON that names
files: a state and a window to read, a result to write. Answers are lines of JSON: progress, then the outcome. When the
parent ends, for whatever reason, the pipe ends too, and the child ends at once: it holds nothing worth saving.
"""

import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from shoal.errors import ShoalError
from shoal_service.refining import MissingRowsError, last_rows, read_window

if TYPE_CHECKING:
    from shoal.mixture import MixtureState, Progress

WINDOW_EMPTY = (
    "window-empty: no points came since the window began, as after the restore of a snapshot without its points; save "
    "snapshots with ?window=true, or send more points"
)
PROGRESS_EVERY_S = 0.25


def main() -> None:
    """Serve requests until the pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the parent handles a stop of the whole process group
    os.nice(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    answers_fd = os.dup(1)
    os.dup2(2, 1)  # other output must not mix with the answers
    answers = open(answers_fd, "w", buffering=1)  # noqa: SIM115 - open until the end of the process
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), daemon=True).start()
    while True:
        _write(answers, _answer(json.loads(requests.get()), answers))


def _listen(requests: "queue.SimpleQueue[str]") -> None:
    """Queue the requests. End the process as soon as the pipe ends, whatever the main thread does."""
    for line in sys.stdin:
        requests.put(line)
    os._exit(0)


def _answer(request: dict[str, Any], answers: IO[str]) -> dict[str, Any]:
    try:
        return _refined(request, answers)
    except (ShoalError, MissingRowsError) as refusal:
        return {"refused": str(refusal)}
    except MemoryError:
        os._exit(1)  # free the memory, and let the parent start another child
    except Exception:  # noqa: BLE001 - an unexpected fault: the parent logs it
        return {"failed": traceback.format_exc()}


def _refined(request: dict[str, Any], answers: IO[str]) -> dict[str, Any]:
    from shoal.mixture import from_bytes
    from shoal.refinement import refine, to_bytes, window_start

    state, _ = from_bytes(Path(request["state"]).read_bytes())
    state = _with_window(state, request["window_rows"])
    start = window_start(state)
    if start == state.points_seen:
        return {"refused": WINDOW_EMPTY}
    n_rows = 0 if start is None else state.points_seen - start
    rows = last_rows(read_window(Path(request["window"])), n_rows, state)
    found = refine(state, rows, method=request["method"], progress=_ProgressWriter(answers))
    with Path(request["result"]).open("xb") as result:
        result.write(to_bytes(found))
    return {
        "worthwhile": found.worthwhile,
        "reason": found.reason,
        "report": {**found.report, "base_offset": found.base_offset},
    }


def _with_window(state: "MixtureState", max_rows: int | None) -> "MixtureState":
    """The state, with its window shortened to the later of its two offsets where it is longer than `max_rows`."""
    if max_rows is None or state.past is None or state.points_seen - state.past.offset <= max_rows:
        return state
    return state._replace(past=state.mid)


class _ProgressWriter:
    """Writes the progress, at most once in `PROGRESS_EVERY_S`."""

    def __init__(self, answers: IO[str]) -> None:
        self._answers = answers
        self._next = 0.0

    def __call__(self, progress: "Progress") -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_EVERY_S
            _write(self._answers, {"progress": {k: v for k, v in progress._asdict().items() if v is not None}})


def _write(answers: IO[str], answer: dict[str, Any]) -> None:
    try:
        answers.write(json.dumps(answer) + "\n")
    except BrokenPipeError:  # the parent has ended, and the other thread is about to see it
        os._exit(0)


if __name__ == "__main__":
    main()
