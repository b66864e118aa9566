"""The arithmetic under the families: special functions, triangles, distances, moments."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import gammaln, multigammaln

from shoal.families import (
    FAMILIES,
    EstimateStats,
    derived,
    is_conjugate,
    join_gain,
    scale_inplace,
)
from shoal.families.natural_statistics import mean_without_absurd
from shoal.kernels import distances, linalg, moments

SIZES = np.logspace(-3, 14, 60)


def test_log_gamma_ratio_obeys_the_recurrence() -> None:
    """Gamma(a + 1) = a Gamma(a), in one step and in two halves, where the plain difference has long lost its digits."""
    assert_allclose(linalg.log_gamma_ratio(SIZES, 1.0), np.log(SIZES), rtol=1e-13, atol=1e-13)
    halves = linalg.log_gamma_ratio(SIZES, 0.5) + linalg.log_gamma_ratio(SIZES + 0.5, 0.5)
    assert_allclose(halves, np.log(SIZES), rtol=1e-13, atol=1e-13)
    steps = np.log(SIZES[:, None] + np.arange(256)).sum(axis=1)
    assert_allclose(linalg.log_gamma_ratio(SIZES, 256.0), steps, rtol=1e-13)


def test_log_gamma_ratio_meets_gammaln_on_both_sides_of_the_switch() -> None:
    a = np.linspace(10, 25, 31)
    assert_allclose(linalg.log_gamma_ratio(a, 3.5), gammaln(a + 3.5) - gammaln(a), rtol=1e-13)


@pytest.mark.parametrize("d", [1, 2, 7])
def test_multivariate_gamma_and_its_derivative(d: int) -> None:
    a = np.linspace(d / 2 + 0.1, 40, 9)
    assert_allclose(linalg.multivariate_gammaln(a, d), [multigammaln(value, d) for value in a], rtol=1e-12)
    h = 1e-4
    slope = (linalg.multivariate_gammaln(a + h, d) - linalg.multivariate_gammaln(a - h, d)) / (2 * h)
    assert_allclose(linalg.multivariate_digamma(a, d), slope, rtol=1e-5)


def spd(k: int, d: int) -> np.ndarray:
    root = np.random.default_rng(d).standard_normal((k, d, d + 1))
    return np.matmul(root, root.transpose(0, 2, 1))


def test_pack_keeps_inner_products_and_unpack_undoes_it() -> None:
    a, b = spd(4, 5), spd(4, 5)[::-1]
    products = np.einsum("kp,kp->k", linalg.pack(a, with_multiplicity=True), linalg.pack(b, with_multiplicity=False))
    assert_allclose(products, np.einsum("kij,kji->k", a, b), rtol=1e-13)
    assert_array_equal(linalg.unpack(linalg.pack(a, with_multiplicity=True), 5), a)


def test_inverse_and_determinant_of_factors() -> None:
    matrices = spd(4, 6)
    factors = linalg.cholesky(matrices)
    inverses = linalg.inverse_lower(factors)
    assert_allclose(np.matmul(inverses, factors), np.broadcast_to(np.eye(6), (4, 6, 6)), atol=1e-12)
    assert_array_equal(inverses, np.tril(inverses))
    assert inverses.flags.c_contiguous
    assert_allclose(linalg.log_determinant(factors), np.linalg.slogdet(matrices)[1], rtol=1e-12)


def test_cholesky_mends_what_rounding_broke_and_nothing_worse() -> None:
    good = spd(1, 3)[0]
    singular = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    singular[2, 2] -= 1e-14
    factors = linalg.cholesky(np.stack([good, singular]))
    assert_array_equal(factors[0], np.linalg.cholesky(good))
    assert_allclose(factors[1] @ factors[1].T, singular, rtol=1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        linalg.cholesky(np.diag([1.0, -1.0])[None])


@pytest.mark.parametrize(("n", "k", "d"), [(1, 1, 1), (3, 50, 2), (700, 9, 33), (5, 300, 17), (300, 2, 512)])
def test_distances_in_blocks_are_those_of_the_plain_formula(n: int, k: int, d: int) -> None:
    rng = np.random.default_rng(n)
    x, mean, width = rng.standard_normal((n, d)), rng.standard_normal((k, d)), rng.uniform(0.1, 2, (k, d))
    whitening = np.tril(rng.standard_normal((k, d, d)))
    difference = x[:, None, :] - mean
    squares = (difference * width) ** 2
    plain = np.square(np.einsum("kde,nke->nkd", whitening, difference)).sum(axis=2)
    assert_allclose(distances.whitened_quadratic(x, mean, whitening), plain, rtol=1e-10)
    assert_allclose(distances.diagonal_quadratic(x, mean, width), squares.sum(axis=2), rtol=1e-10)
    assert_allclose(distances.log1p_quadratic(x, mean, width), np.log1p(squares).sum(axis=2), rtol=1e-12)


@pytest.mark.parametrize("spread", [1.0, 40.0, 130.0, 1e4, 1e8])
def test_distances_far_away_stay_exact(spread: float) -> None:
    """Expanded squares serve only while their rounding is below 1e-9; the first three spreads take that road."""
    rng = np.random.default_rng(1)
    x, mean = spread * rng.uniform(-1, 1, (500, 8)), spread * rng.uniform(-1, 1, (20, 8))
    x[:20] = mean + 1e-3 * rng.standard_normal((20, 8))
    exact = np.square(x[:, None, :].astype(np.longdouble) - mean).sum(axis=2)
    assert_allclose(distances.diagonal_quadratic(x, mean, np.ones((20, 8))), exact.astype(float), rtol=1e-13, atol=1e-9)


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1.0, 1e6, 1e12, 1e140])
def test_sum_of_log1p_keeps_its_digits_at_any_size(size: float) -> None:
    rng = np.random.default_rng(2)
    x = size * rng.standard_normal((40, 37))
    exact = np.log1p(np.square(x.astype(np.longdouble))).sum(axis=1)
    answer = distances.log1p_quadratic(x, np.zeros((1, 37)), np.ones((1, 37)))[:, 0]
    assert_allclose(answer, exact.astype(float), rtol=1e-14)


def test_distances_beyond_the_largest_square_are_cut_off() -> None:
    """1e160 widths: its square overflows, which pytest would report."""
    x, mean, wide = np.full((1, 2), 1e150), np.zeros((1, 2)), np.full((1, 2), 1e10)
    assert_allclose(distances.diagonal_quadratic(x, mean, wide), 2e300)
    assert_allclose(distances.log1p_quadratic(x, mean, wide), 2 * np.log(1e300))
    assert_allclose(distances.whitened_quadratic(x, mean, 1e10 * np.eye(2)[None]), 2e300)


def test_row_blocks_cover_everything_once() -> None:
    for n, width, block in ((0, 3, 10), (1, 100, 10), (17, 3, 10), (20, 5, 10)):
        covered = [i for rows in distances.row_blocks(n, width, block) for i in range(n)[rows]]
        assert covered == list(range(n))


def test_centre_is_exact_in_constant_columns() -> None:
    x = np.column_stack([np.full(7, 0.1), np.arange(7.0)])
    assert_array_equal(moments.centre_of(x), [0.1, 3.0])
    assert_array_equal(moments.centre_of(x[:0]), [0.0, 0.0])


def test_ratio_is_zero_over_zero() -> None:
    assert_array_equal(moments.ratio(np.array([1.0, 0.0, 3.0]), np.array([0.0, 0.0, 2.0])), [0.0, 0.0, 1.5])


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_weights_scaled_in_place_are_those_of_scaled_copies(name: str) -> None:
    """To the bit, for every family; a component of which nothing is left has no mean either, and rows that are not
    asked for stay as they are."""
    rng = np.random.default_rng(3)
    family = FAMILIES[name].weak(4)
    if is_conjugate(family):
        x = rng.integers(0, 2, size=(60, 4)).astype(float)
        stats = family.suffstats(x, rng.dirichlet(np.ones(3), size=60))
    else:
        stats = EstimateStats(rng.uniform(1, 9, 3), rng.normal(size=(3, 4)), rng.uniform(1, 9, 3))
    stats[0][1] = 5e-324  # half of it is nothing
    expected = family.scale(stats, 0.5)
    before = type(stats)(*(field.copy() for field in stats))
    scale_inplace(family, stats, 0.5, 0)
    for field, was in zip(stats, before, strict=True):
        assert_array_equal(field, was)
    scale_inplace(family, stats, 0.5, 2)
    for field, wanted, was in zip(stats, expected, before, strict=True):
        assert_array_equal(field[:2], wanted[:2])
        assert_array_equal(field[2:], was[2:])


@pytest.mark.parametrize("name", sorted(name for name, kind in FAMILIES.items() if is_conjugate(kind.weak(4))))
def test_gains_of_few_pairs_are_those_of_many(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few pairs are valued in one call; the road of many, which values each component once, gives the same."""
    rng = np.random.default_rng(4)
    family = FAMILIES[name].weak(4)
    x = rng.integers(0, 2, size=(90, 4)).astype(float)
    stats = family.suffstats(x, rng.dirichlet(np.full(6, 0.3), size=90))
    i, j = np.array([0, 0, 2, 4]), np.array([1, 3, 5, 5])
    few = join_gain(family, stats, i, j)
    monkeypatch.setattr(derived, "_FEW_ELEMENTS", 0)
    assert_allclose(few, join_gain(family, stats, i, j), rtol=1e-11, atol=1e-11)


def test_the_mean_of_points_without_absurd_values_is_the_plain_mean_to_the_bit() -> None:
    """Columns of which most values lie on one side of the mean got their mean again, from other sums."""
    x = np.random.default_rng(0).normal(size=(1_494, 4))
    x *= np.random.default_rng(1).random(x.shape) < 0.05
    assert_array_equal(mean_without_absurd(x), moments.centre_of(x))
    x[3, 1] = 1e14
    assert np.abs(mean_without_absurd(x)).max() < 1.0
