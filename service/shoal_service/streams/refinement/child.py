"""The refining child: one refinement after another, until its standard input ends. It never opens the store.

Started as `python -m shoal_service.streams.refinement.child`. A request is a line of JSON that names files: a state
and a window to read, a result to write. Answers are lines of JSON: progress, then the outcome. When the parent ends,
however it ends, the pipe does too, and the child ends in the middle of whatever it does: it holds nothing worth saving.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from shoal.errors import ShoalError
from shoal_service.streams.refinement.window_rows import last_rows, read_window

if TYPE_CHECKING:
    from shoal.mixture import MixtureState
    from shoal.mixture.batch import Progress

PROGRESS_EVERY_S = 0.25


def main() -> None:
    """Serve until the pipe ends."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a stop of the whole process group is the parent's to handle
    os.nice(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    answers_fd = os.dup(1)
    os.dup2(2, 1)  # whatever else prints must not land among the answers
    answers = open(answers_fd, "w", buffering=1)  # noqa: SIM115  open until the end of the process, by intent
    asks: list[str] = []
    came = threading.Condition()
    threading.Thread(target=_listen, args=(asks, came), daemon=True).start()
    while True:
        with came:
            came.wait_for(lambda: asks)
            ask = asks.pop(0)
        _say(answers, _answer(json.loads(ask), answers))


def _listen(asks: list[str], came: threading.Condition) -> None:
    """Take requests in; end the process as soon as the pipe ends, whatever else it is doing."""
    for line in sys.stdin:
        with came:
            asks.append(line)
            came.notify()
    os._exit(0)


def _answer(ask: dict[str, Any], answers: IO[str]) -> dict[str, Any]:
    try:
        return _refined(ask, answers)
    except ShoalError as refusal:
        return {"refused": str(refusal)}
    except MemoryError:
        os._exit(1)  # give the memory back, and let the parent start another
    except Exception:  # noqa: BLE001  a fault of ours: the parent logs it
        return {"failed": traceback.format_exc()}


def _refined(ask: dict[str, Any], answers: IO[str]) -> dict[str, Any]:
    from shoal.mixture import from_bytes
    from shoal.refinement import refine, to_bytes, window_start

    state, _ = from_bytes(Path(ask["state"]).read_bytes())
    state = _with_window(state, ask["window_rows"])
    start = window_start(state)
    rows = last_rows(read_window(Path(ask["window"])), 0 if start is None else state.points_seen - start)
    found = refine(state, rows, method=ask["method"], progress=_Teller(answers))
    with Path(ask["result"]).open("xb") as result:
        result.write(to_bytes(found))
    return {
        "worthwhile": found.worthwhile,
        "reason": found.reason,
        "report": {**found.report, "base_offset": found.base_offset},
    }


def _with_window(state: "MixtureState", most_rows: int | None) -> "MixtureState":
    """The state with its window begun at the later of its two marks, where the whole is over `most_rows`."""
    if most_rows is None or state.past is None or state.points_seen - state.past.offset <= most_rows:
        return state
    return state._replace(past=state.mid)


class _Teller:
    """Passes progress on, now and then."""

    def __init__(self, answers: IO[str]) -> None:
        self._answers = answers
        self._next = 0.0

    def __call__(self, progress: "Progress") -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_EVERY_S
            _say(self._answers, {"progress": {k: v for k, v in progress._asdict().items() if v is not None}})


def _say(answers: IO[str], what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    main()
