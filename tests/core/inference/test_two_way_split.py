"""Two-way splits against the functional by the chain rule, and the compiled rounds against those in NumPy."""

from typing import Any

import numpy as np
import pytest
from scipy.special import betaln

from harness.refinement_problems import CONCENTRATION, FAMILIES, functional, points_for, problem_of
from shoal.families import (
    AnyFamily,
    BetaBernoulli,
    BetaNegativeBinomial,
    GammaPoisson,
    KnownCovariance,
    NormalInverseGamma,
    NormalInverseWishart,
)
from shoal.families.natural_statistics import (
    Origin,
    ShiftedRows,
    has_location,
    origin_for,
    statistics,
    statistics_by_points,
)
from shoal.inference import Model, StickPrior, two_way_split
from shoal.inference.two_way_split import (
    LIMITS,
    DividedComponent,
    Division,
    PlainSplit,
    QuadraticRows,
    SplitSample,
    best_division,
    table_of,
)
from shoal.kernels.cholesky import FEW_FEATURES
from shoal.points.arrays import Array
from shoal.points.rows import SparseRows
from shoal.refinement.solve import solve

STICKS = StickPrior(1.0, CONCENTRATION)
BEHIND = 4.5


def component_of(family: AnyFamily, x: Any, weights: Array, behind: float = BEHIND) -> DividedComponent:
    located = has_location(family)
    center = family.suffstats(x, weights[:, None]).mean[0] if located else np.zeros(x.shape[1])
    return DividedComponent(Origin(center, located), behind)


def in_numpy(model: Model, component: DividedComponent, sample: SplitSample, starts: list[Array]) -> Division | None:
    """As `best_division` does without a kernel."""
    plain = PlainSplit.of_rows(model, component, sample, LIMITS)
    found = [one for one in map(plain.divided, starts) if one is not None]
    best = max(found, key=lambda one: one.gain, default=None)
    return Division(best.p, best.gain) if best is not None and best.gain > plain.correction else None


@pytest.mark.parametrize("name", FAMILIES)
def test_the_gain_is_that_of_the_functional_for_the_part_s_rows(name: str) -> None:
    rng = np.random.default_rng(7)
    family, x, weights = FAMILIES[name], points_for(name, 90, rng), rng.uniform(0.4, 1.0, 90)
    starts = [np.random.default_rng(7).integers(2, size=90).astype(float)]  # the groups that the points were drawn in
    limits = LIMITS._replace(tolerance=1e-9)
    limits = limits._replace(least_gain=-1e3)
    division = best_division(
        Model(family, STICKS), component_of(family, x, weights), SplitSample(x, weights), starts, limits
    )
    assert division is not None
    own = [np.stack([division.p, 1.0 - division.p], axis=1), np.ones((90, 1))]
    after, before = (_bound(family, x, resp, weights) for resp in own)
    assert division.gain == pytest.approx(after - before, rel=1e-8, abs=1e-7)


def _bound(family: AnyFamily, x: Any, resp: Array, weights: Array) -> float:
    """The functional of the sample's rows, with the mass of other components behind them on the stick."""
    mass = np.sort((resp * weights[:, None]).sum(axis=0))[::-1]
    return functional(family, x, resp, weights) - _labels(mass, 0.0) + _labels(mass, BEHIND)


def _labels(mass: Array, behind: float) -> float:
    after = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0) + behind
    return float((betaln(1.0 + mass, CONCENTRATION + after) - betaln(1.0, CONCENTRATION)).sum())


def wide_case(
    kind: type[NormalInverseWishart | NormalInverseGamma | KnownCovariance], d: int, apart: float
) -> tuple[Model, list[tuple[DividedComponent, SplitSample, list[Array]]]]:
    """Four components of uneven masses, the last far from the prior's mean, of two or three groups each."""
    rng = np.random.default_rng([d, int(10 * apart)])
    own = np.repeat(np.arange(4), (40, 90, 250, 120))
    group = rng.integers(3, size=own.size) * (own % 2 + 1) % 3
    centres = apart * rng.normal(size=(4, 3, d)) + np.array([0.0, 1.0, 5.0, 1e4])[:, None, None]
    x = centres[own, group] + rng.normal(size=(own.size, d)) * rng.uniform(0.3, 2.0, size=(4, d))[own]
    family, weights = kind.weak(d, within_variance=0.5, mean_strength=0.02), rng.uniform(0.4, 1.0, own.size)
    cases = []
    for k in range(4):
        whole = np.flatnonzero(own == k)
        rows = whole[rng.random(whole.size) < 0.7]
        sample = SplitSample(x[rows], weights[rows] * (weights[whole].sum() / weights[rows].sum()))
        starts = [(group[rows] == 1).astype(float), rng.integers(2, size=rows.size).astype(float)]
        cases.append((component_of(family, x[whole], weights[whole], 10.0 * k), sample, starts))
    return Model(family, STICKS), cases


