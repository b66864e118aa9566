"""Bounds carried from pass to pass against distances computed one by one."""

import tracemalloc

import numpy as np
import pytest

from shoal.families.capabilities import QuadraticForm
from shoal.inference import distance_bounds
from shoal.inference.distance_bounds import DistanceBounds, bounds_of, center_bounds, largest_eigenvalues
from shoal.points.arrays import Array

D = 9


def form_of(centre: Array, root: Array) -> QuadraticForm:
    return QuadraticForm(np.zeros(len(centre)), centre, root, 1.0 / root if root.ndim == 2 else np.linalg.inv(root))


def distances(x: Array, form: QuadraticForm) -> Array:
    """(N, T) |A_k (x - centre_k)|."""
    root = form.root if form.root.ndim == 3 else form.root[:, :, None] * np.eye(D)
    return np.asarray(np.sqrt(np.square(np.einsum("kde,nke->nkd", root, x[:, None] - form.centre)).sum(axis=2)))


def drawn_root(rng: np.random.Generator, t: int, matrix: bool) -> Array:
    if not matrix:
        return np.asarray(rng.uniform(0.2, 3.0, size=(t, D)))
    return np.tril(0.5 * rng.normal(size=(t, D, D)), -1) + np.eye(D) * rng.uniform(0.2, 3.0, size=(t, 1, D))


@pytest.mark.parametrize("matrix", [True, False])
@pytest.mark.parametrize("step", [0.0, 1e-6, 1e-2, 0.3])
def test_no_distance_is_below_its_bound_however_components_change(matrix: bool, step: float) -> None:
    """They move, change their shapes, come, go, change places, and get tags of others; bounds are raised to the exact
    distances now and then, as passes do."""
    rng = np.random.default_rng(int(1e6 * step) + matrix)
    x = 4.0 * rng.normal(size=(200, D))
    centre, root, tags = 4.0 * rng.normal(size=(6, D)), drawn_root(rng, 6, matrix), np.arange(6)
    known: DistanceBounds | None = None
    useful = 0
    for turn in range(40):
        form = form_of(centre, root)
        bounds = bounds_of(known, form, tags, x)
        least, away = bounds.rows(x, slice(0, len(x))), distances(x, form)
        assert np.all(least <= away)
        useful += int(np.sum(least > 0.3 * away)) if turn else 0
        exact = rng.random(least.shape) < 0.3
        least[exact] = away[exact] * (1.0 - 1e-6)
        known = bounds.carried(form, tags)
        centre = centre + step * rng.normal(size=centre.shape)
        root = root * (1.0 + step * rng.uniform(-1.0, 1.0, size=root.shape))
        if turn % 5 == 3:  # one goes, two come, and all are put in another order
            kept = rng.permutation(len(tags))[1:]
            centre = np.concatenate([centre[kept], 4.0 * rng.normal(size=(2, D))])
            root = np.concatenate([root[kept], drawn_root(rng, 2, matrix)])
            tags = np.concatenate([tags[kept], [100 + turn, tags[0]]])
        if turn % 7 == 5:
            order = rng.permutation(len(tags))
            centre, root, tags = centre[order], root[order], tags[order]
    assert step > 0.1 or useful > 1_000, "no bound is of use"


@pytest.mark.parametrize("matrix", [True, False])
def test_rounding_lifts_no_bound_above_its_distance(matrix: bool) -> None:
    """Points and components on one line, which move along it and widen by next to nothing, over and over: there is
    nothing to lose but rounding."""
    rng, n, t = np.random.default_rng(0), 200, 3
    x, centre, size = np.zeros((n, D)), np.zeros((t, D)), np.ones(t)
    x[:, 0] = rng.uniform(50.0, 100.0, n)
    known: DistanceBounds | None = None
    for turn in range(200):
        root = np.repeat(size[:, None], D, axis=1)
        form = form_of(centre.copy(), root[:, :, None] * np.eye(D) if matrix else root)
        bounds = bounds_of(known, form, np.arange(t), x)
        least, away = bounds.rows(x, slice(0, n)), size * np.abs(x[:, :1] - centre[:, 0])
        assert np.all(least <= away)
        if turn % 50 == 0:
            least[:] = away * (1.0 - 1e-6)
        known = bounds.carried(form, np.arange(t))
        size = size * (1.0 - 1e-6 * rng.random(t))
        centre[:, 0] += 1e-5 * rng.random(t)
    assert np.mean(least > 0.98 * away) > 0.9, "no bound is close"


def test_nothing_is_carried_for_too_many_rows_or_too_few_or_without_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, form, tags = rng.normal(size=(200, D)), form_of(rng.normal(size=(3, D)), np.ones((3, D))), np.arange(3)
    assert bounds_of(None, form, tags, x).carried(form, tags) is not None
    assert bounds_of(None, form, None, x).carried(form, None) is None
    assert bounds_of(None, form, tags, x[:30]).carried(form, tags) is None
    monkeypatch.setattr(distance_bounds, "_MOST_ELEMENTS", 599)
    assert bounds_of(None, form, tags, x).carried(form, tags) is None


