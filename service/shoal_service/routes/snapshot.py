"""GET and PUT /snapshot: save the state of a stream as one file, and restore it."""

from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from shoal.errors import SnapshotDamagedError, SnapshotVersionError
from shoal_service.access import ADMIN, READ
from shoal_service.errors import (
    BodyTooLargeError,
    DeadLetteredError,
    LimitError,
    MalformedBodyError,
    NotReadyError,
    StreamConflictError,
    UnsupportedMediaTypeError,
    UploadTooSlowError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import holds_already, json_answer, not_modified, tagged
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.key_limits import KeyLimits
from shoal_service.routes.service import IdempotencyKeyHeader, MinOffset, Timeout, key_of, service_of, stream_of
from shoal_service.wire import encode
from shoal_service.wire.models import RestoreOut

endpoints = Endpoints("snapshot")


@endpoints.get(
    "/snapshot",
    READ,
    summary="The state of the stream as a file",
    response_class=Response,
    openapi_extra=docs.conditions(docs.IF_NONE_MATCH),
    responses=docs.answers(
        docs.snapshot_file(200) | docs.NOT_MODIFIED,
        *docs.STREAM, *docs.READ,
    ),
)  # fmt: skip
async def get_snapshot(
    request: Request,
    window: Annotated[
        bool, Query(description="Also save the points of the window, so that a restored stream can be refined at once.")
    ] = False,
    min_offset: MinOffset = None,
    timeout: Timeout = None,
) -> Response:
    """The state of the stream, with version and checksum. The library can also read it: `StreamingDPMixture.load`."""
    service, name = service_of(request), stream_of(request)
    stream, checkpoint = await service.streams.snapshot(
        name, min_offset=min_offset, timeout_s=service.wait_s(timeout), window=window
    )
    etag = f'"{stream.record.incarnation}.{checkpoint.seq}{".window" if window else ""}"'
    if holds_already(request, etag):
        return not_modified(etag)
    headers = {"Content-Disposition": f'attachment; filename="{name}-{checkpoint.log_offset}.shoal"'}
    return tagged(checkpoint.blob, etag, docs.SNAPSHOT, headers)


@endpoints.put(
    "/snapshot",
    ADMIN,
    summary="Restore a saved state",
    openapi_extra=docs.snapshot_body(),
    responses=docs.answers(
        docs.answer(200, RestoreOut, "Restored, and visible to readers", ("Idempotency-Replayed",))
        | docs.answer(202, RestoreOut, "Stored durably; it will be restored", ("Idempotency-Replayed",)),
        SnapshotDamagedError, SnapshotVersionError, StreamConflictError, BodyTooLargeError, UnsupportedMediaTypeError,
        MalformedBodyError, UploadTooSlowError, LimitError, NotReadyError, DeadLetteredError, *docs.STREAM, *docs.WRITE,
    ),
)  # fmt: skip
async def put_snapshot(
    request: Request, timeout: Timeout = None, idempotency_key: IdempotencyKeyHeader = None
) -> Response:
    """Replace the state of the stream. The restore is an entry of the log: `log_offset` does not go back, and ids that
    were given in the meantime are not used again.

    A snapshot with its window (`?window=true`) can be refined at once. Without it, the window begins empty.

    `points_seen`, `born_at` and `last_seen_at` then count the points of the restored state. A stream that does not
    exist is created with the settings of the snapshot. A stream of another shape is not changed (409).
    """
    service, name = service_of(request), stream_of(request)
    wait_s = service.wait_s(timeout)
    _check_media_type(request)
    limits = KeyLimits(request)
    await limits.check_may_create(name)
    async with service.uploads.read(request, service.settings.max_snapshot_bytes) as upload:
        key = await key_of(service, idempotency_key, upload)
        receipt = await service.streams.restore(name, upload.body, idempotency=key, may_create=limits.may_create)
    applied = await service.streams.wait_until_visible(receipt, wait_s)
    answer: dict[str, Any] = {"stream": name, "incarnation": receipt.incarnation, "log_offset": receipt.log_offset}
    headers = {"Idempotency-Replayed": "true"} if receipt.replayed else {}
    return json_answer(encode({**answer, "restored": True}), 200 if applied else 202, headers)


def _check_media_type(request: Request) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in (docs.SNAPSHOT, docs.BYTES):
        raise UnsupportedMediaTypeError(
            f"Content-Type {given[:80]!r} is not supported; send {docs.SNAPSHOT} or {docs.BYTES}"
        )
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMediaTypeError("Content-Encoding is not supported for snapshots; send the file as it is")
