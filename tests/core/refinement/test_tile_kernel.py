"""A sweep by eight rows at a time against plain NumPy."""

import numpy as np
import pytest
from scipy.special import softmax

from shoal.families.capabilities import QuadraticForm
from shoal.families.steps_kernel import Waiting
from shoal.kernels.cholesky_update import MOST_WAITING
from shoal.refinement import quadratic
from shoal.refinement.reach_kernel import UNIT, Reach
from shoal.refinement.tile_kernel import sweep_tiles

LOG_FLOOR = float(np.log(1e-6))


def case(n: int, d: int, t: int, apart: float) -> tuple[np.ndarray, QuadraticForm, np.ndarray]:
    """Points, components and log weights."""
    rng = np.random.default_rng(n + d)
    centre = apart * rng.normal(size=(t, d))
    root = np.tril(0.3 * rng.normal(size=(t, d, d))) + np.eye(d)
    x = centre[rng.integers(t, size=n)] + rng.normal(size=(n, d))
    return x, QuadraticForm(rng.normal(size=t), centre, root, np.linalg.inv(root)), rng.uniform(0.1, 1.0, n)


def swept(
    x: np.ndarray, form: QuadraticForm, weights: np.ndarray, guess: np.ndarray
) -> tuple[np.ndarray, quadratic.Sums]:
    """Responsibilities (n, T) and sums, without any bound of the scores beforehand."""
    (n, d), t = x.shape, len(form.constant)
    tiles = quadratic._tiles_of(form)
    assert tiles is not None
    indices, resp, ends = np.empty(n * t, dtype=np.int32), np.empty(n * t), np.empty(n, dtype=np.int64)
    sums = quadratic.Sums(np.zeros(t), np.zeros((t, d)), np.zeros((t, d, d)))
    given = (form.constant, tiles.centre, tiles.fours, weights, LOG_FLOOR, indices, resp, ends, *sums)
    reach = Reach(np.zeros((n, t), np.uint16), np.full(t, UNIT, np.float32), np.zeros(t, np.float32))
    filled, entropy, _ = sweep_tiles(x, reach, guess, tiles.waiting, *given)
    away = x[:, None] - form.centre
    distance = np.sqrt(np.square(np.einsum("kde,nke->nkd", np.nan_to_num(form.root), away)).sum(axis=2))
    assert np.all(reach.levels * UNIT <= distance), "nearer than the bound that was written down"
    quadratic._add_waiting(sums, tiles.waiting)
    assert filled == ends[-1]
    found = np.zeros((n, t))
    found[np.repeat(np.arange(n), np.diff(ends, prepend=0)), indices[:filled]] = resp[:filled]
    logs = np.log(np.where(found > 0.0, found, 1.0))
    assert entropy == pytest.approx(-float(weights @ (found * logs).sum(axis=1)), rel=1e-9, abs=1e-12)
    return found, sums


@pytest.mark.parametrize("n", [1, 7, 8, 203])
@pytest.mark.parametrize(("d", "t", "apart"), [(5, 3, 1.0), (8, 1, 1.0), (16, 20, 0.3), (50, 30, 1.0)])
def test_it_is_what_numpy_makes_of_them(n: int, d: int, t: int, apart: float) -> None:
    x, form, weights = case(n, d, t, apart)
    away = x[:, None] - form.centre
    scores = form.constant - 0.5 * np.square(np.einsum("kde,nke->nkd", form.root, away)).sum(axis=2)
    shares = softmax(scores, axis=1)
    shares = np.where(scores >= scores.max(axis=1, keepdims=True) + LOG_FLOOR, shares, 0.0)
    shares /= shares.sum(axis=1, keepdims=True)
    for guess in (scores.argmax(axis=1), scores.argmin(axis=1)):
        resp, sums = swept(x, form, weights, guess)
        np.testing.assert_allclose(resp, shares, rtol=1e-9)
        counted = weights[:, None] * shares
        np.testing.assert_allclose(sums.mass, counted.sum(axis=0), rtol=1e-9)
        np.testing.assert_allclose(sums.first, np.einsum("nk,nkd->kd", counted, away), rtol=1e-9, atol=1e-12)
        wanted = np.einsum("nk,nkd,nke->kde", counted, away, away, optimize=True)
        np.testing.assert_allclose(np.tril(sums.second), np.tril(wanted), rtol=1e-9, atol=1e-12 * n)


def test_what_a_few_features_rule_out_is_not_followed_further() -> None:
    """What is behind the first eight rows of a far component's root is not looked at: it is no number here."""
    x, form, weights = case(100, 30, 4, 0.0)
    form.centre[2:, :8] += 100.0
    before, _ = swept(x, form, weights, np.zeros(100, dtype=np.int64))
    form.root[2:, 8:] = np.nan
    after, _ = swept(x, form, weights, np.zeros(100, dtype=np.int64))
    np.testing.assert_array_equal(after, before)
    assert np.all(before[:, 2:] == 0.0)


def test_scores_do_not_depend_on_the_rows_beside() -> None:
    x, form, weights = case(90, 21, 9, 0.3)
    guess = np.random.default_rng(0).integers(9, size=90)
    together, _ = swept(x, form, weights, guess)
    for i in (0, 13, 89):
        alone, _ = swept(x[i : i + 1], form, weights[i : i + 1], guess[i : i + 1])
        np.testing.assert_array_equal(alone[0], together[i])


def test_outer_products_that_wait_are_added_in_the_end() -> None:
    """Of nothing that was there before, and of no more rows than there were."""
    rng = np.random.default_rng(0)
    vectors, filled = rng.normal(size=(3, MOST_WAITING, 4)), np.array([0, 3, 7])
    sums = quadratic.Sums(np.zeros(3), np.zeros((3, 4)), np.ones((3, 4, 4)))
    quadratic._add_waiting(sums, Waiting(vectors, filled))
    for k in range(3):
        rows = vectors[k, : filled[k]]
        np.testing.assert_allclose(sums.second[k], 1.0 + rows.T @ rows, rtol=1e-12)
