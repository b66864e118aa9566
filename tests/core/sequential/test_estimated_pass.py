"""Learning by stochastic gradient: kernels beside plain NumPy, cuts and bytes, and convergence to what is known.

Where an estimate is held to a truth, a quadratic form in its error is compared with a chi-square quantile at 10^-4:
each of those limits raises a false alarm in 10^4 runs with other seeds.
"""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats as sps
from scipy.special import polygamma

from harness.short_form import longer, short_form
from shoal.families import DirichletByGradient
from shoal.mixture import StreamSettings, from_bytes, to_bytes
from shoal.sequential import assimilate_inplace, initial_state
from shoal.sequential.one_pass import one_pass_inplace
from shoal.sequential.passes import PassResult, PassRules, Piece, new_components
from shoal.sequential.reference import reference_pass_inplace

RARE = 1e-4
D = 5


def proportions(n: int, seed: int, precision: float = 40.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """n points of three components, their labels and means."""
    rng = np.random.default_rng(seed)
    theta = np.array([[0.6, 0.2, 0.1, 0.05, 0.05], [0.05, 0.1, 0.1, 0.55, 0.2], [0.1, 0.1, 0.6, 0.1, 0.1]])
    labels = rng.integers(3, size=n)
    gamma = rng.standard_gamma(precision * theta[labels])
    return gamma / gamma.sum(axis=1, keepdims=True), labels, theta


CASES: dict[str, Any] = {
    "dirichlet_gradient": lambda: (DirichletByGradient(40.0, [1.0, 0.5, 1.0, 0.5, 2.0]), proportions(250, 1)[0]),
    "dirichlet_gradient, paper": lambda: (
        DirichletByGradient(4.0, np.ones(D), step="paper", n_points=250, step_power=0.8),
        proportions(250, 1, 4.0)[0],
    ),
}


@pytest.mark.parametrize(
    ("name", "pair_rule"),
    [
        ("dirichlet_gradient", "overlap"),
        ("dirichlet_gradient, paper", "none"),
        longer("dirichlet_gradient", "none"),
        longer("dirichlet_gradient, paper", "overlap"),
    ],
)
def test_the_kernel_is_the_reference(name: str, pair_rule: Any) -> None:
    family, x = CASES[name]()
    x = x[:150]
    rules = PassRules(1.0, 0.5, 1e-3, pair_rule, 30)
    runs = []
    for fast in (True, False):
        arrays = new_components(family, 31, pair_rule)
        labels, log_density = np.zeros(len(x), dtype=np.int64), np.zeros(len(x))
        if fast:
            result = one_pass_inplace(family, rules, arrays, 0, 0, Piece(x, labels, log_density))
        else:
            result = PassResult(*reference_pass_inplace(family, rules, arrays, 0, 0, Piece(x, labels, log_density)))
        runs.append((result, arrays, labels, log_density))
    (fast_result, own, fast_labels, fast_density), (result, due, labels, log_density) = runs
    assert fast_result == result
    assert 1 < result.n_components < 30
    assert_array_equal(fast_labels, labels)
    assert_allclose(fast_density, log_density, rtol=1e-10, atol=1e-10)
    n = result.n_components
    for field, expected in zip(own.stats, due.stats, strict=True):
        assert_allclose(field[:n], expected[:n], rtol=1e-10, atol=1e-10)
    assert_array_equal(own.stats.seen[:n], len(x))
    assert_array_equal(own.born_at[:n], due.born_at[:n])
    assert_array_equal(own.last_seen_at[:n], due.last_seen_at[:n])
    if pair_rule == "overlap":
        assert_allclose(own.pairs[:n, :n], due.pairs[:n, :n], rtol=1e-9, atol=1e-11)


def fed(settings: StreamSettings, x: np.ndarray, cut: int, *, saved: bool = False) -> Any:
    state = initial_state(settings)
    for start in range(0, len(x), cut):
        state, _ = assimilate_inplace(state, x[start : start + cut])
        if saved:
            state = from_bytes(to_bytes(state))[0]
    return state


WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "half-life": {"half_life": 150.0},
    "sva-pm": {"method": "sva-pm", "prune_threshold": 0.01},
    "auto": {"prior": "auto", "warmup_points": 90},
}


@pytest.mark.parametrize(
    ("name", "way"),
    short_form(
        [(name, way) for name in CASES for way in WAYS],
        [*(("dirichlet_gradient", way) for way in WAYS), ("dirichlet_gradient, paper", "plain")],
    ),
)
def test_the_same_bytes_however_the_stream_is_cut_and_saved(name: str, way: str) -> None:
    family, x = CASES[name]()
    x = np.concatenate([x, x])
    settings = StreamSettings(**{"n_features": D, "family": family.name, "prior": family, **WAYS[way]})
    whole = fed(settings, x, len(x))
    assert to_bytes(fed(settings, x, 7)) == to_bytes(whole)
    assert to_bytes(fed(settings, x, 90, saved=True)) == to_bytes(whole)
    masses = whole.stats.mass[: whole.n_components]
    assert_allclose(masses.sum() + whole.pruned_mass, whole.decayed_count, rtol=1e-12)
    assert whole.past is None


def one_component(family: Any, x: np.ndarray) -> np.ndarray:
    """The estimate of one component that takes every point."""
    arrays = new_components(family, 2)
    rules = PassRules(1.0, 0.5, 1e-3, "none", 1)
    one_pass_inplace(family, rules, arrays, 0, 0, Piece(x, np.zeros(len(x), dtype=np.int64), np.zeros(len(x))))
    return np.asarray(arrays.stats.estimate[0])


