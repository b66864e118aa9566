"""Fast-VDP: equal to VDP when fully expanded, and a bound whatever the tree and the frontier."""

from itertools import product

import numpy as np
import pytest

from shoal import DPMixture
from shoal.errors import SettingError
from shoal.families import KnownCovariance, NormalInverseGamma, NormalInverseWishart, log_marginal
from shoal.families.natural_statistics import origin_for
from shoal.inference import StickPrior, units_of
from shoal.mixture import log_density
from shoal.variational import fit_fast_vdp, fit_vdp
from shoal.variational.cells import cells_of_points
from shoal.variational.rounds import e_step, m_step, model_of, totals_of, without_past
from shoal.variational.tree import (
    Planes,
    above,
    cells_of,
    expanded,
    grow_tree,
    leaf_sums,
    leaves,
    leaves_of,
    planes_of,
    to_points,
    top,
)

from .vdp_cases import EVERY, FAMILIES, X2, grid_points, log_evidence


@pytest.mark.parametrize("name", FAMILIES)
def test_nodes_hold_the_statistics_of_their_points(name):
    family = FAMILIES[name]
    x, _ = grid_points(300, 0)
    tree = grow_tree(family, x, origin_for(family, x), 7.0, np.random.default_rng(0))
    points = cells_of_points(family, x, origin_for(family, x))
    assert points.rows is not None
    for node in range(len(tree.mass)):
        inside = np.flatnonzero(above(tree, np.array([node]))[tree.leaf] == 0)
        assert inside.size == tree.mass[node] > 0
        np.testing.assert_allclose(tree.location[node], x[inside].mean(axis=0), atol=1e-10)
        np.testing.assert_allclose(tree.rows[node], points.rows[inside].mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(
            tree.spread[node], np.cov(x[inside].T, bias=True) if inside.size > 1 else 0.0, atol=1e-9
        )
    assert tree.mass[0] * tree.log_carrier[0] == pytest.approx(points.log_carrier)


def test_leaves_are_about_as_large_as_asked():
    x, _ = grid_points(5000, 1)
    tree = grow_tree(FAMILIES["gaussian"], x, origin_for(FAMILIES["gaussian"], x), 50.0, np.random.default_rng(0))
    sizes = tree.mass[leaves(tree)]
    assert sizes.sum() == 5000
    assert sizes.max() <= 50


def test_equal_points_stay_together_and_nothing_fails():
    family = FAMILIES["gaussian"]
    x = np.repeat(X2[:3], 5, axis=0)
    tree = grow_tree(family, x, origin_for(family, x), 1.0, np.random.default_rng(0))
    assert leaves(tree).size == 3
    fit = fit_fast_vdp(family, x, concentration=1.0, expansion=0.0, leaf_points=1.0, rng=np.random.default_rng(0))
    points = fit_vdp(family, x, concentration=1.0, rng=np.random.default_rng(0))
    assert fit.elbo == pytest.approx(points.elbo, abs=1e-6)


def test_few_points_of_far_groups_are_not_one_component():
    """Nine points lay in one leaf of up to twenty, which could not be divided."""
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(centre, 0.1, (3, 2)) for centre in (0.0, 50.0, 100.0)])
    family = NormalInverseWishart(x.mean(axis=0), 1e-4, 4.0, 0.1 * np.eye(2))
    fit = fit_fast_vdp(family, x, concentration=1.0, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(fit.resp.argmax(axis=1), np.repeat(fit.resp.argmax(axis=1)[[0, 3, 6]], 3))
    assert len(set(fit.resp.argmax(axis=1))) == 3
    assert fit.elbo == pytest.approx(fit_vdp(family, x, concentration=1.0, rng=rng).elbo, abs=1e-6)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.short_form("gaussian", "bernoulli", "poisson", "diagonal")
def test_fully_expanded_it_is_vdp(name):
    """The paper's rule draws the same candidates in both, and nothing else is random."""
    family, _ = EVERY[name]
    x = grid_points(120, 3)[0] if name in FAMILIES else different_rows(120, name)
    settings = {"concentration": 1.5, "moves": "paper", "tol": 1e-6, "candidate_points": None}
    fast = fit_fast_vdp(family, x, **settings, expansion=0.0, leaf_points=1.0, rng=np.random.default_rng(0))
    slow = fit_vdp(family, x, **settings, rng=np.random.default_rng(0))
    assert fast.extra["nodes"] == len(x)
    assert fast.elbo == pytest.approx(slow.elbo, abs=1e-8)
    np.testing.assert_allclose(fast.resp, slow.resp, atol=1e-8)
    for a, b in zip(fast.stats, slow.stats, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-7)


@pytest.mark.parametrize("name", EVERY)
def test_a_round_on_single_leaves_is_a_round_on_points(name):
    family, x = EVERY[name]
    x = grid_points(80, 3)[0] if name in FAMILIES else x
    origin = origin_for(family, x)
    model = model_of(family, StickPrior(1.0, 0.7), origin)
    points = cells_of_points(family, x, origin)
    tree = grow_tree(family, x, origin, 1.0, np.random.default_rng(0))
    frontier = leaves(tree)
    nodes = cells_of(family, tree, frontier, origin)
    resp = np.random.default_rng(1).dirichlet(np.ones(5), size=len(frontier))
    bounds = []
    for cells, given in ((nodes, resp), (points, to_points(tree, frontier, resp))):
        tied = without_past(4)
        state, _ = m_step(model, cells.log_carrier, totals_of(cells, given.T), tied)
        trace = [state.elbo]
        for _ in range(8):
            totals, middle = e_step(model, cells, state)
            state, _ = m_step(model, cells.log_carrier, totals, state.past_row)
            trace += [middle, state.elbo]
        bounds.append(trace)
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-8)


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.short_form("*-0.3")
def test_at_every_expansion_the_bound_stays_below_the_evidence(name, alpha):
    family, x = EVERY[name]
    exact = log_evidence(family, x[:6], 1.0, alpha)
    bounds = []
    for size in (1.0, 2.0, 3.0, 6.0):
        fit = fit_fast_vdp(
            family, x[:6], concentration=alpha, leaf_points=size, expansion=0.0, rng=np.random.default_rng(0)
        )
        bounds.append(fit.elbo)
    assert max(bounds) <= exact
    assert bounds[0] >= max(bounds) - 1e-6


