"""Refinements: request them and read their progress."""

import uuid
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from shoal_service.client.flow import Flow, Pause, Request, Session, exchange
from shoal_service.client.http import data_path, given, json_of, segment

OPEN: Final = ("queued", "running")
POLL_S = 0.5


@dataclass(frozen=True)
class Refinement:
    """A refinement of a stream."""

    id: str
    stream: str
    state: str
    """`queued`, `running`, `adopted`, `not-adopted` or `failed`; the last three are final."""
    method: str
    why: str
    """`asked`, or the reason why the stream started it."""
    attempts: int
    progress: dict[str, Any] | None
    """While it runs."""
    bound_before: float | None
    """Lower bound on the evidence, in nats."""
    bound_after: float | None
    components_before: int | None
    components_after: int | None
    seconds: float | None
    reason: str | None
    """Why it was not adopted, or why it failed."""
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The whole answer of the server."""

    @property
    def done(self) -> bool:
        """Whether the result is known."""
        return self.state not in OPEN

    @property
    def adopted(self) -> bool:
        """Whether it was adopted."""
        return self.state == "adopted"

    @classmethod
    def from_json(cls, body: dict[str, Any], stream: str) -> "Refinement":
        """Read one refinement from an answer."""
        names = ("id", "state", "method", "why", "attempts", "progress", "bound_before", "bound_after",
                 "components_before", "components_after", "seconds", "reason")  # fmt: skip
        return cls(stream=stream, raw=body, **{name: body.get(name) for name in names})  # type: ignore[arg-type]


def refine(session: Session, /, *, method: str | None = None, window: int | None = None) -> Flow[Refinement]:
    """Request batch inference over the window of the stream. Returns the refinement, which is queued or runs.

    Raises ConflictError for a stream without points or without a window, and UnavailableError if too many are queued.
    The request has a key, so a retry after a lost answer does not request a second one.
    """
    asked = {name: value for name, value in (("method", method), ("window", window)) if value is not None}
    headers = {"Content-Type": "application/json", "Idempotency-Key": uuid.uuid4().hex}
    request = Request("POST", data_path(session, "refine"), headers=headers, content=msgspec.json.encode(asked))
    body = json_of((yield from exchange(session, request)), "id", "state", "stream")
    return Refinement.from_json(body, body["stream"])


def refinement(
    session: Session, /, refinement_id: str, *, wait: bool = False, timeout_s: float | None = None
) -> Flow[Refinement]:
    """Read a refinement. With `wait`, returns when its result is known or `timeout_s` is over.

    Raises NotFoundError for an unknown id. The newest hundred refinements of a stream are kept.
    """
    began = session.clock()
    while True:
        path = data_path(session, f"refinements/{segment(refinement_id)}")
        body = json_of((yield from exchange(session, Request("GET", path))), "id", "state", "stream")
        found = Refinement.from_json(body, body["stream"])
        late = timeout_s is not None and session.clock() - began >= timeout_s
        if found.done or not wait or late:
            return found
        yield Pause(POLL_S)


def refinements(session: Session) -> Flow[list[Refinement]]:
    """The newest hundred refinements of the stream, newest first."""
    request = Request("GET", data_path(session, "refinements"), given())
    body = json_of((yield from exchange(session, request)), "stream", "refinements")
    return [Refinement.from_json(one, body["stream"]) for one in body["refinements"]]
