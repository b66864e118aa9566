"""/keys: create, list and revoke access keys."""

import asyncio
import time
from typing import Annotated

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import ADMIN_SERVICE, Grant, Limits, Scope, parse_expiry
from shoal_service.errors import (
    LimitError,
    NotReadyError,
    ParameterError,
    UnknownKeyError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer
from shoal_service.routes.authorization import SUBJECT, caller_of
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import service_of
from shoal_service.wire import encode, json_text
from shoal_service.wire.models import KeyIn, KeysOut, NewKeyOut, decode_key

endpoints = Endpoints("keys")

MAX_BODY_BYTES = 65_536
_NOT_STORED = {"Cache-Control": "no-store"}


@endpoints.post(
    "/keys",
    ADMIN_SERVICE,
    status_code=201,
    summary="Create an access key",
    openapi_extra=docs.json_body(KeyIn),
    responses=docs.answers(
        docs.answer(201, NewKeyOut, "The key is created; its secret is shown only now", ("Location",)),
        LimitError, *docs.JSON_BODY, NotReadyError, *docs.STORE,
    ),
)  # fmt: skip
async def create(request: Request) -> Response:
    """Create a key. It is in force at once, and within a second in other processes over the same store.

    The first key of a service without keys must be of scope `admin` for all streams: from then on every request needs
    a key, and nobody could create another one.
    """
    service = service_of(request)
    async with service.uploads.read(request, MAX_BODY_BYTES) as upload:
        asked = decode_key(json_text(*upload, MAX_BODY_BYTES))
    is_first = caller_of(request.scope).key_id is None
    if is_first and (asked.scope != "admin" or asked.streams or asked.expires):
        raise ParameterError(
            f"this is the first key, and its scope is {asked.scope!r}; first create one of scope 'admin' for all"
            " streams that does not expire, because every request needs a key from then on"
        )
    expires_at = None if asked.expires is None else parse_expiry(asked.expires, time.time())
    limits = Limits(**asked.limits.model_dump())
    grant = Grant(Scope(asked.scope), tuple(asked.streams), expires_at, limits)
    made = await asyncio.to_thread(service.access.create, asked.name, grant, only=is_first)
    request.scope[SUBJECT] = made.record.id
    headers = {"Location": f"/keys/{made.record.id}", **_NOT_STORED}
    return json_answer(encode({**made.record.as_plain(), "key": made.secret}), 201, headers)


@endpoints.get(
    "/keys",
    ADMIN_SERVICE,
    summary="All access keys",
    responses=docs.answers(docs.answer(200, KeysOut, "Oldest first"), *docs.STORE),
)
async def list_all(request: Request) -> Response:
    """All keys without their secrets, which nobody can read again. The bootstrap key of the settings comes first."""
    found = await asyncio.to_thread(service_of(request).access.all_keys)
    return json_answer(encode({"keys": [record.as_plain() for record in found]}), headers=_NOT_STORED)


@endpoints.delete(
    "/keys/{key}",
    ADMIN_SERVICE,
    status_code=204,
    summary="Revoke an access key",
    responses=docs.answers(docs.bare(204, "The key is revoked"), UnknownKeyError, *docs.STORE),
)
async def revoke(
    request: Request, key: Annotated[str, Path(description="Its id.", examples=["9f86d081884c7d65"])]
) -> Response:
    """Revoke a key. It opens nothing from now on, and within a second in other processes over the same store."""
    await asyncio.to_thread(service_of(request).access.revoke, key)
    return Response(status_code=204)