def information(theta: np.ndarray, precision: float) -> np.ndarray:
    """Fisher information of one point about the logarithms of the shares."""
    jacobian = np.diag(theta) - np.outer(theta, theta)
    return np.asarray(jacobian @ np.diag(precision**2 * polygamma(1, precision * theta)) @ jacobian)


def error_in_information(theta: np.ndarray, log_theta: np.ndarray, precision: float) -> float:
    """Squared error of log theta in the Fisher information of one point."""
    moved = log_theta - np.log(theta)
    return float(moved @ information(theta, precision) @ moved)


@pytest.mark.parametrize("precision", [12.0, 40.0, 1_000.0])
@pytest.mark.parametrize("seed", [0, longer(1), longer(2)])
def test_proportions_converge_as_fast_as_the_information_allows(precision: float, seed: int) -> None:
    """n times the error in the information is chi-square of D - 1 degrees (Amari 1998); twice that is allowed for
    what the start leaves. At a precision of 3 one share in twelve of the last feature would fall below the floor."""
    theta = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
    rng = np.random.default_rng([seed, int(precision)])
    gamma = rng.standard_gamma(precision * theta, (20_000, D))
    x = np.maximum(gamma / gamma.sum(axis=1, keepdims=True), 1e-12)
    family = DirichletByGradient(precision, np.ones(D))
    error = error_in_information(theta, one_component(family, x), precision)
    assert 20_000 * error < 2.0 * sps.chi2.isf(RARE, D - 1)


@pytest.mark.parametrize("n", [500, 8_000])
def test_proportions_by_the_step_of_the_paper_have_the_error_of_its_steps(n: int) -> None:
    """Eq. 21 with n given. A plain gradient with steps i^-k leaves errors of covariance n^-k / 2 where the gradients'
    own covariance is the information (Chung 1954): 2 n^k times the error in the information is, over five runs, at most
    its largest eigenvalue times a chi-square of 5 (D - 1) degrees, and on average its trace times five."""
    theta, total = np.array([0.4, 0.3, 0.2, 0.1]), 0.0
    for seed in range(5):
        x = np.random.default_rng([n, seed]).dirichlet(4.0 * theta, n)
        family = DirichletByGradient(4.0, np.ones(4), step="paper", n_points=n, step_power=0.9)
        total += error_in_information(theta, one_component(family, np.maximum(x, 1e-12)), 4.0)
    of_one = information(theta, 4.0)
    assert 2.0 * n**0.9 * total < np.linalg.eigvalsh(of_one)[-1] * sps.chi2.isf(RARE, 15)
    assert 2.0 * n**0.9 * total > np.linalg.eigvalsh(of_one)[1] * sps.chi2.ppf(RARE, 15)


@pytest.mark.parametrize("method", ["default", "sva", "sva-pm"])
def test_a_stream_from_a_known_model_ends_at_its_parameters(method: Any) -> None:
    """Three components, parted so far that shared points do not count: twice the chi-square limit."""
    x, labels, theta = proportions(9_000, 3, 200.0)
    family = DirichletByGradient(200.0, np.ones(D))
    state = fed(StreamSettings(n_features=D, family="dirichlet_gradient", prior=family, method=method), x, len(x))
    heaviest = np.argsort(-state.stats.mass[: state.n_components])[:3]
    assert state.stats.mass[heaviest].sum() > 0.998 * len(x)
    for k in range(3):
        errors = [error_in_information(theta[k], state.stats.estimate[row], 200.0) for row in heaviest]
        assert (labels == k).sum() * min(errors) < 2.0 * sps.chi2.isf(RARE, D - 1)


def test_with_a_half_life_the_estimate_follows_a_drift() -> None:
    share = np.linspace(0.2, 0.7, 3_000)
    rng = np.random.default_rng(5)
    gamma = rng.standard_gamma(100.0 * np.stack([share, 0.8 - share, np.full_like(share, 0.2)], axis=1))
    x = gamma / gamma.sum(axis=1, keepdims=True)
    prior = DirichletByGradient(100.0, np.ones(3))
    common: dict[str, Any] = {"n_features": 3, "family": "dirichlet_gradient", "prior": prior, "max_components": 1}
    kept, forgot = (
        prior.means(fed(StreamSettings(**common, half_life=h), x, 3_000).stats.estimate[:1])[0] for h in (None, 100.0)
    )
    now = np.array([0.7, 0.1, 0.2])
    assert np.linalg.norm(forgot - now) < 0.05 < 0.2 < np.linalg.norm(kept - now)


def test_components_join_at_their_mean_by_mass() -> None:
    family = DirichletByGradient(10.0, np.ones(3))
    one, two = family.empty_stats(1), family.empty_stats(1)
    one.mass[0], two.mass[0] = 3.0, 1.0
    one.estimate[0], two.estimate[0] = np.log([0.5, 0.3, 0.2]), np.log([0.1, 0.6, 0.3])
    joined = family.add(one, two)
    theta = np.array([0.5, 0.3, 0.2]) ** 0.75 * np.array([0.1, 0.6, 0.3]) ** 0.25
    assert joined.mass[0] == 4.0
    assert_allclose(np.exp(joined.estimate[0]), theta / theta.sum(), rtol=1e-12)
    halved = family.scale(joined, 0.5)
    assert halved.mass[0] == 2.0
    assert_array_equal(halved.estimate, joined.estimate)
