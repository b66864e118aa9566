"""/records: points under keys of their own, with the component that each belongs to today."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import UnknownComponentError
from shoal_service.access import READ, WRITE
from shoal_service.errors import (
    DeadLetteredError,
    LimitError,
    NotReadyError,
    OffsetNotAppliedError,
    RecordNotFoundError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.events import event_place
from shoal_service.routes.service import MinOffset, Service, Timeout, service_of, stream_of
from shoal_service.streams import NO_LABEL, Label, Position, Record, Stored
from shoal_service.wire import decode_lookup, decode_rank, encode, encode_cursor, time_text
from shoal_service.wire.models import ForgottenOut, LookupIn, LookupOut, MemberRow, MembersOut, RecordOut, RecordsOut

endpoints = Endpoints("records")

MAX_LIMIT = 1_000
_LOG_ORDER = "log"
"""Name of the order of `GET /records` in its cursors."""

FORGOTTEN = "key, time and payload are forgotten; what the components learnt from the point stays"

Key = Annotated[str, Path(description="The key, URL-encoded. It may contain slashes.", examples=["host-7/2026-01-31"])]


@endpoints.get(
    "/records",
    READ,
    summary="Records that belong elsewhere since an event",
    responses=docs.answers(docs.answer(200, RecordsOut, "A page of records"), *docs.STREAM, *docs.READ),
)
async def changed_records(
    request: Request,
    changed_since: Annotated[
        str | None, Query(description="Id of an event, as /events gives it. Without it, every record is listed.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Largest number of records on a page.")] = 100,
    cursor: Annotated[str | None, Query(description="`next` of the previous page.")] = None,
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """Records that may belong to another component than at the event, in the order of the log.

    These are the records whose component was retired since then, those that a refinement assigned again, and after a
    restore all. A table that copies these answers follows the stream. A key that came again is not among them for that
    reason alone: the answer to its batch had its component.
    """
    service, name = service_of(request), stream_of(request)
    stream = await service.streams.get(name)
    event = None if changed_since is None else event_place(stream, changed_since)
    after = None if cursor is None else Position(*decode_rank(cursor, _LOG_ORDER))
    found, last = await service.records.changed_since(
        name, event, limit, after, min_offset=min_offset, timeout_s=service.wait_s(timeout)
    )
    following = None if last is None else encode_cursor(*last, _LOG_ORDER)
    labels = await labels_of(service, name)
    return json_answer(encode({"records": [shown(record, labels) for record in found], "next": following}))


@endpoints.get(
    "/components/{component}/records",
    READ,
    summary="The records of a component",
    responses=docs.answers(
        docs.answer(200, MembersOut, "A page of records"), UnknownComponentError, *docs.STREAM, *docs.READ
    ),
)
async def members(
    request: Request,
    component: Annotated[int, Path(ge=0, lt=2**53, description="Id of the component.", examples=[3])],
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Largest number of records on a page.")] = 100,
    cursor: Annotated[str | None, Query(description="`next` of the previous page.")] = None,
    order: Annotated[
        Literal["newest", "typical", "atypical"],
        Query(
            description="`newest` first; or by log density at the time of learning: `typical` begins with the highest, "
            "`atypical` with the lowest."
        ),
    ] = "newest",
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """The records that belong to a component today. A retired component has none: its successors have them.

    The search reads some twenty bytes of every record of the stream.
    """
    service = service_of(request)
    after = None if cursor is None else Position(*decode_rank(cursor, order))
    asked = (component, order, limit, after)
    page = await service.records.members(
        stream_of(request), *asked, min_offset=min_offset, timeout_s=service.wait_s(timeout)
    )
    following = None if page.last is None else encode_cursor(*page.last, order)
    return json_answer(encode({"records": list(map(_member, page.records)), "next": following}))


def _member(record: Stored) -> dict[str, Any]:
    return {name: value for name, value in _stored(record).items() if name in MemberRow.model_fields}


@endpoints.post(
    "/records/lookup",
    READ,
    summary="Look up many records",
    openapi_extra=docs.json_body(LookupIn),
    responses=docs.answers(
        docs.answer(200, LookupOut, "One record per key, in order"),
        *docs.JSON_BODY, LimitError, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def lookup(request: Request, min_offset: MinOffset = None, timeout: Timeout = None) -> Response:
    """The records of up to 10,000 keys. null stands for a key that no record has."""
    service = service_of(request)
    async with service.uploads.read(request, service.limits.max_body_bytes) as upload:
        keys = decode_lookup(*upload, service.limits)
    found = await service.records.find(
        stream_of(request), keys, min_offset=min_offset, timeout_s=service.wait_s(timeout)
    )
    labels = await labels_of(service, stream_of(request))
    rows = [None if record is None else shown(record, labels) for record in found]
    return json_answer(encode({"records": rows}))


@endpoints.get(
    "/records/{key:text}",
    READ,
    summary="One record",
    responses=docs.answers(docs.answer(200, RecordOut, "The record"), RecordNotFoundError, *docs.STREAM, *docs.READ),
)
async def one_record(request: Request, key: Key, min_offset: MinOffset = None, timeout: Timeout = None) -> Response:
    """The newest point under a key: the component that it was assigned to, and the one that it belongs to today."""
    service, name = service_of(request), stream_of(request)
    (record,) = await service.records.find(name, [key], min_offset=min_offset, timeout_s=service.wait_s(timeout))
    if record is None:
        raise _not_found(name, key)
    return json_answer(encode(shown(record, await labels_of(service, name))))


@endpoints.delete(
    "/records/{key:text}",
    WRITE,
    summary="Forget a record",
    responses=docs.answers(
        docs.answer(200, ForgottenOut, "Forgotten")
        | docs.answer(202, ForgottenOut, "Stored durably; it will be forgotten"),
        RecordNotFoundError, NotReadyError, OffsetNotAppliedError, DeadLetteredError, *docs.STREAM, *docs.WRITE,
    ),
)  # fmt: skip
async def forget(request: Request, key: Key, timeout: Timeout = None) -> Response:
    """Forget key, time and payload of a record. What the components learnt from its point stays learnt.

    The batch that brought the record stays in the log until the log is trimmed.
    """
    service, name = service_of(request), stream_of(request)
    wait_s = service.wait_s(timeout)
    receipt = await service.records.forget(name, key, wait_s)
    if receipt is None:
        raise _not_found(name, key)
    done = await service.streams.wait_until_visible(receipt, wait_s)
    return json_answer(encode({"key": key, "forgotten": done, "detail": FORGOTTEN}), 200 if done else 202)


async def labels_of(service: Service, stream: str) -> dict[int, Label]:
    """The labels of the live components of a stream."""
    labels = await service.streams.labels(stream)
    if not labels.given:
        return {}
    return labels.shown(await service.streams.view(stream, timeout_s=service.wait_s(None)))


def shown(record: Record, labels: Mapping[int, Label]) -> dict[str, Any]:
    """A record as `RecordOut`."""
    component = record.resolved.component
    label = None if component is None else labels.get(component, NO_LABEL).label
    about = {"component": component, "label": label, "resolved": record.resolved.how}
    return {**_stored(record.stored), **about}


def _stored(record: Stored) -> dict[str, Any]:
    return {
        "key": record.key.decode(),
        "assigned": record.assigned,
        "log_offset": record.log_offset,
        "time": time_text(record.time) if record.time_is_text else record.time,
        "payload": msgspec.Raw(record.payload) if record.payload else None,
        "novelty": record.novelty,
        "log_density": record.log_density,
    }


def _not_found(stream: str, key: str) -> RecordNotFoundError:
    return RecordNotFoundError(
        f"stream {stream!r} has no record {key[:80]!r}; it never came with a key, was forgotten, or is no longer kept"
    )
