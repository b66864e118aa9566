"""Access keys: kept, replaced, deleted and counted the same way by every store."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest

from shoal_service.errors import LimitError, StoreUnavailableError
from shoal_service.store import AccessKey, Store, rules

VERBS: dict[str, Callable[[Store], Any]] = {
    "access_version": lambda s: s.access_version(),
    "access_keys": lambda s: s.access_keys(),
    "put_access_key": lambda s: s.put_access_key(key("a")),
    "delete_access_key": lambda s: s.delete_access_key("a"),
    "mark_access_keys_used": lambda s: s.mark_access_keys_used({"a": 1.0}),
}


def key(key_id: str, created_at: float = 1.5, **changed: Any) -> AccessKey:
    digest = hashlib.sha256(key_id.encode()).digest()
    return AccessKey(key_id, f"name of {key_id} \N{SNOWMAN}", digest, b'{"scope":"read"}\x00\xff', created_at)._replace(
        **changed
    )


def test_a_store_begins_without_keys(store: Store) -> None:
    assert store.access_keys() == []
    assert store.access_version() == 0
    assert store.delete_access_key("a") is False
    assert store.access_version() == 0


def test_keys_are_listed_by_age_with_every_field(store: Store) -> None:
    held = [key("b", 1.0), key("a", 2.0), key("c", 2.0, last_used_at=3.25)]
    for one in reversed(held):
        store.put_access_key(one)
    assert store.access_keys() == held


def test_every_change_of_a_key_raises_the_version_and_a_use_does_not(store: Store) -> None:
    versions = [store.access_version()]

    def changed() -> bool:
        versions.append(store.access_version())
        return versions[-1] > versions[-2]

    store.put_access_key(key("a"))
    assert changed()
    store.put_access_key(key("a", body=b"another"))
    assert changed()
    assert store.access_keys() == [key("a", body=b"another")]
    store.mark_access_keys_used({"a": 7.0})
    assert not changed()
    assert store.delete_access_key("a") is True
    assert changed()
    assert store.delete_access_key("a") is False
    assert not changed()
    assert store.access_keys() == []


def test_the_latest_use_stays_and_a_use_of_a_key_that_is_gone_makes_none(store: Store) -> None:
    store.put_access_key(key("a"))
    store.put_access_key(key("b"))
    store.mark_access_keys_used({"a": 1764060000.123456, "gone": 9.0})
    store.mark_access_keys_used({"a": 5.0, "b": 6.0})
    store.mark_access_keys_used({})
    assert {k.id: k.last_used_at for k in store.access_keys()} == {"a": 1764060000.123456, "b": 6.0}
    store.delete_access_key("a")
    store.put_access_key(key("a"))
    assert store.access_keys()[0].last_used_at is None, "a use belongs to one key, not to its id"


def test_a_store_holds_a_limited_number_of_keys(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for where in (rules, __import__("shoal_service.store.redis.access_keys", fromlist=["x"])):
        monkeypatch.setattr(where, "MAX_ACCESS_KEYS", 2)
    store.put_access_key(key("a"))
    store.put_access_key(key("b"))
    with pytest.raises(LimitError, match="limit of 2"):
        store.put_access_key(key("c"))
    store.put_access_key(key("b", body=b"replaced"))
    store.delete_access_key("a")
    store.put_access_key(key("c"))
    assert [k.id for k in store.access_keys()] == ["b", "c"]


def test_a_key_that_must_be_the_only_one_is_refused_beside_another(store: Store) -> None:
    store.put_access_key(key("a"), only=True)
    with pytest.raises(LimitError, match="another access key was made before"):
        store.put_access_key(key("b"), only=True)
    store.put_access_key(key("a"), only=True)
    store.put_access_key(key("b"))
    assert [k.id for k in store.access_keys()] == ["a", "b"]


def test_keys_last_and_belong_to_no_stream(open_durable_store: Any) -> None:
    store = open_durable_store()
    store.create_stream("s", "inc", b"{}", max_streams=1)
    store.put_access_key(key("a"))
    version = store.access_version()
    store.delete_stream("s")
    store.close()
    again = open_durable_store()
    assert again.access_keys() == [key("a")]
    assert again.access_version() == version
    again.close()


@pytest.mark.parametrize("verb", VERBS)
def test_a_closed_store_refuses(verb: str, store: Store) -> None:
    store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        VERBS[verb](store)
