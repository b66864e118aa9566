"""Records of sources: batches that carry their position, and the positions that are stored."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from shoal_service.client.bodies import Format, body_of, checked_format
from shoal_service.client.errors import BadPointsError
from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, given, json_of
from shoal_service.client.points import Batcher, open_source


@dataclass(frozen=True)
class SourcePosition:
    """Position of a partition of a source in the log of the stream."""

    source: str
    partition: str
    position: str
    """Records up to here are stored."""
    before: str | None
    """Position before the last batch. None: it was the first one."""
    n_points: int
    """Points of the last batch."""
    seq: int
    """Number of its entry in the log."""
    log_offset: int
    """Points in the log up to and including that entry."""


@dataclass(frozen=True)
class StepResult:
    """Answer to `ingest_step`."""

    stream: str
    incarnation: str
    accepted: int
    log_offset: int
    replayed: bool
    """Whether the step was stored before. Then nothing was added."""


def ingest_step(
    session: Session,
    points: Any,
    *,
    source: str,
    partition: str = "0",
    before: str | None,
    after: str,
    format: Format = "msgpack",  # noqa: A002  as in `ingest`
    create: bool = False,
    holes: bool = False,
) -> Flow[StepResult]:
    """Send the records of a source between two positions as one batch, and store the position with them.

    `points`: a table (N, D), or `Records`. `before`: the position that must be stored, None for none. `after`: the
    position that is stored in the same transaction. `format`, `create` and `holes` as in `ingest`.

    Raises ConflictError of the type `source-position` unless the stored position, its `position`, is `before`. A step
    that was stored last may be sent again; it is answered and not stored twice.
    """
    kind = checked_format(format)
    opened = open_source(points)
    if not opened.n_points:
        raise BadPointsError("a step of a source needs one table with at least one row; send its points as a table")
    batcher = Batcher(opened.n_points, holes=holes)
    ((batch,),) = [list(batcher.push(item)) for item in opened.items]  # type: ignore[union-attr]  # a table is one item
    content, content_type = body_of(batch, kind)
    wanted = given(
        source=source,
        partition=partition,
        position_before=before,
        position=after,
        create="true" if create else None,
    )
    headers = {"Content-Type": content_type}
    request = Request("POST", data_path(session, "ingest"), wanted, headers, content)
    response = yield from exchange(session, request)
    body = json_of(response, "stream", "incarnation", "accepted", "log_offset")
    replayed = response.headers.get("Idempotency-Replayed") == "true"
    return StepResult(body["stream"], body["incarnation"], body["accepted"], body["log_offset"], replayed)


def sources(session: Session) -> Flow[list[SourcePosition]]:
    """Read the stored positions of the sources of the stream, by source and partition."""
    body = json_of((yield from exchange(session, Request("GET", data_path(session, "sources")))), "sources")
    return [SourcePosition(**{name: one[name] for name in SourcePosition.__annotations__}) for one in body["sources"]]


def forget_source(session: Session, /, source: str, *, partition: str | None = None) -> Flow[None]:
    """Forget the positions of a source, or of one of its partitions. The points stay. Raises NotFoundError if there
    are none. Needs an admin key where keys are needed.
    """
    path = data_path(session, f"sources/{quote(source, safe='')}")
    yield from exchange(session, Request("DELETE", path, given(partition=partition), repeatable=False))
