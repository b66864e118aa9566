"""Bounds carried from sweep to sweep against distances worked out anew, and sweeps with them against sweeps without."""

import numpy as np
import pytest

from shoal.families import AnyFamily, KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.families.capabilities import QuadraticForm
from shoal.refinement import quadratic, reaches
from shoal.refinement.ground import Ground
from shoal.refinement.quadratic import Swept, swept
from shoal.refinement.reach_kernel import Reach, write_down
from shoal.refinement.reaches import Reaches, bounds_of
from shoal.refinement.sweeps import log_weights
from shoal.runtime.kernels import kernel

LOG_FLOOR = float(np.log(1e-6))
D = 9
FAMILIES: dict[str, AnyFamily] = {
    "gaussian": NormalInverseWishart(np.zeros(D), 0.01, D + 2.0, 0.3 * np.eye(D)),
    "diagonal": NormalInverseGamma(np.zeros(D), 0.01, 1.5, np.full(D, 0.3)),
    "known_covariance": KnownCovariance(np.zeros(D), 100.0, 1.0),
}


def form_of(centre: np.ndarray, root: np.ndarray) -> QuadraticForm:
    return QuadraticForm(np.zeros(len(centre)), centre, root, 1.0 / root if root.ndim == 2 else np.linalg.inv(root))


def distances(x: np.ndarray, form: QuadraticForm) -> np.ndarray:
    """(N, T) |A_k (x - centre_k)|."""
    root = form.root if form.root.ndim == 3 else form.root[:, :, None] * np.eye(D)
    return np.sqrt(np.square(np.einsum("kde,nke->nkd", root, x[:, None] - form.centre)).sum(axis=2))


def told_by(reach: Reach) -> np.ndarray:
    """(N, T) the bounds, in single precision as kernels read them."""
    apart = reach.levels.astype(np.float32) * reach.unit - reach.moved
    return np.maximum(apart, np.float32(0.0)).astype(np.float64)


@kernel()
def write(reach: Reach, i: int, k: int, square: float) -> None:
    write_down(reach, i, k, square)


def drawn_root(rng: np.random.Generator, t: int, matrix: bool) -> np.ndarray:
    if not matrix:
        return np.asarray(rng.uniform(0.2, 3.0, size=(t, D)))
    return np.tril(0.5 * rng.normal(size=(t, D, D)), -1) + np.eye(D) * rng.uniform(0.2, 3.0, size=(t, 1, D))


@pytest.mark.parametrize("matrix", [True, False])
@pytest.mark.parametrize("step", [0.0, 1e-6, 1e-2, 0.3])
def test_no_distance_is_below_its_bound_however_components_change(matrix: bool, step: float) -> None:
    """They move, change their shapes, come, go, change places, and take tags of others; rows are raised to their own
    distances now and then, as sweeps do."""
    rng = np.random.default_rng(int(1e6 * step) + matrix)
    x = 4.0 * rng.normal(size=(200, D))
    centre, root, tags = 4.0 * rng.normal(size=(6, D)), drawn_root(rng, 6, matrix), np.arange(6)
    known: Reaches | None = None
    told = 0
    for turn in range(40):
        form = form_of(centre, root)
        bounds = bounds_of(known, form, tags, len(x))
        reach = bounds.of(x, slice(0, len(x)))
        least, away = told_by(reach), distances(x, form)
        assert np.all(least <= away)
        told += int(np.sum(least > 0.3 * away)) if turn and bounds.new.size == 0 else 0
        for i, k in zip(*np.nonzero(rng.random(least.shape) < 0.3), strict=True):
            write(reach, i, k, np.square(away[i, k]))
        assert np.all(told_by(reach) <= away)
        known = Reaches(tags, form.centre, form.root, reach)
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
    assert step > 0.1 or told > 1_000, "no bound is of use"


@pytest.mark.parametrize("matrix", [True, False])
def test_rounding_lifts_no_bound_above_its_distance(matrix: bool) -> None:
    """Points and components on one line, which move along it and widen by next to nothing, over and over: what is lost
    is all that there is to lose, and what rounds up is seen."""
    rng, n, t = np.random.default_rng(0), 200, 3
    x, centre, size = np.zeros((n, D)), np.zeros((t, D)), np.ones(t)
    x[:, 0] = rng.uniform(50.0, 100.0, n)
    known: Reaches | None = None
    for turn in range(200):
        root = np.repeat(size[:, None], D, axis=1)
        form = form_of(centre.copy(), root[:, :, None] * np.eye(D) if matrix else root)
        reach = bounds_of(known, form, np.arange(t), n).of(x, slice(0, n))
        away = size * np.abs(x[:, :1] - centre[:, 0])
        assert np.all(told_by(reach) <= away)
        if turn % 50 == 0:
            for i, k in np.ndindex(n, t):
                write(reach, i, k, np.square(away[i, k]))
            assert np.all(told_by(reach) <= away)
        known = Reaches(np.arange(t), form.centre, form.root, reach)
        size = size * (1.0 - 1e-6 * rng.random(t))
        centre[:, 0] += 1e-5 * rng.random(t)
    assert np.mean(told_by(reach) > 0.98 * away) > 0.9, "no bound is close"


def same(one: Swept, other: Swept) -> None:
    """To the bit."""
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(one.resp, name), getattr(other.resp, name))
    assert (one.entropy, one.dropped) == (other.entropy, other.dropped)
    for values, others in zip((one.mass, *one.stats), (other.mass, *other.stats), strict=True):
        np.testing.assert_array_equal(values, others)


