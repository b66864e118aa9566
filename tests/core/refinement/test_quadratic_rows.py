"""Products with statistics that are not written out, against the table of them."""

import numpy as np
import pytest

from shoal.families import NormalInverseWishart
from shoal.families.natural_statistics import origin_for, statistics
from shoal.refinement.quadratic_rows import QuadraticRows, table_elements, table_of


@pytest.mark.parametrize(("n", "d"), [(1, 4), (40, 4), (43, 5), (700, 64), (5_000, 9), (130, 34)])
def test_products_are_those_of_the_table(n: int, d: int) -> None:
    """Of whole tiles and others, of features that fill fours and others."""
    rng = np.random.default_rng(n)
    x = 3.0 + rng.normal(size=(n, d)) * np.geomspace(0.1, 10.0, d)
    family = NormalInverseWishart.weak(d)
    origin = origin_for(family, x)
    rows, table = table_of(family, x, origin), statistics(family, x, origin).rows
    assert isinstance(rows, QuadraticRows)
    slope, weights = rng.normal(size=table.shape[1]), rng.random(n)
    rounding = 1e-15 * table.shape[1] * n
    np.testing.assert_allclose(rows @ slope, table @ slope, rtol=0.0, atol=rounding * np.abs(table * slope).max())
    np.testing.assert_allclose(weights @ rows, weights @ table, rtol=0.0, atol=rounding * np.abs(table).max())


def test_few_features_have_a_table() -> None:
    family, x = NormalInverseWishart.weak(2), np.random.default_rng(0).normal(size=(30, 2))
    rows = table_of(family, x, origin_for(family, x))
    assert isinstance(rows, np.ndarray)
    assert table_elements(family, x) == rows.size


def test_the_table_that_is_not_written_counts_as_its_points() -> None:
    assert table_elements(NormalInverseWishart.weak(9), np.zeros((30, 9))) == 270
