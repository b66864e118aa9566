"""/streams: list, create, change and delete streams."""

import fnmatch
import hashlib
import time
from collections.abc import Collection
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, NoReturn

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import ADMIN, READ, READ_LISTED, WRITE
from shoal_service.errors import (
    NotReadyError,
    PreconditionFailedError,
    SettingsMovedError,
    StreamConflictError,
    StreamGoneError,
    UnknownStreamError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import excludes, holds_already, json_answer, may_change, not_modified, tagged
from shoal_service.routes.authorization import caller_of
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.key_limits import KeyLimits
from shoal_service.routes.service import Service, service_of, stream_of
from shoal_service.store import StreamRecord
from shoal_service.streams import StreamInfo, Summary, shown_time
from shoal_service.wire import decode_name_cursor, encode
from shoal_service.wire.models import StreamOut, StreamsOut, decode_stream_settings

MAX_LIMIT = 10_000

listing = Endpoints("streams")
endpoints = Endpoints("streams")


@listing.get(
    "/streams",
    READ_LISTED,
    summary="Streams, by name",
    responses=docs.answers(
        docs.answer(
            200, StreamsOut, "A page of streams", example={"streams": [docs.example_of(StreamOut)], "next": None}
        ),
        *docs.STORE,
    ),
)  # fmt: skip
async def streams(
    request: Request,
    limit: Annotated[
        int | None,
        Query(ge=1, le=MAX_LIMIT, description="Largest number of streams on a page. Without it, all are on one."),
    ] = None,
    cursor: Annotated[str | None, Query(description="`next` of the previous page.")] = None,
    name: Annotated[
        str,
        Query(
            max_length=200,
            description="Only streams of this name, or of names that match a pattern with `*`, `?` or `[a-f]`.",
            examples=["sensors-*"],
        ),
    ] = "*",
) -> Response:
    """The streams that the key covers, with their settings and progress. On the last page, `next` is null."""
    caller, after = caller_of(request.scope), None if cursor is None else decode_name_cursor(cursor)

    def is_wanted(stream: str) -> bool:
        return caller.covers(stream) and fnmatch.fnmatchcase(stream, name)

    found, following = await service_of(request).streams.list_page(limit, after, is_wanted)
    return json_answer(encode({"streams": list(map(_shown, found)), "next": following}))


@endpoints.get(
    "",
    READ,
    summary="One stream and its settings",
    openapi_extra=docs.conditions(docs.IF_NONE_MATCH),
    responses=docs.answers(docs.answer(200, StreamOut, "The stream", ("ETag",)) | docs.NOT_MODIFIED, *docs.STREAM),
)
async def get_stream(request: Request) -> Response:
    """One stream. Its entity tag stands for all that is shown but `snapshot_age_s`. As If-Match of PUT and DELETE it
    stands for the incarnation and the settings alone.
    """
    info = await service_of(request).streams.describe(stream_of(request))
    shown = _shown(info)
    tag = _etag(info.record, shown)
    return not_modified(tag) if holds_already(request, tag) else tagged(encode(shown), tag)


@endpoints.put(
    "",
    WRITE,
    summary="Create a stream, or change its settings",
    openapi_extra=docs.settings_body() | docs.conditions(docs.IF_MATCH, docs.IF_NONE),
    responses=docs.answers(
        docs.answer(200, StreamOut, "The settings are changed, from the next entry of the log on", ("ETag",))
        | docs.answer(201, StreamOut, "The stream is created", ("ETag", "Location")),
        StreamConflictError, PreconditionFailedError, NotReadyError, SettingsMovedError,
        *docs.SETTING, *docs.BODY, *docs.STREAM, *docs.WRITE,
    ),
)  # fmt: skip
async def put_stream(request: Request) -> Response:
    """Create a stream, which needs `n_features`, or change the named settings of an existing one. Its shape cannot
    change (409).
    """
    service, name = service_of(request), stream_of(request)
    async with service.uploads.read(request, service.limits.max_body_bytes) as upload:
        body, kind, encoding = upload
        values = decode_stream_settings(body, kind, service.limits, content_encoding=encoding)
    record = await _if_match_record(service, request, name)
    may_create = KeyLimits(request).may_create if record is None else partial(_refuse_absent, name)
    check = partial(_check_matches, request)  # checked again together with the change: another process may be faster
    _, created = await service.streams.create_or_change(name, values, check, may_create)
    info = await service.streams.describe(name)
    shown = _shown(info)
    headers = {"ETag": _etag(info.record, shown)} | ({"Location": f"/streams/{name}"} if created else {})
    return json_answer(encode(shown), 201 if created else 200, headers)


@endpoints.delete(
    "",
    ADMIN,
    status_code=204,
    summary="Delete a stream and all its data",
    openapi_extra=docs.conditions(docs.IF_MATCH),
    responses=docs.answers(docs.bare(204, "The stream is deleted"), PreconditionFailedError, *docs.STREAM),
)
async def delete_stream(request: Request) -> Response:
    """Delete a stream with its log, components and idempotency keys. A later stream of the same name is another
    incarnation.
    """
    service, name = service_of(request), stream_of(request)
    record = await _if_match_record(service, request, name)
    try:
        await service.streams.delete(name, None if record is None else record.incarnation)
    except (UnknownStreamError, StreamGoneError):
        if record is None:
            raise
        raise PreconditionFailedError(
            f"stream {name!r} was deleted meanwhile, and If-Match names it; read the stream again"
        ) from None
    return Response(status_code=204)


async def _if_match_record(service: Service, request: Request, name: str) -> StreamRecord | None:
    """The record that If-Match names; None without this header. Raises PreconditionFailedError."""
    if "if-match" not in request.headers:
        return None
    try:
        info = await service.streams.describe(name)
    except UnknownStreamError:
        _refuse_absent(name)
    _check_matches(request, info.record)
    return info.record


def _refuse_absent(name: str, _names: Collection[str] = ()) -> NoReturn:
    raise PreconditionFailedError(
        f"If-Match was sent, but stream {name!r} does not exist; send the request without If-Match"
    )


def _check_matches(request: Request, record: StreamRecord) -> None:
    if not may_change(request, _settings_tag(record)):
        raise PreconditionFailedError(
            f"stream {record.name!r} has other settings than those of If-Match; read the stream again"
        )
    if excludes(request, _settings_tag(record)):
        raise PreconditionFailedError(
            f"stream {record.name!r} exists, and If-None-Match excludes it; leave that header out to change the stream"
        )


def _settings_tag(record: StreamRecord) -> str:
    """What the tags of all answers with these settings begin with."""
    return f'"{record.incarnation}.{hashlib.sha256(record.settings).hexdigest()[:16]}.'


def _etag(record: StreamRecord, shown: dict[str, Any]) -> str:
    lasting = encode({name: value for name, value in shown.items() if name != "snapshot_age_s"})
    return f'{_settings_tag(record)}{hashlib.sha256(lasting).hexdigest()[:8]}"'


def _age_s(view: Summary | None) -> float | None:
    """Seconds since a view was made, to the millisecond. Clocks of two machines may differ; it is never negative."""
    if view is None or view.made_at is None:
        return None
    return round(max(time.time() - view.made_at, 0.0), 3)


def _shown(info: StreamInfo) -> dict[str, Any]:
    from shoal.families import shown_family

    settings, shown = info.settings, info.summary
    if shown is not None and shown.settings is not None:
        settings = settings.chosen_as(shown.settings)
    return {
        "stream": info.record.name,
        "incarnation": info.record.incarnation,
        "log_offset": info.tail.log_offset,
        "points_seen": 0 if shown is None else shown.points_seen,
        "status": info.status,
        "n_components": 0 if shown is None else shown.n_components,
        "predictive_score": None if shown is None else shown.score.mean,
        "predictive_score_points": 0 if shown is None else shown.score.n_points,
        "newest_time": None if shown is None else shown_time(shown.newest_time),
        "late_points": 0 if shown is None else shown.late_points,
        "snapshot_age_s": _age_s(shown),
        "created_at": datetime.fromtimestamp(info.record.created_at, UTC).isoformat().replace("+00:00", "Z"),
        "settings": settings.to_dict() | {"family": shown_family(settings.family, settings.feature_names)},
    }
