"""The searches of VDP: what they find, what they refuse, and that the default never ends below the paper's rule."""

import numpy as np
import pytest

from shoal.errors import SettingError, ShapeError
from shoal.families import FAMILIES as EVERY_FAMILY
from shoal.families import NormalInverseGamma, NormalInverseWishart
from shoal.families.natural_statistics import origin_for
from shoal.inference import StickPrior
from shoal.inference.start_points import principal_start, same_sides
from shoal.mixture import Past, bound_of_responsibilities
from shoal.points.rows import SparseRows
from shoal.variational import fit_vdp, search
from shoal.variational.cells import cells_of_points
from shoal.variational.greedy_release import applied, evaluated, part_of, proposal_from
from shoal.variational.rounds import e_step, m_step, model_of, totals_of, without_past

from .vdp_cases import FAMILIES, X2, grid_points


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("moves", ["paper", "default"])
@pytest.mark.short_form("paper-0", "default-1")
def test_nine_of_nine_on_a_grid(seed, moves):
    x, z = grid_points(2_000, seed)
    family = NormalInverseWishart([4.0, 4.0], 0.01, 4.0, 4.0 * np.eye(2))
    fit = fit_vdp(family, x, concentration=1.0, moves=moves, rng=np.random.default_rng(seed))
    assert fit.resp is not None
    assert fit.resp.shape[1] == 9
    assert fit.converged
    table = np.zeros((9, 9))
    np.add.at(table, (z, fit.resp.argmax(axis=1)), 1)
    assert table.max(axis=1).sum() > 0.93 * len(x)


def test_clusters_in_a_row_are_found_where_no_division_into_halves_gains():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1)) / 2.0 + np.repeat(np.arange(0.0, 40.0, 10.0), 50)[:, None]
    family = NormalInverseWishart([15.0], 0.002, 258.0, [[64.0]])
    fit = fit_vdp(family, x, concentration=1.0, rng=rng)
    assert fit.resp is not None
    assert np.array_equal(fit.resp.argmax(axis=1)[::50], fit.resp.argmax(axis=1)[49::50])
    assert fit.resp.shape[1] == 4


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("n", [30, 200, pytest.param(600, marks=pytest.mark.slow)])
@pytest.mark.short_form("30-*", "200-diagonal")
def test_the_default_never_ends_below_the_papers_rule(name, n):
    family = FAMILIES[name]
    for seed in range(2):
        x, _ = grid_points(n, seed)
        ends = {
            moves: fit_vdp(family, x, concentration=1.0, moves=moves, rng=np.random.default_rng(seed)).elbo
            for moves in ("paper", "default")
        }
        assert ends["default"] >= ends["paper"] - 1e-5 * n


@pytest.mark.parametrize(
    "name",
    [name if name in ("gaussian", "spherical") else pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES],
)
@pytest.mark.short_form("gaussian")
def test_of_many_points_the_search_starts_on_a_tree(name, monkeypatch):
    family = FAMILIES[name]
    x, _ = grid_points(2_500, 3)
    by_the_paper = fit_vdp(family, x, concentration=1.0, moves="paper", rng=np.random.default_rng(3))
    monkeypatch.setattr(search, "FEW_ELEMENTS", 1)
    said = []
    fit = fit_vdp(family, x, concentration=1.0, rng=np.random.default_rng(3), progress=lambda p: said.append(p.message))
    assert "settling points" in said
    assert np.all(np.diff(fit.elbo_history) >= -1e-9 * np.abs(fit.elbo_history[1:]))
    assert fit.converged
    assert fit.elbo >= by_the_paper.elbo - 1e-5 * len(x)
    assert fit.elbo == pytest.approx(bound_of_its_own(family, x, fit), abs=1e-5 * len(x))


def bound_of_its_own(family, x, fit):
    """The free-stick bound of the responsibilities that a fit gave, of the points and not of nodes of a tree.

    What little they leave to the tail goes with the rest: hundredths of a nat. A tied bound is nats off.
    """
    resp = fit.resp / fit.resp.sum(axis=1, keepdims=True)
    return bound_of_responsibilities(family, x, resp, 1.0)


def short_documents(n, seed):
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(30, 0.2), size=5)
    return np.array([rng.multinomial(8, topics[k]) for k in rng.integers(5, size=n)], dtype=np.float64)


