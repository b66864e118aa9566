"""Webhooks of a stream in the store, as documents of three kinds. Methods block and raise StoreError."""

from shoal_service.errors import UnknownWebhookError
from shoal_service.store import DocumentName, Store
from shoal_service.streams.webhooks.definition import Webhook, decode_webhook, encode_webhook
from shoal_service.streams.webhooks.state import DeadDelivery, DeliveryState, decode_dead, decode_state, encode_state

WEBHOOKS, STATES, DEAD = "webhook", "webhook-state", "webhook-dead"
"""Kinds of documents. A delivery that was given up has the name of its webhook and of its event."""
MAX_WEBHOOKS = 16
"""Most webhooks of one stream."""
DEAD_KEPT = 100
"""Deliveries of one webhook that were given up and are kept, the newest ones."""


class WebhookDocuments:
    """The webhooks of one incarnation of a stream."""

    def __init__(self, store: Store, name: str, incarnation: str) -> None:
        self._store = store
        self._stream = (name, incarnation)

    def all(self) -> list[Webhook]:
        """Return the webhooks by name."""
        return [decode_webhook(data) for data in self._store.documents(*self._stream, WEBHOOKS).values()]

    def get(self, name: str) -> Webhook:
        """Return one webhook. Raises UnknownWebhookError."""
        found = self._store.documents(*self._stream, WEBHOOKS).get(name)
        if found is None:
            raise UnknownWebhookError(f"stream {self._stream[0]!r} has no webhook {name!r}; list them for their names")
        return decode_webhook(found)

    def put(self, webhook: Webhook) -> tuple[Webhook, bool]:
        """Create a webhook, or change the one of its name, which goes on where it is. True when it was created.

        LimitError beyond `MAX_WEBHOOKS`.
        """
        while True:
            before = self._store.documents(*self._stream, WEBHOOKS).get(webhook.name)
            changed = webhook
            if before is not None:
                known = decode_webhook(before)
                changed = webhook._replace(
                    id=known.id, created_at=known.created_at, begins=known.begins, revision=known.revision + 1
                )
            one = (WEBHOOKS, webhook.name)
            changes = {one: encode_webhook(changed)}
            limit = MAX_WEBHOOKS if before is None else None
            if self._store.change_documents(*self._stream, changes, expected={one: before}, max_documents=limit):
                return changed, before is None

    def delete(self, name: str) -> None:
        """Delete a webhook with its state and what was given up. Raises UnknownWebhookError."""
        self.get(name)
        changes = {(WEBHOOKS, name): None, (STATES, name): None}
        self._store.change_documents(*self._stream, changes, expected={}, dropped=(DEAD, f"{name}/"))

    def state(self, webhook: Webhook) -> DeliveryState:
        """Return how far a webhook is."""
        return self.states([webhook])[0]

    def states(self, webhooks: list[Webhook]) -> list[DeliveryState]:
        """Return how far each webhook is."""
        held = self._store.documents(*self._stream, STATES)
        found = [decode_state(held[one.name]) if one.name in held else None for one in webhooks]
        return [
            state if state is not None and state.webhook == one.id else DeliveryState(one.id, one.begins)
            for one, state in zip(webhooks, found, strict=True)
        ]

    def save(self, webhook: Webhook, state: DeliveryState) -> None:
        """Keep how far a webhook is, unless it was deleted."""
        self._write(webhook, (STATES, webhook.name), encode_state(state))

    def dead(self, webhook: Webhook) -> list[DeadDelivery]:
        """Return the deliveries of a webhook that were given up and are kept, oldest first."""
        held = self._store.documents(*self._stream, DEAD)
        found = [decode_dead(data) for name, data in held.items() if _webhook_of(name) == webhook.name]
        return [one for one in found if one.webhook == webhook.id]

    def add_dead(self, webhook: Webhook, place: tuple[int, int], dead: DeadDelivery) -> None:
        """Keep a delivery that was given up, unless its webhook was deleted. The newest `DEAD_KEPT` stay."""
        document = f"{webhook.name}/{place[0]:016d}.{place[1]:08d}"
        self._write(webhook, (DEAD, document), encode_state(dead))
        for old in self._dead_names(webhook.name)[:-DEAD_KEPT]:
            self._store.set_document(*self._stream, DEAD, old, None)

    def _write(self, webhook: Webhook, one: DocumentName, value: bytes) -> None:
        """Write what belongs to a webhook, unless it was deleted."""
        while True:
            held = self._store.documents(*self._stream, WEBHOOKS).get(webhook.name)
            if held is None or decode_webhook(held).id != webhook.id:
                return
            if self._store.change_documents(*self._stream, {one: value}, expected={(WEBHOOKS, webhook.name): held}):
                return

    def _dead_names(self, name: str) -> list[str]:
        return [one for one in self._store.documents(*self._stream, DEAD) if _webhook_of(one) == name]


def _webhook_of(document: str) -> str:
    return document.partition("/")[0]