def different_rows(n, name):
    """Rows of counts no two of which lie in one place (those are one leaf; of words, places are shares)."""
    every = np.array(list(product(range(2 if name == "bernoulli" else 5), repeat=3)), dtype=float)
    if name == "multinomial":
        every = np.array([(i, j, 12 - i - j) for i in range(13) for j in range(13 - i)], dtype=float)
    return np.random.default_rng(3).permutation(every)[:n]


def test_opening_nodes_at_the_same_parameters_raises_the_bound_by_what_was_foretold():
    family = FAMILIES["gaussian"]
    x, _ = grid_points(400, 0)
    origin = origin_for(family, x)
    model = model_of(family, StickPrior(1.0, 1.0), origin)
    tree = grow_tree(family, x, origin, 4.0, np.random.default_rng(0))
    frontier = top(tree, 8)
    cells = cells_of(family, tree, frontier, origin)
    resp = np.random.default_rng(1).dirichlet(np.ones(5), size=frontier.size).T
    state, _ = m_step(model, cells.log_carrier, totals_of(cells, resp), without_past(4))
    last = e_step(model, cells, state)[1]
    _, cost = expanded(model, tree, frontier, state, np.inf)
    assert e_step(model, cells_of(family, tree, leaves(tree), origin), state)[1] == pytest.approx(last + cost)
    for most in (0.5, 0.25, 0.05, 0.0):
        opened, _ = expanded(model, tree, frontier, state, most * cost)
        bound = e_step(model, cells_of(family, tree, opened, origin), state)[1]
        assert bound >= last - 1e-9
        assert bound >= last + (1.0 - most) * cost - 1e-6 or opened.size == frontier.size
    assert cost > 0.0


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.short_form("diagonal")
def test_the_result_is_consistent(name):
    """Statistics by nodes are those of the points, and the bound is the closed form of the tied responsibilities."""
    family = FAMILIES[name]
    x, _ = grid_points(700, 2)
    fit = fit_fast_vdp(family, x, concentration=1.0, leaf_points=10.0, rng=np.random.default_rng(0))
    assert fit.resp is not None
    assert fit.resp.sum(axis=1) + fit.extra["tail"] == pytest.approx(1.0)
    again = family.suffstats(x, fit.resp)
    for a, b in zip(fit.stats, again, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-7)
    assert np.all(np.diff(fit.elbo_history) >= -1e-6)
    normal = fit.resp / fit.resp.sum(axis=1, keepdims=True)
    points = fit_vdp(family, x, concentration=1.0, resp_init=normal, max_iter=1, tol=0.0, rng=np.random.default_rng(0))
    assert points.elbo_history[0] == pytest.approx(fit.elbo, abs=1.0), "up to the tail"
    assert points.elbo_history[1] >= fit.elbo
    assert np.sum(log_marginal(family, fit.stats)) < 0.0
    assert np.all(np.isfinite(log_density(family, fit, x[:5])))


