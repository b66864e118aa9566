"""A field that cannot be used is refused in every format, in the same words, and nothing of its batch is stored."""

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
from fake_shoal import Deliver
from typer.testing import Result

POINTS = [[1.0], [2.0]]
LISTS = {"key": "keys", "time": "times", "payload": "payloads", "weight": "weights"}
PACKED = {"key": "k", "time": "tm", "payload": "p", "weight": "w"}
BODIES, TABLES = ("json", "ndjson", "msgpack"), ("arrow", "csv", "parquet")
EVERY = (*BODIES, *TABLES)

BAD: list[tuple[str, Any, str, tuple[str, ...]]] = [
    ("key", 7, "the key 7, which is not text", BODIES),  # in a table a whole number is a key
    ("key", True, "the key True, which is not text", (*BODIES, "arrow", "parquet")),
    ("key", ["a"], "the key ['a'], which is not text", BODIES),
    ("key", b"a", "the key b'a', which is not text", ("msgpack",)),
    ("key", "", "a key of 0 bytes; send 1 to 256", (*BODIES, "arrow", "parquet")),  # an empty cell is no key
    ("key", "é" * 128 + "x", "a key of 257 bytes; send 1 to 256", EVERY),
    ("key", "\ud800", "which UTF-8 cannot hold", ("json", "ndjson")),
    ("time", "now", "the time 'now', which is not RFC 3339", EVERY),
    ("time", "2026-01-31T12:00:00", "which is not RFC 3339", EVERY),  # without an offset
    ("time", "2026-02-30T12:00:00Z", "which is not RFC 3339", EVERY),
    ("time", 1e20, "the time 1e+20; send RFC 3339", EVERY),
    ("time", math.nan, "the time nan; send RFC 3339", BODIES),  # no time in a table
    ("time", math.inf, "the time inf; send RFC 3339", EVERY),
    ("time", True, "the time True; send RFC 3339", (*BODIES, "arrow", "parquet")),
    ("payload", [1], "the payload [1]; send a JSON object", BODIES),
    ("payload", "{}", "the payload '{}'; send a JSON object", BODIES),
    ("payload", {"a": [math.nan]}, "a payload with NaN or an infinity, which JSON cannot hold", BODIES),
    ("payload", {"a": math.inf}, "a payload with NaN or an infinity", (*BODIES, "arrow", "parquet")),
    ("payload", {"a": b"x"}, "a payload with bytes, which JSON cannot hold", ("msgpack",)),
    ("payload", {1: "x"}, "a payload with a name that is not text, which JSON cannot hold", ("msgpack",)),
    ("payload", {"a": "x" * 4089}, "a payload of 4097 bytes as JSON, the limit is 4096", EVERY),
    ("weight", 0, "the weight 0; send a number above 0", (*BODIES, "arrow", "parquet")),
    ("weight", 1e10, "the weight 10000000000.0; send a number above 0", EVERY),
    ("weight", "two", "the weight 'two'; send a number above 0", EVERY),
    ("weight", math.nan, "the weight nan; send a number above 0", EVERY),
    ("weight", True, "the weight True; send a number above 0", (*BODIES, "arrow", "parquet")),
]  # fmt: skip


def as_json(field: str, value: Any) -> tuple[str, bytes]:
    return "application/json", json.dumps({"points": POINTS, LISTS[field]: [None, value]}).encode()


def as_ndjson(field: str, value: Any) -> tuple[str, bytes]:
    lines = [{"point": POINTS[0]}, {"point": POINTS[1], field: value}]
    return "application/x-ndjson", "\n".join(map(json.dumps, lines)).encode()


def as_msgpack(field: str, value: Any) -> tuple[str, bytes]:
    body = {"d": 1, "t": "f8", "x": np.array(POINTS, "<f8").tobytes(), PACKED[field]: [None, value]}
    return "application/msgpack", msgspec.msgpack.encode(body)


def table(field: str, value: Any) -> pa.Table:
    columns = value if field == "payload" else {field: value}
    return pa.table({"cpu": pa.array([1.0, 2.0])} | {name: pa.array([None, one]) for name, one in columns.items()})


def as_arrow(field: str, value: Any) -> tuple[str, bytes]:
    rows, file = table(field, value), io.BytesIO()
    with pa.ipc.new_stream(file, rows.schema) as stream:
        stream.write_table(rows)
    return "application/vnd.apache.arrow.stream", file.getvalue()


WRITERS = {"json": as_json, "ndjson": as_ndjson, "msgpack": as_msgpack, "arrow": as_arrow}


URL = "http://127.0.0.1/streams/bad-fields"


def body_refused(deliver: Deliver, kind: str, field: str, value: Any) -> dict[str, Any]:
    content_type, body = WRITERS[kind](field, value)
    name = "payload_columns" if field == "payload" else f"{field}_column"
    params = {name: ",".join(table(field, value).column_names[1:])} if kind == "arrow" else {}
    request = httpx.Request(
        "POST", f"{URL}/ingest", params=params, content=body, headers={"Content-Type": content_type}
    )
    reply = deliver(request)
    assert reply.status_code == 400, (kind, field, value, reply.text)
    answer: dict[str, Any] = reply.json()
    assert (answer["type"], answer["row"]) == ("/problems/record-field", 1), (kind, field, value, answer)
    return answer


def file_of(folder: Path, kind: str, field: str, value: Any) -> tuple[Path, str]:
    rows, file = table(field, value), folder / f"x.{kind}"
    if kind == "parquet":
        pa.parquet.write_table(rows, file)
    else:
        with file.open("w", newline="") as out:
            csv.writer(out).writerows([rows.column_names, *zip(*rows.to_pydict().values(), strict=True)])
    return file, ",".join(rows.column_names[1:])


def test_a_bad_field_is_refused_in_every_format_in_the_same_words(
    shoal: Callable[..., Result], serve_on_loopback: Callable[[Deliver], str], real_shoal: Deliver, tmp_path: Path
) -> None:
    assert real_shoal(httpx.Request("PUT", URL, json={"n_features": 1})).status_code == 201
    address = serve_on_loopback(real_shoal)
    for field, value, words, kinds in BAD:
        for kind in kinds:
            if kind in WRITERS:
                said = body_refused(real_shoal, kind, field, value)["detail"]
                assert said.startswith("row 1 has ")
            else:
                file, names = file_of(tmp_path, kind, field, value)
                option = "--payload-columns" if field == "payload" else f"--{field}-column"
                refused = shoal("ingest", file, "--stream", "bad-fields", option, names, "--url", address)
                assert refused.exit_code != 0, (kind, field, value, refused.output)
                said = " ".join(refused.stderr.split())
            assert words in said, (kind, field, ascii(value)[:60], ascii(said))
    for body in ({"keys": ["a"]}, {"times": [1, 2, 3]}, {"weights": []}, {"payloads": {"a": 1}}, {"keys": "ab"}):
        ((name, values),) = body.items()
        packed = PACKED[name[:-1]]
        bodies = [
            ("application/json", json.dumps({"points": POINTS, name: values}).encode()),
            ("application/msgpack", msgspec.msgpack.encode({"d": 1, "x": bytes(8), packed: values})),
        ]
        answers = set()
        for content_type, sent in bodies:
            reply = real_shoal(
                httpx.Request("POST", f"{URL}/ingest", content=sent, headers={"Content-Type": content_type})
            )
            assert reply.status_code == 400, reply.text
            answers.add((reply.json()["type"], reply.json()["detail"], reply.json().get("row")))
        assert len(answers) == 1, answers
    assert real_shoal(httpx.Request("GET", URL)).json()["points_seen"] == 0
