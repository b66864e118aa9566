"""Keys, times, payloads and weights from the columns of a file; and bad rows, which stop, are skipped, or reported."""

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers import BadRows, ReadOptions, open_points
from shoal_service.wire import RecordColumns, WireLimits, decode
from shoal_service.wire.record_fields import checked_fields

ROWS = [
    {"id": "a", "x": 1.5, "at": "2026-01-31T12:00:00Z", "host": "web", "y": -2.0, "n": 7},
    {"id": None, "x": 2.5, "at": None, "host": "007", "y": 0.25, "n": None},
    {"id": "c d", "x": 1e-300, "at": "2026-01-31T12:00:00Z", "host": None, "y": 3.0, "n": -1},
]
X = np.array([[row["x"], row["y"]] for row in ROWS])
RECORDS = RecordColumns("id", "at", ("host", "n"))
MOMENT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def as_csv(path: Path) -> Path:
    cells = ["" if value is None else str(value) for row in ROWS for value in row.values()]
    lines = [",".join(ROWS[0]), *(",".join(cells[i : i + 6]) for i in range(0, 18, 6))]
    path.write_text("\n".join(lines) + "\n")
    return path


def as_ndjson(path: Path) -> Path:
    path.write_text("".join(json.dumps(row) + "\n\n" for row in ROWS))
    return path


def as_table() -> Any:
    moments = pa.array([MOMENT, None, MOMENT], pa.timestamp("ns", "UTC"))
    return pa.table({name: moments if name == "at" else pa.array([row[name] for row in ROWS]) for name in ROWS[0]})


def as_parquet(path: Path) -> Path:
    pa.parquet.write_table(as_table(), path, compression="zstd")
    return path


def as_arrow(path: Path, *, stream: bool = False, dictionaries: bool = False) -> Path:
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    table = as_table()
    if dictionaries:
        table = pa.table([column.dictionary_encode() for column in table.columns], table.column_names)
    with path.open("wb") as file, new(file, table.schema) as out:
        out.write_table(table, max_chunksize=2)
    return path


def chunks(path: Path, bad: BadRows | None = None, **options: Any) -> list[Any]:
    with open_points(str(path), ReadOptions(**options), bad) as points:
        return list(points.chunks())


def listed(values: Any) -> list[Any]:
    if isinstance(values, np.ndarray):
        return [None if np.isnat(value) else value.astype("M8[s]").item().replace(tzinfo=UTC) for value in values]
    return [datetime.fromisoformat(value) if isinstance(value, str) else value for value in values]


WRITERS: dict[str, Callable[[Path], Path]] = {
    "x.csv": as_csv,
    "x.ndjson": as_ndjson,
    "x.parquet": as_parquet,
    "x.arrow": as_arrow,
    "x.feather": as_arrow,
    "unnamed": as_arrow,
    "dictionaries.arrow": lambda path: as_arrow(path, dictionaries=True),
    "x.arrows": lambda path: as_arrow(path, stream=True),
    "unnamed-stream": lambda path: as_arrow(path, stream=True),
}


@pytest.mark.parametrize("name", WRITERS)
def test_named_columns_are_fields_and_the_others_features(tmp_path: Path, name: str) -> None:
    found = chunks(WRITERS[name](tmp_path / name), records=RECORDS)
    np.testing.assert_array_equal(np.concatenate([chunk.points for chunk in found]), X)
    assert [key for chunk in found for key in chunk.fields.keys] == ["a", None, "c d"]
    assert [time for chunk in found for time in listed(chunk.fields.times)] == [MOMENT, None, MOMENT]
    payloads = [payload for chunk in found for payload in chunk.fields.payloads]
    assert payloads == [{"host": "web", "n": 7}, {"host": "007", "n": None}, {"host": None, "n": -1}]
    with open_points(str(tmp_path / name), ReadOptions(records=RECORDS)) as points:
        np.testing.assert_array_equal(np.concatenate(list(points)), X)  # without the fields, as for a fit


@pytest.mark.parametrize("columns", ["y,x", "4,1"])
def test_features_may_be_chosen_beside_the_fields(tmp_path: Path, columns: str) -> None:
    for path in (as_csv(tmp_path / "x.csv"), as_parquet(tmp_path / "x.parquet")):
        (chunk,) = chunks(path, columns=columns, records=RecordColumns("id"))
        np.testing.assert_array_equal(chunk.points, X[:, ::-1])
        assert list(chunk.fields.keys) == ["a", None, "c d"]
        assert chunk.fields.payloads is None