@pytest.mark.parametrize("size", [1e-40, 1e-20, 1e-6, 1.0, 1e6, 1e14, 1e20, 1e60])
@pytest.mark.parametrize("tight", [1e-7, 1e-2, 1.0])
def test_bounds_by_centres_hold_in_single_precision_too(size: float, tight: float) -> None:
    """Points of any size, about centres far apart and nearly the same. Double precision is used where single precision
    would weaken the bounds."""
    rng, d = np.random.default_rng(3), 20
    centre = size * rng.normal(size=(40, d))
    centre[20:] = centre[:20] * (1.0 + 1e-8 * rng.normal(size=(20, d)))
    x = centre[rng.integers(40, size=300)] + tight * size * rng.normal(size=(300, d))
    x[0] = centre.mean(axis=0)
    width = np.full((40, d), 1.0 / (tight * size))
    bounds = center_bounds(QuadraticForm(np.zeros(40), centre, width, 1.0 / width), np.arange(40))
    assert (bounds.single is not None) == (size < 1e16 and tight > 1e-4)
    least = bounds.least_distances(x).astype(np.float64)
    distance = np.sqrt(np.square((x[:, None] - centre) * width[0, 0]).sum(axis=2))
    assert np.all(least <= distance)
    if size > 1e-12:
        assert np.mean(np.square(least) >= np.minimum(0.9 * np.square(distance) - 40.0, 1e6)) > 0.9


@pytest.mark.parametrize("carried", [True, False])
def test_bounds_of_few_components_in_many_features_need_no_copy_of_the_rows(carried: bool) -> None:
    x = np.random.default_rng(0).normal(size=(4_096, 1_000))
    form = QuadraticForm(np.zeros(2), x[:2].copy(), np.ones((2, 1_000)), np.ones((2, 1_000)))
    tracemalloc.start()
    try:
        bounds_of(None, form, np.arange(2) if carried else None, x).rows(x, slice(0, len(x)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes / 8


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 129])
def test_no_bound_depends_on_how_rows_are_divided_into_blocks(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole numbers about a middle of zero, whose products are exact in single precision."""
    rng = np.random.default_rng(n)
    x, half = rng.integers(-9, 9, size=(n, D)).astype(float), rng.integers(-9, 9, size=(35, D)).astype(float)
    bounds = center_bounds(form_of(np.concatenate([half, -half]), np.ones((70, D))), np.arange(70))
    whole = bounds.least_distances(x)
    monkeypatch.setattr(distance_bounds, "_BLOCK_ELEMENTS", 1)
    np.testing.assert_array_equal(bounds.least_distances(x), whole)


@pytest.mark.parametrize("d", [5, 20, 64])
def test_no_eigenvalue_is_larger_than_the_bound(d: int) -> None:
    """Round, of one direction, of half of them, and those of drawn rows."""
    rng = np.random.default_rng(d)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    spectra = [np.ones(d), np.geomspace(1.0, 1e-12, d), np.where(np.arange(d) < d // 2, 1.0, 1e-3)]
    spectra += [rng.uniform(0.1, 1.0, d) for _ in range(3)]
    matrices = np.array([turn * spectrum @ turn.T for spectrum in spectra] + [1e80 * turn @ turn.T, 1e-80 * np.eye(d)])
    matrices = np.concatenate([matrices, [np.cov(rng.normal(size=(d, 3 * d))) for _ in range(3)]])
    bound, largest = largest_eigenvalues(matrices), np.linalg.eigvalsh(matrices)[:, -1]
    assert np.all(bound * (1.0 + 1e-6) >= largest)
    assert np.all(bound <= 1.5 * largest)


@pytest.mark.parametrize("change", [1e-12, 1e-3, 0.3, 30.0])
def test_growth_is_bounded_by_the_largest_singular_value_and_not_far_above_it(change: float) -> None:
    """By NumPy's singular values. The Frobenius norm, which bounded it before, is more than twice as large."""
    rng, d = np.random.default_rng(0), 50
    root = 1.7 * (np.eye(d) + change / np.sqrt(d) * rng.standard_normal((6, d, d)))
    found = distance_bounds._largest_growth(root, np.broadcast_to(np.eye(d) / 1.7, root.shape))
    middle = np.trace(root, axis1=1, axis2=2) / d / 1.7
    rest = np.linalg.norm(root / 1.7 - middle[:, None, None] * np.eye(d), ord=2, axis=(1, 2))
    assert np.all(found * (1.0 + 1e-12) >= np.linalg.norm(root / 1.7, ord=2, axis=(1, 2)))
    assert np.all(found <= np.abs(middle) + 1.01 * d**0.125 * rest)
    frobenius = np.linalg.norm(root / 1.7 - middle[:, None, None] * np.eye(d), axis=(1, 2))
    assert np.all(found - np.abs(middle) < 0.5 * frobenius + 1e-14)
