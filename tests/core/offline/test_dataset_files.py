"""Data sets on disk: which files and rows they have, in which order, and what is refused."""

import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as arrow
import pyarrow.parquet as parquet
import pytest

from shoal.errors import InputError, NoPointsError, SettingError, ShapeError
from shoal.offline import Dataset, is_dataset, open_dataset
from shoal.offline.dataset import BLOCK_ROWS, chunks_of

X = np.random.default_rng(0).normal(size=(250_000, 2)).astype(np.float32)


def rows_of(dataset: Dataset) -> np.ndarray:
    """All rows, as a worker reads them: each block after a way through pickle."""
    blocks = pickle.loads(pickle.dumps(dataset.blocks))
    return np.concatenate([chunk for block in blocks for chunk in chunks_of(block, dataset.n_features)])


def table(x: np.ndarray, names: str = "ab") -> pa.Table:
    return pa.table({name: x[:, i] for i, name in enumerate(names)})


def test_blocks_hold_all_rows_in_order_whatever_the_format(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    parquet.write_table(table(X), tmp_path / "x.parquet", row_group_size=30_000)
    lists = pa.table({"both": pa.FixedSizeListArray.from_arrays(X.ravel(), 2)})
    parquet.write_table(lists, tmp_path / "lists.parquet")
    with pa.ipc.new_file(tmp_path / "x.arrow", table(X).schema) as writer:
        writer.write_table(table(X), max_chunksize=70_000)
    for name in ("x.npy", "x.parquet", "lists.parquet", "x.arrow"):
        found = open_dataset(tmp_path / name)
        assert found.n_rows == len(X)
        assert found.names == (("a", "b") if name in ("x.parquet", "x.arrow") else None)
        np.testing.assert_array_equal(rows_of(found), X)


def test_dictionaries_of_numbers_are_read_as_their_values(tmp_path: Path) -> None:
    whole = table(X[:9].round())
    coded = pa.table([column.dictionary_encode() for column in whole.columns], whole.column_names)
    with pa.ipc.new_file(tmp_path / "x.arrow", coded.schema) as writer:
        writer.write_table(coded)
    np.testing.assert_array_equal(rows_of(open_dataset(tmp_path / "x.arrow")), X[:9].round())


def test_decimals_of_a_database_are_read_as_numbers(tmp_path: Path) -> None:
    exact = pa.table(
        {"a": pa.array([Decimal("1.125"), None, Decimal("-3.5")], pa.decimal128(9, 3)), "b": [1.0, 2.0, 3.0]}
    )
    parquet.write_table(exact, tmp_path / "x.parquet")
    np.testing.assert_array_equal(rows_of(open_dataset(tmp_path / "x.parquet")), [[1.125, 1], [np.nan, 2], [-3.5, 3]])


def test_row_groups_are_gathered_into_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.offline.arrow_rows.block_rows", lambda width: BLOCK_ROWS)
    parquet.write_table(table(X), tmp_path / "x.parquet", row_group_size=30_000)
    blocks = open_dataset(tmp_path / "x.parquet").blocks
    assert [block.n_rows for block in blocks] == [120_000, 120_000, 10_000]
    assert [sum(map(len, chunks_of(block, 2))) for block in blocks] == [120_000, 120_000, 10_000]


def test_files_come_in_the_order_of_their_names_and_are_named_within_their_folder(tmp_path: Path) -> None:
    for name in ("b/2.npy", "b/1.npy", "a/9.npy", "_x/0.npy", ".7.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / name, np.full((3, 2), float(name[-5])))
    folder = open_dataset(tmp_path)
    assert [file.name for file in folder.files] == ["a/9.npy", "b/1.npy", "b/2.npy"]
    assert rows_of(folder)[::3, 0].tolist() == [9.0, 1.0, 2.0]
    assert [file.name for file in open_dataset(str(tmp_path / "b" / "*.npy")).files] == ["1.npy", "2.npy"]
    given = open_dataset([tmp_path / "b" / "2.npy", str(tmp_path / "a")])
    assert [file.name for file in given.files] == ["b/2.npy", "a/9.npy"]
    assert folder.place(1, 2) == f"{tmp_path / 'b' / '1.npy'}, row 2"


def test_columns_are_chosen_by_name_and_filters_are_refused(tmp_path: Path) -> None:
    whole = pa.table({"id": ["x"] * 9, "a": np.arange(9.0), "b": np.arange(9)})
    parquet.write_table(whole, tmp_path / "x.parquet")
    found = open_dataset(tmp_path / "x.parquet", columns=["b", "a"])
    np.testing.assert_array_equal(rows_of(found), np.stack([np.arange(9), np.arange(9)], axis=1))
    some = arrow.dataset(tmp_path / "x.parquet").filter(pc.field("a") > 5.0)
    assert is_dataset(some)
    with pytest.raises(SettingError, match="cannot be divided"):
        open_dataset(some, columns=["a"])


def test_what_is_no_data_set() -> None:
    assert not any(map(is_dataset, (X, X.tolist(), [[1.0]], table(X), None, [])))


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    np.save(tmp_path / "two.npy", X[:5])
    np.save(tmp_path / "one.npy", X[:5, :1])
    np.save(tmp_path / "flat.npy", X[0])
    np.save(tmp_path / "none.npy", X[:0])
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing")
    parquet.write_table(pa.table({"name": ["x"], "a": [1.0]}), tmp_path / "names.parquet")
    at = str(tmp_path) + "/"
    for source, columns, kind, words in (
        ([at + "two.npy", at + "one.npy"], None, ShapeError, "one.npy has 1 features, the files before 2"),
        (at + "flat.npy", None, ShapeError, r"shape \(2,\)"),
        (at + "none.npy", None, NoPointsError, "no rows"),
        (at + "bad.parquet", None, InputError, "not a usable file"),
        (at + "absent*.npy", None, InputError, "absent"),
        ([at + "two.npy", at + "names.parquet"], None, InputError, "one format"),
        (at + "names.parquet", None, SettingError, "column 'name' holds string"),
        (at + "names.parquet", ["b"], SettingError, "no column 'b'.* name, a"),
        (at + "two.npy", ["a"], SettingError, "npy files have no names"),
    ):
        with pytest.raises(kind, match=words):
            open_dataset(source, columns)


def test_lists_of_different_lengths_are_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"v": [[1.0, 2.0], [3.0]]}), tmp_path / "x.parquet")
    with pytest.raises(ShapeError, match="'v' has rows without 2 numbers"):
        rows_of(open_dataset(tmp_path / "x.parquet"))
    for first in (None, []):
        parquet.write_table(pa.table({"v": pa.array([first, [3.0]])}), tmp_path / "first.parquet")
        with pytest.raises(ShapeError, match=r"first\.parquet, column 'v' begins with a row without numbers"):
            open_dataset(tmp_path / "first.parquet")


