"""What the writer sends: jobs, and one exchange of a group of them with the server."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Generic, TypeVar

import redis

from shoal_service.errors import StoreError, StoreUnavailableError
from shoal_service.store.redis.connection import Command, Link

T = TypeVar("T")

WAIT_AOF_MS = 4000
"""How long WAITAOF may take; a server that syncs every second and is well takes one."""


@dataclass
class Job(Generic[T]):
    """One command for the server, and what to make of its reply."""

    tag: str
    """Jobs of the same tag are done in order."""
    command: Command
    parse: Callable[[Any, bool], T]
    """From the reply, and whether the command had been sent before, to the result; it may raise."""
    n_bytes: int = 0
    repeatable: bool = True
    grouped: bool = False
    """May go in one transaction with its neighbours: what may not be done when the memory is full, that is."""
    rechecks: bool = False
    """Look at the server's settings again first."""
    sent: bool = False
    resent: bool = False
    future: "Future[T]" = field(default_factory=Future)

    def was_not_run(self, alone: bool) -> None:
        """The server did not even begin it, so it may go again; `alone`, it then takes no part in a transaction."""
        self.sent = self.resent
        self.grouped = self.grouped and not alone


def exchange_jobs(link: Link, group: list[Job[Any]], sync_key: str | None) -> list[tuple[Job[Any], Any]]:
    """Send all, and give each with its reply, which may be an error. Raises when the connection breaks.

    Neighbouring appends of one stream go as one MULTI/EXEC. A server that syncs always does so once for each round of
    its event loop, and a round takes some 16 KiB of a connection's commands: sent one by one, a group of 4 KiB batches
    would be synced four at a time. (A server whose memory is full queues nothing in a MULTI, whatever it is; so what a
    learner needs in order to make room stays out of it.)

    With a `sync_key`, WAITAOF follows, and a reply that does not say "synced" counts as a lost one. It speaks of this
    connection's own writes, and an answer that was known already wrote nothing here: so that key is written before it.
    The file is synced in order, hence with it all that came before, whoever wrote it.
    """
    batches = _batches(group)
    commands: list[Command] = []
    for batch in batches:
        plain = [job.command for job in batch]
        commands += [("MULTI",), *plain, ("EXEC",)] if len(plain) > 1 else plain
        for job in batch:
            job.resent, job.sent = job.sent, True
    if sync_key is not None:
        commands += [("INCR", sync_key), ("WAITAOF", 1, 0, WAIT_AOF_MS)]
    replies = iter(link.exchange(commands))
    answers: list[tuple[Job[Any], Any]] = []
    for batch in batches:
        if len(batch) == 1:
            answers.append((batch[0], next(replies)))
            continue
        answered = [next(replies) for _ in range(len(batch) + 2)][-1]
        of_each = answered if isinstance(answered, list) else [answered] * len(batch)
        answers += zip(batch, of_each, strict=True)
    if sync_key is not None:
        _check_synced(*replies)
    return answers


def _batches(group: list[Job[Any]]) -> list[list[Job[Any]]]:
    """The jobs by tag, in their order, cut where one may not be grouped with its neighbour."""
    by_tag: dict[str, list[Job[Any]]] = {}
    for job in group:
        by_tag.setdefault(job.tag, []).append(job)
    batches: list[list[Job[Any]]] = []
    for jobs in by_tag.values():
        for grouped, neighbours in groupby(jobs, lambda job: job.grouped):
            run = list(neighbours)
            batches += [run] if grouped else [[job] for job in run]
    return batches


def _check_synced(written: Any, synced: Any) -> None:
    if isinstance(written, Exception) or isinstance(synced, Exception) or synced[0] < 1:
        raise redis.exceptions.TimeoutError(f"WAITAOF: not synced in time ({written}, {synced})")


def in_doubt(lost: StoreError) -> StoreUnavailableError:
    """The error for a job that was sent, must not be sent again, and got no reply."""
    return StoreUnavailableError(
        f"{lost}; whether it was appended is not known: look at the log's end before sending it again, or send with an "
        "idempotency key, which makes sending again harmless"
    )


def fail(jobs: list[Job[Any]], error: Exception) -> None:
    """Tell all of them the same."""
    for job in jobs:
        job.future.set_exception(error)
