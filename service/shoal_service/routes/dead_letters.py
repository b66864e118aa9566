"""GET /dead-letters and POST /dead-letters/{seq}/requeue: batches that the learner could not apply."""

from typing import Annotated, Any

from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import READ, WRITE
from shoal_service.errors import NotReadyError, NotRequeueableError, UnknownDeadLetterError
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer, stream_head
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import service_of, stream_of
from shoal_service.store import DeadLetterHead
from shoal_service.streams import StreamLetter
from shoal_service.wire import encode, first_points
from shoal_service.wire.models import DeadLetterOut, DeadLettersOut, RequeueOut

endpoints = Endpoints("dead letter")

Seq = Annotated[int, Path(ge=1, le=2**53, description="Number of the entry in the log.", examples=[17])]


@endpoints.get(
    "/dead-letters",
    READ,
    summary="Batches that could not be learnt",
    responses=docs.answers(docs.answer(200, DeadLettersOut, "Oldest first"), *docs.STREAM),
)
async def listed(request: Request) -> Response:
    """All dead letters of the stream, without their points. Each is stored durably and stays."""
    stream, heads = await service_of(request).dead_letters.all(stream_of(request))
    return json_answer(encode({**stream_head(stream), "dead_letters": [_row(head) for head in heads]}))


@endpoints.get(
    "/dead-letters/{seq}",
    READ,
    summary="One batch that could not be learnt",
    responses=docs.answers(docs.answer(200, DeadLetterOut, "The dead letter"), UnknownDeadLetterError, *docs.STREAM),
)
async def one(
    request: Request,
    seq: Seq,
    limit: Annotated[int, Query(ge=0, le=10_000, description="Largest number of points to show.")] = 100,
) -> Response:
    """The reason, and the first points of the batch."""
    service = service_of(request)
    found = await service.dead_letters.one(stream_of(request), seq)
    points = await service.compute(len(found.letter.payload), _points, found, limit)
    letter = found.letter
    head = DeadLetterHead(letter.seq, letter.log_offset, letter.n_points, len(letter.payload), letter.reason)
    return json_answer(encode({**stream_head(found.stream), **_row(head), "points": points}))


@endpoints.post(
    "/dead-letters/{seq}/requeue",
    WRITE,
    status_code=202,
    summary="Append a dead letter once more",
    responses=docs.answers(
        docs.answer(202, RequeueOut, "Stored durably; it will be learnt", ("Idempotency-Replayed",)),
        UnknownDeadLetterError, NotRequeueableError, NotReadyError, *docs.STREAM, *docs.WRITE, *docs.DOMAIN,
    ),
)  # fmt: skip
async def requeue(request: Request, seq: Seq) -> Response:
    """Append the points of a dead letter as a new entry of the log, for example after an upgrade that can learn them.

    Repeating the request has no second effect, as long as idempotency keys are remembered. The dead letter stays.
    """
    receipt = await service_of(request).dead_letters.requeue(stream_of(request), seq)
    answer = {
        "stream": receipt.stream,
        "incarnation": receipt.incarnation,
        "accepted": receipt.accepted,
        "log_offset": receipt.log_offset,
    }
    return json_answer(encode(answer), 202, {"Idempotency-Replayed": "true"} if receipt.replayed else {})


def _row(head: DeadLetterHead) -> dict[str, Any]:
    return {
        "seq": head.seq,
        "log_offset": head.log_offset,
        "n_points": head.n_points,
        "n_bytes": head.size,
        "reason": head.reason,
    }


def _points(found: StreamLetter, limit: int) -> list[Any] | None:
    try:
        points = found.points()
    except NotRequeueableError:
        return None
    return first_points(points.x, limit)
