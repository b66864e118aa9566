"""The one thread of a process that writes to Redis: whatever is queued goes in one exchange, answered after the reply.

While the server syncs one group, the next one gathers.

When the connection breaks, a job may or may not have been done. A job that may be repeated (its script knows a
repetition when it sees one) is sent again for a while; the caller of another is told that nobody knows.
"""

import logging
import queue
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import redis

from shoal_service.errors import StoreError, StoreStartingError, StoreUnavailableError
from shoal_service.store import rules
from shoal_service.store.redis import server_checks
from shoal_service.store.redis.applied import PendingMarks
from shoal_service.store.redis.connection import Link, Links
from shoal_service.store.redis.keys import RegistryKeys, StreamKeys
from shoal_service.store.redis.requests import Job, exchange_jobs, fail, in_doubt
from shoal_service.store.redis.scripts import load_commands, script
from shoal_service.store.redis.server_checks import Durability, ServerFacts

T = TypeVar("T")

GROUP_BYTES = 16 << 20
"""A group is closed at so much payload or so many jobs: it bounds how long the first one waits for the last one."""
GROUP_JOBS = 512
PATIENCE_S = 2.0
"""How long what may be repeated is sent again after the server went away; a restart on a small file fits into it."""
PAUSES_S = (0.02, 0.05, 0.1, 0.2)
ASK_AGAIN_S = 5.0
MOST_NOT_RUN = 4
_LINGER_PART, _LINGER_MAX_S = 0.2, 0.002

_log = logging.getLogger("shoal_service.store")


