"""Batches in every format, dense and sparse: what the server reads is what was given."""

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_shoal import Deliver
from scipy import sparse

from shoal_service.client import BadPointsError, Client
from shoal_service.client.bodies import Format, body_of
from shoal_service.client.points import Batch, Batcher, open_source
from shoal_service.wire import WireLimits, decode

LIMITS = WireLimits(1 << 24, 10_000, 1_000)
RNG = np.random.default_rng(8)
X = RNG.normal(size=(25, 3)) * 10.0 ** RNG.integers(-8, 8, (25, 3))
COUNTS = sparse.csr_array(RNG.poisson(0.2, (25, 40)).astype(float))
FORMATS: list[Format] = ["msgpack", "ndjson", "arrow"]


def cut(points: Any, batch_size: int) -> list[Batch]:
    batcher, source = Batcher(batch_size), open_source(points)
    assert isinstance(source.items, Iterator)
    return [*(batch for item in source.items for batch in batcher.push(item)), *batcher.flush()]


def sent(batch: Batch, kind: Format) -> Any:
    body = body_of(batch, kind)
    return decode(body.content, body.content_type, LIMITS, n_features=batch.x.shape[1]).x


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_number_arrives_to_the_bit(kind: Format, dtype: str) -> None:
    x = X.astype(dtype)
    got = sent(Batch(0, x), kind)
    assert got.dtype == (np.float64 if kind == "ndjson" else dtype)
    np.testing.assert_array_equal(got.astype(dtype), x)


@pytest.mark.parametrize("kind", ["msgpack", "ndjson"])
@pytest.mark.parametrize("layout", ["csr_array", "csr_matrix", "csc_array", "coo_array", "lil_array", "int", "pieces"])
def test_sparse_matrices_stay_sparse_in_any_layout(kind: Format, layout: str) -> None:
    if layout == "pieces":
        points: Any = [COUNTS[:11], COUNTS[11:11], COUNTS[11:]]
    else:
        points = COUNTS.astype(int) if layout == "int" else getattr(sparse, layout)(COUNTS)
    for batch_size in (1, 7, 25, 100):
        batches = cut(points, batch_size)
        assert [b.first_row for b in batches] == list(range(0, 25, batch_size))
        got = sparse.vstack([sent(batch, kind) for batch in batches], format="csr")
        assert got.dtype == np.float64
        assert got.nnz == COUNTS.nnz
        assert (got != COUNTS).nnz == 0


def test_what_a_matrix_stores_twice_is_added_up_and_put_in_order() -> None:
    m = sparse.csr_array((np.array([1.0, 2.0, 4.0]), np.array([2, 0, 2]), np.array([0, 3])), shape=(1, 3))
    assert sent(cut(m, 5)[0], "msgpack").toarray().tolist() == [[2.0, 0.0, 5.0]]
    assert m.nnz == 3, "the caller's own matrix is as it was"


@pytest.mark.parametrize(
    ("points", "row", "words"),
    [
        (sparse.csr_array([[1.0, 0.0], [0.0, np.nan]]), 1, "not finite"),
        ([COUNTS[:3], sparse.csr_array((2, 7))], 3, "7 features"),
        ([np.ones((2, 40)), COUNTS], None, "both sparse and dense"),
        (sparse.csr_array([[True, False]]), 0, "bool"),
        (sparse.csr_array([[1j]]), 0, "complex"),
    ],
)
def test_bad_matrices_are_refused_by_row(points: Any, row: int | None, words: str) -> None:
    with pytest.raises(BadPointsError, match=words) as caught:
        cut(points, 100)
    assert caught.value.row == row


@pytest.mark.parametrize("kind", FORMATS)
def test_the_real_service_takes_every_format(
    real_shoal: Deliver, client_of: Callable[..., Client], kind: Format
) -> None:
    name = f"bodies-{kind}"
    x = np.random.default_rng(1).normal(size=(60, 2))
    client = client_of(real_shoal, name)
    client.create_stream(name, n_features=2)
    assert client.ingest(x, batch_size=25, format=kind).log_offset == 60
    ours = client.predict(x, batch_size=25, format=kind, min_offset=60)
    np.testing.assert_array_equal(ours.log_density, client.predict(x).log_density)


def test_formats_that_cannot_be_are_said(never: Deliver, client_of: Callable[..., Client], monkeypatch: Any) -> None:
    client = client_of(never, "s")
    with pytest.raises(BadPointsError, match="msgpack, ndjson, arrow"):
        client.ingest(X, format="csv")  # type: ignore[arg-type]
    with pytest.raises(BadPointsError, match="sparse matrix"):
        client.ingest(COUNTS, format="arrow")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadPointsError, match=r"shoal\[arrow\]"):
        client.predict(X, format="arrow")