def settling(family: AnyFamily, x: np.ndarray, ground: Ground) -> float:
    """Sweeps on one ground, each the same to the bit as one on a ground of its own; how large a part of the bounds
    carried to the last of them is of use. On the way a component is parted and two are joined."""
    rng = np.random.default_rng(2)
    nearest = np.square(x[:, None] - x[rng.choice(len(x), 12, replace=False)]).sum(axis=2).argmin(axis=1)
    stats, tags, near = family.suffstats(x, np.eye(12)[nearest]), np.arange(12), None
    for turn in range(16):
        params, weight = family.posterior(stats), log_weights(1.0, stats[0], np.zeros(len(tags)))
        given = family, params, weight, LOG_FLOOR, family.empty_stats(len(tags)), near
        found, alone = swept(ground, *given, tags), swept(Ground(x, ground.weights), *given)
        assert found is not None
        assert alone is not None
        same(found, alone)
        resp = found.resp.toarray()
        if turn == 4:
            parted = resp[:, 3] * (x[:, 0] > x[:, 0].mean())
            resp, tags = np.column_stack([resp, parted]), np.append(tags, 12)
            resp[:, 3] -= parted
        if turn == 7:
            resp[:, 1] += resp[:, 5]
            resp, tags = np.delete(resp, 5, axis=1), np.delete(tags, 5)
        near = found.resp if turn != 9 else None
        stats = family.suffstats(x, resp * ground.weights[:, None])
    if ground.reaches is None:
        return 0.0
    form = quadratic.quadratic_form(family, family.posterior(stats))
    assert form is not None
    bounds = bounds_of(ground.reaches, form, tags, len(x))
    assert bounds.new.size == 0
    upper = form.constant - 0.5 * np.square(told_by(bounds.of(x, slice(0, len(x)))))
    return float(np.mean(upper < upper.max(axis=1, keepdims=True) - 30.0))


def clusters() -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.asarray(6.0 * rng.normal(size=(10, D))[rng.integers(10, size=700)] + rng.normal(size=(700, D)))


@pytest.mark.parametrize("name", FAMILIES)
def test_no_digit_of_a_sweep_depends_on_what_was_carried(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = clusters()
    for weights in (np.ones(len(x)), np.random.default_rng(0).uniform(0.1, 1.0, len(x))):
        assert settling(FAMILIES[name], x, Ground(x, weights)) > 0.5
    monkeypatch.setattr(quadratic, "_BLOCK_ELEMENTS", 64 * 12)  # many blocks
    assert settling(FAMILIES[name], x, Ground(x, np.ones(len(x)))) > 0.5


@pytest.mark.parametrize("far", [1e3, 1e20, 1e60])
@pytest.mark.parametrize("name", ["gaussian", "diagonal"])
def test_a_component_that_loses_its_far_points_is_told_as_if_it_were_new(name: str, far: float) -> None:
    """Its distances grow by as many powers of ten, beyond what single precision holds."""
    rng, family = np.random.default_rng(0), FAMILIES[name]
    x = np.concatenate([rng.normal(size=(100, D)), rng.normal(size=(100, D)) + 8.0])
    x[0], x[1] = far, -far
    first = np.repeat(np.eye(2), 100, axis=0)
    second = first.copy()
    second[:2] = [0.0, 1.0]
    ground, near = Ground(x, np.ones(200)), None
    for resp in (first, second):
        params = family.posterior(family.suffstats(x, resp))
        given = family, params, np.log([0.5, 0.5]), LOG_FLOOR, family.empty_stats(2), near
        found, alone = swept(ground, *given, np.arange(2)), swept(Ground(x, ground.weights), *given)
        assert found is not None
        assert alone is not None
        same(found, alone)
        near = alone.resp


@pytest.mark.parametrize("name", FAMILIES)
def test_nothing_is_carried_of_too_many_rows_or_too_few(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = clusters()
    with monkeypatch.context() as patched:
        patched.setattr(reaches, "_MOST_BYTES", 2 * 699 * 12)
        ground = Ground(x, np.ones(len(x)))
        settling(FAMILIES[name], x, ground)
        assert ground.reaches is None
    few = Ground(x[:30], np.ones(30))
    settling(FAMILIES[name], x[:30], few)
    assert few.reaches is None


def test_a_sweep_that_does_not_come_to_its_end_leaves_nothing_to_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the bounds would be those of other parameters."""
    x, family = clusters(), FAMILIES["diagonal"]
    ground, stats = Ground(x, np.ones(len(x))), family.suffstats(x, np.eye(3)[np.arange(len(x)) % 3])
    given = family.posterior(stats), np.zeros(3), LOG_FLOOR, family.empty_stats(3), None, np.arange(3)
    swept(ground, family, *given)
    assert ground.reaches is not None

    monkeypatch.setattr(quadratic, "_BLOCK_ELEMENTS", 100 * D)
    real, calls = quadratic.sweep_block, iter([None])

    def broken(*arguments: object) -> object:
        for _ in calls:
            return real(*arguments)
        raise MemoryError

    monkeypatch.setattr(quadratic, "sweep_block", broken)
    with pytest.raises(MemoryError):
        swept(ground, family, *given)
    assert ground.reaches is None
