"""A hundred refinements without new points: what was found stays."""

import numpy as np
import pytest

from harness.refinement_problems import fed, problem_of
from harness.short_form import longer
from shoal.families import FAMILIES, AnyFamily
from shoal.refinement import Problem
from shoal.refinement.solve import solve


def _pair(family: str, distance: float, ratio: int, n: int, n_past: int) -> Problem:
    """Two unit Gaussians, `ratio` times as many points in the first, and a third far off; standardised.

    Responsibilities are those of the true model, as a stream that had learnt it would have them.
    """
    rng = np.random.default_rng(3)
    sizes = np.array([n * ratio // (ratio + 1), n - n * ratio // (ratio + 1), n // 8])
    means = np.array([[0.0, 0.0], [distance, 0.0], [0.0, 25.0]])
    x = np.repeat(means, sizes, axis=0)
    x = rng.permutation(x + rng.normal(size=x.shape))
    log_joint = np.log(sizes) - 0.5 * np.square(x[:, None] - means).sum(axis=2)
    resp = np.exp(log_joint - log_joint.max(axis=1, keepdims=True))
    resp[resp < 1e-6] = 0.0
    resp /= resp.sum(axis=1, keepdims=True)
    weak: AnyFamily = FAMILIES[family].weak(2)
    return problem_of(weak, x / x.std(axis=0), resp, n_past, reestimate=True)


def _moves_no_mass(problem: Problem) -> None:
    """The prior is estimated each time, and proposals are drawn again each time; what is worth adopting is adopted."""
    first = solve(problem, rng=np.random.default_rng(0))
    assert len(first.stats[0]) == 3
    problem = fed(problem, first)
    for seed in range(1, 51):
        again = solve(problem, rng=np.random.default_rng(seed))
        if again.worthwhile:
            problem = fed(problem, again)
    np.testing.assert_allclose(problem.live[0], first.stats[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("distance", "ratio", "n_past"), [(3.0, 1, 400), (4.0, 100, 0), longer(3.0, 1, 0), longer(4.0, 100, 400)]
)
def test_refining_again_without_new_points_moves_no_mass(distance: float, ratio: int, n_past: int) -> None:
    _moves_no_mass(_pair("diagonal", distance, ratio, 2_000, n_past))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gaussian", "diagonal"])
@pytest.mark.parametrize("distance", [3.0, 4.0])
@pytest.mark.parametrize("ratio", [1, 100])
@pytest.mark.parametrize("n_past", [0, 1_100, 3_000])
def test_refining_again_without_new_points_moves_no_mass_of_more_points(
    family: str, distance: float, ratio: int, n_past: int
) -> None:
    _moves_no_mass(_pair(family, distance, ratio, 6_000, n_past))
