"""Webhooks of a stream: its events, sent to addresses that an admin has named, signed, in order, at least once.

`definition` is a webhook, `state` how far it is, `documents` keeps both in the store. `attempt` sends one message,
`delivery` sends the events of one webhook in order, and `sender` runs the deliveries of the streams that this process
learns.
"""

from shoal_service.streams.webhooks.attempt import key_of_secret, signature_of
from shoal_service.streams.webhooks.definition import Webhook, check_url
from shoal_service.streams.webhooks.documents import WebhookDocuments
from shoal_service.streams.webhooks.sender import WebhookSender
from shoal_service.streams.webhooks.state import DeadDelivery, DeliveryState

__all__ = [
    "DeadDelivery",
    "DeliveryState",
    "Webhook",
    "WebhookDocuments",
    "WebhookSender",
    "check_url",
    "key_of_secret",
    "signature_of",
]
