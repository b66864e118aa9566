"""From whatever holds points to batches: sizes, precision, row numbers, refusals."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from shoal_service.client.bodies import body_of
from shoal_service.client.errors import BadPointsError
from shoal_service.client.points import Batch, Batcher, check_rows, open_source

RNG = np.random.default_rng(3)
X = RNG.normal(size=(25, 3))


def cut(points: Any, batch_size: int) -> list[Batch]:
    batcher = Batcher(batch_size)
    source = open_source(points)
    assert isinstance(source.items, Iterator)
    batches = [batch for item in source.items for batch in batcher.push(item)]
    return [*batches, *batcher.flush()]


def rows_and_tables() -> Iterator[Any]:
    yield X[0]
    yield X[1:12]
    yield X[12].tolist()
    yield X[13:13]
    yield X[13:]


@pytest.mark.parametrize("batch_size", [1, 4, 7, 25, 1000])
@pytest.mark.parametrize(
    "points",
    [X, X.tolist(), list(X), tuple(map(tuple, X.tolist())), [X[:3], X[3:]], np.asfortranarray(X), rows_and_tables],
    ids=["array", "lists", "rows", "tuples", "tables", "fortran", "mixed"],
)
def test_every_source_gives_the_same_batches(points: Any, batch_size: int) -> None:
    batches = cut(points() if callable(points) else points, batch_size)
    np.testing.assert_array_equal(np.concatenate([b.x for b in batches]), X)
    assert [b.first_row for b in batches] == list(range(0, 25, batch_size))
    assert all(len(b.x) == batch_size for b in batches[:-1])


@pytest.mark.parametrize(
    ("given", "sent"),
    [("<f4", "f4"), (">f4", "f4"), ("<f8", "f8"), (">f8", "f8"), ("f2", "f8"), ("i8", "f8"), ("u1", "f8")],
)
def test_float32_stays_float32_and_all_else_is_sent_as_float64(given: str, sent: str) -> None:
    x = np.arange(6).reshape(3, 2).astype(given)
    body = msgspec.msgpack.decode(body_of(cut(x, 10)[0], "msgpack").content)
    assert (body["d"], body["t"]) == (2, sent)
    np.testing.assert_array_equal(np.frombuffer(body["x"], f"<{sent}").reshape(3, 2), x)


def test_float32_rows_beside_float64_rows_lose_nothing() -> None:
    x = cut([np.array([0.1], np.float32), np.array([0.1])], 10)[0].x
    assert x.dtype == np.float64
    assert x[:, 0].tolist() == [float(np.float32(0.1)), 0.1]


def test_a_generator_that_fills_one_array_again_and_again_is_read_row_by_row() -> None:
    def rows() -> Iterator[np.ndarray[Any, Any]]:
        row = np.zeros(2)
        for i in range(5):
            row[:] = i
            yield row

    assert np.concatenate([b.x for b in cut(rows(), 3)])[:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("points", [[], np.empty((0, 3)), np.empty(0), iter(()), [np.empty((0, 3))]])
def test_no_points_are_no_batches(points: Any) -> None:
    assert cut(points, 10) == []


@pytest.mark.parametrize(
    ("points", "row", "words"),
    [
        ([[1.0, 2.0], [1.0]], 1, "1 feature, the rows before have 2"),
        ([np.ones((3, 2)), np.ones((3, 4))], 3, "4 features"),
        ([[1.0, float("nan")]], 0, "not finite"),
        ([np.ones((3, 2)), [[1.0, 1.0], [float("inf"), 0.0]]], 4, "not finite"),
        ([[1.0, 1e151]], 0, "1e150"),
        ([[1.0], [True]], 1, "True"),
        ([[1.0], ["2"]], 1, "'2'"),
        ([[1.0], [None]], 1, "None"),
        ([[[1.0], [False]]], 1, "False"),
        (np.ma.masked_array([[1.0, 2.0], [3.0, 4.0]], mask=[[0, 0], [0, 1]]), 1, "not finite"),
        ([np.array([True])], 0, "bool"),
        ([np.array([1j])], 0, "complex"),
        ([[1.0, 2.0], [[1.0, 2.0], [3.0]]], 1, "equal length"),
        ([1.0, 2.0], 0, "one number"),
        ([np.ones((2, 2, 2))], 0, r"\(2, 2, 2\)"),
        ([[]], 0, "0 features"),
    ],
)
def test_bad_points_are_refused_by_row(points: Any, row: int, words: str) -> None:
    with pytest.raises(BadPointsError, match=words) as caught:
        cut(points, 100)
    assert caught.value.row == row


@pytest.mark.parametrize("points", ["points.csv", b"12", {"x": [1.0]}, 7, None, np.ones(3), np.ones((1, 2, 3))])
def test_what_is_no_table_of_points_is_refused(points: Any) -> None:
    with pytest.raises(BadPointsError, match="points"):
        cut(points, 10)


def test_bad_row_is_numbered_over_all_batches() -> None:
    x = np.ones((1000, 2))
    x[777, 1] = np.nan
    with pytest.raises(BadPointsError, match="row 777 ") as caught:
        cut(x, 50)
    assert caught.value.row == 777


def test_integers_of_a_memory_map_are_converted_a_batch_at_a_time(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(20).reshape(10, 2))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    batches = cut(mapped, 4)
    assert [b.x.dtype for b in batches] == [np.float64] * 3
    assert np.concatenate([b.x for b in batches]).tolist() == mapped.tolist()


@pytest.mark.parametrize(("holes", "value"), [(False, float("nan")), (True, float("inf"))])
def test_a_bad_number_is_refused_by_its_row_and_feature(holes: bool, value: float) -> None:
    x = np.array([[1.0, 2.0, 3.0], [4.0, float("nan") if holes else 5.0, value]])
    with pytest.raises(BadPointsError, match=r"row 8 holds .* in feature 'net'"):
        check_rows(x, 7, ("cpu", "mem", "net"), holes=holes)
    with pytest.raises(BadPointsError, match=r"row 1 holds .* in column 2"):
        check_rows(csr_array([[1.0, 0.0, 3.0], [4.0, 0.0, value]]), 0)


def test_columns_of_pandas_with_missing_values_of_their_own_are_numbers() -> None:
    frame = pd.DataFrame({"a": pd.array([1, 2], dtype="Int64"), "b": [0.5, 1.5]})
    (batch,) = cut(frame, 5)
    np.testing.assert_array_equal(batch.x, [[1.0, 0.5], [2.0, 1.5]])
    assert batch.names == ("a", "b")
    frame.loc[1, "a"] = pd.NA
    with pytest.raises(BadPointsError, match=r"row 1 .* in feature 'a'"):
        cut(frame, 5)
    with pytest.raises(BadPointsError, match="column 'b' from row 0 on has dtype bool"):
        cut(frame.assign(b=[True, False]), 5)
