"""Writer of a Redis store: one connection that sends a group of requests in one exchange.

When the connection breaks, a request may or may not have been executed. A repeatable request is sent again for some
time; its script recognises a repetition. The caller of any other request is told that the outcome is unknown.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Generic, TypeVar

import redis

from shoal_service.errors import StoreError, StoreStartingError, StoreUnavailableError
from shoal_service.store.group_commit import GroupCommit, fail
from shoal_service.store.redis import server_checks
from shoal_service.store.redis.applied_marks import PendingMarks
from shoal_service.store.redis.connection import Command, Connection, Connections
from shoal_service.store.redis.keys import FORMAT_VERSION, RegistryKeys, StreamKeys
from shoal_service.store.redis.scripts import load_commands, script
from shoal_service.store.redis.server_checks import Durability, ServerFacts

T = TypeVar("T")

RETRY_FOR_S = 2.0
"""Time for which repeatable requests are sent again after the server went away. A quick restart takes less."""
PAUSES_S = (0.02, 0.05, 0.1, 0.2)
REWRITE_EVERY_S = 5.0
"""Least time between two requests to rewrite the file. A rewrite that fails, as on a full disk, must not loop."""
MOST_NOT_RUN = 4
WAIT_AOF_MS = 4000
"""Timeout of WAITAOF. A healthy server that syncs every second takes one second."""


@dataclass
class WriteRequest(Generic[T]):
    """Command for the server, and the interpretation of its reply."""

    tag: str
    """Requests of the same tag are executed in order."""
    command: Command
    parse: Callable[[Any, bool], T]
    """Converts the reply, and whether the command had been sent before, to the result. It may raise."""
    n_bytes: int = 0
    repeatable: bool = True
    grouped: bool = False
    """Whether it may share a transaction with its neighbours. A full memory fails such a transaction."""
    rechecks: bool = False
    """Whether the settings of the server are checked again first."""
    sent: bool = False
    resent: bool = False
    future: "Future[T]" = field(default_factory=Future)

    def reset(self, alone: bool) -> None:
        """Prepare for another sending after the server did not start it. `alone` keeps it out of transactions."""
        self.sent = self.resent
        self.grouped = self.grouped and not alone


class RedisWriter:
    """Owner of the writing connection, from the first request to `close`."""

    def __init__(
        self, connections: Connections, durability: Durability, registry: RegistryKeys, marks: PendingMarks
    ) -> None:
        self.exchanges = 0
        """Groups that were sent and answered. Each costs about one sync."""
        self.facts: ServerFacts | None = None
        self._connections = connections
        self._durability = durability
        self._registry = registry
        self._sync_key = registry.probes if durability is Durability.WAIT_AOF else None
        self._marks = marks
        self._connection: Connection | None = None
        self._checked = False
        self._rewrite_at = 0.0
        self._retry_for_s = RETRY_FOR_S
        self._groups = GroupCommit[WriteRequest[Any]](
            "shoal-redis-writer", self._commit, idle_s=marks.seconds_left, finish=self._disconnect
        )

    def submit(self, request: WriteRequest[T]) -> "Future[T]":
        """Queue a request. The future has its result once that is as durable as the setting promises."""
        self._groups.submit(request)
        return request.future

    def run(self, request: WriteRequest[T]) -> T:
        """Queue a request and wait for its result."""
        return self.submit(request).result()

    def wake(self) -> None:
        """Make the waiting thread notice a new mark."""
        self._groups.wake()

    def close(self) -> None:
        """Send what is queued, then close the connection. May be called again."""
        self._groups.close()

    # Everything below runs in the thread of `GroupCommit`.

    def _commit(self, group: list[WriteRequest[Any]]) -> None:
        # Marks go first: a caller that marks and then appends is within the budget.
        requests = [*self._mark_requests(), *group]
        if not requests:
            return
        try:
            self._send(requests)
        except Exception as error:  # noqa: BLE001 - the error of one group must not end the thread that serves all
            self._disconnect()
            fail([request for request in requests if not request.future.done()], error)

    def _mark_requests(self) -> list[WriteRequest[Any]]:
        requests = []
        for keys, mark in self._marks.take().items():
            command = script("mark_applied").command((keys.meta,), *mark)
            request: WriteRequest[Any] = WriteRequest(keys.tag, command, lambda reply, resent: reply)
            request.future.add_done_callback(partial(self._mark_done, keys))
            requests.append(request)
        return requests

    def _mark_done(self, keys: StreamKeys, done: "Future[Any]") -> None:
        if done.exception() is None:
            self._marks.confirm(keys)
        else:
            self._marks.put_back(keys)

    def _send(self, group: list[WriteRequest[Any]]) -> None:
        """Send and answer all. Repeatable requests that were lost on the way are sent again for some time."""
        began = time.monotonic()
        give_up = began + self._retry_for_s
        pauses = iter(PAUSES_S)
        pause, not_run = PAUSES_S[0], 0
        while True:
            error = self._attempt(group)
            group = [request for request in group if not request.future.done()]
            if error is None:
                self._retry_for_s = RETRY_FOR_S
                if not group:
                    return
                if (not_run := not_run + 1) <= MOST_NOT_RUN:
                    continue
                error = StoreUnavailableError(
                    f"redis at {self._connections.where} does not keep the scripts that it is given"
                )
                break
            if isinstance(error, StoreStartingError):
                give_up = max(give_up, began + RETRY_FOR_S)  # it is back
            if time.monotonic() + pause > give_up:
                self._retry_for_s = 0.0  # until it is back, nobody waits longer than one attempt
                break
            time.sleep(pause)
            pause = next(pauses, pause)
        fail(group, error)

    def _attempt(self, group: list[WriteRequest[Any]]) -> StoreError | None:
        """Send the group once. Requests to send again stay undone. Returns the error of a broken connection."""
        try:
            connection = self._ready(any(request.rechecks for request in group))
        except StoreStartingError as error:
            return error
        except StoreError as error:
            fail(group, error)
            return None
        except redis.exceptions.RedisError as error:
            self._disconnect()
            return self._connections.error(error)
        try:
            assert self.facts is not None
            answers = exchange_requests(connection, group, self._sync_key, self.facts)
        except redis.exceptions.RedisError as error:
            self._disconnect()
            lost = self._connections.error(error)
            fail([request for request in group if not request.repeatable], _outcome_unknown(lost))
            return lost
        self.exchanges += 1
        self._groups.count_arrivals()
        for request, reply in answers:
            self._answer(request, reply)
        return None

    def _answer(self, request: WriteRequest[Any], reply: Any) -> None:
        if isinstance(reply, redis.exceptions.NoScriptError):
            request.reset(alone=False)
            self._disconnect()  # the next connection loads the scripts again
            return
        if isinstance(reply, redis.exceptions.ExecAbortError):
            request.reset(alone=True)  # sent alone, it gets the reason
            return
        try:
            if isinstance(reply, Exception):
                if isinstance(reply, redis.exceptions.ReadOnlyError):
                    self._disconnect()  # the server became a replica: the address may lead to the new primary
                raise self._connections.error(reply) from reply
            result = request.parse(reply, request.resent)
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the caller
            request.future.set_exception(error)
        else:
            request.future.set_result(result)

    def _ready(self, recheck: bool) -> Connection:
        """Return a connection to a server that passed the checks. StoreError when it does not pass."""
        if recheck and self._connection is not None and self._connections.has_moved(self._connection):
            self._disconnect()
        if self._connection is None:
            self._connection = self._connections.connect()
            self._checked = False
            self._rewrite_at = 0.0
        if recheck or not self._checked:
            self._checked = False
            self.facts = server_checks.ask_facts(self._connection, self._registry)
            server_checks.forget_rewrite(self._connection, self.facts, self._registry)
            server_checks.check(self._connections.where, self.facts, self._durability)
            self._ensure_rewritten(self._connection, self.facts)
            if self.facts.format_version not in (None, FORMAT_VERSION):
                self._connection.exchange([("SET", self._registry.format, FORMAT_VERSION)])
            self._connection.exchange(load_commands())
            self._checked = True
        return self._connection

    def _ensure_rewritten(self, connection: Connection, facts: ServerFacts) -> None:
        ask = time.monotonic() >= self._rewrite_at
        if ask and not facts.rewritten:
            self._rewrite_at = time.monotonic() + REWRITE_EVERY_S
        server_checks.ensure_rewritten(connection, self._connections.where, facts, self._registry, ask)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# -- one exchange


def exchange_requests(
    connection: Connection, group: list[WriteRequest[Any]], sync_key: str | None, facts: ServerFacts
) -> list[tuple[WriteRequest[Any], Any]]:
    """Send all, and return each with its reply, which may be an error. Raises when the connection breaks.

    Neighbouring appends of one stream are sent as one MULTI/EXEC. A server that always syncs does so once in each round
    of its event loop, and a round takes about 16 KiB of a connection's commands. Sent one by one, a group of 4 KiB
    batches would be synced four at a time. A server with full memory refuses every command inside a MULTI. What a
    learner needs to free memory therefore stays outside.

    With a `sync_key`, WAITAOF follows, and a reply other than "synced" counts as a lost one. WAITAOF covers the writes
    of this connection only, and a known answer wrote nothing. So that key is written first. The file is synced in
    order, hence with all earlier writes of any connection.

    At the end the server is asked whether it still has the settings in `facts`. Replies of a server whose file was
    switched off count as lost.
    """
    batches = _batches(group)
    commands: list[Command] = []
    for batch in batches:
        plain = [request.command for request in batch]
        commands += [("MULTI",), *plain, ("EXEC",)] if len(plain) > 1 else plain
        for request in batch:
            request.resent, request.sent = request.sent, True
    if sync_key is not None:
        commands += [("INCR", sync_key), ("WAITAOF", 1, 0, WAIT_AOF_MS)]
    commands.append(server_checks.ASK_DURABILITY)
    replies = iter(connection.exchange(commands))
    answers: list[tuple[WriteRequest[Any], Any]] = []
    for batch in batches:
        if len(batch) == 1:
            answers.append((batch[0], next(replies)))
            continue
        executed = [next(replies) for _ in range(len(batch) + 2)][-1]
        of_each = executed if isinstance(executed, list) else [executed] * len(batch)
        answers += zip(batch, of_each, strict=True)
    if sync_key is not None:
        _check_synced(next(replies), next(replies))
    server_checks.check_unchanged(next(replies), facts)
    return answers


def _batches(group: list[WriteRequest[Any]]) -> list[list[WriteRequest[Any]]]:
    """Return the requests by tag, in their order, cut where one may not be grouped with its neighbour."""
    by_tag: dict[str, list[WriteRequest[Any]]] = {}
    for request in group:
        by_tag.setdefault(request.tag, []).append(request)
    batches: list[list[WriteRequest[Any]]] = []
    for requests in by_tag.values():
        for grouped, neighbours in groupby(requests, lambda request: request.grouped):
            run = list(neighbours)
            batches += [run] if grouped else [[request] for request in run]
    return batches


def _check_synced(written: Any, synced: Any) -> None:
    if isinstance(written, Exception) or isinstance(synced, Exception) or synced[0] < 1:
        raise redis.exceptions.TimeoutError(f"WAITAOF: not synced in time ({written}, {synced})")


def _outcome_unknown(lost: StoreError) -> StoreUnavailableError:
    """Return the error for a request that was sent, got no reply, and must not be sent again."""
    return StoreUnavailableError(
        f"{lost}; whether it was appended is not known: look at the log's end before sending it again, or send with an "
        "idempotency key, which makes sending again harmless"
    )