def test_nine_of_nine_on_a_grid():
    family = type(FAMILIES["gaussian"])([4.0, 4.0], 0.01, 4.0, 4.0 * np.eye(2))
    x, _ = grid_points(2_000, 0)
    fit = fit_fast_vdp(family, x, concentration=1.0, rng=np.random.default_rng(0))
    points = fit_vdp(family, x, concentration=1.0, moves="paper", rng=np.random.default_rng(0))
    assert np.sum(fit.stats[0] > 100) >= 9
    assert 1.0 <= fit.elbo / points.elbo < 1.05


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.short_form("spherical")
def test_rounds_on_points_raise_the_bound_to_one_of_untied_responsibilities(name):
    family = FAMILIES[name]
    x, _ = grid_points(400, 2)
    settings = {"concentration": 1.0, "leaf_points": 20.0}
    tied = fit_fast_vdp(family, x, **settings, rng=np.random.default_rng(0))
    bounds = [tied.elbo]
    for rounds in (1, 8):
        fit = fit_fast_vdp(family, x, **settings, point_rounds=rounds, rng=np.random.default_rng(0))
        assert fit.resp is not None
        assert fit.resp.shape == tied.resp.shape
        assert fit.resp.sum(axis=1) + fit.extra["tail"] == pytest.approx(1.0)
        assert fit.extra["nodes"] == 400
        assert np.all(np.diff(fit.elbo_history) >= -1e-6)
        bounds.append(fit.elbo)
    assert np.all(np.diff(bounds) > 0.0)
    normal = fit.resp / fit.resp.sum(axis=1, keepdims=True)
    points = fit_vdp(family, x, concentration=1.0, resp_init=normal, max_iter=0, rng=np.random.default_rng(0))
    assert points.elbo == pytest.approx(fit.elbo, abs=1.0), "up to the tail"


def test_rounds_on_points_stay_below_the_evidence():
    for family in FAMILIES.values():
        fit = fit_fast_vdp(
            family, X2[:6], concentration=1.0, leaf_points=3.0, point_rounds=5, rng=np.random.default_rng(0)
        )
        assert fit.elbo <= log_evidence(family, X2[:6], 1.0, 1.0)