def test_every_file_is_read_with_its_own_type_of_numbers(tmp_path: Path) -> None:
    exact = [1 / 3, 1e-300]
    for order in (("float32", "float64", "int64"), ("int64", "float32", "float64")):
        folder = tmp_path / order[0]
        folder.mkdir()
        columns = {
            "float32": pa.array([0.5, 0.25], pa.float32()),
            "float64": pa.array(exact),
            "int64": pa.array([7, 8]),
        }
        for place, kind in enumerate(order):
            parquet.write_table(pa.table({"a": columns[kind]}), folder / f"{place}.parquet")
        expected = {"float32": [0.5, 0.25], "float64": exact, "int64": [7.0, 8.0]}
        assert rows_of(open_dataset(folder)).ravel().tolist() == [v for kind in order for v in expected[kind]]
        lists = tmp_path / f"lists-{order[0]}"
        lists.mkdir()
        for place, kind in enumerate(order):
            values = pa.FixedSizeListArray.from_arrays(columns[kind], 2)
            parquet.write_table(pa.table({"v": values}), lists / f"{place}.parquet")
        assert rows_of(open_dataset(lists)).ravel().tolist() == [v for kind in order for v in expected[kind]]


def test_the_columns_are_those_of_the_first_file_with_rows(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": pa.nulls(0), "b": pa.nulls(0)}), tmp_path / "0.parquet")
    parquet.write_table(table(X[:3]), tmp_path / "1.parquet")
    parquet.write_table(pa.table({"b": X[3:6, 1], "c": ["x"] * 3, "a": X[3:6, 0]}), tmp_path / "2.parquet")
    found = open_dataset(tmp_path)
    assert [(file.name, file.n_rows) for file in found.files] == [("0.parquet", 0), ("1.parquet", 3), ("2.parquet", 3)]
    np.testing.assert_array_equal(rows_of(found), X[:6])


def test_a_file_that_does_not_fit_the_others_is_named(tmp_path: Path) -> None:
    parquet.write_table(table(X[:3]), tmp_path / "0.parquet")
    other = tmp_path / "1.parquet"
    parquet.write_table(table(X[:3], "ac"), other)
    with pytest.raises(InputError, match=r"1\.parquet has no column 'b', as other files have"):
        open_dataset(tmp_path)
    np.testing.assert_array_equal(rows_of(open_dataset(tmp_path, ["a"])), np.tile(X[:3, :1], (2, 1)))
    other.write_bytes(b"PAR1 and nothing")
    with pytest.raises(InputError, match=r"^\S*1\.parquet is not a usable file"):
        open_dataset(tmp_path)


def test_keys_of_partitions_are_features_like_others(tmp_path: Path) -> None:
    for key in (1, 2):
        (tmp_path / f"k={key}").mkdir()
        parquet.write_table(table(X[:3]), tmp_path / f"k={key}" / "x.parquet")
    found = open_dataset(arrow.dataset(tmp_path, partitioning="hive"))
    assert found.names == ("a", "b", "k")
    assert rows_of(found)[:, 2].tolist() == [1.0] * 3 + [2.0] * 3


def test_texts_in_a_later_file_are_refused_not_read_as_numbers(tmp_path: Path) -> None:
    parquet.write_table(table(X[:3]), tmp_path / "0.parquet")
    parquet.write_table(pa.table({"a": X[:3, 0], "b": ["1.5", "2", "3"]}), tmp_path / "1.parquet")
    with pytest.raises(SettingError, match=r"column 'b' holds string in \S*1\.parquet; choose columns of numbers"):
        open_dataset(tmp_path)


def test_the_index_of_a_data_frame_is_no_feature_unless_chosen(tmp_path: Path) -> None:
    frame = pd.DataFrame(X[:5], columns=list("abc")[: X.shape[1]])
    frame.iloc[[0, 3, 1]].to_parquet(tmp_path / "x.parquet")
    found = open_dataset(tmp_path)
    assert found.names == tuple(frame.columns)
    np.testing.assert_array_equal(rows_of(found), X[[0, 3, 1]])
    assert rows_of(open_dataset(tmp_path, ["__index_level_0__"])).ravel().tolist() == [0.0, 3.0, 1.0]
