"""Documents of a stream: small values by kind and name, durable at once, bounded, and gone with their stream."""

import logging
from typing import Any

import pytest

from shoal_service.errors import LimitError, StreamGoneError
from shoal_service.store import contract, rules
from shoal_service.store.redis import documents as redis_documents

NAMES = {"7": b"", "a name / with * [glob] \\ signs": b"\x00\xff" * 9, "größe": b"x" * 65_536, "a" * 256: b"{}"}


def test_documents_are_read_as_they_were_written_by_kind(line: Any) -> None:
    for name, value in NAMES.items():
        line.store.set_document(*line.key, "label", name, value)
    line.store.set_document(*line.key, "label-2", "7", b"other")
    assert line.store.documents(*line.key, "label") == NAMES
    assert list(line.store.documents(*line.key, "label")) == sorted(NAMES)
    assert line.store.documents(*line.key, "label-2") == {"7": b"other"}
    assert line.store.documents(*line.key, "webhook") == {}


def test_a_document_is_replaced_and_deleted(line: Any) -> None:
    write = line.store.set_document
    write(*line.key, "label", "7", b"one")
    write(*line.key, "label", "8", b"two")
    write(*line.key, "label", "7", b"longer than before")
    assert line.store.documents(*line.key, "label") == {"7": b"longer than before", "8": b"two"}
    write(*line.key, "label", "7", None)
    write(*line.key, "label", "7", None)
    assert line.store.documents(*line.key, "label") == {"8": b"two"}


def test_documents_are_bounded_in_size_number_and_bytes(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contract, rules, redis_documents):
        for limit, value in (("MAX_DOCUMENTS", 3), ("MAX_DOCUMENTS_BYTES", 100_000)):
            monkeypatch.setattr(module, limit, value, raising=False)
    write = lambda name, size, kind="label": line.store.set_document(*line.key, kind, name, bytes(size))  # noqa: E731
    with pytest.raises(LimitError, match="has 65537 bytes, over the limit of 65536"):
        write("7", 65_537)
    write("1", 60_000)
    write("2", 30_000)
    with pytest.raises(LimitError, match="has 2 documents of the kind 'label' with 90000 bytes, and 10001 more"):
        write("3", 10_001)
    write("3", 10_000)
    write("1", 59_000)  # the same name again makes no fourth
    with pytest.raises(LimitError, match="has 3 documents of the kind 'label', and 1 more would exceed the limit of 3"):
        write("4", 0)
    write("4", 60_000, "webhook")
    write("2", 0)
    line.store.set_document(*line.key, "label", "1", None)
    write("4", 65_000)
    found = line.store.documents(*line.key, "label")
    assert {name: len(value) for name, value in found.items()} == {"2": 0, "3": 10_000, "4": 65_000}


@pytest.mark.parametrize(
    ("kind", "name"), [("Label", "7"), ("", "7"), ("a/b", "7"), ("label", ""), ("label", "é" * 129)]
)
def test_a_kind_or_name_of_another_form_is_an_error_of_the_caller(line: Any, kind: str, name: str) -> None:
    with pytest.raises(ValueError, match="document"):
        line.store.set_document(*line.key, kind, name, b"x")


def test_documents_end_with_their_stream_and_belong_to_it_alone(store: Any, new_line: Any) -> None:
    one, two = new_line(store, "one"), new_line(store, "two")
    store.set_document(*one.key, "label", "7", b"one")
    assert store.documents(*two.key, "label") == {}
    store.delete_stream("one")
    with pytest.raises(StreamGoneError):
        store.documents(*one.key, "label")
    with pytest.raises(StreamGoneError):
        store.set_document(*one.key, "label", "7", b"late")
    with pytest.raises(StreamGoneError):
        store.set_document(*one.key, "label", "7", None)
    again = new_line(store, "one", "another life")
    assert store.documents(*again.key, "label") == {}


def test_documents_are_there_after_the_store_is_opened_again(open_durable_store: Any, new_line: Any) -> None:
    line = new_line(open_durable_store())
    for name, value in NAMES.items():
        line.store.set_document(*line.key, "label", name, value)
    line.store.close()
    store = open_durable_store()
    assert store.documents(*line.key, "label") == NAMES
    store.close()