class RedisWriter:
    """Owns the writing connection from the first job to `close`."""

    def __init__(self, links: Links, durability: Durability, registry: RegistryKeys, marks: PendingMarks) -> None:
        self.exchanges = 0
        """Groups that were sent and answered: about one sync each."""
        self.facts: ServerFacts | None = None
        self._links = links
        self._durability = durability
        self._registry = registry
        self._sync_key = registry.probes if durability is Durability.WAIT_AOF else None
        self._marks = marks
        self._link: Link | None = None
        self._checked = False
        self._ask_again_at = 0.0
        self._patience_s = PATIENCE_S
        self._queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._entrance = threading.Lock()
        self._closed = False
        self._expected = 1  # callers of the last group, and those who came while it was under way
        self._arrived = 0
        self._linger_s = 0.0
        self._thread = threading.Thread(target=self._run, name="shoal-redis-writer", daemon=True)
        self._thread.start()

    def submit(self, job: Job[T]) -> "Future[T]":
        """Queue the job; its result, or its error, once it is as durable as it gets."""
        with self._entrance:
            if not self._closed:
                self._queue.put(job)
                return job.future
        job.future.set_exception(rules.closed())
        return job.future

    def run(self, job: Job[T]) -> T:
        """The same, waiting for the result."""
        return self.submit(job).result()

    def nudge(self) -> None:
        """Make a thread that waits for jobs notice that there is a mark."""
        with self._entrance:
            if not self._closed:
                self._queue.put(_NUDGE)

    def close(self) -> None:
        """Do what is queued, then let go of the connection. Idempotent."""
        with self._entrance:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    # -- in the thread

    def _run(self) -> None:
        last = False
        while not last:
            group, last = self._gather()
            n_callers = len(group)
            group = [*self._mark_jobs(), *group]
            if group:
                began = time.perf_counter()
                try:
                    self._send(group)
                except Exception as error:  # noqa: BLE001 - one job's fault must not end the thread that serves all
                    fail([job for job in group if not job.future.done()], error)
                    self._drop()
                self._linger_s = min(_LINGER_MAX_S, _LINGER_PART * (time.perf_counter() - began))
                self._expected = n_callers + self._arrived
        self._drop()

    def _gather(self) -> tuple[list[Job[Any]], bool]:
        """The next group, and whether it is the last; it may be empty when marks want to travel.

        It lingers for those who were just answered and are about to come back, as long as those who came during the
        last exchange are there already: taken at once, the two would take turns for ever, each waiting for the other's
        sync. A small part of an exchange's time brings them together; who appends alone is never made to wait.
        """
        group: list[Job[Any]] = []
        n_bytes, linger_until = 0, 0.0
        try:
            job = self._queue.get(timeout=self._marks.seconds_left())
            while job is not None:
                if job is not _NUDGE and job.future.set_running_or_notify_cancel():
                    group.append(job)
                    n_bytes += job.n_bytes
                if n_bytes >= GROUP_BYTES or len(group) >= GROUP_JOBS:
                    return group, False
                if not group:
                    job = self._queue.get(timeout=self._marks.seconds_left())
                elif self._queue.empty() and len(group) < self._expected:
                    linger_until = linger_until or time.perf_counter() + self._linger_s
                    job = self._queue.get(timeout=max(0.0, linger_until - time.perf_counter()))
                else:
                    job = self._queue.get_nowait()
        except queue.Empty:
            return group, False
        return group, True

    def _mark_jobs(self) -> list[Job[Any]]:
        """The marks that wait, in front of the appends: who marked and then appends is within the budget."""
        jobs = []
        for keys, mark in self._marks.take().items():
            command = script("mark").command((keys.meta,), *mark)
            job: Job[Any] = Job(keys.tag, command, lambda reply, resent: reply)
            job.future.add_done_callback(partial(self._marked, keys))
            jobs.append(job)
        return jobs

    def _marked(self, keys: StreamKeys, done: "Future[Any]") -> None:
        if done.exception() is None:
            self._marks.arrived(keys)
        else:
            self._marks.put_back(keys)

    def _send(self, group: list[Job[Any]]) -> None:
        """Send and answer all; what is lost on the way and may be repeated again and again, while patience lasts."""
        began = time.monotonic()
        give_up = began + self._patience_s
        pauses = iter(PAUSES_S)
        pause, not_run = PAUSES_S[0], 0
        while True:
            error = self._attempt(group)
            group = [job for job in group if not job.future.done()]
            if error is None:
                self._patience_s = PATIENCE_S
                if not group:
                    return
                if (not_run := not_run + 1) <= MOST_NOT_RUN:
                    continue
                error = StoreUnavailableError(
                    f"redis at {self._links.where} does not keep the scripts that it is given"
                )
                break
            if isinstance(error, StoreStartingError):
                give_up = max(give_up, began + PATIENCE_S)  # it is back
            if time.monotonic() + pause > give_up:
                self._patience_s = 0.0  # until it is back, nobody waits for longer than one attempt takes
                break
            time.sleep(pause)
            pause = next(pauses, pause)
        fail(group, error)

    def _attempt(self, group: list[Job[Any]]) -> StoreError | None:
        """One exchange. Jobs that may go again are left undone; the error of a connection that broke is returned."""
        try:
            link = self._ready(any(job.rechecks for job in group))
        except StoreStartingError as error:
            return error
        except StoreError as error:
            fail(group, error)
            return None
        except redis.exceptions.RedisError as error:
            self._drop()
            return self._links.error(error)
        try:
            answers = exchange_jobs(link, group, self._sync_key)
        except redis.exceptions.RedisError as error:
            self._drop()
            lost = self._links.error(error)
            fail([job for job in group if not job.repeatable], in_doubt(lost))
            return lost
        self.exchanges += 1
        self._arrived = self._queue.qsize()  # before anybody is answered: none of these is of this group
        for job, reply in answers:
            self._answer(job, reply)
        return None

    def _answer(self, job: Job[Any], reply: Any) -> None:
        if isinstance(reply, redis.exceptions.NoScriptError):
            job.was_not_run(alone=False)
            self._drop()  # the next connection loads the scripts again
            return
        if isinstance(reply, redis.exceptions.ExecAbortError):
            job.was_not_run(alone=True)  # and alone it is told why
            return
        try:
            if isinstance(reply, Exception):
                if isinstance(reply, redis.exceptions.ReadOnlyError):
                    self._drop()  # it became a replica: the address may lead to the new primary
                raise self._links.error(reply) from reply
            result = job.parse(reply, job.resent)
        except Exception as error:  # noqa: BLE001 - it is the caller's, whatever it is
            job.future.set_exception(error)
        else:
            job.future.set_result(result)

    def _ready(self, recheck: bool) -> Link:
        """The connection, to a server that was looked at. StoreError where it is not fit."""
        if self._link is None:
            self._link = self._links.connect()
            self._checked = False
            self._ask_again_at = 0.0
        if recheck or not self._checked:
            self._checked = False
            self.facts = server_checks.ask_facts(self._link, self._registry)
            server_checks.check(self._links.where, self.facts, self._durability)
            self._see_file_rewritten(self._link, self.facts)
            self._link.exchange(load_commands())
            self._checked = True
        return self._link

    def _see_file_rewritten(self, link: Link, facts: ServerFacts) -> None:
        ask = (
            time.monotonic() >= self._ask_again_at
        )  # a rewriting that fails, as on a full disk, must not go in circles
        if ask and not facts.rewritten:
            self._ask_again_at = time.monotonic() + ASK_AGAIN_S
        server_checks.rewrite_if_need_be(link, self._links.where, facts, self._registry, ask)

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


_NUDGE: Job[Any] = Job("", (), lambda reply, resent: None)