@pytest.mark.parametrize("name", ["multinomial", "bernoulli", "poisson"])
@pytest.mark.short_form("poisson", "bernoulli")
def test_of_many_sparse_rows_too(name, monkeypatch):
    rows = short_documents(2_100, 1)
    rows = np.minimum(rows, 1.0) if name == "bernoulli" else rows
    family = EVERY_FAMILY[name].weak(rows.shape[1])
    monkeypatch.setattr(search, "FEW_ELEMENTS", 1)
    fits = [fit_vdp(family, x, concentration=1.0, rng=np.random.default_rng(1)) for x in (rows, SparseRows.of(rows))]
    assert fits[0].converged
    assert np.all(np.diff(fits[0].elbo_history) >= -1e-9 * np.abs(fits[0].elbo_history[1:]))
    assert fits[1].elbo == pytest.approx(fits[0].elbo, rel=1e-9)
    assert fits[0].elbo == pytest.approx(bound_of_its_own(family, rows, fits[0]), abs=1e-5 * len(rows))


@pytest.mark.parametrize("max_iter", [0, 1, 7, 25, 60])
def test_rounds_that_run_out_on_the_tree_end_with_a_bound(max_iter, monkeypatch):
    x, _ = grid_points(2_500, 3)
    monkeypatch.setattr(search, "FEW_ELEMENTS", 1)
    family = FAMILIES["diagonal"]
    fit = fit_vdp(family, x, concentration=1.0, max_iter=max_iter, rng=np.random.default_rng(3))
    assert not fit.converged
    assert np.all(np.diff(fit.elbo_history) >= -1e-9 * np.abs(fit.elbo_history[1:]))
    assert fit.elbo == fit.elbo_history[-1]


def test_with_a_past_there_is_no_tree(monkeypatch):
    x, _ = grid_points(2_500, 3)
    family = FAMILIES["diagonal"]
    past = Past(family.suffstats(x[:200], np.ones((200, 1))), None)
    monkeypatch.setattr(search, "FEW_ELEMENTS", 1)
    said = []
    fit_vdp(
        family, x, concentration=1.0, past=past, rng=np.random.default_rng(3), progress=lambda p: said.append(p.message)
    )
    assert "settling points" not in said


def test_a_split_gains_exactly_what_it_says():
    """The state has the gain to the last digit, as long as the components stay in order."""
    for family in FAMILIES.values():
        x, _ = grid_points(300, 0)
        origin, rng = origin_for(family, x), np.random.default_rng(0)
        cells, model = cells_of_points(family, x, origin), model_of(family, StickPrior(1.5, 2.0), origin)
        resp = rng.dirichlet(np.full(4, 0.2), size=len(x)).T
        state, _ = m_step(model, cells.log_carrier, totals_of(cells, resp), without_past(3))
        resp = np.empty((4, 300))
        totals, _ = e_step(model, cells, state, resp)
        plain, _ = m_step(model, cells.log_carrier, totals, state.past_row, reorder=False)
        for row in range(3):
            part = part_of(cells, resp[row], 100, rng)
            proposal = proposal_from(model, part, state, row, principal_start(part.cloud))
            assert proposal is not None
            found = evaluated(model, cells, state, proposal)
            split, _ = m_step(model, cells.log_carrier, *applied(state, found), reorder=False)
            assert split.elbo - plain.elbo == pytest.approx(found.gain, abs=1e-7) or _out_of_order(split)
            ordered, _ = m_step(model, cells.log_carrier, *applied(state, found))
            assert ordered.elbo >= plain.elbo + found.gain - 1e-7 or _out_of_order(plain)


def _out_of_order(state):
    return bool(np.any(np.diff(state.totals.mass[:-1]) > 0))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_division_is_the_same_whichever_side_is_the_first(name):
    """So that of two starts that differ in no more than that one is enough."""
    family = FAMILIES[name]
    x, _ = grid_points(300, 1)
    origin = origin_for(family, x)
    cells, model = cells_of_points(family, x, origin), model_of(family, StickPrior(1.5, 2.0), origin)
    whole = np.vstack([np.ones(300), np.zeros(300)])
    state, _ = m_step(model, cells.log_carrier, totals_of(cells, whole), without_past(1))
    part = part_of(cells, whole[0], None, np.random.default_rng(0))
    start = principal_start(part.cloud)
    one, other = proposal_from(model, part, state, 0, start), proposal_from(model, part, state, 0, 1.0 - start)
    assert one is not None
    assert other is not None
    assert other.gain == pytest.approx(one.gain, rel=1e-9)
    np.testing.assert_allclose(other.slope, -one.slope, rtol=1e-6, atol=1e-9 * np.abs(one.slope).max())
    assert other.offset == pytest.approx(-one.offset, rel=1e-6, abs=1e-9)
    assert same_sides(start, start)
    assert same_sides(start, 1.0 - start)
    start[0] = 1.0 - start[0]
    assert not same_sides(start, principal_start(part.cloud))