def test_a_damaged_document_is_left_out_with_a_warning(line: Any, caplog: pytest.LogCaptureFixture) -> None:
    line.store.set_document(*line.key, "label", "7", b"seven")
    line.store.set_document(*line.key, "label", "8", b"eight")
    damage(line)
    with caplog.at_level(logging.WARNING, "shoal_service.store"):
        assert line.store.documents(*line.key, "label") == {"8": b"eight"}
    assert line.store.document_names(*line.key, "label") == ["7", "8"]
    assert line.store.document_names(*line.key, "labels") == []
    assert "the label '7' of stream 's' is damaged and left out" in caplog.text
    line.store.set_document(*line.key, "label", "7", b"again")
    assert line.store.documents(*line.key, "label") == {"7": b"again", "8": b"eight"}


def damage(line: Any) -> None:
    """Change the value of the document 7 behind the back of the store."""
    if hasattr(line.store, "sharing"):
        key = line.store._keys(*line.key).documents
        (stored,) = line.store._connections.ask(("HGET", key, "label/7"))
        line.store._connections.ask(("HSET", key, "label/7", stored[:-1] + b"!"))
        return
    line.store._writer.run(lambda tx: tx.db.execute("UPDATE documents SET value = x'00' WHERE name = '7'"))


def test_several_documents_are_changed_together_if_the_store_holds_what_is_expected(line: Any) -> None:
    change, held = line.store.change_documents, lambda kind: dict(line.store.documents(*line.key, kind))
    one, two = ("label", "7"), ("other", "größe")
    assert change(*line.key, {one: b"a", two: b"b"}, expected={one: None})
    assert (held("label"), held("other")) == ({"7": b"a"}, {"größe": b"b"})
    for wrong in ({one: None}, {one: b"A"}, {one: b"a", two: None}, {("label", "8"): b""}):
        assert not change(*line.key, {one: b"lost", two: None}, expected=wrong)
    assert (held("label"), held("other")) == ({"7": b"a"}, {"größe": b"b"})
    assert not change(*line.key, {one: b"a"}, expected={one: b"b"}), "what is there by another change is not this one"
    assert change(*line.key, {one: None, two: b"longer than before"}, expected={one: b"a", two: b"b"})
    assert (held("label"), held("other")) == ({}, {"größe": b"longer than before"})
    assert change(*line.key, {}, expected={one: None})


def test_documents_whose_names_begin_so_are_dropped_in_the_same_change(line: Any) -> None:
    for name in ("a/1", "a/2", "ab/1", "A/1", "b/a/1"):
        line.store.set_document(*line.key, "label", name, name.encode())
    line.store.set_document(*line.key, "labels", "a/1", b"of another kind")
    drop = {"expected": {("label", "b/a/1"): b"b/a/1"}, "dropped": ("label", "a/")}
    assert not line.store.change_documents(*line.key, {}, **drop | {"expected": {("label", "a/1"): None}})
    assert len(line.store.documents(*line.key, "label")) == 5
    assert line.store.change_documents(*line.key, {("label", "a/2"): b"new", ("label", "b/a/1"): None}, **drop)
    assert dict(line.store.documents(*line.key, "label")) == {"A/1": b"A/1", "a/2": b"new", "ab/1": b"ab/1"}
    assert dict(line.store.documents(*line.key, "labels")) == {"a/1": b"of another kind"}


def test_a_change_of_several_documents_counts_towards_the_limits(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contract, rules, redis_documents):
        for limit, value in (("MAX_DOCUMENTS", 3), ("MAX_DOCUMENTS_BYTES", 100)):
            monkeypatch.setattr(module, limit, value, raising=False)
    write = lambda kind, name, size: line.store.set_document(*line.key, kind, name, bytes(size))  # noqa: E731
    change = lambda changes, **more: line.store.change_documents(*line.key, changes, expected={}, **more)  # noqa: E731
    for name in ("a/1", "a/2", "b"):
        write("label", name, 10)
    with pytest.raises(LimitError, match="has 3 documents of the kind 'label'"):
        change({("label", "c"): b"c", ("other", "1"): b"1"})
    with pytest.raises(LimitError, match="with 20 bytes"):
        change({("label", "b"): bytes(81), ("other", "1"): b"1"})
    with pytest.raises(ValueError, match="name of a document"):
        change({("label", ""): b"1"})
    assert line.store.documents(*line.key, "other") == {}
    assert change({("label", "b"): bytes(70)}, dropped=("label", "a/"))
    write("label", "c", 30)
    assert change({("label", "b"): None})
    write("label", "d", 70)
    with pytest.raises(LimitError, match="has 2 documents of the kind 'label' with 100 bytes"):
        write("label", "e", 1)


