"""Requests without a network: a verb is a generator that yields what it needs and is sent what came of it.

The client's verbs, retries included, are written once in this style. A runner (`runners.py`) performs the steps, either
blocking or with `await`; a test can perform them by hand.
"""

import email.utils
import itertools
import random
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

import httpx

from shoal_service.client.errors import (
    OutcomeUnknownError,
    ProtocolError,
    ShoalClientError,
    UnreachableError,
    refused_class,
)

T = TypeVar("T")

DONE: Final = object()
"""What a `Pull` is answered with when there is nothing more."""


@dataclass(frozen=True)
class Request:
    """Send this; be answered with the response, or with the transport's error (as a value, not raised)."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True
    """Whether doing it twice is the same as doing it once."""
    timeout_s: float | None = None
    """At most this long for one try; `exchange` sets it."""


@dataclass(frozen=True)
class Pause:
    """Wait; be answered with None."""

    seconds: float


@dataclass(frozen=True)
class Pull:
    """Take the next item; be answered with it, or with DONE."""

    items: Iterator[Any] | AsyncIterator[Any]


Step: TypeAlias = Request | Pause | Pull
Reply: TypeAlias = httpx.Response | httpx.RequestError
Flow: TypeAlias = Generator[Step, Any, T]


@dataclass
class Session:
    """Where the requests go and how long one is tried: `retries` more times, `deadline_s` in all, whichever ends first.

    The pause before try n+1 is drawn from [b/2, b] with b = min(backoff_s * 2^n, max_backoff_s): many clients that were
    refused together do not come back together. A Retry-After is a lower limit on it.
    """

    base_url: str
    stream: str | None = None
    retries: int = 10
    deadline_s: float | None = 120.0
    timeout_s: float = 30.0
    """For one try."""
    backoff_s: float = 0.1
    max_backoff_s: float = 5.0
    retries_before_first_answer: int = 3
    """A server that has never answered is more likely not there than restarting: say so soon."""
    clock: Callable[[], float] = time.monotonic
    uniform: Callable[[float, float], float] = random.uniform
    answered: bool = False
    """Whether the server has answered anything yet."""

    def pause_s(self, tries: int, error: ShoalClientError) -> float:
        """How long to wait after `tries` failed tries, in seconds."""
        ceiling = min(self.backoff_s * 2.0 ** min(tries - 1, 30), self.max_backoff_s)
        return max(self.uniform(ceiling / 2, ceiling), error.retry_after_s or 0.0)

    def retries_for(self, error: ShoalClientError) -> int:
        """How many more tries this failure deserves."""
        if isinstance(error, UnreachableError) and not self.answered:
            return min(self.retries, self.retries_before_first_answer)
        return self.retries


def exchange(session: Session, request: Request) -> Flow[httpx.Response]:
    """Send until it is answered well; raise the last failure when tries, time or sense run out."""
    started = session.clock()
    for tries in itertools.count(1):
        left_s = None if session.deadline_s is None else session.deadline_s - (session.clock() - started)
        reply: Reply = yield replace(request, timeout_s=_least(session.timeout_s, left_s))
        session.answered = session.answered or isinstance(reply, httpx.Response)
        if isinstance(reply, httpx.Response) and reply.status_code < 400:
            return reply
        error = failure_of(reply, request, session.base_url)
        pause_s = session.pause_s(tries, error)
        in_time = left_s is None or session.clock() - started + pause_s < (session.deadline_s or 0.0)
        if not error.retryable or tries > session.retries_for(error) or not in_time:
            raise _after_tries(error, tries, session.clock() - started)
        yield Pause(pause_s)
    raise AssertionError("unreachable: the loop has no end")


def failure_of(reply: Reply, request: Request, base_url: str) -> ShoalClientError:
    """The error that a failed try amounts to; its `retryable` says whether this request may be sent again."""
    if isinstance(reply, httpx.Response):
        return _refusal(reply, request)
    if isinstance(reply, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return UnreachableError(
            f"cannot reach a shoal server at {base_url} ({reply}); start one with `shoal serve`, "
            "or give the address of the one that runs (base_url=..., or --url on the command line)",
            retryable=True,  # nothing was sent yet
        )
    if isinstance(reply, httpx.UnsupportedProtocol):
        return UnreachableError(f"base_url {base_url!r} is no http address; give one like http://127.0.0.1:8000")
    what = "no answer in time" if isinstance(reply, httpx.TimeoutException) else str(reply) or type(reply).__name__
    if request.repeatable:
        return UnreachableError(f"the connection to {base_url} failed: {what}", retryable=True)
    return OutcomeUnknownError(
        f"the reply to {request.method} {request.path} was lost ({what}): it may have been done; look before repeating"
    )


def _refusal(response: httpx.Response, request: Request) -> ShoalClientError:
    status = response.status_code
    problem = _problem(response)
    if problem is None and status < 500 and status != 429:
        return ProtocolError(
            f"{request.method} {response.url} answered {status} without problem details; is it a shoal server?",
            status=status,
        )
    problem = problem or {}
    detail = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")
    name = str(problem.get("type") or "about:blank").rstrip("/").rpartition("/")[2]
    retryable = bool(problem.get("retryable", status in (429, 502, 503, 504)))
    untouched = status in (429, 503)  # refused at the door: nothing was done
    return refused_class(status)(
        detail,
        status=status,
        type=name,
        detail=detail,
        retryable=retryable and (request.repeatable or untouched),
        retry_after_s=parse_retry_after(response.headers.get("Retry-After")),
        row=problem.get("row"),
    )


def _problem(response: httpx.Response) -> dict[str, Any] | None:
    if "json" not in response.headers.get("Content-Type", ""):
        return None
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def parse_retry_after(value: str | None) -> float | None:
    """Seconds from a Retry-After header, given as seconds or as a date; None when absent or unreadable."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _after_tries(error: ShoalClientError, tries: int, took_s: float) -> ShoalClientError:
    if tries > 1:
        error.args = (f"{error.args[0]} (gave up after {tries} tries in {took_s:.1f} s)",)
    return error


def _least(timeout_s: float, left_s: float | None) -> float:
    return timeout_s if left_s is None else max(0.001, min(timeout_s, left_s))
