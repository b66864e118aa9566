"""Answers are what the documented models say, to the letter."""

import json

import numpy as np
import pytest
from pydantic import BaseModel

from shoal_service.wire import (
    ComponentColumns,
    Head,
    PredictionColumns,
    encode,
    encode_components,
    encode_predictions,
    models,
)

HEAD = Head("default", "7f1b8c6e", 42)


def page(k: int, d: int, *, covariance: bool = False) -> ComponentColumns:
    rng = np.random.default_rng(0)
    return ComponentColumns(
        ids=np.arange(k, dtype=np.int64) * 7,
        weight=rng.random(k),
        mass=rng.random(k) * 100,
        mean=rng.normal(size=(k, d)),
        variance=rng.random((k, d)),
        born_at=np.arange(k, dtype=np.int64),
        last_seen_at=np.arange(k, dtype=np.int64) + 3,
        covariance=rng.normal(size=(k, d, d)) if covariance else None,
    )


@pytest.mark.parametrize("covariance", [False, True])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_components_are_as_documented(k: int, covariance: bool) -> None:
    columns = page(k, 3, covariance=covariance)
    body = encode_components(HEAD, points_seen=40, status="live", new_weight=0.1, page=columns, next_cursor="abc")
    answer = models.ComponentsOut.model_validate_json(body, strict=True)
    assert (answer.stream, answer.incarnation, answer.log_offset) == tuple(HEAD)
    assert (answer.points_seen, answer.status, answer.new_weight, answer.next) == (40, "live", 0.1, "abc")
    for i, row in enumerate(answer.components):
        assert (row.id, row.born_at, row.last_seen_at) == (columns.ids[i], columns.born_at[i], columns.last_seen_at[i])
        assert (row.weight, row.mass) == (columns.weight[i], columns.mass[i])
        assert row.mean == columns.mean[i].tolist()
        assert row.covariance == (columns.covariance[i].tolist() if columns.covariance is not None else None)
    assert list(json.loads(body))[:3] == ["stream", "incarnation", "log_offset"]


def test_infinite_moments_become_null() -> None:
    columns = page(2, 2)._replace(variance=np.array([[np.inf, 1.0], [np.nan, np.inf]]))
    body = encode_components(HEAD, points_seen=1, status="live", new_weight=0.1, page=columns, next_cursor=None)
    rows = models.ComponentsOut.model_validate_json(body).components
    assert [row.variance for row in rows] == [[None, 1.0], [None, None]]
    assert json.loads(body)["next"] is None


@pytest.mark.parametrize("n", [1, 511, 512, 1025])
@pytest.mark.parametrize("k", [1, 4, 5, 9])
def test_predictions_are_as_documented(n: int, k: int) -> None:
    rng = np.random.default_rng(n * k)
    resp = rng.dirichlet(np.full(k + 1, 0.2), n)
    ids = rng.permutation(1000)[:k].astype(np.int64)
    columns = PredictionColumns(ids, ids[resp[:, :k].argmax(axis=1)], rng.normal(size=n), resp[:, k], resp[:, :k])
    answer = models.PredictOut.model_validate_json(encode_predictions(HEAD, columns), strict=True)
    assert len(answer.predictions) == n
    for row, p in zip(answer.predictions, resp[:, :k], strict=True):
        expected = sorted(((q, i) for q, i in zip(p.tolist(), ids.tolist(), strict=True) if q >= 1e-3), reverse=True)[
            :5
        ]
        assert [(r.p, r.id) for r in row.responsibilities] == expected
        if expected:
            assert row.component == expected[0][1]


def test_the_older_id_comes_first_among_equals() -> None:
    columns = PredictionColumns(
        np.array([9, 3]), np.array([3]), np.array([-1.0]), np.array([0.0]), np.array([[0.5, 0.5]])
    )
    row = models.PredictOut.model_validate_json(encode_predictions(HEAD, columns)).predictions[0]
    assert [r.id for r in row.responsibilities] == [3, 9]


def test_encode_takes_numpy_and_refuses_what_has_no_place() -> None:
    assert (
        encode({"a": np.float64(1.5), "b": np.arange(2), "c": np.inf, "d": None})
        == b'{"a":1.5,"b":[0,1],"c":null,"d":null}'
    )
    with pytest.raises(TypeError):
        encode(object())


def test_every_model_is_documented_and_its_examples_are_valid() -> None:
    """And there is one of every answer."""
    checked = 0
    for name in models.__all__:
        model = getattr(models, name)
        if not isinstance(model, type):
            continue
        assert issubclass(model, BaseModel), name
        schema = model.model_json_schema()
        assert schema["description"], name
        assert schema.get("examples") or name.endswith("Row") or name == "StreamsOut", f"{name} has no example"
        for example in schema.get("examples", []):
            model.model_validate_json(json.dumps(example))
        checked += 1
    assert checked > 50


def test_the_documented_body_lists_the_formats_that_are_taken() -> None:
    from shoal_service.wire import Format

    assert set(models.points_body()["content"]) == set(Format)


def test_predictions_for_few_points_are_written_as_those_for_many() -> None:
    """Up to eight at once, more piece by piece: byte for byte."""
    rng = np.random.default_rng(6)
    resp, ids = rng.dirichlet(np.full(8, 0.2), 9), np.arange(7)

    def answer(n: int) -> bytes:
        best = ids[resp[:n, :7].argmax(axis=1)]
        return encode_predictions(HEAD, PredictionColumns(ids, best, resp[:n, 0], resp[:n, 7], resp[:n, :7]))

    few, many = answer(8), answer(9)
    assert many.startswith(few[:-2])
    assert len(json.loads(few)["predictions"]) == 8