def test_the_limits_are_those_of_all_that_a_change_writes(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contract, rules, redis_documents):
        for limit, value in (("MAX_DOCUMENTS", 3), ("MAX_DOCUMENTS_BYTES", 100)):
            monkeypatch.setattr(module, limit, value, raising=False)

    def change(changes: dict[str, int | None], **more: Any) -> bool:
        named = {("label", name): None if size is None else bytes(size) for name, size in changes.items()}
        return bool(line.store.change_documents(*line.key, named, expected={}, **more))

    def held() -> dict[str, int]:
        return {name: len(value) for name, value in line.store.documents(*line.key, "label").items()}

    assert change({"a/1": 20, "b": 30})
    with pytest.raises(LimitError, match="has 2 documents of the kind 'label', and 2 more would exceed the limit of 3"):
        change({"c": 1, "d": 1})
    with pytest.raises(LimitError, match=r"has 1 document .* with 20 bytes, and 81 more would exceed the limit of 100"):
        change({"b": 40, "c": 41})
    assert held() == {"a/1": 20, "b": 30}
    assert change({"b": 40, "c": 40}), "as many bytes as the limit"
    assert change({"c": None, "d": 40}), "one goes and another comes"
    assert change({"b": 60, "d": 20}), "one grows by what the other shrinks"
    assert held() == {"a/1": 20, "b": 60, "d": 20}
    with pytest.raises(LimitError, match=r"has 2 documents .* with 80 bytes, and 21 more"):
        change({"e": 21}, dropped=("label", "a/"))
    assert change({"e": 20}, dropped=("label", "a/")), "a fourth in the place of one that is dropped"
    assert held() == {"b": 60, "d": 20, "e": 20}


def test_a_change_may_have_a_smaller_limit_on_the_number_of_documents(line: Any) -> None:
    change, seven = line.store.change_documents, ("label", "7")
    assert change(*line.key, {seven: b"1"}, expected={seven: None}, max_documents=1)
    assert not change(*line.key, {seven: b"2"}, expected={seven: None}, max_documents=0), "what is expected goes first"
    assert change(*line.key, {seven: b"2"}, expected={seven: b"1"}, max_documents=1), "the same name again"
    with pytest.raises(
        LimitError, match="has 1 document of the kind 'label', and 1 more would exceed the limit of 1; delete one"
    ):
        change(*line.key, {("label", "8"): b"", ("other", "8"): b""}, expected={}, max_documents=1)
    damage(line)
    with pytest.raises(LimitError, match="the limit of 1"):
        change(*line.key, {("label", "8"): b""}, expected={}, max_documents=1)
    assert change(*line.key, {("label", "8"): b""}, expected={})
    assert line.store.document_names(*line.key, "other") == []


def test_where_several_kinds_exceed_a_limit_the_first_one_is_named(line: Any) -> None:
    kinds = [f"kind-{i}" for i in (7, 2, 9, 4, 0, 8, 1, 6, 3, 5)]
    for turn in (kinds, kinds[::-1]):
        with pytest.raises(LimitError, match=f"of the kind '{turn[0]}'"):
            line.store.change_documents(*line.key, {(kind, "x"): b"" for kind in turn}, expected={}, max_documents=0)


def test_a_damaged_document_counts_as_none_for_a_change(line: Any) -> None:
    line.store.set_document(*line.key, "label", "7", b"seven")
    damage(line)
    assert not line.store.change_documents(*line.key, {("label", "7"): b"x"}, expected={("label", "7"): b"seven"})
    assert line.store.change_documents(*line.key, {("label", "7"): b"again"}, expected={("label", "7"): None})
    assert line.store.documents(*line.key, "label") == {"7": b"again"}


def test_a_change_of_a_stream_that_is_gone_is_refused(store: Any, new_line: Any) -> None:
    line = new_line(store)
    store.delete_stream("s")
    with pytest.raises(StreamGoneError):
        store.change_documents(*line.key, {("label", "7"): b"x"}, expected={})
