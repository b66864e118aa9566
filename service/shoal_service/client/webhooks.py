"""Webhooks: addresses to which the server sends the events of a stream."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shoal_service.client.flow import Flow, Request, Session, exchange
from shoal_service.client.http import data_path, json_of, name_segment


@dataclass(frozen=True)
class Webhook:
    """A webhook and how far it is. The server never shows its secret."""

    stream: str
    name: str
    url: str
    events: tuple[str, ...]
    created_at: str
    """RFC 3339."""
    state: dict[str, Any]
    """`position`, `delivered`, `dead`, `failures`, `last_success`, `last_failure` and `reason` of the last failure, and
    `ended` after an answer 410.
    """
    dead_letters: tuple[dict[str, Any], ...] = ()
    """The newest messages that were given up; only from `webhook`."""
    raw: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Webhook":
        """Read one webhook from an answer."""
        return cls(
            body["stream"],
            body["name"],
            body["url"],
            tuple(body["events"]),
            body["created_at"],
            body["state"],
            tuple(body.get("dead_letters", ())),
            body,
        )


def put_webhook(session: Session, /, name: str, url: str, events: Sequence[str], secret: str) -> Flow[Webhook]:
    """Create a webhook of the stream, or change the one of this name. It gets the events from now on. Needs an admin
    key where keys are needed.

    `events`: kinds such as `born`, `drift` and `novelty-rate`. `secret`: signs each message, as Standard Webhooks
    defines it.
    """
    body = {"url": url, "events": list(events), "secret": secret}
    headers = {"Content-Type": "application/json"}
    request = Request("PUT", _path(session, name), headers=headers, content=msgspec.json.encode(body))
    return Webhook.from_json(json_of((yield from exchange(session, request)), "name", "state"))


def webhooks(session: Session) -> Flow[list[Webhook]]:
    """List the webhooks of the stream by name."""
    body = json_of((yield from exchange(session, Request("GET", data_path(session, "webhooks")))), "webhooks")
    return [Webhook.from_json(one) for one in body["webhooks"]]


def webhook(session: Session, /, name: str) -> Flow[Webhook]:
    """Read one webhook with its dead letters. Raises NotFoundError if there is none."""
    response = yield from exchange(session, Request("GET", _path(session, name)))
    return Webhook.from_json(json_of(response, "name", "state"))


def delete_webhook(session: Session, /, name: str) -> Flow[None]:
    """Delete a webhook. Raises NotFoundError if there is none."""
    yield from exchange(session, Request("DELETE", _path(session, name), repeatable=False))


def _path(session: Session, name: str) -> str:
    return data_path(session, f"webhooks/{name_segment('webhook', name)}")
