"""Definitions of sources and webhooks that two requests change at the same time: no change is lost, over any store."""

from collections.abc import Callable
from typing import Any

import pytest

from shoal_service.errors import LimitError, UnknownSourceError, UnknownWebhookError
from shoal_service.store import SOURCES, SourceStep, Store, definition_digest
from shoal_service.streams.sources import SourceDefinition, SourceDocuments, SourceState
from shoal_service.streams.sources.documents import MAX_SOURCES
from shoal_service.streams.webhooks import DeadDelivery, DeliveryState, Webhook, WebhookDocuments
from shoal_service.streams.webhooks.documents import MAX_WEBHOOKS


class Interrupted:
    """A store in which something else happens between the reads of a change and its write, once."""

    def __init__(self, store: Store, meanwhile: Callable[[], Any]) -> None:
        self._store = store
        self._meanwhile: Callable[[], Any] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def set_document(self, *arguments: Any, **options: Any) -> None:
        self._interrupt()
        self._store.set_document(*arguments, **options)

    def change_documents(self, *arguments: Any, **options: Any) -> bool:
        self._interrupt()
        return self._store.change_documents(*arguments, **options)

    def _interrupt(self) -> None:
        if self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile()


def definition(
    source_id: str = "1", *, name: str = "orders", enabled: bool = True, **settings: Any
) -> SourceDefinition:
    return SourceDefinition(source_id, 1, name, "redis-stream", enabled, settings, 1.5)


def sources(line: Any, meanwhile: Callable[[], Any] | None = None) -> SourceDocuments:
    return SourceDocuments(line.store if meanwhile is None else Interrupted(line.store, meanwhile), *line.key)


def shown(line: Any) -> list[tuple[str, int, bool, dict[str, Any]]]:
    return [(one.id, one.revision, one.enabled, one.settings) for one in sources(line).all()]


def test_a_pause_while_the_settings_are_replaced_loses_neither(line: Any) -> None:
    plain = sources(line)
    plain.put(definition(a=1))
    sources(line, lambda: plain.put(definition(a=2))).enable("orders", False)
    assert shown(line) == [("1", 3, False, {"a": 2})]
    sources(line, lambda: plain.enable("orders", True)).put(definition(enabled=False, a=3))
    assert shown(line) == [("1", 5, False, {"a": 3})]


def test_two_pauses_at_the_same_time_are_one_change_each(line: Any) -> None:
    plain = sources(line)
    plain.put(definition(a=1))
    sources(line, lambda: plain.enable("orders", False)).enable("orders", False)
    assert shown(line) == [("1", 2, False, {"a": 1})]


def test_a_pause_of_a_source_that_is_deleted_meanwhile_does_not_bring_it_back(line: Any) -> None:
    plain = sources(line)
    plain.put(definition(a=1))
    with pytest.raises(UnknownSourceError):
        sources(line, lambda: plain.delete("orders", keep_positions=False)).enable("orders", False)
    assert shown(line) == []


def test_of_two_creations_the_second_changes_the_first(line: Any) -> None:
    plain = sources(line)
    assert not sources(line, lambda: plain.put(definition("1", a=1))).put(definition("2", a=2))
    assert shown(line) == [("1", 2, True, {"a": 2})]
    deleted = lambda: plain.delete("orders", keep_positions=False)  # noqa: E731
    assert sources(line, deleted).put(definition("3", a=3)), "created again"
    assert shown(line) == [("3", 1, True, {"a": 3})]


def test_two_creations_at_the_same_time_keep_the_limit_of_sources(line: Any) -> None:
    plain = sources(line)
    for i in range(MAX_SOURCES - 1):
        plain.put(definition(str(i), name=f"s{i:02d}"))
    with pytest.raises(LimitError, match="the limit of 16; delete one first"):
        sources(line, lambda: plain.put(definition("a", name="sa"))).put(definition("b", name="sb"))
    assert [one.name for one in plain.all()] == [*(f"s{i:02d}" for i in range(MAX_SOURCES - 1)), "sa"]
    assert not plain.put(definition("b", name="sa", a=1)), "those that are there may be changed"
    sources(line, lambda: plain.delete("s00", keep_positions=False)).put(definition("b", name="sb"))
    assert len(plain.all()) == MAX_SOURCES


def test_a_deletion_takes_the_positions_with_it_that_come_meanwhile(line: Any) -> None:
    plain = sources(line)
    plain.put(definition(a=1))
    plain.put(definition(a=1, name="orders-2"))
    line.add(source=SourceStep("orders-2", "0", None, "7"))
    (stored, _) = plain.all()
    first = SourceStep("orders", "0", None, "5", definition_digest(stored.document))
    sources(line, lambda: line.add(source=first)).delete("orders", keep_positions=False)
    assert set(line.store.documents(*line.key, SOURCES)) == {"orders-2/0"}


def test_positions_that_are_forgotten_do_not_come_back(line: Any) -> None:
    plain = sources(line)
    plain.put(definition(a=1))
    (stored,) = plain.all()
    step = SourceStep("orders", "0", None, "5", definition_digest(stored.document))
    line.add(source=step)
    assert sources(line, lambda: line.add(source=step._replace(partition="1"))).forget("orders", None)
    assert line.store.documents(*line.key, SOURCES) == {}
    assert shown(line) == [("1", 2, True, {"a": 1})]
    assert plain.positions(stored) is None, "its process begins again"
    line.add(source=SourceStep("other", "0", None, "5"))
    line.add(source=SourceStep("other", "1", None, "5"))
    assert not plain.forget("other", "1")
    assert set(line.store.documents(*line.key, SOURCES)) == {"other/0"}


