"""Threads that many learners share. A learner has a turn when something has come for it, or when it has asked for one.

A learner has one turn at a time. So its state has one writer, as with a thread of its own.
"""

import contextlib
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import count

from shoal_service.errors import StoreError
from shoal_service.store import Store

MOST_THREADS = 16
"""Threads of a pool. Turns wait for the store now and then, so there are more than processors."""
LINGER_S = 5.0
"""Time after which a thread without work ends. Without any task it ends at once."""


class PooledTask:
    """Turns of one learner. It is also the event that a store sets when an entry has come."""

    can_rest = True
    """Whether the learner lets its state go when nobody uses the stream."""
    log_is_local = True
    """Whether this process alone appends to the log and announces each entry, so that a wait needs no poll."""

    def __init__(self, pool: "LearnerPool", turn: Callable[[], float | None]) -> None:
        """`turn` gives the seconds until the next turn unless `set` is called before, and None at the end."""
        self.turn = turn
        self.ended = threading.Event()
        self.started = False
        self.due = self.listed = float("inf")
        self.is_queued = self.is_running = self.again = False
        self._pool = pool
        self._set = False

    def start(self) -> None:
        """Begin with the first turn."""
        self.started = True
        self._pool.begin(self)

    def join(self, timeout_s: float) -> bool:
        """Wait for the end. True when it has ended, or never began."""
        return not self.started or self.ended.wait(max(timeout_s, 0.0))

    def set(self) -> None:
        """Ask for a turn now, or after the one that runs."""
        self._set = True
        if self.started:
            self._pool.queue(self)

    def clear(self) -> None:
        """Take notice of what `set` announced."""
        self._set = False

    def is_set(self) -> bool:
        """Whether something was announced since `clear`."""
        return self._set

    def pause(self, wait_s: float) -> float:
        """Seconds until the next turn, unless something is announced."""
        return wait_s

    def watch(self, store: Store, stream: tuple[str, str]) -> None:
        """Have the store announce entries of a stream (name, incarnation). Raises as `Store.watch`."""
        store.watch(*stream, self)

    def unwatch(self, store: Store, stream: tuple[str, str]) -> None:
        """Undo `watch`, if the store answers."""
        with contextlib.suppress(StoreError):
            store.unwatch(*stream, self)

    def wait_for_entries(self, store: Store, stream: tuple[str, str], after_seq: int, wait_s: float) -> bool:
        """Whether an entry has come. Does not wait: the next turn comes then."""
        return store.wait_for_entries(*stream, after_seq, 0.0, None)


class LearnerPool:
    """Threads for the turns of tasks. They begin when there is work and end when there is none."""

    def __init__(self, most_threads: int = MOST_THREADS) -> None:
        self._most_threads = most_threads
        self._condition = threading.Condition()
        self._queue: deque[PooledTask] = deque()
        self._later: list[tuple[float, int, PooledTask]] = []  # a heap; a task is listed in it when it is due or before
        self._numbers = count()
        self._n_tasks = self._n_threads = self._n_idle = 0
        self._timed_until: float | None = None  # when the thread that watches the heap looks again

    @property
    def n_threads(self) -> int:
        """Threads that run now."""
        return self._n_threads

    def begin(self, task: PooledTask) -> None:
        """Give a new task its first turn."""
        with self._condition:
            self._n_tasks += 1
            self._put(task)

    def queue(self, task: PooledTask) -> None:
        """Give a task a turn as soon as a thread is free."""
        with self._condition:
            self._put(task)

    def _put(self, task: PooledTask) -> None:
        if task.ended.is_set() or task.is_queued:
            return
        if task.is_running:
            task.again = True
            return
        self._append(task)
        if self._n_idle >= len(self._queue) or self._n_threads >= self._most_threads:
            self._condition.notify()
            return
        self._n_threads += 1
        threading.Thread(target=self._work, name="learner-pool", daemon=True).start()

    def _append(self, task: PooledTask) -> None:
        task.is_queued, task.due = True, float("inf")
        self._queue.append(task)

    def _work(self) -> None:
        try:
            self._serve()
        except BaseException:
            with self._condition:
                self._n_threads -= 1
            raise

    def _serve(self) -> None:
        while (task := self._next()) is not None:
            wait_s = None
            try:
                wait_s = task.turn()
            finally:
                if wait_s is None:
                    self._end(task)
            with self._condition:
                if wait_s is None:
                    continue
                task.is_running = False
                if task.again or wait_s <= 0.0:
                    task.again = False
                    self._append(task)  # this thread looks at the queue next: no other one need be woken
                elif wait_s < float("inf"):
                    self._put_later(task, time.monotonic() + wait_s)

    def _end(self, task: PooledTask) -> None:
        with self._condition:
            task.ended.set()
            task.turn = _ended  # it may be listed for a while, and what its turns used is to go now
            self._n_tasks -= 1
            if self._n_tasks == 0:
                self._condition.notify_all()

    def _put_later(self, task: PooledTask, due: float) -> None:
        task.due = due
        if task.listed <= due:  # looked at again then
            return
        task.listed = due
        heapq.heappush(self._later, (due, next(self._numbers), task))
        if self._timed_until is not None and due < self._timed_until:
            self._condition.notify_all()

    def _next(self) -> PooledTask | None:
        """The task of the next turn. None when this thread is to end."""
        with self._condition:
            until = time.monotonic() + LINGER_S
            while True:
                now = time.monotonic()
                while self._later and self._later[0][0] <= now:
                    self._look_at(heapq.heappop(self._later), now)
                if self._queue:
                    task = self._queue.popleft()
                    task.is_queued, task.is_running = False, True
                    return task
                watches = bool(self._later) and self._timed_until is None
                if self._n_tasks == 0 or (now >= until and not watches):
                    self._n_threads -= 1
                    return None
                self._wait(self._later[0][0] if watches else until, watches)

    def _look_at(self, entry: tuple[float, int, PooledTask], now: float) -> None:
        """Queue the task of an entry of the heap that has come, or list it again where it is due later."""
        at, _, task = entry
        if task.listed == at:
            task.listed = float("inf")
        if task.due <= now:
            self._put(task)
        elif task.due < float("inf"):
            self._put_later(task, task.due)

    def _wait(self, until: float, watches: bool) -> None:
        if watches:
            self._timed_until = until
        self._n_idle += 1
        self._condition.wait(max(until - time.monotonic(), 0.0))
        self._n_idle -= 1
        if watches:
            self._timed_until = None


def _ended() -> None:
    """No turn: the task has ended."""
