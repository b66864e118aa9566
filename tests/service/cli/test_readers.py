"""Files of points: every format, in chunks, and faults named by their line."""

import gzip
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal_service.cli.exits import CommandError
from shoal_service.cli.readers import ReadOptions, arrays, open_points

X = np.random.default_rng(2).normal(size=(2500, 3))


def read(path: Path, **options: Any) -> np.ndarray[Any, Any]:
    with open_points(str(path), ReadOptions(**options)) as points:
        return np.concatenate(list(points) or [np.empty((0, 0))])


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def csv_text(x: np.ndarray[Any, Any], header: str = "") -> str:
    return header + "".join(",".join(map(repr, row)) + "\n" for row in x.tolist())


def npy_bytes(x: np.ndarray[Any, Any], **more: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, x, **more)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "name", ["x.csv", "x.txt", "x", "x.csv.gz", "x.ndjson", "x.jsonl.gz", "x.npy", "y", "x.npz", "z"]
)
def test_every_format_gives_the_points_bit_for_bit(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if ".csv" in name or name in ("x.txt", "x"):
        content = csv_text(X).encode()
    elif "json" in name:
        content = "".join(f"{row}\n" for row in X.tolist()).encode()
    elif name in ("x.npz", "z"):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, x=X, y=np.arange(2500))
        content = buffer.getvalue()
    else:
        content = npy_bytes(X)
    write(path, gzip.compress(content) if name.endswith(".gz") else content)
    np.testing.assert_array_equal(read(path), X)


def test_float32_of_a_npy_stays_float32(tmp_path: Path) -> None:
    assert read(write(tmp_path / "x.npy", npy_bytes(X.astype(np.float32)))).dtype == np.float32


def test_fortran_order_is_read_right_from_file_and_archive(tmp_path: Path) -> None:
    f = np.asfortranarray(X)
    np.testing.assert_array_equal(read(write(tmp_path / "x.npy", npy_bytes(f))), X)
    np.savez(tmp_path / "x.npz", x=f)
    np.testing.assert_array_equal(read(tmp_path / "x.npz"), X)


def test_npy_is_read_a_piece_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 24 * 100)
    np.savez(tmp_path / "x.npz", x=X)
    for path in (write(tmp_path / "x.npy", npy_bytes(X)), tmp_path / "x.npz"):
        with open_points(str(path)) as points:
            assert points.n_points == 2500
            assert [len(chunk) for chunk in points] == [100] * 25


def test_npy_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """The process ended by a signal."""
    path = write(tmp_path / "x.npy", npy_bytes(np.zeros((1_000_000, 2))))
    with open_points(str(path)) as points:
        chunks = iter(points)
        next(chunks)
        os.truncate(path, 1000)
        with pytest.raises(CommandError, match="is cut short: "):
            list(chunks)


def test_text_is_read_a_piece_at_a_time(tmp_path: Path) -> None:
    with open_points(str(write(tmp_path / "x.csv", csv_text(X)))) as points:
        assert points.n_points is None
        assert [len(chunk) for chunk in points] == [1000, 1000, 500]
        done, total = points.progress(2500)
        assert done == total == (tmp_path / "x.csv").stat().st_size


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("a,b\n1,2\n3,4\n", {}, [[1, 2], [3, 4]]),
        ("1,2\n3,4\n", {}, [[1, 2], [3, 4]]),
        ("1,2\n3,4\n", {"header": True}, [[3, 4]]),
        ("a,b\n1,2\n", {"columns": "b"}, [[2]]),
        ("a,b,c\n1,2,3\n", {"columns": "c,a"}, [[3, 1]]),
        ("a,b,c,d\n1,2,3,4\n", {"columns": "0,2-3"}, [[1, 3, 4]]),
        ("when,x\n2026-01-01,2\n2026-01-02,3\n", {"columns": "1"}, [[2], [3]]),
        ("2026-01-01,2\n2026-01-02,3\n", {"columns": "1"}, [[2], [3]]),
        ("2,0\n7,8\n", {"header": True, "columns": "0"}, [[8]]),
        ("1;2\n3;4\n", {}, [[1, 2], [3, 4]]),
        ("1\t2\n3\t4\n", {}, [[1, 2], [3, 4]]),
        ("  1   2\n 3  4  \n", {}, [[1, 2], [3, 4]]),
        ("1|2\n", {}, [[1, 2]]),
        ("1:2\n", {"delimiter": ":"}, [[1, 2]]),
        ("1 2\n", {"delimiter": "space"}, [[1, 2]]),
        ("1\n2\n", {}, [[1], [2]]),
        ('"x","y, z"\n"1","2"\n', {}, [[1, 2]]),
        ('id,x\n"two\nlines",2\n', {"columns": "x"}, [[2]]),
        ("\ufeff1,2\n", {}, [[1, 2]]),
        ("1,2\r\n3,4\r\n", {}, [[1, 2], [3, 4]]),
        ("\n\n1,2\n\n3,4\n\n", {}, [[1, 2], [3, 4]]),
        ("1, 2\n-3.5e2, +4\n", {}, [[1, 2], [-350, 4]]),
        ("1,2", {}, [[1, 2]]),
    ],
)
def test_csv_dialects(tmp_path: Path, content: str, options: dict[str, Any], expected: list[list[float]]) -> None:
    assert read(write(tmp_path / "x.csv", content), **options).tolist() == expected


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("[1, 2]\n[3.5, 4]\n", {}, [[1, 2], [3.5, 4]]),
        ("\n[1, 2]\n\n", {}, [[1, 2]]),
        ("[1, 2, 3]\n", {"columns": "2,0"}, [[3, 1]]),
        ('{"a": 1, "b": 2, "c": "no"}\n', {"columns": "b,a"}, [[2, 1]]),
        ('{"a": 1, "b": 2}\n{"b": 4, "a": 3}\n', {}, [[1, 2], [3, 4]]),
    ],
)
def test_ndjson_dialects(tmp_path: Path, content: str, options: dict[str, Any], expected: list[list[float]]) -> None:
    assert read(write(tmp_path / "x.ndjson", content), **options).tolist() == expected