def test_planes_from_a_part_of_the_points_leave_no_node_undefined():
    """Leaves that no point falls into count nothing: planes come from a sample, points may all lie elsewhere."""
    planes = Planes(
        np.array([1, 3, -1, -1, -1]),
        np.array([2, 4, -1, -1, -1]),
        np.eye(2)[[0, 0, 0, 0, 0]],
        np.array([0.0, -5.0, 0.0, 0.0, 0.0]),
        np.zeros((5, 2)),
    )
    x = np.array([[-1.0, 2.0], [-2.0, 4.0], [3.0, 1.0]])
    assert planes.leaves.tolist() == [2, 3, 4]
    found = leaves_of(planes, leaf_sums(planes, x)[0])
    assert found.mass.tolist() == [1.0, 0.0, 2.0]
    np.testing.assert_allclose(found.location[[0, 2]], [[3.0, 1.0], [-1.5, 3.0]])
    np.testing.assert_allclose(found.spread[2], np.cov(x[:2].T, bias=True))
    assert np.all(np.isfinite(found.location))


def test_leaf_moments_keep_their_digits_far_from_the_origin():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 3)) + np.array([1e8, -1e8, 0.0])
    planes = planes_of(x, 2_000.0, rng)
    sums, of_point = leaf_sums(planes, x)
    found = leaves_of(planes, sums)
    assert found.mass.sum() == len(x)
    for leaf in range(planes.leaves.size):
        mine = x[of_point == leaf]
        np.testing.assert_allclose(found.spread[leaf], np.cov((mine - mine[0]).T, bias=True), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["gaussian", "diagonal", "known_covariance"])
def test_planes_are_cut_in_the_units_of_the_prior(name):
    """Points and prior carried over to other units: the leaves are as narrow as before, and tying costs the same."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(400, 2)) + 9.0 * rng.integers(3, size=(400, 1)) * [0.0, 1.0]
    turn = np.diag([1.0, 1e4]) if name == "diagonal" else np.array([[2.0, 1.0], [-3e3, 5e3]])
    make = {
        "gaussian": lambda a: NormalInverseWishart([0.0, 0.0], 0.1, 4.0, a @ a.T),
        "diagonal": lambda a: NormalInverseGamma([0.0, 0.0], 0.1, 2.0, np.diagonal(a @ a.T)),
        "known_covariance": lambda a: KnownCovariance([0.0, 0.0], 100.0 * a @ a.T, a @ a.T),
    }[name]
    at_home, away = make(np.eye(2)), make(turn)
    assert units_of(at_home) is None

    def within(units):
        """Scatter within the leaves, in the units of the prior at home."""
        y, back = (x, np.eye(2)) if units == "home" else (x @ turn.T, np.linalg.inv(turn))
        known = units_of(away) if units == "prior" else None
        planes = planes_of(y, 20.0, np.random.default_rng(0), known)
        found = leaves_of(planes, leaf_sums(planes, y)[0])
        return sum(np.trace(back @ spread @ back.T) * n for spread, n in zip(found.spread, found.mass, strict=True))

    assert within("prior") == pytest.approx(within("home"), rel=0.1)
    assert within("raw") > 2.0 * within("home")


def test_the_number_of_rounds_on_points_is_checked():
    with pytest.raises(SettingError, match="point_rounds"):
        fit_fast_vdp(FAMILIES["gaussian"], X2, concentration=1.0, point_rounds=-1, rng=np.random.default_rng(0))


def test_value_beside_which_rounding_leaves_nothing_of_the_others_does_not_stop_a_fit():
    """The origin of the nodes was at the mean, half a trillion away: the search raised LinAlgError."""
    x = np.random.default_rng(0).normal(size=(200, 2)) + 8.0 * (np.arange(200) % 2)[:, None]
    x[17, 1] = 1e14
    labels = DPMixture(method="fast-vdp", random_state=0).fit(x).labels_
    rest = np.arange(200) != 17
    assert np.unique(labels).size == 3
    np.testing.assert_array_equal(labels[rest], labels[np.arange(200) % 2][rest])


def test_equal_rows_far_out_lie_at_their_location():
    """Their mean was rounded, to 1e84 deviations from them: the search raised LinAlgError."""
    model = DPMixture(method="fast-vdp", random_state=0).fit(np.full((30, 3), 1e100))
    assert not model.labels_.any()
    np.testing.assert_array_equal(model.means_[0], 1e100)
