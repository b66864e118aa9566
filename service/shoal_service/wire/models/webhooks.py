"""Webhooks: the body of `PUT /webhooks/{webhook}`, and the answers about webhooks."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from shoal_service.wire.models.base import INCARNATION, WireModel, example, read_json
from shoal_service.wire.points import Body

WebhookEvent = Literal[
    "born", "merged", "pruned", "split", "returned", "refined", "restored", "adopted", "refused", "capacity", "prior",
    "rescaled", "drift", "novelty-rate", "cluster-born", "cluster-gone", "cluster-merged", "cluster-split",
    "cluster-regrouped", "cluster-renamed",
]  # fmt: skip

_STATE = {
    "position": f"{INCARNATION}.42.0",
    "delivered": 17,
    "dead": 1,
    "failures": 0,
    "last_success": "2026-11-20T09:31:00Z",
    "last_failure": "2026-11-20T09:30:00Z",
    "reason": "the receiver answered 503",
    "ended": False,
}
_WEBHOOK: dict[str, Any] = {
    "name": "on-call",
    "url": "https://example.org/hooks/shoal",
    "events": ["born", "drift"],
    "created_at": "2026-11-20T09:30:00Z",
    "state": _STATE,
}
_DEAD = {
    "id": f"{INCARNATION}.40.0",
    "kind": "drift",
    "at": "2026-11-20T09:30:00Z",
    "attempts": 14,
    "reason": "the receiver answered 503",
    "body": '{"type":"drift","timestamp":"2026-11-20T08:30:00.000Z","data":{}}',
}


class WebhookIn(WireModel):
    """The webhook to create, or its new values."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {
                    "url": "https://example.org/hooks/shoal",
                    "events": ["born", "drift"],
                    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                }
            ]
        },
    )

    url: str = Field(min_length=1, max_length=2048)
    """Address of the receiver, http or https. Private addresses need the server's setting `webhook_allow_private`."""
    events: list[WebhookEvent] = Field(min_length=1, max_length=100)
    """Kinds of events to send."""
    secret: str = Field(min_length=1, max_length=512, repr=False)
    """Signs each message: `whsec_` and a key in base64, or any text. Use 24 random bytes or more. It is never shown."""


class DeliveryStateOut(WireModel):
    """Progress of a webhook. While events follow one another, it is written once in a second."""

    model_config = example(**_STATE)

    position: str
    """Position from which on events are still to be sent, in the form of their ids."""
    delivered: int
    """Messages that the receiver has accepted."""
    dead: int
    """Messages that were given up."""
    failures: int
    """Attempts that failed since the last success."""
    last_success: str | None
    """RFC 3339."""
    last_failure: str | None
    """RFC 3339."""
    reason: str | None
    """Why the last attempt that failed did so."""
    ended: bool
    """Whether the receiver answered 410, so that nothing is sent until the webhook is put again."""


class WebhookOut(WireModel):
    """A webhook, without its secret."""

    model_config = example(stream="default", incarnation=INCARNATION, **_WEBHOOK)

    stream: str
    incarnation: str
    name: str
    url: str
    events: list[str]
    created_at: str
    state: DeliveryStateOut


class DeadDeliveryOut(WireModel):
    """A message that was given up."""

    model_config = example(**_DEAD)

    id: str
    """Id of the event, which is also the `webhook-id` of the message."""
    kind: str
    at: str
    """Time when it was given up."""
    attempts: int
    reason: str
    """Why the last attempt failed."""
    body: str
    """The message as it was sent."""


class WebhookStatusOut(WebhookOut):
    """A webhook with the newest messages that were given up."""

    model_config = example(stream="default", incarnation=INCARNATION, **_WEBHOOK, dead_letters=[_DEAD])

    dead_letters: list[DeadDeliveryOut]
    """Oldest first, at most a hundred."""


class WebhooksOut(WireModel):
    """The webhooks of a stream, by name."""

    model_config = example(
        stream="default",
        incarnation=INCARNATION,
        webhooks=[{"stream": "default", "incarnation": INCARNATION, **_WEBHOOK}],
    )

    stream: str
    incarnation: str
    webhooks: list[WebhookOut]


def decode_webhook(text: Body) -> WebhookIn:
    """Read a webhook. Raises as `read_json`. The error never shows the secret."""
    return read_json(WebhookIn, text, secret=("secret",))
