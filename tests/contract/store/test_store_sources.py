"""Positions of sources: they move with the append that carries them, or not at all."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shoal_service.errors import (
    LimitError,
    OverloadedError,
    SourceChangedError,
    SourcePositionError,
    StreamGoneError,
)
from shoal_service.store import (
    SOURCE_DEFINITIONS,
    SOURCES,
    SourcePosition,
    SourceStep,
    contract,
    decode_position,
    definition_digest,
    rules,
)
from shoal_service.store.redis import log as redis_log

HARD = ['a/b"c\\d', "100%", "0-0", "~" * 256]
"""Positions that a JSON encoder may write in more than one way, and the longest one."""


def step(before: str | None, after: str, partition: str = "0", source: str = "orders") -> SourceStep:
    return SourceStep(source, partition, before, after)


def positions(line: Any) -> dict[str, SourcePosition]:
    held = line.store.documents(*line.key, SOURCES)
    return {name: decode_position(name, value) for name, value in held.items()}


def test_a_position_moves_with_the_append_that_carries_it(line: Any) -> None:
    line.add(b"plain", 3)
    for before, after in itertools.pairwise([None, *HARD]):
        line.add(b"batch", 2, source=step(before, after))
    line.add(b"other", 1, source=step(None, "7", "b/1"))
    assert positions(line) == {
        "orders/0": SourcePosition("orders", "0", HARD[-1], HARD[-2], 2, 5, 11),
        "orders/b/1": SourcePosition("orders", "b/1", "7", None, 1, 6, 12),
    }
    assert line.seqs() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("before", [None, "9", "11", "a"])
def test_a_step_that_does_not_follow_is_refused_and_tells_the_stored_position(line: Any, before: str | None) -> None:
    line.add(source=step(None, "5"))
    line.add(source=step("5", "10"))
    with pytest.raises(SourcePositionError, match="is stored up to '10'") as refused:
        line.add(source=step(before, "12"))
    assert refused.value.position == "10"
    with pytest.raises(SourcePositionError, match="has no stored position") as refused:
        line.add(source=step("10", "12", "another"))
    assert refused.value.position is None
    assert line.seqs() == [1, 2]
    assert set(positions(line)) == {"orders/0"}


def test_the_last_step_is_answered_again_and_adds_nothing(line: Any) -> None:
    first = line.add(b"one", 2, source=step(None, "5"))
    assert line.add(b"one", 2, source=step(None, "5")) == first._replace(replayed=True)
    second = line.add(b"two", 3, source=step("5", "9"))
    line.add(b"between", 4)
    assert line.add(b"cut otherwise", 1, source=step("5", "9"), budget_bytes=-1) == second._replace(replayed=True)
    with pytest.raises(SourcePositionError):
        line.add(b"one", 2, source=step(None, "5"))
    assert line.seqs() == [1, 2, 3]


def test_a_refused_append_moves_no_position(line: Any) -> None:
    line.add(source=step(None, "5"))
    with pytest.raises(OverloadedError):
        line.add(source=step("5", "6"), budget_bytes=0)
    assert positions(line)["orders/0"].position == "5"
    line.add(source=step("5", "6"))


def test_an_idempotency_key_and_a_step_may_come_together(line: Any) -> None:
    asked = contract.IdempotencyKey("k", b"digest")
    first = line.add(b"x", 1, idempotency=asked, source=step(None, "5"))
    line.add(b"y", 1, source=step("5", "6"))
    assert line.add(b"x", 1, idempotency=asked, source=step(None, "5")) == first._replace(replayed=True)
    assert positions(line)["orders/0"].position == "6"


def test_of_steps_from_one_position_exactly_one_is_stored(line: Any) -> None:
    line.add(source=step(None, "0"))
    gate, n, rounds = threading.Barrier(8), 8, 5

    def race(me: int) -> int:
        won = 0
        for at in range(rounds):
            gate.wait(120)
            before = positions(line)["orders/0"].position
            gate.wait(120)
            try:
                line.add(b"%d" % me, 1, source=step(before, f"{at}-{me}"))
                won += 1
            except SourcePositionError:
                pass
        return won

    with ThreadPoolExecutor(n) as pool:
        assert sum(pool.map(race, range(n))) == rounds
    assert line.store.tail(*line.key).log_offset == 1 + rounds


def test_steps_may_wait_in_one_group(line: Any) -> None:
    steps = [step(str(i - 1) if i else None, str(i)) for i in range(50)]
    entries = [contract.NewEntry(contract.EntryKind.BATCH, b"x", 1, source=one) for one in steps]
    futures = [line.store.append(*line.key, entry, budget_bytes=1 << 40) for entry in entries]
    assert [future.result(120).seq for future in futures] == list(range(1, 51))
    assert positions(line)["orders/0"].position == "49"


def test_positions_are_bounded_in_number(line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contract, rules, redis_log):
        monkeypatch.setattr(module, "MAX_DOCUMENTS", 2, raising=False)
    line.add(source=step(None, "1", "a"))
    line.add(source=step(None, "1", "b"))
    with pytest.raises(LimitError, match="has 2 documents of the kind 'sources'"):
        line.add(source=step(None, "1", "c"))
    line.add(source=step("1", "2", "a"))
    line.store.set_document(*line.key, SOURCES, "orders/a", None)
    line.add(source=step(None, "1", "c"))
    assert {name: held.position for name, held in positions(line).items()} == {"orders/b": "1", "orders/c": "1"}
    assert line.store.tail(*line.key).seq == 4


@pytest.mark.parametrize(
    "wrong",
    [
        step(None, ""), step(None, "a b"), step("", "a"), step("a", "a"), step(None, "é"), step(None, "x" * 257),
        step(None, "1", ""), step(None, "1", "a b"), step(None, "1", "0", ""), step(None, "1", "0", "a/b"),
    ],
)  # fmt: skip
def test_a_step_of_another_form_is_an_error_of_the_caller(line: Any, wrong: SourceStep) -> None:
    with pytest.raises(ValueError, match=r"; use|another position"):
        line.add(source=wrong)


def test_positions_end_with_their_stream(store: Any, new_line: Any) -> None:
    line = new_line(store)
    line.add(source=step(None, "5"))
    store.delete_stream("s")
    with pytest.raises(StreamGoneError):
        line.add(source=step("5", "6"))
    again = new_line(store, "s", "another life")
    assert positions(again) == {}
    again.add(source=step(None, "1"))


def test_positions_are_there_after_the_store_is_opened_again(open_durable_store: Any, new_line: Any) -> None:
    line = new_line(open_durable_store())
    line.add(source=step(None, "5"))
    held = positions(line)
    line.store.close()
    line.store = open_durable_store()
    assert positions(line) == held
    line.add(source=step("5", "6"))
    line.store.close()


def test_a_damaged_position_is_not_taken_for_none(line: Any) -> None:
    line.add(source=step(None, "5"))
    if hasattr(line.store, "sharing"):
        key = line.store._keys(*line.key).documents
        line.store._connections.ask(("HSET", key, "sources/orders/0", b"12345678" + b"{}"))
    else:
        line.store._writer.run(lambda tx: tx.db.execute("UPDATE documents SET value = x'00'"))
    for before in (None, "5"):
        with pytest.raises(SourcePositionError, match="is damaged"):
            line.add(source=step(before, "6"))
    line.store.set_document(*line.key, SOURCES, "orders/0", None)
    line.add(source=step(None, "6"))


def test_a_step_that_names_a_definition_is_stored_as_long_as_that_is_in_force(line: Any) -> None:
    write = lambda value: line.store.set_document(*line.key, SOURCE_DEFINITIONS, "orders", value)  # noqa: E731
    defined = lambda before, after: step(before, after)._replace(definition=definition_digest(b"{1}"))  # noqa: E731
    with pytest.raises(SourceChangedError, match="was changed, paused or deleted"):
        line.add(source=defined(None, "5"))
    write(b"{1}")
    first = line.add(b"one", 2, source=defined(None, "5"))
    line.add(source=defined("5", "6"))
    for changed in (b"{2}", None):
        write(changed)
        with pytest.raises(SourceChangedError):
            line.add(source=defined("6", "7"))
        assert line.add(source=defined("5", "6")).replayed, "what is stored is stored"
    assert positions(line)["orders/0"].position == "6"
    assert line.seqs() == [1, 2]
    assert line.add(source=step("6", "7")).log_offset == first.log_offset + 2


def test_a_first_step_of_a_deleted_definition_leaves_no_position(line: Any) -> None:
    line.store.set_document(*line.key, SOURCE_DEFINITIONS, "orders", b"{1}")
    line.store.set_document(*line.key, SOURCE_DEFINITIONS, "orders", None)
    with pytest.raises(SourceChangedError):
        line.add(source=step(None, "5")._replace(definition=definition_digest(b"{1}")))
    assert (positions(line), line.seqs()) == ({}, [])
    with pytest.raises(ValueError, match="definition is 'x'; use 40 hexadecimal digits"):
        line.add(source=step(None, "5")._replace(definition="x"))