def test_columns_of_a_csv_without_names_go_by_number(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a 1 10 1\nb 2 20 1.0\n")
    (chunk,) = chunks(tmp_path / "x.csv", records=RecordColumns("0", "2", (), "3"))
    np.testing.assert_array_equal(chunk.points, [[1.0], [2.0]])
    assert (chunk.fields.keys, chunk.fields.times) == (["a", "b"], [10.0, 20.0])
    assert chunk.fields.weights == [1.0, 1.0]


def test_one_array_among_the_fields_is_the_point(tmp_path: Path) -> None:
    (tmp_path / "x.ndjson").write_text('{"id": 7, "embedding": [1, 2]}\n{"embedding": [3, 4], "id": "b"}\n')
    (chunk,) = chunks(tmp_path / "x.ndjson", records=RecordColumns("id"))
    np.testing.assert_array_equal(chunk.points, [[1.0, 2.0], [3.0, 4.0]])
    assert chunk.fields.keys == ["7", "b"]


def test_lines_may_be_records_as_the_service_takes_them(tmp_path: Path) -> None:
    (tmp_path / "x.ndjson").write_text('[1, 2]\n{"point": [3, 4], "key": "b", "payload": {"a": [1]}}\n')
    (chunk,) = chunks(tmp_path / "x.ndjson")
    np.testing.assert_array_equal(chunk.points, [[1.0, 2.0], [3.0, 4.0]])
    assert (chunk.fields.keys, chunk.fields.payloads, chunk.fields.times) == ([None, "b"], [None, {"a": [1]}], None)


def test_sparse_records_are_read_as_the_service_reads_them(tmp_path: Path) -> None:
    body = (
        b'{"point": {"indices": [0, 3], "values": [1, 2]}, "key": "a", "time": 5, "weight": 2}\n'
        b'{"key": "b", "point": {"values": [4.5], "indices": [1]}, "payload": {"n": 1}}\n'
    )
    sent = decode(body, "application/x-ndjson", WireLimits(1 << 20, 99, 99), n_features=4)
    bad = b'{"point": {"indices": [9], "values": [1]}}\n{"point": {"indices": [], "values": []}, "key": 7}\n'
    bad += b'{"point": {"indices": [], "values": []}, "colour": 7}\n'
    (tmp_path / "x.ndjson").write_bytes(body + bad + b'{"indices": [2], "values": [6]}\n')
    report = io.StringIO()
    (chunk,) = chunks(tmp_path / "x.ndjson", BadRows("x", stops=False, report=report), features=lambda: 4)
    np.testing.assert_array_equal(chunk.points[:2].toarray(), sent.x.toarray())
    np.testing.assert_array_equal(chunk.points[[2]].toarray(), [[0, 0, 6, 0]])
    fields = checked_fields(2, *(None if values is None else values[:2] for values in chunk.fields))
    assert [list(fields.keys), list(fields.payloads)] == [list(sent.fields.keys), list(sent.fields.payloads)]
    np.testing.assert_array_equal(fields.times, sent.fields.times)
    np.testing.assert_array_equal(fields.weights, sent.fields.weights)
    faults = {found["line"]: found["reason"] for found in map(json.loads, report.getvalue().splitlines())}
    assert faults == {
        3: "has the index 9, the features are 0 to 3",
        4: "the key 7, which is not text",
        5: "has the field 'colour'",
    }


@pytest.mark.parametrize(
    ("name", "text", "options", "words"),
    [
        ("x.csv", "id,x\na,1\n", {"records": RecordColumns("key")}, "no column 'key'; it has id, x"),
        ("x.csv", "id,id,x\na,b,1\n", {"records": RecordColumns("id")}, "2 columns called 'id'"),
        ("x.csv", "id,t\na,1\n", {"records": RecordColumns("id", "t")}, "no column left"),
        ("x.csv", "id,x\na,1\n", {"records": RecordColumns("id"), "columns": "id,x"}, "leave it out of --columns"),
        ("x.csv", "id,x\na,1\n" + "b" * 257 + ",2\n", {"records": RecordColumns("id")}, "line 3: a key of 257 bytes"),
        (
            "x.csv",
            "id,t,x\na,1,1\nb,noon,2\n",
            {"records": RecordColumns(None, "t", ("id",))},
            "line 3: the time 'noon'",
        ),
        ("x.csv", "w,x\n1,1\n-1,2\n", {"records": RecordColumns(weight="w")}, "line 3: the weight -1"),
        ("x.csv", "w,x\n1,1\nbig,2\n", {"records": RecordColumns(weight="w")}, "line 3: the weight 'big'"),
        ("x.csv", "id,x,y\na,1,2\nb,3,nan\n", {"records": RecordColumns("id")}, "line 3: nan among .* 'y'"),
        ("x.ndjson", '{"id": 1.5, "x": 1}\n', {"records": RecordColumns("id")}, "line 1: the key 1.5"),
        ("x.ndjson", '{"id": "a", "x": 1}\n{"x": 1}\n', {"records": RecordColumns("id")}, "line 2, field 'id'"),
        (
            "x.ndjson",
            '{"id": "a", "x": 1}\n{"id": "b", "x": 1, "z": 2}\n',
            {"records": RecordColumns("id")},
            "'z' is not",
        ),
        ("x.ndjson", '{"id": "a", "x": 1}\n{"id": "b", "z": 2}\n', {"records": RecordColumns("id")}, "line 2"),
        ("x.ndjson", "[1, null]\n", {}, "line 1: column 1 is null"),
        ("x.ndjson", '{"point": [1, "a"], "key": "b"}\n', {}, r"field 'point\[1\]' is 'a'"),
        ("x.npy", "", {"records": RecordColumns("id")}, "numbers only"),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_line(
    tmp_path: Path, name: str, text: str, options: dict[str, Any], words: str
) -> None:
    (tmp_path / name).write_text(text)
    if name == "x.npy":
        np.save(tmp_path / name, X)
    with pytest.raises(CommandError, match=words):
        chunks(tmp_path / name, **options)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pa.array([1.5, 2.5, 3.5]), "row 0 .from 0.: the key 1.5"),
        (pa.array([["a"]] * 3), "column 'id' holds list"),
        (pa.array(["a", "b" * 300, None]), "row 1 .from 0.: a key of 300 bytes"),
    ],
)
def test_bad_keys_of_a_table_are_refused_by_row(tmp_path: Path, column: Any, words: str) -> None:
    pa.parquet.write_table(as_table().set_column(0, "id", column), tmp_path / "x.parquet")
    with pytest.raises(CommandError, match=words):
        chunks(tmp_path / "x.parquet", records=RECORDS)


