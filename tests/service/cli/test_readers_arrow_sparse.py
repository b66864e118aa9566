"""Parquet and sparse points from files: the same numbers, and faults named by their row or line."""

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from scipy import sparse

from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers import ReadOptions, columnar, open_points
from shoal_service.cli.readers import sparse as sparse_reader

RNG = np.random.default_rng(2)
X = RNG.normal(size=(2500, 3))
COUNTS = sparse.csr_array(RNG.poisson(0.3, (2500, 20)).astype(float))


def chunks_of(path: Path, **options: Any) -> list[Any]:
    with open_points(str(path), ReadOptions(**options)) as points:
        return list(points)


def parquet(path: Path, columns: dict[str, Any], **more: Any) -> Path:
    pa.parquet.write_table(pa.table(columns), path, **more)
    return path


def lists(x: np.ndarray[Any, Any], kind: str) -> pa.Array:
    return pa.array(list(x), {"fixed": pa.list_(pa.float64(), 3), "any": pa.list_(pa.float64())}[kind])


@pytest.mark.parametrize("layout", ["columns", "fixed", "any"])
def test_parquet_gives_the_points_bit_for_bit_a_piece_at_a_time(
    tmp_path: Path, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columnar, "CHUNK_ROWS", 1000)
    columns = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]} if layout == "columns" else {"x": lists(X, layout)}
    path = parquet(tmp_path / "x.parquet", columns, row_group_size=700)
    with open_points(str(path)) as points:
        assert points.n_points == 2500
        chunks = list(points)
    assert max(map(len, chunks)) <= 1000
    np.testing.assert_array_equal(np.concatenate(chunks), X)
    np.testing.assert_array_equal(np.concatenate(chunks_of(path.rename(tmp_path / "y"))), X)


def test_a_row_group_of_parquet_is_not_held_whole(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(200_000, 8))
    table = pa.table({f"x{i}": x[:, i] for i in range(8)})
    path = tmp_path / "x.parquet"
    pa.parquet.write_table(table, path, row_group_size=len(x), use_dictionary=False, data_page_size=1 << 15)
    del table
    before = pa.total_allocated_bytes()
    with open_points(str(path)) as points:
        allocated = [(pa.total_allocated_bytes() - before, len(chunk)) for chunk in points]
    assert sum(n for _, n in allocated) == len(x)
    assert 0 < max(n_bytes for n_bytes, _ in allocated) < x.nbytes / 2


def test_numbers_of_parquet_are_read_without_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    path = parquet(tmp_path / "x.parquet", {"a": X[:, 0].astype("f4"), "b": np.arange(2500)})
    code = (
        "import sys; from shoal_service.cli.readers import open_points; "
        f"print(sum(map(len, open_points({str(path)!r}))), 'pandas' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["2500", "False"]


def test_a_piece_of_a_table_has_many_rows_unless_it_is_wide(tmp_path: Path) -> None:
    values = np.arange(20_000.0)
    narrow = parquet(tmp_path / "narrow.parquet", {"a": values, "b": values})
    wide = parquet(tmp_path / "wide.parquet", {f"x{i}": values[:3000] for i in range(600)})
    assert [len(chunk) for chunk in chunks_of(narrow)] == [8192, 8192, 3616]
    assert [len(chunk) for chunk in chunks_of(wide)] == [1000, 1000, 1000]


@pytest.mark.parametrize(("columns", "expected"), [(None, None), ("c,a", [2, 0]), ("1-2", [1, 2])])
def test_parquet_columns_are_chosen_by_name_or_number(
    tmp_path: Path, columns: str | None, expected: list[int] | None
) -> None:
    table = {"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]} | ({"when": ["now"] * 2500} if columns else {})
    got = np.concatenate(chunks_of(parquet(tmp_path / "x.parquet", table), columns=columns))
    np.testing.assert_array_equal(got, X if expected is None else X[:, expected])


def test_columns_of_one_name_are_read_each_as_itself(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(column) for column in X.T], names=["x", "x", "y"])
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    with pa.ipc.new_stream(tmp_path / "x.arrows", table.schema) as sink:
        sink.write_table(table)
    for path in (tmp_path / "x.parquet", tmp_path / "x.arrows"):
        np.testing.assert_array_equal(np.concatenate(chunks_of(path)), X)
        np.testing.assert_array_equal(np.concatenate(chunks_of(path, columns="2,1")), X[:, [2, 1]])


def test_single_precision_of_parquet_stays_and_integers_become_double(tmp_path: Path) -> None:
    single = parquet(tmp_path / "x.parquet", {"a": X[:, 0].astype("f4"), "b": X[:, 1].astype("f4")})
    assert chunks_of(single)[0].dtype == np.float32
    mixed = parquet(tmp_path / "y.parquet", {"a": X[:, 0].astype("f4"), "b": np.arange(2500)})
    assert chunks_of(mixed)[0].dtype == np.float64
    exact = parquet(tmp_path / "z.parquet", {"a": X[:, 0].astype("f4"), "b": [Decimal(i) / 8 for i in range(2500)]})
    np.testing.assert_array_equal(chunks_of(exact)[0][:3, 1], [0, 0.125, 0.25])


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"a": [1.0, 2.0], "s": ["x", "y"]}, {}, "column 's' holds string; choose columns of numbers"),
        ({"a": [True, False]}, {}, "column 'a' holds bool"),
        ({"a": [1.0, None]}, {}, r"row 1 \(from 0\): empty"),
        ({"a": [1.0] * 1500 + [np.nan]}, {}, r"row 1500 \(from 0\): nan"),
        ({"a": [[1.0, 2.0], [3.0]]}, {}, r"row 1 \(from 0\): 1 number, the rows before have 2"),
        ({"a": [[1.0, 2.0], None]}, {}, r"row 1 \(from 0\): empty"),
        ({"a": [[1.0, 2.0], [3.0, None]]}, {}, r"row 1 \(from 0\): empty"),
        ({"a": [[1.0, 2.0]], "b": [1.0]}, {}, "column of lists, 'a', and others"),
        ({"a": [1.0]}, {"columns": "z"}, "no column 'z'; it has a"),
    ],
)
def test_bad_parquet_is_refused(tmp_path: Path, columns: dict[str, Any], options: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        chunks_of(parquet(tmp_path / "x.parquet", columns), **options)


def test_parquet_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = parquet(tmp_path / "x.parquet", {"a": X[:, 0]})
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CommandError, match="not a usable Parquet"):
        chunks_of(path)