def test_the_state_before_a_rejected_split_is_the_result():
    """One cluster: the search tries to split it, and gives back what it was, with the bound of one component."""
    x = np.random.default_rng(0).normal(size=(400, 2))
    family = NormalInverseWishart.weak(2, within_variance=1.0)
    for moves in ("paper", "default"):
        fit = fit_vdp(family, x, concentration=1.0, moves=moves, rng=np.random.default_rng(0))
        one = fit_vdp(family, x, concentration=1.0, resp_init=np.ones((400, 1)), rng=np.random.default_rng(0))
        assert len(fit.log_weight) == 1
        assert fit.elbo == pytest.approx(one.elbo, abs=1e-2)


def test_the_stopping_rule_counts_nats_a_point():
    """A component is released only for a rise of more than tol * N; so a large tol keeps one, a tiny one takes more."""
    x, _ = grid_points(500, 0)
    family = FAMILIES["gaussian"]
    counts = [
        len(fit_vdp(family, x, concentration=1.0, tol=tol, moves="paper", rng=np.random.default_rng(0)).log_weight)
        for tol in (10.0, 1e-2, 1e-6)
    ]
    assert counts[0] == 1
    assert counts[0] < counts[1] <= counts[2]


def test_far_away_data_give_the_same_fit():
    x, _ = grid_points(300, 0)
    near = NormalInverseWishart([4.0, 4.0], 0.01, 4.0, 4.0 * np.eye(2))
    far = NormalInverseWishart([4.0 + 1e7, 4.0 - 1e7], 0.01, 4.0, 4.0 * np.eye(2))
    shift = np.array([1e7, -1e7])
    a = fit_vdp(near, x, concentration=1.0, rng=np.random.default_rng(0))
    b = fit_vdp(far, (x + shift), concentration=1.0, rng=np.random.default_rng(0))
    assert a.elbo == pytest.approx(b.elbo, abs=1e-3)


def test_given_responsibilities_keep_their_number_of_components():
    rng = np.random.default_rng(0)
    x, _ = grid_points(200, 0)
    resp = rng.dirichlet(np.ones(12), size=200)
    family = NormalInverseGamma.weak(2)
    fit = fit_vdp(family, x, concentration=1.0, resp_init=resp, max_iter=7, tol=0.0, rng=rng)
    assert fit.resp is not None
    assert fit.resp.shape == (200, 12)
    assert fit.n_rounds == 7
    assert fit.elbo_history.shape == (8,)
    assert np.all(np.diff(fit.elbo_history) >= -1e-9)
    first = fit_vdp(family, x, concentration=1.0, resp_init=resp, max_iter=0, rng=rng)
    np.testing.assert_allclose(first.resp, resp)
    assert first.elbo == fit.elbo_history[0]


def test_progress_is_told_and_rounds_are_limited():
    seen = []
    x, _ = grid_points(500, 0)
    fit = fit_vdp(
        FAMILIES["gaussian"], x, concentration=1.0, max_iter=5, rng=np.random.default_rng(0), progress=seen.append
    )
    assert not fit.converged
    assert [step.round for step in seen] == list(range(len(seen)))
    assert seen[-1].elbo == fit.elbo
    assert len(seen) <= 8


def test_the_same_generator_gives_the_same_fit():
    x, _ = grid_points(250, 0)
    a, b = (fit_vdp(FAMILIES["diagonal"], x, concentration=1.0, rng=np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(a.resp, b.resp)
    assert a.elbo == b.elbo


def test_bad_settings_are_refused():
    rng, family = np.random.default_rng(0), FAMILIES["gaussian"]
    with pytest.raises(SettingError, match="not both"):
        fit_vdp(family, X2, rng=rng)
    with pytest.raises(SettingError, match="positive"):
        fit_vdp(family, X2, sticks=(1.0, 0.0), rng=rng)
    with pytest.raises(SettingError, match="moves"):
        fit_vdp(family, X2, concentration=1.0, moves="other", rng=rng)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="no points"):
        fit_vdp(family, X2[:0], concentration=1.0, rng=rng)
    with pytest.raises(ShapeError, match="one row"):
        fit_vdp(family, X2, concentration=1.0, resp_init=np.ones((3, 1)), rng=rng)
    with pytest.raises(SettingError, match="probabilities"):
        fit_vdp(family, X2, concentration=1.0, resp_init=np.full((7, 2), 0.4), rng=rng)


def test_one_point_is_one_component():
    for family in FAMILIES.values():
        fit = fit_vdp(family, X2[:1], concentration=1.0, rng=np.random.default_rng(0))
        assert len(fit.log_weight) == 1
