"""Divisions of components alone against the functional by the chain rule, and against the same one at a time."""

from typing import Any

import numpy as np
import pytest
from scipy.special import betaln
from shoal.refinement.divide_kernel import divide_in_two
from shoal.refinement.divisions import Part, best_divisions
from shoal.refinement.ground import Ground
from shoal.refinement.reference import divide_in_two as divide_in_numpy
from shoal.refinement.sweeps import Model, State

from shoal.families import KnownCovariance, NormalInverseGamma, NormalInverseWishart
from shoal.kernels.cholesky import FEW_FEATURES
from shoal.refinement import divisions, splits
from shoal.refinement.solve import _start, solve

from .refinement_cases import CONCENTRATION, FAMILIES, functional, points_for, problem_of


def case(name: str) -> tuple[Model, State, Ground, list[Part], list[list[np.ndarray]]]:
    """Three components of 30 rows, each of which has both groups of points; starts of two kinds."""
    rng = np.random.default_rng(7)
    family, x, weights = FAMILIES[name], points_for(name, 90, rng), rng.uniform(0.4, 1.0, 90)
    resp = np.eye(3)[np.arange(90) % 3]
    ground = Ground(x, weights)
    state = _start(problem_of(family, x, resp, 0, weights=weights), ground)
    parts = []
    for k in range(3):
        rows = np.arange(k, 90, 3)
        part = weights[rows]
        parts.append(Part(x[rows], part * (state.window_mass[k] / part.sum())))
    starts = [[rng.integers(2, size=30).astype(float), np.append(np.ones(10), np.zeros(20))] for _ in parts]
    return Model(family, CONCENTRATION), state, ground, parts, starts


@pytest.mark.parametrize("name", FAMILIES)
def test_the_gain_is_that_of_the_functional_for_the_part_s_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divisions, "TOLERANCE", 1e-9)
    model, state, _, parts, starts = case(name)
    found = best_divisions(model, state, [0, 1, 2], parts, starts)
    assert any(found), "no component was divided: nothing is tested"
    for k, (part, division) in enumerate(zip(parts, found, strict=True)):
        if division is None:
            continue
        others = np.delete(state.window_mass, k)
        own = [np.stack([division.p, 1.0 - division.p], axis=1), np.ones((len(part.weight), 1))]
        after, before = (_bound(model, part, resp, others) for resp in own)
        assert division.gain == pytest.approx(after - before, rel=1e-8, abs=1e-7)


def _bound(model: Model, part: Part, resp: np.ndarray, others: np.ndarray) -> float:
    """The functional of the part's rows, the other components being masses in the label terms alone."""
    alone = functional(model.family, part.x, resp, part.weight)
    own = (resp * part.weight[:, None]).sum(axis=0)
    return alone - _labels(own) + _labels(np.append(own, others))


def _labels(mass: np.ndarray) -> float:
    mass = np.sort(mass)[::-1]
    behind = np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0)
    return float((betaln(1.0 + mass, CONCENTRATION + behind) - betaln(1.0, CONCENTRATION)).sum())


@pytest.mark.parametrize("name", FAMILIES)
def test_all_at_once_is_one_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divisions, "_few_features_prior", lambda family: None)
    model, state, _, parts, starts = case(name)
    together = best_divisions(model, state, [0, 1, 2], parts, starts)
    monkeypatch.setattr(divisions, "_BATCH_ELEMENTS", 1)
    for k, division in enumerate(best_divisions(model, state, [0, 1, 2], parts, starts)):
        assert (division is None) == (together[k] is None)
        if division is not None:
            np.testing.assert_allclose(together[k].p, division.p, rtol=1e-9, atol=1e-12)
            assert together[k].gain == pytest.approx(division.gain, rel=1e-9)


def wide_case(
    kind: type[NormalInverseWishart | NormalInverseGamma | KnownCovariance], d: int, apart: float
) -> tuple[Model, State, list[Part], list[list[np.ndarray]]]:
    """Four components of uneven masses, the last far from where the prior is, of two or three groups each."""
    rng = np.random.default_rng([d, int(10 * apart)])
    own = np.repeat(np.arange(4), (40, 90, 250, 120))
    group = rng.integers(3, size=own.size) * (own % 2 + 1) % 3
    centres = apart * rng.normal(size=(4, 3, d)) + np.array([0.0, 1.0, 5.0, 1e4])[:, None, None]
    x = centres[own, group] + rng.normal(size=(own.size, d)) * rng.uniform(0.3, 2.0, size=(4, d))[own]
    family, weights = kind.weak(d, within_variance=0.5, mean_strength=0.02), rng.uniform(0.4, 1.0, own.size)
    state = _start(problem_of(family, x, np.eye(4)[own], 0, weights=weights), Ground(x, weights))
    chosen = [np.flatnonzero((own == k) & (rng.random(own.size) < 0.7)) for k in range(4)]
    masses = [weights[rows] / weights[rows].sum() for rows in chosen]
    parts = [Part(x[r], m * mass) for r, m, mass in zip(chosen, masses, state.window_mass.tolist(), strict=True)]
    starts = [[(group[r] == 1).astype(float), rng.integers(2, size=r.size).astype(float)] for r in chosen]
    return Model(family, CONCENTRATION), state, parts, starts


