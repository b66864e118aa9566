"""The ring of the last rows."""

import numpy as np
import pytest

from shoal.estimators.window import RowWindow


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
