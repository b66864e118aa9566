"""Texts of categories from Python: tables of many kinds, in every format, against the real decoder and service."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from fake_shoal import Deliver

from shoal_service.client import BadPointsError, Client, InvalidRequestError, Records
from shoal_service.client.bodies import Format, body_of
from shoal_service.client.points import Batch, Batcher, open_source
from shoal_service.wire import WireLimits, decode

LIMITS = WireLimits(1 << 24, 10_000, 1_000, texts=True)
NAMES = ("cpu", "errors", "region")
ROWS = [[0.5, 3, "eu"], [1.5, 4, "us"], [2.5, 5, "eu"], [3.5, 6, "ap"], [4.5, 7, "us"]]
FRAME = pd.DataFrame(ROWS, columns=list(NAMES))
TABLE = pa.table({name: list(values) for name, values in zip(NAMES, zip(*ROWS, strict=True), strict=True)})
TABLES: dict[str, Any] = {
    "rows": ROWS,
    "pieces": [ROWS[0], ROWS[1:3], np.array(ROWS[3:], dtype=object)],
    "array": np.array(ROWS, dtype=object),
    "frame": FRAME,
    "frame with categories": FRAME.assign(region=FRAME["region"].astype("category")),
    "frames": [FRAME[:2], FRAME[["region", "cpu", "errors"]][2:]],
    "arrow": TABLE,
    "arrow with a dictionary": TABLE.set_column(2, "region", TABLE["region"].dictionary_encode()),
}


def cut(points: Any, batch_size: int = 3, **more: Any) -> list[Batch]:
    batcher, source = Batcher(batch_size, **more), open_source(points)
    assert isinstance(source.items, Iterator)
    return [*(batch for item in source.items for batch in batcher.push(item)), *batcher.flush()]


def rows_of(x: Any, texts: Any) -> list[list[Any]]:
    """Rows as they were given, from places and texts."""
    words = dict(texts or ())
    return [[words[j][int(v)] if j in words else v for j, v in enumerate(row)] for row in x.tolist()]


@pytest.mark.parametrize("kind", ["msgpack", "ndjson", "arrow"])
@pytest.mark.parametrize("name", TABLES)
def test_texts_arrive_in_every_format(name: str, kind: Format) -> None:
    batches = cut(TABLES[name])
    assert [batch.n_points for batch in batches] == [3, 2]
    if kind == "arrow" and batches[0].names is None:
        with pytest.raises(BadPointsError, match="msgpack or ndjson"):
            body_of(batches[0], kind)
        return
    found: list[list[Any]] = []
    for batch in batches:
        body = body_of(batch, kind)
        points = decode(body.content, body.content_type, LIMITS, n_features=3)
        assert points.names == (NAMES if batch.names else None)
        found += rows_of(points.x, points.texts)
    assert found == ROWS


@pytest.mark.parametrize(
    ("points", "row", "words"),
    [
        ([[1.0, "a"], [2.0, 3.0]], 1, "3.0 in column 1, which holds texts"),
        ([[1.0, "a"], ["b", "c"]], 1, "'b' in column 0, which holds numbers"),
        ([[1.0, 2.0]] * 4 + [[1.0, "a"]], 4, "'a' in column 1, which holds numbers"),
        ([[1.0, "a"], [2.0, ""]], 1, "0 characters in column 1"),
        ([[1.0, "a"], [2.0, "x" * 201]], 1, "201 characters in column 1"),
        ([[1.0, "a"], [float("nan"), "b"]], 1, "not finite"),
        ([[1.0, "a"], [10**400, "b"]], 1, "above 1e150"),
        (FRAME.assign(region=["a", None, "b", "c", "d"]), 1, "in column 'region', which holds texts"),
        (FRAME.assign(cpu=[1.0, 2.0, 3.0, 4.0, True]), 4, "True in column 'cpu'; send real numbers"),
        ([[1.0, "a"], [2.0]], 1, "1 feature"),
    ],
)
def test_what_is_neither_one_kind_nor_the_other_is_named_by_row_and_column(points: Any, row: int, words: str) -> None:
    with pytest.raises(BadPointsError, match=words) as caught:
        cut(points)
    assert caught.value.row == row


def test_a_missing_number_beside_texts_is_a_hole() -> None:
    (batch,) = cut([[1.0, "a"], [np.nan, "b"]], holes=True)
    assert np.isnan(batch.x[1, 0])
    assert batch.texts == ((1, ("a", "b")),)


@pytest.mark.parametrize("kind", ["msgpack", "ndjson", "arrow"])
def test_a_missing_text_is_a_hole_in_every_format(kind: Format) -> None:
    limits = WireLimits(1 << 24, 10_000, 1_000, texts=True, holes=True)
    frame = FRAME.assign(region=[None, "us", np.nan, "ap", "us"])
    found: list[list[Any]] = []
    for batch in cut(frame, 2, holes=True):
        body = body_of(batch, kind)
        points = decode(body.content, body.content_type, limits, n_features=3)
        words = dict(points.texts or ())
        found += [[words[2][int(v)] if v == v and 2 in words else None for v in row[2:]] for row in points.x.tolist()]
    assert found == [[None], ["us"], [None], ["ap"], ["us"]]
    assert cut(frame, 2, holes=True)[0].table()[0, 2] is None


def test_texts_that_come_after_a_batch_without_any() -> None:
    frame = FRAME.assign(region=[None, None, None, "ap", "us"])
    first, second = cut(frame, holes=True)
    assert (first.texts, second.texts) == ((), ((2, ("ap", "us")),))
    assert np.isnan(first.x[:, 2]).all()


def test_a_batch_without_a_row_forgets_its_texts() -> None:
    (batch,) = cut(ROWS, 5)
    left = batch.without(1)
    assert rows_of(left.x, left.texts) == [ROWS[0], *ROWS[2:]]
    assert left.texts == ((2, ("eu", "ap", "us")),)


@pytest.mark.parametrize("kind", ["msgpack", "ndjson", "arrow"])
def test_the_service_learns_and_predicts_texts_of_a_data_frame(
    real_shoal: Deliver, client_of: Callable[..., Client], kind: Format
) -> None:
    client = client_of(real_shoal, f"texts-{kind}")
    family = {"cpu": "gaussian", "errors": "poisson", "region": "categorical"}
    client.create_stream(f"texts-{kind}", feature_names=list(NAMES), family=family, warmup_points=5)
    client.ingest(FRAME, format=kind, batch_size=2, wait="applied")
    assert client.stream_info(f"texts-{kind}").settings["level_names"] == {"2": ["eu", "us", "ap"]}
    coded = client.predict(FRAME.assign(region=[0, 1, 0, 2, 1000]))
    named = client.predict(FRAME.assign(region=["eu", "us", "eu", "ap", "moon"]), format=kind)
    np.testing.assert_array_equal(named.log_density, coded.log_density)


def test_the_service_says_which_column_holds_no_categories(
    real_shoal: Deliver, client_of: Callable[..., Client]
) -> None:
    for name, family, words in (
        ("reals", "gaussian", 'row 0 holds "eu" in column 2, which is not a number; .* categories'),
        ("other", {"0-1": "categorical", "2": "gaussian"}, "text in column 2, which is none of categories"),
    ):
        client = client_of(real_shoal, f"texts-{name}")
        client.create_stream(f"texts-{name}", n_features=3, family=family)
        with pytest.raises(InvalidRequestError, match=words):
            client.ingest(ROWS)


def test_records_carry_texts_too(real_shoal: Deliver, client_of: Callable[..., Client]) -> None:
    client = client_of(real_shoal, "texts-records")
    client.create_stream("texts-records", n_features=3, family={"0": "gaussian", "1": "poisson", "2": "categorical"})
    client.ingest(Records(ROWS, keys=list("abcde")), wait="applied")
    assert client.stream_info("texts-records").settings["level_names"] == {"2": ["eu", "us", "ap"]}
