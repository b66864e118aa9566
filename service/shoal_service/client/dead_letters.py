"""Dead letters: batches that the server could not learn."""

from dataclasses import dataclass
from typing import Any

from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, given, json_of


@dataclass(frozen=True)
class DeadLetter:
    """A batch that could not be learnt."""

    stream: str
    seq: int
    """Number of its entry in the log."""
    log_offset: int
    n_points: int
    n_bytes: int
    reason: str
    points: list[Any] | None = None
    """Its first points; only from `dead_letter`. None where the payload holds none that can be read."""

    @classmethod
    def from_json(cls, body: dict[str, Any], stream: str) -> "DeadLetter":
        """Read one dead letter from an answer."""
        names = ("seq", "log_offset", "n_points", "n_bytes", "reason")
        return cls(stream=stream, points=body.get("points"), **{name: body[name] for name in names})


@dataclass(frozen=True)
class Requeued:
    """Answer to `requeue_dead_letter`."""

    stream: str
    accepted: int
    log_offset: int
    replayed: bool
    """Whether it had been requeued before. Then nothing was added."""


def dead_letters(session: Session) -> Flow[list[DeadLetter]]:
    """Read the dead letters of the stream without their points, oldest first."""
    response = yield from exchange(session, Request("GET", data_path(session, "dead-letters")))
    body = json_of(response, "stream", "dead_letters")
    return [DeadLetter.from_json(one, body["stream"]) for one in body["dead_letters"]]


def dead_letter(session: Session, /, seq: int, *, limit: int | None = None) -> Flow[DeadLetter]:
    """Read the dead letter of an entry with at most `limit` of its points. Raises NotFoundError if there is none."""
    request = Request("GET", data_path(session, f"dead-letters/{int(seq)}"), given(limit=limit))
    body = json_of((yield from exchange(session, request)), "stream", "seq", "reason")
    return DeadLetter.from_json(body, body["stream"])


def requeue_dead_letter(session: Session, /, seq: int) -> Flow[Requeued]:
    """Append the points of a dead letter once more. A repetition within a day adds nothing.

    Raises NotFoundError if there is none, ConflictError if it holds no points.
    """
    response = yield from exchange(session, Request("POST", data_path(session, f"dead-letters/{int(seq)}/requeue")))
    body = json_of(response, "stream", "accepted", "log_offset")
    replayed = response.headers.get("Idempotency-Replayed") == "true"
    return Requeued(body["stream"], body["accepted"], body["log_offset"], replayed)