@pytest.mark.parametrize("name", ["x.csv", "x.ndjson", "x"])
def test_empty_file_holds_no_points(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path / name, "")).size == 0


BAD_CSV = [
    ("a,b\n1,2\n3,x\n", {}, r"line 3, column 'b': 'x' is not a number.*--key-column"),
    ("1,2\n3,x\n", {}, r"line 2, column 1: 'x'"),
    ("1,2\n\n3,\n", {}, r"line 3, column 1: empty"),
    ("1,2\n3,nan\n", {}, r"line 2: nan"),
    ("1,2\n3,inf\n", {}, r"line 2: inf"),
    ("1,2\n3,-1e200\n", {}, r"line 2: -1e"),
    ("1,2\n3,4,5\n", {}, r"line 2: 3 columns, the lines before have 2"),
    ("1,2\n3,1_0\n", {}, "1_0"),
    ("a,b\n1,2\n", {"columns": "z"}, "no column 'z'; it has a, b"),
    ("a,a\n1,2\n", {"columns": "a"}, "2 columns called 'a'; choose --columns by number"),
    ("1,2\n", {"columns": "z"}, "no column names"),
    ("1,2\n", {"columns": "0-2"}, "columns are 0 to 1"),
    ("1,2\n", {"columns": ","}, "--columns is empty"),
    ("1,2\n", {"delimiter": "::"}, "one character"),
    ("when,x\n2026-01-01,2\n", {}, "2026-01-01"),
    ("x\n1\n" + "a" * 9999, {}, r"line 3, column 'x': 'a{80}\.\.\.' is not a number"),
    ('x\n\n1\n"3' + "\n4" * 70_000, {}, "line 4: a cell has more than 131,072 characters"),
    ('"a""b"\n1\nc\n', {}, r'as in {"a\\"b": "categorical", ...}'),
    (",".join(f"c{i}" for i in range(99)), {"columns": "z"}, "c28, c29 and 69 more$"),
]


