"""The ring of the last rows."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import random_array

from shoal import StreamingDPMixture
from shoal.estimators.window import RowWindow, SparseRowWindow
from shoal.mixture import StreamSettings
from shoal.points.rows import SparseRows, rows_bytes


@pytest.mark.parametrize("limit", [1, 7, 64, 1_000])
@pytest.mark.parametrize("cut", [1, 3, 64, 500])
def test_it_holds_the_last_rows_in_order(limit: int, cut: int) -> None:
    x = np.arange(600.0).reshape(300, 2)
    window = RowWindow(2, limit, 1 << 30)
    for start in range(0, 300, cut):
        window.append(x[start : start + cut])
        seen = min(start + cut, 300)
        assert np.array_equal(window.rows(), x[max(0, seen - limit) : seen])
        assert len(window) == min(limit, seen)
        for n in {0, 1, len(window) // 2, len(window)}:
            assert np.array_equal(window.latest(n), x[seen - n : seen])


def test_rows_stay_where_they_are_while_it_fills() -> None:
    window = RowWindow(64, 20_000, 1 << 28)
    window.append(np.ones((1_000, 64)))
    first = window.latest(1_000)
    for _ in range(19):
        window.append(np.ones((1_000, 64)))
    assert np.shares_memory(first, window.latest(20_000))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_room_that_no_row_has_come_to_takes_no_memory() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, window = resident(), RowWindow(64, 1_000_000, 1 << 30)
    window.append(np.ones((100, 64)))
    assert window._ring.nbytes >= 60 << 20
    assert resident() - before < 16 << 20


def test_beyond_what_is_set_aside_it_doubles() -> None:
    window = RowWindow(1 << 18, 1_000, 1 << 32)
    for i in range(40):
        window.append(np.full((1, 1 << 18), float(i)))
    assert len(window._ring) == 64
    np.testing.assert_array_equal(window.rows()[:, 0], np.arange(40.0))


def test_bytes_bound_it_too() -> None:
    window = RowWindow(4, 1_000, 10 * 4 * 8)
    assert window.limit == 10
    window.append(np.ones((25, 4)))
    assert len(window) == 10


def test_a_window_of_zero_keeps_nothing() -> None:
    for window in (RowWindow(3, 0, 1 << 20), RowWindow(3, 100, 10)):
        window.append(np.ones((5, 3)))
        assert window.rows().shape == (0, 3)


def test_rows_are_a_copy() -> None:
    window = RowWindow(1, 5, 1 << 20)
    window.append(np.ones((3, 1)))
    window.rows()[:] = 7.0
    assert window.rows().max() == 1.0


@pytest.mark.parametrize("family", ["multinomial", "bernoulli", "poisson"])
def test_a_wide_vocabulary_does_not_shorten_the_window_of_sparse_rows(family: str) -> None:
    """Bytes were reckoned as of a table's rows: of 100,000 features 334 of 256 MiB were kept, whatever was present."""
    narrow, wide = (StreamSettings(n_features=d, family=family).window_rows for d in (3_000, 100_000))
    assert narrow == wide == 16_376  # 2^28 / (8 + 16 * 1,024)
    assert StreamSettings(n_features=100, family=family).window_rows == 100_000
    table = StreamSettings(n_features=100_000, family="diagonal").window_rows
    assert table == 334


def test_rows_as_full_as_is_reckoned_take_no_more_than_the_budget() -> None:
    """The ring itself is weighed: 1,024 elements a row, as many rows as the settings allow."""
    settings = StreamSettings(n_features=50_000, family="multinomial", window_bytes=1 << 20)
    rng = np.random.default_rng(0)
    columns = np.sort(np.argsort(rng.random((settings.window_rows, 50_000)), axis=1)[:, :1_024], axis=1)
    starts = 1_024 * np.arange(len(columns) + 1)
    x = SparseRows((np.ones(columns.size), columns.ravel(), starts), shape=(len(columns), 50_000))
    window = SparseRowWindow(50_000, settings.window_rows)
    for start in range(0, len(x), 7):
        window.append(x[start : start + 7])
    assert 0.95 * settings.window_bytes < rows_bytes(window.rows()) <= settings.window_bytes


def test_a_stream_of_wide_sparse_rows_refines_with_all_that_its_window_holds() -> None:
    x = random_array((300, 20_000), density=1e-3, rng=np.random.default_rng(1), format="csr")
    x.data[:] = 1.0
    model = StreamingDPMixture("multinomial", window_bytes=4 << 20, warmup_points=50, refinement=None).fit(x)
    assert StreamSettings(n_features=20_000, family="multinomial", window_bytes=4 << 20).window_rows == 254
    assert model.refine().window_rows == 300 - 254 // 2  # its beginning moves on by halves
