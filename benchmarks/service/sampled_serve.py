"""`shoal serve` with a sampler that measures the CPU time of each thread and of each function in it.

    python benchmarks/service/sampled_serve.py FILE.json serve --port 8000 --data DIR

Every few milliseconds, the sampler assigns the CPU time of each thread since the last sample to the functions on its
stack: to all of them (`inclusive`), and to the innermost (`own`). This includes the work of C code without Python's
global lock, which a profiler of calls would not see. A signal samples the main thread wherever it is. A thread samples
the others where they release the lock. So their sums are right, while the time within a thread may be assigned to the
next such place. At exit, the seconds by thread and function are written as JSON. Sampling costs a few per cent. SIGUSR1
discards the samples so far, so that the start can be excluded.
"""

import json
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import FrameType

INTERVAL_S = 0.004
Seconds = dict[str, dict[str, float]]


class Sampler:
    """Takes samples from `start` to `stop`."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self.forget()

    def forget(self) -> None:
        """Discard the samples so far."""
        self.inclusive: Seconds = defaultdict(lambda: defaultdict(float))
        self.own: Seconds = defaultdict(lambda: defaultdict(float))

    def start(self) -> None:
        """Start sampling, on the main thread."""
        self._main_used = time.thread_time()
        signal.signal(signal.SIGPROF, self._look_at_main)
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling."""
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        self._ended.set()
        self._thread.join()

    def _look_at_main(self, number: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        spent, self._main_used = now - self._main_used, now
        if frame is not None:
            self._put_down("MainThread", frame, spent)

    def _run(self) -> None:
        used: dict[int, float] = {}
        while not self._ended.wait(INTERVAL_S):
            names = {thread.ident: thread.name for thread in threading.enumerate()}
            for ident, frame in sys._current_frames().items():
                if ident in (threading.get_ident(), threading.main_thread().ident) or ident not in names:
                    continue
                now = _cpu_s(ident)
                spent = now - used.get(ident, now)
                used[ident] = now
                if spent > 0.0:
                    self._put_down(_kind(names[ident]), frame, spent)

    def _put_down(self, thread: str, innermost: FrameType, seconds: float) -> None:
        self.own[thread][_where(innermost)] += seconds
        seen = set()
        frame: FrameType | None = innermost
        while frame is not None:
            seen.add(_where(frame))
            frame = frame.f_back
        for where in seen:
            self.inclusive[thread][where] += seconds


def _cpu_s(ident: int) -> float:
    try:
        return time.clock_gettime(time.pthread_getcpuclockid(ident))
    except OSError:  # the thread has ended
        return 0.0


def _kind(name: str) -> str:
    """Return one name for all threads of a pool."""
    return name.rstrip("0123456789").rstrip("_")


def _where(frame: FrameType) -> str:
    code = frame.f_code
    path = Path(code.co_filename)
    return f"{path.parent.name}/{path.stem}:{code.co_qualname}"


def main() -> None:
    """Run the command line under the sampler."""
    out = Path(sys.argv[1])
    sys.argv = ["shoal", *sys.argv[2:]]
    sampler = Sampler()
    signal.signal(signal.SIGUSR1, lambda *_: sampler.forget())
    sampler.start()
    from shoal_service.entry import main as shoal

    try:
        shoal()
    finally:
        sampler.stop()
        out.write_text(json.dumps({"own": sampler.own, "inclusive": sampler.inclusive}))


if __name__ == "__main__":
    main()