def test_the_state_of_a_source_that_is_changed_meanwhile_is_not_kept(line: Any) -> None:
    plain = sources(line)
    plain.put(definition(a=1))
    (stored,) = plain.all()
    plain.save(stored, SourceState("1", 1, "running", points=3))
    sources(line, lambda: plain.enable("orders", False)).save(stored, SourceState("1", 1, "failed"))
    assert plain.state(stored).status == "running"
    plain.delete("orders", keep_positions=False)
    plain.save(stored, SourceState("1", 1, "failed"))
    assert line.store.documents(*line.key, "source-state") == {}


def test_the_last_state_of_a_source_is_kept_when_it_is_changed_but_not_deleted_meanwhile(line: Any) -> None:
    plain = sources(line)
    plain.put(definition(a=1))
    (stored,) = plain.all()
    last = SourceState("1", 1, "running", points=3)
    sources(line, lambda: plain.enable("orders", False)).save_last(stored, last)
    assert plain.state(stored) == last
    later = SourceState("1", 3, "running", points=4)
    plain.enable("orders", True)
    (again,) = plain.all()
    sources(line, lambda: plain.save(again, later)).save_last(stored, last._replace(points=9))
    assert plain.state(stored) == later
    plain.delete("orders", keep_positions=False)
    plain.save_last(stored, last)
    plain.put(definition("2", a=1))
    plain.save_last(stored, last)
    assert line.store.documents(*line.key, "source-state") == {}


def webhook(hook_id: str, url: str) -> Webhook:
    return Webhook(hook_id, "on-call", url, ("born",), "secret", 1.5, (1, 0))


def webhooks(line: Any, meanwhile: Callable[[], Any] | None = None) -> WebhookDocuments:
    return WebhookDocuments(line.store if meanwhile is None else Interrupted(line.store, meanwhile), *line.key)


def test_of_two_webhooks_of_one_name_the_second_changes_the_first(line: Any) -> None:
    plain = webhooks(line)
    made, created = webhooks(line, lambda: plain.put(webhook("1", "https://one"))).put(webhook("2", "https://two"))
    assert (made.id, made.url, created) == ("1", "https://two", False)
    assert plain.all() == [made]


def test_two_creations_at_the_same_time_keep_the_limit_of_webhooks(line: Any) -> None:
    plain = webhooks(line)
    for i in range(MAX_WEBHOOKS - 1):
        plain.put(webhook(str(i), "https://one")._replace(name=f"w{i:02d}"))
    with pytest.raises(LimitError, match="the limit of 16; delete one first"):
        webhooks(line, lambda: plain.put(webhook("a", "https://a"))).put(webhook("b", "https://b")._replace(name="wb"))
    assert len(plain.all()) == MAX_WEBHOOKS
    assert plain.put(webhook("b", "https://b"))[1] is False, "those that are there may be changed"


def test_a_webhook_that_is_changed_while_it_is_deleted_is_a_new_one(line: Any) -> None:
    plain = webhooks(line)
    plain.put(webhook("1", "https://one"))
    made, created = webhooks(line, lambda: plain.delete("on-call")).put(webhook("2", "https://two"))
    assert (made.id, created) == ("2", True)
    assert plain.all() == [made]


def test_a_webhook_that_is_deleted_while_an_event_is_sent_leaves_nothing_behind(line: Any) -> None:
    plain = webhooks(line)
    kinds = ("webhook-state", "webhook-dead")
    held = lambda: [list(line.store.documents(*line.key, kind)) for kind in kinds]  # noqa: E731
    one, _ = plain.put(webhook("1", "https://one"))
    dead = DeadDelivery("1", "e", "born", 1.5, 3, "no answer", "{}")
    deleting = webhooks(line, lambda: plain.delete("on-call"))
    deleting.save(one, DeliveryState("1", (2, 0)))
    deleting.add_dead(one, (1, 0), dead)
    plain.put(webhook("2", "https://one"))
    plain.save(one, DeliveryState("1", (2, 0)))
    plain.add_dead(one, (1, 0), dead)
    assert held() == [[], []]
    two, _ = plain.put(webhook("2", "https://two"))
    webhooks(line, lambda: plain.put(webhook("3", "https://three"))).save(two, DeliveryState("2", (2, 0)))
    assert held() == [["on-call"], []]


def test_a_webhook_is_deleted_with_all_that_belongs_to_it(line: Any) -> None:
    plain = webhooks(line)
    one, _ = plain.put(webhook("1", "https://one"))
    other, _ = plain.put(webhook("2", "https://two")._replace(name="on-call-2"))
    for each in (one, other):
        plain.save(each, DeliveryState(each.id, (2, 0)))
        plain.add_dead(each, (1, 0), DeadDelivery(each.id, "e", "born", 1.5, 3, "no answer", "{}"))
    plain.delete("on-call")
    with pytest.raises(UnknownWebhookError):
        plain.delete("on-call")
    assert plain.all() == [other]
    assert [list(line.store.documents(*line.key, kind)) for kind in ("webhook-state", "webhook-dead")] == [
        ["on-call-2"], ["on-call-2/0000000000000001.00000000"],
    ]  # fmt: skip
