"""Deterministic scheduling: threads of which one runs at a time, in an order and a time that a seed decides.

Code that waits, by `time`, `threading`, `queue` or an executor, gets the stand-ins of `stand_ins` in place of these
modules. Each wait hands control back. The scheduler then picks the next thread that can go on, or, when none can, sets
its clock to the first moment at which one can. So thousands of orders of events can be tried, and each comes again with
its seed.
"""

import contextlib
import hashlib
import queue
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from types import ModuleType, SimpleNamespace
from typing import Any

NEVER = float("inf")
MOST_LOOKS = 10_000
"""Looks at the clock without a wait that count as a loop without end."""


class KilledError(BaseException):
    """Ends a thread as kill -9 would: no handler of the code under test catches it."""


class SpinningError(BaseException):
    """A thread uses the processor for nothing. No handler of the code under test catches it."""


class Process:
    """Threads that end together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused_until = 0.0
        """Until then none of its threads runs, as on a machine that stalls."""


class Task:
    """One thread, and what it waits for."""

    def __init__(self, work: Callable[[], Any], process: Process | None, name: str) -> None:
        self.name = name
        self.process = process
        self.ready: Callable[[], bool] = lambda: True
        self.until = NEVER
        self.ended = False
        self.error: BaseException | None = None
        self.turn = threading.Lock()
        self.turn.acquire()
        self._work = work

    def can_run(self, now: float) -> bool:
        """Whether it may go on at this time."""
        if self.process is not None:
            if self.process.dead:
                return True  # to end
            if self.process.paused_until > now:
                return False
        return now >= self.until or self.ready()

    def run(self, back: threading.Lock) -> None:
        """The body of the thread."""
        self.turn.acquire()
        try:
            if self.process is None or not self.process.dead:
                self._work()
        except KilledError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the scheduler
            self.error = error
        finally:
            self.ended = True
            back.release()


class Scheduler:
    """Threads by turns. `now` is its clock, in seconds."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 1000.0
        self.wall_offset = 1.7e9
        """What wall clocks show beyond `now`."""
        self.switches = 0
        self.current: Task | None = None
        self._tasks: list[Task] = []
        self._back = threading.Lock()
        self._back.acquire()
        self._trace = hashlib.blake2b(digest_size=8)
        self._looks = 0

    def look(self) -> float:
        """The time. SpinningError for a thread that looks again and again, and never waits."""
        self._looks += 1
        if self._looks > MOST_LOOKS:
            raise SpinningError(f"{self.current.name if self.current else 'the test'} goes on and on without a wait")
        return self.now

    @property
    def trace(self) -> str:
        """A digest of all turns so far: equal for equal schedules."""
        return self._trace.hexdigest()

    def spawn(self, work: Callable[[], Any], name: str, process: Process | None = None) -> Task:
        """Add a thread, by default to the process of the one that runs."""
        if process is None and self.current is not None:
            process = self.current.process
        task = Task(work, process, name)
        self._tasks.append(task)
        threading.Thread(target=task.run, args=(self._back,), daemon=True).start()
        return task

    def block(self, ready: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Let others run until `ready()` holds, or the time is up. Returns whether it holds."""
        task = self.current
        if task is None:
            assert ready(), "outside of a task nothing else can run meanwhile"
            return True
        task.ready, task.until = ready, NEVER if timeout_s is None else self.now + max(0.0, timeout_s)
        self._back.release()
        task.turn.acquire()
        if task.process is not None and task.process.dead:
            raise KilledError
        return ready()

    def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        self.block(lambda: False, seconds)

    def kill(self, process: Process) -> None:
        """End all threads of a process at the point where they are. The caller ends at its next wait."""
        process.dead = True

    def run(self, done: Callable[[], bool], limit_s: float) -> None:
        """Run threads by turns until `done()` holds. AssertionError when the limit passes, or an error of a thread."""
        limit = self.now + limit_s
        while not done():
            assert self.now < limit, f"not done after {limit_s:g} s: {[t.name for t in self._tasks]}"
            self._turn()

    def _turn(self) -> None:
        able = [task for task in self._tasks if task.can_run(self.now)]
        if not able:
            moments = [t.until for t in self._tasks]
            moments += [t.process.paused_until for t in self._tasks if t.process is not None]
            later = [moment for moment in moments if moment > self.now]
            assert min(later, default=NEVER) < NEVER, f"all wait for ever: {[t.name for t in self._tasks]}"
            self.now = min(later)
            return
        task = able[0] if len(able) == 1 else self.random.choice(able)
        self.switches += 1
        self._trace.update(f"{task.name} {self.now:.6f};".encode())
        self.current, self._looks = task, 0
        task.turn.release()
        self._back.acquire()
        self.current = None
        if task.ended:
            self._tasks.remove(task)
            if task.error is not None:
                raise task.error

    def close(self) -> None:
        """End all threads."""
        for task in self._tasks:
            task.process = task.process or Process("none")
            task.process.dead = True
        while self._tasks:
            with contextlib.suppress(Exception):
                self._turn()


# -- stand-ins for modules


class _Event:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        return self._scheduler.block(self.is_set, timeout)


class _Lock:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holder: Task | None = None
        self._held = False

    def _is_free(self) -> bool:  # also when whoever held it was killed
        holder = self._holder
        return not self._held or (holder is not None and holder.ended)

    def acquire(self) -> bool:
        if not self._is_free():
            self._scheduler.block(self._is_free)
        self._held, self._holder = True, self._scheduler.current
        return True

    def release(self) -> None:
        self._held, self._holder = False, None

    def __enter__(self) -> "_Lock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class _Condition(_Lock):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self._notices = 0

    def wait(self, timeout: float | None = None) -> bool:
        before = self._notices
        self.release()
        notified = self._scheduler.block(lambda: self._notices > before, timeout)
        self.acquire()
        return notified

    def notify(self) -> None:
        self._notices += 1


class _Thread:
    def __init__(self, scheduler: Scheduler, target: Callable[..., Any], name: str, args: tuple[Any, ...]) -> None:
        self._scheduler = scheduler
        self._work = lambda: target(*args)
        self._name = name
        self._task: Task | None = None

    @property
    def ident(self) -> int | None:
        return None if self._task is None else 1

    def start(self) -> None:
        self._task = self._scheduler.spawn(self._work, self._name)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self, timeout: float | None = None) -> None:
        if timeout == 0.0:  # a look, and no wait
            return
        self._scheduler.block(lambda: not self.is_alive(), timeout)


class _Queue:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._items: list[Any] = []

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self) -> Any:
        self._scheduler.block(lambda: bool(self._items))
        return self._items.pop(0)


class _Future(Future[Any]):
    scheduler: Scheduler

    def result(self, timeout: float | None = None) -> Any:
        if not self.scheduler.block(self.done, timeout):
            raise TimeoutError
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.scheduler.block(self.done, timeout):
            raise TimeoutError
        return super().exception()


class _Executor:
    def __init__(self, scheduler: Scheduler, future: type[_Future], name: str) -> None:
        self._scheduler, self._future, self._name = scheduler, future, name

    def submit(self, work: Callable[..., Any], *arguments: Any) -> "_Future":
        future = self._future()

        def run() -> None:
            try:
                answer = work(*arguments)
            except Exception as error:  # noqa: BLE001 - it belongs to who asked
                future.set_exception(error)
            else:
                future.set_result(answer)

        self._scheduler.spawn(run, self._name)
        return future

    def map(self, work: Callable[..., Any], *columns: Iterable[Any]) -> Iterator[Any]:
        futures = [self.submit(work, *row) for row in zip(*columns, strict=False)]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing is left to end: each work has a thread of its own."""


def stand_ins(scheduler: Scheduler) -> dict[str, Any]:
    """By the name under which code imports them: what takes the place of modules and classes that wait, or that give
    other values each time.
    """
    future = type("SimulatedFuture", (_Future,), {"scheduler": scheduler})
    event = lambda: _Event(scheduler)  # noqa: E731
    clock = SimpleNamespace(
        monotonic=scheduler.look,
        time=lambda: scheduler.now + scheduler.wall_offset,
        sleep=scheduler.sleep,
        perf_counter=lambda: scheduler.now,
    )
    threads = SimpleNamespace(
        Event=event,
        Lock=lambda: _Lock(scheduler),
        Condition=lambda: _Condition(scheduler),
        Thread=lambda target, name="", args=(), daemon=False: _Thread(scheduler, target, name, args),
        active_count=threading.active_count,
    )
    made = lambda *_: uuid.UUID(int=scheduler.random.getrandbits(128), version=4)  # noqa: E731
    return {
        "time": clock,
        "threading": threads,
        "queue": SimpleNamespace(SimpleQueue=lambda: _Queue(scheduler), Empty=queue.Empty),
        "uuid": SimpleNamespace(uuid4=made, uuid5=uuid.uuid5, NAMESPACE_OID=uuid.NAMESPACE_OID, UUID=uuid.UUID),
        "os": SimpleNamespace(getpid=lambda: 1),
        "socket": SimpleNamespace(gethostname=lambda: "simulated"),
        "Future": future,
        "ThreadPoolExecutor": lambda workers, name="": _Executor(scheduler, future, name),
    }


@contextlib.contextmanager
def simulated(scheduler: Scheduler, modules: Iterable[ModuleType]) -> Iterator[None]:
    """Within the block, these modules wait by the scheduler. Each name that they import is replaced in them alone."""
    replaced = stand_ins(scheduler)
    before: list[tuple[ModuleType, str, Any]] = []
    try:
        for module in modules:
            for name, stand_in in replaced.items():
                if hasattr(module, name):
                    before.append((module, name, getattr(module, name)))
                    setattr(module, name, stand_in)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
