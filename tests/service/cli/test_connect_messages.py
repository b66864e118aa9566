"""Messages of a queue as points."""

import gc
import json
import os
import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest

from shoal_service.cli.connectors import BadMessages, MessageDecoder, Messages, rare_collections
from shoal_service.cli.connectors.messages import MessageFormat
from shoal_service.cli.exits import CommandError
from shoal_service.wire import RecordColumns


class Log:
    """A log that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})


def decoder(form: str, log: Log | None = None, *, stops: bool = False, **options: Any) -> MessageDecoder:
    bad = BadMessages("queue", stops=stops, takes_holes=lambda: False, log=log or Log())
    return MessageDecoder(MessageFormat(form), bad, **options)


def messages(*values: bytes | None, **envelope: Any) -> Messages:
    return Messages([f"id-{i}" for i in range(len(values))], values, **envelope)


@pytest.mark.parametrize("encode", [lambda value: json.dumps(value).encode(), msgspec.msgpack.encode])
def test_arrays_objects_and_records_become_points(encode: Any) -> None:
    form = "json" if encode([1]) == b"[1]" else "msgpack"
    found = decoder(form).decode(messages(encode([1, 2.5]), encode([3, 4])))
    assert found is not None
    assert found.points.tolist() == [[1.0, 2.5], [3.0, 4.0]]
    found = decoder(form).decode(messages(encode({"cpu": 1, "mem": 2}), encode({"mem": 4, "cpu": 3})))
    assert found is not None
    assert (found.points.tolist(), found.feature_names) == ([[1.0, 2.0], [3.0, 4.0]], ["cpu", "mem"])
    record = {"point": [1, 2], "key": "a", "time": 5.0, "payload": {"host": "h"}, "weight": 2}
    found = decoder(form).decode(messages(encode(record)))
    assert found is not None
    assert (found.keys, found.times, found.payloads, found.weights) == (["a"], [5.0], [{"host": "h"}], [2])


def test_fields_of_objects_are_mapped() -> None:
    value = {"x": 1, "y": 2, "host": "a", "at": 3.5, "level": "info", "other": [1]}
    columns = RecordColumns("host", "at", ("level",), None)
    found = decoder("json", columns="y,x", records=columns).decode(messages(json.dumps(value).encode()))
    assert found is not None
    assert found.points.tolist() == [[2.0, 1.0]]
    assert (found.keys, found.times, found.payloads) == (["a"], [3.5], [{"level": "info"}])


@pytest.mark.parametrize(("form", "kind"), [("float32", "<f4"), ("float64", "<f8")])
def test_raw_vectors_keep_their_bits(form: str, kind: str) -> None:
    x = np.random.default_rng(3).normal(size=(5, 7)).astype(kind)
    found = decoder(form).decode(messages(*(row.tobytes() for row in x), keys=[b"k", None, b"\xff", b"", b"z"]))
    assert found is not None
    assert found.points.dtype == np.dtype(kind)
    np.testing.assert_array_equal(found.points, x)
    assert found.keys == ["k", None, "\\xff", "", "z"]


def test_messages_that_cannot_be_used_are_skipped_with_their_envelopes() -> None:
    log = Log()
    found = decoder("json", log).decode(
        messages(b"[1,2]", b"no", None, b"[1,2,3]", b"[1e999,2]", b"[5,6]", times=[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    )
    assert found is not None
    assert (found.points.tolist(), found.times) == ([[1.0, 2.0], [5.0, 6.0]], [0.0, 5.0])
    assert sorted(line["message"] for line in log.lines) == ["id-1", "id-2", "id-3", "id-4"]
    log = Log()
    vectors = [np.ones(2, "<f4").tobytes(), b"12345", np.full(2, np.inf, "<f4").tobytes()]
    found = decoder("float32", log, n_features=lambda: 2).decode(messages(*vectors))
    assert found is not None
    assert found.points.tolist() == [[1.0, 1.0]]
    assert [line["message"] for line in log.lines] == ["id-1", "id-2"]
    assert decoder("msgpack").decode(messages(b"\xc1")) is None


def test_the_first_bad_message_stops_and_is_named() -> None:
    with pytest.raises(CommandError, match="queue, message id-1: is not JSON"):
        decoder("json", stops=True).decode(messages(b"[1,2]", b"no"))
    with pytest.raises(CommandError, match="id-0: has 3 bytes, and one vector has 8"):
        decoder("float32", stops=True, n_features=lambda: 2).decode(messages(b"abc"))
    with pytest.raises(CommandError, match="has no fields to choose"):
        decoder("float32", columns="x")


def test_garbage_is_collected_rarely_while_a_connector_runs_and_as_before_after_it() -> None:
    before, lists = gc.get_threshold(), []
    counts: list[str] = []
    note = lambda phase, info: counts.append(phase)  # noqa: E731
    gc.callbacks.append(note)
    try:
        with rare_collections():
            counts.clear()
            lists = [[i] for i in range(50_000)]
            during = list(counts)
        assert not during
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() == 0
        counts.clear()
        lists = [[i] for i in range(50_000)]
        assert counts, "the threshold is that of before"
    finally:
        gc.callbacks.remove(note)
        lists.clear()


def test_a_connector_starts_without_scipy() -> None:
    """It took a fifth of the start of each source, for points in compressed rows alone."""
    code = "import sys; import shoal_service.cli.connectors.configured; sys.exit('scipy' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0