@pytest.mark.parametrize(("content", "options", "words"), BAD_CSV)
def test_bad_csv_is_refused_by_line(tmp_path: Path, content: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        read(write(tmp_path / "x.csv", content), **options)


def test_line_numbers_count_over_pieces_and_quoted_line_ends(tmp_path: Path) -> None:
    lines = 'name,x\n"a\nb",1\n' + "c,2\n" * 2000 + "d,oops\n"
    with pytest.raises(CommandError, match="line 2004, column 'x'"):
        read(write(tmp_path / "x.csv", lines), columns="x")


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("[1, 2]\n[1, 2\n", {}, "line 2 is not JSON"),
        ("[1, 2]\n[1]\n", {}, "line 2: 1 number, the lines before have 2"),
        ("[1, true]\n", {}, "not an array of numbers"),
        ('[1, "2"]\n', {}, "not an array of numbers"),
        ("[1, NaN]\n", {}, "line 1 is not JSON"),
        ("3\n", {}, "not an array of numbers"),
        ('{"a": 1, "b": 2, "c": "x"}\n', {}, "--columns a,b"),
        ('{"a": 1}\n', {"columns": "a,b"}, "field 'b' is missing"),
        ('{"a": true}\n', {"columns": "a"}, "field 'a' is True"),
    ],
)
def test_bad_ndjson_is_refused_by_line(tmp_path: Path, content: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(CommandError, match=words):
        read(write(tmp_path / "x.ndjson", content), **options)


BAD_NPY = [
    (npy_bytes(X)[:-100], "not a usable npy|cut short"),
    (npy_bytes(X)[:20], "not a usable npy"),
    (b"\x93NUMPY", "not a usable npy"),
    (npy_bytes(np.array([[1, "a"]], dtype=object), allow_pickle=True), "not a usable npy|holds object"),
    (npy_bytes(np.array([["1", "2"]])), "holds <U1"),
    (npy_bytes(np.ones((2, 2), bool)), "holds bool"),
    (npy_bytes(np.ones(4)), r"shape \(4,\)"),
    (npy_bytes(np.ones((2, 2, 2))), r"shape \(2, 2, 2\)"),
    (npy_bytes(np.ones((2, 0))), "rows without numbers"),
    (b"1,2\n", "holds csv, but its name says npy; rename it, or add --format csv"),
]


@pytest.mark.parametrize(("content", "words"), BAD_NPY)
@pytest.mark.parametrize("packed", [False, True], ids=["file", "stream"])
def test_bad_npy_is_refused(tmp_path: Path, content: bytes, words: str, packed: bool) -> None:
    path = write(tmp_path / "x.npy", gzip.compress(content) if packed else content)
    with pytest.raises(CommandError, match=words):
        read(path)


def test_a_name_that_says_another_format_is_refused_and_the_format_can_be_given(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    for name, content, kind in (
        ("a.npy", (tmp_path / "x.npz").read_bytes(), "npz"),
        ("a.csv", npy_bytes(X), "npy"),
        ("a.parquet", csv_text(X).encode(), "csv"),
    ):
        path = write(tmp_path / name, content)
        with pytest.raises(CommandError, match=f"holds {kind}, but its name says .*--format {kind}"):
            read(path)
        np.testing.assert_array_equal(read(path, format=kind), X)


@pytest.mark.parametrize("content", ["[]\n[]\n", "{}\n{}\n"])
def test_rows_without_numbers_are_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(CommandError, match="rows without numbers; points need at least one column"):
        read(write(tmp_path / "x.ndjson", content))


def test_a_gzip_that_is_cut_short_is_damaged_where_its_format_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is damaged"):
        read(write(tmp_path / "x", gzip.compress(csv_text(X[:5]).encode())[:-30]))


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e151])
def test_number_that_cannot_be_learnt_is_refused_by_its_row_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
) -> None:
    monkeypatch.setattr(arrays, "CHUNK_BYTES", 24 * 100)
    x = X.copy()
    x[1234, 2] = value
    path = write(tmp_path / "x.npy", npy_bytes(x))
    with pytest.raises(CommandError, match=f"row 1234 .*{value:g}".replace("+", ".")):
        read(path)
    assert len(read(path, columns="0-1")) == 2500


def test_array_of_a_npz_is_chosen_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, train=X, test=X[:10], y=np.arange(9))
    np.testing.assert_array_equal(read(path, key="test"), X[:10])
    with pytest.raises(CommandError, match=r"2 tables; choose with --key NAME: train \(2500, 3\) float64"):
        read(path)
    with pytest.raises(CommandError, match="no array 'valid'; it holds train"):
        read(path, key="valid")
    with pytest.raises(CommandError, match=r"shape \(9,\)"):
        read(path, key="y")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(CommandError, match="not a usable npz"):
        read(path, key="test")


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("x.parquet", {}, "holds csv, but its name says parquet"),
        ("x.parquet.gz", {}, "list of contents is at its end; save it to a file without gzip"),
        ("x.csv", {"format": "npy"}, "not a usable npy file: .*magic"),
        ("x.xlsx", {}, "spreadsheets are not read"),
        ("x.json", {}, "one array a line"),
        ("x.pkl", {}, "can run code"),
        ("x.csv", {"format": "xml"}, "npy, npz, csv, ndjson, parquet"),
        ("missing.csv", {}, "cannot read"),
        (".", {}, "cannot read"),
        ("/proc/self/mem", {}, "cannot read /proc/self/mem: Input/output error"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, options: dict[str, Any], words: str) -> None:
    if name.startswith("x"):
        write(tmp_path / name, gzip.compress(b"PAR1") if name.endswith(".gz") else "1,2\n")
    with pytest.raises(CommandError, match=words):
        read(tmp_path / name, **options)


def test_an_archive_without_a_table_shows_what_it_holds(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", labels=np.arange(3.0))
    with pytest.raises(CommandError, match=r"has no table \(N, D\) of numbers; it holds labels \(3,\) float64"):
        read(tmp_path / "x.npz")


def test_binary_that_is_called_csv_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="UTF-8"):
        read(write(tmp_path / "x.csv", b"\xff\xfe1,2\n"))


def test_gzip_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="damaged"):
        read(write(tmp_path / "x.csv.gz", gzip.compress(csv_text(X).encode())[:-200]))
