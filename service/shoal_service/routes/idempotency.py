"""Idempotency keys: the name of a request, and the digest that tells a retry from another request."""

from typing import Annotated

from fastapi import Header

from shoal_service.routes.service import Service
from shoal_service.routes.uploads import Upload
from shoal_service.store import IdempotencyKey
from shoal_service.wire import RecordColumns, check_idempotency_key, request_digest

IdempotencyKeyHeader = Annotated[
    str | None,
    Header(
        description="1 to 128 printable ASCII characters that name this request. Repeating it has no second effect.",
        examples=["1f0c6f3a-batch-7"],
        json_schema_extra={"minLength": 1, "maxLength": 128, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    ),
]


async def key_of(
    service: Service, key: str | None, upload: Upload, columns: RecordColumns | None = None
) -> IdempotencyKey | None:
    """The key of a request, or None if it has none. Raises ParameterError for a bad key."""
    if key is None:
        return None
    check_idempotency_key(key)
    digest = await service.compute(len(upload.body), request_digest, *upload, columns)
    return IdempotencyKey(key, digest)