@pytest.mark.parametrize("apart", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("d", [1, 2, 7, 16, 32])
@pytest.mark.parametrize("kind", [NormalInverseWishart, NormalInverseGamma, KnownCovariance])
def test_the_kernel_of_gaussians_makes_the_rounds_that_numpy_makes(
    kind: type[NormalInverseWishart | NormalInverseGamma | KnownCovariance],
    d: int,
    apart: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, state, parts, starts = wide_case(kind, d, apart)
    rows = [0, 1, 2, 3]
    by_kernel = best_divisions(model, state, rows, parts, starts)
    monkeypatch.setattr(divisions, "_few_features_prior", lambda family: None)
    in_numpy = best_divisions(model, state, rows, parts, starts)
    assert [one is None for one in by_kernel] == [one is None for one in in_numpy]
    assert apart < 6.0 or any(by_kernel), "no component was divided: nothing is tested"
    for one, other in zip(by_kernel, in_numpy, strict=True):
        if one is not None and other is not None:
            assert one.gain == pytest.approx(other.gain, rel=1e-7)
            swapped = abs(one.p - other.p).max() > 0.5  # both starts led there, to the last bit
            np.testing.assert_allclose(1.0 - one.p if swapped else one.p, other.p, atol=1e-6)


def test_rounding_that_leaves_a_matrix_indefinite_kills_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of 400 is so far out that what it takes from the whole is no longer positive definite. What is left of a
    square of 1e16 is rounding, of which the two roads have their own: its logarithm is off by a few nats."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(400, 2))
    x[0] = 1e8
    family, weights = NormalInverseWishart.weak(2, within_variance=1.0), np.ones(400)
    state = _start(problem_of(family, x, np.ones((400, 1)), 0), Ground(x, weights))
    given = Model(family, CONCENTRATION), state, [0], [Part(x, weights)], [[(np.arange(400) == 0).astype(float)]]
    by_kernel = best_divisions(*given)[0]
    monkeypatch.setattr(divisions, "_few_features_prior", lambda family: None)
    in_numpy = best_divisions(*given)[0]
    assert by_kernel is not None
    assert in_numpy is not None
    assert by_kernel.gain == pytest.approx(in_numpy.gain, rel=5e-3)


def test_a_diagonal_family_of_very_many_features_needs_no_matrix() -> None:
    d, rng = 60_000, np.random.default_rng(2)
    side = np.repeat([0.0, 1.0], 3)
    family, x = NormalInverseGamma.weak(d), 0.3 * rng.normal(size=(6, d)) + 5.0 * side[:, None]
    state = _start(problem_of(family, x, np.ones((6, 1)), 0), Ground(x, np.ones(6)))
    starts = [[side]]
    assert best_divisions(Model(family, CONCENTRATION), state, [0], [Part(x, np.ones(6))], starts)[0] is not None


def test_a_side_without_rows_gives_no_division() -> None:
    model, state, _, parts, _ = case("gaussian")
    nothing = [[np.ones(len(part.weight)), np.zeros(len(part.weight))] for part in parts]
    assert best_divisions(model, state, [0, 1, 2], parts, nothing) == [None, None, None]


@pytest.mark.parametrize("times", [1, 8])
def test_noise_in_a_part_that_stands_for_more_is_no_division(times: int) -> None:
    """One Gaussian of 8 features: children fitted to 60 rows counted eight times would gain, on the part alone."""
    rng = np.random.default_rng(5)
    family, x = NormalInverseWishart.weak(8, within_variance=1.0), rng.normal(size=(60, 8))
    state = _start(problem_of(family, x, np.ones((60, 1)), 0), Ground(x, np.ones(60)))
    part, starts = Part(x, np.full(60, float(times))), [rng.integers(2, size=60).astype(float) for _ in range(4)]
    assert best_divisions(Model(family, CONCENTRATION), state, [0], [part], [starts]) == [None]


def test_groups_in_a_part_that_stands_for_more_are_a_division() -> None:
    rng = np.random.default_rng(5)
    side = np.repeat([0.0, 1.0], 30)
    family, x = NormalInverseWishart.weak(8, within_variance=1.0), rng.normal(size=(60, 8)) + 4.0 * side[:, None]
    state = _start(problem_of(family, x, np.ones((60, 1)), 0), Ground(x, np.ones(60)))
    found = best_divisions(Model(family, CONCENTRATION), state, [0], [Part(x, np.full(60, 8.0))], [[side]])
    assert found[0] is not None
    np.testing.assert_allclose(found[0].p, side, atol=0.01)


@pytest.mark.parametrize(("d", "rows", "rounds"), [(20, 12, 3), (32, 40, 1), (40, 40, 1)])
def test_a_division_that_is_far_from_a_gain_is_given_up_at_once(
    d: int, rows: int, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One Gaussian cut across its first axis. Short by less it is given three rises; the kernel makes as many E-steps
    as NumPy, or the shares would not be the same."""
    family, x = NormalInverseWishart.weak(d, within_variance=1.0), np.random.default_rng(d).normal(size=(rows, d))
    state = _start(problem_of(family, x, np.ones((rows, 1)), 0), Ground(x, np.ones(rows)))
    given = Model(family, CONCENTRATION), state, [0], [Part(x, np.ones(rows))], [[(x[:, 0] > 0.0).astype(float)]]
    steps: list[np.ndarray] = []
    shares: list[np.ndarray] = []
    divide, at_once = divisions._Search.divide, divisions.divide_part

    def counted(search: divisions._Search, slope: np.ndarray, odds: float) -> None:
        divide(search, slope, odds)
        steps.append(search.p)

    def kept(*arguments: Any) -> float:
        flattery: float = at_once(*arguments)
        shares.append(arguments[-2][0])
        return flattery

    monkeypatch.setattr(divisions._Search, "divide", counted)
    monkeypatch.setattr(divisions, "divide_part", kept)
    assert best_divisions(*given) == [None]
    monkeypatch.setattr(divisions, "_few_features_prior", lambda family: None)
    if d <= FEW_FEATURES:
        assert best_divisions(*given) == [None]
        np.testing.assert_allclose(shares[0], steps[-1], atol=1e-6)
    assert len(steps) == rounds


@pytest.mark.parametrize("by_kernel", [False, True])
def test_rounds_that_pass_a_saddle_are_not_given_up(by_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two Gaussians about one point, the one wider: rounds rise by 199 nats, 76, 111, 292, ... from 2,586 short."""
    monkeypatch.setattr(divisions, "FEW_FEATURES", 64 if by_kernel else FEW_FEATURES)
    rng = np.random.default_rng(17_040)
    x, wide = rng.normal(size=(1_000, 40)), rng.integers(2, size=1_000) == 0
    x *= np.where(wide, rng.choice([1.5, 2.0, 3.0]), 1.0)[:, None]
    family = NormalInverseWishart.weak(40)
    problem = problem_of(family, x, np.ones((1_000, 1)), 0)
    assert len(solve(problem, rng=np.random.default_rng(17)).stats.mass) == 2


def test_a_start_that_there_is_twice_is_gone_by_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not its mirror image, whose rounds end in other last digits, of which the better division is chosen."""
    family, part, rng = NormalInverseWishart.weak(5), Part(np.zeros((4, 5)), np.ones(4)), np.random.default_rng(0)
    side = np.array([0.0, 1.0, 1.0, 0.0])
    for second, number in ((side.copy(), 1), (1.0 - side, 2)):
        monkeypatch.setattr(splits, "starts_of", lambda *_, second=second: [side, second])
        assert len(splits._starts(family, part, rng)) == number


@pytest.mark.parametrize("log_odds", [-3.0, 0.0, 40.0])
def test_dividing_in_two_agrees_with_numpy(log_odds: float) -> None:
    rng = np.random.default_rng(3)
    score, weight = 30.0 * rng.normal(size=200), rng.random(200)
    score[:2] = 1e5, -1e5
    share = np.empty(200)
    sums = divide_in_two(score, log_odds, weight, share)
    expected, expected_sums = divide_in_numpy(score, log_odds, weight)
    np.testing.assert_allclose(share, expected, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(sums, expected_sums, rtol=1e-12)