def test_without_pyarrow_parquet_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = parquet(tmp_path / "x.parquet", {"a": X[:, 0]})
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CommandError, match=r"pip install 'shoal\[arrow\]'"):
        chunks_of(path)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_sparse_npz_gives_the_matrix_a_piece_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    monkeypatch.setattr(sparse_reader, "CHUNK_BYTES", 8_000)
    path = tmp_path / "x.npz"
    sparse.save_npz(path, getattr(COUNTS, f"to{layout}")())
    chunks = chunks_of(path)
    assert 4 < len(chunks) < 100
    assert (sparse.vstack(chunks) != COUNTS).nnz == 0
    assert chunks_of(path, columns="3,0-1")[0].toarray().tolist() == chunks[0][:, [3, 0, 1]].toarray().tolist()


def test_sparse_npz_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    sparse.save_npz(path, sparse.csr_array(np.array([[True]])))
    with pytest.raises(CommandError, match="bool"):
        chunks_of(path)
    np.savez(path, format=b"csr", shape=(1, 1), data=np.ones(1))
    with pytest.raises(CommandError, match="not a usable sparse npz"):
        chunks_of(path)
    sparse.save_npz(path, sparse.csr_array(np.array([[1.0, 0.0], [0.0, np.inf]])))
    with pytest.raises(CommandError, match=r"row 1 \(from 0\): inf"):
        chunks_of(path)


def ndjson(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def sparse_row(dense: Any) -> dict[str, Any]:
    at = np.flatnonzero(dense)
    return {"indices": at.tolist(), "values": dense[at].tolist()}


def test_sparse_lines_give_the_matrix_a_piece_at_a_time(tmp_path: Path) -> None:
    path = ndjson(tmp_path / "x.ndjson", ["", *map(sparse_row, COUNTS.toarray())])
    chunks = chunks_of(path, features=lambda: 20, chunk_rows=1000)
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 500]
    assert (sparse.vstack(chunks) != COUNTS).nnz == 0


ROW = {"indices": [0], "values": [1]}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([ROW, {"indices": [3], "values": [1]}], "line 2 has the index 3, the features are 0 to 2"),
        ([ROW, "", {"indices": [1, 1], "values": [1, 1]}], "line 3 has the index 1 twice"),
        ([ROW, [1, 2, 3]], "line 2 is an array"),
        ([ROW, "{"], "line 2 is not JSON"),
        ([ROW] * 1500 + [{"indices": [1], "values": [None]}], "line 1501 holds null"),
    ],
)
def test_bad_sparse_lines_are_refused_by_line(tmp_path: Path, rows: list[Any], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        chunks_of(ndjson(tmp_path / "x.ndjson", rows), features=lambda: 3)


def test_width_of_sparse_lines_must_be_known(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--features N"):
        chunks_of(ndjson(tmp_path / "x.ndjson", [ROW]))


def test_fields_that_are_called_so_are_still_fields_when_columns_are_chosen(tmp_path: Path) -> None:
    path = ndjson(tmp_path / "x.ndjson", [{"indices": 1, "values": 2}])
    assert chunks_of(path, columns="values")[0].tolist() == [[2.0]]


def test_the_index_of_a_data_frame_is_no_feature_unless_chosen(tmp_path: Path) -> None:
    frame = pd.DataFrame(X[:5], columns=list("abc"), index=pd.Index(list("vwxyz"), name="host"))
    frame.to_parquet(tmp_path / "x.parquet")
    frame.reset_index(drop=True).iloc[[0, 3, 1]].to_feather(tmp_path / "x.feather")
    np.testing.assert_array_equal(np.concatenate(chunks_of(tmp_path / "x.parquet")), X[:5])
    np.testing.assert_array_equal(np.concatenate(chunks_of(tmp_path / "x.feather")), X[[0, 3, 1]])
    with pytest.raises(CommandError, match="column 'host' holds"):
        chunks_of(tmp_path / "x.parquet", columns="host,a")