@pytest.mark.parametrize("apart", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("d", [1, 2, 7, 16, 32])
@pytest.mark.parametrize("kind", [NormalInverseWishart, NormalInverseGamma, KnownCovariance])
def test_the_kernel_of_gaussians_makes_the_rounds_that_numpy_makes(
    kind: type[NormalInverseWishart | NormalInverseGamma | KnownCovariance], d: int, apart: float
) -> None:
    model, cases = wide_case(kind, d, apart)
    by_kernel = [best_division(model, *case) for case in cases]
    plain = [in_numpy(model, *case) for case in cases]
    assert [one is None for one in by_kernel] == [one is None for one in plain]
    assert apart < 6.0 or any(by_kernel), "no component was divided: nothing is tested"
    for one, other in zip(by_kernel, plain, strict=True):
        if one is not None and other is not None:
            assert one.gain == pytest.approx(other.gain, rel=1e-7)
            swapped = abs(one.p - other.p).max() > 0.5  # both starts led there, to the last bit
            np.testing.assert_allclose(1.0 - one.p if swapped else one.p, other.p, atol=1e-6)


def test_rounding_that_leaves_a_matrix_indefinite_kills_no_child() -> None:
    """Without one far row of 400 the scatter is no longer positive definite. Of a square of 1e16 only rounding is left,
    which differs between the two forms: its logarithm is off by a few nats."""
    x = np.random.default_rng(1).normal(size=(400, 2))
    x[0] = 1e8
    family, weights = NormalInverseWishart.weak(2, within_variance=1.0), np.ones(400)
    given = Model(family, STICKS), component_of(family, x, weights, 0.0), SplitSample(x, weights)
    starts = [(np.arange(400) == 0).astype(float)]
    by_kernel, plain = best_division(*given, starts), in_numpy(*given, starts)
    assert by_kernel is not None
    assert plain is not None
    assert by_kernel.gain == pytest.approx(plain.gain, rel=5e-3)


def test_a_diagonal_family_of_very_many_features_needs_no_matrix() -> None:
    d, rng = 60_000, np.random.default_rng(2)
    side = np.repeat([0.0, 1.0], 3)
    family, x = NormalInverseGamma.weak(d), 0.3 * rng.normal(size=(6, d)) + 5.0 * side[:, None]
    component, sample = component_of(family, x, np.ones(6), 0.0), SplitSample(x, np.ones(6))
    assert best_division(Model(family, STICKS), component, sample, [side]) is not None


@pytest.mark.parametrize("name", ["gaussian", "multinomial"])
def test_a_side_without_rows_gives_no_division(name: str) -> None:
    family, x = FAMILIES[name], points_for(name, 30, np.random.default_rng(0))
    component, sample = component_of(family, x, np.ones(30)), SplitSample(x, np.ones(30))
    assert best_division(Model(family, STICKS), component, sample, [np.ones(30), np.zeros(30)]) is None


@pytest.mark.parametrize("times", [1, 8])
def test_noise_in_a_part_that_stands_for_more_is_no_division(times: int) -> None:
    """One Gaussian of 8 features: children fitted to 60 rows counted eight times would gain, on the sample alone."""
    rng = np.random.default_rng(5)
    family, x = NormalInverseWishart.weak(8, within_variance=1.0), rng.normal(size=(60, 8))
    component, sample = component_of(family, x, np.ones(60), 0.0), SplitSample(x, np.full(60, float(times)))
    starts = [rng.integers(2, size=60).astype(float) for _ in range(4)]
    assert best_division(Model(family, STICKS), component, sample, starts) is None


@pytest.mark.parametrize("points_a_row", [1.0, 8.0])
def test_groups_in_a_part_that_stands_for_more_are_a_division(points_a_row: float) -> None:
    rng = np.random.default_rng(5)
    side = np.repeat([0.0, 1.0], 30)
    family, x = NormalInverseWishart.weak(8, within_variance=1.0), rng.normal(size=(60, 8)) + 4.0 * side[:, None]
    component, sample = component_of(family, x, np.ones(60), 0.0), SplitSample(x, np.full(60, 8.0), points_a_row)
    found = best_division(Model(family, STICKS), component, sample, [side])
    assert found is not None
    np.testing.assert_allclose(found.p, side, atol=0.01)


@pytest.mark.parametrize(("d", "rows", "e_steps"), [(20, 12, 3), (32, 40, 1), (40, 40, 1)])
def test_a_division_that_is_far_from_a_gain_ends_at_once(
    d: int, rows: int, e_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One Gaussian cut across its first axis. Where it falls short by less it has three rises."""
    family, x = NormalInverseWishart.weak(d, within_variance=1.0), np.random.default_rng(d).normal(size=(rows, d))
    model, component = Model(family, STICKS), component_of(family, x, np.ones(rows), 0.0)
    made, real = [], two_way_split.expit
    monkeypatch.setattr(two_way_split, "expit", lambda value: made.append(1) or real(value))
    start = [(x[:, 0] > 0.0).astype(float)]
    assert in_numpy(model, component, SplitSample(x, np.ones(rows)), start) is None
    assert len(made) == e_steps
    if d <= FEW_FEATURES:
        assert best_division(model, component, SplitSample(x, np.ones(rows)), start) is None


def test_rounds_that_pass_a_saddle_go_on() -> None:
    """Two Gaussians about one point, the one wider: rounds rise by 199 nats, 76, 111, 292, ... from 2,586 short."""
    rng = np.random.default_rng(17_040)
    x, wide = rng.normal(size=(1_000, 40)), rng.integers(2, size=1_000) == 0
    x *= np.where(wide, rng.choice([1.5, 2.0, 3.0]), 1.0)[:, None]
    problem = problem_of(NormalInverseWishart.weak(40), x, np.ones((1_000, 1)), 0)
    assert len(solve(problem, rng=np.random.default_rng(17)).stats.mass) == 2


@pytest.mark.parametrize("past_side", [0, 1])
def test_a_past_goes_to_the_child_that_it_is_like(past_side: int) -> None:
    rng = np.random.default_rng(3)
    side = np.repeat([1.0, 0.0], (70, 30))
    x = rng.normal(size=(100, 2)) + 8.0 * side[:, None]
    old = rng.normal(size=(40, 2)) + 8.0 * (1 - past_side)
    family = NormalInverseWishart.weak(2)
    origin = origin_for(family, x)
    table, gone = (statistics(family, rows, origin).rows for rows in (x, old))
    center = family.empty_stats(1)._replace(mean=origin.point[None])
    prior = family.natural(family.relative(family.posterior(family.empty_stats(1)), to=center))[0]
    split = PlainSplit(family, STICKS, prior, table, np.ones(100), 0.0, past=(gone.sum(axis=0), 40.0))
    found = split.divided(side)
    assert found is not None
    assert found.past_first == (past_side == 0)
    own = np.stack([found.p, 1.0 - found.p], axis=1)
    fixed = np.tile(np.eye(2)[past_side], (40, 1))
    points, resp, weights = np.concatenate([x, old]), np.concatenate([own, fixed]), np.ones(140)
    together = functional(family, points, np.ones((140, 1)), weights)
    assert found.gain == pytest.approx(functional(family, points, resp, weights) - together, rel=1e-9)
    np.testing.assert_allclose(found.p, side, atol=1e-3)


@pytest.mark.parametrize(("n", "d"), [(1, 4), (40, 4), (43, 5), (700, 64), (130, 34)])
def test_products_are_those_of_the_table(n: int, d: int) -> None:
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
    few = rng.normal(size=(30, 2))
    plane = NormalInverseWishart.weak(2)
    assert isinstance(table_of(plane, few, origin_for(plane, few)), np.ndarray)


@pytest.mark.parametrize(
    "family",
    [
        BetaBernoulli(np.full(60, 0.3), 1.2),
        GammaPoisson(np.full(60, 0.3), 1.2),
        BetaNegativeBinomial(np.full(60, 2.5), 1.2, np.linspace(0.5, 3.0, 60)),
    ],
)
def test_products_with_few_words_are_those_of_single_points(family: Any) -> None:
    """By another road: natural parameters after each single point, less those before it."""
    rng = np.random.default_rng(0)
    x = (rng.random((40, 60)) < 0.08) * (1.0 if isinstance(family, BetaBernoulli) else rng.integers(1, 5, (40, 60)))
    origin = origin_for(family, x)
    table, expected = table_of(family, SparseRows.of(x), origin), statistics_by_points(family, x, origin).rows
    assert isinstance(table, ShiftedRows)
    slope, weights = rng.normal(size=expected.shape[1]), rng.random(40)
    np.testing.assert_allclose(table @ slope, expected @ slope, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(weights @ table, weights @ expected, rtol=0.0, atol=1e-11)
    assert not isinstance(table_of(family, np.ones((40, 60)), origin), ShiftedRows)
