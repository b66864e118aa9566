"""/records: points under keys of their own, with the component that each belongs to today."""

from typing import Annotated, Any

import msgspec
from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import READ, WRITE
from shoal_service.errors import (
    BodyTooLargeError,
    DeadLetteredError,
    LimitError,
    MalformedBodyError,
    NotReadyError,
    OffsetNotAppliedError,
    RecordNotFoundError,
    UnsupportedMediaTypeError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import MinOffset, Timeout, service_of, stream_of
from shoal_service.streams import Record
from shoal_service.wire import decode_lookup, encode, time_text
from shoal_service.wire.models import ForgottenOut, LookupIn, LookupOut, RecordOut

endpoints = Endpoints("records")

FORGOTTEN = "key, time and payload are forgotten; what the components learnt from the point stays"

Key = Annotated[str, Path(description="The key, URL-encoded. It may contain slashes.", examples=["host-7/2026-01-31"])]


@endpoints.post(
    "/records/lookup",
    READ,
    summary="Look up many records",
    openapi_extra=docs.json_body(LookupIn),
    responses=docs.answers(
        docs.answer(200, LookupOut, "One record per key, in order"),
        MalformedBodyError, BodyTooLargeError, UnsupportedMediaTypeError, LimitError, *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def lookup(request: Request, min_offset: MinOffset = None, timeout: Timeout = None) -> Response:
    """The records of up to 10,000 keys. null stands for a key that no record has."""
    service = service_of(request)
    async with service.uploads.read(request, service.limits.max_body_bytes) as upload:
        keys = decode_lookup(*upload, service.limits)
    found = await service.streams.records(
        stream_of(request), keys, min_offset=min_offset, timeout_s=service.wait_s(timeout)
    )
    return json_answer(encode({"records": [None if record is None else shown(record) for record in found]}))


@endpoints.get(
    "/records/{key:text}",
    READ,
    summary="One record",
    responses=docs.answers(docs.answer(200, RecordOut, "The record"), RecordNotFoundError, *docs.STREAM, *docs.READ),
)
async def one_record(request: Request, key: Key, min_offset: MinOffset = None, timeout: Timeout = None) -> Response:
    """The newest point under a key: the component that it was assigned to, and the one that it belongs to today."""
    service, name = service_of(request), stream_of(request)
    (record,) = await service.streams.records(name, [key], min_offset=min_offset, timeout_s=service.wait_s(timeout))
    if record is None:
        raise _not_found(name, key)
    return json_answer(encode(shown(record)))


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
    receipt = await service.streams.forget(name, key, wait_s)
    if receipt is None:
        raise _not_found(name, key)
    done = await service.streams.seen(receipt, wait_s)
    return json_answer(encode({"key": key, "forgotten": done, "detail": FORGOTTEN}), 200 if done else 202)


def shown(record: Record) -> dict[str, Any]:
    """A record as `RecordOut`."""
    stored = record.stored
    time: str | float = time_text(stored.time) if stored.time_is_text else stored.time
    return {
        "key": stored.key.decode(),
        "component": record.resolved.component,
        "assigned": stored.assigned,
        "log_offset": stored.log_offset,
        "time": time,
        "payload": msgspec.Raw(stored.payload) if stored.payload else None,
        "novelty": stored.novelty,
        "log_density": stored.log_density,
        "resolved": record.resolved.how,
    }


def _not_found(stream: str, key: str) -> RecordNotFoundError:
    return RecordNotFoundError(
        f"stream {stream!r} has no record {key[:80]!r}; it never came with a key, was forgotten, or is no longer kept"
    )
