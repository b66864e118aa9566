"""The doors by domain: what passes, in which form, and how a refusal names row and value."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import coo_array, csc_matrix, csr_array, csr_matrix

from shoal.errors import NotFiniteError, NotNumericError, OutsideDomainError, ShapeError
from shoal.points.arrays import largest_magnitude
from shoal.points.domains import BINARY, COUNTS, PROPORTIONS, REAL, UNIT, Domain
from shoal.points.rows import SparseRows, row_elements, stacked, stacked_starts

TABLE = np.array([[0, 2, 0, 7], [0, 0, 0, 0], [1, 0, 0, 3]])


@pytest.mark.parametrize(
    "points",
    [TABLE, TABLE.astype(np.float32), TABLE.tolist(), csr_matrix(TABLE), csr_array(TABLE), csc_matrix(TABLE)],
)
def test_counts_are_held_as_sparse_rows(points):
    held = COUNTS.points(points)
    assert isinstance(held, SparseRows)
    assert len(held) == 3
    assert held.dtype == np.float64
    assert held.nnz == 4
    assert_array_equal(held.toarray(), TABLE)
    assert_array_equal(held[1:].toarray(), TABLE[1:])
    assert len(held[[2, 0]]) == 2


def test_repeated_columns_add_up_and_stored_zeros_go():
    points = coo_array(([1, 2, 5, 0], ([0, 0, 1, 1], [3, 3, 1, 2])), shape=(2, 4)).tocsr()
    held = COUNTS.points(points)
    assert_array_equal(held.toarray(), [[0, 0, 0, 3], [0, 5, 0, 0]])
    assert held.nnz == 2
    unsorted = csr_array((np.array([1.0, 2.0]), np.array([2, 0]), np.array([0, 2])), shape=(1, 3))
    assert_array_equal(COUNTS.points(unsorted).indices, [0, 2])
    assert_array_equal(unsorted.indices, [2, 0])  # the caller's own stay as they were


def test_real_points_pass_as_they_are():
    x = np.array([[0.5, -1e100]])
    assert REAL.points(x) is x


@pytest.mark.parametrize("domain", [COUNTS, BINARY])
@pytest.mark.parametrize("form", [np.array, csr_array])
@pytest.mark.parametrize("value", [-1.0, 0.5, 2.0**53, 1e149])
def test_the_first_value_outside_is_named(domain, form, value):
    points = np.zeros((4, 3))
    points[2, 1] = points[3, 0] = value
    with pytest.raises(OutsideDomainError, match=r"row 2 holds .* in column 1") as caught:
        domain.points(form(points))
    assert caught.value.row == 2
    assert repr(value) in str(caught.value)
    with pytest.raises(OutsideDomainError, match="row 2"):
        domain.check(form(points))


def test_two_is_a_count_and_no_binary_value():
    assert COUNTS.points([[2]]).nnz == 1
    with pytest.raises(OutsideDomainError, match="0 or 1"):
        BINARY.points([[2]])


def test_counts_above_two_to_the_24_are_exact():
    largest = 2**53 - 1
    assert COUNTS.points([[2**24 + 1, largest]]).data.tolist() == [2**24 + 1, largest]
    with pytest.raises(OutsideDomainError):  # an integer that is no float64 does not pass as its neighbour
        COUNTS.points(np.array([[2**53 + 1]]))


def test_dense_domains_refuse_sparse_rows():
    for ask in (REAL.points, REAL.check):
        with pytest.raises(ShapeError, match="sparse"):
            ask(csr_array(TABLE))


def test_what_is_refused_of_tables_is_refused_of_sparse_rows():
    with pytest.raises(NotFiniteError, match="row 1 holds inf in column 2") as caught:
        COUNTS.points(csr_array([[1.0, 0, 0], [0, 0, np.inf]]))
    assert caught.value.row == 1
    with pytest.raises(NotNumericError):
        COUNTS.points(csr_array([[True, False]]))
    with pytest.raises(ShapeError, match="4 features, 5 expected"):
        COUNTS.points(csr_array(TABLE), 5)


def test_more_elements_than_32_bits_count_are_stacked():
    last = np.iinfo(np.int32).max
    starts = stacked_starts([np.array([0, 7, last], np.int32), np.array([0], np.int32), np.array([0, 3, 9], np.int32)])
    assert starts.tolist() == [0, 7, last, last + 3, last + 9]


def test_stacked_and_average_width():
    rows = SparseRows.of(TABLE)
    assert_array_equal(stacked([rows[:1], rows[1:1], rows[1:]]).toarray(), TABLE)
    assert_array_equal(stacked([TABLE[:1], TABLE[1:]]), TABLE)
    assert row_elements(rows) == 2
    assert row_elements(TABLE.astype(float)) == 4


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", ["C", "F", "strided", "reversed"])
def test_the_largest_magnitude_is_found_in_any_layout(form: str, dtype: type) -> None:
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(dtype)
    laid = {"C": x, "F": np.asfortranarray(x), "strided": x[::3, ::2], "reversed": x[::-1, ::-1]}[form]
    assert largest_magnitude(laid) == max(abs(float(v)) for v in laid.ravel())
    laid[3, 1] = -7e30
    assert largest_magnitude(laid) == float(dtype(7e30))
    laid[2, 2] = np.nan
    assert np.isnan(largest_magnitude(laid)), "NaN propagates"
    assert largest_magnitude(laid[:0]) == 0.0


def test_an_example_is_a_point_of_the_domain():
    for domain in (
        REAL,
        COUNTS,
        BINARY,
        PROPORTIONS,
        UNIT,
        Domain("above", "above 0", lambda v: v > 0.0),
        Domain("open", "between 0 and 1", lambda v: (v > 0.0) & (v < 1.0)),
        Domain("below", "below 0", lambda v: v < 0.0),
    ):
        domain.points(domain.example(np.zeros(3)))
    np.testing.assert_array_equal(REAL.example(np.arange(3.0)), [[0.0, 1.0, 2.0]])
