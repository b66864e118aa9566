"""State of the deliveries of one webhook, and the deliveries that were given up."""

from typing import NamedTuple

import msgspec

from shoal_service.streams.webhooks.definition import Webhook


class DeliveryState(NamedTuple):
    """Progress of a webhook."""

    webhook: str
    """Id of the webhook."""
    position: tuple[int, int]
    """Place of the next event to be sent, or passed over."""
    delivered: int = 0
    """Messages that the receiver has accepted."""
    dead: int = 0
    """Deliveries that were given up."""
    failures: int = 0
    """Attempts that failed since the last success."""
    last_success: float | None = None
    """Unix time."""
    last_failure: float | None = None
    """Unix time."""
    reason: str | None = None
    """Why the last attempt that failed did so."""
    gone_revision: int | None = None
    """Revision of the webhook whose receiver answered 410. Nothing is sent until the webhook is changed."""

    def ended(self, webhook: Webhook) -> bool:
        """Whether the receiver wants no message of a webhook any more."""
        return self.gone_revision == webhook.revision


class DeadDelivery(NamedTuple):
    """Delivery that was given up."""

    webhook: str
    """Id of the webhook."""
    id: str
    """Id of the event."""
    kind: str
    at: float
    """Unix time when it was given up."""
    attempts: int
    reason: str
    body: str
    """The message as it was sent."""


def encode_state(state: DeliveryState | DeadDelivery) -> bytes:
    """As JSON."""
    return msgspec.json.encode(state)


def decode_state(data: bytes) -> DeliveryState:
    """Inverse of `encode_state`."""
    return msgspec.json.decode(data, type=DeliveryState)


def decode_dead(data: bytes) -> DeadDelivery:
    """Inverse of `encode_state` for a delivery that was given up."""
    return msgspec.json.decode(data, type=DeadDelivery)
