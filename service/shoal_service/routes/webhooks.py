"""/webhooks: send the events of a stream to addresses that an admin has named."""

from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from shoal_service.access import ADMIN, READ
from shoal_service.errors import (
    LimitError,
    UnknownWebhookError,
)
from shoal_service.routes import docs
from shoal_service.routes.answers import json_answer, stream_head, time_text
from shoal_service.routes.endpoints import Endpoints
from shoal_service.routes.service import service_of, stream_of
from shoal_service.streams import EventPlace, WebhookStatus, event_id
from shoal_service.wire import encode, json_text
from shoal_service.wire.models import WebhookIn, WebhookOut, WebhooksOut, WebhookStatusOut, decode_webhook

endpoints = Endpoints("webhooks")

MAX_BODY_BYTES = 65_536

Name = Annotated[
    str,
    Path(
        description="Name of the webhook: 1 to 64 of a-z, 0-9, _ and -.",
        pattern="^[a-z0-9][a-z0-9_-]{0,63}$",
        examples=["on-call"],
    ),
]


@endpoints.get(
    "/webhooks",
    READ,
    summary="The webhooks of a stream",
    responses=docs.answers(docs.answer(200, WebhooksOut, "By name"), *docs.STREAM),
)
async def listed(request: Request) -> Response:
    """All webhooks of the stream and how far each is. Secrets are never shown."""
    stream, found = await service_of(request).webhooks.all(stream_of(request))
    fields = stream_head(stream)
    return json_answer(encode({**fields, "webhooks": [_shown(status) for status in found]}))


@endpoints.get(
    "/webhooks/{webhook}",
    READ,
    summary="One webhook",
    responses=docs.answers(docs.answer(200, WebhookStatusOut, "The webhook"), UnknownWebhookError, *docs.STREAM),
)
async def one(request: Request, webhook: Name) -> Response:
    """A webhook, how far it is, and the newest messages that were given up. The secret is never shown."""
    found = await service_of(request).webhooks.one(stream_of(request), webhook)
    dead = [
        {"id": d.id, "kind": d.kind, "at": time_text(d.at), "attempts": d.attempts, "reason": d.reason, "body": d.body}
        for d in found.dead
    ]
    return json_answer(encode({**_shown(found), "dead_letters": dead}))


@endpoints.put(
    "/webhooks/{webhook}",
    ADMIN,
    summary="Create a webhook, or change it",
    openapi_extra=docs.json_body(WebhookIn),
    responses=docs.answers(
        docs.answer(200, WebhookOut, "The webhook is changed, and goes on where it was")
        | docs.answer(201, WebhookOut, "The webhook is created"),
        LimitError,
        *docs.JSON_BODY,
        *docs.CHANGE,
    ),
)
async def put(request: Request, webhook: Name) -> Response:
    """Send each event of the named kinds from now on as a signed POST (Standard Webhooks), in order and at least once.
    A message that is not accepted is sent again with growing pauses, and is given up after an hour, unless the server
    has another setting. After an answer 410 nothing is sent until the webhook is put again.

    It needs an admin key, because it makes the server send requests.
    """
    service = service_of(request)
    async with service.uploads.read(request, MAX_BODY_BYTES) as upload:
        asked = decode_webhook(json_text(*upload, MAX_BODY_BYTES))
    found, created = await service.webhooks.put(
        stream_of(request), webhook, url=asked.url, events=asked.events, secret=asked.secret
    )
    return json_answer(encode(_shown(found)), 201 if created else 200)


@endpoints.delete(
    "/webhooks/{webhook}",
    ADMIN,
    status_code=204,
    summary="Delete a webhook",
    responses=docs.answers(docs.bare(204, "Nothing more is sent"), UnknownWebhookError, *docs.CHANGE),
)
async def delete(request: Request, webhook: Name) -> Response:
    """Delete a webhook with the messages that were given up. One that is being sent at the moment may still arrive."""
    await service_of(request).webhooks.delete(stream_of(request), webhook)
    return Response(status_code=204)


def _shown(found: WebhookStatus) -> dict[str, Any]:
    webhook, state, incarnation = found.webhook, found.state, found.stream.record.incarnation
    return {
        "stream": found.stream.name,
        "incarnation": incarnation,
        "name": webhook.name,
        "url": webhook.url,
        "events": list(webhook.events),
        "created_at": time_text(webhook.created_at),
        "state": {
            "position": event_id(incarnation, EventPlace(*state.position)),
            "delivered": state.delivered,
            "dead": state.dead,
            "failures": state.failures,
            "last_success": time_text(state.last_success),
            "last_failure": time_text(state.last_failure),
            "reason": state.reason,
            "ended": state.ended(webhook),
        },
    }
