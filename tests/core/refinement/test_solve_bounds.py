"""The bounds that a refinement is judged by: bounds on the evidence, and what they say they are."""

from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp, psi

from harness.refinement_problems import (
    CONCENTRATION,
    FAMILIES,
    functional,
    log_marginal_by_parts,
    partitions,
    points_for,
    problem_of,
    sharpened,
)
from harness.short_form import short_form
from shoal.points.arrays import Array
from shoal.process import log_eppf
from shoal.refinement import Problem, Solution
from shoal.refinement.solve import solve

N_PAST, N = 3, 7


def _tiny(name: str, seed: int) -> tuple[Problem, object, Array]:
    rng = np.random.default_rng(seed)
    x, resp = points_for(name, N, rng), sharpened(rng, N, 2)
    return problem_of(FAMILIES[name], x, resp, N_PAST), x, resp


def _solved(problem: Problem, seed: int = 0) -> Solution:
    return solve(problem, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("name", list(FAMILIES))
@pytest.mark.parametrize("seed", short_form(range(3), (0,)))
def test_neither_bound_exceeds_the_evidence_of_past_and_window(name: str, seed: int) -> None:
    problem, x, _ = _tiny(name, seed)
    family = FAMILIES[name]

    @cache
    def log_marginal(block: tuple[int, ...]) -> float:
        return log_marginal_by_parts(family, x[np.array(block)], np.ones(len(block)))

    def log_joint(partition: list[list[int]]) -> float:
        sizes = np.array([float(len(block)) for block in partition])
        return log_eppf(sizes, CONCENTRATION) + sum(log_marginal(tuple(sorted(block))) for block in partition)

    exact = float(logsumexp([log_joint(partition) for partition in partitions(N)]))
    solution = _solved(problem)
    assert solution.bound_before <= solution.bound_after <= exact + 1e-9


@pytest.mark.parametrize("name", list(FAMILIES))
def test_the_bounds_are_the_functional_of_all_points(name: str) -> None:
    """With two components the recorded entropy of the past is exact; its responsibilities go where its rows went."""
    problem, x, resp = _tiny(name, 11)
    solution = _solved(problem)
    past = np.zeros((N_PAST, len(solution.stats[0])))
    for component, row in enumerate(solution.past_row):
        past[:, row] += resp[:N_PAST, component]
    whole = np.vstack([past, solution.resp.toarray()])
    assert solution.bound_after == pytest.approx(functional(FAMILIES[name], x, whole, np.ones(N)), rel=1e-9)


def test_weights_count_in_statistics_labels_and_entropy_alike() -> None:
    rng = np.random.default_rng(4)
    x, resp, weights = points_for("diagonal", 60, rng), sharpened(rng, 60, 2), rng.uniform(0.2, 1.0, 60)
    problem = problem_of(FAMILIES["diagonal"], x, resp, 0, weights=weights)
    solution = _solved(problem)
    expected = functional(FAMILIES["diagonal"], x, solution.resp.toarray(), weights)
    assert solution.bound_after == pytest.approx(expected, rel=1e-9)
    assert solution.bound_after > solution.bound_before


def test_the_bound_before_is_one_step_from_the_live_components() -> None:
    """The past is of fewer than a hundred points here, so that the weights are those of sticks that saw everything."""
    problem, x, resp = _tiny("gaussian", 2)
    family, mass = FAMILIES["gaussian"], problem.live[0]
    first, second = np.argsort(-mass)
    both = 1.0 + CONCENTRATION + mass[first] + mass[second]
    log_weight = np.empty(2)
    log_weight[first] = psi(1.0 + mass[first]) - psi(both)
    log_weight[second] = psi(CONCENTRATION + mass[second]) - psi(both)  # the first stick is passed,
    log_weight[second] += psi(1.0 + mass[second]) - psi(1.0 + CONCENTRATION + mass[second])  # the second taken
    score = family.expected_log_likelihood(family.posterior(problem.live), problem.rows) + log_weight
    window = np.exp(score - logsumexp(score, axis=1, keepdims=True))
    expected = functional(family, x, np.vstack([resp[:N_PAST], window]), np.ones(N))
    assert _solved(problem).bound_before == pytest.approx(expected, abs=1e-4)  # the floor is 1e-6 a row
