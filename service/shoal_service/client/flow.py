"""Requests without a network: a flow is a generator that yields steps and receives their results.

All methods of the clients are written once in this style, including retries. A runner (`runners.py`) performs the
steps, blocking or with `await`. A test can perform them by hand.
"""

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
from shoal_service.retry_after import parse_retry_after

T = TypeVar("T")

DONE: Final = object()
"""Result of a `Pull` if there are no more items."""


@dataclass(frozen=True)
class Request:
    """Step: send this request. The result is the response or the error of the transport, as a value."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    repeatable: bool = True
    """Whether the request may be sent twice with the same effect."""
    timeout_s: float | None = None
    """Longest time for one try; `exchange` sets it."""


@dataclass(frozen=True)
class Pause:
    """Step: wait. The result is None."""

    seconds: float


@dataclass(frozen=True)
class Pull:
    """Step: take the next item. The result is the item, or DONE."""

    items: Iterator[Any] | AsyncIterator[Any]


Step: TypeAlias = Request | Pause | Pull
Reply: TypeAlias = httpx.Response | httpx.RequestError
Flow: TypeAlias = Generator[Step, Any, T]


@dataclass
class Session:
    """Address of the server, and limits on tries: at most `retries` more tries, and `deadline_s` in all.

    The pause before try n+1 is drawn from [b/2, b] with b = min(backoff_s * 2^n, max_backoff_s), so that clients that
    were refused together do not return together. Retry-After is its lower limit.
    """

    base_url: str
    stream: str | None = None
    retries: int = 10
    deadline_s: float | None = 120.0
    timeout_s: float = 30.0
    """Longest time for one try."""
    backoff_s: float = 0.1
    max_backoff_s: float = 5.0
    retries_before_first_answer: int = 3
    """Fewer retries for a server that has never answered: it is probably not running."""
    clock: Callable[[], float] = time.monotonic
    uniform: Callable[[float, float], float] = random.uniform
    answered: bool = False
    """Whether the server has ever answered."""

    def pause_s(self, tries: int, error: ShoalClientError) -> float:
        """Pause after `tries` failed tries, in seconds."""
        ceiling = min(self.backoff_s * 2.0 ** min(tries - 1, 30), self.max_backoff_s)
        return max(self.uniform(ceiling / 2, ceiling), error.retry_after_s or 0.0)

    def retries_for(self, error: ShoalClientError) -> int:
        """Largest number of retries after this error."""
        if isinstance(error, UnreachableError) and not self.answered:
            return min(self.retries, self.retries_before_first_answer)
        return self.retries


def exchange(session: Session, request: Request) -> Flow[httpx.Response]:
    """Send a request until it succeeds. Raises the last error if it is final, or after all tries or the deadline.

    If the deadline ended the last try to read something, the error is the refusal before, which says why.
    """
    started = session.clock()
    refusal: ShoalClientError | None = None
    for tries in itertools.count(1):
        left_s = None if session.deadline_s is None else session.deadline_s - (session.clock() - started)
        reply: Reply = yield replace(request, timeout_s=_least(session.timeout_s, left_s))
        session.answered = session.answered or isinstance(reply, httpx.Response)
        if isinstance(reply, httpx.Response) and reply.is_success:
            return reply
        error = failure_of(reply, request, session.base_url)
        pause_s = session.pause_s(tries, error)
        in_time = left_s is None or session.clock() - started + pause_s < (session.deadline_s or 0.0)
        cut_short = isinstance(reply, httpx.TimeoutException) and left_s is not None and left_s < session.timeout_s
        if not error.retryable or tries > session.retries_for(error) or not in_time:
            final = refusal if cut_short and error.retryable and refusal is not None else error
            raise _after_tries(final, tries, session.clock() - started)
        refusal = error if isinstance(reply, httpx.Response) and request.method == "GET" else None
        yield Pause(pause_s)
    raise AssertionError("unreachable: the loop has no end")


def failure_of(reply: Reply, request: Request, base_url: str) -> ShoalClientError:
    """Make the error for a failed try. Its `retryable` says whether this request may be sent again."""
    if isinstance(reply, httpx.Response):
        return _refusal(reply, request)
    if isinstance(reply, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return UnreachableError(
            f"cannot reach a shoal server at {base_url} ({reply}); start one with `shoal serve`, "
            "or give the address of a running one (base_url=..., or --url on the command line)",
            retryable=True,  # nothing was sent yet
        )
    if isinstance(reply, httpx.UnsupportedProtocol):
        return UnreachableError(f"base_url {base_url!r} is not an http address; use one like http://127.0.0.1:8000")
    what = "no answer in time" if isinstance(reply, httpx.TimeoutException) else str(reply) or type(reply).__name__
    if request.repeatable:
        return UnreachableError(f"the connection to {base_url} failed: {what}", retryable=True)
    return OutcomeUnknownError(
        f"the answer to {request.method} {request.path} was lost ({what}); it may have been done, so check first"
    )


def _refusal(response: httpx.Response, request: Request) -> ShoalClientError:
    status = response.status_code
    problem = _problem(response)
    if response.has_redirect_location:
        return ProtocolError(
            f"{request.method} {response.url} answered {status} and leads to {response.headers['Location'][:200]}; "
            "redirects are not followed, so give the address of the server itself",
            status=status,
        )
    if problem is None and status < 500 and status != 429:
        return ProtocolError(
            f"{request.method} {response.url} answered {status} without problem details; is it a shoal server?",
            status=status,
        )
    problem = problem or {}
    detail = str(problem.get("detail") or problem.get("title") or f"the server answered {status}")
    name = str(problem.get("type") or "about:blank").rstrip("/").rpartition("/")[2]
    retryable = bool(problem.get("retryable", status in (429, 502, 503, 504)))
    untouched = status in (429, 503)  # refused early: nothing was done
    return refused_class(status)(
        detail,
        status=status,
        type=name,
        detail=detail,
        retryable=retryable and (request.repeatable or untouched),
        retry_after_s=parse_retry_after(response.headers.get("Retry-After")),
        row=problem.get("row"),
        position=problem.get("position"),
    )


def _problem(response: httpx.Response) -> dict[str, Any] | None:
    if "json" not in response.headers.get("Content-Type", ""):
        return None
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _after_tries(error: ShoalClientError, tries: int, took_s: float) -> ShoalClientError:
    if tries > 1:
        error.args = (f"{error.args[0]} (gave up after {tries} tries in {took_s:.1f} s)",)
    return error


def _least(timeout_s: float, left_s: float | None) -> float:
    return timeout_s if left_s is None else max(0.001, min(timeout_s, left_s))