# -- bad rows

BAD_FILES: dict[str, tuple[str, list[int]]] = {
    "x.csv": ("id,x,y\na,1,2\nb,,2\nc,1,oops\nd,3,4,5\ne,inf,1\n,5,6\n" + "f" * 300 + ",7,8\nh,9,9\n", [3, 4, 5, 6, 8]),
    "x.ndjson": (
        '{"id": "a", "x": 1, "y": 2}\n{"id": "b", "x": null, "y": 2}\nnonsense\n[1, 2]\n'
        '{"id": "e", "x": 1e200, "y": 1}\n'
        '{"id": null, "x": 5, "y": 6}\n{"id": 1.5, "x": 7, "y": 8}\n{"id": "h", "x": 9, "y": 9}\n',
        [2, 3, 4, 5, 7],
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
@pytest.mark.parametrize("chunk_rows", [1, 3, 1000])
def test_bad_lines_are_skipped_and_reported_and_the_others_kept(tmp_path: Path, name: str, chunk_rows: int) -> None:
    text, lines = BAD_FILES[name]
    (tmp_path / name).write_text(text)
    report = io.StringIO()
    bad = BadRows(name, stops=False, report=report)
    found = chunks(tmp_path / name, bad, records=RecordColumns("id"), chunk_rows=chunk_rows)
    np.testing.assert_array_equal(np.concatenate([c.points for c in found]), [[1, 2], [5, 6], [9, 9]])
    assert [key for c in found for key in (c.fields.keys or [None] * len(c.points))] == ["a", None, "h"]
    entries = [json.loads(line) for line in report.getvalue().splitlines()]
    assert sorted(entry["line"] for entry in entries) == lines
    assert bad.count == len(lines)
    original = text.splitlines()
    for entry in entries:
        assert set(entry) == {"line", "reason", "row"}
        row = ",".join(entry["row"]) if name == "x.csv" else entry["row"]
        assert row == original[entry["line"] - 1]
    with pytest.raises(CommandError, match=f"line {lines[0]}"):
        chunks(tmp_path / name, records=RecordColumns("id"))


def test_bad_rows_of_tables_are_skipped_by_their_number(tmp_path: Path) -> None:
    x = np.arange(5000.0).reshape(-1, 2)
    x[[3, 1200, 2499], [0, 1, 0]] = np.nan, np.inf, 1e151
    np.save(tmp_path / "x.npy", x)
    pa.parquet.write_table(pa.table({"a": x[:, 0], "b": x[:, 1]}), tmp_path / "x.parquet")
    holes = pa.table({"a": pa.array(x[:, 0], mask=np.isin(np.arange(2500), [3, 7])), "b": x[:, 1]})
    pa.parquet.write_table(holes, tmp_path / "holes.parquet")
    lists = [None if i == 7 else row[: 1 if i == 9 else 2].tolist() for i, row in enumerate(x)]
    pa.parquet.write_table(pa.table({"x": lists}), tmp_path / "lists.parquet")
    for name, missing in (("x.npy", []), ("x.parquet", []), ("holes.parquet", [7]), ("lists.parquet", [7, 9])):
        report = io.StringIO()
        found = chunks(tmp_path / name, BadRows(name, stops=False, report=report))
        rows = [json.loads(line)["row"] for line in report.getvalue().splitlines()]
        numbers = [json.loads(line).get("row") for line in report.getvalue().splitlines()]
        assert len(rows) == len(numbers) == 3 + len(missing)
        kept = np.setdiff1d(np.arange(2500), [3, 1200, 2499, *missing])
        np.testing.assert_array_equal(np.concatenate([c.points for c in found]), x[kept])
        np.testing.assert_array_equal(np.concatenate([c.numbers for c in found]), kept)


def test_bad_sparse_lines_are_skipped(tmp_path: Path) -> None:
    rows = [
        '{"indices": [0], "values": [1]}',
        "[1]",
        '{"indices": [9], "values": [1]}',
        '{"indices": [2], "values": [2]}',
    ]
    (tmp_path / "x.ndjson").write_text("\n".join(rows))
    bad = BadRows("x", stops=False)
    (chunk,) = chunks(tmp_path / "x.ndjson", bad, features=lambda: 3)
    np.testing.assert_array_equal(chunk.points.toarray(), [[1, 0, 0], [0, 0, 2]])
    assert (bad.count, chunk.numbers.tolist()) == (2, [1, 4])


# -- missing values


@pytest.mark.parametrize(
    "name", ["x.csv", "x.tsv", "x.ndjson", "o.ndjson", "p.ndjson", "x.parquet", "l.parquet", "x.npy"]
)
def test_missing_values_are_nan_where_the_stream_takes_them(tmp_path: Path, name: str) -> None:
    x = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 6.0], [np.nan, np.nan, 9.0], [7.0, 8.0, 9.0]])
    rows = [[None if np.isnan(value) else value for value in row] for row in x.tolist()]
    path = tmp_path / name
    if name in ("x.csv", "x.tsv"):
        mark = "," if name == "x.csv" else "\t"
        cells = [mark.join("" if value is None else str(value) for value in row) for row in rows]
        path.write_text(mark.join("abc") + "\n" + "\n".join(cells) + "\n")
    elif name == "x.ndjson":
        path.write_text("\n".join(map(json.dumps, rows)))
    elif name == "o.ndjson":
        path.write_text("\n".join(json.dumps(dict(zip("abc", row, strict=True))) for row in rows))
    elif name == "p.ndjson":
        path.write_text("\n".join(json.dumps({"point": row, "key": "k"}) for row in rows))
    elif name == "x.parquet":
        pa.parquet.write_table(pa.table({n: [row[j] for row in rows] for j, n in enumerate("abc")}), path)
    elif name == "l.parquet":
        pa.parquet.write_table(pa.table({"x": pa.array(rows, pa.list_(pa.float64()))}), path)
    else:
        np.save(path, x)
    asked: list[int] = []
    takes = BadRows("x", takes_holes=lambda: bool(asked.append(1)) or True)
    found = chunks(path, takes)
    np.testing.assert_array_equal(np.concatenate([chunk.points for chunk in found]), x)
    assert asked == [1], "the server is asked once"
    skips = BadRows("x", stops=False)
    kept = np.concatenate([chunk.points for chunk in chunks(path, skips)])
    np.testing.assert_array_equal(kept, x[[1, 3]])
    assert skips.count == 2


def test_a_row_without_any_value_is_bad_everywhere(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,\n,\n3,4\n")
    bad = BadRows("x", stops=False, takes_holes=lambda: True)
    (chunk,) = chunks(tmp_path / "x.csv", bad)
    np.testing.assert_array_equal(chunk.points, [[1.0, np.nan], [3.0, 4.0]])
    assert bad.count == 1
